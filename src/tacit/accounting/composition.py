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
from scipy import fft

from tacit.accounting.densities import Floats
from tacit.accounting.losses import LossAtoms
from tacit.accounting.mixture import GaussianMixture, Mixtures, Tilted

Complexes = NDArray[np.complex128]

# Error of one value of the characteristic function: six times the largest seen against extended precision.
ROUNDING = 2.0**-48
# The width of the bells in `_transform`.
_SPREAD = 54.0
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
    def work(self, c: float, spacing: float, count: int) -> float: ...
    def log_decay(self, c: float, t: float) -> float: ...
    def moments(self, c: float, spacing: float, count: int) -> Moments: ...


Part = GaussianMixture | LossAtoms


@dataclass(frozen=True, eq=False)
class Composition:
    """Steps with their numbers, and an exact Gaussian part of parameter mu.

    `known` are steps of another composition, which keep what was computed for them.
    """

    parts: tuple[tuple[Part, int], ...]
    mu: float = 0.0
    known: tuple[Mixtures, ...] = ()

    @property
    def steps(self) -> int:
        return sum(times for _, times in self.parts)

    @cached_property
    def mixtures(self) -> tuple[Mixtures, ...]:
        """All sampled Gaussian steps, in blocks."""
        parts = [(part, times) for part, times in self.parts if isinstance(part, GaussianMixture)]
        return (*self.known, *Mixtures.group(parts))

    @cached_property
    def atoms(self) -> tuple[tuple[LossAtoms, int], ...]:
        """All other steps, with their numbers."""
        return tuple((part, times) for part, times in self.parts if not isinstance(part, GaussianMixture))

    def infinite(self) -> float:
        """The probability of an outcome that is impossible without the example."""
        log_rest = sum(times * math.log1p(-min(part.only_p, 1.0 - 1e-16)) for part, times in self.atoms)
        return -math.expm1(log_rest)

    def cumulants(self, c: float) -> tuple[float, float, float]:
        """log M(c) and its first two derivatives."""
        if c not in self._known_cumulants:
            self._known_cumulants[c] = self._find_cumulants(c)
        return self._known_cumulants[c]

    @cached_property
    def _known_cumulants(self) -> dict[float, tuple[float, float, float]]:
        return {}

    def _find_cumulants(self, c: float) -> tuple[float, float, float]:
        value, slope, curvature = 0.5 * self.mu**2 * c * (c + 1), self.mu**2 * (c + 0.5), self.mu**2
        for block in self.mixtures:
            more = block.cumulants(c)
            value, slope, curvature = value + more[0], slope + more[1], curvature + more[2]
        for part, times in self.atoms:
            tilted = part.tilt(c)
            mean, variance = mean_and_variance(tilted)
            value += times * float(tilted.log_total[0])
            slope += times * mean
            curvature += times * variance
        return value, slope, curvature

    def log_moment_ceiling(self, c: float) -> float:
        """An upper bound of log M(c): its value with the errors of the quadrature."""
        return self.cumulants(c)[0] + sum(block.coarse_error(c) for block in self.mixtures)

    def mass(self) -> float:
        """An upper bound of the total mass."""
        return 1.0

    def work(self, c: float, spacing: float, count: int) -> float:
        """The cost of `count` values of M, in complex multiplications."""
        blocks = ((block.points(c, spacing * count), block.times.size) for block in self.mixtures)
        atoms = ((part.size, 1) for part, _ in self.atoms)
        return 16.0 * count + sum(kinds * characteristic_work(points, count) for points, kinds in (*blocks, *atoms))

    def log_decay(self, c: float, t: float) -> float:
        """Log of an upper bound on |M(c + i t')| / M(c) for every t' >= t. Atoms may come back, so they count as 1."""
        return sum(block.log_decay(c, t) for block in self.mixtures) - 0.5 * (self.mu * t) ** 2

    def moments(self, c: float, spacing: float, count: int) -> Moments:
        """M on the line Re z = c; an error e in phi moves phi^T by at most T e |phi|^{T-1}."""
        log_scale, log_moment = gaussian_moments(self.mu, c, spacing, count)
        relative = np.full(count, 32 * ROUNDING)
        for block in self.mixtures:
            if (c, spacing, count) not in block.known_moments:
                block.known_moments.clear()
                law = block.tilt(c, spacing * count)
                block.known_moments[c, spacing, count] = _log_moments(law, block.times, spacing, count)
            scale, log_values, errors = block.known_moments[c, spacing, count]
            log_scale, log_moment, relative = log_scale + scale, log_moment + log_values, relative + errors
        for part, times in self.atoms:
            scale, log_values, errors = _log_moments(part.tilt(c), np.array([float(times)]), spacing, count)
            log_scale, log_moment, relative = log_scale + scale, log_moment + log_values, relative + errors
        values = np.exp(log_moment)
        return Moments(log_scale, values, np.abs(values) * relative)


def _log_moments(law: Tilted, numbers: Floats, spacing: float, count: int) -> tuple[float, Complexes, Floats]:
    """log M(c) of all kinds together, log M(c + i t) / M(c), and the relative error of the latter."""
    log_moment, relative = np.zeros(count, dtype=np.complex128), np.zeros(count)
    kinds = max(_MOST_HELD // (2 * math.isqrt(count) * law.weight.shape[1] + count), 1)
    for some in (slice(first, first + kinds) for first in range(0, numbers.size, kinds)):
        weight, loss, times = law.weight[some], law.loss[some], numbers[some, None]
        change, rounding = characteristic(weight, loss, spacing, count)
        log_moment += (times * log1p(change)).sum(axis=0)
        phase = _PHASE * spacing * (weight * np.abs(loss)).sum(axis=1, keepdims=True)
        error = law.error[some, None] + rounding[:, None] + phase * np.arange(count)
        relative += (times * error / np.maximum(np.abs(1 + change), error)).sum(axis=0)
    return float(numbers @ law.log_total), log_moment, relative


def chernoff_bound(measure: Measure, a: float, eta: float) -> tuple[float, float]:
    """(a, b) such that delta(x) is at most e^{b - a x}, after smoothing by eta; from max_u (1 - e^{-u}) e^{-a u}."""
    log_peak = a * math.log(a / (a + 1)) - math.log(a + 1)
    return a, measure.log_moment_ceiling(a) + 0.5 * eta**2 * a * (a + 1) + log_peak


def mean_and_variance(tilted: Tilted) -> tuple[float, float]:
    """Mean and variance of the loss of one kind under its tilted weights."""
    # By einsum: a product would wake the threads of BLAS, which costs more than so short a sum.
    weight, loss = tilted.weight[0], tilted.loss[0]
    mean = float(np.einsum("i,i", weight, loss))
    return mean, float(np.einsum("i,i", weight, np.square(loss - mean)))


def gaussian_moments(mu: float, c: float, spacing: float, count: int) -> tuple[float, Complexes]:
    """log M of a Gaussian part: mu^2 z (z + 1) / 2, apart from its value at t = 0."""
    t = spacing * np.arange(count)
    log_moment = 0.5 * mu**2 * (1j * t * (2 * c + 1) - t**2)
    return 0.5 * mu**2 * c * (c + 1), log_moment.astype(np.complex128)


def characteristic(weight: Floats, loss: Floats, spacing: float, count: int) -> tuple[Complexes, Floats]:
    """sum_j weight_j (e^{i k spacing loss_j} - 1) for k = 0 .. count - 1, and its rounding, for each row."""
    points = weight.shape[1]
    if characteristic_work(points, count) < points * count:
        rows = [_transform_rest(*row, spacing, count) for row in zip(weight, loss, strict=True)]
        return np.stack([values for values, _ in rows]), np.array([rounding for _, rounding in rows])
    stride = max(math.isqrt(count), 1)
    rows_of = -(-count // stride)
    fine = _turns(spacing * loss, stride)
    coarse = _turns((spacing * stride) * loss, rows_of) * weight[:, None, :]
    product = coarse @ np.swapaxes(fine, 1, 2)
    whole = product.reshape(len(weight), rows_of * stride)[:, :count]
    return whole - weight.sum(axis=1, keepdims=True), np.full(len(weight), ROUNDING)


def _transform_rest(weight: Floats, loss: Floats, spacing: float, count: int) -> tuple[Complexes, float]:
    """The sum by a transform for large losses, and by a power series for those with k spacing |loss| <= 1/2.

    At a low rate nearly all weight has a tiny loss, and rounding is in proportion to the weight of the others. The
    series ends after 16 terms: the rest is below 2^-16 / 17! < 1e-19 of its first term.
    """
    small = np.abs(loss) * (spacing * count) <= 0.5
    large = float(weight[~small].sum())
    k = np.arange(count) / count
    scaled, power = loss[small] * (spacing * count), weight[small].copy()
    moments = []
    for order in range(1, 17):
        power *= scaled / order
        moments.append(float(power.sum()))
    # e^{iy} - 1 = -y^2/2 + y^4/24 - ... + i (y - y^3/6 + ...)
    square, values = k * k, np.zeros(count, dtype=np.complex128)
    real, imaginary = values.real, values.imag
    for order in range(16, 0, -2):
        sign = 1.0 if order % 4 == 0 else -1.0
        real += sign * moments[order - 1]
        real *= square
        imaginary *= square
        imaginary -= sign * moments[order - 2]
    imaginary *= k
    if large > 0:
        values += _transform(weight[~small], loss[~small], spacing, count) - large
    return values, ROUNDING * (large + float(np.abs(power).sum()) + abs(moments[0]) + abs(moments[1]))


def characteristic_work(points: int, count: int) -> float:
    """The cost of one characteristic function, in multiplications of a matrix product."""
    return min(float(points) * count, 300.0 * points + 150.0 * count)


def _transform(weight: Floats, loss: Floats, spacing: float, count: int) -> Complexes:
    """The same by a fast Fourier transform: each point is spread on a lattice as a bell, e^{-b u^2} in lattice units.

    The bell's own transform is divided out. With b = pi^2 / s on a lattice of n >= 6 count points, that is sqrt(s / pi)
    e^{-s (k/n)^2} for frequency k. Frequencies k + l n are added to k with weight e^{-s (l^2 - 2 |l| k/n)}, k/n <= 1/6:
    in all at most 3 e^{-2 s / 3} = 7e-16. Cutting the bell at |u| > 14.5 loses at most e^{s/36} sqrt(pi / s)
    3 e^{-14.5^2 b} < 1e-16. Both are far below `ROUNDING`. (Dutt and Rokhlin 1993; Greengard and Lee 2004.)
    """
    size = fft.next_fast_len(6 * count, real=True)
    place = (spacing * size / (2 * math.pi)) * loss
    nearest = np.rint(place)
    off, start = place - nearest, np.mod(nearest, size).astype(np.int64)
    sharpness, u = math.pi**2 / _SPREAD, np.arange(-14.0, 15.0)
    lattice = np.zeros(size)
    for some in (slice(first, first + 20_000) for first in range(0, loss.size, 20_000)):
        bell = np.exp(-sharpness * (u - off[some, None]) ** 2) * weight[some, None]
        index = np.mod(start[some, None] + u.astype(np.int64), size)
        lattice += np.bincount(index.ravel(), bell.ravel(), size)
    k = np.arange(count) / size
    return np.asarray(np.conj(fft.rfft(lattice)[:count]) * (math.sqrt(math.pi / _SPREAD) * np.exp(_SPREAD * k**2)))


def log1p(z: Complexes) -> Complexes:
    """log(1 + z), accurate for small complex z."""
    near = np.abs(z) < 0.5
    real = 0.5 * np.log1p(np.where(near, z.real * (2 + z.real) + z.imag**2, 0.0))
    found = real + 1j * np.arctan2(z.imag, 1 + z.real)
    return found if near.all() else np.where(near, found, np.log(1 + z + 1e-300))


def _turns(angle: Floats, count: int) -> Complexes:
    """e^{i k angle} for k = 0 .. count - 1 (second axis): each from a power of two and what is known."""
    turns = np.empty((len(angle), count, angle.shape[1]), dtype=np.complex128)
    turns[:, 0] = 1.0
    filled = 1
    while filled < count:
        take = min(filled, count - filled)
        turns[:, filled : filled + take] = turns[:, :take] * np.exp(1j * filled * angle)[:, None]
        filled += take
    return turns
