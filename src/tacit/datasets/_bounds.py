"""What is public about the columns of a user's own table, declared in a TOML file:

    rows = 1000                                    # the public number of rows, roughly
    [columns]
    age = { low = 0, high = 100 }                  # a number between bounds
    income = { low = 0, high = 1e6, log = true }   # on a logarithmic scale
    weight = { low = 0, high = 300, missing = "indicator", fill = 75 }
    admitted = { type = "date", low = 2015-01-01, high = 2025-12-31 }
    smoker = ["no", "yes"]                         # a category: all its values
    visit_id = { ignore = true }                   # not used
    outcome = ["healthy", "ill"]                   # the target is a column like the others

Missing values are refused unless `missing = "indicator"` is declared: then `fill` replaces them, and a further column
of 0 and 1 marks them. Optional: `held_out` (0.2) is the share of rows to test on, `test` a file of public rows to test
on instead, and `example` what a row is ("patient").

If people have several rows each, name the column that says whose a row is. Then people are protected and not rows:

    people = 400                                   # the public number of people, roughly, in place of rows
    rows_per_unit = 10                             # the rows of a person that enter one step at most
    [columns]
    patient = { type = "unit" }

A column of texts is declared as `review = { type = "text" }`; beside it only the target is used.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tacit import _validate
from tacit.datasets._columns import (
    Category,
    CodeBook,
    Column,
    Date,
    Number,
    collect_problem,
    is_real,
    refuse_problems,
    suggest,
    to_labels,
)
from tacit.errors import InvalidArgument

EXAMPLE = 'rows = 1000, then [columns], age = { low = 0, high = 100 }, smoker = ["no", "yes"]'
TODO = "TODO"
_KEYS = ("rows", "people", "rows_per_unit", "held_out", "test", "example", "columns")
_COLUMN_KEYS = ("low", "high", "log", "type", "format", "values", "missing", "fill", "ignore")
_IDS = re.compile(r"(^|[_\W])(id|uuid|guid|ssn|mrn|index)$|^unnamed", re.IGNORECASE)
_DATES = re.compile(r"(^|[_\W])(date|dob|day|birthday|timestamp|datetime)($|[_\W])|_at$|_on$", re.IGNORECASE)


@dataclass(frozen=True)
class Bounds:
    """The declared columns with their bounds or values, the public number of rows, and which rows are for testing.

    `ignored` columns are not used. `unit`, one of them, says whose a row is; without it, rows are protected. If there
    is a `text_column`, texts are learnt from. `text` and `folder` are the TOML text and where it was read from: a saved
    run keeps them, to be resumed with them.
    """

    columns: CodeBook
    rows: int | None = None
    held_out: float = 0.2
    test: str | None = None
    example: str = "row"
    text: str = ""
    folder: str = "."
    ignored: tuple[str, ...] = ()
    unit: str | None = None
    text_column: str | None = None
    people: int | None = None
    rows_per_unit: int | None = None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Bounds:
        """Read the bounds from a TOML file."""
        file = Path(path)
        try:
            return Bounds.parse(file.read_text(encoding="utf-8"), str(file.parent.absolute()))
        except OSError as error:
            raise InvalidArgument(
                f"The bounds in {file} cannot be read: {error.strerror}. `tacit bounds TABLE --target COLUMN` writes a "
                f"template; such a file begins {EXAMPLE}."
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{file} is not a TOML file: {error}. Write it like this: {EXAMPLE}.") from error
        except InvalidArgument as error:
            raise InvalidArgument(f"{file}: {error}") from error

    @staticmethod
    def parse(text: str, folder: str = ".") -> Bounds:
        """Read the bounds from TOML text; `InvalidArgument` lists everything that is wrong with them."""
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            # Beside damaged TOML: a whole number of thousands of digits, which Python refuses to read.
            raise InvalidArgument(f"This is not a TOML file: {error}. Write it like this: {EXAMPLE}.") from error
        problems = []
        for key in [each for each in values if each not in _KEYS]:
            misplaced = " Columns go below [columns]." if isinstance(values[key], dict | list) else ""
            problems.append(f"There is no {key!r} here.{misplaced}{suggest(key, _KEYS)} Known are {', '.join(_KEYS)}.")
        listed = values.get("columns")
        if not isinstance(listed, dict) or len(listed) < 2:
            problems.append(
                f"[columns] must list the target and at least one more column. Write it like this: {EXAMPLE}."
            )
            listed = {}
        columns = dict[str, Column]()
        undeclared = [
            name
            for name, declared in listed.items()
            if TODO in (declared, *(declared.values() if isinstance(declared, dict) else ()))
        ]
        if undeclared:
            are = "Column {} is" if len(undeclared) == 1 else "Columns {} are"
            problems.append(
                f"{are.format(', '.join(map(repr, undeclared)))} still to be declared: each as {{ low = 0, high = 100 "
                '}, as a list of all its values, as { type = "date", low = 2015-01-01, high = 2025-12-31 } or as '
                "{ ignore = true }."
            )
        texts = [name for name, declared in listed.items() if declared == {"type": "text"}]
        if len(texts) > 1:
            problems.append(
                f"Columns {', '.join(map(repr, texts))} are all texts. Join them to one, and ignore the others."
            )
        units = [name for name, declared in listed.items() if declared == {"type": "unit"}]
        ignored = tuple(name for name, declared in listed.items() if declared == {"ignore": True} or name in units)
        problems += _describe_units(units, values)
        for name, declared in listed.items():
            if name in (*ignored, *undeclared, *texts):
                continue
            with collect_problem(problems):
                columns[name] = _parse_column(name, declared)
        with collect_problem(problems):
            about = _parse_about(values)
        refuse_problems(problems)
        return Bounds(
            columns,
            **about,
            text=text,
            folder=folder,
            ignored=ignored,
            unit=next(iter(units), None),
            text_column=next(iter(texts), None),
        )

    def features(self, target: str) -> CodeBook:
        """All columns but the target."""
        if target not in self.columns:
            unused = " It is declared as ignored." if target in self.ignored else ""
            raise InvalidArgument(
                f"The target {target!r} is not among the declared columns, {', '.join(self.columns)}."
                f"{unused or suggest(target, self.columns)}"
            )
        column = self.columns[target]
        if isinstance(column, Category) and len(column.values) < 2:
            raise InvalidArgument(
                f"The target {target!r} has one declared value, {column.values[0]!r}, and a classifier needs two. "
                "Declare all values that it may have, whether they occur or not."
            )
        if isinstance(column, Date) or column.missing == "indicator":
            what = "a date" if isinstance(column, Date) else 'declared with missing = "indicator"'
            raise InvalidArgument(f"The target {target!r} is {what}: declare a number or a category without gaps.")
        features = {name: column for name, column in self.columns.items() if name != target}
        if not features and self.text_column is None:
            raise InvalidArgument(f"No column is left to predict {target!r} from. Declare one more.")
        return features

    @property
    def test_file(self) -> Path | None:
        """The file with public rows to test on; its path is relative to the folder of the bounds."""
        return None if self.test is None else Path(self.folder) / self.test


def _describe_units(units: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """What is wrong with a column of people, or with what is declared beside it."""
    if len(units) > 1:
        return [f"Columns {', '.join(map(repr, units))} are all of type unit. Only one can say whose a row is."]
    if units and "rows_per_unit" not in values:
        return [
            f"Column {units[0]!r} says whose a row is, so rows_per_unit must be declared: how many rows of a person "
            "enter one step at most. It is public, so choose it without looking at the rows."
        ]
    if not units and (given := [name for name in ("people", "rows_per_unit") if name in values]):
        return [f'{" and ".join(given)} needs a column that says whose a row is: patient = {{ type = "unit" }}.']
    return []


def _parse_about(values: Mapping[str, Any]) -> dict[str, Any]:
    rows, test = values.get("rows"), values.get("test")
    counts = {name: values[name] for name in ("people", "rows_per_unit") if name in values}
    if rows == TODO:
        raise InvalidArgument("rows is still to be filled in: the public number of rows, roughly.")
    return {
        "rows": None if rows is None else _validate.count("rows", rows),
        **{name: _validate.count(name, value) for name, value in counts.items()},
        "held_out": _parse_held_out(values),
        "test": None if test is None else _check_text("test", test),
        "example": _check_text("example", values.get("example", "row")),
    }


def _parse_held_out(values: Mapping[str, Any]) -> float:
    """The share of rows to test on: 0 if a test file is named."""
    share = _validate.unit("held_out", values.get("held_out", 0.0 if "test" in values else 0.2))
    if share == 1:
        raise InvalidArgument("held_out is 1, so that no row is left to train on. Declare a share below 1.")
    if share > 0 and "test" in values:
        raise InvalidArgument("Both test and held_out are declared. Leave out held_out to train on every row.")
    return share


def _parse_column(name: str, declared: Any) -> Column:
    try:
        column = _make_column(declared)
    except InvalidArgument as error:
        raise InvalidArgument(f"Column {name!r}: {error}") from error
    if column is None:
        unknown = [key for key in declared if key not in _COLUMN_KEYS] if isinstance(declared, dict) else []
        raise InvalidArgument(
            f"Column {name!r} must be declared as {{ low = 0, high = 100 }} or as a list of all its values, "
            f"and log must be true or false. Got {declared!r}.{suggest(unknown[0], _COLUMN_KEYS) if unknown else ''}"
        )
    return column


def _make_column(declared: Any) -> Column | None:
    """The column that was declared; None for a declaration that has no meaning."""
    if isinstance(declared, list):
        return _make_category(declared, "refuse", None)
    if not isinstance(declared, dict):
        return None
    missing, fill = _parse_missing(declared)
    match {key: value for key, value in declared.items() if key not in ("missing", "fill")}:
        case {"values": list(values), **others} if not others:
            return _make_category(values, missing, fill)
        case {"type": "date", "low": low, "high": high, **others} if others.keys() <= {"format"}:
            ends = [_to_date_text(each) for each in (low, high)]
            form = None if "format" not in others else _check_text("format", others["format"])
            return Date(ends[0], ends[1], form, missing, None if fill is None else _to_date_text(fill))
        case {"low": low, "high": high, **others} if others.keys() <= {"log"}:
            logarithmic = others.get("log", False)
            if is_real(low) and is_real(high) and isinstance(logarithmic, bool):
                if fill is not None and not is_real(fill):
                    raise InvalidArgument(f"fill must be a number. Got {fill!r}.")
                return Number(_to_float(low), _to_float(high), logarithmic, missing, fill)
    return None


def _parse_missing(declared: Mapping[str, Any]) -> tuple[Any, Any]:
    """What becomes of a missing value: "refuse" or "indicator", and the value to put in its place."""
    missing, fill = declared.get("missing", "refuse"), declared.get("fill")
    if missing not in ("refuse", "indicator"):
        raise InvalidArgument(f'missing must be "refuse" or "indicator". Got {missing!r}.')
    if missing == "refuse" and fill is not None:
        raise InvalidArgument('fill goes with missing = "indicator". Declare both, or leave fill out.')
    if missing == "indicator" and fill is None and "values" not in declared:
        raise InvalidArgument('missing = "indicator" needs fill, the value that is put in place of a missing one.')
    return missing, fill


def _make_category(values: Sequence[Any], missing: Any, fill: Any) -> Category | None:
    if any(isinstance(value, list | dict) for value in values):
        return None
    filled = None if fill is None else to_labels(np.array([fill], dtype=object))[0]
    return Category(tuple(to_labels(np.array(values, dtype=object))), True, missing, filled)


def _to_date_text(value: Any) -> str:
    if isinstance(value, date | datetime):
        return value.isoformat()
    try:
        return datetime.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        raise InvalidArgument(f"{value!r} is no date. Write it like 2024-03-31.") from None


def _to_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        # TOML has whole numbers of any length. `Number` refuses this one.
        return math.inf


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"{name} must be text in quotes. Got {value!r}.")
    return value


_TEMPLATE = """\
# What is public about the columns of {table}.
# Only its header was read. Declare from what you know about such data, never
# from the rows: bounds that were read off the rows reveal them.
#
# number     {{ low = 0, high = 100 }}, or with log = true
# category   ["no", "yes"], all values that may occur
# date       {{ type = "date", low = 2015-01-01, high = 2025-12-31 }}
#            dates look like 2024-03-31, or add format = "%d.%m.%Y"
# not used   {{ ignore = true }}
# Missing values are refused. To allow them, declare what replaces them:
#            {{ low = 0, high = 300, missing = "indicator", fill = 75 }}
#            {{ values = ["no", "yes"], missing = "indicator" }}

# The public number of rows, roughly. It is not counted.
rows = "{todo}"
# The share of rows that are held out, to score the model.
held_out = 0.2
# What one row is, such as "patient": the unit that is protected.
example = "row"

[columns]
"""


def write_template(table: str, names: Sequence[str], target: str) -> str:
    """A bounds file for a table with these column names, to be filled in. It depends on the names alone.

    Names that look like identifiers are declared as ignored, and names that look like dates as dates.
    """
    lines = [f"{_quote_key(name)} = {_guess(name, target)}" for name in names]
    return _TEMPLATE.format(table=table, todo=TODO) + "\n".join(lines) + "\n"


def _guess(name: str, target: str) -> str:
    if name == target:
        return f'"{TODO}"  # the target: a category or a number'
    if _IDS.search(name):
        return "{ ignore = true }  # looks like an identifier"
    if _DATES.search(name):
        return f'{{ type = "date", low = "{TODO}", high = "{TODO}" }}'
    return f'"{TODO}"'


def _quote_key(name: str) -> str:
    """A column name as TOML writes it."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007F")
