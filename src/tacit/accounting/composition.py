"""Moments of the total loss of many steps: the moments of independent steps multiply.

Sampled Gaussian steps are computed in closed form, hundreds of kinds at once (`mixture.py`). Every other kind is a list
of atoms (`losses.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.densities import Floats
from tacit.accounting.mixture import GaussianMixture, Mixtures, Tilted

Complexes = NDArray[np.complex128]

# Error of one value of the characteristic function: six times the largest seen against extended precision.
ROUNDING = 2.0**-48
# A phase t * loss is rounded once as a product, and the loss itself is rounded.
_PHASE = 2.0**-51
# Complex numbers that are held at once.
_MOST_HELD = 4_000_000


@dataclass(frozen=True, eq=False)
class Moments:
    """M(c + i t) at equally spaced t, divided by e^{log_scale}, with an error bound for each value."""

    log_scale: float
    values: Complexes
    doubts: Floats


class Measure(Protocol):
    """A positive measure of total losses, given by its moments."""

    @property
    def mu(self) -> float: ...
    def mass(self) -> float: ...
    def cumulants(self, c: float) -> tuple[float, float, float]: ...
    def log_moment_ceiling(self, c: float) -> float: ...
    def points(self, c: float, reach: float) -> int: ...
    def log_decay(self, c: float, t: float) -> float: ...
    def moments(self, c: float, spacing: float, rows: int, stride: int) -> Moments: ...


class Atoms(Protocol):
    """One kind of step that has finitely many losses: those under P, tilted by e^{c loss}."""

    @property
    def only_p(self) -> float: ...
    def tilted(self, c: float, reach: float) -> Tilted: ...
    def points(self, c: float, reach: float) -> int: ...


Part = GaussianMixture | Atoms


@dataclass(frozen=True, eq=False)
class Composition:
    """Steps with their numbers, and an exact Gaussian part of parameter mu."""

    parts: tuple[tuple[Part, int], ...]
    mu: float = 0.0

    @property
    def steps(self) -> int:
        return sum(times for _, times in self.parts)

    @cached_property
    def _mixtures(self) -> tuple[Mixtures, ...]:
        parts = [(part, times) for part, times in self.parts if isinstance(part, GaussianMixture)]
        return tuple(Mixtures.group(parts))

    @cached_property
    def _atoms(self) -> tuple[tuple[Atoms, int], ...]:
        return tuple((part, times) for part, times in self.parts if not isinstance(part, GaussianMixture))

    def infinite(self) -> float:
        """The probability of an outcome that is impossible without the example."""
        log_rest = sum(times * math.log1p(-min(part.only_p, 1.0 - 1e-16)) for part, times in self._atoms)
        return -math.expm1(log_rest)

    def cumulants(self, c: float) -> tuple[float, float, float]:
        """log M(c) and its first two derivatives."""
        value, slope, curvature = 0.5 * self.mu**2 * c * (c + 1), self.mu**2 * (c + 0.5), self.mu**2
        for block in self._mixtures:
            more = block.cumulants(c)
            value, slope, curvature = value + more[0], slope + more[1], curvature + more[2]
        for part, times in self._atoms:
            tilted = part.tilted(c, 0.0)
            mean, variance = mean_and_variance(tilted)
            value += times * tilted.log_total
            slope += times * mean
            curvature += times * variance
        return value, slope, curvature

    def log_moment_ceiling(self, c: float) -> float:
        """An upper bound of log M(c): its value with the errors of the quadrature."""
        return self.cumulants(c)[0] + sum(block.coarse_error(c) for block in self._mixtures)

    def mass(self) -> float:
        """An upper bound of the total mass."""
        return 1.0

    def points(self, c: float, reach: float) -> int:
        """The number of terms for each value of M up to t = reach."""
        blocks = sum(block.points(c, reach) for block in self._mixtures)
        return blocks + sum(part.points(c, reach) for part, _ in self._atoms)

    def log_decay(self, c: float, t: float) -> float:
        """Log of an upper bound on |M(c + i t')| / M(c) for every t' >= t. Atoms may come back, so they count as 1."""
        return sum(block.log_decay(c, t) for block in self._mixtures) - 0.5 * (self.mu * t) ** 2

    def moments(self, c: float, spacing: float, rows: int, stride: int) -> Moments:
        """M on the line Re z = c; an error e in phi moves phi^T by at most T e |phi|^{T-1}."""
        t = spacing * np.arange(rows * stride)
        log_scale, log_moment = gaussian_moments(self.mu, c, spacing, rows * stride)
        relative = np.full(rows * stride, 32 * ROUNDING)
        for block in self._mixtures:
            tilted = block.tilted(c, float(t[-1]) + spacing)
            log_scale += float(block.times @ tilted.log_total)
            held = max(_MOST_HELD // ((rows + stride) * tilted.weight.shape[1]), 1)
            for kinds in (slice(start, start + held) for start in range(0, block.times.size, held)):
                weight, loss, times = tilted.weight[kinds], tilted.loss[kinds], block.times[kinds, None]
                phi = characteristic(weight, loss, spacing, rows, stride)
                log_moment += (times * np.log(phi + 1e-300)).sum(axis=0)
                phase = _PHASE * (weight * np.abs(loss)).sum(axis=1, keepdims=True)
                error = tilted.error[kinds, None] + ROUNDING + phase * t
                relative += (times * error / np.maximum(np.abs(phi), error)).sum(axis=0)
        for part, times in self._atoms:
            one = part.tilted(c, float(t[-1]))
            log_scale += times * one.log_total
            phi = characteristic(one.weight, one.loss, spacing, rows, stride)
            log_moment += times * np.log(phi + 1e-300)
            error = ROUNDING + _PHASE * float(one.weight @ np.abs(one.loss)) * t
            relative += times * error / np.maximum(np.abs(phi), error)
        values = np.exp(log_moment)
        return Moments(log_scale, values, np.abs(values) * relative)


def chernoff_bound(measure: Measure, a: float, eta: float) -> tuple[float, float]:
    """(a, b) such that delta(x) is at most e^{b - a x}, after smoothing by eta; from max_u (1 - e^{-u}) e^{-a u}."""
    log_peak = a * math.log(a / (a + 1)) - math.log(a + 1)
    return a, measure.log_moment_ceiling(a) + 0.5 * eta**2 * a * (a + 1) + log_peak


def mean_and_variance(tilted: Tilted) -> tuple[float, float]:
    """Mean and variance of the loss under its tilted weights."""
    mean = float(tilted.weight @ tilted.loss)
    return mean, float(tilted.weight @ (tilted.loss - mean) ** 2)


def gaussian_moments(mu: float, c: float, spacing: float, count: int) -> tuple[float, Complexes]:
    """log M of a Gaussian part: mu^2 z (z + 1) / 2, apart from its value at t = 0."""
    t = spacing * np.arange(count)
    log_moment = 0.5 * mu**2 * (1j * t * (2 * c + 1) - t**2)
    return 0.5 * mu**2 * c * (c + 1), log_moment.astype(np.complex128)


def characteristic(weight: Floats, loss: Floats, spacing: float, rows: int, stride: int) -> Complexes:
    """sum_j weight_j e^{i k spacing loss_j} for k = 0 .. rows * stride - 1, as one matrix product.

    With several rows of weights and losses, one such list for each.
    """
    fine = _turns(spacing * loss, stride)
    coarse = _turns((spacing * stride) * loss, rows) * weight[..., None, :]
    product = coarse @ np.swapaxes(fine, -1, -2)
    return np.asarray(product.reshape(*product.shape[:-2], rows * stride))


def _turns(angle: Floats, count: int) -> Complexes:
    """e^{i k angle} for k = 0 .. count - 1 (last axis but one): each from a power of two and what is known."""
    turns = np.empty((*angle.shape[:-1], count, angle.shape[-1]), dtype=np.complex128)
    turns[..., 0, :] = 1.0
    filled = 1
    while filled < count:
        take = min(filled, count - filled)
        turns[..., filled : filled + take, :] = turns[..., :take, :] * np.exp(1j * filled * angle)[..., None, :]
        filled += take
    return turns
