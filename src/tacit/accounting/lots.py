"""Events of Gaussian releases on lots that are not plain Poisson samples, with their losses bounded on both sides.

Each event knows its own losses, so accountants need no case for it. Proofs: docs/explanations/accounting.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from tacit import _validate
from tacit.accounting.allocation import allocation_atoms
from tacit.accounting.events import Adjacency, AroundEvent, Event, Gaussian, register_event
from tacit.accounting.losses import Kind, LossAtoms, mixture_atoms
from tacit.accounting.mixture import GaussianMixture
from tacit.errors import AdjacencyMismatch, InvalidArgument, NotAccountable

# Binomial tails are accurate to this fraction.
_OUTWARD = 1e-9


@dataclass(frozen=True)
class LotEvent(AroundEvent):
    """A Gaussian release on a random lot; `inside` is the release for an example that is in the lot."""

    inside: Gaussian

    def __post_init__(self) -> None:
        if not isinstance(self.inside, Gaussian):
            raise NotAccountable(
                f"What {type(self).__name__} lots cost is known for Gaussian noise only. Got "
                f"{type(self.inside).__name__}. Use Gaussian noise, or Poisson sampling."
            )
        if self.inside.adjacency is not self.stated_for:
            raise AdjacencyMismatch(
                f"{type(self).__name__} lots are accounted for under {self.stated_for}. The release inside is stated "
                f"under {self.inside.adjacency}."
            )

    @property
    def stated_for(self) -> Adjacency:
        """The adjacency that the proof is about."""
        return Adjacency.ADD_REMOVE

    @property
    def largest_mu(self) -> float:
        """A mu for which the release is mu-GDP whoever is in the lot."""
        return 1 / self.inside.multiplier

    @abstractmethod
    def atoms(self, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
        """Losses of one such release, on the side of `kind`."""


@final
@dataclass(frozen=True)
class Allocated(LotEvent):
    """The first `steps` of the `lots` releases of an epoch: every example is in exactly one of its lots, at random.

    Each example draws its lot independently and uniformly ("balls in bins"). One epoch is one event, because its steps
    depend on each other.
    """

    lots: int
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.check_fields(self, count=("lots", "steps"))
        if self.steps > self.lots:
            raise InvalidArgument(f"An epoch of {self.lots} lots has at most as many steps. Got steps {self.steps}.")

    def atoms(self, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
        """Both bounds differ by about 0.05 % of epsilon."""
        found = allocation_atoms(self.inside.multiplier, self.lots, self.steps, kind, tail, size)
        return found.reverse() if added else found


@final
@dataclass(frozen=True)
class Truncated(LotEvent):
    """A Poisson lot at `rate`, cut to `most` examples at random if it is larger; at most `population` examples exist.

    A full lot is one in which the example replaces another, so the sum moves by up to twice the sensitivity.
    """

    rate: float
    most: int
    population: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.check_fields(self, rate="rate", count=("most", "population"))

    @property
    def largest_mu(self) -> float:
        return 2 / self.inside.multiplier

    def atoms(self, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
        """Upper: whether the others fill the lot is revealed. Lower: the others contribute nothing."""
        shift = 1 / self.inside.multiplier
        if kind == "lower":
            return _mixture(shift, self._least_rate(), kind, added=added, tail=tail, size=size)
        full = min(float(scipy.stats.binom.sf(self.most - 1, self.population - 1, self.rate)) * (1 + _OUTWARD), 1.0)
        plain = _mixture(shift, self.rate, kind, added=added, tail=tail, size=size)
        if full == 0:
            return plain
        replaced = _mixture(2 * shift, self.rate, kind, added=added, tail=tail, size=size)
        return _either(plain, replaced, full)

    def _least_rate(self) -> float:
        """The probability of being in the lot, if the population has its full size."""
        fits = self.rate * float(scipy.stats.binom.cdf(self.most - 1, self.population - 1, self.rate))
        cut = self.most / self.population * float(scipy.stats.binom.sf(self.most, self.population, self.rate))
        return min(fits + cut, 1.0) * (1 - _OUTWARD)


@final
@dataclass(frozen=True)
class FixedSize(LotEvent):
    """A lot of a fixed number of examples, drawn without replacement: `rate` is its share of all examples.

    About one example replaced by another, so `inside` counts a move by twice the clip norm.
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.check_fields(self, rate="rate")

    @property
    def stated_for(self) -> Adjacency:
        return Adjacency.REPLACE_ONE

    def atoms(self, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
        """Upper: positive losses of the sampled pair, and their mirror image. Lower: the sampled pair itself."""
        one = _mixture(1 / self.inside.multiplier, self.rate, kind, added=False, tail=tail, size=size)
        if kind == "lower":
            return one
        above = one.loss > 0
        loss, p, q = one.loss[above], one.p[above], one.q[above]
        rest = max(1 - float(p.sum()) - float(q.sum()) - one.only_p, 0.0)
        return LossAtoms(
            np.concatenate([loss, -loss, [0.0]]),
            np.concatenate([p, q, [rest]]),
            np.concatenate([q, p, [rest]]),
            one.only_p,
            one.only_p,
        )


@final
@dataclass(frozen=True)
class Correlated(AroundEvent):
    """Noise that is correlated over `bands` steps: `inside` holds for an example that is in at most one of any
    `bands` consecutive lots.

    No accountant takes it as it is: a sampling that keeps an example's steps that far apart turns it into `inside`.
    Unless `is_amplified`, an example's steps overlap, so that sampling gains nothing.
    """

    bands: int
    is_amplified: bool = True

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="bands")


def separate_steps(event: Event, apart: int) -> Event:
    """What a release costs if every example is in at most one of any `apart` consecutive lots."""
    if not isinstance(event, Correlated):
        return event
    if event.bands > apart:
        raise NotAccountable(
            f"This noise is correlated over {event.bands} steps, but an example may be in lots only {apart} steps "
            f"apart, so its releases are not independent. Use at least {event.bands} groups, or fewer bands."
        )
    return event.inside


def _mixture(shift: float, rate: float, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
    return mixture_atoms(GaussianMixture(shift, (1 - rate, rate), added), kind, tail, size)


def _either(one: LossAtoms, other: LossAtoms, chance: float) -> LossAtoms:
    """The second pair with probability `chance`, else the first; which one is seen."""
    stay = 1 - chance
    return LossAtoms(
        np.concatenate([one.loss, other.loss]),
        np.concatenate([stay * one.p, chance * other.p]),
        np.concatenate([stay * one.q, chance * other.q]),
        stay * one.only_p + chance * other.only_p,
        stay * one.only_q + chance * other.only_q,
    )


register_event("allocated", Allocated)
register_event("truncated", Truncated)
register_event("fixed_size", FixedSize)
register_event("correlated", Correlated)
