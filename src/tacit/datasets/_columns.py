"""How the columns of a table become numbers by what is publicly known about them.

Numbers and dates are scaled from declared bounds to [-1, 1]; a category becomes one 0 or 1 for each declared value.
Nothing is computed from the rows: a value outside its bounds is moved to the nearer bound. What becomes of a missing
value is declared: it is refused, or replaced by `fill` and marked in a column of its own. Only code books of published
data sets encode it as 0.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument

Array = NDArray[Any]
Missing = Literal["zero", "refuse", "indicator"]
MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "None", "NaT", "<NA>"})
_SHOWN = 5
_SECONDS = 86_400.0


@dataclass(frozen=True)
class Number:
    """A column of numbers between declared bounds; on a logarithmic scale, measured from the lower one."""

    low: float
    high: float
    logarithmic: bool = False
    missing: Missing = "zero"
    fill: float | None = None

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidArgument(
                "low must be below high, and both and their difference must be finite. "
                f"Got low {self.low!r} and high {self.high!r}."
            )
        if self.fill is not None and not self.low <= self.fill <= self.high:
            raise InvalidArgument(f"fill must be from low to high. Got {self.fill!r}.")

    def encode(self, values: Array) -> Array:
        """[rows, 1], within [-1, 1]."""
        return self.scale(_fill(to_numbers(values), self.missing, self.fill))[:, np.newaxis]

    def scale(self, numbers: Array) -> Array:
        """Each number within [-1, 1]."""
        if self.logarithmic:
            shifted = np.log1p(np.clip(numbers, self.low, self.high) - self.low)
            return scale_to_unit(shifted, 0.0, math.log1p(self.high - self.low))
        return scale_to_unit(numbers, self.low, self.high)

    def unscale(self, shares: Array) -> Array:
        """The numbers at these shares of the range: 0 is `low`, 1 is `high`."""
        if self.logarithmic:
            return self.low + np.expm1(shares * math.log1p(self.high - self.low))
        return self.low + shares * (self.high - self.low)

    def is_missing(self, values: Array) -> Array:
        """Which rows have no value."""
        return np.isnan(to_numbers(values))


@dataclass(frozen=True)
class Date:
    """A column of dates between declared ones: in ISO form (2024-03-31), or in a declared `format` of strptime."""

    low: str
    high: str
    format: str | None = None
    missing: Missing = "refuse"
    fill: str | None = None

    def __post_init__(self) -> None:
        self._days  # noqa: B018 - refuses bounds that are no dates

    @cached_property
    def _days(self) -> Number:
        fill = None if self.fill is None else _parse_day(self.fill, None)
        return Number(_parse_day(self.low, None), _parse_day(self.high, None), False, self.missing, fill)

    def encode(self, values: Array) -> Array:
        """[rows, 1], within [-1, 1]."""
        return self._days.encode(to_days(values, self.format))

    def is_missing(self, values: Array) -> Array:
        """Which rows have no value."""
        return np.isnan(to_days(values, self.format))


@dataclass(frozen=True)
class Category:
    """A column with declared values. A value that was not declared is refused if `strict`, and else encoded as 0."""

    values: tuple[str, ...]
    strict: bool = False
    missing: Missing = "zero"
    fill: str | None = None

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) != len(self.values):
            raise InvalidArgument(f"The values of a category must be given, and all be different. Got {self.values!r}.")
        if self.fill is not None and self.fill not in self.values:
            raise InvalidArgument(f"fill must be one of {', '.join(map(repr, self.values))}. Got {self.fill!r}.")

    @staticmethod
    def of(values: str) -> Category:
        """A category whose values are the words of a text."""
        return Category(tuple(values.split()))

    def find_places(self, values: Array) -> Array:
        """The place of each row's value among the declared ones; -1 for none."""
        known = {value: place for place, value in enumerate(self.values)}
        found = np.fromiter((known.get(label, -1) for label in to_labels(values)), dtype=np.int64, count=len(values))
        if self.strict or self.missing == "refuse":
            refuse_problems(self._find_problems(values, found))
        return found

    def encode(self, values: Array) -> Array:
        """[rows, declared values], each row with at most one 1."""
        places = self.find_places(values)
        if self.fill is not None:
            places = np.where(places < 0, self.values.index(self.fill), places)
        encoded = np.zeros((len(places), len(self.values)), dtype=np.float32)
        known = np.flatnonzero(places >= 0)
        encoded[known, places[known]] = 1
        return encoded

    def is_missing(self, values: Array) -> Array:
        """Which rows have no declared value."""
        return self.find_places(values) < 0

    def _find_problems(self, values: Array, found: Array) -> list[str]:
        labels = to_labels(values[found < 0])
        unknown = [label for label in labels if label not in MISSING] if self.strict else []
        problems = []
        if unknown:
            shown = shorten([repr(each) for each in sorted(set(unknown))], _SHOWN)
            problems.append(
                f"{count_rows(len(unknown))} a value that was not declared: {shown}. Declared are "
                f"{', '.join(map(repr, self.values))}."
            )
        if self.missing == "refuse" and len(labels) > len(unknown):
            absent = count_missing(values, self.values)
            problems.append(describe_missing(absent, '{ values = [...], missing = "indicator" }'))
        return problems


Column = Number | Date | Category
CodeBook = Mapping[str, Column]
_KINDS: dict[str, Callable[..., Column]] = {"number": Number, "date": Date, "category": Category}


def column_to_json(column: Column) -> dict[str, Any]:
    """The column as JSON values; `column_from_json` gives back an equal one."""
    return {"kind": type(column).__name__.lower(), **asdict(column)}


def column_from_json(values: Mapping[str, Any]) -> Column:
    """The column that `column_to_json` wrote."""
    kept = {name: tuple(value) if name == "values" else value for name, value in values.items() if name != "kind"}
    return _KINDS[values["kind"]](**kept)


def encode(table: Mapping[str, Array], book: CodeBook) -> Array:
    """[rows, features] of all columns in the book; `InvalidArgument` lists the problems of all columns.

    First come numbers and dates, then the categories, each in the book's order; then one 0 or 1 for each column whose
    missing values are marked.
    """
    ordered = [name for name, column in book.items() if not isinstance(column, Category)]
    ordered += [name for name, column in book.items() if isinstance(column, Category)]
    parts, problems = list[Array](), list[str]()
    for name in ordered:
        with collect_problem(problems):
            parts.append(encode_column(name, table[name], book[name]))
    refuse_problems(problems)
    marked = [(table[name], column) for name, column in book.items() if column.missing == "indicator"]
    parts += [column.is_missing(values).astype(np.float32)[:, np.newaxis] for values, column in marked]
    return np.concatenate(parts, axis=1)


def count_numbers(book: CodeBook) -> int:
    """How many of the columns that `encode` returns are numbers; they come first."""
    return sum(not isinstance(column, Category) for column in book.values())


def encode_column(name: str, values: Array, column: Column) -> Array:
    """Encode one column; every problem names it."""
    encoded, problems = None, list[str]()
    with name_problems(name):
        with collect_problem(problems):
            encoded = column.encode(values)
        # A value that cannot be read is found before those that are missing.
        is_refused = bool(problems) and not isinstance(column, Category) and column.missing == "refuse"
        absent = count_missing(values) if is_refused else 0
        if absent and (told := describe_missing(absent)) not in problems:
            problems.append(told)
        refuse_problems(flatten_problems(problems))
    assert encoded is not None
    return encoded


@contextmanager
def name_problems(name: str) -> Iterator[None]:
    """Put the name of a column before each problem that is found in this block."""
    try:
        yield
    except (ValueError, TypeError) as error:
        problems = [f"Column {name!r}: {each}" for each in flatten_problems([str(error)])]
        refuse_problems(problems, error)


@contextmanager
def collect_problem(problems: list[str]) -> Iterator[None]:
    """If something in this block is refused, put the reason on the list and go on after the block."""
    try:
        yield
    except InvalidArgument as error:
        problems.append(str(error))


def refuse_problems(problems: Sequence[str], cause: Exception | None = None) -> None:
    """Raise `InvalidArgument` with all these problems, unless there is none."""
    if len(problems) == 1:
        raise InvalidArgument(problems[0]) from cause
    if problems:
        listed = "\n".join([f"{len(problems)} problems:", *(f"- {each}" for each in problems)])
        raise InvalidArgument(listed) from cause


def flatten_problems(problems: Sequence[str]) -> list[str]:
    """Single problems, from messages of which some list several."""
    lines = [line for text in problems for line in text.split("\n")]
    return [line.removeprefix("- ") for line in lines if not line.endswith(" problems:")]


def count_missing(values: Array, declared: Collection[str] = ()) -> int:
    """How many rows have no value; a word such as None is a value if it is declared as one."""
    return sum(label in MISSING and label not in declared for label in to_labels(values))


def describe_missing(count: int, declaration: str = 'missing = "indicator" and a fill') -> str:
    """The problem of so many missing values, and how to declare them."""
    those = "it" if count == 1 else "them"
    return f"{count_rows(count)} no value. Leave {those} out, or declare {declaration} before training."


def suggest(name: str, known: Collection[str]) -> str:
    """The known name that is closest, as a question; empty if none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def shorten(names: Sequence[str], most: int) -> str:
    """The first of these names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def count_rows(count: int) -> str:
    """The subject of a sentence about rows."""
    return "1 row has" if count == 1 else f"{count:,} rows have"


def scale_to_unit(values: Array, low: Array | float, high: Array | float) -> Array:
    """Scale values from declared bounds to [-1, 1], after moving those outside to the nearer bound.

    A missing value (NaN) becomes 0, the middle.

    >>> scale_to_unit(np.array([0.0, 5.0, 20.0]), 0, 10)
    array([-1.,  0.,  1.], dtype=float32)
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    share = (np.clip(values, low, high) - low) / (high - low)
    return np.asarray(np.nan_to_num(2 * share - 1, nan=0.0), dtype=np.float32)


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
        for row, value in enumerate(known):
            try:
                float(value)
            except (ValueError, TypeError):
                raise InvalidArgument(f"row {row + 1} holds {value!r}, which is not a number.") from None
        raise


def to_days(values: Array, form: str | None = None) -> Array:
    """Dates as days since 1970, with a fraction for the time; missing ones are NaN.

    >>> to_days(np.array(["1970-01-02", "", "1970-01-02T12:00"], dtype=object)).tolist()
    [1.0, nan, 1.5]
    """
    if values.dtype.kind == "M":
        ticks = values.astype("datetime64[us]")
        return np.where(np.isnat(ticks), math.nan, ticks.astype(np.int64) / (1e6 * _SECONDS))
    # Dates repeat, and parsing one takes long.
    known: dict[str, float] = {}
    for row, value in enumerate(values.tolist()):
        if str(value) not in known:
            try:
                known[str(value)] = math.nan if str(value) in MISSING else _parse_day(value, form)
            except (ValueError, TypeError):
                expected = "in the form 2024-03-31" if form is None else f"in the declared format {form!r}"
                raise InvalidArgument(f"row {row + 1} holds {value!r}, which is no date {expected}.") from None
    return np.fromiter((known[str(value)] for value in values.tolist()), dtype=np.float64, count=len(values))


def _parse_day(value: Any, form: str | None) -> float:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip()) if form is None else datetime.strptime(value.strip(), form)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is no date. Write it like 2024-03-31.")
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    return aware.timestamp() / _SECONDS


def _fill(numbers: Array, missing: Missing, fill: float | None) -> Array:
    absent = np.isnan(numbers)
    if missing == "refuse" and absent.any():
        raise InvalidArgument(describe_missing(int(absent.sum())))
    return numbers if fill is None else np.where(absent, fill, numbers)


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


def is_real(value: Any) -> bool:
    """Whether this is a number, and not True or False."""
    return isinstance(value, Real) and not isinstance(value, bool)
