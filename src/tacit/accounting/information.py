"""How much a noisy gradient reveals about the true one, in nats, and the error that follows.

Xiang, Li, Yang, Wang, Li 2023, theorems 2 and 3, with the conditions under which they hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit._validate import Array
from tacit.errors import InvalidArgument


def mutual_information_bound(epsilon: float) -> float:
    """Bound on I(g; release) **if** the release is pure epsilon-DP between *every* two values of g.

    DP for one example does not give that, unless no two values of g differ by more than one example can; and
    Gaussian noise never does: see `gaussian_mutual_information_bound`. The value, epsilon tanh(epsilon/2), is
    the largest Kullback-Leibler divergence between two releases, which randomized response attains.

    >>> f"{mutual_information_bound(1.0):.5f}"
    '0.46212'
    """
    epsilon = _validate.non_negative("epsilon", epsilon, infinite=True)
    return epsilon * math.tanh(epsilon / 2)


def published_mutual_information_bound(epsilon: float) -> float:
    """Theorem 2 as printed, epsilon (e^epsilon - 1) / 2, for comparison with `mutual_information_bound`.

    It holds under the same condition, is never tighter, and above ln 3 says less than epsilon itself.

    >>> f"{published_mutual_information_bound(1.0):.5f}"
    '0.85914'
    """
    epsilon = _validate.non_negative("epsilon", epsilon, infinite=True)
    with np.errstate(over="ignore"):
        return float(epsilon * np.expm1(epsilon) / 2)


def gaussian_mutual_information_bound(variances: Sequence[float] | Array, stds: Sequence[float] | Array) -> float:
    """Bound on I(g; g + noise) for independent Gaussian noise: E ||(g - E g) / std||^2 / 2.

    `variances` are those of the coordinates of g, `stds` those of the noise. Holds whatever the distribution
    of g. Infinite if a coordinate varies and gets no noise.

    >>> gaussian_mutual_information_bound([1.0, 4.0], [1.0, 2.0])
    1.0
    """
    variance = _validate.non_negatives("variances", variances)
    std = _validate.non_negatives("stds", stds)
    _same_shape("variances", variance, "stds", std)
    with np.errstate(divide="ignore", over="ignore"):
        ratios = np.divide(variance, std * std, out=np.zeros_like(variance), where=variance > 0)
    return float(np.sum(ratios)) / 2


def example_mutual_information_bound(mu: float) -> float:
    """Bound on what a mu-GDP release reveals about one example to someone who knows all others: mu^2 / 2.

    >>> example_mutual_information_bound(1.0)
    0.5
    """
    mu = _validate.non_negative("mu", mu, infinite=True)
    return mu * mu / 2


@dataclass(frozen=True)
class DistortionRate:
    """The smallest weighted squared error at some rate, and its distribution over the coordinates."""

    distortion: float
    water_level: float
    per_coordinate: tuple[float, ...]
    active: tuple[bool, ...]
    """Whether the coordinate uses any of the rate; the others are not released at all."""


def distortion_rate(
    entropies: Sequence[float] | Array, weights: Sequence[float] | Array, rate: float
) -> DistortionRate:
    """Lower bound on sum_i w_i^2 E(g_i - release_i)^2 for any release with I(g; release) <= rate nats.

    Proven for independent coordinates with differential `entropies` h(g_i) in nats; -inf (a discrete
    coordinate) and weight 0 add nothing. Reverse water-filling: coordinate i bears min(water_level, beta_i),
    beta_i = w_i^2 e^(2 h_i) / (2 pi e), its error if it is not released at all. At rate 0 the level is the
    largest beta.

    >>> result = distortion_rate([0.0, math.log(2)], weights=[1.0, 1.0], rate=1.0)
    >>> f"{result.distortion:.7f} {result.water_level:.7f} {result.active}"
    '0.0861571 0.0430786 (True, True)'
    """
    log_beta = _log_beta(entropies, weights)
    level, active = _fill(log_beta, _validate.non_negative("rate (in nats)", rate))
    with np.errstate(over="ignore"):
        shares = np.exp(np.minimum(level, log_beta))
        return DistortionRate(
            distortion=float(np.sum(shares)),
            water_level=float(np.exp(level)),
            per_coordinate=tuple(shares.tolist()),
            active=tuple(active.tolist()),
        )


def _log_beta(entropies: Sequence[float] | Array, weights: Sequence[float] | Array) -> Array:
    """Logarithm of beta, the weighted squared error of a coordinate that is not released."""
    entropy = _validate.reals("entropies", entropies, infinite=True)
    weight = _validate.reals("weights", weights)
    _same_shape("entropies", entropy, "weights", weight)
    if np.any(entropy == math.inf):
        raise InvalidArgument(
            "entropies must be below infinity. Got inf. A gradient with finite variance v has at most "
            "0.5 * log(2 * pi * e * v)."
        )
    with np.errstate(divide="ignore"):
        return 2 * np.log(np.abs(weight)) + 2 * entropy - math.log(2 * math.pi * math.e)


def _fill(log_beta: Array, rate: float) -> tuple[float, NDArray[np.bool_]]:
    """Logarithm of the level at which the active coordinates use up the rate, and which coordinates these are."""
    falling = np.sort(log_beta[np.isfinite(log_beta)])[::-1]
    # The rate needed to lower the level from the largest beta to each of the others.
    cost = np.cumsum(np.arange(falling.size) * -np.diff(falling, prepend=falling[:1])) / 2
    told = falling[cost < rate]
    if told.size == 0:
        return float(np.max(log_beta, initial=-math.inf)), np.zeros(log_beta.shape, dtype=bool)
    return float(np.mean(told) - 2 * rate / told.size), log_beta >= told[-1]


def _same_shape(name: str, values: Array, other_name: str, other: Array) -> None:
    if values.ndim != 1 or values.shape != other.shape:
        raise InvalidArgument(
            f"{name} and {other_name} must have one entry for each coordinate. Got shapes {values.shape} and "
            f"{other.shape}. Repeat a value that all coordinates share: numpy.full(dimension, value)."
        )
