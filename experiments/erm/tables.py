"""The six tables of Kang et al. 2020 and 2021: all rows that the papers count, split at random, of norm at most 1.

Every split of a table keeps the same tuning rows among its training rows: settings are chosen on them, by fits that
leave them out, and they are never tested on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from experiments.library import Order
from numpy.typing import NDArray

from tacit.datasets._columns import Category, CodeBook, count_numbers

Array = NDArray[Any]
Examples = tuple[Array, Array]

# Shares of all rows. Which rows are taken, and which of them tune, is the same for every seed.
TEST_SHARE, TUNING_SHARE = 0.2, 0.12
_FIXED = 2020

_READ: dict[tuple[str, int | None], Rows] = {}


@dataclass(frozen=True, eq=False)
class Table:
    """Private examples to train on and public ones to score, every row of norm at most 1."""

    name: str
    train: Examples
    test: Examples
    classes: int
    regularisation: float


@dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a table, in a random order that is the same for every seed."""

    name: str
    x: Array
    y: Array
    classes: int
    regularisation: float

    def split(self, seed: int) -> Table:
        """A random fifth of the rows to test on, none of them tuning rows."""
        return _split(self, seed)

    def tuning(self) -> Table:
        """The training rows of the first split without the tuning rows, which are scored."""
        return _tuning(self)

    @property
    def tuning_rows(self) -> int:
        return max(1, round(TUNING_SHARE * len(self.y)))

    def parts(self, seed: int) -> tuple[Array, Array]:
        """The indices to train on and to test on. The first `tuning_rows` train in every split."""
        rest = np.random.default_rng([_FIXED, seed]).permutation(np.arange(self.tuning_rows, len(self.y)))
        tested = rest[: round(TEST_SHARE * len(self.y))]
        return np.concatenate([np.arange(self.tuning_rows), rest[len(tested) :]]), tested


@lru_cache(maxsize=4)
def _split(rows: Rows, seed: int) -> Table:
    trained, tested = rows.parts(seed)
    return _table(rows, trained, tested)


@lru_cache(maxsize=2)
def _tuning(rows: Rows) -> Table:
    return _table(rows, rows.parts(0)[0][rows.tuning_rows :], np.arange(rows.tuning_rows))


def _table(rows: Rows, trained: Array, tested: Array) -> Table:
    examples = ((rows.x[each], rows.y[each]) for each in (trained, tested))
    return Table(rows.name, *examples, rows.classes, rows.regularisation)


def read(order: Order, name: str) -> Rows:
    """The table called `name`, as the settings describe it, read once."""
    about, most = order.settings["tables"][name], order.settings.get("most_rows")
    if (name, most) not in _READ:
        _READ[name, most] = _read(name, about, order.load(about["data"]), most)
    return _READ[name, most]


def _read(name: str, about: Mapping[str, Any], data: Any, most: int | None) -> Rows:
    """All rows, divided by the root of the number of columns: each is a number in [-1, 1] or one category."""
    x, y = (np.concatenate(parts) for parts in zip(data.train, data.test, strict=True))
    if about.get("only_train"):
        x, y = data.train
    if about.get("complete"):
        kept = is_complete(x, data.form.inputs.columns)
        x, y = x[kept], y[kept]
    if about.get("distinct"):
        kept = first_of_each(x)
        x, y = x[kept], y[kept]
    chosen = np.random.default_rng(_FIXED).permutation(len(y))[: min(about.get("rows", len(y)), most or len(y))]
    scaled = x[chosen].astype(np.float64) / about["columns"] ** 0.5
    return Rows(name, scaled, y[chosen], data.classes, about["regularisation"])


def is_complete(x: Array, book: CodeBook) -> Array:
    """Which rows have a value in every column of categories. A missing one is encoded as zeros."""
    # Columns of numbers come first, whatever their order in the book.
    found, start = np.ones(len(x), dtype=bool), count_numbers(book)
    for column in book.values():
        if isinstance(column, Category):
            found &= x[:, start : start + len(column.values)].sum(axis=1) > 0
            start += len(column.values)
    return found


def first_of_each(x: Array) -> Array:
    """The index of the first of all rows that are equal."""
    places: dict[bytes, int] = {}
    for index, row in enumerate(np.ascontiguousarray(x)):
        places.setdefault(row.tobytes(), index)
    return np.fromiter(places.values(), dtype=np.int64, count=len(places))


def repeated_share(table: Table) -> float:
    """The share of test rows whose features equal those of a training row."""
    known = {row.tobytes() for row in np.ascontiguousarray(table.train[0])}
    return float(np.mean([row.tobytes() in known for row in np.ascontiguousarray(table.test[0])]))
