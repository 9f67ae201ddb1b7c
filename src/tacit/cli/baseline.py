"""The same model without privacy: what the noise has cost. On public data only, for it tells about every example."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tacit.cli.networks import loss_for, network_for, score
from tacit.cli.output import working
from tacit.cli.recipes import recipe_for
from tacit.cli.settings import Settings
from tacit.report.run import BASELINE, wilson

if TYPE_CHECKING:
    from tacit.datasets import Data

_HOW = "The same model, trained with Adam on as many lots of the same size, without clipping and without noise."


def keep_baseline(folder: Path, data_path: Path | None) -> None:
    """Train a model without privacy beside the run in the folder, unless it is there or the data are not public."""
    settings = Settings.read(folder)
    if (folder / BASELINE).is_file() or settings.table is not None:
        return
    with working("Reading data"):
        data = settings.load(data_path)
    with working("Training the same model without privacy"):
        found = baseline(data, settings.model, settings.lot_size, settings.steps, seed=0)
    (folder / BASELINE).write_text(json.dumps(found, indent=1), encoding="utf-8")


def baseline(data: Data, model_name: str, lot_size: float, steps: int, seed: int) -> dict[str, Any]:
    """Scores on the test examples, by step, of a model that was trained without privacy."""
    began = time.process_time()
    torch.manual_seed(seed)
    model = network_for(model_name, data)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe_for(data).adam_rate)
    inputs, targets = (torch.from_numpy(part) for part in data.train)
    loss, scores = loss_for(data), []
    size = max(1, min(round(lot_size), len(targets)))
    per_epoch = max(1, len(targets) // size)
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(targets))
        lot = order[step % per_epoch * size : (step % per_epoch + 1) * size]
        optimizer.zero_grad()
        torch.autograd.backward(loss(model(inputs[lot]), targets[lot]))
        optimizer.step()
        if (step + 1) % per_epoch == 0 or step + 1 == steps:
            scores.append((step + 1, score(model, data)))
    name, final = scores[-1][1].name, scores[-1][1].value
    return {
        "measure": name,
        "final": final,
        "interval": wilson(final, len(data.test[1])) if name == "accuracy" else None,
        "by_step": [[step, one.value] for step, one in scores],
        "how": _HOW,
        "seconds": time.process_time() - began,
    }
