"""From an attack's hits and misses to a lower bound on epsilon that is wrong with a stated probability at most.

Numpy and scipy only. Scores are numbers of which larger ones speak for "the example was there". Whatever is
chosen by looking (a direction, a threshold) is chosen on one part of the scores and judged on another.
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
# Thresholds that are tried: enough that the best of them is next to the best of all.
_MOST_THRESHOLDS = 400
# Dimensions up to which a whole covariance is fitted.
_FEW = 64


def least_share(hits: Any, trials: int, confidence: float) -> Any:
    """The share that is not below the true one's lower bound: Clopper-Pearson, one-sided.

    >>> round(float(least_share(0, 100, 0.995)), 4), round(float(least_share(100, 100, 0.995)), 4)
    (0.0, 0.9484)
    """
    hits = np.asarray(hits, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        found = special.betaincinv(hits, trials - hits + 1, 1 - confidence)
    return np.where(hits <= 0, 0.0, found)


def most_share(hits: Any, trials: int, confidence: float) -> Any:
    """The largest share that so many hits still allow: Clopper-Pearson, one-sided.

    >>> round(float(most_share(0, 15_000, 0.995)) * 1e4, 2)  # 1 - 0.005^(1 / 15000)
    3.53
    """
    return 1 - least_share(trials - np.asarray(hits), trials, confidence)


@dataclass(frozen=True)
class Rates:
    """What one test did: how many of `members` trials with the example it called so, and of `others` without.

    The bounds hold together with the stated confidence: each is taken at half the allowance.
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
        """ln((TPR - delta) / FPR), both at their bounds; 0 where that says nothing."""
        found, alarms = self.bounds(confidence)
        return math.log((found - delta) / alarms) if found - delta > alarms else 0.0

    def mu(self, confidence: float) -> float:
        """The mu of the Gaussian trade-off curve through the bounds; 0 where that says nothing."""
        found, alarms = self.bounds(confidence)
        return max(float(special.ndtri(found) - special.ndtri(alarms)), 0.0)


@dataclass(frozen=True)
class Threshold:
    """A test: call it "with" if `sign` times the score is above `sign` times the cut; or "without", if `swapped`.

    A swapped test takes the runs without the example for its positives, so that both ways round are looked at. `column`
    says which score is looked at, where there are several a run.
    """

    cut: float
    sign: int = 1
    swapped: bool = False
    column: int = 0

    def rates(self, members: Floats, others: Floats) -> Rates:
        """What this test does on scores that had no part in choosing it."""
        first, second = (others, members) if self.swapped else (members, others)
        found, alarms = (
            int(np.sum(self.sign * side[:, self.column] > self.sign * self.cut)) for side in (first, second)
        )
        return Rates(found, len(first), alarms, len(second))


Objective = Callable[[Floats, Floats], Floats]


def choose(members: Floats, others: Floats, objective: Objective, confidence: float) -> Threshold:
    """The column, threshold and direction whose bounds (least TPR, largest FPR) do best on scores [runs, columns]."""
    columns = range(members.shape[1])
    found = [_choose(members[:, column], others[:, column], objective, confidence, column) for column in columns]
    return max(found, key=lambda one: one[0])[1]


def _choose(
    members: Floats, others: Floats, objective: Objective, confidence: float, column: int
) -> tuple[float, Threshold]:
    both = np.concatenate([members, others])
    # The tails are where large epsilons hide: thresholds are taken evenly in rank, and densely at both ends.
    ranks = np.concatenate([np.linspace(0, 1, _MOST_THRESHOLDS // 2), np.geomspace(1 / both.size, 0.5, 100)])
    shares = np.unique(np.concatenate([ranks, 1 - ranks]))
    cuts = np.unique(np.quantile(both, shares))
    best, chosen = -math.inf, Threshold(math.inf, column=column)
    each = 1 - (1 - confidence) / 2
    for sign in (1, -1):
        for swapped in (False, True):
            first, second = (others, members) if swapped else (members, others)
            found, alarms = (_above(sign * side, sign * cuts) for side in (first, second))
            values = objective(least_share(found, first.size, each), most_share(alarms, second.size, each))
            place = int(np.argmax(values))
            if values[place] > best:
                best, chosen = float(values[place]), Threshold(float(cuts[place]), sign, swapped, column)
    return best, chosen


def _above(scores: Floats, cuts: Floats) -> NDArray[np.int64]:
    """How many scores lie above each cut."""
    return np.asarray(scores.size - np.searchsorted(np.sort(scores), cuts, side="right"))


def log_ratio(delta: float) -> Objective:
    """What is to be large for epsilon at delta to be large."""

    def objective(found: Floats, alarms: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(found - delta, 1e-300)) - np.log(alarms))

    return objective


def gaussian_shift(found: Floats, alarms: Floats) -> Floats:
    """What is to be large for the Gaussian estimate to be large."""
    return np.asarray(special.ndtri(np.clip(found, 1e-300, 1)) - special.ndtri(np.clip(alarms, 0, 1 - 1e-16)))


def below_curve(curve: PrivacyCurve) -> Objective:
    """How far below a proven trade-off curve a point lies: above 0, the curve is contradicted."""

    def objective(found: Floats, alarms: Floats) -> Floats:
        return np.asarray(curve.tradeoff(np.asarray(alarms))) - (1 - found)

    return objective


@dataclass(frozen=True)
class Distinguished:
    """What scores of two neighbouring worlds show.

    `bound` assumes nothing. `gaussian` is tighter, and true where the trade-off curve is a Gaussian's. `excess`, if
    a proven curve was given, is how far below it the attack got, at its confidence bounds: above 0 contradicts it.
    """

    bound: LowerBound
    gaussian: LowerBound
    rates: Rates
    excess: float | None
    column: int = 0

    @property
    def contradicts(self) -> bool:
        """Whether the proven curve cannot be true, with the stated confidence."""
        return self.excess is not None and self.excess > 0


def distinguish(
    members: Any, others: Any, *, delta: float, confidence: float = 0.99, proven: PrivacyCurve | None = None
) -> Distinguished:
    """Lower bounds on epsilon from scores with the example (`members`) and without it (`others`).

    One score a run, or several in columns, of which the best is taken. Runs must be independent, and what was fitted
    to score them must not have seen them. Column, threshold and direction are chosen on the first third of each side
    and judged on the rest; every statement holds with `confidence` by itself. With m judged runs a side, no epsilon
    above about ln(m / 5.3) can be shown at 99 %.
    """
    members, others = _scores("members", members), _scores("others", others)
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
        _excess(choosing, judged, proven, confidence),
        middle.column,
    )


def _excess(
    choosing: tuple[Floats, Floats], judged: tuple[Floats, Floats], proven: PrivacyCurve | None, confidence: float
) -> float | None:
    if proven is None:
        return None
    objective = below_curve(proven)
    found, alarms = choose(*choosing, objective, confidence).rates(*judged).bounds(confidence)
    return float(objective(np.array([found]), np.array([alarms]))[0])


def _scores(name: str, values: Any) -> Floats:
    scores = _validate.reals(name, values, infinite=True)
    scores = scores.reshape(len(scores), -1) if scores.ndim else scores.reshape(1, 1)
    if len(scores) < 6:
        raise InvalidArgument(
            f"{name} must hold the scores of at least 6 runs, of which a third chooses a threshold and the rest judges "
            f"it. Got {len(scores)}. Add runs."
        )
    return scores


def error_points(members: Any, others: Any, most: int = 200) -> tuple[tuple[float, float], ...]:
    """(false alarms, members missed) at up to `most` thresholds, as counted: what to draw beside a trade-off curve."""
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
        """From the features of runs with and without the example; one pass, one run in memory at a time."""
        (count, mean, scatter), (other_count, other_mean, other_scatter) = _moments(members), _moments(others)
        pooled = (scatter + other_scatter) / max(count + other_count - 2, 1)
        variance = np.diag(pooled) if pooled.ndim == 2 else pooled
        # A coordinate without any spread tells the worlds apart for certain, or says nothing: its variance is tiny.
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


def _moments(rows: Iterable[Floats]) -> tuple[int, Floats, Floats]:
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
        raise InvalidArgument(f"A discriminant is fitted to at least two runs on each side. Got {count}. Add runs.")
    return count, mean, scatter
