"""Tables that are published in one piece, as a file or in scikit-learn. About a fifth of the rows is for testing.

Bounds and categories follow the published descriptions of the tables, in round numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets as sklearn_datasets

from tacit.datasets import DataSet, Source, TrainingDefaults
from tacit.datasets._columns import Array, CodeBook, Number, count_numbers, encode, scale_to_unit, to_columns, to_labels
from tacit.datasets._data import TABLE_SCALING, Data, Form, TableForm, count_training_rows, split_rows
from tacit.datasets._files import explain_errors, find_one_file, parse_rows
from tacit.errors import InvalidArgument


@dataclass(frozen=True)
class PublishedTable:
    """A table in one file: its names, its published size, its code book, and the class of each label.

    `to_columns` turns the content of the file into columns by name. `classes` names the classes in their order; by
    default they are called by their labels.
    """

    name: str
    files: tuple[str, ...]
    archives: tuple[str, ...]
    rows: int
    book: CodeBook
    target: str
    labels: dict[str, int]
    to_columns: Callable[[bytes], dict[str, Array]]
    example: str
    classes: tuple[str, ...] = ()

    def dataset(self, source: Source, defaults: TrainingDefaults, folders: tuple[str, ...] = ()) -> DataSet:
        """The data set of this table. In a folder with a single table, that table is read."""
        return DataSet(
            self.name,
            source,
            read=self.read,
            files=" or ".join([*(f"{file}[.gz]" for file in self.files), *self.archives]),
            folders=folders,
            endings=(".csv", ".csv.gz"),
            defaults=defaults,
        )

    def read(self, where: Path) -> Data | None:
        """The table in a folder or file; None if it is not there."""
        found = find_one_file(where, self.files, self.archives)
        if found is None:
            return None
        with explain_errors(found.path, f"rows of {self.name}"):
            columns = self.to_columns(found.content)
            missing = [column for column in (*self.book, self.target) if column not in columns]
            if missing:
                raise ValueError(f"it has no column {missing[0]!r}")
            inputs, labels = encode(columns, self.book), to_labels(columns[self.target])
            unknown = sorted(set(labels) - set(self.labels))
            if unknown:
                raise InvalidArgument(f"{unknown[0]!r} is none of the labels {', '.join(self.labels)}.")
            targets = np.array([self.labels[label] for label in labels], dtype=np.int64)
        train, test = split_rows(inputs, targets)
        return Data(
            self.name,
            train,
            test,
            classes=2,
            population=count_training_rows(self.rows),
            scaling=TABLE_SCALING,
            example=self.example,
            numbers=count_numbers(self.book),
            form=Form(TableForm(self.book), self.target, self.classes or tuple(self.labels)),
        )


def parse_with_header(text: bytes, delimiter: str = ",") -> dict[str, Array]:
    """Columns by name; the first row holds the names."""
    head, *rows = parse_rows(text, delimiter)
    return to_columns(rows, head)


@dataclass(frozen=True)
class SklearnTable:
    """A table that comes with scikit-learn: its published size, and the bounds of its columns and of its target."""

    name: str
    rows: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    classes: int | None
    unit: float = 1.0

    def dataset(self, defaults: TrainingDefaults) -> DataSet:
        """The data set of this table."""
        page = "https://scikit-learn.org/stable/datasets/toy_dataset.html"
        return DataSet(self.name, Source(page), make=self.make, defaults=defaults)

    def make(self) -> Data:
        """The scaled table, split into rows to train on and to test on."""
        # scikit-learn scales diabetes by its own mean and deviation, which are private, by default.
        options: dict[str, Any] = {"scaled": False} if self.name == "diabetes" else {}
        loader = getattr(sklearn_datasets, f"load_{self.name.replace('-', '_')}")
        table = loader(**options)
        values, targets = table.data, table.target
        if self.classes is None:
            targets = (np.clip(targets, 0, self.unit) / self.unit).astype(np.float32)[:, np.newaxis]
        else:
            targets = targets.astype(np.int64)
        train, test = split_rows(scale_to_unit(values, np.array(self.low), np.array(self.high)), targets)
        ends = zip(table.feature_names, self.low, self.high, strict=True)
        inputs = TableForm({name: Number(low, high) for name, low, high in ends})
        classes = None if self.classes is None else tuple(map(str, table.target_names))
        return Data(
            self.name,
            train,
            test,
            classes=self.classes,
            population=count_training_rows(self.rows),
            scaling="every feature goes from a declared range to [-1, 1]",
            unit=self.unit,
            numbers=len(self.low),
            form=Form(inputs, "target", classes, Number(0.0, self.unit) if classes is None else None),
        )
