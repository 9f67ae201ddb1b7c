"""Rényi accounting: certified from above, a few per cent loose; and the moments accountant as published."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import optimize

from tacit.accounting.composition import Composition, Part
from tacit.accounting.curve import Accountant, Bounds, Certifies, register_accountant, unless_too_large
from tacit.accounting.events import Event, Sampled
from tacit.accounting.lots import LotEvent
from tacit.accounting.mixture import GaussianMixture
from tacit.accounting.steps import CountedSteps, atoms_of, boil_down, exact_mixture
from tacit.errors import InvalidArgument, NotAccountable

Conversion = Literal["improved", "classical"]

# Those of tf-privacy: 1.1, 1.2, ..., 10.9, 12, 13, ..., 63, as Bu et al. ran it, and 128, 256, 512 for small epsilons.
MOMENTS_ORDERS = (
    *(1 + tenth / 10 for tenth in range(1, 100)),
    *(float(order) for order in range(12, 64)),
    *(128.0, 256.0, 512.0),
)

_SCAN = np.exp(np.linspace(math.log(1e-3), math.log(3e6), 90))
_SIZE = 4000


@dataclass(frozen=True)
class RenyiProfile:
    """Upper bounds by Rényi divergences: over all real orders, or over the orders given.

    Conversions: "classical" is rdp + log(1/delta) / (order - 1) (Mironov 2017); "improved" is that of
    Canonne, Kamath and Steinke 2020 (proposition 12). Lower bounds are 0: this accountant has none.
    Only removing an example is considered: for orders above 1 and symmetric noise it is the worse
    direction (Mironov, Talwar and Zhang 2019).
    """

    steps: CountedSteps
    orders: tuple[float, ...] | None = None
    conversion: Conversion = "improved"

    @staticmethod
    def of(event: Event, orders: tuple[float, ...] | None = None, conversion: Conversion = "improved") -> RenyiProfile:
        """The profile of `event`; `NotAccountable` if its Rényi divergences are infinite."""
        if orders is not None and not (orders and all(1 < order < math.inf for order in orders)):
            raise InvalidArgument(f"orders must be finite numbers above 1, at least one. Got {orders!r}.")
        if conversion not in ("improved", "classical"):
            raise InvalidArgument(f"conversion must be 'improved' or 'classical'. Got {conversion!r}.")
        return RenyiProfile(boil_down(event), orders, conversion)

    def divergence(self, order: float) -> float:
        """Rényi divergence of the given order (above 1) of all steps together: an upper bound."""
        c = order - 1
        if c not in self._known:
            found = unless_too_large(lambda: self._bound_moment(c))
            self._known[c] = math.inf if found is None or math.isnan(found) else max(found, 0.0) / c
        return self._known[c]

    def _bound_moment(self, c: float) -> float:
        mixtures = (part for part, _ in self._composition.parts if isinstance(part, GaussianMixture))
        is_finite = all(c < part.most_tilt() for part in mixtures)
        return self._composition.log_moment_ceiling(c) if is_finite else math.inf

    @cached_property
    def _known(self) -> dict[float, float]:
        return {}

    @cached_property
    def _composition(self) -> Composition:
        return _compose(self.steps)

    def epsilon(self, delta: float) -> Bounds:
        """The smallest epsilon over the orders."""
        log_delta = math.log(delta)
        if self.steps.mu == 0 and not self.steps.counts:
            return Bounds(0.0, 0.0, 0.0)

        def at(c: float) -> float:
            rdp = self.divergence(c + 1)
            if self.conversion == "classical":
                return rdp - log_delta / c
            return rdp + math.log(c / (c + 1)) - (log_delta + math.log(c + 1)) / c

        value = max(self._smallest(at), 0.0)
        return Bounds(0.0, value, value)

    def delta(self, epsilon: float) -> Bounds:
        """The smallest delta over the orders."""
        if self.steps.mu == 0 and not self.steps.counts:
            return Bounds(0.0, 0.0, 0.0)

        def at(c: float) -> float:
            rdp = self.divergence(c + 1)
            if self.conversion == "classical":
                return c * (rdp - epsilon)
            return c * (rdp - epsilon + math.log(c / (c + 1))) - math.log(c + 1)

        value = min(math.exp(min(self._smallest(at), 0.0)), 1.0)
        return Bounds(0.0, value, value)

    def _smallest(self, at: Callable[[float], float]) -> float:
        """The minimum over c = order - 1. Every order is valid, so missing the minimum only costs tightness."""
        if self.orders is not None:
            return min(at(order - 1) for order in self.orders)
        values = [at(float(c)) for c in _SCAN]
        best = int(np.argmin(values))
        if not math.isfinite(values[best]):
            return math.inf
        # The search subtracts values, so infinite ones are left out.
        near = [i for i in (best - 1, best, best + 1) if 0 <= i < _SCAN.size and math.isfinite(values[i])]
        around = (math.log(_SCAN[near[0]]), math.log(_SCAN[near[-1]]))
        found = optimize.minimize_scalar(lambda u: at(math.exp(u)), bounds=around, method="bounded")
        return min(values[best], float(found.fun))


def _compose(steps: CountedSteps) -> Composition:
    """The steps as an upper bound of their moments."""
    parts: list[tuple[Part, int]] = []
    for event, times in steps.counts:
        mixture = exact_mixture(event, added=False)
        if mixture is not None:
            parts.append((mixture, times))
            continue
        if isinstance(event, LotEvent):
            raise NotAccountable(
                f"The Rényi divergences of {type(event).__name__} lots have no closed form here. Use the accountant "
                "'pld'."
            )
        if isinstance(event, Sampled) and boil_down(event.inside).mu > 0:
            raise NotAccountable(
                "Gaussian noise together with other noise on one lot has no closed form here, and atoms do not cover "
                "the tails that high orders need. Use the accountant 'pld'."
            )
        for atoms, number in atoms_of(event, "upper", added=False, tail=1e-300, size=_SIZE):
            if atoms.only_p > 0:
                raise NotAccountable(
                    f"The Rényi divergences of {type(event).__name__} are infinite, as it has outcomes that only one "
                    "of two neighbouring data sets can produce. Use the accountant 'pld'."
                )
            parts.append((atoms, number * times))
    return Composition(tuple(parts), steps.mu)


register_accountant(
    Accountant("rdp", "RDP", RenyiProfile.of, Certifies.ABOVE, line={"color": "#AA4499", "linewidth": 1.0})
)
register_accountant(
    Accountant(
        "moments",
        "moments accountant",
        # Of Abadi et al. 2016, with tf-privacy's orders and the conversion that Bu et al. used.
        lambda event: RenyiProfile.of(event, MOMENTS_ORDERS, "classical"),
        Certifies.ABOVE,
        line={"color": "#B8860B", "linewidth": 1.0, "linestyle": (0, (7, 1.5, 1, 1.5))},
    )
)
