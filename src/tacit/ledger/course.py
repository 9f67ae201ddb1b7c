"""The course of a run: the cost of each step, and so the cost of any part of the run."""

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

# Steps first <= step < second, drawn in order by one process.
Range = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """`times` times `length` steps. Each `length` steps cost `event` once, from the first draw on."""

    event: Event
    times: int = 1
    length: int = 1

    def __post_init__(self) -> None:
        _validate.check_fields(self, count=("times", "length"))


@dataclass(frozen=True)
class Course:
    """The steps of a run in order. `is_repeatable`: a step drawn again gives the same numbers (a fixed seed).

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
        """The course of one release, or of several equal ones."""
        if isinstance(event, Repeated) and event.times:
            return Course((Block(event.inside, event.times),))
        return Course((Block(event),))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(block.times * block.length for block in self.blocks)

    def cost(self, ranges: Iterable[Range]) -> Event:
        """The cost of these ranges: a step drawn twice with fresh noise costs twice.

        An example takes part in only one step of each `length` steps, so these cost as often as their most drawn step.
        """
        counts = self._counts(ranges)
        parts: list[Event] = []
        start = 0
        for block in self.blocks:
            stop = start + block.times * block.length
            drawn = int(counts[start:stop].reshape(block.times, block.length).max(axis=1).sum())
            if drawn:
                parts.append(_repeat(block.event, drawn))
            start = stop
        if not parts:
            return Repeated(self.blocks[0].event, 0)
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def _counts(self, ranges: Iterable[Range]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How often each step was drawn."""
        changes = np.zeros(self.steps + 1, dtype=np.int64)
        for start, stop in ranges:
            if not 0 <= start <= stop <= self.steps:
                raise InvalidArgument(f"Steps {start} to {stop} are not within a course of {self.steps} steps.")
            changes[start] += 1
            changes[stop] -= 1
        counts = np.cumsum(changes[:-1])
        return np.minimum(counts, 1) if self.is_repeatable else counts

    def to_data(self) -> dict[str, Any]:
        """The course as JSON values; `from_data` gives back an equal one."""
        blocks = [[json.loads(block.event.to_json()), block.times, block.length] for block in self.blocks]
        return {"blocks": blocks, "is_repeatable": self.is_repeatable}

    @staticmethod
    def from_data(data: dict[str, Any]) -> Course:
        """The course that `to_data` wrote."""
        blocks = tuple(Block(from_json(json.dumps(event)), times, length) for event, times, length in data["blocks"])
        return Course(blocks, data["is_repeatable"])


def _repeat(event: Event, times: int) -> Event:
    if isinstance(event, Repeated):
        return Repeated(event.inside, event.times * times)
    return event if times == 1 else Repeated(event, times)


def merge_ranges(ranges: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """All steps that either of two records lists: the ranges, and steps that only `others` has.

    >>> merge_ranges([(0, 5)], [(0, 3), (2, 7)])
    [(0, 5), (2, 3), (5, 6), (6, 7)]
    """
    known, told = (Counter(step for start, stop in each for step in range(start, stop)) for each in (ranges, others))
    if not ranges:
        return list(others)
    return [*ranges, *((step, step + 1) for step in sorted((told - known).elements()))]


def add_range(ranges: Sequence[Range], more: Range) -> list[Range]:
    """The ranges and one more, unless that is empty."""
    return [*ranges, more] if more[1] > more[0] else list(ranges)
