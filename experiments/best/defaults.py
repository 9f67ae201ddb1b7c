"""Which method of the linear estimators wins, by number of examples and epsilon: what `method="auto"` implements.

Rows of Adult are the first ones of its training table, scored on its test table; those of breast-cancer are split as
the package splits them; the made table has five columns of which two count. All methods get the same declared bounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, markdown_table
from numpy.typing import NDArray

from tacit import datasets
from tacit.datasets._columns import Category
from tacit.estimators import PrivateLogisticRegression

DEFAULTS = "defaults"
Rows = tuple[NDArray[Any], NDArray[np.int64]]


def default_cells(order: Order) -> Iterator[Cell]:
    """Every table, epsilon, method and seed."""
    about = order.settings[DEFAULTS]
    for name in about["tables"]:
        for epsilon in about["epsilons"]:
            for method in about["methods"]:
                for seed in range(about["seeds"]):
                    asked = {"data": name, "epsilon": epsilon, "method": method, "seed": seed, "size": order.size}
                    yield Cell(DEFAULTS, asked, partial(_score, name, epsilon, method, seed, order.settings["delta"]))


def _score(name: str, epsilon: float, method: str, seed: int, delta: float) -> dict[str, Any]:
    bounds, train, test = _read(name)
    settings: dict[str, Any] = {"scale": "bounds", "bounds": bounds, "classes": [0, 1], "random_state": seed}
    model = PrivateLogisticRegression(epsilon, delta, method=method, **settings).fit(*train)
    certified = model.guarantee_.epsilon(delta)
    return {"accuracy": float(model.score(*test)), "certified": certified, "examples": len(train[1])}


@lru_cache(maxsize=2)
def _read(name: str) -> tuple[Any, Rows, Rows]:
    """Declared bounds, rows to train on and rows to test on, of "adult 1000", "breast-cancer" or "made 300"."""
    kind, _, count = name.partition(" ")
    if kind == "made":
        rng = np.random.default_rng(0)
        rows = rng.uniform(-1, 1, (int(count) + 5_000, 5))
        chance = 1 / (1 + np.exp(-4 * rows[:, 0] - 4 * rows[:, 1]))
        labels = (rng.uniform(size=len(rows)) < chance).astype(np.int64)
        return (-1, 1), (rows[: int(count)], labels[: int(count)]), (rows[int(count) :], labels[int(count) :])
    data = datasets.load(kind)
    if kind != "adult":
        return (-1, 1), data.train, data.test
    bounds: dict[int, Any] = dict.fromkeys(range(data.numbers), (-1, 1))
    sizes = [len(column.values) for column in data.form.inputs.columns.values() if isinstance(column, Category)]
    bounds |= {data.numbers + place: list(range(size + 1)) for place, size in enumerate(sizes)}
    (rows, labels), (others, targets) = data.train, data.test
    train = _decode(rows[: int(count)], data.numbers, sizes), labels[: int(count)]
    return bounds, train, (_decode(others, data.numbers, sizes), targets)


def _decode(rows: NDArray[Any], numbers: int, sizes: list[int]) -> NDArray[Any]:
    """Numbers as they are, and the place of each category's value; a missing value has the last place."""
    found, start = [rows[:, :numbers].astype(object)], numbers
    for size in sizes:
        block = rows[:, start : start + size]
        found.append(np.where(block.any(axis=1), block.argmax(axis=1), size).astype(object)[:, None])
        start += size
    return np.concatenate(found, axis=1)


def default_table(order: Order, records: list[Record]) -> str:
    """One row a table and epsilon, one column a method; the best one is said."""
    about = order.settings[DEFAULTS]
    methods = about["methods"]
    rows: list[tuple[str, ...]] = [("table", "n", "ε", *methods, "best")]
    for name in about["tables"]:
        for epsilon in about["epsilons"]:
            asked = {"data": name, "epsilon": epsilon}
            here = [each for each in records if each.part == DEFAULTS and asked.items() <= each.asked.items()]
            found = {m: [100 * each.found["accuracy"] for each in here if each.asked["method"] == m] for m in methods}
            means = {method: statistics.mean(values) for method, values in found.items() if values}
            if not means:
                continue
            shown = [f"{means[method]:.1f}" if method in means else "–" for method in methods]
            best = max(means, key=lambda method: means[method])
            rows.append((name.partition(" ")[0], f"{here[0].found['examples']:,}", f"{epsilon:g}", *shown, best))
    return markdown_table(rows)
