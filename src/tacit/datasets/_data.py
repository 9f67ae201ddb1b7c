"""A loaded data set, and how the columns of a table become numbers by what is publicly known about them.

Numbers are scaled from declared bounds to [-1, 1]; a category becomes one 0 or 1 for each declared value. Nothing is
computed from the rows: a value outside its bounds is moved to the nearer bound, and a missing value is encoded as 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.datasets import TrainingDefaults
from tacit.errors import Caution, InvalidArgument
from tacit.guarantee import Assumption

Array = NDArray[Any]
Examples = tuple[Array, Array]
Texts = tuple[list[list[str]], Array]

TABLE_SCALING = "numbers go from declared ranges to [-1, 1], categories to 0 or 1"
PUBLIC_TEST = Assumption("public_test", "The test examples are public; only examples trained on are protected.")
HELD_OUT = Assumption(
    "private_test",
    "Which rows were held out for testing, a hash of each row alone decided; a score of theirs is released only with "
    "noise of its own, which protects those rows no less than training protects the others.",
)
NOT_TESTED = Assumption("not_tested", "No rows were held out for testing, as was declared, and nothing was scored.")
MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "None"})
_SHOWN = 5
# A declared size need only be about right; beyond this factor it was probably mistyped.
_FAR = 1.5


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and targets to train on, which are private, and to test on.

    `population` is the published or declared number of training examples, a constant: the number of examples in the
    copy at hand is private. `classes` is None if the target is a number; it was then divided by `unit`. If inputs are
    numbers of words, people or things, `vocabulary` holds how many there are of each kind. `example` is the unit that
    the guarantee protects. With `is_test_private`, scores on the test examples need noise too. `is_tested` declares
    whether there are test examples; whether some came is then private too. The first `numbers` columns of a table are
    numbers in [-1, 1], the others 0 or 1. `is_text` says that `load_words` reads the texts themselves, `is_handwriting`
    that images show ink on a background of 0. `load` sets `source` and `defaults`.
    """

    name: str
    train: Examples = field(repr=False)
    test: Examples = field(repr=False)
    classes: int | None
    population: int
    scaling: str = field(repr=False)
    unit: float = field(default=1.0, repr=False)
    vocabulary: tuple[int, ...] = field(default=(), repr=False)
    example: str = field(default="row", repr=False)
    source: str = field(default="", repr=False)
    is_test_private: bool = field(default=False, repr=False)
    is_tested: bool = field(default=True, repr=False)
    numbers: int = field(default=0, repr=False)
    is_text: bool = field(default=False, repr=False)
    is_handwriting: bool = field(default=False, repr=False)
    defaults: TrainingDefaults | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of a guarantee about these examples."""
        tested = HELD_OUT if self.is_test_private else PUBLIC_TEST
        unit = f"What is protected is one {self.example}; whoever has several in the data is protected less."
        return (
            Assumption("public_scaling", f"Inputs were scaled without looking at them: {self.scaling}."),
            tested if self.is_tested else NOT_TESTED,
            Assumption("one_unit", unit),
        )

    def compare_size(self, population: int, *, is_declared: bool) -> Literal["fewer", "more"] | None:
        """Whether there are "fewer" or "more" training examples than `population`; None if it fits.

        A published number must be met exactly, a declared one up to a factor of 1.5. The number of examples is private:
        it is not returned and does not replace the population.
        """
        size, leeway = len(self.train[0]), _FAR if is_declared else 1.0
        if size * leeway < population:
            return "fewer"
        return "more" if size > population * leeway else None

    def warn_if_size_differs(self, *, is_declared: bool) -> None:
        """Give a `Caution`, at the line that called the caller, if the population does not fit the examples.

        The guarantee holds for any number of examples, as lots are drawn at the rate lot_size / population. With fewer
        examples, lots are smaller than planned, with the same noise.
        """
        found = self.compare_size(self.population, is_declared=is_declared)
        if found is None:
            return
        what = (
            f"{self.name} has far {found} rows to train on than the {self.population:,} that were declared"
            if is_declared
            else f"This copy of {self.name} is not the published one: it has {found} examples to train on than the "
            f"{self.population:,} of its population"
        )
        remedy = "declare that" if is_declared else "give it as the population"
        warnings.warn(
            f"{what}. A guarantee for that population still holds, but lots will hold {found} examples than planned, "
            f"with the same noise. If their approximate number may be public, {remedy} instead. This warning depends "
            "on private data: do not release it.",
            Caution,
            stacklevel=3,
        )


def scale_to_unit(values: Array, low: Array | float, high: Array | float) -> Array:
    """Scale values from declared bounds to [-1, 1], after moving those outside to the nearer bound.

    A missing value (NaN) becomes 0, the middle.

    >>> scale_to_unit(np.array([0.0, 5.0, 20.0]), 0, 10)
    array([-1.,  0.,  1.], dtype=float32)
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    share = (np.clip(values, low, high) - low) / (high - low)
    scaled: Array = np.nan_to_num(2 * share - 1, nan=0.0).astype(np.float32)
    return scaled


def is_test_row(rows: int) -> Array:
    """Which rows of a published table are for testing: about a fifth, chosen by their row numbers alone.

    >>> is_test_row(25).nonzero()[0]
    array([ 0,  5, 10, 13, 18])
    """
    # Multiples of the golden ratio spread evenly.
    places = np.arange(rows, dtype=np.uint64)
    chosen: Array = (places * np.uint64(2_654_435_769)) % np.uint64(2**32) < np.uint64(2**32 // 5)
    return chosen


def split_rows(inputs: Array, targets: Array) -> tuple[Examples, Examples]:
    """Examples to train on and to test on, from a table that is published in one piece."""
    is_test = is_test_row(len(inputs))
    return (inputs[~is_test], targets[~is_test]), (inputs[is_test], targets[is_test])


def count_training_rows(rows: int) -> int:
    """How many of so many published rows `split_rows` trains on."""
    return int((~is_test_row(rows)).sum())


@dataclass(frozen=True)
class Number:
    """A column of numbers between declared bounds; on a logarithmic scale, measured from the lower one."""

    low: float
    high: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidArgument(
                "low must be below high, and both and their difference must be finite. "
                f"Got low {self.low!r} and high {self.high!r}."
            )

    def encode(self, values: Array) -> Array:
        """[rows, 1], within [-1, 1]."""
        numbers = to_numbers(values)
        if self.logarithmic:
            shifted = np.log1p(np.clip(numbers, self.low, self.high) - self.low)
            return scale_to_unit(shifted, 0.0, math.log1p(self.high - self.low))[:, np.newaxis]
        return scale_to_unit(numbers, self.low, self.high)[:, np.newaxis]


@dataclass(frozen=True)
class Category:
    """A column with declared values. A value that was not declared is refused if `strict`, and else encoded as 0."""

    values: tuple[str, ...]
    strict: bool = False

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise InvalidArgument(f"The values of a category must be given, and all be different. Got {self.values!r}.")

    @staticmethod
    def of(values: str) -> Category:
        """A category whose values are the words of a text."""
        return Category(tuple(values.split()))

    def find_places(self, values: Array) -> Array:
        """The place of each row's value among the declared ones; -1 for none."""
        known = {value: place for place, value in enumerate(self.values)}
        found = np.fromiter((known.get(label, -1) for label in to_labels(values)), dtype=np.int64, count=len(values))
        if self.strict:
            self._refuse_unknown(values, found)
        return found

    def encode(self, values: Array) -> Array:
        """[rows, declared values], each row with at most one 1."""
        places = self.find_places(values)
        encoded = np.zeros((len(places), len(self.values)), dtype=np.float32)
        known = np.flatnonzero(places >= 0)
        encoded[known, places[known]] = 1
        return encoded

    def _refuse_unknown(self, values: Array, found: Array) -> None:
        unknown = [label for label in to_labels(values[found < 0]) if label not in MISSING]
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


def count_numbers(book: CodeBook) -> int:
    """How many of the columns that `encode` returns are numbers; they come first."""
    return sum(isinstance(column, Number) for column in book.values())


def encode_column(name: str, values: Array, column: Column) -> Array:
    """Encode one column; an error names it."""
    try:
        return column.encode(values)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"Column {name!r}: {error}") from error


def to_columns(rows: Sequence[Sequence[str]], names: Sequence[str]) -> dict[str, Array]:
    """A table of text as columns by name; every row must have as many fields as there are names."""
    wrong = next((i for i, row in enumerate(rows) if len(row) != len(names)), None)
    if wrong is not None:
        raise ValueError(f"every row has {len(names)} columns, and row {wrong + 1} has {len(rows[wrong])}")
    if not rows:
        raise ValueError("there are no rows")
    return {name: np.array(column, dtype=object) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def to_numbers(values: Array) -> Array:
    """Values as floats; missing ones are NaN."""
    if values.dtype.kind in "cmMV":
        # numpy would cast complex numbers, dates and durations, and change their meaning.
        raise InvalidArgument(f"it holds {values.dtype}, which are not real numbers. Save them as real numbers.")
    try:
        # Few columns have missing values, and looking for them takes longer than converting.
        return values.astype(np.float64)
    except (ValueError, TypeError):
        known = [math.nan if value is None or str(value) in MISSING else value for value in values]
    try:
        return np.array(known, dtype=np.float64)
    except (ValueError, TypeError):
        row, value = next((i, value) for i, value in enumerate(known) if not _is_number(value))
        raise InvalidArgument(f"row {row + 1} holds {value!r}, which is not a number.") from None


def to_labels(values: Array) -> list[str]:
    """Values as text: "3" for 3 and for 3.0, "true" for True."""
    return [_to_label(value) for value in values.tolist()]


def _to_label(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
