"""The small tables that come with scikit-learn, scaled by round bounds that are declared here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.datasets.data import Array, Data, private_part, split, within
from tacit.errors import InvalidArgument

# Ranges of a cell nucleus's ten measures (mean over the image), of their standard errors, and of the worst three.
_NUCLEUS = (40.0, 50.0, 250.0, 3000.0, 0.25, 0.5, 0.5, 0.25, 0.5, 0.125)
_NUCLEUS_ERROR = (4.0, 5.0, 25.0, 600.0, 0.05, 0.2, 0.5, 0.06, 0.1, 0.04)
_NUCLEUS_WORST = (50.0, 60.0, 300.0, 5000.0, 0.3, 1.2, 1.5, 0.4, 0.8, 0.25)


@dataclass(frozen=True)
class _Table:
    """A table's published size, the bounds of its columns, and what its target is."""

    loader: str
    rows: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    classes: int | None
    unit: float = 1.0


_TABLES = {
    "breast-cancer": _Table(
        "load_breast_cancer", 569, (0.0,) * 30, (*_NUCLEUS, *_NUCLEUS_ERROR, *_NUCLEUS_WORST), classes=2
    ),
    "diabetes": _Table(
        "load_diabetes",
        442,
        # Age, sex, body-mass index, blood pressure, and six measures of blood serum, in their own units.
        low=(0.0, 1.0, 10.0, 40.0, 50.0, 0.0, 0.0, 0.0, 2.0, 40.0),
        high=(100.0, 2.0, 50.0, 160.0, 350.0, 300.0, 120.0, 10.0, 7.0, 160.0),
        classes=None,
        unit=400.0,
    ),
    "digits": _Table("load_digits", 1797, (0.0,) * 64, (16.0,) * 64, classes=10),
    "iris": _Table("load_iris", 150, (3.0, 1.0, 0.0, 0.0), (9.0, 5.0, 8.0, 3.0), classes=3),
    "wine": _Table(
        "load_wine",
        178,
        low=(10.0, 0.0, 1.0, 10.0, 50.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0),
        high=(16.0, 6.0, 4.0, 30.0, 200.0, 5.0, 6.0, 1.0, 4.0, 15.0, 2.0, 4.0, 2000.0),
        classes=3,
    ),
}
BUNDLED = tuple(_TABLES)


def read_bundled(name: str) -> Data:
    """The table of scikit-learn with this name, about a fifth of its rows put aside as public."""
    table = _TABLES[name]
    values, targets = _arrays(table)
    inputs = within(values, np.array(table.low), np.array(table.high))
    if table.classes is None:
        targets = (np.clip(targets, 0, table.unit) / table.unit).astype(np.float32)[:, np.newaxis]
    else:
        targets = targets.astype(np.int64)
    train, test = split(inputs, targets)
    return Data(
        name,
        train=train,
        test=test,
        classes=table.classes,
        population=private_part(table.rows),
        scaling="every feature goes from a declared range to [-1, 1]",
        unit=table.unit,
        numbers=len(table.low),
        source="https://scikit-learn.org/stable/datasets/toy_dataset.html",
    )


def _arrays(table: _Table) -> tuple[Array, Array]:
    try:
        datasets: Any = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise InvalidArgument(
            "This data set comes with scikit-learn, which is not installed. Run: pip install scikit-learn."
        ) from error
    # The diabetes table is shipped scaled by its own mean and deviation, which are private; its raw form is asked for.
    options = {"scaled": False} if table.loader == "load_diabetes" else {}
    values, targets = getattr(datasets, table.loader)(return_X_y=True, **options)
    return values, targets
