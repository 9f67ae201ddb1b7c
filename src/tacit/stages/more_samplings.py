"""Samplings other than plain Poisson lots, each with an accountant of its own: epochs, groups, and bounded lots."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.events import Adjacency, Event, Gaussian, Repeated, add_up
from tacit.accounting.lots import Allocated, Correlated, FixedSize, Truncated, separate_steps
from tacit.errors import InvalidArgument, NotAccountable
from tacit.guarantee import Assumption
from tacit.randomness import Indices, Stream
from tacit.stages.sampling import DeclaredSizes, multiplier_of


@runtime_checkable
class Remembered(Protocol):
    """A sampling that draws for `steps_per_epoch` steps at once; `remembers` says what it keeps in memory."""

    remembers: ClassVar[str]

    @property
    def steps_per_epoch(self) -> int: ...


@dataclass(frozen=True)
class RandomAllocation(DeclaredSizes):
    """Each example is in exactly one lot of every epoch, drawn independently and uniformly ("balls in bins").

    The nearest thing to a shuffled data loader that has a tight proof, for one example added or removed. Lots have
    `lot_size` examples on average; the realised size is private. An epoch has population / lot_size lots, which must be
    a whole number. The draw is kept in memory until the epoch ends: a run that resumes within one draws anew and is
    charged for that.

    >>> sampling = RandomAllocation(lot_size=600, population=60_000)
    >>> sampling.total([sampling.amplify(Gaussian(1.0))] * 100)  # doctest: +ELLIPSIS
    Repeated(inside=Allocated(inside=Gaussian(multiplier=1.0, ...), lots=100, steps=100), times=1)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isclose(self.steps_per_epoch * self.lot_size, self.population):
            raise InvalidArgument(
                f"An epoch must have a whole number of lots. Got lot_size {self.lot_size:g} and population "
                f"{self.population}. Use lot_size={self.population / self.steps_per_epoch:.8g} (an expected size need "
                "not be whole)."
            )

    remembers: ClassVar[str] = "the lot that each example drew"

    @property
    def steps_per_epoch(self) -> int:
        """The number of lots in an epoch."""
        return max(round(self.population / self.lot_size), 1)

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "allocated_lots",
            f"Each example is in exactly one of the {self.steps_per_epoch} lots of every epoch, drawn independently "
            "and uniformly, and which one stays secret.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        """The examples that drew this step of its epoch. An epoch takes time proportional to the examples, once."""
        epoch, place = divmod(step, self.steps_per_epoch)
        memory = rng.recall("allocation", dict)
        if memory.get("epoch") != (epoch, n, self.steps_per_epoch):
            # A stream that can be drawn again is that of the epoch's first step, wherever in it the run resumes.
            drawn = draw_below(rng.at(epoch * self.steps_per_epoch) or rng, n, self.steps_per_epoch)
            order = np.argsort(drawn, kind="stable")
            counts = np.bincount(drawn, minlength=self.steps_per_epoch)
            memory.update(epoch=(epoch, n, self.steps_per_epoch), order=order, ends=np.cumsum(counts))
        start = 0 if place == 0 else int(memory["ends"][place - 1])
        return np.asarray(memory["order"][start : memory["ends"][place]], dtype=np.int64)

    def amplify(self, event: Event) -> Event:
        """What a step costs by itself, given all before it: no less than the release for an example that is in it."""
        return _require_gaussian(event, type(self).__name__)

    def total(self, events: list[Event]) -> Event:
        """One event per epoch begun, with the least noise of its steps."""
        length = self.steps_per_epoch
        noise = [_require_gaussian(event, type(self).__name__) for event in events]
        chunks = [noise[start : start + length] for start in range(0, len(events), length)]
        epochs = [Allocated(min(chunk, key=multiplier_of), length, len(chunk)) for chunk in chunks]
        return add_up(epochs) if epochs else Repeated(Gaussian(1.0), 0)


@dataclass(frozen=True)
class CyclicPoisson(DeclaredSizes):
    """Each example draws one of `groups` groups; groups take turns, and a lot is a Poisson sample of its group.

    For correlated noise: an example is in at most one of any `groups` consecutive lots. The rate within a group is
    `groups` times as high as in `Poisson`, and a cycle of all groups costs as much as one step. Groups are drawn
    independently, kept in memory only, and drawn anew when a run resumes.
    """

    groups: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.check_fields(self, count="groups")
        if self.rate > 1:
            raise InvalidArgument(
                f"Groups of {self.population / self.groups:g} expected examples cannot give lots of {self.lot_size:g}. "
                f"Use at most {int(self.population / self.lot_size)} groups, or smaller lots."
            )

    @property
    def rate(self) -> float:
        """The probability with which an example of the group whose turn it is enters the lot."""
        return self.groups * self.lot_size / self.population

    remembers: ClassVar[str] = "the group that each example drew"

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps after which the first group has its turn again."""
        return self.groups

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "cyclic_poisson_lots",
            f"Each example draws one of {self.groups} groups, which take turns; lots are Poisson samples of their "
            f"group at rate {self.rate:.6g}, and which examples they held stays secret.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        groups = rng.recall(f"groups {n} {self.groups}", lambda: self._draw_groups(n, rng))
        members = groups[step % self.groups]
        return np.asarray(members[rng.coins(len(members), self.rate)], dtype=np.int64)

    def _draw_groups(self, n: int, rng: Stream) -> list[Indices]:
        # Steps are far below 2^55, so this stream is never that of a step.
        drawn = draw_below(rng.at(2**55) or rng, n, self.groups)
        return [np.flatnonzero(drawn == group) for group in range(self.groups)]

    def amplify(self, event: Event) -> Event:
        apart = separate_steps(event, self.groups)
        return apart if isinstance(event, Correlated) and not event.is_amplified else apart.sampled(self.rate)

    def total(self, events: list[Event]) -> Event:
        """One event per cycle begun, with the least noise of its steps: an example is in one of them at most."""
        cycles = [events[start : start + self.groups] for start in range(0, len(events), self.groups)]
        for cycle in cycles:
            if len(set(cycle)) > 1 and not all(multiplier_of(event) > 0 for event in cycle):
                raise NotAccountable(
                    "The steps of one cycle have different noise, and which of them costs most is known for Gaussian "
                    "noise only. Use Gaussian noise, or the same noise in every step."
                )
        return add_up(min(cycle, key=multiplier_of) for cycle in cycles)


@dataclass(frozen=True)
class TruncatedPoisson(DeclaredSizes):
    """Poisson lots cut to `most` examples at random, for memory that is fixed in advance.

    In a full lot the example takes the place of another, which moves the sum by up to twice the clip norm: a lot that
    is often full costs much more. A `most` of lot_size + 6 sqrt(lot_size) is nearly free. There may be at most
    `population` examples.
    """

    most: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.check_fields(self, count="most")

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "truncated_poisson_lots",
            f"Lots are Poisson samples at rate {self.rate:.6g}, cut to {self.most} examples at random; which examples "
            f"they held stays secret. There are at most {self.population} examples.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        if n > self.population:
            raise InvalidArgument(
                f"Truncated lots are accounted for with at most {self.population} examples: with more, lots would be "
                "full more often. Raise population to an upper bound of the number of examples (it is published)."
            )
        drawn = rng.coins(n, self.rate)
        return drawn if len(drawn) <= self.most else np.sort(drawn[draw_subset(rng, len(drawn), self.most)])

    def amplify(self, event: Event) -> Event:
        noise = _require_gaussian(event, type(self).__name__)
        return Truncated(noise, self.rate, self.most, self.population)

    def total(self, events: list[Event]) -> Event:
        return add_up(events)


@dataclass(frozen=True)
class FixedLots(DeclaredSizes):
    """Lots of exactly `lot_size` examples, drawn without replacement; about one example replaced by another.

    The number of examples is public here, and must be the declared population. Replacing an example moves a sum of
    clipped gradients by up to twice the clip norm, so the same noise costs far more than with Poisson lots.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.count("lot_size", self.lot_size)

    @property
    def assumption(self) -> Assumption:
        return Assumption(
            "fixed_size_lots",
            f"Lots are {self.lot_size:g} of {self.population} examples, drawn without replacement, and which ones "
            "stays secret. The guarantee is about one example replaced by another; the number of examples is public.",
        )

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        self.refuse_other_count(n, "Lots of fixed size")
        return draw_subset(rng, n, int(self.lot_size))

    def amplify(self, event: Event) -> Event:
        noise = _require_gaussian(event, type(self).__name__)
        if noise.adjacency is not Adjacency.ADD_REMOVE:
            raise NotAccountable(f"Lots of fixed size need noise stated under {Adjacency.ADD_REMOVE}. Got {noise}.")
        return FixedSize(Gaussian(noise.multiplier / 2, Adjacency.REPLACE_ONE), self.lot_size / self.population)

    def total(self, events: list[Event]) -> Event:
        return add_up(events) if events else Repeated(Gaussian(1.0, Adjacency.REPLACE_ONE), 0)


def draw_below(rng: Stream, count: int, limit: int) -> Indices:
    """`count` independent integers, each uniform from 0 to limit - 1: exactly, by rejection."""
    bits = max((limit - 1).bit_length(), 1)
    found: list[NDArray[np.uint32]] = []
    missing = count
    while missing:
        # One in two is rejected at worst.
        block = np.empty(2 * missing + 16, dtype=np.uint32)
        rng.fill(block)
        block >>= np.uint32(32 - bits)
        kept = block[block < limit][:missing]
        found.append(kept)
        missing -= len(kept)
    return np.concatenate(found).astype(np.int64) if found else np.empty(0, dtype=np.int64)


def draw_subset(rng: Stream, count: int, size: int) -> Indices:
    """A uniform subset of `size` of the integers below `count`, sorted, in time proportional to its size."""
    if 2 * size > count:
        kept = np.ones(count, dtype=bool)
        kept[draw_subset(rng, count, count - size)] = False
        return np.flatnonzero(kept)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < size:
        # In order of arrival, the first `size` different ones are a uniform subset.
        arrived = np.concatenate([chosen, draw_below(rng, 2 * size - len(chosen), count)])
        _, first = np.unique(arrived, return_index=True)
        chosen = arrived[np.sort(first)[:size]]
    return np.sort(chosen)


def _require_gaussian(event: Event, name: str) -> Gaussian:
    event = separate_steps(event, 1)
    if not isinstance(event, Gaussian):
        raise NotAccountable(
            f"What {name} lots cost is known for Gaussian noise only. Got {type(event).__name__}. Use Gaussian noise, "
            "or Poisson sampling."
        )
    return event
