"""Moments of the total loss of many steps: of all outcomes, or only of those with a large step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.densities import Floats
from tacit.accounting.losses import LossAtoms
from tacit.accounting.mixture import Tilted, log_decay

Complexes = NDArray[np.complex128]

# Error of one value of the characteristic function: six times the largest seen against extended precision.
_ROUNDING = 2.0**-48


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
    def points(self, c: float, reach: float) -> int: ...
    def log_decay(self, c: float, t: float) -> float: ...
    def moments(self, c: float, spacing: float, rows: int, stride: int) -> Moments: ...


class Part(Protocol):
    """One kind of step: its loss under P, tilted by e^{c loss}."""

    @property
    def only_p(self) -> float: ...
    def tilted(self, c: float, reach: float) -> Tilted: ...
    def points(self, c: float, reach: float) -> int: ...
    def uniform_shares(self, c: float) -> tuple[tuple[Floats, Floats], ...]: ...


@dataclass(frozen=True, eq=False)
class Composition:
    """Steps with their numbers, and an exact Gaussian part of parameter mu."""

    parts: tuple[tuple[Part, int], ...]
    mu: float = 0.0

    @property
    def steps(self) -> int:
        return sum(times for _, times in self.parts)

    def infinite(self) -> float:
        """The probability of an outcome that is impossible without the example."""
        log_rest = sum(times * math.log1p(-min(part.only_p, 1.0 - 1e-16)) for part, times in self.parts)
        return -math.expm1(log_rest)

    def cumulants(self, c: float) -> tuple[float, float, float]:
        """log M(c) and its first two derivatives."""
        value, slope, curvature = 0.5 * self.mu**2 * c * (c + 1), self.mu**2 * (c + 0.5), self.mu**2
        for part, times in self.parts:
            tilted = part.tilted(c, 0.0)
            mean, variance = _mean_and_variance(tilted)
            value += times * tilted.log_total
            slope += times * mean
            curvature += times * variance
        return value, slope, curvature

    def mass(self) -> float:
        """An upper bound of the total mass."""
        return 1.0

    def points(self, c: float, reach: float) -> int:
        """The number of terms for each value of M up to t = reach."""
        return sum(part.points(c, reach) for part, _ in self.parts)

    def log_decay(self, c: float, t: float) -> float:
        """Log of an upper bound on |M(c + i t')| / M(c) for every t' >= t."""
        steps = sum(times * log_decay(part.uniform_shares(c), t) for part, times in self.parts)
        return steps - 0.5 * (self.mu * t) ** 2

    def moments(self, c: float, spacing: float, rows: int, stride: int) -> Moments:
        """M on the line Re z = c; an error e in phi moves phi^T by at most T e |phi|^{T-1}."""
        reach = spacing * rows * stride
        log_scale, log_moment = _gaussian(self.mu, c, spacing, rows * stride)
        relative = np.full(rows * stride, 32 * _ROUNDING)
        for part, times in self.parts:
            tilted = part.tilted(c, reach)
            log_scale += times * tilted.log_total
            phi = characteristic(tilted.weight, tilted.loss, spacing, rows, stride)
            log_moment += times * np.log(phi + 1e-300)
            error = tilted.error + _ROUNDING * max(1.0, stride / 200)
            relative += times * error / np.maximum(np.abs(phi), error)
        values = np.exp(log_moment)
        return Moments(log_scale, values, np.abs(values) * relative)


@dataclass(frozen=True, eq=False)
class Jumps:
    """Outcomes with at least one large step: M^T minus the core, which is M^T without large losses.

    Where a few large steps make up delta, nearly all of M^T is the core, so rounding would hide them. Core and jumps
    have different scales, so each gets a line of its own. `large` holds the large losses of each part of `small`, or
    None.
    """

    small: Composition
    large: tuple[LossAtoms | None, ...]

    @property
    def mu(self) -> float:
        return self.small.mu

    def mass(self) -> float:
        return min(1.0, math.exp(min(self.cumulants(0.0)[0], 0.0)))

    def cumulants(self, c: float) -> tuple[float, float, float]:
        """With rho = log M^T - log core^T: log (M^T - core^T) = log core^T + log(e^rho - 1), and derivatives."""
        value, slope, curvature = self.small.cumulants(c)
        rho, rho_1, rho_2 = 0.0, 0.0, 0.0
        for (part, times), large in zip(self.small.parts, self.large, strict=True):
            if large is None:
                continue
            core, rest = part.tilted(c, 0.0), large.tilted(c, 0.0)
            ratio = math.exp(min(rest.log_total - core.log_total, 300.0))
            (mean_c, var_c), (mean_r, var_r) = _mean_and_variance(core), _mean_and_variance(rest)
            first = ratio * (mean_r - mean_c)
            second = ratio * ((mean_r - mean_c) ** 2 + var_r - var_c)
            rho += times * math.log1p(ratio)
            rho_1 += times * first / (1 + ratio)
            rho_2 += times * (second / (1 + ratio) - (first / (1 + ratio)) ** 2)
        rho = max(rho, 1e-300)
        gain = 1 / -math.expm1(-rho)
        log_excess = rho + math.log(-math.expm1(-rho))
        return (
            value + log_excess,
            slope + rho_1 * gain,
            curvature + rho_2 * gain + rho_1**2 * gain * (1 - gain),
        )

    def points(self, c: float, reach: float) -> int:
        return self.small.points(c, reach) + sum(large.loss.size for large in self.large if large is not None)

    def log_decay(self, c: float, t: float) -> float:
        return -0.5 * (self.mu * t) ** 2

    def moments(self, c: float, spacing: float, rows: int, stride: int) -> Moments:
        """core^T (exp(T log(1 + R)) - 1) with R = rest / core: no subtraction of nearly equal numbers."""
        log_scale, log_core = _gaussian(self.mu, c, spacing, rows * stride)
        growth = np.zeros(rows * stride, dtype=np.complex128)
        core_doubt = np.full(rows * stride, 32 * _ROUNDING)
        rest_doubt = np.zeros(rows * stride)
        for (part, times), large in zip(self.small.parts, self.large, strict=True):
            core = part.tilted(c, 0.0)
            phi = characteristic(core.weight, core.loss, spacing, rows, stride)
            size = np.maximum(np.abs(phi), _ROUNDING)
            log_scale += times * core.log_total
            log_core += times * np.log(phi + 1e-300)
            core_doubt += times * _ROUNDING / size
            if large is None:
                continue
            rest = large.tilted(c, 0.0)
            weight = math.exp(min(rest.log_total - core.log_total, 300.0))
            ratio = weight * characteristic(rest.weight, rest.loss, spacing, rows, stride) / (phi + 1e-300)
            growth += times * _log1p(ratio)
            rest_doubt += (
                times * 4 * _ROUNDING * (weight + np.abs(ratio)) / (size * np.maximum(np.abs(1 + ratio), _ROUNDING))
            )
        top = self.cumulants(c)[0] - log_scale
        little = np.abs(growth) < 1
        shifted = np.exp(np.minimum(log_core.real - top, 700.0) + 1j * log_core.imag)
        # Where the core has vanished, growth is huge; only its product with the core is finite.
        raised = np.exp(np.minimum(log_core.real + growth.real - top, 700.0) + 1j * (log_core.imag + growth.imag))
        values = np.where(little, shifted * np.expm1(np.where(little, growth, 0.0)), raised - shifted)
        doubts = np.abs(values) * core_doubt + np.abs(raised) * rest_doubt
        return Moments(log_scale + top, values, doubts)


def separate(whole: Composition, threshold: float) -> tuple[Composition, Jumps] | None:
    """Split into core (no loss above the threshold) and jumps (the rest); None if one of them is empty."""
    small: list[tuple[Part, int]] = []
    large: list[LossAtoms | None] = []
    for part, times in whole.parts:
        if not isinstance(part, LossAtoms):
            return None
        low, high = part.cut(threshold)
        if low is None:
            return None
        small.append((low, times))
        large.append(high)
    if all(high is None for high in large):
        return None
    core = Composition(tuple(small), whole.mu)
    return core, Jumps(core, tuple(large))


def chernoff_bound(measure: Measure, a: float, eta: float) -> tuple[float, float]:
    """(a, b) such that delta(x) is at most e^{b - a x}, after smoothing by eta; from max_u (1 - e^{-u}) e^{-a u}."""
    log_peak = a * math.log(a / (a + 1)) - math.log(a + 1)
    return a, measure.cumulants(a)[0] + 0.5 * eta**2 * a * (a + 1) + log_peak


def _mean_and_variance(tilted: Tilted) -> tuple[float, float]:
    mean = float(tilted.weight @ tilted.loss)
    return mean, float(tilted.weight @ (tilted.loss - mean) ** 2)


def _gaussian(mu: float, c: float, spacing: float, count: int) -> tuple[float, Complexes]:
    """log M of a Gaussian part: mu^2 z (z + 1) / 2, apart from its value at t = 0."""
    t = spacing * np.arange(count)
    log_moment = 0.5 * mu**2 * (1j * t * (2 * c + 1) - t**2)
    return 0.5 * mu**2 * c * (c + 1), log_moment.astype(np.complex128)


def _log1p(z: Complexes) -> Complexes:
    """log(1 + z), accurate for small complex z."""
    real = 0.5 * np.log1p(np.maximum(z.real * (2 + z.real) + z.imag**2, -1 + 1e-16))
    return np.asarray(real + 1j * np.arctan2(z.imag, 1 + z.real))


def characteristic(weight: Floats, loss: Floats, spacing: float, rows: int, stride: int) -> NDArray[np.complex128]:
    """sum_j weight_j e^{i k spacing loss_j} for k = 0 .. rows * stride - 1, as one matrix product."""
    fine = _powers(np.exp(1j * spacing * loss), stride)
    coarse = _powers(np.exp(1j * (spacing * stride) * loss), rows) * weight
    return np.asarray((coarse @ fine.T).ravel())


def _powers(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """Rows base^0 .. base^(count-1), by doubling."""
    rows = np.empty((count, base.size), dtype=np.complex128)
    rows[0] = 1.0
    # Normalised to modulus one, as rounding would grow with the exponent.
    filled, power = 1, base / np.abs(base)
    while filled < count:
        take = min(filled, count - filled)
        rows[filled : filled + take] = rows[:take] * power
        filled += take
        power = power * power
        power /= np.abs(power)
    return rows
