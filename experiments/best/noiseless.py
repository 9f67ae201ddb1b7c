"""The same linear model over the same features, trained without clipping and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tacit.features import KnotsAndCells, PrivateCells, PrivateCentring
from tacit.recipes.run import PreparedInputs

from .data import Featured

_STEPS, _LOT, _RATE, _MOMENTUM = 1_500, 2_000, 10.0, 0.9
# Hardly any noise: the mean itself, as this model is not private.
_NO_NOISE = 1e-6


def accuracy_without_noise(data: Featured, *, numbers: int | None = None) -> dict[str, Any]:
    """Momentum steps on lots in random order; of a table, over ramps and cells of its `numbers`."""
    cells = None if numbers is None else KnotsAndCells(numbers).fit(data.train[0])
    if cells is not None:
        parts = ((cells.transform(rows), labels) for rows, labels in (data.train, data.test))
        data = Featured(*parts, data.classes, data.population)
    rows, labels = data.train
    is_text = not isinstance(rows, np.ndarray)
    mean: PrivateCells | PrivateCentring | None = None
    if cells is not None:
        about = {"cells": cells.cells, "per_row": cells.per_row, "random_state": 0}
        mean = PrivateCells(_NO_NOISE, len(rows), **about).fit(rows)
    elif not is_text and rows.shape[1] > 1_000:
        mean = PrivateCentring(_NO_NOISE, len(rows), random_state=0).fit(rows)
    prepared = PreparedInputs("text" if is_text else "image" if cells is None else "table", None, mean)
    inputs, targets = prepared.of_features(rows), torch.from_numpy(labels)
    model = prepared.model(rows.shape[1], data.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=_MOMENTUM)
    draw = torch.Generator().manual_seed(0)
    for _ in range(_STEPS):
        lot = torch.randint(len(targets), (min(_LOT, len(targets)),), generator=draw)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[lot]), targets[lot]).backward()
        optimizer.step()
    with torch.no_grad():
        pieces = [model(prepared.of_features(data.test[0][i : i + 4096])) for i in range(0, len(data.test[1]), 4096)]
    return {"accuracy": float(np.mean(torch.cat(pieces).argmax(1).numpy() == data.test[1]))}
