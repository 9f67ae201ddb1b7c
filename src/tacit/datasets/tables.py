"""Tables that are published in one piece: bank marketing, breast cancer (Wisconsin, original) and card fraud.

A fifth of the rows, chosen by their places alone, is put aside to test on. Bounds and categories follow the
descriptions that are published with the tables, in round numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.datasets.codebook import Category, CodeBook, Number, columns_of, encode, labels_of, number_count
from tacit.datasets.data import Array, Data, private_part, split
from tacit.datasets.files import only_content, reading, rows_of
from tacit.errors import InvalidArgument

Columns = dict[str, Array]
# A folder's only file with one of these endings is the table, whatever its name.
ENDINGS = (".csv", ".csv.gz")
_SCALING = "numbers go from declared ranges to [-1, 1], categories to 0 or 1"


@dataclass(frozen=True)
class Published:
    """A table: its file, how many rows were published, its code book, and which label is which class.

    `folders` are those that an archive leaves when it is unpacked.
    """

    files: tuple[str, ...]
    archives: tuple[str, ...]
    rows: int
    book: CodeBook
    target: str
    labels: dict[str, int]
    columns: Callable[[bytes], Columns]
    example: str
    folders: tuple[str, ...] = ()


def read_table(name: str, where: Path) -> Data | None:
    """The table of this name; None if its file is not there."""
    table = PUBLISHED[name]
    found = only_content(where, table.files, table.archives)
    if found is None:
        return None
    with reading(found.path, f"rows of {name}"):
        columns = table.columns(found.content)
        missing = [column for column in (*table.book, table.target) if column not in columns]
        if missing:
            raise ValueError(f"it has no column {missing[0]!r}")
        inputs, targets = encode(columns, table.book), _classes(columns[table.target], table.labels)
    train, test = split(inputs, targets)
    population = private_part(table.rows)
    numbers = number_count(table.book)
    return Data(name, train, test, 2, population, scaling=_SCALING, example=table.example, numbers=numbers)


def files_of(name: str) -> str:
    """The names that are looked for."""
    table = PUBLISHED[name]
    return " or ".join([*(f"{file}[.gz]" for file in table.files), *table.archives])


def _classes(values: Array, labels: dict[str, int]) -> Array:
    unknown = sorted(set(labels_of(values)) - set(labels))
    if unknown:
        raise InvalidArgument(f"{unknown[0]!r} is none of the labels {', '.join(labels)}.")
    return np.array([labels[value] for value in labels_of(values)], dtype=np.int64)


def _with_header(text: bytes, delimiter: str = ",") -> Columns:
    head, *rows = rows_of(text, delimiter)
    return columns_of(rows, head)


def _bank_columns(text: bytes) -> Columns:
    return _with_header(text, ";")


def _card_columns(text: bytes) -> Columns:
    """OpenML puts the class in single quotes."""
    columns = _with_header(text)
    return {name: np.array([str(value).strip("'") for value in values]) for name, values in columns.items()}


_WISCONSIN_COLUMNS = (
    "id",
    "clump-thickness",
    "size-uniformity",
    "shape-uniformity",
    "adhesion",
    "epithelial-size",
    "bare-nuclei",
    "bland-chromatin",
    "nucleoli",
    "mitoses",
    "class",
)


def _wisconsin_columns(text: bytes) -> Columns:
    """The original has no header; some copies have one."""
    rows = rows_of(text)
    return columns_of(rows if rows and rows[0][0].isdigit() else rows[1:], _WISCONSIN_COLUMNS)


def _category(values: str) -> Category:
    return Category(tuple(values.split()))


def _numbers(names: Sequence[str], low: float, high: float) -> CodeBook:
    return {name: Number(low, high) for name in names}


_YES_NO = _category("no yes unknown")
_BANK: CodeBook = {
    "age": Number(0, 100),
    "duration": Number(0, 5_000, logarithmic=True),
    "campaign": Number(1, 60, logarithmic=True),
    # 999 stands for "never contacted before".
    "pdays": Number(0, 999),
    "previous": Number(0, 10),
    "emp.var.rate": Number(-5, 5),
    "cons.price.idx": Number(90, 100),
    "cons.conf.idx": Number(-60, 0),
    "euribor3m": Number(0, 6),
    "nr.employed": Number(4_900, 5_300),
    "job": _category(
        "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
        "unemployed unknown"
    ),
    "marital": _category("divorced married single unknown"),
    "education": _category(
        "basic.4y basic.6y basic.9y high.school illiterate professional.course university.degree unknown"
    ),
    "default": _YES_NO,
    "housing": _YES_NO,
    "loan": _YES_NO,
    "contact": _category("cellular telephone"),
    "month": _category("jan feb mar apr may jun jul aug sep oct nov dec"),
    "day_of_week": _category("mon tue wed thu fri"),
    "poutcome": _category("failure nonexistent success"),
}
# The components of the card data are principal ones, of which nothing is published but their numbers.
_CARD: CodeBook = {
    "Amount": Number(0, 25_000, logarithmic=True),
    **_numbers([f"V{number}" for number in range(1, 29)], -10, 10),
}

PUBLISHED = {
    "bank": Published(
        files=("bank-additional-full.csv",),
        archives=("bank-additional.zip", "bank+marketing.zip"),
        rows=41_188,
        book=_BANK,
        target="y",
        labels={"no": 0, "yes": 1},
        columns=_bank_columns,
        example="client",
        folders=("bank-additional", "bank+marketing", "bank+marketing/bank-additional"),
    ),
    "breast-cancer-wisconsin": Published(
        files=("breast-cancer-wisconsin.data", "breast-cancer-wisconsin.csv"),
        archives=("breast+cancer+wisconsin+original.zip",),
        rows=699,
        book=_numbers(_WISCONSIN_COLUMNS[1:-1], 1, 10),
        target="class",
        labels={"2": 0, "4": 1},
        columns=_wisconsin_columns,
        example="sample",
        folders=("breast+cancer+wisconsin+original",),
    ),
    "creditcard": Published(
        files=("creditcard.csv",),
        archives=("creditcardfraud.zip",),
        rows=284_807,
        book=_CARD,
        target="Class",
        labels={"0": 0, "1": 1},
        columns=_card_columns,
        example="transaction",
    ),
}
