"""What the accountants say of sampled Gaussian steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.accounting import Event, Gaussian, curve, gdp

# The second row of table 1, for which the paper quotes the least sum of errors.
QUOTED = 1.1, 60


@dataclass(frozen=True)
class Steps:
    """So many noisy sums over Poisson lots."""

    multiplier: float
    rate: float
    steps: int

    @staticmethod
    def of(multiplier: float, lot_size: float, population: int, epochs: float) -> Steps:
        """Epochs become steps."""
        return Steps(multiplier, lot_size / population, max(1, round(epochs * population / lot_size)))

    @property
    def event(self) -> Event:
        """What an accountant accounts for."""
        return Gaussian(self.multiplier).sampled(self.rate) * self.steps

    @property
    def mu(self) -> float:
        """That of the central limit theorem."""
        return gdp.clt_mu(self.multiplier, self.rate, self.steps)


def accounted(steps: Steps, delta: float) -> dict[str, float]:
    """mu, and epsilon by the central limit theorem, by the moments accountant, and as certified."""
    low, high = curve(steps.event).epsilon_bounds(delta)
    return {
        "mu": round(steps.mu, 5),
        "clt": round(curve(steps.event, by="clt").epsilon(delta), 5),
        "moments": round(curve(steps.event, by="moments").epsilon(delta), 5),
        "certified_low": round(low, 5),
        "certified": round(high, 5),
    }


def least_error_sums(like: Steps) -> dict[str, float]:
    """Of the quoted row: the least sum of false alarms and misses that each view leaves to an attacker."""
    multiplier, epochs = QUOTED
    steps = Steps(multiplier, like.rate, round(epochs / like.rate))
    epsilon = curve(steps.event, by="moments").epsilon(1e-5)
    alphas = np.linspace(0, 1, 20_001)
    one = gdp.epsilon_delta_tradeoff(alphas, epsilon, 1e-5)
    every = curve(steps.event, by="moments").tradeoff(alphas)
    return {
        "clt": round(gdp.smallest_error_sum(steps.mu), 5),
        "moments": round(float(np.min(alphas + one)), 5),
        "all_moments": round(float(np.min(alphas + every)), 5),
        "certified": round(1 - curve(steps.event).advantage(), 5),
    }
