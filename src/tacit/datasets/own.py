"""A table of the user's own, as CSV, TSV, Parquet or npz: scaled by declared bounds, split by what each row says."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np

from tacit.datasets.bounds import EXAMPLE, Bounds
from tacit.datasets.codebook import (
    Category,
    CodeBook,
    Number,
    columns_of,
    encode,
    encode_column,
    number_count,
    numbers_of,
)
from tacit.datasets.data import Array, Data, Examples, within
from tacit.datasets.files import content, npz, reading, rows_of
from tacit.datasets.sizes import warn_of_other_size
from tacit.errors import InvalidArgument

FORMATS = ".csv, .csv.gz, .tsv, .tsv.gz, .parquet and .npz"
_TABBED = (".tsv", ".tsv.gz")
_SUFFIXES = (".csv", ".csv.gz", *_TABBED, ".parquet", ".npz")
_DELIMITERS = (",", ";", "\t")


def is_table(name: str) -> bool:
    """Whether this is the path of a table that can be read, and not the name of a data set.

    >>> is_table("patients.csv"), is_table("PATIENTS.TSV"), is_table("iris"), is_table("patients.xlsx")
    (True, True, False, False)
    """
    return name.lower().endswith(_SUFFIXES)


def load_table(
    path: str | os.PathLike[str], *, target: str, bounds: str | os.PathLike[str] | Bounds, population: int | None = None
) -> Data:
    """The user's table in `path`, with `target` to be predicted by the other columns that `bounds` declares.

    Its ending says how it is read: .npz, .parquet, .tsv with tabs; anything else as CSV in UTF-8, with the delimiter
    that its first line has most of. What ends in .gz is unpacked first.

    Nothing about the scaling, the classes or the population is learnt from the rows. Rows to test on are the public
    ones of the file that the bounds name, or else a share of these, chosen by a hash of each row alone: so one row more
    or less moves no other row from one part to the other. `population` is the public number of rows to train on, if
    it is not to follow from the declared number of rows. Where that is far off, there is a `tacit.errors.Caution`.
    """
    file = Path(path).expanduser()
    declared = bounds if isinstance(bounds, Bounds) else Bounds.read(bounds)
    size = _population(declared, population)
    train, shape = _examples(file, target, declared)
    if declared.test_file is not None:
        test, _ = _examples(declared.test_file, target, declared)
    else:
        train, test = _held_out(train, declared.held_out)
    column = declared.columns[target]
    data = Data(
        file.name.split(".")[0],
        _shaped(train, shape),
        _shaped(test, shape),
        classes=len(column.values) if isinstance(column, Category) else None,
        population=size,
        scaling="numbers go from declared bounds to [-1, 1], declared categories to 0 or 1",
        unit=1.0 if isinstance(column, Category) else column.high - column.low,
        example=declared.example,
        source="your own table",
        is_test_private=declared.test_file is None,
        is_tested=declared.test_file is not None or declared.held_out > 0,
        numbers=number_count(declared.features(target)) if shape == train[0].shape[1:] else 0,
    )
    warn_of_other_size(data, is_declared=True)
    return data


def _population(declared: Bounds, given: int | None) -> int:
    if given is not None:
        return given
    if declared.rows is None:
        raise InvalidArgument(
            "How many rows are there, in public? That number is not counted from the table, because it would tell "
            f"whether someone is in it. Declare it in the bounds ({EXAMPLE}), or give --population, that of the rows "
            "to train on."
        )
    return max(1, round(declared.rows * (1 - declared.held_out)))


def _examples(file: Path, target: str, declared: Bounds) -> tuple[Examples, tuple[int, ...]]:
    """Features as one row of numbers per example, targets, and the shape that an input has."""
    features = declared.features(target)
    with reading(file, "a table", "Save it again."):
        table = _columns(file, declared)
        inputs, shape = _inputs(table, features)
        targets = _targets(target, table[target], declared)
        if not len(inputs):
            raise ValueError("there are no rows")
    return (inputs, targets), shape


def _columns(file: Path, declared: Bounds) -> dict[str, Array]:
    """The declared columns by name."""
    if not file.is_file():
        raise InvalidArgument(f"There is no table {file}.")
    if file.suffix.lower() == ".npz":
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an npz archive")
        with np.load(file, allow_pickle=False) as arrays:
            names = list(arrays)
        declared.refuse_unless_in(names, file)
        return _of_one_length(dict(zip(declared.columns, npz(file, list(declared.columns)), strict=True)))
    if file.suffix.lower() == ".parquet":
        return _parquet(file, declared)
    text = _utf8(file)
    head = text.split(b"\n", 1)[0].decode("utf-8-sig")
    is_tabbed = file.name.lower().endswith(_TABBED)
    whole = rows_of(text, "\t" if is_tabbed else max(_DELIMITERS, key=head.count))
    if not whole:
        raise ValueError("it is empty")
    names, *rows = whole
    if len(set(names)) != len(names):
        raise ValueError("two of its columns have the same name")
    declared.refuse_unless_in(names, file)
    return columns_of(rows, names)


def _of_one_length(table: dict[str, Array]) -> dict[str, Array]:
    """The arrays, unless some of them have other rows than the others."""
    lengths = {name: values.shape[0] if values.ndim else None for name, values in table.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {'is one value' if each is None else each}" for name, each in lengths.items())
        raise ValueError(f"its arrays must all have one entry for each row, and have different numbers: {told}")
    return table


def _utf8(file: Path) -> bytes:
    """What is in the file, once it is sure that it is text; an error tells the line, and nothing of what is in it."""
    text = content(file)
    try:
        text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = text.count(b"\n", 0, error.start) + 1
    else:
        return text
    # Outside the clause above: what was caught there holds the whole table, and would come along.
    raise InvalidArgument(
        f"{file} is not text in UTF-8: line {wrong} is the first that is not. Save the table in that encoding (CSV "
        f"UTF-8 in a spreadsheet), or in another form that is read: {FORMATS}."
    )


def _parquet(file: Path, declared: Bounds) -> dict[str, Array]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidArgument(
            f"Reading {file} needs pyarrow, which is not installed. Run: pip install pyarrow; or save the table as CSV."
        ) from error
    declared.refuse_unless_in(list(parquet.read_schema(file).names), file)
    table = parquet.read_table(file, columns=list(declared.columns))
    return {name: np.array(table[name].to_pylist(), dtype=object) for name in declared.columns}


def _inputs(table: dict[str, Array], features: CodeBook) -> tuple[Array, tuple[int, ...]]:
    """One row of numbers per example; an array of images, if there is nothing else, keeps its shape beside it."""
    arrays = {name: table[name] for name in features if table[name].ndim > 1}
    flat = {name: column for name, column in features.items() if name not in arrays}
    parts = [_array(name, values, features) for name, values in arrays.items()]
    if flat:
        parts.append(encode(table, flat))
    inputs = np.concatenate(parts, axis=1)
    alone = len(arrays) == 1 and not flat
    return inputs, next(iter(arrays.values())).shape[1:] if alone else inputs.shape[1:]


def _array(name: str, values: Array, features: CodeBook) -> Array:
    column = features[name]
    if not isinstance(column, Number) or column.logarithmic:
        raise InvalidArgument(
            f"Column {name!r} is an array of shape {values.shape[1:]} for each row. Declare it by low and high."
        )
    return within(numbers_of(values), column.low, column.high).reshape(len(values), -1)


def _targets(name: str, values: Array, declared: Bounds) -> Array:
    """Class numbers, or the number's share of its range."""
    column = declared.columns[name]
    if isinstance(column, Category):
        try:
            places = column.places(values)
        except InvalidArgument as error:
            raise InvalidArgument(f"Column {name!r}: {error}") from error
        missing = places < 0
        found: Array = places
    else:
        scaled = encode_column(name, values, column)
        missing = np.isnan(numbers_of(values))
        found = (scaled + 1) / 2
    if np.any(missing):
        raise InvalidArgument(
            f"Column {name!r}: {int(missing.sum()):,} rows have no value, and nothing can be learnt from them. Leave "
            "them out of the table."
        )
    return found


def _held_out(examples: Examples, share: float) -> tuple[Examples, Examples]:
    """What to train on and what to test on; a row's own hash decides, so that no other row has a say in it."""
    inputs, targets = examples
    limit = round(share * 2**64)
    hashes = (
        hashlib.blake2b(x.tobytes() + y.tobytes(), digest_size=8).digest() for x, y in zip(*examples, strict=True)
    )
    out = np.fromiter((int.from_bytes(each, "big") < limit for each in hashes), dtype=bool, count=len(inputs))
    return (inputs[~out], targets[~out]), (inputs[out], targets[out])


def _shaped(examples: Examples, shape: tuple[int, ...]) -> Examples:
    return examples[0].reshape(-1, *shape), examples[1]
