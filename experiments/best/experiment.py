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

from tacit.estimators import PrivateClassifier
from tacit.recipes.recipe import auto

from .data import Featured, read
from .network import network_cells, network_tables
from .noiseless import accuracy_without_noise
from .preparation import PREPARATION, over_seeds, preparation_cells, preparation_table
from .tried import TRIED, tried_cells, tried_table

NO_NOISE = "without noise"


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every data set without noise, and at every epsilon with every seed."""
    for name, about in order.settings["data"].items():
        yield _cell(order, name, {"epsilon": None}, accuracy_without_noise)
        for epsilon in about["epsilons"]:
            for seed in range(order.settings["seeds"]):
                fit = partial(_fit, about=about, epsilon=epsilon, delta=order.settings["delta"], seed=seed)
                yield _cell(order, name, {"epsilon": epsilon, "seed": seed}, fit)
    yield from preparation_cells(order)
    yield from tried_cells(order)
    yield from network_cells(order)


def _cell(order: Order, name: str, asked: dict[str, Any], make: Any) -> Cell:
    return Cell(name, {**asked, "size": order.size}, lambda: make(read(order, name)))


def _fit(data: Featured, *, about: dict[str, Any], epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    recipe = auto(about["kind"], population=data.population, epsilon=epsilon, delta=delta)
    classes = np.arange(data.classes)
    model = PrivateClassifier(
        recipe=recipe, epsilon=epsilon, delta=delta, shape=about.get("shape"), classes=classes, random_state=seed
    )
    model.fit(*data.train)
    return {
        "accuracy": float(model.score(*data.test)),
        "certified": model.guarantee_.epsilon(delta),
        "lot_size": recipe.lot_size,
        "steps": recipe.steps,
    }


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """What was reached, a row for each data set; then the targets and how long a run takes; then what was tried."""
    every = sorted({epsilon for about in order.settings["data"].values() for epsilon in about["epsilons"]})
    epsilons = [f"ε = {epsilon:g}" for epsilon in every]
    names = order.settings["data"]
    reached = [("data", *epsilons, NO_NOISE, "the papers"), *(_row(order, records, name, every) for name in names)]
    wanted = [("data", *epsilons, "minutes a run"), *(_targets(order, records, name, every) for name in names)]
    return {
        "accuracy": markdown_table(reached),
        "targets": markdown_table(wanted),
        PREPARATION: preparation_table(order, records),
        TRIED: tried_table(order, records),
        **network_tables(order, records),
    }


def _row(order: Order, records: list[Record], name: str, every: list[float]) -> tuple[str, ...]:
    """Mean and standard deviation over seeds at each epsilon with a target, in per cent."""
    here = [each for each in records if each.part == name]
    bare = [each.found["accuracy"] for each in here if each.asked["epsilon"] is None]
    wanted = order.expected["wanted"][name]
    return (
        name,
        *(over_seeds(order, [r for r in here if r.asked["epsilon"] == e]) if f"{e:g}" in wanted else "" for e in every),
        f"{100 * bare[0]:.1f} %" if bare else "–",
        order.expected["papers"].get(name, "–"),
    )


def _targets(order: Order, records: list[Record], name: str, every: list[float]) -> tuple[str, ...]:
    """What was asked of the recipe beforehand, in per cent, and the processor time of its private runs."""
    private = [each for each in records if each.part == name and each.asked["epsilon"] is not None]
    minutes = [each.seconds / 60 for each in private if each.seconds is not None]
    wanted = order.expected["wanted"][name]
    time = f"{min(minutes):.2g} to {max(minutes):.2g}" if minutes else "–"
    return name, *(f"{wanted[f'{e:g}']:g}" if f"{e:g}" in wanted else "" for e in every), time


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: one table says it."""
    return {}
