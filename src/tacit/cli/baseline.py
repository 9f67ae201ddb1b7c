"""The same model without privacy: what the noise has cost. On public data only, for it tells about every example."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tacit.cli.networks import Score, accuracy_of, loss_for, network_for, score
from tacit.cli.output import working
from tacit.cli.recipes import recipe_for
from tacit.cli.settings import Settings
from tacit.report.run import BASELINE, wilson

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.gradients.losses import Loss

_HOW = "The same model, trained with Adam on as many lots of the same size, without clipping and without noise."
_WORKING = "Training the same model without privacy"
# For a linear model over rows of norm 1.
_RECIPE_RATE = 0.02
_MOST_SCORES = 100


def keep_baseline(folder: Path, data_path: Path | None) -> None:
    """Train a model without privacy beside the run in the folder, unless it is there or the data are not public."""
    settings = Settings.read(folder)
    if (folder / BASELINE).is_file() or settings.table is not None:
        return
    found = _of_recipe(folder, data_path) if settings.recipe is not None else _of_network(settings, data_path)
    (folder / BASELINE).write_text(json.dumps(found, indent=1), encoding="utf-8")


def _of_network(settings: Settings, data_path: Path | None) -> dict[str, Any]:
    with working("Reading data"):
        data = settings.load(data_path)
    with working(_WORKING):
        return baseline(data, settings.model, settings.lot_size, settings.steps, seed=0)


def _of_recipe(folder: Path, data_path: Path | None) -> dict[str, Any]:
    """The same linear model over the same features, prepared by what the run released."""
    from tacit.cli.subjects import subject_in

    subject = subject_in(folder, data_path)
    again, (inputs, labels) = subject.repeated(), subject.others

    def scored() -> Score:
        return accuracy_of(again.model, inputs.numpy(), labels.numpy())

    torch.manual_seed(0)
    with working(_WORKING):
        plain = Plain(again.model, subject.loss, subject.members, _RECIPE_RATE)
        return plain.trained(again.sampling.lot_size, again.steps, scored, len(labels))


def baseline(data: Data, model_name: str, lot_size: float, steps: int, seed: int) -> dict[str, Any]:
    """Scores on the test examples, by step, of a model that was trained without privacy."""
    torch.manual_seed(seed)
    model = network_for(model_name, data)
    train = (torch.from_numpy(data.train[0]), torch.from_numpy(data.train[1]))
    plain = Plain(model, loss_for(data), train, recipe_for(data).adam_rate)
    return plain.trained(lot_size, steps, lambda: score(model, data), len(data.test[1]))


@dataclass(frozen=True, eq=False)
class Plain:
    """A model to be trained by Adam, on lots in a random order, as if there were nothing to hide."""

    model: nn.Module
    loss: Loss
    train: tuple[Tensor, Tensor]
    rate: float

    def trained(self, lot_size: float, steps: int, scored: Callable[[], Score], tested: int) -> dict[str, Any]:
        """Scores on so many test examples, by step, and how they came about."""
        began = time.process_time()
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.rate)
        inputs, targets = self.train
        scores = []
        size = max(1, min(round(lot_size), len(targets)))
        per_epoch = max(1, len(targets) // size)
        between = max(per_epoch, steps // _MOST_SCORES)
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(targets))
            lot = order[step % per_epoch * size : (step % per_epoch + 1) * size]
            optimizer.zero_grad()
            torch.autograd.backward(self.loss(self.model(inputs[lot]), targets[lot]))
            optimizer.step()
            if (step + 1) % between == 0 or step + 1 == steps:
                scores.append((step + 1, scored()))
        name, final = scores[-1][1].name, scores[-1][1].value
        return {
            "measure": name,
            "final": final,
            "interval": wilson(final, tested) if name == "accuracy" else None,
            "by_step": [[step, one.value] for step, one in scores],
            "how": _HOW,
            "seconds": time.process_time() - began,
        }
