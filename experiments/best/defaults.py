"""Which method of the linear estimators wins, by number of examples and epsilon: what `method="auto"` implements.

Rows of Adult are the first ones of its training table, scored on its test table; other tables are
split as the package splits them; the made table has five columns of which two count. All methods get the same declared
bounds. diffprivlib is no dependency: where it is not installed, its runs are left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, markdown_table
from numpy.typing import NDArray

from tacit import datasets
from tacit.datasets._columns import Category
from tacit.errors import DataMissing
from tacit.estimators import PrivateLogisticRegression

DEFAULTS = "defaults"
PEER = "diffprivlib"
_DEFAULT = "recipe"
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
    if method == PEER:
        return _score_peer(name, epsilon, seed)
    bounds, train, test = _read(name)
    settings: dict[str, Any] = {"scale": "bounds", "bounds": bounds, "random_state": seed}
    settings["classes"] = range(1 + max(train[1]))
    model = PrivateLogisticRegression(epsilon, delta, method=method, **settings).fit(*train)
    certified = model.guarantee_.epsilon(delta)
    return {"accuracy": float(model.score(*test)), "certified": certified, "examples": len(train[1])}


def _score_peer(name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """diffprivlib's logistic regression on the same encoded rows, with the largest norm that the bounds allow."""
    if find_spec(PEER) is None:
        raise DataMissing(f"{PEER} is not installed: its runs were left out.")
    rows, labels, others, targets, norm = _encode(name)
    model = import_module(f"{PEER}.models").LogisticRegression(epsilon=epsilon, data_norm=norm, random_state=seed)
    accuracy = float(model.fit(rows, labels).score(others, targets))
    return {"accuracy": accuracy, "examples": len(labels), "version": import_module(PEER).__version__}


@lru_cache(maxsize=2)
def _encode(name: str) -> tuple[Any, Any, Any, Any, float]:
    """Numbers in [-1, 1], categories as 0 and 1: rows and labels to train on and to test on, and the largest norm."""
    kind, _, count = name.partition(" ")
    if kind == "made":
        _, train, test = _read(name)
        return *train, *test, math.sqrt(train[0].shape[1])
    data = datasets.load(kind)
    most = int(count) if count else len(data.train[1])
    norm = math.sqrt(data.train[0].shape[1] if data.numbers is None else data.numbers + len(categories(data)))
    return data.train[0][:most], data.train[1][:most], *data.test, norm


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
    sizes = categories(data)
    most = int(count) if count else len(data.train[1])
    (rows, labels), test = (data.train[0][:most], data.train[1][:most]), data.test
    if not sizes:
        return (-1, 1), (rows, labels), test
    bounds: dict[int, Any] = dict.fromkeys(range(data.numbers), (-1, 1))
    bounds |= {data.numbers + place: list(range(size + 1)) for place, size in enumerate(sizes)}
    train = decode(rows, data.numbers, sizes), labels
    return bounds, train, (decode(test[0], data.numbers, sizes), test[1])


def categories(data: Any) -> list[int]:
    """How many values each category of a table has; none where all columns are numbers."""
    columns = getattr(getattr(data.form, "inputs", None), "columns", {})
    return [len(column.values) for column in columns.values() if isinstance(column, Category)]


def decode(rows: NDArray[Any], numbers: int, sizes: list[int]) -> NDArray[Any]:
    """Numbers as they are, and the place of each category's value; a missing value has the last place."""
    found, start = [rows[:, :numbers].astype(object)], numbers
    for size in sizes:
        block = rows[:, start : start + size]
        found.append(np.where(block.any(axis=1), block.argmax(axis=1), size).astype(object)[:, None])
        start += size
    return np.concatenate(found, axis=1)


def default_table(order: Order, records: list[Record]) -> str:
    """One row a table and epsilon, one column a method: means over seeds, for the default with its standard error.

    The last column says whether the default is at most one standard error of the difference behind the best.
    """
    about = order.settings[DEFAULTS]
    methods = about["methods"]
    titles = [f"{method} (default)" if method == _DEFAULT else method for method in methods]
    rows: list[tuple[str, ...]] = [("table", "n", "ε", *titles, "best", "default within a standard error")]
    for name in about["tables"]:
        for epsilon in about["epsilons"]:
            asked = {"data": name, "epsilon": epsilon}
            here = [each for each in records if each.part == DEFAULTS and asked.items() <= each.asked.items()]
            found = {m: [100 * each.found["accuracy"] for each in here if each.asked["method"] == m] for m in methods}
            found = {method: values for method, values in found.items() if values}
            if not found:
                continue
            shown = [_show(found.get(method, []), with_error=method == _DEFAULT) for method in methods]
            best = max(found, key=lambda method: statistics.mean(found[method]))
            size = f"{here[0].found['examples']:,}"
            rows.append((name.partition(" ")[0], size, f"{epsilon:g}", *shown, best, _compare(found, best)))
    return markdown_table(rows)


def _show(values: list[float], *, with_error: bool) -> str:
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {_standard_error(values):.1f}" if with_error and len(values) > 1 else mean


def _standard_error(values: list[float]) -> float:
    """That of the mean; zero for one value, where it is not known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _compare(found: dict[str, list[float]], best: str) -> str:
    """Whether the default is the best, or behind it by at most a standard error of the difference."""
    if _DEFAULT not in found:
        return "–"
    behind = statistics.mean(found[best]) - statistics.mean(found[_DEFAULT])
    allowed = math.hypot(_standard_error(found[best]), _standard_error(found[_DEFAULT]))
    return "yes" if behind <= allowed else f"no, {behind:.1f} behind"
