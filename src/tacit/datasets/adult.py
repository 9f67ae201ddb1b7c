"""Adult (census income) from a copy of the user's: the original tables, or their LIBSVM form a9a.

The original is encoded by the code book that is published with it (adult.names), not by what the rows contain: a
value that the code book does not know, such as "?", is encoded as nothing.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tacit.datasets.data import Array, Data, Examples, within
from tacit.errors import InvalidArgument

_PUBLISHED_SIZE = 32_561
_A9A_FEATURES = 123
_INCOMES = {"<=50K": 0, ">50K": 1, "-1": 0, "+1": 1, "1": 1}
_COLUMNS = 15

# Column of the table: the largest value. The sampling weight (column 2) says nothing about a person and is left out.
_NUMBERS = {0: 100.0, 4: 16.0, 10: 100_000.0, 11: 5_000.0, 12: 100.0}
_LOGARITHMIC = {10, 11}
_CODE_BOOK = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    3: "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
    "Doctorate 5th-6th Preschool",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    8: "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    9: "Female Male",
    13: "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
    "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia "
    "El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
}
_PLACES = {
    (column, value): place
    for place, (column, value) in enumerate(
        (column, value) for column, values in _CODE_BOOK.items() for value in values.split()
    )
}


def read_adult(folder: Path) -> Data:
    """The data set in `folder`: adult.data and adult.test, or else a9a and a9a.t; each may end in .gz."""
    for names, read, scaling in (
        (("adult.data", "adult.test"), _from_table, "numbers go from declared ranges to [-1, 1], categories to 0 or 1"),
        (("a9a", "a9a.t"), _from_libsvm, "the features of a9a are 0 or 1 already"),
    ):
        files = [_first_file(folder / name) for name in names]
        if all(files):
            train, test = (_examples(file, read) for file in files if file is not None)
            return Data("adult", train, test, classes=2, population=_PUBLISHED_SIZE, scaling=scaling)
    raise InvalidArgument(
        f"There is no Adult in {folder}. Looked for adult.data[.gz] with adult.test[.gz], and for a9a[.gz] with "
        "a9a.t[.gz]: a folder must hold both files of a pair."
    )


def _first_file(path: Path) -> Path | None:
    both = (path, path.with_name(f"{path.name}.gz"))
    return next((file for file in both if file.is_file()), None)


def _examples(file: Path, read: Callable[[list[list[str]]], Examples]) -> Examples:
    try:
        rows = list(_rows(file))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read: {error}.") from error
    try:
        return read(rows)
    except (ValueError, LookupError) as error:
        raise InvalidArgument(f"{file} holds a row that is none of Adult's: {error}.") from error


def _rows(file: Path) -> Iterator[list[str]]:
    """The fields of every row; empty lines, and the comment that adult.test opens with, are none."""
    with gzip.open(file, "rt", encoding="ascii") if file.suffix == ".gz" else file.open(encoding="ascii") as lines:
        for line in lines:
            if line.strip() and not line.startswith("|"):
                yield [part.strip() for part in line.split(",")] if "," in line else line.split()


def _from_table(rows: list[list[str]]) -> Examples:
    if any(len(row) != _COLUMNS for row in rows):
        raise ValueError(f"every row has {_COLUMNS} columns")
    numbers = np.stack([_numbers(rows, column, high) for column, high in _NUMBERS.items()], axis=1)
    categories = np.zeros((len(rows), len(_PLACES)), dtype=np.float32)
    for index, row in enumerate(rows):
        for column in _CODE_BOOK:
            place = _PLACES.get((column, row[column]))
            if place is not None:
                categories[index, place] = 1
    labels = np.array([_INCOMES[row[-1].rstrip(".")] for row in rows], dtype=np.int64)
    return np.concatenate([numbers, categories], axis=1), labels


def _numbers(rows: list[list[str]], column: int, high: float) -> Array:
    values = np.array([float("nan" if row[column] == "?" else row[column]) for row in rows])
    if column in _LOGARITHMIC:
        return within(np.log1p(np.maximum(values, 0)), 0, np.log1p(high))
    return within(values, 0, high)


def _from_libsvm(rows: list[list[str]]) -> Examples:
    inputs = np.zeros((len(rows), _A9A_FEATURES), dtype=np.float32)
    for index, (_, *features) in enumerate(rows):
        for feature in features:
            place, _, value = feature.partition(":")
            if not 1 <= int(place) <= _A9A_FEATURES:
                raise ValueError(f"feature {place} is not one of {_A9A_FEATURES}")
            inputs[index, int(place) - 1] = min(max(float(value), 0.0), 1.0)
    return inputs, np.array([_INCOMES[row[0]] for row in rows], dtype=np.int64)
