"""What else was tried: the recipe with something changed, scored on training examples that are held out.

Seed k holds out every fifth example, beginning with example k, and trains on the others. The recipe is the one for so
many examples, and every release is paid for, as if these were all there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, markdown_table

from tacit.datasets import load_words
from tacit.estimators import PrivateClassifier
from tacit.features import HashedWords, Knots
from tacit.recipes.recipe import GATHERED, Recipe, auto
from tacit.recipes.run import choose_features

from .data import Labels, any_recipe, kept
from .preparation import over_seeds

TRIED = "tried"
_SHIPPED = "as it ships"
_ONE_IN = 5
_READ: dict[str, tuple[Any, Labels]] = {}


@dataclass(frozen=True)
class Change:
    """What differs from the recipe: settings of the features, and numbers of the recipe."""

    features: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


_TEXT = {
    _SHIPPED: Change(),
    "negations as they are": Change({"is_negated": False}),
    "words count once": Change({"weighting": "presence"}),
    "s = 1": Change(recipe={"gathered": 1.0}),
    "pairs of words too, of weight 0.3": Change({"pairs": 0.3}),
    "pairs of words too, of weight 0.6": Change({"pairs": 0.6}),
    "the rule before: negations as they are, words count once, 300 steps, s = 1": Change(
        {"is_negated": False, "weighting": "presence"}, {"steps": 300, "gathered": 1.0}
    ),
}
_TABLE = {
    _SHIPPED: Change(),
    "the rule before: hats of weight 1, 500 steps": Change({"form": "hats", "weight": 1.0}, {"steps": 500}),
    "hats of weight 3": Change({"form": "hats"}),
    "ramps of weight 1": Change({"weight": 1.0}),
    "150 steps": Change(recipe={"steps": 150}),
    "500 steps": Change(recipe={"steps": 500}),
    "s = 1": Change(recipe={"gathered": 1.0}),
    "C = 0.1": Change(recipe={"clip_norm": 0.1}),
}
_IMAGE = {_SHIPPED: Change(), "set upright": Change({"is_upright": True})}
_HANDWRITING = {
    _SHIPPED: Change(),
    "C = 0.1": Change(recipe={"clip_norm": 0.1}),
    "not set upright": Change({"is_upright": False}),
}
_CHANGES = {"text": _TEXT, "table": _TABLE, "image": _IMAGE, "handwriting": _HANDWRITING}


def tried_cells(order: Order) -> Iterator[Cell]:
    """Every change of every data set, at every budget, with every seed."""
    for name, epsilon in _columns(order):
        for change in _changes(order, name):
            for seed in range(order.settings["seeds"]):
                asked = {"data": name, "change": change, "epsilon": epsilon, "seed": seed, "size": order.size}
                yield Cell(TRIED, asked, partial(_scored, order, name, change, epsilon, seed))


def _columns(order: Order) -> list[tuple[str, float]]:
    """Data sets with the budgets at which changes were tried."""
    wanted = order.settings[TRIED]
    return [(name, epsilon) for name in wanted if name in order.settings["data"] for epsilon in wanted[name]]


def _changes(order: Order, name: str) -> dict[str, Change]:
    return _CHANGES[order.settings["data"][name]["kind"]]


def _scored(order: Order, name: str, change: str, epsilon: float, seed: int) -> dict[str, Any]:
    about, delta, changed = order.settings["data"][name], order.settings["delta"], _changes(order, name)[change]
    rows, labels = _features(order, name, changed)
    is_held_out = np.arange(len(labels)) % _ONE_IN == seed % _ONE_IN
    recipe = auto(about["kind"], population=int(np.sum(~is_held_out)), epsilon=epsilon, delta=delta)
    model = PrivateClassifier(
        recipe=with_changes(recipe, epsilon, delta, **changed.recipe),
        epsilon=epsilon,
        delta=delta,
        shape=about.get("shape"),
        classes=np.unique(labels),
        random_state=seed,
    ).fit(rows[~is_held_out], labels[~is_held_out])
    accuracy = float(model.score(rows[is_held_out], labels[is_held_out]))
    return {"accuracy": accuracy, "certified": model.guarantee_.epsilon(delta)}


def with_changes(recipe: Recipe, epsilon: float, delta: float, **changes: Any) -> Recipe:
    """The recipe with other steps, clip norm, preparation or gathered noise; the last stays as it is if not named."""
    if "steps" in changes:
        recipe = recipe.with_steps(changes["steps"], epsilon, delta)
    clip_norm = changes.get("clip_norm", recipe.clip_norm)
    longer = changes.get("gathered", GATHERED[recipe.kind]) / GATHERED[recipe.kind] * recipe.clip_norm / clip_norm
    return replace(
        recipe,
        preparation=changes.get("preparation", recipe.preparation),
        clip_norm=clip_norm,
        learning_rate=recipe.learning_rate * longer,
    )


def _features(order: Order, name: str, change: Change) -> tuple[Any, Labels]:
    """Features of the training examples, with their labels; those of the last call are kept."""
    about, most = order.settings["data"][name], order.settings["most_rows"]
    key = f"{name} {most} {change.features}"
    if key not in _READ:
        _READ.clear()
        if about["kind"] == "text":
            texts, labels = load_words(about["data"])[0]
            step = max(1, len(labels) // most)
            _READ[key] = HashedWords(**change.features).of_words(texts[::step]), labels[::step]
        elif about["kind"] == "table":
            rows, labels = order.load(about["data"]).train
            _READ[key] = Knots(about["numbers"], **change.features).fit_transform(rows[:most]), labels[:most]
        else:
            made = choose_features(any_recipe(about["kind"]), tuple(about["shape"]), 0).set_params(**change.features)
            rows, labels = order.load(about["data"]).train
            _READ[key] = kept(about["data"], made, rows[:most]), labels[:most]
    return _READ[key]


def tried_table(order: Order, records: list[Record]) -> str:
    """One row a change, one column a data set and budget."""
    columns = _columns(order)
    changes = list(dict.fromkeys(change for name, _ in columns for change in _changes(order, name)))
    head = ("", *(f"{name}, ε = {epsilon:g}" for name, epsilon in columns))
    rows = [(change, *(_found(order, records, change, *column) for column in columns)) for change in changes]
    return markdown_table([head, *rows])


def _found(order: Order, records: list[Record], change: str, name: str, epsilon: float) -> str:
    """Mean and spread; nothing where nothing was planned."""
    if change not in _changes(order, name):
        return ""
    asked = {"data": name, "change": change, "epsilon": epsilon}
    return over_seeds(order, [each for each in records if each.part == TRIED and asked.items() <= each.asked.items()])
