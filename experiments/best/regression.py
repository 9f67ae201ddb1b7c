"""Linear regression by recipe beside published private methods, by R² on rows that were not trained on.

diabetes comes with scikit-learn; of Adult, the hours of work per week are predicted from the other columns; the made
table is Friedman's (1991), with five columns of ten that count. All methods get the same rows in [-1, 1] and the same
bounds of rows and targets. The recipe and AdaSSP protect one example added or removed, the others one replaced.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, markdown_table
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from tacit import datasets
from tacit.errors import DataMissing
from tacit.estimators import PrivateLinearRegression

from .defaults import categories, decode

REGRESSION = "regression"
_RECIPE, _PEER, _ADASSP, _PLAIN = "recipe", "diffprivlib", "AdaSSP", "least squares without privacy"
# AdaSSP's probability of failure.
_DOUBT = 0.05
Matrix = NDArray[np.float64]


def regression_cells(order: Order) -> Iterator[Cell]:
    """Every table, epsilon, method and seed; each seed is another fold or draw of noise."""
    about = order.settings[REGRESSION]
    for name in about["tables"]:
        for epsilon in about["epsilons"]:
            for method in (*about["methods"], _PLAIN):
                for seed in range(about["seeds"]):
                    asked = {"data": name, "epsilon": epsilon, "method": method, "seed": seed, "size": order.size}
                    score = partial(_score, name, epsilon, method, seed, order.settings["delta"])
                    if method != _PLAIN or epsilon == about["epsilons"][0]:
                        yield Cell(REGRESSION, asked, score)


def _score(name: str, epsilon: float, method: str, seed: int, delta: float) -> dict[str, Any]:
    """R² on one fifth, trained on the other four; seed k holds out every fifth row, beginning with row k."""
    table = _read(name)
    rows, targets = table.encoded, table.targets
    is_held_out = np.arange(len(targets)) % 5 == seed % 5
    train, test = (rows[~is_held_out], targets[~is_held_out]), (rows[is_held_out], targets[is_held_out])
    about: dict[str, Any] = {"examples": len(train[1])}
    if method == _PLAIN:
        predicted = LinearRegression().fit(*train).predict(test[0])
    elif method == _ADASSP:
        predicted = _predict_adassp(*train, test[0], table.square + 1, epsilon=epsilon, delta=delta, seed=seed)
    elif method == _PEER:
        if find_spec(_PEER) is None:
            raise DataMissing(f"{_PEER} is not installed: its runs were left out.")
        bounds: dict[str, Any] = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
        model = import_module(f"{_PEER}.models").LinearRegression(epsilon=epsilon, random_state=seed, **bounds)
        predicted = np.clip(model.fit(*train).predict(test[0]), -1, 1)
    else:
        declared: dict[str, Any] = {"scale": "bounds", "bounds": table.bounds, "target_bound": 1.0}
        ours = PrivateLinearRegression(epsilon, delta, method=method, random_state=seed, **declared)
        ours.fit(table.raw[~is_held_out], train[1])
        predicted = np.clip(ours.predict(table.raw[is_held_out]), -1, 1)
        about["certified"] = ours.guarantee_.epsilon(delta)
    return {"r2": float(r2_score(test[1], predicted)), **about}


def _predict_adassp(
    rows: Matrix, targets: Matrix, others: Matrix, square: float, *, epsilon: float, delta: float, seed: int
) -> Matrix:
    """Adaptive sufficient statistics perturbation (Wang 2018, algorithm 2), with a column of 1 for the intercept.

    `square` is the largest squared norm of a row with that column; targets are within [-1, 1].
    """
    rng = np.random.default_rng(seed)
    x, new = (np.column_stack([part, np.ones(len(part))]) for part in (rows, others))
    columns, log = x.shape[1], math.log(6 / delta)
    noise = math.sqrt(log) / (epsilon / 3)
    least = float(np.linalg.eigvalsh(x.T @ x)[0]) + noise * square * rng.normal() - log / (epsilon / 3) * square
    wanted = math.sqrt(columns * log * math.log(2 * columns**2 / _DOUBT)) * square / (epsilon / 3)
    ridge = max(0.0, wanted - max(least, 0.0))
    upper = np.triu(rng.normal(size=(columns, columns)))
    moments = x.T @ x + noise * square * (upper + np.triu(upper, 1).T)
    products = x.T @ targets + noise * math.sqrt(square) * rng.normal(size=columns)
    found = np.linalg.solve(moments + ridge * np.eye(columns), products)
    return np.asarray(np.clip(new @ found, -1, 1))


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows as they are declared and encoded, targets in [-1, 1], and the largest squared norm of an encoded row."""

    bounds: Any
    raw: Any
    encoded: Matrix
    targets: Matrix
    square: float


@lru_cache(maxsize=2)
def _read(name: str) -> _Table:
    kind, _, count = name.partition(" ")
    if kind == "made":
        rows, values = make_friedman1(int(count), n_features=10, noise=1.0, random_state=0)
        scaled = 2 * rows - 1
        return _Table((-1, 1), scaled, scaled, _scale(values, 0.0, 30.0), 10.0)
    data = datasets.load(kind)
    if kind == "diabetes":
        rows, targets = (np.concatenate(parts).astype(np.float64) for parts in zip(data.train, data.test, strict=True))
        return _Table((-1, 1), rows, rows, _scale(targets[:, 0], 0.0, 1.0), float(rows.shape[1]))
    assert data.numbers is not None
    rows, sizes = data.train[0][: int(count)].astype(np.float64), categories(data)
    # The hours are the last of Adult's numbers.
    place = data.numbers - 1
    others = np.delete(rows, place, axis=1)
    raw = decode(others, place, sizes)
    bounds: dict[int, Any] = dict.fromkeys(range(place), (-1, 1))
    bounds |= {place + each: list(range(size + 1)) for each, size in enumerate(sizes)}
    return _Table(bounds, raw, others, rows[:, place], float(place + len(sizes)))


def _scale(values: Any, low: float, high: float) -> Matrix:
    """From declared bounds to [-1, 1]; values beyond are moved to the nearer one."""
    return np.asarray(2 * (np.clip(values, low, high) - low) / (high - low) - 1, dtype=np.float64)


def regression_table(order: Order, records: list[Record]) -> str:
    """One row a table and epsilon, one column a method: means over five folds."""
    about = order.settings[REGRESSION]
    methods = about["methods"]
    rows: list[tuple[str, ...]] = [("table", "n", "ε", *methods, _PLAIN)]
    for name in about["tables"]:
        here = [each for each in records if each.part == REGRESSION and each.asked["data"] == name]
        plain = _show([each.found["r2"] for each in here if each.asked["method"] == _PLAIN])
        for epsilon in about["epsilons"]:
            now = [each for each in here if each.asked["epsilon"] == epsilon and each.asked["method"] != _PLAIN]
            if now:
                found = [[each.found["r2"] for each in now if each.asked["method"] == method] for method in methods]
                size = f"{now[0].found['examples']:,}"
                rows.append((name.partition(" ")[0], size, f"{epsilon:g}", *map(_show, found), plain))
    return markdown_table(rows)


def _show(values: list[float]) -> str:
    if not values:
        return "–"
    mean = statistics.mean(values)
    return f"{mean:.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 and abs(mean) < 10 else f"{mean:.2g}"
