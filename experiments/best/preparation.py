"""Whether it helps to take the private mean off, and to whiten: scored on training examples that are held out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, markdown_table

from tacit.estimators import PrivateClassifier
from tacit.features import Knots
from tacit.recipes.recipe import auto

from .data import Featured, read

PREPARATION = "preparation"
# What is compared, and the heads of their columns.
_FORMS = {
    "none": "as they are",
    "centring": "mean taken off",
    "whitening": "whitened",
    "word weights": "frequent words count less",
}


def preparation_cells(order: Order) -> Iterator[Cell]:
    """Every data set in every form with every seed."""
    about = order.settings[PREPARATION]
    for name in about["data"]:
        if name not in order.settings["data"]:
            continue
        for form in _forms(order, name):
            for seed in range(order.settings["seeds"]):
                asked = {"data": name, "form": form, "epsilon": about["epsilon"], "seed": seed, "size": order.size}
                yield Cell(PREPARATION, asked, partial(_scored, order, name, form, seed))


def _forms(order: Order, name: str) -> tuple[str, ...]:
    is_text = order.settings["data"][name]["kind"] == "text"
    return ("none", "word weights") if is_text else ("none", "centring", "whitening")


def _scored(order: Order, name: str, form: Any, seed: int) -> dict[str, Any]:
    """The recipe but for its preparation, whose share of the budget goes to training where there is none."""
    about, delta, epsilon = (
        order.settings["data"][name],
        order.settings["delta"],
        order.settings[PREPARATION]["epsilon"],
    )
    data = read(order, name)
    train, held_out = _parts(data, order.settings[PREPARATION]["one_in"], about.get("numbers"))
    recipe = auto(about["kind"], population=len(train[1]), epsilon=epsilon, delta=delta, shape=about.get("shape"))
    model = PrivateClassifier(
        recipe=replace(recipe, preparation=form),
        epsilon=epsilon,
        delta=delta,
        shape=about.get("shape"),
        classes=np.arange(data.classes),
        random_state=seed,
    ).fit(*train)
    return {"accuracy": float(model.score(*held_out)), "certified": model.guarantee_.epsilon(delta)}


def _parts(data: Featured, one_in: int, numbers: int | None) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Training examples without one in so many, and these. Not the last ones: clients of Bank come by date."""
    rows, labels = data.train
    if numbers is not None:
        rows = Knots(numbers).fit_transform(rows)
    is_held_out = np.arange(len(labels)) % one_in == one_in - 1
    return (rows[~is_held_out], labels[~is_held_out]), (rows[is_held_out], labels[is_held_out])


def preparation_table(order: Order, records: list[Record]) -> str:
    """One row a data set; what was not run is said."""
    about = order.settings[PREPARATION]
    here = [name for name in about["data"] if name in order.settings["data"]]
    forms = [form for form in _FORMS if any(form in _forms(order, name) for name in here)]
    rows = [(name, *(_found(order, records, name, form) for form in forms)) for name in here]
    return markdown_table([(f"ε = {about['epsilon']:g}", *(_FORMS[form] for form in forms)), *rows])


def _found(order: Order, records: list[Record], name: str, form: str) -> str:
    """Mean and spread; nothing where nothing was planned."""
    if form not in _forms(order, name):
        return ""
    return over_seeds(order, [each for each in records if _is(each, name, form)])


def _is(record: Record, name: str, form: str) -> bool:
    return record.part == PREPARATION and (record.asked["data"], record.asked["form"]) == (name, form)


def over_seeds(order: Order, records: list[Record]) -> str:
    """Mean and standard deviation in per cent, and how many seeds there are if some are missing."""
    if not records:
        return "not run"
    found = [100 * each.found["accuracy"] for each in records]
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    so_far = "" if len(found) == order.settings["seeds"] else f", {len(found)} of {order.settings['seeds']} seeds"
    return f"{statistics.mean(found):.2f}{spread}{so_far}"
