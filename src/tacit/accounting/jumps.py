"""Outcomes in which one step has a large loss, apart from the rest: together they are hidden by rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.accounting.composition import (
    ROUNDING,
    Composition,
    Moments,
    Part,
    characteristic,
    characteristic_work,
    gaussian_moments,
    log1p,
    mean_and_variance,
)
from tacit.accounting.losses import LossAtoms

# Beyond this logarithm, 1 + x is x in double precision, and x itself is far from overflow.
_HUGE = 300.0


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
        for (part, times), large in zip(self.small.atoms, self.large, strict=True):
            if large is None:
                continue
            core, rest = part.tilt(c), large.tilt(c)
            log_ratio = float(rest.log_total[0] - core.log_total[0])
            share = _share(log_ratio)
            (mean_c, var_c), (mean_r, var_r) = mean_and_variance(core), mean_and_variance(rest)
            rho += times * (log_ratio if log_ratio > _HUGE else math.log1p(math.exp(log_ratio)))
            rho_1 += times * share * (mean_r - mean_c)
            rho_2 += times * share * ((1 - share) * (mean_r - mean_c) ** 2 + var_r - var_c)
        rho = max(rho, 1e-300)
        gain = 1 / -math.expm1(-rho)
        log_excess = rho + math.log(-math.expm1(-rho))
        return (
            value + log_excess,
            slope + rho_1 * gain,
            curvature + rho_2 * gain + rho_1**2 * gain * (1 - gain),
        )

    def log_moment_ceiling(self, c: float) -> float:
        return self.cumulants(c)[0]

    def work(self, c: float, spacing: float, count: int) -> float:
        rest = (characteristic_work(large.size, count) for large in self.large if large is not None)
        return self.small.work(c, spacing, count) + sum(rest)

    def log_decay(self, c: float, t: float) -> float:
        return -0.5 * (self.mu * t) ** 2

    def moments(self, c: float, spacing: float, count: int) -> Moments:
        """core^T (exp(T log(1 + R)) - 1) with R = rest / core: no subtraction of nearly equal numbers."""
        log_scale, log_core = gaussian_moments(self.mu, c, spacing, count)
        growth = np.zeros(count, dtype=np.complex128)
        core_doubt = np.full(count, 32 * ROUNDING)
        rest_doubt = np.zeros(count)
        for (part, times), large in zip(self.small.atoms, self.large, strict=True):
            core = part.tilt(c)
            phi = 1 + characteristic(core.weight, core.loss, spacing, count)[0][0]
            size = np.maximum(np.abs(phi), ROUNDING)
            log_scale += times * float(core.log_total[0])
            log_core += times * np.log(phi + 1e-300)
            core_doubt += times * ROUNDING / size
            if large is None:
                continue
            rest = large.tilt(c)
            log_weight = float(rest.log_total[0] - core.log_total[0])
            ratio = (1 + characteristic(rest.weight, rest.loss, spacing, count)[0][0]) / (phi + 1e-300)
            if log_weight > _HUGE:
                # 1 is nothing beside the ratio; only its logarithm is within range.
                growth += times * (log_weight + np.log(ratio + 1e-300))
                doubt = (1 + np.abs(ratio)) / np.maximum(np.abs(ratio), ROUNDING)
            else:
                weight = math.exp(log_weight)
                ratio *= weight
                growth += times * log1p(ratio)
                doubt = (weight + np.abs(ratio)) / np.maximum(np.abs(1 + ratio), ROUNDING)
            rest_doubt += times * 4 * ROUNDING * doubt / size
        top = self.cumulants(c)[0] - log_scale
        little = np.abs(growth) < 1
        shifted = np.exp(np.minimum(log_core.real - top, 700.0) + 1j * log_core.imag)
        # Where the core has vanished, growth is huge; only its product with the core is finite.
        raised = np.exp(np.minimum(log_core.real + growth.real - top, 700.0) + 1j * (log_core.imag + growth.imag))
        values = np.where(little, shifted * np.expm1(np.where(little, growth, 0.0)), raised - shifted)
        doubts = np.abs(values) * core_doubt + np.abs(raised) * rest_doubt
        return Moments(log_scale + top, values, doubts)


def _share(log_ratio: float) -> float:
    """x / (1 + x), from log x."""
    small = math.exp(-abs(log_ratio))
    return small / (1 + small) if log_ratio < 0 else 1 / (1 + small)


def separate(whole: Composition, threshold: float) -> tuple[Composition, Jumps] | None:
    """Split into core (no loss above the threshold) and jumps (the rest); None if one of them is empty."""
    if whole.mixtures:
        return None
    small: list[tuple[Part, int]] = []
    large: list[LossAtoms | None] = []
    for part, times in whole.atoms:
        low, high = part.cut(threshold)
        if low is None:
            return None
        small.append((low, times))
        large.append(high)
    if all(high is None for high in large):
        return None
    core = Composition(tuple(small), whole.mu)
    return core, Jumps(core, tuple(large))
