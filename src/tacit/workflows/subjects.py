"""From a run folder to what is attacked: the model, its examples as it takes them, and its training made anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy import sparse
from torch import Tensor, nn

from tacit.audit import Training
from tacit.cli.output import working
from tacit.datasets import Data
from tacit.errors import CannotResume
from tacit.models import is_own_model
from tacit.recipes.recipe import Recipe
from tacit.recipes.run import LOSS, Prepared, RecipePlan, begin_by_recipe, make_optimizer, restore_prepared
from tacit.training import checkpoint
from tacit.training.plan import Plan, Schedule
from tacit.training.run import PrivateRun
from tacit.workflows.auditing import Pair, Shadowed, Subject
from tacit.workflows.descent import Descent, gradients_for
from tacit.workflows.recipe_task import Task, task_of
from tacit.workflows.scoring import loss_for, network_for, optimizer_for
from tacit.workflows.settings import MODEL, Settings


def subject_in(folder: Path, data_path: Path | None) -> Subject:
    """What `tacit train` left in the folder; `CannotResume` where it left nothing that can be read."""
    with working("Reading the run"):
        settings = Settings.read(folder)
        tree = checkpoint.read(folder)
        data = settings.load(data_path)
    if settings.recipe is not None:
        return _by_recipe(folder, task_of(data, settings, data_path), tree)
    trained = partial(_trained, settings.model, data, tree["model"])
    plan: Plan = tree["plan"]
    return Subject(
        folder,
        settings,
        _handed_out(folder, settings, trained(), tree),
        loss_for(data),
        _tensors(data.train),
        _tensors(data.test),
        lambda: _training(settings, data, plan, data.train),
        lambda: _shadowed(settings, data, plan),
        trained if is_own_model(settings.model) else None,
    )


def _trained(name: str, data: Data, weights: dict[str, Tensor]) -> nn.Module:
    model = network_for(name, data)
    model.load_state_dict(weights)
    return model


def _handed_out(folder: Path, settings: Settings, model: nn.Module, tree: dict[str, Any]) -> nn.Module:
    """The model as whoever is given it has it: model.safetensors; of a stopped run, what that would hold by now."""
    descent = Descent(model, settings)
    checkpoint.load_part("running mean of the weights", descent.mean, tree["scheduler"])
    answering = descent.answering
    if (folder / MODEL).is_file():
        try:
            checkpoint.load_model(answering, load_file(folder / MODEL))
        except (SafetensorError, OSError) as error:
            raise CannotResume(f"{folder / MODEL} cannot be read as a model: {error}.") from error
    return answering


def _tensors(part: Pair) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(part[0]), torch.from_numpy(part[1])


def _training(settings: Settings, data: Data, plan: Plan, examples: Any) -> Training:
    schedule = Schedule(plan.schedule.multiplier or None, plan.schedule.lot_size or None)
    return Training(
        network_for(settings.model, data),
        loss_for(data),
        examples,
        plan.mechanism,
        plan.sampling,
        plan.steps,
        lambda model: optimizer_for(settings.method, model, settings.learning_rate, settings.momentum),
        schedule,
        settings.micro_batch,
    )


@contextmanager
def _shadowed(settings: Settings, data: Data, plan: Plan) -> Iterator[Shadowed]:
    inputs, targets = (np.concatenate(pair) for pair in zip(data.train, data.test, strict=True))
    # A process is sent the examples to train on apart from what it knows about them.
    nothing = inputs[:0], targets[:0]
    yield ShadowTraining(settings, replace(data, train=nothing, test=nothing), plan), (inputs, targets)


@dataclass(frozen=True, eq=False)
class ShadowTraining:
    """Train as the run did, on other examples: the weights that it would hand out, or their running mean.

    Importable, so that other processes can run it.
    """

    settings: Settings
    about: Data
    plan: Plan

    def __call__(self, examples: Any) -> nn.Module:
        training = _training(self.settings, self.about, self.plan, examples)
        descent = Descent(training.model, self.settings)
        run = PrivateRun(
            training.model,
            training.loss,
            data=training.data,
            mechanism=training.mechanism,
            sampling=training.sampling,
            steps=training.steps,
            schedule=training.schedule,
            micro_batch=training.micro_batch,
            gradients=gradients_for(self.settings),
        )
        for lot in run:
            run.backward(lot)
            descent.step()
        return descent.answering


def _by_recipe(folder: Path, task: Task, tree: dict[str, Any]) -> Subject:
    arrays = {name: value.numpy() for name, value in tree["prepared"].items()}
    cost = tree.get("preparation_event")
    prepared = restore_prepared(task.recipe, task.features, task.plan.multipliers[0], arrays, cost)
    rows = task.rows()
    if arrays and rows[0].shape[1] != len(arrays["mean"]):
        raise CannotResume(
            f"{folder} was trained on {len(arrays['mean'])} features, and this version of tacit makes "
            f"{rows[0].shape[1]} of the same data. Audit it with the version that trained it, or train again."
        )
    members, others = (
        (prepared.of_features(part), torch.from_numpy(labels))
        for part, labels in zip(rows, (task.train[1], task.test[1]), strict=True)
    )
    anew = partial(prepared.model, rows[0].shape[1], task.data.classes or 2)
    model = anew()
    model.load_state_dict(tree["model"])
    return Subject(
        folder,
        task.settings,
        model,
        LOSS,
        members,
        others,
        lambda: _recipe_training(task.recipe, prepared, anew(), members, tree["plan"]),
        lambda: _recipe_shadowed(task, rows),
    )


def _recipe_training(recipe: Recipe, prepared: Prepared, model: nn.Module, members: Pair, plan: Plan) -> Training:
    """The steps again, on rows that are prepared by what was released; that is not released again."""
    mechanism, sampling = plan.mechanism, plan.sampling
    return Training(
        model, LOSS, members, mechanism, sampling, plan.steps, partial(make_optimizer, recipe), before=prepared.event
    )


@contextmanager
def _recipe_shadowed(task: Task, rows: tuple[Any, Any]) -> Iterator[Shadowed]:
    """Examples by their numbers. Their features are kept in a file, which all processes read and none holds."""
    labels = np.concatenate([task.train[1], task.test[1]])
    settings = (task.plan, task.data.classes or 2, task.image_shape)
    with TemporaryDirectory(prefix="tacit-audit-") as passing:
        where = Path(passing) / ("rows.npz" if sparse.issparse(rows[0]) else "rows.npy")
        if sparse.issparse(rows[0]):
            sparse.save_npz(where, sparse.vstack(rows, format="csr"), compressed=False)
        else:
            whole = np.lib.format.open_memmap(
                where, mode="w+", dtype=rows[0].dtype, shape=(len(labels), rows[0].shape[1])
            )
            whole[: len(rows[0])], whole[len(rows[0]) :] = rows
            whole.flush()
        yield RecipeShadow(where, *settings), (np.arange(len(labels)), labels)


@dataclass(frozen=True, eq=False)
class RecipeShadow:
    """Train by the same recipe, its preparation included, on other examples. Importable, as `ShadowTraining` is."""

    rows: Path
    plan: RecipePlan
    classes: int
    shape: tuple[int, ...] | None

    def __call__(self, examples: Any) -> nn.Module:
        numbers, labels = examples
        rows = _rows_in(self.rows)
        begun = begin_by_recipe(
            self.plan,
            rows[numbers],
            labels,
            features=None,
            classes=self.classes,
            seed=None,
            shape=self.shape,
        )
        trained = begun.finish()
        return OfNumbers(trained.model, trained.prepared, rows)


class OfNumbers(nn.Module):
    """A model of examples that are given by their numbers."""

    def __init__(self, model: nn.Module, prepared: Prepared, rows: Any) -> None:
        super().__init__()
        self.model, self._prepared, self._rows = model, prepared, rows

    def forward(self, numbers: Tensor) -> Tensor:
        """[examples, classes]."""
        found: Tensor = self.model(self._prepared.of_features(self._rows[numbers.numpy()]))
        return found


def _rows_in(path: Path) -> Any:
    return sparse.load_npz(path) if path.suffix == ".npz" else np.load(path, mmap_mode="r")
