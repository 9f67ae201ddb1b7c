"""A run's course: what each of its steps costs, and therefore what any part of it costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import _validate
from tacit.accounting.events import Composed, Event, Repeated, from_json
from tacit.errors import InvalidArgument

# Steps from the first to before the second, drawn one after the other by one process.
Range = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """`times` times `length` steps. Each `length` of them cost `event` once, as soon as the first is drawn."""

    event: Event
    times: int = 1
    length: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _validate.count("times", self.times))
        object.__setattr__(self, "length", _validate.count("length", self.length))


@dataclass(frozen=True)
class Course:
    """The steps of a run in order. `is_repeatable` says that a step drawn again is the same numbers again (a seed).

    >>> from tacit.accounting import Gaussian
    >>> course = Course((Block(Gaussian(1.1), times=12),))
    >>> course.cost([(0, 8), (5, 12)]) == Gaussian(1.1) * 15
    True
    """

    blocks: tuple[Block, ...]
    is_repeatable: bool = False

    def __post_init__(self) -> None:
        if not self.blocks:
            raise InvalidArgument("A course needs at least one block of steps.")

    @staticmethod
    def of(event: Event) -> Course:
        """A release, or several of one kind."""
        if isinstance(event, Repeated) and event.times:
            return Course((Block(event.inside, event.times),))
        return Course((Block(event),))

    @property
    def steps(self) -> int:
        """How many steps there are; the last block's may be fewer than its length."""
        return sum(block.times * block.length for block in self.blocks)

    def cost(self, ranges: Iterable[Range]) -> Event:
        """What was spent where processes drew these ranges: steps drawn twice, with fresh noise, cost twice.

        An example is in one of a block's steps only, so a block costs as often as its most drawn step was drawn.
        """
        counts = self._counts(ranges)
        parts: list[Event] = []
        start = 0
        for block in self.blocks:
            stop = start + block.times * block.length
            drawn = int(counts[start:stop].reshape(block.times, block.length).max(axis=1).sum())
            if drawn:
                parts.append(_times(block.event, drawn))
            start = stop
        if not parts:
            return Repeated(self.blocks[0].event, 0)
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def _counts(self, ranges: Iterable[Range]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How often each step was drawn."""
        changes = np.zeros(self.steps + 1, dtype=np.int64)
        for start, stop in ranges:
            if not 0 <= start <= stop <= self.steps:
                raise InvalidArgument(f"Steps {start} to {stop} are no part of a course of {self.steps} steps.")
            changes[start] += 1
            changes[stop] -= 1
        counts = np.cumsum(changes[:-1])
        return np.minimum(counts, 1) if self.is_repeatable else counts

    def to_data(self) -> dict[str, Any]:
        """What JSON can hold; `from_data` gives back an equal course."""
        blocks = [[json.loads(block.event.to_json()), block.times, block.length] for block in self.blocks]
        return {"blocks": blocks, "is_repeatable": self.is_repeatable}

    @staticmethod
    def from_data(data: dict[str, Any]) -> Course:
        """The course that `to_data` wrote."""
        blocks = tuple(Block(from_json(json.dumps(event)), times, length) for event, times, length in data["blocks"])
        return Course(blocks, data["is_repeatable"])


def _times(event: Event, times: int) -> Event:
    if isinstance(event, Repeated):
        return Repeated(event.inside, event.times * times)
    return event if times == 1 else Repeated(event, times)


def both(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """What was drawn according to either of two witnesses: the ranges, and steps that only the others know of.

    >>> both([(0, 5)], [(0, 3), (2, 7)])
    [(0, 5), (2, 3), (5, 6), (6, 7)]
    """
    known, told = (Counter(step for start, stop in each for step in range(start, stop)) for each in (ranges, others))
    if not ranges:
        return list(others)
    return [*ranges, *((step, step + 1) for step in sorted((told - known).elements()))]


def added(ranges: Sequence[Range], more: Range) -> list[Range]:
    """The ranges with one more, unless it is empty."""
    return [*ranges, more] if more[1] > more[0] else list(ranges)
