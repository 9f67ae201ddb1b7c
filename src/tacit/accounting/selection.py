"""The cost of running a private mechanism several times and releasing only the best outcome.

If the number of trials is random and secret, and each trial is private by itself, the best outcome costs little more
than one trial (Liu and Talwar 2019; Papernot and Steinke 2022). Assumptions: outcomes are compared by what they release
(a score that is part of the release, or public examples), trials are independent given the data, and nobody learns
their number or the other outcomes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy import optimize

from tacit import _validate
from tacit.accounting.curve import PrivacyCurve, curve
from tacit.accounting.events import EpsilonDelta, Event
from tacit.accounting.rdp import RenyiProfile
from tacit.accounting.search import find_least
from tacit.errors import AdjacencyMismatch, InvalidArgument

_ORDERS = 1 + np.geomspace(1e-2, 1e4, 200)


class Repetitions(Protocol):
    """The distribution of the number of runs, independent of the data."""

    @property
    def mean(self) -> float: ...
    def probability(self, times: int) -> float: ...


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """At least one run. Shape 1 is the geometric distribution, shape 0 the logarithmic one (Papernot and Steinke 2022).

    A smaller shape (down to, not including, -1) costs less, and more often there is a single run.

    >>> geometric = TruncatedNegativeBinomial(shape=1, gamma=0.1)
    >>> round(geometric.mean, 6), round(geometric.probability(3), 6)
    (10.0, 0.081)
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _validate.open_unit("gamma", self.gamma))
        shape = float(_validate.reals("shape", self.shape))
        if shape <= -1:
            raise InvalidArgument(f"shape must be a finite number above -1. Got {self.shape!r}. 1 is geometric.")
        object.__setattr__(self, "shape", shape)

    @staticmethod
    def with_mean(mean: float, shape: float = 1.0) -> TruncatedNegativeBinomial:
        """The distribution of this shape with `mean` runs on average.

        >>> round(TruncatedNegativeBinomial.with_mean(10).gamma, 6)
        0.1
        """
        mean = _check_above_one("mean", mean)

        def excess(log_gamma: float) -> float:
            return math.log(TruncatedNegativeBinomial(shape, math.exp(log_gamma)).mean / mean)

        if excess(-600.0) < 0:
            raise InvalidArgument(f"No distribution of shape {shape:g} has a mean of {mean:g}. Raise the shape.")
        return TruncatedNegativeBinomial(shape, math.exp(optimize.brentq(excess, -600.0, -1e-12, xtol=1e-14)))

    @property
    def mean(self) -> float:
        """The expected number of runs."""
        failure = 1 - self.gamma
        if self.shape == 0:
            return failure / self.gamma / -math.log(self.gamma)
        return self.shape * failure / self.gamma / -math.expm1(self.shape * math.log(self.gamma))

    def probability(self, times: int) -> float:
        """The probability of exactly `times` runs."""
        times = _validate.count("times", times, at_least=0)
        if times == 0:
            return 0.0
        if self.shape == 0:
            return math.exp(times * math.log1p(-self.gamma)) / (times * -math.log(self.gamma))
        # The first factor, shape, and the denominator share a sign, so their logarithms are taken together.
        start = self.shape / math.expm1(-self.shape * math.log(self.gamma))
        rest = sum(math.log((i + self.shape) / (i + 1)) for i in range(1, times))
        return start * math.exp(times * math.log1p(-self.gamma) + rest)


@dataclass(frozen=True)
class PoissonRepetitions:
    """A Poisson number of runs; without any run, something independent of the data is released."""

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", _validate.positive("mean", self.mean))
        if self.mean < 1:
            raise InvalidArgument(f"mean must be a finite number of at least 1. Got {self.mean!r}.")

    def probability(self, times: int) -> float:
        """The probability of exactly `times` runs."""
        times = _validate.count("times", times, at_least=0)
        return math.exp(times * math.log(self.mean) - self.mean - math.lgamma(times + 1))


def draw(repetitions: Repetitions, uniform: float) -> int:
    """The number of runs for a number drawn uniformly from [0, 1). Keep both secret.

    >>> [draw(TruncatedNegativeBinomial(1, 0.5), u) for u in (0.0, 0.49, 0.51, 0.9)]
    [1, 1, 2, 4]
    """
    left = _validate.unit("uniform", uniform)
    times = 0
    while True:
        left -= repetitions.probability(times)
        if left < 0:
            return times
        times += 1
        if times > 1000 * repetitions.mean + 1000:
            # Only rounding is left: this many runs never happen.
            return times


@dataclass(frozen=True)
class BestOf:
    """The best outcome of a random number of runs, each of which costs `event`. Every number is an upper bound.

    If runs draw their settings at random, a run may cost one of the `others` instead. Settings are part of the outcome
    and independent of the data, so the delta of one run (and its exponentiated Rényi divergence) is the average over
    its possible events, and at most the largest.

    >>> from tacit.accounting import Gaussian
    >>> best = BestOf(Gaussian(3.0), TruncatedNegativeBinomial.with_mean(10, shape=0))
    >>> round(curve(Gaussian(3.0)).epsilon(1e-6), 3), round(best.epsilon(1e-6), 3)
    (1.448, 2.066)
    """

    event: Event
    repetitions: TruncatedNegativeBinomial | PoissonRepetitions
    others: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if any(other.adjacency is not self.event.adjacency for other in self.others):
            raise AdjacencyMismatch("All runs of a selection must be about the same neighbouring data sets.")

    @cached_property
    def _curves(self) -> list[PrivacyCurve]:
        return [curve(event) for event in dict.fromkeys((self.event, *self.others))]

    @cached_property
    def _profiles(self) -> list[RenyiProfile]:
        return [RenyiProfile.of(event) for event in dict.fromkeys((self.event, *self.others))]

    def _delta_of_one(self, epsilon: float) -> float:
        return max(one.delta(epsilon) for one in self._curves)

    def epsilon(self, delta: float) -> float:
        """The smaller of the two proven epsilons at `delta`."""
        return min(self.epsilon_by_profile(delta), self.epsilon_by_divergence(delta))

    def release(self, delta: float) -> EpsilonDelta:
        """The selection as an event for a ledger, of which only (epsilon, delta) is used."""
        return EpsilonDelta(self.epsilon(delta), delta, self.event.adjacency)

    def divergence(self, order: float) -> float:
        """The Rényi divergence of the given order: theorems 2 and 6 of Papernot and Steinke 2022."""
        order = _check_above_one("order", order)
        alone = self._divergence_of_one(order)
        often = math.log(self.repetitions.mean) / (order - 1)
        if isinstance(self.repetitions, PoissonRepetitions):
            # At this epsilon the theorem's condition, e^epsilon <= 1 + 1 / (order - 1), just holds.
            return alone + often + self.repetitions.mean * self._delta_of_one(math.log1p(1 / (order - 1)))
        return alone + often + self._choice_cost

    def _divergence_of_one(self, order: float) -> float:
        return max(profile.divergence(order) for profile in self._profiles)

    @cached_property
    def _choice_cost(self) -> float:
        """The cost of choosing: the same at every order, minimised over a second order, each of which is valid."""
        assert isinstance(self.repetitions, TruncatedNegativeBinomial)
        log_gamma = math.log(self.repetitions.gamma)
        costs = ((1 - 1 / order) * self._divergence_of_one(order) - log_gamma / order for order in map(float, _ORDERS))
        return (1 + self.repetitions.shape) * min(costs)

    def epsilon_by_divergence(self, delta: float) -> float:
        """By Rényi divergences and the conversion of Canonne, Kamath and Steinke 2020."""
        log_delta = math.log(_validate.open_unit("delta", delta))

        def at(order: float) -> float:
            c = order - 1
            return self.divergence(order) + math.log(c / order) - (log_delta + math.log(order)) / c

        return max(min(at(float(order)) for order in _ORDERS), 0.0)

    def epsilon_by_profile(self, delta: float) -> float:
        """By the curve of one run: e2 + (1 + shape) e1; infinite for a Poisson number of runs.

        Write f for the generating function of the number of runs. An outcome y of the best run has the density of y
        in one run times f'(q), q being the probability that one run does no better; f' is largest at 1, where it is
        the mean. Between neighbours f' changes by the power 1 + shape of (1 - (1 - gamma) q') / (1 - (1 - gamma) q),
        which is at most e^e1 as soon as one run's delta(e1) <= (e^e1 - 1) gamma / (1 - gamma). So with epsilon
        e2 + (1 + shape) e1 the best run has at most the mean times one run's delta(e2). With delta 0 this is the
        (2 + shape) epsilon of Papernot and Steinke (3 epsilon of Liu and Talwar 2019 for shape 1), or less. Compare
        Koskela, Redberg and Wang 2024.
        """
        delta = _validate.open_unit("delta", delta)
        if isinstance(self.repetitions, PoissonRepetitions):
            return math.inf
        alone = max(one.epsilon(delta / self.repetitions.mean) for one in self._curves)
        return alone + (1 + self.repetitions.shape) * self._choice_epsilon

    @cached_property
    def _choice_epsilon(self) -> float:
        assert isinstance(self.repetitions, TruncatedNegativeBinomial)
        odds = self.repetitions.gamma / (1 - self.repetitions.gamma)

        def is_enough(epsilon: float) -> bool:
            return self._delta_of_one(epsilon) <= math.expm1(epsilon) * odds

        return find_least(is_enough, 0.0, 1.0, within=1e-6, most=500)


def _check_above_one(name: str, value: float) -> float:
    number = _validate.positive(name, value)
    if number <= 1:
        raise InvalidArgument(f"{name} must be a finite number above 1. Got {value!r}.")
    return number
