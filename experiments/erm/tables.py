"""The six tables of Kang et al. 2020 and 2021 as `tacit.datasets` encodes them, scaled to rows of norm at most 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from experiments.library import Order
from numpy.typing import NDArray

Array = NDArray[Any]
Examples = tuple[Array, Array]

_READ: dict[tuple[str, int | None], Table] = {}


@dataclass(frozen=True, eq=False)
class Table:
    """Private examples to train on and public ones to test on, every row of norm at most 1."""

    name: str
    train: Examples
    test: Examples
    classes: int
    regularisation: float


def read(order: Order, name: str) -> Table:
    """The table called `name`, as the settings describe it, read once."""
    about, most = order.settings["tables"][name], order.settings.get("most_rows")
    if (name, most) not in _READ:
        _READ[name, most] = _scaled(name, about, order.load(about["data"]), most)
    return _READ[name, most]


def _scaled(name: str, about: Mapping[str, Any], data: Any, most: int | None) -> Table:
    """Rows divided by the root of the number of columns that they were encoded from.

    Every column is a number in [-1, 1] or one category out of several, so that no row is longer than that.
    """
    train, test = data.train, data.test
    if "every" in about:
        # The papers take 70,000 of the connections; these are spread over all of them, and so are those to test on.
        rows, step = data.train, about["every"]
        train = tuple(part[: about["of"] : step] for part in rows)
        test = tuple(part[step // 2 : about["of"] : 5 * step] for part in rows)
    train = tuple(part[:most] for part in train)
    length = about["columns"] ** 0.5
    return Table(
        name,
        (train[0].astype(np.float64) / length, train[1]),
        (test[0].astype(np.float64) / length, test[1]),
        data.classes,
        about["regularisation"],
    )
