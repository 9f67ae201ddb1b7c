"""What is publicly known about a table of the user's own, declared in a TOML file. Nothing of it is looked up.

    rows = 1000                                  # about how many there are, in public
    [columns]
    age = { low = 0, high = 100 }                # a number between bounds
    income = { low = 0, high = 1e6, log = true } # on a logarithmic scale
    smoker = ["no", "yes"]                       # a category: all its values
    outcome = ["healthy", "ill"]                 # the target is a column like the others

Optional: `held_out` (0.2) is the share of rows to test on, `test` the file of public rows to test on instead, and
`example` what a row is ("patient").
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import _validate
from tacit.datasets.codebook import Category, CodeBook, Column, Number, labels_of
from tacit.datasets.data import Array
from tacit.errors import InvalidArgument

EXAMPLE = 'rows = 1000, then [columns], age = { low = 0, high = 100 }, smoker = ["no", "yes"]'
_KEYS = ("rows", "held_out", "test", "example", "columns")


@dataclass(frozen=True)
class Bounds:
    """Columns with their bounds or values, how many rows there are in public, and which of them are for testing.

    `text` and `folder` are where it was read from: a saved run keeps them, so that it is resumed with the same.
    """

    columns: CodeBook
    rows: int | None = None
    held_out: float = 0.2
    test: str | None = None
    example: str = "row"
    text: str = ""
    folder: str = "."

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Bounds:
        """The bounds in a TOML file."""
        file = Path(path)
        try:
            return Bounds.parse(file.read_text(encoding="utf-8"), str(file.parent.absolute()))
        except OSError as error:
            raise InvalidArgument(
                f"The bounds in {file} cannot be read: {error.strerror}. Write such a file: {EXAMPLE}."
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"{file} is not a TOML file: {error}. Write it like this: {EXAMPLE}.") from error
        except InvalidArgument as error:
            raise InvalidArgument(f"{file}: {error}") from error

    @staticmethod
    def parse(text: str, folder: str = ".") -> Bounds:
        """The bounds in a text."""
        try:
            values = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidArgument(f"This is not a TOML file: {error}. Write it like this: {EXAMPLE}.") from error
        for key, value in values.items():
            if key not in _KEYS:
                misplaced = " Columns go below [columns]." if isinstance(value, (dict, list)) else ""
                known = f"{misplaced}{_hint(key, _KEYS)} Known are {', '.join(_KEYS)}."
                raise InvalidArgument(f"There is no {key!r} here.{known}")
        columns = values.get("columns")
        if not isinstance(columns, dict) or len(columns) < 2:
            raise InvalidArgument(
                f"[columns] must list the target and at least one more column. Write it like this: {EXAMPLE}."
            )
        rows, test = values.get("rows"), values.get("test")
        return Bounds(
            {name: _column(name, declared) for name, declared in columns.items()},
            None if rows is None else _validate.count("rows", rows),
            _held_out(values),
            None if test is None else _text("test", test),
            _text("example", values.get("example", "row")),
            text,
            folder,
        )

    def features(self, target: str) -> CodeBook:
        """All columns but the target."""
        if target not in self.columns:
            raise InvalidArgument(
                f"The target {target!r} is not among the declared columns, {', '.join(self.columns)}."
                f"{_hint(target, self.columns)}"
            )
        column = self.columns[target]
        if isinstance(column, Category) and len(column.values) < 2:
            raise InvalidArgument(
                f"The target {target!r} has one declared value, {column.values[0]!r}: there is nothing to tell apart. "
                "Declare all that it may have, whether they occur or not."
            )
        return {name: column for name, column in self.columns.items() if name != target}

    def refuse_unless_in(self, names: list[str], file: Path) -> None:
        """Raise `InvalidArgument` unless the file has every declared column."""
        for name in self.columns:
            if name not in names:
                raise InvalidArgument(
                    f"{file} has no column {name!r}, which is declared.{_hint(name, names)} It has {', '.join(names)}."
                )

    @property
    def test_file(self) -> Path | None:
        """The file with public rows to test on; its path counts from where the bounds are."""
        return None if self.test is None else Path(self.folder) / self.test


def _held_out(values: Mapping[str, Any]) -> float:
    """The share of rows to test on; none where a file of others is named."""
    share = _validate.unit("held_out", values.get("held_out", 0.0 if "test" in values else 0.2))
    if share == 1:
        raise InvalidArgument("held_out is 1, so that no row is left to train on. Declare a share below 1.")
    if share > 0 and "test" in values:
        raise InvalidArgument("Both test and held_out are declared. Leave out held_out to train on every row.")
    return share


def _column(name: str, declared: Any) -> Column:
    try:
        match declared:
            case list() if not any(isinstance(value, list | dict) for value in declared):
                return Category(tuple(labels_of(_objects(declared))), strict=True)
            case {"low": low, "high": high, **others} if others.keys() <= {"log"}:
                logarithmic = others.get("log", False)
                if _is_number(low) and _is_number(high) and isinstance(logarithmic, bool):
                    return Number(_float(low), _float(high), logarithmic)
    except InvalidArgument as error:
        raise InvalidArgument(f"Column {name!r}: {error}") from error
    raise InvalidArgument(
        f"Column {name!r} must be declared as {{ low = 0, high = 100 }} or as a list of all its values, "
        f"and of log only true or false. Got {declared!r}."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        # TOML knows whole numbers of any length. `Number` refuses this one in its own words.
        return math.inf


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(f"{name} must be text in quotes. Got {value!r}.")
    return value


def _objects(values: list[Any]) -> Array:
    import numpy as np

    return np.array(values, dtype=object)


def _hint(name: str, known: Mapping[str, Any] | tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""
