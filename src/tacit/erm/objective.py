"""Objective perturbation: a random linear term is added before minimising, and the minimiser is released.

The released coefficients determine the linear term, so their density is that of the noise at minus the gradient, times
the determinant of the Hessian. One example changes the determinant by a factor of at most e^`determinant_cost`. Its
gradient is its row times its slopes, so for all coefficients it shifts the noise within a polytope with few corners,
and each corner is a Gaussian shift. docs/reference/methods/objective_perturbation.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from scipy.optimize import brentq

from tacit.accounting import gdp
from tacit.accounting.events import Adjacency
from tacit.accounting.search import find_least
from tacit.erm.losses import Loss
from tacit.errors import InvalidArgument

# In rigorous form the determinant may cost this share of epsilon; regularisation is added until it does not exceed it.
_DETERMINANT_SHARE = 0.25
_OUTWARDS = 1 + 1e-9


@dataclass(frozen=True)
class Setting:
    """What the proof needs: the loss, the declared norm, the adjacency, and the strong convexity of the sum.

    `strength` is n * regularisation plus what was added: that of the sum over all examples, not of the mean.
    """

    loss: Loss
    data_norm: float
    strength: float
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @property
    def lipschitz(self) -> float:
        """The largest norm of one example's gradient."""
        return self.loss.slope_bound * self.data_norm

    @property
    def shift(self) -> float:
        """How far one example can move the sum of gradients."""
        return self.lipschitz * (1 if self.adjacency is Adjacency.ADD_REMOVE else 2)

    def determinant_cost(self) -> float:
        """The logarithm of the largest factor by which one example changes the Hessian's determinant."""
        rank = self.loss.curvature_rank
        return rank * math.log1p(self.loss.curvature_trace * self.data_norm**2 / (rank * self.strength))

    def delta(self, epsilon: float, std: float) -> float:
        """A delta for which the exact minimiser with normal noise is (epsilon, delta)-DP."""
        left = epsilon - self.determinant_cost()
        if left < 0:
            return 1.0
        total = sum(number * gdp.delta(left, distance / std) for number, distance in self._shifts())
        return min(total * _OUTWARDS, 1.0)

    def epsilon(self, delta: float, std: float) -> float:
        """The smallest epsilon that the proof gives at this delta, for given noise."""
        low = self.determinant_cost()
        if self.delta(low, std) <= delta:
            return low
        return find_least(lambda epsilon: self.delta(epsilon, std) <= delta, low, low + 1.0, within=1e-9)

    def std(self, epsilon: float, delta: float) -> float:
        """The least standard deviation of normal noise with which the exact minimiser is (epsilon, delta)-DP."""
        if self.delta(epsilon, 1e12 * self.shift) > delta:
            raise self._determinant_too_large(epsilon)
        guess = self.shift / gdp.mu(epsilon, delta)

        def excess(log_std: float) -> float:
            return math.log(max(self.delta(epsilon, math.exp(log_std)), 1e-300) / delta)

        low, high = math.log(guess) - 1.0, math.log(guess) + 1.0
        while excess(low) < 0:
            low -= 1.0
        while excess(high) > 0:
            high += 1.0
        std = math.exp(brentq(excess, low, high, xtol=1e-12)) * _OUTWARDS
        while self.delta(epsilon, std) > delta:
            std *= _OUTWARDS
        return std

    def k_norm_scale(self, epsilon: float) -> float:
        """The scale of K-norm noise with which the exact minimiser is epsilon-DP, without a delta."""
        left = epsilon - self.determinant_cost()
        if left <= 0:
            raise self._determinant_too_large(epsilon)
        return self.shift / left

    def _determinant_too_large(self, epsilon: float) -> InvalidArgument:
        return InvalidArgument(
            f"The determinant alone costs epsilon {self.determinant_cost():.4g}, and the budget is {epsilon:.4g}. "
            "Raise the regularisation or epsilon."
        )

    def _shifts(self) -> list[tuple[int, float]]:
        """The shifts of the noise that one example can cause: how many corners, and their largest distance."""
        corners = [(number, distance * self.data_norm) for number, distance in self.loss.corners]
        if self.adjacency is Adjacency.ADD_REMOVE:
            return corners
        pairs = list(product([(1, 0.0), *corners], repeat=2))[1:]
        return [(one[0] * other[0], one[1] + other[1]) for one, other in pairs]


def added_strength(loss: Loss, data_norm: float, strength: float, epsilon: float) -> float:
    """What must be added to `strength` so that the determinant costs at most a quarter of epsilon."""
    rank = loss.curvature_rank
    growth = math.expm1(min(_DETERMINANT_SHARE * epsilon / rank, 700.0))
    needed = loss.curvature_trace * data_norm**2 / (rank * growth)
    return max(needed - strength, 0.0)


def chaudhuri_2011(*, n: int, regularisation: float, epsilon: float, curvature: float) -> tuple[float, float]:
    """(epsilon', Delta) of Chaudhuri et al. 2011: the noise's epsilon, and what is added to the regularisation.

    Stated for slopes and rows of at most 1, so that K-norm noise on the sum of gradients has scale 2 / epsilon'.

    >>> chaudhuri_2011(n=200, regularisation=0.01, epsilon=0.1, curvature=0.25)
    (0.05, 0.03937760413954...)
    """
    share = curvature / (n * regularisation) if regularisation > 0 else math.inf
    left = epsilon - math.log1p(2 * share + share**2) if math.isfinite(share) else -math.inf
    if left > 0:
        return left, 0.0
    return epsilon / 2, curvature / (n * math.expm1(epsilon / 4)) - regularisation


def kifer_2012(*, epsilon: float, delta: float, lipschitz: float, curvature: float) -> tuple[float, float]:
    """(Delta, std) of Kifer et al. 2012: what is added to the strength of the sum, and the noise's standard deviation.

    The constant is proven for one example added or removed. Replacing one moves the gradient twice as far: give
    2 * lipschitz.

    >>> kifer_2012(epsilon=1.0, delta=1e-5, lipschitz=1.0, curvature=0.25)
    (0.5, 10.08209210254...)
    """
    return 2 * curvature / epsilon, lipschitz * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon


def redberg_2023(*, epsilon: float, std: float, lipschitz: float, curvature: float, strength: float) -> float:
    """The delta of Redberg, Koskela and Wang 2023 for generalised linear models, one example added or removed.

    Twice that of the Gaussian mechanism, at an epsilon that is smaller by |log(1 - curvature / strength)|. It follows
    from the theorem of `Setting`, whose delta is never larger (docs/reference/methods/objective_perturbation.md).

    >>> round(1e5 * redberg_2023(epsilon=1.0, std=4.0, lipschitz=1.0, curvature=0.25, strength=2.5), 3)
    3.314
    """
    if strength <= curvature:
        raise InvalidArgument(
            f"Redberg et al. need a strength above the curvature of one example. Got {strength:g} and {curvature:g}. "
            "Raise the regularisation, or use Setting."
        )
    left = epsilon + math.log1p(-curvature / strength)
    return 1.0 if left < 0 else min(2 * gdp.delta(left, lipschitz / std), 1.0)
