"""What the automatic recipe reaches at a certified epsilon, beside what was asked of it and what the papers report.

Every number of a recipe follows from public facts. They were chosen once, on training examples that were held out for
that; no test example had a say. The guarantee covers training and what was released to prepare it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, Records, markdown_table
from matplotlib.figure import Figure
from sklearn.metrics import log_loss, roc_auc_score

from tacit.estimators import PrivateClassifier
from tacit.recipes.recipe import auto

from .data import Featured, read
from .defaults import DEFAULTS, default_cells, default_table
from .embeddings import EMBEDDINGS, embedding_cells, embedding_table
from .network import network_cells, network_tables
from .noiseless import accuracy_without_noise
from .preparation import PREPARATION, over_seeds, preparation_cells, preparation_table
from .regression import REGRESSION, regression_cells, regression_table
from .tried import TRIED, tried_cells, tried_table

NO_NOISE = "without noise"


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every data set without noise, and at every epsilon with every seed."""
    for name, about in order.settings["data"].items():
        yield _cell(order, name, {"epsilon": None}, partial(accuracy_without_noise, about=about))
        for epsilon in about["epsilons"]:
            for seed in range(order.settings["seeds"]):
                fit = partial(_fit, about=about, epsilon=epsilon, delta=order.settings["delta"], seed=seed)
                yield _cell(order, name, {"epsilon": epsilon, "seed": seed}, fit)
    yield from preparation_cells(order)
    yield from tried_cells(order)
    yield from default_cells(order)
    yield from embedding_cells(order)
    yield from regression_cells(order)
    yield from network_cells(order)


def _cell(order: Order, name: str, asked: dict[str, Any], make: Any) -> Cell:
    return Cell(name, {**asked, "size": order.size}, lambda: make(read(order, name)))


def _fit(data: Featured, *, about: dict[str, Any], epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    is_table = about["kind"] == "table"
    public = {"shape": about.get("shape"), "features": about.get("features")}
    recipe = auto(about["kind"], population=data.population, epsilon=epsilon, delta=delta, **public)
    model = PrivateClassifier(
        recipe="auto" if is_table else recipe,
        epsilon=epsilon,
        delta=delta,
        shape=about.get("shape"),
        numbers=about.get("numbers"),
        population=data.population,
        classes=np.arange(data.classes),
        random_state=seed,
    )
    model.fit(*data.train)
    return {
        "accuracy": float(model.score(*data.test)),
        **(_score_probabilities(model, *data.test) if is_table and data.classes == 2 else {}),
        "certified": model.guarantee_.epsilon(delta),
        "features": model.recipe_.features,
        "lot_size": model.recipe_.lot_size,
        "steps": model.recipe_.steps,
    }


def _score_probabilities(model: PrivateClassifier, rows: Any, labels: Any) -> dict[str, float]:
    """For two classes: the area under the ROC curve, the log loss, and how far probabilities are from frequencies.

    The last is the mean distance, over ten bins of equal width weighed by their rows.
    """
    chance = model.predict_proba(rows)[:, 1]
    place = np.minimum((10 * chance).astype(int), 9)
    counts = np.bincount(place, minlength=10)
    distances = np.abs(np.bincount(place, chance - labels, minlength=10))
    return {
        "auc": float(roc_auc_score(labels, chance)),
        "log_loss": float(log_loss(labels, chance)),
        "calibration": float(distances.sum() / counts.sum()),
    }


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """What was reached, a row for each data set, in short and in full; then the aims; then what was tried."""
    every = sorted({epsilon for about in order.settings["data"].values() for epsilon in about["epsilons"]})
    epsilons = [f"ε = {epsilon:g}" for epsilon in every]
    names = order.settings["data"]
    short = [("data", *epsilons, NO_NOISE, "the papers"), *(_row(order, records, name, every) for name in names)]
    wanted = [("data", *epsilons), *(_targets(order, name, every) for name in names)]
    return {
        "accuracy": markdown_table(short),
        "full": _full_table(order, records, every),
        "targets": markdown_table(wanted),
        "probabilities": _probability_table(order, records, every),
        PREPARATION: preparation_table(order, records),
        TRIED: tried_table(order, records),
        EMBEDDINGS: embedding_table(order, records),
        DEFAULTS: default_table(order, records),
        REGRESSION: regression_table(order, records),
        **network_tables(order, records),
    }


def _row(order: Order, records: list[Record], name: str, every: list[float]) -> tuple[str, ...]:
    """Mean and standard deviation over seeds at each of its epsilons, in per cent."""
    here = [each for each in records if each.part == name]
    bare = [each.found["accuracy"] for each in here if each.asked["epsilon"] is None]
    asked = order.settings["data"][name]["epsilons"]
    return (
        name,
        *(over_seeds(order, [r for r in here if r.asked["epsilon"] == e]) if e in asked else "" for e in every),
        f"{100 * bare[0]:.1f} %" if bare else "–",
        order.expected["papers"].get(name, "–"),
    )


def _full_table(order: Order, records: list[Record], every: list[float]) -> str:
    """The rows above with processor time, and below each table of two classes its AUC."""
    rows: list[tuple[str, ...]] = [("data", *(f"ε = {e:g}" for e in every), NO_NOISE, "minutes a run", "the papers")]
    for name, about in order.settings["data"].items():
        *found, bare, papers = _row(order, records, name, every)
        here = [each for each in records if each.part == name]
        rows.append((*found, bare, _minutes(here), papers))
        if about["kind"] == "table":
            means = [_mean_of(here, epsilon, "auc") for epsilon in every]
            rows.append((f"{name}, AUC", *means, _mean_of(here, None, "auc") or "–", "", ""))
    return markdown_table(rows)


def _minutes(records: list[Record]) -> str:
    """The least and the most processor time of private runs, in minutes."""
    minutes = [r.seconds / 60 for r in records if r.asked["epsilon"] is not None and r.seconds is not None]
    return f"{min(minutes):.2g} to {max(minutes):.2g}" if minutes else "–"


def _mean_of(records: list[Record], epsilon: float | None, key: str) -> str:
    """The mean of a score over seeds; nothing if there is none."""
    found = [each.found[key] for each in records if each.asked["epsilon"] == epsilon and key in each.found]
    return f"{np.mean(found):.3f}" if found else ""


def _probability_table(order: Order, records: list[Record], every: list[float]) -> str:
    """Tables of two classes: AUC, log loss and calibration error, the means over seeds."""
    rows = []
    for name, about in order.settings["data"].items():
        here = [each for each in records if each.part == name]
        for title, key in (("AUC", "auc"), ("log loss", "log_loss"), ("calibration error", "calibration")):
            if about["kind"] == "table":
                rows.append((f"{name}, {title}", *(_mean_of(here, epsilon, key) for epsilon in every)))
    return markdown_table([("", *(f"ε = {epsilon:g}" for epsilon in every)), *rows])


def _targets(order: Order, name: str, every: list[float]) -> tuple[str, ...]:
    """What was asked of the recipe beforehand, in per cent."""
    wanted = order.expected["wanted"][name]
    return name, *(f"{wanted[f'{e:g}']:g}" if f"{e:g}" in wanted else "" for e in every)


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: one table says it."""
    return {}
