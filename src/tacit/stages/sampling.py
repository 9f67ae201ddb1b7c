"""How a lot is drawn, and how much that amplifies privacy. One object answers both.

`lot_size` and `population` are declared by whoever trains, and published with the guarantee. They are never
taken from the data: under add/remove the number of examples is private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import _validate
from tacit._other_names import refuse_other_names
from tacit.accounting.events import Adjacency, Event, Gaussian, Repeated, add_up
from tacit.errors import InvalidArgument, NotAccountable
from tacit.guarantee import Assumption
from tacit.randomness import Indices, Stream


@dataclass(frozen=True)
class DeclaredSizes:
    """A lot size and a population, both declared and public."""

    lot_size: float
    population: int

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="population", positive="lot_size")
        if self.lot_size > self.population:
            raise InvalidArgument(
                f"lot_size must be at most the population. Got lot_size {self.lot_size:g} and population "
                f"{self.population}. lot_size is the expected number of examples in a lot."
            )

    @property
    def rate(self) -> float:
        """The probability with which an example enters a lot."""
        return self.lot_size / self.population

    def refuse_other_count(self, n: int, which: str) -> None:
        """Raise unless the population is the number of examples."""
        if n != self.population:
            raise InvalidArgument(
                f"{which} need the public population to be the number of examples. Got population {self.population} "
                f"and {n} examples. Declare population={n} (which publishes it), or use Poisson."
            )


@refuse_other_names
@dataclass(frozen=True)
class Poisson(DeclaredSizes):
    """Every example enters a lot independently, with probability lot_size / population.

    `lot_size` is the expected number; the realised lot size is private and may be zero.

    >>> from tacit.accounting import Gaussian
    >>> Poisson(lot_size=256, population=60_000).amplify(Gaussian(1.1))  # doctest: +ELLIPSIS
    Sampled(inside=Gaussian(multiplier=1.1, ...), rate=0.004266666666666667)
    """

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "poisson_lots",
            f"Lots are Poisson samples at rate {self.rate:.6g}, and which examples they held stays secret.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        return rng.coins(n, self.rate)

    def amplify(self, event: Event) -> Event:
        return event.sampled(self.rate)

    def total(self, events: list[Event]) -> Event:
        return add_up(events)


@dataclass(frozen=True)
class FullBatch:
    """Every example enters every lot: no amplification, and none claimed."""

    population: int

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="population")

    @property
    def lot_size(self) -> float:
        """The declared population: the actual number of examples is private."""
        return float(self.population)

    @property
    def assumption(self) -> Assumption:
        return Assumption("full_batch", "Every example takes part in every step; nothing is gained from sampling.")

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        return np.arange(n, dtype=np.int64)

    def amplify(self, event: Event) -> Event:
        return event

    def total(self, events: list[Event]) -> Event:
        return add_up(events)


@dataclass(frozen=True)
class Shuffled(DeclaredSizes):
    """Epochs of lots in shuffled order, as in ordinary training. No amplification is proven, and none claimed.

    Proven: an example is in exactly one lot of an epoch, so an epoch costs one unsampled release. This holds if one
    example is replaced by another (a sum of clipped gradients moves by up to twice the clip norm, so the multiplier
    counts half). It does not hold if an example is removed, because then all later lots change. The number of examples
    is public here, and must be the declared population. The order need not be secret, because the statement holds for
    every order; `order_seed` determines it.
    """

    order_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count("lot_size", self.lot_size)
        _validate.count("order_seed", self.order_seed, at_least=0)

    @property
    def steps_per_epoch(self) -> int:
        """The number of lots in an epoch; the last one may be smaller."""
        return math.ceil(self.population / self.lot_size)

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "shuffled_lots",
            "Lots are consecutive pieces of shuffled epochs, which no proof amplifies: every epoch is charged as one "
            "release without sampling, for one example replaced by another. The number of examples is public.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        """The piece of the epoch's order that belongs to `step`."""
        self.refuse_other_count(n, "Shuffled epochs")
        epoch, piece = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng([self.order_seed, epoch]).permutation(n)
        size = int(self.lot_size)
        return order[piece * size : (piece + 1) * size]

    def amplify(self, event: Event) -> Event:
        """The event for one example replaced by another, without sampling."""
        if not isinstance(event, Gaussian) or event.adjacency is not Adjacency.ADD_REMOVE:
            raise NotAccountable(
                f"Shuffled lots replace an example, and the cost of that is known for Gaussian noise only. Got "
                f"{type(event).__name__}. Use Poisson sampling, or Gaussian noise."
            )
        return Gaussian(event.multiplier / 2, Adjacency.REPLACE_ONE)

    def total(self, events: list[Event]) -> Event:
        """One release per epoch begun: the most expensive of its lots, because any of them may hold the example."""
        epochs = range(0, len(events), self.steps_per_epoch)
        worst = [min(events[start : start + self.steps_per_epoch], key=multiplier_of) for start in epochs]
        return add_up(worst) if worst else Repeated(Gaussian(1.0, Adjacency.REPLACE_ONE), 0)


def multiplier_of(event: Event) -> float:
    """The multiplier of Gaussian noise, on a lot or not; 0 for other noise."""
    noise = getattr(event, "inside", event)
    return noise.multiplier if isinstance(noise, Gaussian) else 0.0
