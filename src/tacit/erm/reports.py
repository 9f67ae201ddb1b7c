"""Reports: every person adds noise to their own example, features and label, before anyone else sees it.

A report protects its maker whoever reads it (local privacy, replace-one). Shuffled among `n` others it protects far
better against whoever sees only the shuffled reports or what is trained on them (central privacy). Training,
de-biasing and everything else that comes after is free of charge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
from tacit.erm.classes import Multinomial, OneVsRest
from tacit.erm.losses import Huber, Logistic, Loss, SmoothHinge, Squared
from tacit.erm.noise import Noisy, add_gaussian, k_norm, rounded
from tacit.erm.noisy_data import PerturbedData, draw_below, permutation
from tacit.erm.problem import Problem
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, Source, Stream

Features = Literal["gaussian", "k_norm"]

_REPLACE = Adjacency.REPLACE_ONE


@dataclass(frozen=True)
class Reporting:
    """How reports are made and who is trusted with them.

    `features` is the noise on the features, `label_share` the part of a report's epsilon that goes to its label (with 0
    labels are public, and listed as unprotected). With `shuffled` the budget is for whoever sees the
    shuffled reports; without, for whoever sees every report with its sender. `debias` corrects what the noise does
    to the fit, on average. `target_bound` bounds targets that are numbers, where the loss does not.
    """

    features: Features = "gaussian"
    label_share: float = 0.25
    shuffled: bool = True
    debias: bool = False
    target_bound: float | None = None

    def __post_init__(self) -> None:
        if self.features not in ("gaussian", "k_norm"):
            raise InvalidArgument(f"features must be 'gaussian' or 'k_norm'. Got {self.features!r}.")
        share = _validate.non_negative("label_share", self.label_share)
        if share >= 1:
            raise InvalidArgument(f"label_share must be below 1, or nothing is left for the features. Got {share:g}.")
        object.__setattr__(self, "label_share", share)
        if self.target_bound is not None:
            object.__setattr__(self, "target_bound", _validate.positive("target_bound", self.target_bound))


@dataclass(frozen=True)
class Labels:
    """What a target may be: one of `choices` classes, or a number within `bound`."""

    choices: int | None = None
    bound: float | None = None

    @staticmethod
    def of(loss: Loss, target_bound: float | None = None) -> Labels:
        """The targets that a loss reads."""
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
            f"The targets of {loss!r} have no bound, so no noise would hide one. Declare it: "
            "reporting=Reporting(target_bound=...)."
        )

    def event(self, epsilon: float) -> Event:
        """What a noisy target costs its maker."""
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

    def noisy(self, numbers: Array, epsilon: float, rng: Stream) -> Noisy:
        """Every number with noise of its own, and what that costs its maker."""
        if self.choices is not None:
            return Noisy(respond(numbers, epsilon, self.choices, rng), self.event(epsilon))
        assert self.bound is not None
        # In one dimension K-norm noise is Laplace noise.
        scale = 2 * self.bound / epsilon
        return Noisy(rounded(numbers + k_norm(rng, 1, scale, numbers.size)[:, 0], scale), self.event(epsilon))


@dataclass(frozen=True)
class Randomizer:
    """What a person does to their example: noise on features within `data_norm`, noise on the label.

    `multiplier` (normal noise) or `feature_epsilon` (K-norm noise) says how much for the features; a `label_epsilon` of
    None leaves the label as it is.
    """

    data_norm: float
    labels: Labels
    multiplier: float | None = None
    feature_epsilon: float | None = None
    label_epsilon: float | None = None

    @property
    def event(self) -> Event:
        """What one report will cost its maker, whoever sees it: what noise is found by."""
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

    def features(self, rows: Array, rng: Stream) -> Noisy:
        """Rows with noise, each with its own, and what that costs the maker of each."""
        if self.multiplier is not None:
            span = 2 * self.data_norm
            return add_gaussian(rows, sensitivity=span, multiplier=self.multiplier, adjacency=_REPLACE, rng=rng)
        assert self.feature_epsilon is not None
        values = rounded(rows + k_norm(rng, rows.shape[1], self.scale, len(rows)), self.scale)
        return Noisy(values, EpsilonDelta(self.feature_epsilon, 0.0, _REPLACE))

    def reports(self, problem: Problem, source: Source, *, shuffled: bool) -> tuple[PerturbedData, Event]:
        """One report per example, shuffled by an order that is forgotten; and what a report cost its maker."""
        rng = source.stream(Purpose.NOISE, 0)
        features = self.features(problem.rows, rng)
        x, y, event = features.values, self.labels.numbers(problem.targets, problem.loss), features.event
        if self.label_epsilon is not None:
            labels = self.labels.noisy(y, self.label_epsilon, rng)
            y, event = labels.values, event + labels.event
        if shuffled:
            order = permutation(len(x), source.stream(Purpose.SHUFFLE, 0))
            x, y = x[order], y[order]
        return PerturbedData(x, y), event


def keep_probability(epsilon: float, choices: int = 2) -> float:
    """How likely randomized response tells the truth.

    >>> round(keep_probability(1.0), 8)
    0.73105858
    """
    return 1 / (1 + (choices - 1) * math.exp(-_validate.positive("epsilon", epsilon)))


def respond(numbers: Array, epsilon: float, choices: int, rng: Stream) -> Array:
    """Randomized response: each class number is kept with `keep_probability`, else becomes any other, all alike."""
    # `coins` rounds the probability down, so it must be the one of telling the truth.
    kept = np.zeros(numbers.size, dtype=bool)
    kept[rng.coins(numbers.size, keep_probability(epsilon, choices))] = True
    return np.where(kept, numbers, np.mod(numbers + 1 + draw_below(choices - 1, numbers.size, rng), choices))


def reports_event(report: Event, n: int, *, shuffled: bool) -> Event:
    """What `n` reports cost that each cost their maker `report`, seen from where the budget is stated."""
    return ShuffledReports(report, n) if shuffled else report


@lru_cache(maxsize=128)
def calibrated(
    reporting: Reporting, *, epsilon: float, delta: float | None, n: int, data_norm: float, labels: Labels
) -> Randomizer:
    """The least noise with which the reports keep the budget, features and labels sharing it as declared.

    Without a delta every report is epsilon-DP by itself, which takes K-norm noise; shuffling then adds nothing.
    """
    epsilon = _validate.positive("epsilon", epsilon)
    # Without shuffling, a delta would gain nothing worth the search for reports that need none.
    if delta is None or (reporting.features == "k_norm" and not reporting.shuffled):
        return _pure(reporting, epsilon, data_norm, labels)
    delta = _validate.open_unit("delta", delta)
    # Only where to look: what the answer costs is read off its event.
    local_delta = delta / (100 * n)

    def at(quiet: float) -> Randomizer:
        if reporting.features == "k_norm":
            return _pure(reporting, 1 / quiet, data_norm, labels)
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


def _pure(reporting: Reporting, epsilon: float, data_norm: float, labels: Labels) -> Randomizer:
    if reporting.features != "k_norm":
        raise InvalidArgument(
            "Normal noise needs a delta. Give one, or take noise that needs none: Reporting(features='k_norm')."
        )
    share = reporting.label_share
    return Randomizer(data_norm, labels, None, (1 - share) * epsilon, share * epsilon if share > 0 else None)
