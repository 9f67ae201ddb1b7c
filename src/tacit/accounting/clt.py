"""The central limit theorem of Bu et al. 2019: the limit of many small steps. Not a bound.

It under-reports epsilon in eight of the nine settings that its authors published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.accounting import gdp
from tacit.accounting.curve import Accountant, Bounds, Certifies, register_accountant
from tacit.accounting.events import Adjacency, Event, Gaussian, Sampled
from tacit.accounting.steps import atoms_of, boil_down
from tacit.errors import NotAccountable


@dataclass(frozen=True)
class CentralLimitProfile:
    """Gaussian DP with the mu of the central limit theorem: the true epsilon may be larger or smaller."""

    mu: float

    @staticmethod
    def of(event: Event, group: int = 1) -> CentralLimitProfile:
        """The limit for `event`, which must consist of sampled steps and Gaussian ones."""
        return CentralLimitProfile(group * central_limit_mu(event))

    def epsilon(self, delta: float) -> Bounds:
        """The epsilon of mu-GDP."""
        value = float(gdp.epsilon(delta, self.mu)) if self.mu > 0 else 0.0
        return Bounds(value, value, value)

    def delta(self, epsilon: float) -> Bounds:
        """The delta of mu-GDP."""
        value = float(gdp.delta(epsilon, self.mu)) if self.mu > 0 else 0.0
        return Bounds(value, value, value)


def central_limit_mu(event: Event) -> float:
    """mu = sqrt(sum over sampled steps of rate^2 chi^2 + sum over Gaussian ones of 1 / multiplier^2)."""
    steps = boil_down(event)
    total = steps.mu**2
    for inner, times in steps.counts:
        if not isinstance(inner, Sampled):
            raise NotAccountable(
                f"The central limit theorem covers sampled steps and Gaussian steps, not {type(inner).__name__} "
                "without sampling. Use the accountant 'pld'."
            )
        if inner.adjacency is Adjacency.REPLACE_ONE:
            total += times * inner.rate**2 * _replaced_chi_square(inner.inside)
        elif isinstance(inner.inside, Gaussian):
            total += gdp.clt_mu(inner.inside.multiplier, inner.rate, times) ** 2
        else:
            total += times * inner.rate**2 * _chi_square(inner.inside)
    return math.sqrt(total)


def _replaced_chi_square(event: Event) -> float:
    """The integral of (p_1 - p_2)^2 / p_0 for N(+-shift/2, 1) against N(0, 1): 4 sinh(shift^2 / 4)."""
    if not isinstance(event, Gaussian):
        raise NotAccountable(
            f"Under replace-one the central limit theorem is known for sampled Gaussian noise only, not for "
            f"{type(event).__name__}. Use the accountant 'pld'."
        )
    return 4 * math.sinh(1 / (4 * event.multiplier**2)) if event.multiplier > 0.02 else math.inf


def _chi_square(event: Event) -> float:
    """E[(dP/dQ)^2] - 1 under Q, by quadrature."""
    steps = boil_down(event)
    log_total = steps.mu**2
    for inner, times in steps.counts:
        for atoms, number in atoms_of(inner, "estimate", added=False, tail=1e-30, size=4000):
            log_total += times * number * math.log(float(np.sum(atoms.p * np.exp(atoms.loss))))
    return math.expm1(log_total)


register_accountant(
    Accountant(
        name="clt",
        label="central limit theorem",
        profile=CentralLimitProfile.of,
        certifies=Certifies.NOTHING,
        line={"color": "#D55E00", "linewidth": 1.8, "linestyle": (0, (5, 2.5))},
        group_profile=CentralLimitProfile.of,
        mu=central_limit_mu,
    )
)
