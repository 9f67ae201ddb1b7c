"""People who have several rows each: which rows are whose, and the rows that are drawn of each person for a lot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat, tee
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import _validate
from tacit.datasets._columns import MISSING
from tacit.errors import InvalidArgument
from tacit.randomness import Indices
from tacit.training.lots import Examples
from tacit.training.plan import Plan

# Beside the seeds of lots, so that rows are drawn by other numbers than transforms.
_ROWS = 1


@dataclass(frozen=True, eq=False)
class Owners:
    """Whose each row is: `person` holds a number from 0 on for each row. Private, like the rows."""

    person: NDArray[np.int64]

    @staticmethod
    def of(unit: Any, rows: int) -> Owners:
        """The owners of so many rows, from one id for each."""
        ids = np.asarray(unit)
        if ids.ndim != 1 or len(ids) != rows:
            raise InvalidArgument(
                f"unit must hold one id for each row of the data. Got shape {ids.shape} for {rows} rows."
            )
        if any(str(each) in MISSING for each in ids.tolist()):
            raise InvalidArgument(
                "Some ids in unit are missing, so it is not known whose rows these are. Leave these rows out, or give "
                "each an id of its own if it is a person of its own."
            )
        kept = ids.astype(str) if ids.dtype.hasobject else ids
        return Owners(np.unique(kept, return_inverse=True)[1].astype(np.int64))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each person."""
        return np.bincount(self.person)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """What each row counts in a mean over people: the rows of a person count 1 together."""
        return 1 / self.sizes[self.person]

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All rows by person, and where each person's begin."""
        return np.argsort(self.person, kind="stable"), np.cumsum(self.sizes) - self.sizes

    def draw(self, people: Indices, most: int, rng: np.random.Generator) -> tuple[Indices, NDArray[np.int64]]:
        """At most so many rows of each of these people, every set equally likely; and how many of each."""
        order, starts = self._sorted
        sizes = self.sizes[people]
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        within = np.arange(len(first)) - first
        rows = order[np.repeat(starts[people], sizes) + within]
        if len(rows) and sizes.max() > most:
            owner = np.repeat(np.arange(len(people)), sizes)
            rows = rows[np.lexsort((rng.random(len(rows)), owner))][within < most]
        return rows, np.minimum(sizes, most)


@dataclass(frozen=True, eq=False)
class PeopleExamples:
    """Examples that are people: `fetch` draws at most `rows_per_unit` rows of each."""

    rows: Examples
    owners: Owners
    rows_per_unit: int

    def __len__(self) -> int:
        return len(self.owners.sizes)

    def fetch(self, lots: Iterator[Indices], seeds: Iterator[int] | None = None) -> Iterator[tuple[Any, Any, Tensor]]:
        """Inputs and targets of the rows drawn for each lot, person by person, and the number of rows of each.

        Rows are drawn afresh for every lot, and each person's by itself: privacy does not depend on this draw.
        """
        counts = deque[Tensor]()
        ours, theirs = (repeat(None), None) if seeds is None else tee(seeds)

        def draw() -> Iterator[Indices]:
            for people, seed in zip(lots, ours, strict=False):
                rng = np.random.default_rng(None if seed is None else [seed, _ROWS])
                rows, sizes = self.owners.draw(people, self.rows_per_unit, rng)
                counts.append(torch.from_numpy(sizes))
                yield rows

        for inputs, targets in self.rows.fetch(draw(), theirs):
            yield inputs, targets, counts.popleft()


def people_of(rows: Examples, unit: Any, plan: Plan, micro_batch: int | None) -> Examples:
    """The examples of a run: the rows themselves without `unit`, else the people who own them."""
    if (unit is None) != (plan.rows_per_unit is None):
        raise InvalidArgument(
            "unit and rows_per_unit go together: unit holds the id of a person for each row, and rows_per_unit=10 says "
            "how many rows of a person enter one step at most. It is public, so choose it without looking at the rows."
        )
    if unit is None or plan.rows_per_unit is None:
        return rows
    if plan.mechanism.guide is not None:
        raise InvalidArgument(
            f"{plan.mechanism.method.name} as published releases a mean of all rows before each lot, which nothing "
            "bounds for a person. Leave out unit, or choose another method."
        )
    most = _validate.count("rows_per_unit", plan.rows_per_unit)
    if micro_batch is not None and micro_batch < most:
        raise InvalidArgument(
            f"The rows of a person go through the model together, so micro_batch must be at least rows_per_unit. Got "
            f"micro_batch {micro_batch} and rows_per_unit {most}."
        )
    return PeopleExamples(rows, Owners.of(unit, len(rows)), most)
