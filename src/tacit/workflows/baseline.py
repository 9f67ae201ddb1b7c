"""The same model trained without privacy, to show what the noise cost. On public data only: it protects nobody.

Few steps and large lots save noise, and are a poor choice without it. So this model does not use the settings of the
private one: one rule for all data and models decides how long it is trained.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from tacit._files import write_atomic
from tacit.datasets import Data
from tacit.gradients.losses import Loss
from tacit.recipes.run import LOSS, PreparedInputs, prepare
from tacit.reports.scores import Score, accuracy_of, predict_outputs
from tacit.training.folder import RunFolder
from tacit.workflows.audit_target import load_target
from tacit.workflows.defaults import find_defaults, network_for
from tacit.workflows.descent import weigh_step
from tacit.workflows.progress import show_status
from tacit.workflows.recipe import RecipeTask
from tacit.workflows.saved import read_settings
from tacit.workflows.scoring import loss_for, score
from tacit.workflows.settings import Settings

HOW = (
    "Without privacy: the same model, trained by Adam without clipping and without noise. Cross-validation over five "
    "parts of the training examples chooses the number of epochs (of 5,000 examples or more, only one part is left "
    "out). Then the model is trained on all training examples, and the running mean of its weights is kept. Test "
    "examples play no part. This model protects nobody."
)
_TRAINING = "Training the same model without privacy"
# For a linear model over rows of norm 1.
_RECIPE_RATE = 0.02
_NO_NOISE = 1e-6
_PARTS, _FEW = 5, 5_000
_EPOCHS_OF_MEAN = 2
_MOST_EPOCHS, _LEAST_EPOCHS = 100, 8
# A bound on time: how many examples are looked at, eight epochs of MNIST.
_MOST_LOOKS = 500_000


def keep_baseline(folder: Path, data_path: Path | None) -> None:
    """Train a model without privacy beside the run in the folder, unless it is there or the data are not public."""
    settings = read_settings(folder)
    run_folder = RunFolder(folder)
    if run_folder.baseline.is_file() or settings.table is not None or settings.side is not None:
        return
    found = _train_recipe(folder, data_path) if settings.recipe is not None else _train_network(settings, data_path)
    write_atomic(run_folder.baseline, json.dumps(found, indent=1).encode(), is_private=False)


def _train_network(settings: Settings, data_path: Path | None) -> dict[str, Any]:
    with show_status("Reading data"):
        data = settings.load(data_path)
    with show_status(_TRAINING):
        return baseline(data, settings.model, seed=0)


def _train_recipe(folder: Path, data_path: Path | None) -> dict[str, Any]:
    """The same linear model over the same features, prepared by what the run released."""
    target = load_target(folder, data_path)
    inputs, labels = target.others
    torch.manual_seed(0)
    with show_status(_TRAINING):
        plain = Plain(target.repeat().model, target.loss, target.members, _RECIPE_RATE)
        return plain.measure(lambda model: accuracy_of(model, inputs.numpy(), labels.numpy()))


def baseline_by_recipe(task: RecipeTask, rows: Any, test_rows: Any, seed: int) -> dict[str, Any]:
    """The score of the recipe's linear model, trained without privacy on its features.

    The private preparation of features, which makes room for noise, is left out: without noise it costs accuracy. Cells
    of a table have no meaning without it, so they get one with hardly any noise.
    """
    torch.manual_seed(seed)
    prepared = PreparedInputs(task.recipe.kind, None, None)
    if task.recipe.layout == "cells":
        prepared, _ = prepare(task.recipe, rows, None, _NO_NOISE, seed)
    inputs, test = prepared.of_features(rows), prepared.of_features(test_rows).numpy()
    model = prepared.model(rows.shape[1], task.data.classes or 2)
    plain = Plain(model, LOSS, (inputs, torch.from_numpy(task.train[1])), _RECIPE_RATE)
    return plain.measure(lambda trained: accuracy_of(trained, test, task.test[1]))


def baseline(data: Data, model_name: str, seed: int) -> dict[str, Any]:
    """The score on the test examples of a model that was trained without privacy."""
    torch.manual_seed(seed)
    train = (torch.from_numpy(data.train[0]), torch.from_numpy(data.train[1]))
    rate = find_defaults(data, model_name).adam_rate
    plain = Plain(network_for(model_name, data), loss_for(data), train, rate)
    return plain.measure(lambda model: score(model, data))


@dataclass(frozen=True, eq=False)
class Plain:
    """A model to be trained by Adam without privacy. `model` itself is not changed."""

    model: nn.Module
    loss: Loss
    train: tuple[Tensor, Tensor]
    rate: float

    def measure(self, score: Callable[[nn.Module], Score]) -> dict[str, Any]:
        """The score of the trained model on test examples, its interval, and how it was trained."""
        began = time.process_time()
        found = score(self.fit())
        return {
            "measure": found.name,
            "final": found.value,
            "interval": found.interval,
            "auc": found.auc,
            "how": HOW,
            "seconds": time.process_time() - began,
        }

    def fit(self) -> nn.Module:
        """The model after as many epochs on all examples as did best on those that were left out."""
        everything = torch.arange(len(self.train[1]))
        learner = _Learner(self, everything)
        for _ in range(self.find_epochs()):
            learner.epoch()
        return learner.answering

    def find_epochs(self) -> int:
        """After how many epochs the loss on examples that were left out is least; the search ends soon after."""
        count = len(self.train[1])
        if count < 2:
            return 1
        parts = torch.randperm(count).chunk(min(_PARTS, count))
        pairs = [
            (_Learner(self, torch.cat([*parts[:place], *parts[place + 1 :]])), left_out)
            for place, left_out in enumerate(parts[: None if count < _FEW else 1])
        ]
        most = min(_MOST_EPOCHS, max(_LEAST_EPOCHS, _MOST_LOOKS // count))
        least, best, done = math.inf, 1, 0
        while done < most and done <= 1.25 * best + 5:
            done += 1
            for learner, _ in pairs:
                learner.epoch()
            now = sum(len(left_out) * self._measure_loss(learner.answering, left_out) for learner, left_out in pairs)
            if now < least:
                least, best = now, done
        return best

    def _measure_loss(self, model: nn.Module, rows: Tensor) -> float:
        inputs, targets = self.train
        return float(self.loss(predict_outputs(model, inputs[rows].numpy()), targets[rows]))


@final
class _Learner:
    """A copy of the model that is trained on some rows, with a running mean of its weights over a few epochs."""

    def __init__(self, plain: Plain, rows: Tensor) -> None:
        self._plain, self._rows = plain, rows
        self._model = copy.deepcopy(plain.model)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=plain.rate, fused=True)
        # Small lots learn most from an epoch; a thousand of them are enough.
        self._size = max(1, min(len(rows) // 8, max(128, len(rows) // 1_000)))
        self._decay, self._done = 1 - self._size / (_EPOCHS_OF_MEAN * max(1, len(rows))), 0
        # The running mean, whose scores vary less than those of the last weights.
        self.answering = copy.deepcopy(self._model)
        self._means: list[Tensor] = list(self.answering.parameters())
        self._weights: list[Tensor] = list(self._model.parameters())

    def epoch(self) -> None:
        """Train once on every row, in a random order."""
        inputs, targets = self._plain.train
        order = self._rows[torch.randperm(len(self._rows))]
        for start in range(0, len(order), self._size):
            lot = order[start : start + self._size]
            self._optimizer.zero_grad()
            torch.autograd.backward(self._plain.loss(self._model(inputs[lot]), targets[lot]))
            self._optimizer.step()
            share = weigh_step(self._decay, self._done) if self._done else 1.0
            # torch's own class for such means takes longer than a step of a small model.
            with torch.no_grad():
                torch._foreach_lerp_(self._means, self._weights, share)
            self._done += 1
