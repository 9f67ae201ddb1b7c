"""Noise that makes private coefficients public. Who draws the noise emits the event that pays for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Gaussian
from tacit.randomness import Stream

# Released numbers are multiples of a power of two between 2^-12 and 2^-11 of the noise's scale, so that no low-order
# bits of the private numbers show. Rounding comes after the noise and costs nothing.
_GRID_BITS = 12


@dataclass(frozen=True, eq=False)
class Noisy:
    """Values with noise, and their cost. Public."""

    values: Array
    event: Event


def add_gaussian(values: Array, *, sensitivity: float, multiplier: float, adjacency: Adjacency, rng: Stream) -> Noisy:
    """Values plus normal noise of standard deviation multiplier * sensitivity."""
    std = multiplier * sensitivity
    noise = std * rng.normal(values.size, wide=True).reshape(values.shape)
    return Noisy(round_to_grid(values + noise, std), Gaussian(multiplier, adjacency))


def add_k_norm(values: Array, *, sensitivity: float, epsilon: float, adjacency: Adjacency, rng: Stream) -> Noisy:
    """Values plus noise of density proportional to exp(-epsilon |b| / sensitivity): epsilon-DP, with no delta."""
    scale = sensitivity / epsilon
    noise = k_norm(rng, values.size, scale).reshape(values.shape)
    return Noisy(round_to_grid(values + noise, scale), EpsilonDelta(epsilon, 0.0, adjacency))


def k_norm(rng: Stream, dimension: int, scale: float, count: int = 1) -> Array:
    """`count` vectors of density proportional to exp(-|b| / scale): any direction, a length of Gamma(dimension, scale).

    Vectors whose true values differ by at most `sensitivity` are released epsilon-DP with scale sensitivity / epsilon
    (Chaudhuri et al. 2011).
    """
    dimension, count = _validate.count("dimension", dimension), _validate.count("count", count)
    scale = _validate.positive("scale", scale)
    normal = rng.normal(count * 3 * dimension, wide=True).reshape(count, 3 * dimension)
    towards = normal[:, :dimension]
    # Half a sum of 2 d squared normal numbers is Gamma(d)-distributed.
    lengths = scale / 2 * np.sum(normal[:, dimension:] ** 2, axis=1)
    vectors: Array = towards * (lengths / np.linalg.norm(towards, axis=1))[:, None]
    return vectors


def round_to_grid(values: Array, scale: float) -> Array:
    """Values on a public grid, some thousand times finer than noise of this scale."""
    grid = 2.0 ** (math.floor(math.log2(scale)) - _GRID_BITS)
    return np.round(values / grid) * grid
