"""From the scores of an attack to a lower bound on epsilon that is wrong with at most a stated probability.

Numpy and scipy only. Scores are larger if the example was there. Choices that depend on the scores (a direction, a
threshold) are made on one part of the scores and judged on another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.curve import PrivacyCurve
from tacit.audit.evidence import Kind, LowerBound
from tacit.errors import InvalidArgument

Floats = NDArray[np.float64]

GAUSSIAN_SHAPE = "that the trade-off curve has the shape of a Gaussian's"
# Thresholds to try: enough to come close to the best.
_MOST_THRESHOLDS = 400
# Up to this many dimensions a full covariance is fitted.
_FEW = 64


def least_share(hits: Any, trials: int, confidence: float) -> Any:
    """The one-sided Clopper-Pearson lower bound on a share.

    >>> round(float(least_share(0, 100, 0.995)), 4), round(float(least_share(100, 100, 0.995)), 4)
    (0.0, 0.9484)
    """
    hits = np.asarray(hits, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        found = special.betaincinv(hits, trials - hits + 1, 1 - confidence)
    return np.where(hits <= 0, 0.0, found)


def most_share(hits: Any, trials: int, confidence: float) -> Any:
    """The one-sided Clopper-Pearson upper bound on a share.

    >>> round(float(most_share(0, 15_000, 0.995)) * 1e4, 2)  # 1 - 0.005^(1 / 15000)
    3.53
    """
    return 1 - least_share(trials - np.asarray(hits), trials, confidence)


@dataclass(frozen=True)
class Rates:
    """The results of a test: positives among `members` trials with the example, and among `others` without.

    Both bounds together hold with the stated confidence: each gets half of the error probability.
    """

    found: int
    members: int
    alarms: int
    others: int

    def bounds(self, confidence: float) -> tuple[float, float]:
        """(least true-positive rate, largest false-positive rate)."""
        each = 1 - (1 - confidence) / 2
        return (
            float(least_share(self.found, self.members, each)),
            float(most_share(self.alarms, self.others, each)),
        )

    def epsilon(self, delta: float, confidence: float) -> float:
        """ln((TPR - delta) / FPR), both at their bounds; 0 if that is negative."""
        found, alarms = self.bounds(confidence)
        return math.log((found - delta) / alarms) if found - delta > alarms else 0.0

    def mu(self, confidence: float) -> float:
        """The mu of the Gaussian trade-off curve through the bounds; 0 if that is negative."""
        found, alarms = self.bounds(confidence)
        return max(float(special.ndtri(found) - special.ndtri(alarms)), 0.0)


@dataclass(frozen=True)
class Threshold:
    """A test: positive if `sign` times the score is above `sign` times the cut.

    A `swapped` test takes the runs without the example as its members, so that both directions are tested. `column`
    selects one of several scores per run.
    """

    cut: float
    sign: int = 1
    swapped: bool = False
    column: int = 0

    def rates(self, members: Floats, others: Floats) -> Rates:
        """The results on scores that were not used to choose the test."""
        first, second = (others, members) if self.swapped else (members, others)
        found, alarms = (
            int(np.sum(self.sign * side[:, self.column] > self.sign * self.cut)) for side in (first, second)
        )
        return Rates(found, len(first), alarms, len(second))


Objective = Callable[[Floats, Floats], Floats]


def choose(members: Floats, others: Floats, objective: Objective, confidence: float) -> Threshold:
    """The column, threshold and direction with the best objective of (least TPR, largest FPR) on [runs, columns]."""
    columns = range(members.shape[1])
    found = [_choose(members[:, column], others[:, column], objective, confidence, column) for column in columns]
    return max(found, key=lambda one: one[0])[1]


def _choose(
    members: Floats, others: Floats, objective: Objective, confidence: float, column: int
) -> tuple[float, Threshold]:
    both = np.concatenate([members, others])
    # Large epsilons show in the tails: thresholds are even in rank, and dense at both ends.
    ranks = np.concatenate([np.linspace(0, 1, _MOST_THRESHOLDS // 2), np.geomspace(1 / both.size, 0.5, 100)])
    shares = np.unique(np.concatenate([ranks, 1 - ranks]))
    cuts = np.unique(np.quantile(both, shares))
    best, chosen = -math.inf, Threshold(math.inf, column=column)
    each = 1 - (1 - confidence) / 2
    for sign in (1, -1):
        for swapped in (False, True):
            first, second = (others, members) if swapped else (members, others)
            # The number of scores above each cut.
            found, alarms = (
                side.size - np.searchsorted(np.sort(sign * side), sign * cuts, side="right") for side in (first, second)
            )
            values = objective(least_share(found, first.size, each), most_share(alarms, second.size, each))
            place = int(np.argmax(values))
            if values[place] > best:
                best, chosen = float(values[place]), Threshold(float(cuts[place]), sign, swapped, column)
    return best, chosen


def log_ratio(delta: float) -> Objective:
    """The objective for a large epsilon at delta."""

    def objective(found: Floats, alarms: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(found - delta, 1e-300)) - np.log(alarms))

    return objective


def gaussian_shift(found: Floats, alarms: Floats) -> Floats:
    """The objective for a large Gaussian estimate."""
    return np.asarray(special.ndtri(np.clip(found, 1e-300, 1)) - special.ndtri(np.clip(alarms, 0, 1 - 1e-16)))


@dataclass(frozen=True)
class Distinguished:
    """What the scores of runs on two neighbouring data sets show.

    `bound` assumes nothing. `gaussian` is tighter, and valid if the trade-off curve is a Gaussian's. `excess` is how
    far the attack got below a proven curve, at its confidence bounds; above 0 contradicts the curve.
    """

    bound: LowerBound
    gaussian: LowerBound
    rates: Rates
    excess: float | None
    column: int = 0

    @property
    def contradicts(self) -> bool:
        """Whether the proven curve is refuted, with the stated confidence."""
        return self.excess is not None and self.excess > 0


def distinguish(
    members: Any, others: Any, *, delta: float, confidence: float = 0.99, proven: PrivacyCurve | None = None
) -> Distinguished:
    """Lower bounds on epsilon from scores with the example (`members`) and without it (`others`).

    One score per run, or several in columns, of which the best is used. Runs must be independent of each other and of
    anything fitted to score them. Column, threshold and direction are chosen on the first third of each side and judged
    on the rest; each statement holds with `confidence` on its own. m judged runs per side can show no epsilon above
    about ln(m / 5.3) at 99 %.
    """
    members, others = _check_scores("members", members), _check_scores("others", others)
    confidence, delta = _validate.open_unit("confidence", confidence), _validate.open_unit("delta", delta)
    cut, other_cut = len(members) // 3, len(others) // 3
    choosing = members[:cut], others[:other_cut]
    judged = members[cut:], others[other_cut:]
    rates = choose(*choosing, log_ratio(delta), confidence).rates(*judged)
    middle = choose(*choosing, gaussian_shift, confidence)
    mu = middle.rates(*judged).mu(confidence)
    return Distinguished(
        LowerBound(rates.epsilon(delta, confidence), delta, confidence, Kind.SIMULATED),
        LowerBound(
            gdp.epsilon(delta, mu) if mu > 0 else 0.0, delta, confidence, Kind.SIMULATED, assuming=GAUSSIAN_SHAPE
        ),
        rates,
        _find_excess(choosing, judged, proven, confidence),
        middle.column,
    )


def _find_excess(
    choosing: tuple[Floats, Floats], judged: tuple[Floats, Floats], proven: PrivacyCurve | None, confidence: float
) -> float | None:
    """How far the attack gets below a proven trade-off curve: above 0, the curve is contradicted."""
    if proven is None:
        return None

    def objective(found: Floats, alarms: Floats) -> Floats:
        return np.asarray(proven.tradeoff(np.asarray(alarms))) - (1 - found)

    found, alarms = choose(*choosing, objective, confidence).rates(*judged).bounds(confidence)
    return float(objective(np.array([found]), np.array([alarms]))[0])


def _check_scores(name: str, values: Any) -> Floats:
    scores = _validate.reals(name, values, infinite=True)
    scores = scores.reshape(len(scores), -1) if scores.ndim else scores.reshape(1, 1)
    if len(scores) < 6:
        raise InvalidArgument(
            f"{name} must hold the scores of at least 6 runs: a third chooses a threshold, and the rest judges it. "
            f"Got {len(scores)}. Add runs."
        )
    return scores


def list_error_points(members: Any, others: Any, most: int = 200) -> tuple[tuple[float, float], ...]:
    """Empirical (false alarms, members missed) at up to `most` thresholds, to be drawn beside a trade-off curve."""
    members, others = np.sort(np.asarray(members, dtype=np.float64)), np.sort(np.asarray(others, dtype=np.float64))
    cuts = np.unique(np.concatenate([members, others]))
    alarms = 1 - np.searchsorted(others, cuts, side="right") / others.size
    missed = np.searchsorted(members, cuts, side="right") / members.size
    # Evenly in the logarithm of the rarer error, for the tails are what matters.
    order = np.log(np.maximum(alarms, 0.1 / others.size)) - np.log(np.maximum(missed, 0.1 / members.size))
    kept = np.unique(
        np.searchsorted(np.sort(order), np.linspace(order.min(), order.max(), most)).clip(0, cuts.size - 1)
    )
    chosen = np.argsort(order, kind="stable")[kept]
    return tuple(zip(alarms[chosen].tolist(), missed[chosen].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Discriminant:
    """Two linear scores of features: how far a run lies towards the runs with the example.

    Fisher's: the difference of means over the pooled covariance, which is shrunk towards its diagonal where there are
    few runs for their dimension; the diagonal alone in more than 64 dimensions. And the same with those coordinates
    only whose means differ by more than chance would have it, for where there are many that say nothing.
    """

    weights: Floats
    centre: Floats

    @staticmethod
    def fit(members: Iterable[Floats], others: Iterable[Floats]) -> Discriminant:
        """Fit to the features of runs with and without the example; one pass, one run in memory at a time."""
        (count, mean, scatter), (other_count, other_mean, other_scatter) = _find_moments(members), _find_moments(others)
        pooled = (scatter + other_scatter) / max(count + other_count - 2, 1)
        variance = np.diag(pooled) if pooled.ndim == 2 else pooled
        # A coordinate without spread separates the data sets perfectly, or not at all: its variance gets a small floor.
        floor = 1e-12 * max(float(variance.max(initial=0.0)), float(np.abs(mean).max(initial=0.0)) ** 2, 1e-300)
        difference, centre = mean - other_mean, (mean + other_mean) / 2
        single = difference / np.maximum(variance, floor)
        errors = np.sqrt(np.maximum(variance, floor) * (1 / count + 1 / other_count))
        sparse = np.where(np.abs(difference) > math.sqrt(2 * math.log(mean.size + 1)) * errors, single, 0.0)
        if pooled.ndim == 1:
            return Discriminant(np.stack([single, sparse], axis=1), centre)
        share = mean.size / (mean.size + count + other_count)
        covariance = (1 - share) * pooled
        covariance[np.diag_indices(mean.size)] += share * variance + floor
        return Discriminant(np.stack([np.linalg.solve(covariance, difference), sparse], axis=1), centre)

    def __call__(self, features: Floats) -> Floats:
        """The scores of one run."""
        return np.asarray((features - self.centre) @ self.weights)


def _find_moments(rows: Iterable[Floats]) -> tuple[int, Floats, Floats]:
    """Number, mean and scatter (a matrix in few dimensions, else its diagonal) of rows, by Welford's recursion."""
    count, mean, scatter = 0, np.zeros(0), np.zeros(0)
    for row in rows:
        if count == 0:
            mean, scatter = np.zeros_like(row), np.zeros((row.size, row.size) if row.size <= _FEW else row.size)
        count += 1
        before = row - mean
        mean = mean + before / count
        scatter = scatter + (np.outer(before, row - mean) if scatter.ndim == 2 else before * (row - mean))
    if count < 2:
        raise InvalidArgument(f"A discriminant needs at least two runs on each side. Got {count}. Add runs.")
    return count, mean, scatter
