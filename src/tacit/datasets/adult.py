"""Adult (census income): the original tables, or their LIBSVM form a9a.

The original is encoded by the code book that is published with it (adult.names), not by what the rows contain: a
value that the code book does not know, such as "?", is encoded as nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit.datasets.codebook import Category, CodeBook, Number, columns_of, encode, number_count
from tacit.datasets.data import Data, Examples
from tacit.datasets.files import contents, libsvm, reading, rows_of
from tacit.errors import InvalidArgument

_ARCHIVE = "adult.zip"
ADULT_FILES = f"adult.data[.gz] with adult.test[.gz], for {_ARCHIVE}"
A9A_FILES = "a9a[.gz] with a9a.t[.gz]"
_TABLES, _A9A = ("adult.data", "adult.test"), ("a9a", "a9a.t")
_PUBLISHED_SIZE = 32_561
_A9A_FEATURES = 123
_INCOMES = {"<=50K": 0, ">50K": 1, "-1": 0, "+1": 1, "1": 1}
_COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
)


def _category(values: str) -> Category:
    return Category(tuple(values.split()))


# The sampling weight fnlwgt says nothing about a person and is left out.
_BOOK: CodeBook = {
    "age": Number(0, 100),
    "education-num": Number(0, 16),
    "capital-gain": Number(0, 100_000, logarithmic=True),
    "capital-loss": Number(0, 5_000, logarithmic=True),
    "hours-per-week": Number(0, 100),
    "workclass": _category(
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
    ),
    "education": _category(
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool"
    ),
    "marital-status": _category(
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": _category(
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": _category("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    "race": _category("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    "sex": _category("Female Male"),
    "native-country": _category(
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
        "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
}


def read_adult(where: Path) -> Data | None:
    """The original tables, or else a9a; None if neither is there."""
    data = _read(
        where, "adult", _TABLES, _from_table, "numbers go from declared ranges to [-1, 1], categories to 0 or 1"
    )
    return replace(data, numbers=number_count(_BOOK)) if data else _read_a9a(where, "adult")


def read_a9a(where: Path) -> Data | None:
    """The 123 binary features of a9a; None if they are not there."""
    return _read_a9a(where, "a9a")


def _read_a9a(where: Path, name: str) -> Data | None:
    return _read(where, name, _A9A, _from_libsvm, "the features of a9a are 0 or 1 already")


def _read(
    where: Path, name: str, files: tuple[str, str], read: Callable[[bytes], Examples], scaling: str
) -> Data | None:
    found = contents(where, files, [_ARCHIVE])
    if found is None:
        return None
    parts = []
    for file in files:
        with reading(found[file].path, "rows of Adult"):
            parts.append(read(found[file].content))
    train, test = parts
    return Data(name, train, test, classes=2, population=_PUBLISHED_SIZE, scaling=scaling, example="person")


def _from_table(text: bytes) -> Examples:
    # The comment that adult.test opens with is no row.
    rows = [row for row in rows_of(text) if not row[0].startswith("|")]
    table = columns_of(rows, _COLUMNS)
    labels = np.array([_income(label.rstrip(".")) for label in table["income"]], dtype=np.int64)
    return encode(table, _BOOK), labels


def _from_libsvm(text: bytes) -> Examples:
    inputs, labels = libsvm(text, _A9A_FEATURES)
    return np.clip(inputs, 0, 1), np.array([_income(label) for label in labels], dtype=np.int64)


def _income(label: str) -> int:
    if label not in _INCOMES:
        raise InvalidArgument(f"{label!r} is none of Adult's incomes, which are {', '.join(_INCOMES)}.")
    return _INCOMES[label]
