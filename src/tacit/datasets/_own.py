"""A user's own table (CSV, TSV, Parquet, npz or a DataFrame), scaled by bounds declared in a TOML file:

    rows = 1000                                  # the public number of rows, roughly
    [columns]
    age = { low = 0, high = 100 }                # a number between bounds
    income = { low = 0, high = 1e6, log = true } # on a logarithmic scale
    smoker = ["no", "yes"]                       # a category: all its values
    outcome = ["healthy", "ill"]                 # the target is a column like the others

Optional: `held_out` (0.2) is the share of rows to test on, `test` a file of public rows to test on instead, and
`example` what a row is ("patient"). Nothing is computed from the rows; a hash of each row decides how they are split.
"""

from __future__ import annotations

import difflib
import hashlib
import math
import os
import tomllib
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit import _validate
from tacit.datasets import FORMATS
from tacit.datasets._data import (
    Array,
    Category,
    CodeBook,
    Column,
    Data,
    Examples,
    Number,
    count_numbers,
    encode,
    encode_column,
    scale_to_unit,
    to_columns,
    to_labels,
    to_numbers,
)
from tacit.datasets._files import explain_errors, parse_rows, read_content, read_npz
from tacit.errors import InvalidArgument

EXAMPLE = 'rows = 1000, then [columns], age = { low = 0, high = 100 }, smoker = ["no", "yes"]'
_KEYS = ("rows", "held_out", "test", "example", "columns")
_TABBED = (".tsv", ".tsv.gz")
_DELIMITERS = (",", ";", "\t")
_FRAME = "The DataFrame"


@dataclass(frozen=True)
class Bounds:
    """The declared columns with their bounds or values, the public number of rows, and which rows are for testing.

    `text` and `folder` are the TOML text and where it was read from: a saved run keeps them, to be resumed with them.
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
        """Read the bounds from a TOML file."""
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
        """Read the bounds from TOML text."""
        try:
            values = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidArgument(f"This is not a TOML file: {error}. Write it like this: {EXAMPLE}.") from error
        for key, value in values.items():
            if key not in _KEYS:
                misplaced = " Columns go below [columns]." if isinstance(value, (dict, list)) else ""
                known = f"{misplaced}{_suggest(key, _KEYS)} Known are {', '.join(_KEYS)}."
                raise InvalidArgument(f"There is no {key!r} here.{known}")
        columns = values.get("columns")
        if not isinstance(columns, dict) or len(columns) < 2:
            raise InvalidArgument(
                f"[columns] must list the target and at least one more column. Write it like this: {EXAMPLE}."
            )
        rows, test = values.get("rows"), values.get("test")
        return Bounds(
            {name: _parse_column(name, declared) for name, declared in columns.items()},
            None if rows is None else _validate.count("rows", rows),
            _parse_held_out(values),
            None if test is None else _check_text("test", test),
            _check_text("example", values.get("example", "row")),
            text,
            folder,
        )

    def features(self, target: str) -> CodeBook:
        """All columns but the target."""
        if target not in self.columns:
            raise InvalidArgument(
                f"The target {target!r} is not among the declared columns, {', '.join(self.columns)}."
                f"{_suggest(target, self.columns)}"
            )
        column = self.columns[target]
        if isinstance(column, Category) and len(column.values) < 2:
            raise InvalidArgument(
                f"The target {target!r} has one declared value, {column.values[0]!r}, and a classifier needs two. "
                "Declare all values that it may have, whether they occur or not."
            )
        return {name: column for name, column in self.columns.items() if name != target}

    def refuse_unless_in(self, names: list[str], file: Path | str) -> None:
        """Raise `InvalidArgument` unless the table has every declared column."""
        for name in self.columns:
            if name not in names:
                raise InvalidArgument(
                    f"{file} has no column {name!r}, which is declared.{_suggest(name, names)} It has "
                    f"{', '.join(names)}."
                )

    @property
    def test_file(self) -> Path | None:
        """The file with public rows to test on; its path is relative to the folder of the bounds."""
        return None if self.test is None else Path(self.folder) / self.test


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
        match declared:
            case list() if not any(isinstance(value, list | dict) for value in declared):
                return Category(tuple(to_labels(np.array(declared, dtype=object))), strict=True)
            case {"low": low, "high": high, **others} if others.keys() <= {"log"}:
                logarithmic = others.get("log", False)
                if _is_number(low) and _is_number(high) and isinstance(logarithmic, bool):
                    return Number(_to_float(low), _to_float(high), logarithmic)
    except InvalidArgument as error:
        raise InvalidArgument(f"Column {name!r}: {error}") from error
    raise InvalidArgument(
        f"Column {name!r} must be declared as {{ low = 0, high = 100 }} or as a list of all its values, "
        f"and log must be true or false. Got {declared!r}."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def _suggest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def load_table(
    table: Any, *, target: str, bounds: str | os.PathLike[str] | Bounds, population: int | None = None
) -> Data:
    """Load a table, to predict the column `target` from the other columns that `bounds` declares.

    `table` is a pandas DataFrame or the path of a file. The ending says how a file is read: .npz, .parquet, .tsv with
    tabs; anything else as CSV in UTF-8, with the delimiter that its first line has most of. A file that ends in .gz is
    unpacked first.

    Scaling, classes and population do not depend on the rows. Rows to test on are the public ones of the file that the
    bounds name, or else a share of the table, chosen by a hash of each row alone: so adding or removing a row moves no
    other row from one part to the other. `population` is the public number of rows to train on; by default it follows
    from the declared number of rows. If it is far off, there is a `tacit.errors.Caution`.
    """
    is_frame = hasattr(table, "columns")
    file = _FRAME if is_frame else Path(table).expanduser()
    declared = bounds if isinstance(bounds, Bounds) else Bounds.read(bounds)
    size = _choose_population(declared, population)
    train, shape = _read_examples(table if is_frame else file, target, declared)
    if declared.test_file is not None:
        test, _ = _read_examples(declared.test_file, target, declared)
    else:
        train, test = _hold_out(train, declared.held_out)
    column = declared.columns[target]
    data = Data(
        "table" if isinstance(file, str) else file.name.split(".")[0],
        (train[0].reshape(-1, *shape), train[1]),
        (test[0].reshape(-1, *shape), test[1]),
        classes=len(column.values) if isinstance(column, Category) else None,
        population=size,
        scaling="numbers go from declared bounds to [-1, 1], declared categories to 0 or 1",
        unit=1.0 if isinstance(column, Category) else column.high - column.low,
        example=declared.example,
        source="your own table",
        is_test_private=declared.test_file is None,
        is_tested=declared.test_file is not None or declared.held_out > 0,
        numbers=count_numbers(declared.features(target)) if shape == train[0].shape[1:] else 0,
    )
    data.warn_if_size_differs(is_declared=True)
    return data


def _choose_population(declared: Bounds, given: int | None) -> int:
    if given is not None:
        return given
    if declared.rows is None:
        raise InvalidArgument(
            "The public number of rows is missing. It is not counted from the table, as the count would reveal whether "
            f"someone is in it. Declare it in the bounds ({EXAMPLE}), or give --population, the number of rows to "
            "train on."
        )
    return max(1, round(declared.rows * (1 - declared.held_out)))


def _read_examples(source: Any, target: str, declared: Bounds) -> tuple[Examples, tuple[int, ...]]:
    """Features as one row of numbers per example, targets, and the shape of an input."""
    features = declared.features(target)
    with explain_errors(source if isinstance(source, Path) else _FRAME, "a table", "Save it again."):
        table = _read_columns(source, declared) if isinstance(source, Path) else _take_columns(source, declared)
        inputs, shape = _encode_inputs(table, features)
        targets = _encode_targets(target, table[target], declared)
        if not len(inputs):
            raise ValueError("there are no rows")
    return (inputs, targets), shape


def _take_columns(frame: Any, declared: Bounds) -> dict[str, Array]:
    """The declared columns of a DataFrame."""
    names = [str(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise ValueError("two of its columns have the same name")
    declared.refuse_unless_in(names, _FRAME)
    return {name: np.array(frame[name].tolist(), dtype=object) for name in declared.columns}


def _read_columns(file: Path, declared: Bounds) -> dict[str, Array]:
    """The declared columns by name."""
    if not file.is_file():
        raise InvalidArgument(f"There is no table {file}.")
    if file.suffix.lower() == ".npz":
        return _read_npz_columns(file, declared)
    if file.suffix.lower() == ".parquet":
        return _read_parquet(file, declared)
    text = _read_utf8(file)
    head = text.split(b"\n", 1)[0].decode("utf-8-sig")
    is_tabbed = file.name.lower().endswith(_TABBED)
    whole = parse_rows(text, "\t" if is_tabbed else max(_DELIMITERS, key=head.count))
    if not whole:
        raise ValueError("it is empty")
    names, *rows = whole
    if len(set(names)) != len(names):
        raise ValueError("two of its columns have the same name")
    declared.refuse_unless_in(names, file)
    return to_columns(rows, names)


def _read_npz_columns(file: Path, declared: Bounds) -> dict[str, Array]:
    if not zipfile.is_zipfile(file):
        raise ValueError("it is not an npz archive")
    with np.load(file, allow_pickle=False) as arrays:
        names = list(arrays)
    declared.refuse_unless_in(names, file)
    table = dict(zip(declared.columns, read_npz(file, list(declared.columns)), strict=True))
    lengths = {name: values.shape[0] if values.ndim else None for name, values in table.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {'is one value' if each is None else each}" for name, each in lengths.items())
        raise ValueError(f"its arrays must all have one entry for each row, and have different numbers: {listed}")
    return table


def _read_utf8(file: Path) -> bytes:
    """The content of a text file in UTF-8. An error names the line, and nothing of its content."""
    text = read_content(file)
    try:
        text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = text.count(b"\n", 0, error.start) + 1
    else:
        return text
    # Raised outside the clause above: the caught error holds the whole table, and would be chained to this one.
    raise InvalidArgument(
        f"{file} is not text in UTF-8: line {wrong} is the first that is not. Save the table in that encoding (CSV "
        f"UTF-8 in a spreadsheet), or in another format: {FORMATS}."
    )


def _read_parquet(file: Path, declared: Bounds) -> dict[str, Array]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidArgument(
            f"Reading {file} needs pyarrow, which is not installed. Run: pip install pyarrow; or save the table as CSV."
        ) from error
    declared.refuse_unless_in(list(parquet.read_schema(file).names), file)
    table = parquet.read_table(file, columns=list(declared.columns))
    return {name: np.array(table[name].to_pylist(), dtype=object) for name in declared.columns}


def _encode_inputs(table: dict[str, Array], features: CodeBook) -> tuple[Array, tuple[int, ...]]:
    """One row of numbers per example, and the shape of an input: that of the array if it is the only feature."""
    arrays = {name: table[name] for name in features if table[name].ndim > 1}
    flat = {name: column for name, column in features.items() if name not in arrays}
    parts = [_scale_array(name, values, features) for name, values in arrays.items()]
    if flat:
        parts.append(encode(table, flat))
    inputs = np.concatenate(parts, axis=1)
    is_alone = len(arrays) == 1 and not flat
    return inputs, next(iter(arrays.values())).shape[1:] if is_alone else inputs.shape[1:]


def _scale_array(name: str, values: Array, features: CodeBook) -> Array:
    column = features[name]
    if not isinstance(column, Number) or column.logarithmic:
        raise InvalidArgument(
            f"Column {name!r} is an array of shape {values.shape[1:]} for each row. Declare it by low and high."
        )
    return scale_to_unit(to_numbers(values), column.low, column.high).reshape(len(values), -1)


def _encode_targets(name: str, values: Array, declared: Bounds) -> Array:
    """Class numbers, or the number's share of its range."""
    column = declared.columns[name]
    if isinstance(column, Category):
        try:
            found = column.find_places(values)
        except InvalidArgument as error:
            raise InvalidArgument(f"Column {name!r}: {error}") from error
        missing = found < 0
    else:
        found = (encode_column(name, values, column) + 1) / 2
        missing = np.isnan(to_numbers(values))
    if np.any(missing):
        raise InvalidArgument(
            f"Column {name!r}: {int(missing.sum()):,} rows have no value, so nothing can be learnt from them. Leave "
            "them out of the table."
        )
    return found


def _hold_out(examples: Examples, share: float) -> tuple[Examples, Examples]:
    """Examples to train on and to test on; a hash of each row decides, independently of other rows."""
    inputs, targets = examples
    limit = round(share * 2**64)
    hashes = (
        hashlib.blake2b(x.tobytes() + y.tobytes(), digest_size=8).digest() for x, y in zip(*examples, strict=True)
    )
    out = np.fromiter((int.from_bytes(each, "big") < limit for each in hashes), dtype=bool, count=len(inputs))
    return (inputs[~out], targets[~out]), (inputs[out], targets[out])
