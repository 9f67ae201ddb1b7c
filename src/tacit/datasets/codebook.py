"""A code book: what is publicly known about each column of a table, and how its values become numbers by that.

Numbers go from their declared bounds to [-1, 1], categories to one 0 or 1 for each declared value. Nothing is looked
up in the table: a value beyond its bounds is moved to the nearer one, a missing one says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.datasets.data import Array, within
from tacit.errors import InvalidArgument

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "None"})
_SHOWN = 5


@dataclass(frozen=True)
class Number:
    """A column of numbers between declared bounds; on a logarithmic scale, counted from the lower one."""

    low: float
    high: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidArgument(
                "low must be below high, and both must be finite numbers, as well as their difference. "
                f"Got low {self.low!r} and high {self.high!r}."
            )

    def encode(self, values: Array) -> Array:
        """[rows, 1], within [-1, 1]."""
        numbers = numbers_of(values)
        if self.logarithmic:
            shifted = np.log1p(np.clip(numbers, self.low, self.high) - self.low)
            return within(shifted, 0.0, math.log1p(self.high - self.low))[:, np.newaxis]
        return within(numbers, self.low, self.high)[:, np.newaxis]


@dataclass(frozen=True)
class Category:
    """A column with declared values. One that was not declared is refused if `strict`, and else says nothing."""

    values: tuple[str, ...]
    strict: bool = False

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise InvalidArgument(f"The values of a category must be given, and all be different. Got {self.values!r}.")

    def places(self, values: Array) -> Array:
        """Which declared value each row has, counted from 0; -1 for none."""
        known = {value: place for place, value in enumerate(self.values)}
        found = np.fromiter((known.get(label, -1) for label in labels_of(values)), dtype=np.int64, count=len(values))
        if self.strict:
            self._refuse_unknown(values, found)
        return found

    def encode(self, values: Array) -> Array:
        """[rows, declared values], each row with at most one 1."""
        places = self.places(values)
        encoded = np.zeros((len(places), len(self.values)), dtype=np.float32)
        known = np.flatnonzero(places >= 0)
        encoded[known, places[known]] = 1
        return encoded

    def _refuse_unknown(self, values: Array, found: Array) -> None:
        unknown = [label for label in labels_of(values[found < 0]) if label not in MISSING]
        if unknown:
            shown = sorted(set(unknown))
            more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            raise InvalidArgument(
                f"{len(unknown):,} rows have a value that was not declared: {', '.join(map(repr, shown[:_SHOWN]))}"
                f"{more}. Declared are {', '.join(map(repr, self.values))}. Declare it too, or leave the column out."
            )


Column = Number | Category
CodeBook = Mapping[str, Column]


def encode(table: Mapping[str, Array], book: CodeBook) -> Array:
    """[rows, features] of all columns in the book: first the numbers, then the categories, each in the book's order."""
    ordered = [name for name, column in book.items() if isinstance(column, Number)]
    ordered += [name for name, column in book.items() if isinstance(column, Category)]
    return np.concatenate([encode_column(name, table[name], book[name]) for name in ordered], axis=1)


def number_count(book: CodeBook) -> int:
    """How many columns of what `encode` returns, the first ones, are numbers."""
    return sum(isinstance(column, Number) for column in book.values())


def encode_column(name: str, values: Array, column: Column) -> Array:
    """One column; the error names it."""
    try:
        return column.encode(values)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"Column {name!r}: {error}") from error


def columns_of(rows: Sequence[Sequence[str]], names: Sequence[str]) -> dict[str, Array]:
    """A table of text as columns by name; every row must have as many fields as there are names."""
    wrong = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if wrong is not None:
        raise ValueError(f"every row has {len(names)} columns, and row {wrong + 1} has {len(rows[wrong])}")
    if not rows:
        raise ValueError("there are no rows")
    return {name: np.array(column, dtype=object) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def numbers_of(values: Array) -> Array:
    """As floats; what is missing is NaN."""
    if values.dtype.kind in "cmMV":
        # All of these could be cast, and would say something else then.
        raise InvalidArgument(f"it holds {values.dtype}, which are not numbers on a line. Save them as such.")
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    try:
        # Nothing is missing from most columns, and looking takes longer than reading them.
        return values.astype(np.float64)
    except (ValueError, TypeError):
        known = [math.nan if _is_missing(value) else value for value in values]
    try:
        return np.array(known, dtype=np.float64)
    except (ValueError, TypeError):
        row, value = next((i, value) for i, value in enumerate(known) if not _is_number(value))
        raise InvalidArgument(f"row {row + 1} holds {value!r}, which is not a number.") from None


def labels_of(values: Array) -> list[str]:
    """As text, such as "3" for 3 and for 3.0, and "true" for True."""
    return [_label(value) for value in values.tolist()]


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in MISSING)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
