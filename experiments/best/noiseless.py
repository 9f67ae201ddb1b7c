"""The same linear model over the same features, trained without clipping and noise.

The number of steps is the one that was the most accurate on every fifth training example, which were held out for that;
then all are trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from tacit.features import KnotsAndCells, PrivateCells, PrivateCentring
from tacit.recipes.run import PreparedInputs, prepare

from .data import Featured, any_recipe

_STEPS, _LOT, _RATE, _MOMENTUM = (50, 150, 500, 1_500), 2_000, 10.0, 0.9
_ONE_IN, _PIECE = 5, 4_096
# Hardly any noise: the mean itself, as this model is not private.
_NO_NOISE = 1e-6


def accuracy_without_noise(data: Featured, *, about: dict[str, Any]) -> dict[str, Any]:
    """Momentum steps on lots in random order; of a table, over ramps and cells of its numbers."""
    numbers = about.get("numbers")
    cells = None if numbers is None else KnotsAndCells(numbers).fit(data.train[0])
    if cells is not None:
        parts = ((cells.transform(rows), labels) for rows, labels in (data.train, data.test))
        data = Featured(*parts, data.classes, data.population)
    rows, labels = data.train
    prepared = _prepare(rows, about, cells)
    inputs = prepared.of_features(rows)
    is_held_out = np.arange(len(labels)) % _ONE_IN == 0
    held_out = np.flatnonzero(is_held_out), labels[is_held_out]
    scored = {}
    for steps, model in _train(prepared, inputs, labels, np.flatnonzero(~is_held_out), rows.shape[1], data.classes):
        scored[steps] = _accuracy(_score(model, inputs, held_out[0]), held_out[1])
    best = max(scored, key=lambda steps: scored[steps])
    trained = _train(prepared, inputs, labels, np.arange(len(labels)), rows.shape[1], data.classes)
    model = next(model for steps, model in trained if steps == best)
    others = prepared.of_features(data.test[0])
    scores = _score(model, others, np.arange(len(others)))
    found = {"accuracy": _accuracy(scores, data.test[1]), "steps": best}
    if numbers is not None and data.classes == 2:
        margins = scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0)
        found["auc"] = float(roc_auc_score(data.test[1], margins))
    return found


def _train(
    prepared: PreparedInputs, inputs: torch.Tensor, labels: Any, chosen: Any, columns: int, classes: int
) -> Iterator[tuple[int, torch.nn.Module]]:
    """Train on the chosen rows, with a pause after each of so many steps."""
    model, targets = prepared.model(columns, classes), torch.from_numpy(labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=_MOMENTUM)
    draw, rows = torch.Generator().manual_seed(0), torch.from_numpy(chosen)
    for step in range(1, max(_STEPS) + 1):
        lot = rows[torch.randint(len(rows), (min(_LOT, len(rows)),), generator=draw)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[lot]), targets[lot]).backward()
        optimizer.step()
        if step in _STEPS:
            yield step, model


def _score(model: torch.nn.Module, inputs: torch.Tensor, chosen: Any) -> Any:
    with torch.no_grad():
        pieces = [model(inputs[chosen[start : start + _PIECE]]) for start in range(0, len(chosen), _PIECE)]
    return torch.cat(pieces).numpy()


def _accuracy(scores: Any, labels: Any) -> float:
    return float(np.mean(scores.argmax(1) == labels))


def _prepare(rows: Any, about: dict[str, Any], cells: KnotsAndCells | None) -> PreparedInputs:
    """As the recipe prepares rows, but without noise; of other images than those in patches, the mean alone."""
    kind, shape = about["kind"], tuple(about["shape"]) if "shape" in about else None
    recipe = replace(any_recipe(kind, shape, about.get("features")), population=rows.shape[0])
    if recipe.layout in ("patches", "words"):
        return prepare(recipe, rows, None, _NO_NOISE, 0, shape=shape)[0]
    mean: PrivateCells | PrivateCentring | None = None
    if cells is not None:
        settings = {"cells": cells.cells, "per_row": cells.per_row, "random_state": 0}
        mean = PrivateCells(_NO_NOISE, len(rows), **settings).fit(rows)
    elif rows.shape[1] > 1_000:
        mean = PrivateCentring(_NO_NOISE, len(rows), random_state=0).fit(rows)
    return PreparedInputs("image" if cells is None else "table", None, mean)
