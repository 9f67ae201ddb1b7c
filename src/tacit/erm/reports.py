"""Reports: every person adds noise to their own example, features and label, before anyone else sees it.

A report protects its sender against every reader (local privacy, replace-one). Shuffled among `n` reports it protects
far better against those who see only the shuffled reports or a model trained on them (central privacy). Training and
de-biasing come after the noise and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate
from tacit.accounting.events import (
    Adjacency,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    RandomizedResponse,
    ShuffledReports,
)
from tacit.erm.losses import Huber, Logistic, Loss, Multinomial, OneVsRest, SmoothHinge, Squared
from tacit.erm.noise import Noisy, add_gaussian, k_norm, round_to_grid
from tacit.erm.noisy_data import draw_below, draw_permutation, with_rows
from tacit.erm.problem import Problem
from tacit.erm.result import PerturbedData
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, Source, Stream

Features = Literal["gaussian", "k_norm"]

# Noise moves the minimiser by far more than a gradient of this share of the longest one does.
_TOLERANCE = 1e-7
_REPLACE = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class Reporting:
    """How reports are made, and who sees them.

    `features` is the noise on the features, `label_share` the part of a report's epsilon that its label gets (with 0
    labels are public, and listed as unprotected). With `shuffled` the budget holds against those who see the shuffled
    reports; without, against those who see every report with its sender. `debias` corrects the average effect of the
    noise on the fit. `target_bound` bounds numeric targets, if the loss does not.
    """

    features: Features = "gaussian"
    label_share: float = 0.25
    shuffled: bool = True
    debias: bool = False
    target_bound: float | None = None

    def __post_init__(self) -> None:
        if self.features not in ("gaussian", "k_norm"):
            raise InvalidArgument(f"features must be 'gaussian' or 'k_norm'. Got {self.features!r}.")
        _validate.check_fields(self, non_negative="label_share", positive="target_bound")
        if self.label_share >= 1:
            raise InvalidArgument(
                f"label_share must be below 1, because features need a part of epsilon too. Got {self.label_share:g}."
            )


@dataclass(frozen=True)
class Labels:
    """The possible targets: one of `choices` classes, or a number within `bound`."""

    choices: int | None = None
    bound: float | None = None

    @staticmethod
    def of(loss: Loss, target_bound: float | None = None) -> Labels:
        """The targets of a loss."""
        match loss:
            case Logistic() | SmoothHinge():
                return Labels(choices=2)
            case Multinomial(classes=classes) | OneVsRest(classes=classes):
                return Labels(choices=classes)
            case Squared(target_bound=bound):
                return Labels(bound=bound if target_bound is None else min(bound, target_bound))
            case Huber() if target_bound is not None:
                return Labels(bound=target_bound)
        raise InvalidArgument(
            f"The targets of {loss!r} are unbounded, so no noise would hide one. Declare a bound: "
            "reporting=Reporting(target_bound=...)."
        )

    def event(self, epsilon: float) -> Event:
        """The cost of a noisy target to its sender."""
        if self.choices is not None:
            return RandomizedResponse(epsilon, self.choices)
        return Laplace(1 / epsilon, _REPLACE)

    def numbers(self, targets: Array, loss: Loss) -> Array:
        """Class numbers, or targets within their bound; an example that was not finite counts as class 0, or as 0."""
        if isinstance(loss, OneVsRest):
            return np.asarray(np.argmax(targets, axis=1), dtype=np.float64)
        if self.choices == 2 and not isinstance(loss, Multinomial):
            return (targets[:, 0] > 0).astype(np.float64)
        if self.bound is not None:
            return np.clip(targets[:, 0], -self.bound, self.bound)
        return targets[:, 0]

    def add_noise(self, numbers: Array, epsilon: float, rng: Stream) -> Noisy:
        """Every number with noise of its own, and the cost to each sender."""
        if self.choices is not None:
            return Noisy(respond(numbers, epsilon, self.choices, rng), self.event(epsilon))
        assert self.bound is not None
        # In one dimension K-norm noise is Laplace noise.
        scale = 2 * self.bound / epsilon
        return Noisy(round_to_grid(numbers + k_norm(rng, 1, scale, numbers.size)[:, 0], scale), self.event(epsilon))


@dataclass(frozen=True)
class Randomizer:
    """How a person randomises their example: noise on features within `data_norm`, noise on the label.

    `multiplier` (normal noise) or `feature_epsilon` (K-norm noise) sets the noise on features. If `label_epsilon` is
    None, the label has no noise.
    """

    data_norm: float
    labels: Labels
    multiplier: float | None = None
    feature_epsilon: float | None = None
    label_epsilon: float | None = None

    @property
    def event(self) -> Event:
        """The cost of one report to its sender, against every reader. Calibration uses it."""
        features: Event
        if self.multiplier is not None:
            features = Gaussian(self.multiplier, _REPLACE)
        else:
            assert self.feature_epsilon is not None
            features = EpsilonDelta(self.feature_epsilon, 0.0, _REPLACE)
        return features if self.label_epsilon is None else features + self.labels.event(self.label_epsilon)

    @property
    def scale(self) -> float:
        """Of the noise on features: a standard deviation, or the scale of K-norm noise. Two rows differ by 2 norms."""
        if self.multiplier is not None:
            return 2 * self.data_norm * self.multiplier
        assert self.feature_epsilon is not None
        return 2 * self.data_norm / self.feature_epsilon

    def variance(self, columns: int) -> float:
        """Of the noise on each feature."""
        # The length of K-norm noise is Gamma(columns), so its mean square is columns (columns + 1) scale^2.
        return self.scale**2 * (1.0 if self.multiplier is not None else columns + 1.0)

    def release_features(self, rows: Array, rng: Stream) -> Noisy:
        """Rows with noise, each with its own, and the cost to each sender."""
        if self.multiplier is not None:
            span = 2 * self.data_norm
            return add_gaussian(rows, sensitivity=span, multiplier=self.multiplier, adjacency=_REPLACE, rng=rng)
        assert self.feature_epsilon is not None
        values = round_to_grid(rows + k_norm(rng, rows.shape[1], self.scale, len(rows)), self.scale)
        return Noisy(values, EpsilonDelta(self.feature_epsilon, 0.0, _REPLACE))

    def draw_reports(self, problem: Problem, source: Source, *, shuffled: bool) -> tuple[PerturbedData, Event]:
        """One report per example, in an order that is not kept; and the cost of a report to its sender."""
        rng = source.stream(Purpose.NOISE, 0)
        features = self.release_features(problem.rows, rng)
        x, y, event = features.values, self.labels.numbers(problem.targets, problem.loss), features.event
        if self.label_epsilon is not None:
            labels = self.labels.add_noise(y, self.label_epsilon, rng)
            y, event = labels.values, event + labels.event
        if shuffled:
            order = draw_permutation(len(x), source.stream(Purpose.SHUFFLE, 0))
            x, y = x[order], y[order]
        return PerturbedData(x, y), event


def keep_probability(epsilon: float, choices: int = 2) -> float:
    """The probability with which randomized response tells the truth.

    >>> round(keep_probability(1.0), 8)
    0.73105858
    """
    return 1 / (1 + (choices - 1) * math.exp(-_validate.positive("epsilon", epsilon)))


def respond(numbers: Array, epsilon: float, choices: int, rng: Stream) -> Array:
    """Randomized response: keep each class number with `keep_probability`, or draw one of the others uniformly."""
    # `coins` rounds the probability down, so it must be that of telling the truth.
    kept = np.zeros(numbers.size, dtype=bool)
    kept[rng.coins(numbers.size, keep_probability(epsilon, choices))] = True
    return np.where(kept, numbers, np.mod(numbers + 1 + draw_below(choices - 1, numbers.size, rng), choices))


def reports_event(report: Event, n: int, *, shuffled: bool) -> Event:
    """The cost of `n` reports that each cost their sender `report`, where the budget is stated."""
    return ShuffledReports(report, n) if shuffled else report


@lru_cache(maxsize=128)
def calibrate_reports(
    reporting: Reporting, *, epsilon: float, delta: float | None, n: int, data_norm: float, labels: Labels
) -> Randomizer:
    """The least noise with which the reports keep the budget, features and labels sharing it as declared.

    Without a delta every report is epsilon-DP by itself, which needs K-norm noise; shuffling then gains nothing.
    """
    epsilon = _validate.positive("epsilon", epsilon)
    # Without shuffling, a delta would gain hardly anything for reports that need none.
    if delta is None or (reporting.features == "k_norm" and not reporting.shuffled):
        return _make_pure(reporting, epsilon, data_norm, labels)
    delta = _validate.open_unit("delta", delta)
    # Only where the search starts; its result is checked by its event.
    local_delta = delta / (100 * n)

    def at(quiet: float) -> Randomizer:
        if reporting.features == "k_norm":
            return _make_pure(reporting, 1 / quiet, data_norm, labels)
        share = reporting.label_share
        multiplier = 1 / gdp.mu((1 - share) / quiet, local_delta)
        return Randomizer(data_norm, labels, multiplier, None, share / quiet if share > 0 else None)

    shuffled = reporting.shuffled
    quiet = calibrate(
        lambda x: reports_event(at(x).event, n, shuffled=shuffled),
        epsilon=epsilon,
        delta=delta,
        guess=min(0.5, 1 / epsilon),
    )
    return at(quiet)


def _make_pure(reporting: Reporting, epsilon: float, data_norm: float, labels: Labels) -> Randomizer:
    if reporting.features != "k_norm":
        raise InvalidArgument(
            "Normal noise needs a delta. Give one, or use noise that needs none: Reporting(features='k_norm')."
        )
    share = reporting.label_share
    return Randomizer(data_norm, labels, None, (1 - share) * epsilon, share * epsilon if share > 0 else None)


def fit_reports(
    problem: Problem, data: PerturbedData, randomizer: Randomizer, *, intercept: bool, debias: bool
) -> Array:
    """Coefficients [columns, outputs] of the regularised problem over the reports. Public, as the reports are.

    De-biased, Squared uses second moments without those of the noise. For Logistic and Multinomial the labels are
    corrected so that the objective is, on average over their noise, the one without it; features are replaced by what
    they most likely were (regression calibration: exact for linear regression, to first order here), or noise would
    shrink their coefficients and not the intercept. Other losses have no such correction and are refused.
    """
    # Noise may take numbers beyond their bound, and clipping them there would pull them towards zero.
    is_number = randomizer.labels.bound is not None
    targets = data.y[:, None] if is_number else problem.loss.encode(data.y)
    noisy = with_rows(replace(problem, targets=targets), data.x, intercept=intercept)
    if not debias:
        return _fit_minimiser(noisy)
    match problem.loss:
        case Squared():
            return _fit_corrected_moments(noisy, randomizer, intercept, problem.data_norm)
        case Logistic() | Multinomial():
            return _fit_calibrated(noisy, data, randomizer, problem.data_norm, intercept)
    raise InvalidArgument(
        f"{problem.loss!r} cannot be de-biased: the label does not enter it linearly. Use Logistic, Multinomial or "
        "Squared, or leave debias out."
    )


def label_correction(noisy: Problem, numbers: Array, randomizer: Randomizer) -> Array:
    """The linear term that takes the noise on labels off the objective, on average.

    With k classes kept with odds g = e^epsilon against each other one, the loss of the label y is, on average,
    ((k - 1 + g) l(y) - sum over all j of l(j)) / (g - 1) of the noisy one: the inverse of the flips. For a softmax, and
    for the logistic loss, that is l(y) and a term that is linear in the scores.
    """
    epsilon = randomizer.label_epsilon
    if epsilon is None:
        return np.zeros(noisy.shape)
    choices = randomizer.labels.choices
    assert choices is not None
    kept = keep_probability(epsilon, choices)
    others = (1 - kept) / (choices - 1)
    share = others / (kept - others)
    classes = np.equal.outer(numbers, np.arange(choices)).astype(np.float64)
    # Of every class's score: minus (k share) where it is the label, and plus share for all.
    weights = share - choices * share * classes
    if noisy.loss.outputs == 1:
        # One score for the second class against the first: with scores -s/2 and s/2 the losses are the same.
        weights = (weights[:, 1:] - weights[:, :1]) / 2
    return noisy.rows.T @ weights / noisy.n


def _fit_calibrated(
    noisy: Problem, data: PerturbedData, randomizer: Randomizer, data_norm: float, intercept: bool
) -> Array:
    """Corrected labels and calibrated features, regularised so that squares would give ridge regression.

    Features that vary by S under noise that varies by v most likely were S / (S + v) of what is seen (regression
    calibration). Scores share that factor evenly between features and coefficients, whose regularisation is then as
    without noise (but for the intercept, which is that of centred features).
    """
    centre = data.x.mean(axis=0) if intercept else np.zeros(data.x.shape[1])
    variance = randomizer.variance(centre.size)
    shifted = data.x - centre
    values, vectors = np.linalg.eigh(shifted.T @ shifted / len(shifted))
    spread = project_on_trace(values - variance, data_norm**2)
    root = np.sqrt(spread / (spread + variance))
    calm = with_rows(noisy, shifted @ vectors * root, intercept=intercept)
    theta = _fit_minimiser(replace(calm, linear=label_correction(calm, data.y, randomizer)))
    weights = vectors @ (theta[: centre.size] / np.where(root > 0, root, np.inf)[:, None])
    if intercept:
        weights = np.concatenate([weights, theta[centre.size :] - centre @ weights])
    return np.asarray(weights)


def project_on_trace(values: Array, most: float) -> Array:
    """The nearest numbers that are not negative and add up to no more than `most`.

    The squares of rows of norm r add up to r^2, so second moments cannot have a larger trace; noise can.
    """
    positive = np.maximum(values, 0.0)
    if positive.sum() <= most:
        return positive
    falling = np.sort(positive)[::-1]
    over = (np.cumsum(falling) - most) / np.arange(1, falling.size + 1)
    return np.asarray(np.maximum(positive - over[np.flatnonzero(falling > over)[-1]], 0.0))


def _fit_corrected_moments(noisy: Problem, randomizer: Randomizer, intercept: bool, data_norm: float) -> Array:
    """Ridge regression on second moments without the noise's own; noise on the targets averages out by itself."""
    features = noisy.columns - intercept
    moments = noisy.rows.T @ noisy.rows / noisy.n
    moments[np.arange(features), np.arange(features)] -= randomizer.variance(features)
    values, vectors = np.linalg.eigh(moments)
    spread = project_on_trace(values, data_norm**2 + intercept) + noisy.regularisation
    if not np.all(spread > 0):
        raise InvalidArgument(
            "De-biased second moments are not positive, so the fit needs a regularisation above 0. Common values are "
            "1e-4 to 1e-1."
        )
    cross = vectors.T @ (noisy.rows.T @ noisy.targets / noisy.n)
    return vectors @ (cross / spread[:, None])


def _fit_minimiser(noisy: Problem) -> Array:
    slope = noisy.loss.slope_bound
    if not math.isfinite(slope):
        slope = float(np.abs(noisy.targets).max()) + 1.0
    given = 0.0 if noisy.linear is None else float(np.linalg.norm(noisy.linear))
    steepest = slope * noisy.data_norm + given
    tolerance = _TOLERANCE * steepest
    if noisy.regularisation > 0:
        # Large corrections may lead far away, where double precision cannot tell so little apart.
        tolerance = max(tolerance, reachable_tolerance(noisy, steepest / noisy.regularisation))
    return minimise(noisy, tolerance).theta
