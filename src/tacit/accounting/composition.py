"""Moments of the total loss of many steps, and the loss of one Poisson-sampled Gaussian step.

One example (or a group of k) joins a Poisson lot: the released value is N(j m, 1) with probability w_j, against N(0, 1)
without it, where m = 1 / multiplier. The likelihood ratio is A(x) = sum_j w_j exp(j m x - j^2 m^2 / 2), an entire
function without zeros near the real line. So E[exp(z L)] is an integral of an analytic, Gaussian-damped function, for
which the trapezoidal rule errs by at most 2 I(a) / (e^{2 pi a / h} - 1): I(a) is the integral of the modulus along
Im x = a. No grid of losses is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit.accounting.densities import Floats

Complexes = NDArray[np.complex128]

# Error of one value of the characteristic function: six times the largest seen against extended precision.
ROUNDING = 2.0**-48
_COARSE = 0.25
_FLOOR = 110.0
_OUTSIDE = 1e-30
# Beyond this, the normal density is below e^-_FLOOR of its peak.
_FAR = 15.0
_TARGET = 1e-18
_MOST_POINTS = 20_000
_SIDE_LOBE = 0.21724


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
            mean, variance = mean_and_variance(tilted)
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
        log_scale, log_moment = gaussian_moments(self.mu, c, spacing, rows * stride)
        relative = np.full(rows * stride, 32 * ROUNDING)
        for part, times in self.parts:
            tilted = part.tilted(c, reach)
            log_scale += times * tilted.log_total
            phi = characteristic(tilted.weight, tilted.loss, spacing, rows, stride)
            log_moment += times * np.log(phi + 1e-300)
            error = tilted.error + ROUNDING * max(1.0, stride / 200)
            relative += times * error / np.maximum(np.abs(phi), error)
        values = np.exp(log_moment)
        return Moments(log_scale, values, np.abs(values) * relative)


def chernoff_bound(measure: Measure, a: float, eta: float) -> tuple[float, float]:
    """(a, b) such that delta(x) is at most e^{b - a x}, after smoothing by eta; from max_u (1 - e^{-u}) e^{-a u}."""
    log_peak = a * math.log(a / (a + 1)) - math.log(a + 1)
    return a, measure.cumulants(a)[0] + 0.5 * eta**2 * a * (a + 1) + log_peak


def mean_and_variance(tilted: Tilted) -> tuple[float, float]:
    """Mean and variance of the loss under its tilted weights."""
    mean = float(tilted.weight @ tilted.loss)
    return mean, float(tilted.weight @ (tilted.loss - mean) ** 2)


def gaussian_moments(mu: float, c: float, spacing: float, count: int) -> tuple[float, Complexes]:
    """log M of a Gaussian part: mu^2 z (z + 1) / 2, apart from its value at t = 0."""
    t = spacing * np.arange(count)
    log_moment = 0.5 * mu**2 * (1j * t * (2 * c + 1) - t**2)
    return 0.5 * mu**2 * c * (c + 1), log_moment.astype(np.complex128)


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


@dataclass(frozen=True)
class Tilted:
    """Weights and losses with sum_k weight e^{i t loss} = phi(t), right to within `error` for |t| up to the reach."""

    weight: Floats
    loss: Floats
    log_total: float
    error: float


@dataclass(frozen=True)
class GaussianMixture:
    """Shift j * shift with probability weights[j], against no shift, in units of the noise's standard deviation.

    `added` swaps the pair: the loss of the outcome without the example against the one with it.
    """

    shift: float
    weights: tuple[float, ...]
    added: bool = False

    @property
    def only_p(self) -> float:
        return 0.0

    @property
    def most(self) -> int:
        """The largest number of shifts that has positive probability."""
        return len(self.weights) - 1

    def power(self, c: float) -> float:
        """E[e^{c L}] is the integral of phi(x) A(x)^power."""
        return -c if self.added else c + 1

    def log_ratio(self, x: Floats) -> Floats:
        """log A(x), accurate where it is small."""
        j = np.arange(1, len(self.weights))
        tilt = self.shift * np.multiply.outer(x, j) - (self.shift * j) ** 2 / 2
        change = np.expm1(np.minimum(tilt, 30.0)) @ np.array(self.weights[1:])
        is_small = (tilt[:, -1] < 30) & (change > -0.5)
        small = np.log1p(np.where(is_small, change, 0.0))
        if is_small.all():
            return np.asarray(small)
        with np.errstate(divide="ignore"):
            terms = np.concatenate([np.zeros((x.size, 1)), tilt], axis=1) + np.log(self.weights)
        return np.asarray(np.where(is_small, small, special.logsumexp(terms, axis=1)))

    def position(self, loss: Floats) -> Floats:
        """The x at which log A(x) is `loss` (positive), for a single example."""
        rate = self.weights[1]
        small = np.log1p(np.expm1(np.minimum(loss, 50.0)) / rate)
        tilt = np.where(loss > 50, loss - math.log(rate), small)
        return np.asarray(tilt / self.shift + self.shift / 2)

    def most_tilt(self) -> float:
        """The largest c at which the tilted integrand is not dominated by outcomes that practically never occur.

        The mode of the far tail is at (c + 1) * shift, with log height (c + 1) (c shift^2 / 2 + log rate).
        """
        if self.added:
            return math.inf
        tail = -1.8 * math.log(self.weights[-1]) / self.shift if self.weights[-1] > 0 else 0.0
        return max(30.0, min(200.0, tail)) / (self.most * self.shift) - 1

    def tilted(self, c: float, reach: float) -> Tilted:
        """Nodes of the trapezoidal rule, fine enough for |t| <= reach."""
        low, high = _extent(self, c)
        if reach == 0:
            return _coarse(self, c)
        step, alias = _step(self, c, reach)
        # A step with few binary digits makes all nodes exact: errors of their spacing would be multiplied by T.
        step = max(step, (high - low) / _MOST_POINTS)
        step = max(math.floor(step * 2.0**24), 1) / 2.0**24
        nodes = self._nodes(c, step * np.arange(math.floor(low / step), math.ceil(high / step) + 1.0), step)
        return Tilted(nodes.weight, nodes.loss, nodes.log_total, alias(step) + _OUTSIDE)

    def points(self, c: float, reach: float) -> int:
        """The number of nodes that `tilted` needs; above `_MOST_POINTS` it would miss its error target."""
        low, high = _extent(self, c)
        needed = int((high - low) / _step(self, c, reach)[0])
        return needed if needed <= _MOST_POINTS else needed * 1000

    def _nodes(self, c: float, x: Floats, step: float) -> Tilted:
        ratio = self.log_ratio(x)
        exponent = self.power(c) * ratio - x**2 / 2
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        loss = -ratio if self.added else ratio
        return Tilted(weight / total, loss, top + math.log(total * step / math.sqrt(2 * math.pi)), math.inf)

    def uniform_shares(self, c: float) -> tuple[tuple[Floats, Floats], ...]:
        """Pieces of the tilted loss that are uniform: (probability, length) in several resolutions.

        Each cell of x has at least (smallest density) * (length in loss) of uniform mass. These bound |phi(t)| from
        above for all large t at once.
        """
        return _uniform_shares(self, c)


@dataclass(frozen=True)
class _Alias:
    """2 I / (e^{2 pi a / h} - 1), with 1.5 times the computed integral I."""

    a: float
    log_integral: float

    def __call__(self, step: float) -> float:
        exponent = 2 * math.pi * self.a / step
        return math.exp(min(math.log(3.0) + self.log_integral - exponent, 300.0)) / -math.expm1(-exponent)


@lru_cache(maxsize=512)
def _coarse(mixture: GaussianMixture, c: float) -> Tilted:
    return mixture._nodes(c, _coarse_grid(*_extent(mixture, c)), _COARSE)


def _coarse_grid(low: float, high: float) -> Floats:
    return _COARSE * np.arange(math.floor(low / _COARSE), math.ceil(high / _COARSE) + 1, dtype=np.float64)


@lru_cache(maxsize=512)
def _extent(mixture: GaussianMixture, c: float) -> tuple[float, float]:
    """The range of the integrand; outside is less than `_OUTSIDE` of the whole."""
    power = mixture.power(c)
    if mixture.added:
        # Log-concave; left of -c (log A)'(0) it rises at least like a bell centred there.
        centre = -c * float(_ratio_slope(mixture, np.zeros(1))[0])
        x = np.arange(centre - _FAR, _FAR + _COARSE, _COARSE)
        height = power * mixture.log_ratio(x) - x**2 / 2
        alive = np.flatnonzero(height > height.max() - _FLOOR)
        return float(x[alive[0]]) - 1.0, float(x[alive[-1]]) + 1.0
    x = np.arange(-_FAR, power * mixture.most * mixture.shift + _FAR + _COARSE, _COARSE)
    ratio = mixture.log_ratio(x)
    height = power * ratio - x**2 / 2
    # On a cell [a, b] with a >= 0 the integrand stays below e^{power * log A(b) - a^2 / 2}.
    ceiling = power * ratio[1:] - np.maximum(x[:-1], 0.0) ** 2 / 2
    alive = np.flatnonzero(ceiling > height.max() - _FLOOR)
    return -_FAR, float(x[int(alive[-1]) + 1])


@lru_cache(maxsize=512)
def _step(mixture: GaussianMixture, c: float, reach: float) -> tuple[float, _Alias]:
    """The widest step whose proven error is below the target, and that error as a function of the step."""
    coarse = _coarse(mixture, c)
    x = _coarse_grid(*_extent(mixture, c))
    j = np.arange(len(mixture.weights))
    # Within this strip every term of A has a positive real part (k > 1), or A avoids (-inf, 0] (k = 1).
    widest = min((2.0 if mixture.most == 1 else 1.3) / (mixture.most * mixture.shift), 6.0)
    with np.errstate(divide="ignore"):
        tilt = mixture.shift * np.multiply.outer(x, j) - (mixture.shift * j) ** 2 / 2 + np.log(mixture.weights)
        log_weight = np.log(coarse.weight)
    peak = tilt.max(axis=1, keepdims=True)
    tilt, offset = np.exp(tilt - peak), peak[:, 0] - mixture.log_ratio(x)
    best, alias = 0.0, _Alias(0.0, math.inf)
    for share in (0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8, 1.0):
        a = share * widest
        turned = tilt @ np.exp(1j * mixture.shift * a * j)
        swell = mixture.power(c) * (np.log(np.abs(turned)) + offset)
        log_integral = _log_sum(log_weight + swell + reach * np.abs(np.angle(turned)))
        # Beyond the nodes the integrand is e^-_FLOOR on the real line; off it, it may be larger by this.
        outside = reach * min(mixture.most * mixture.shift * a, math.pi) + max(float(swell.max()), 0.0) + 8 - _FLOOR
        log_integral = a**2 / 2 + float(np.logaddexp(log_integral, outside))
        step = 2 * math.pi * a / (log_integral - math.log(_TARGET))
        if step > best:
            best, alias = step, _Alias(a, log_integral)
    return min(best, _COARSE), alias


def _log_sum(exponents: Floats) -> float:
    """log of the sum of e^exponents: scipy's is ten times as slow for a hundred numbers."""
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top).sum()))


@lru_cache(maxsize=64)
def _uniform_shares(mixture: GaussianMixture, c: float) -> tuple[tuple[Floats, Floats], ...]:
    low, high = _extent(mixture, c)
    total = mixture.tilted(c, 0.0).log_total
    power, shift, most = mixture.power(c), mixture.shift, mixture.most
    result = []
    for step in (0.05, 0.2, 0.5):
        x = np.arange(low, high + step, step)
        ratio = mixture.log_ratio(x)
        height = power * ratio - x**2 / 2 - 0.5 * math.log(2 * math.pi) - total
        slope = _ratio_slope(mixture, x)
        # log A bends by at most shift * k * slope; between the ends the height may sag by that much.
        sag = max(power, 0.0) * shift * most * slope[1:] * step**2 / 8
        density = np.exp(np.minimum(height[:-1], height[1:]) - sag) / np.maximum(slope[1:], 1e-300)
        length = np.diff(ratio)
        share = np.minimum(density * length, step * np.exp(np.maximum(height[:-1], height[1:])))
        result.append((np.asarray(share), np.asarray(length)))
    return tuple(result)


def _ratio_slope(mixture: GaussianMixture, x: Floats) -> Floats:
    """d log A / dx = shift * (mean number of shifts, given x)."""
    j = np.arange(len(mixture.weights))
    with np.errstate(divide="ignore"):
        terms = mixture.shift * np.multiply.outer(x, j) - (mixture.shift * j) ** 2 / 2 + np.log(mixture.weights)
    posterior = special.softmax(terms, axis=1)
    return np.asarray(mixture.shift * (posterior @ j))


def log_decay(shares: tuple[tuple[Floats, Floats], ...], t: float) -> float:
    """Log of an upper bound on |phi(t')| for every t' >= t."""
    best = 0.0
    for share, length in shares:
        lost = float(share @ (1 - _sinc_from(t * length / 2)))
        best = max(best, min(lost, 1 - 1e-12))
    return math.log1p(-best)


def _sinc_from(u: Floats) -> NDArray[np.float64]:
    """sup of |sin v / v| over v >= u."""
    inside = np.sinc(np.minimum(u, 2.6) / math.pi)
    return np.where(u < 2.6, np.maximum(inside, _SIDE_LOBE), np.minimum(_SIDE_LOBE, 1 / np.maximum(u, 2.6)))
