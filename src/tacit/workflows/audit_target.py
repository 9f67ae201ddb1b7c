"""What an audit attacks: the model of a run, its examples as the model takes them, and its training repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy import sparse
from torch import Tensor, nn

from tacit.accounting.events import covers
from tacit.audit import (
    AuditReport,
    NeighbourTest,
    ReleaseTest,
    Roc,
    Runs,
    Training,
    audit_training,
    infer_membership,
    neighbour_test,
    record_audit,
    release_test,
    roc,
    train_shadows,
)
from tacit.audit.membership import ScoreName, score_all
from tacit.datasets import Data
from tacit.errors import CannotResume
from tacit.gradients.losses import Loss
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.ledger.storage import storage_at
from tacit.models import is_own_model
from tacit.recipes.recipe import RecipePlan
from tacit.recipes.run import LOSS, PreparedInputs, begin_by_recipe, make_optimizer, restore_prepared
from tacit.training.fit import fit
from tacit.training.folder import RunFolder, load_model, load_part, read_checkpoint
from tacit.training.people import Owners
from tacit.training.plan import Plan, Schedule
from tacit.workflows.defaults import network_for
from tacit.workflows.descent import Descent, choose_gradients, make_method_optimizer
from tacit.workflows.progress import show_status, stop_on_interrupt
from tacit.workflows.recipe import RecipeTask, make_task
from tacit.workflows.saved import read_settings
from tacit.workflows.scoring import loss_for
from tacit.workflows.settings import Settings

# The keys of what the neighbour test and the release test found, in a guarantee.
_NEIGHBOURS, _RELEASES = "neighbours", "releases"
Pair = tuple[Any, Any]
ShadowTrainer = tuple[Callable[[Any], nn.Module], Pair]


@dataclass(frozen=True, eq=False)
class AuditTarget:
    """A finished or stopped run, ready to be attacked.

    `model` is the one that is handed out: the running mean of the weights, if the run keeps one. `members` and `others`
    are the examples as the model takes them. `repeat` makes the training again, with fresh first weights.
    `make_shadows` is a context that gives a function which trains as the run did on other examples, and all examples,
    members first. `charges` is what of the run's steps is missing in its guarantee and in its ledger. `own_model` makes
    the trained model again, if the user wrote it. `units` says whose each row of members and others is, if people are
    protected.
    """

    folder: RunFolder
    settings: Settings
    model: nn.Module
    loss: Loss
    members: Pair
    others: Pair
    repeat: Callable[[], Training]
    make_shadows: Callable[[], AbstractContextManager[ShadowTrainer]]
    charges: ReleaseTest
    own_model: Callable[[], nn.Module] | None = None
    units: tuple[Any, Any] = (None, None)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the run guarantees, as written in its folder."""
        return self.folder.read_guarantee()

    @property
    def name(self) -> str:
        """The method and the data."""
        by = "" if self.settings.recipe is None else " by recipe"
        return f"{self.settings.method}{by} on {self.settings.data}"

    @property
    def attacked(self) -> dict[str, str]:
        """What each attack looks at, in words."""
        decay = self.settings.averaging
        weights = f"the running mean of the weights (decay {decay:g})" if decay else "the weights after the last step"
        model = self.folder.model
        where = f"as in {model.name}" if model.is_file() else "as saved; the run is not finished"
        mean = "; the running mean of the weights is made of these" if decay else ""
        return {"membership": f"{weights}, {where}", "canaries": f"the noisy gradient of every step{mean}"}

    def neighbours(self) -> NeighbourTest | None:
        """How far one example moves the released sum. None for a model that tacit ships, whose examples never meet."""
        if self.own_model is None:
            return None
        clip_norm, pieces = self.settings.clip_norm, self.settings.micro_batch
        return neighbour_test(self.own_model, self.loss, self.members, clip_norm=clip_norm, micro_batch=pieces)

    def releases(self) -> ReleaseTest:
        """Whether lots, sums, noise and charges of a few steps, made again, are what the guarantee counts."""
        return self.charges | release_test(self.repeat())

    def membership(self) -> dict[str, Roc]:
        """Scores of the trained model: examples it was trained on against public ones."""
        return infer_membership(self.model, self.loss, members=self.members, others=self.others, units=self.units)

    @property
    def counted(self) -> tuple[str, str]:
        """How many are attacked, and how many others they are compared with, in words."""
        parts = zip((self.members, self.others), self.units, strict=True)
        count, other = (len(part[1]) if unit is None else len(np.unique(unit)) for part, unit in parts)
        name = "training examples" if self.units[0] is None else "people trained on"
        return f"{count:,} {name}", f"{other:,} others"

    def shadows(self, count: int, seed: int | None, workers: int | None = None) -> Roc:
        """The likelihood-ratio attack, with so many shadow models, trained like this one on halves of all examples."""
        name: ScoreName = "loss" if self.members[1].dtype.is_floating_point else "confidence"
        # Earlier versions kept shadows without the mean of their weights in the audit's own folder.
        folder = self.folder.audit / "averaged" if self.settings.averaging else self.folder.audit
        runs = Runs(folder, workers=min(workers or os.cpu_count() or 1, count), seed=seed)
        parts = list(zip((self.members, self.others), self.units, strict=True))
        # People are numbered in the order of scores below: first all that were trained on, then the others.
        people = [None if unit is None else Owners.of(unit, len(part[1])) for part, unit in parts]
        unit = None
        if people[0] is not None and people[1] is not None:
            unit = np.concatenate([people[0].person, len(people[0].sizes) + people[1].person])
        with self.make_shadows() as (train, pool):
            found = train_shadows(train, self.loss, pool, count=count, runs=runs, name=name, unit=unit)
        target = [score_all(self.model, self.loss, part, name, unit) for part, unit in parts]
        ratio = found.ratio(np.concatenate(target))
        members = len(target[0])
        return roc(ratio[:members], ratio[members:])

    def canaries(self, count: int, steps: int | None, confidence: float, seed: int | None) -> AuditReport:
        """The training again, from fresh weights, with gradient canaries in the data and every release looked at."""
        if seed is not None:
            torch.manual_seed(seed % 2**63)
        training = self.repeat()
        planned = training.steps
        training = replace(training, steps=min(steps or planned, planned))
        with stop_on_interrupt() as asked:
            report = audit_training(
                training,
                delta=self.settings.delta,
                canaries=count,
                confidence=confidence,
                folder=self.folder.audit / "canaries",
                seed=seed,
                is_stopped=asked,
            )
        claim = self.guarantee.claim
        same = claim is not None and claim.delta == self.settings.delta and training.steps == planned
        return replace(report, claimed=claim.epsilon if same and claim is not None else None)

    def read_earlier_audits(self) -> dict[str, Any]:
        """What earlier audits found; nothing about members if they attacked other weights."""
        try:
            found: dict[str, Any] = json.loads(self.folder.audit_result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        # Audits that did not say so have asked the last weights, also where a mean of them is handed out.
        before = None if self.settings.averaging else self.attacked["membership"]
        if found.get("attacked", {}).get("membership", before) != self.attacked["membership"]:
            found["membership"] = {}
        return found

    def record(self, test: NeighbourTest | None, releases: ReleaseTest | None, report: AuditReport | None) -> None:
        """Write what was found into the run's guarantee."""
        guarantee = self.guarantee
        if releases is not None:
            # What was not tested is public: it follows from settings.
            text = f"Release test: {releases}"
            guarantee = guarantee.with_finding(_RELEASES, text, is_error=not releases.passed)
        if test is not None:
            # The guarantee may be released, so it does not say how far private examples moved the sum.
            said = f"passed (tried {test.tried:,} neighbours)." if test.passed else str(test)
            guarantee = guarantee.with_finding(_NEIGHBOURS, f"Neighbour test: {said}", is_error=not test.passed)
        if report is not None:
            guarantee = record_audit(guarantee, report)
        self.folder.write_guarantee(guarantee)


def load_target(folder: Path, data_path: Path | None) -> AuditTarget:
    """What `tacit train` left in the folder; `CannotResume` where it left nothing that can be read."""
    with show_status("Reading the run"):
        settings = read_settings(folder)
        tree = read_checkpoint(folder)
        data = settings.load(data_path)
    if settings.recipe is not None:
        return _load_recipe(folder, make_task(data, settings, data_path), tree)
    trained = partial(_load_network, settings.model, data, tree["model"])
    plan: Plan = tree["plan"]
    run_folder = RunFolder(folder)
    return AuditTarget(
        run_folder,
        settings,
        _load_model(run_folder.model, settings, trained(), tree),
        loss_for(data),
        (torch.from_numpy(data.train[0]), torch.from_numpy(data.train[1])),
        (torch.from_numpy(data.test[0]), torch.from_numpy(data.test[1])),
        lambda: _repeat_training(settings, data, plan, (*data.train, data.people.get("unit"))),
        lambda: _make_shadows(settings, data, plan),
        check_charges(run_folder, settings, tree),
        trained if is_own_model(settings.model) else None,
        data.owners or (None, None),
    )


def _load_network(name: str, data: Data, weights: dict[str, Tensor]) -> nn.Module:
    model = network_for(name, data)
    model.load_state_dict(weights)
    return model


def _load_model(file: Path, settings: Settings, model: nn.Module, tree: dict[str, Any]) -> nn.Module:
    """The model as it is handed out: model.safetensors; of a stopped run, what that file would hold now."""
    descent = Descent(model, settings)
    load_part("running mean of the weights", descent.mean, tree["scheduler"])
    handed_out = descent.averaged_model
    if file.is_file():
        try:
            load_model(handed_out, load_file(file))
        except (SafetensorError, OSError) as error:
            raise CannotResume(f"{file} cannot be read as a model: {error}.") from error
    return handed_out


def _repeat_training(settings: Settings, data: Data, plan: Plan, examples: Any) -> Training:
    """The training of these inputs and targets, of which a third array may say whose they are."""
    inputs, targets, *unit = examples
    schedule = Schedule(plan.schedule.multiplier or None, plan.schedule.lot_size or None)
    return Training(
        network_for(settings.model, data),
        loss_for(data),
        (inputs, targets),
        plan.mechanism,
        plan.sampling,
        plan.steps,
        lambda model: make_method_optimizer(model, settings),
        schedule,
        settings.micro_batch,
        unit=unit[0] if unit else None,
        rows_per_unit=plan.rows_per_unit,
    )


@contextmanager
def _make_shadows(settings: Settings, data: Data, plan: Plan) -> Iterator[ShadowTrainer]:
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
        training = _repeat_training(self.settings, self.about, self.plan, examples)
        descent = Descent(training.model, self.settings)
        fit(training.make_run(gradients=choose_gradients(self.settings)), descent)
        return descent.averaged_model


def _load_recipe(folder: Path, task: RecipeTask, tree: dict[str, Any]) -> AuditTarget:
    arrays = {name: value.numpy() for name, value in tree["prepared"].items()}
    cost = tree.get("preparation_event")
    prepared = restore_prepared(task.recipe, task.features, task.plan.multipliers[0], arrays, cost)
    rows = task.compute_features()
    if prepared.preparation is not None and rows[0].shape[1] != prepared.preparation.n_features_in_:
        raise CannotResume(
            f"{folder} was trained on {prepared.preparation.n_features_in_} features, and this version of tacit makes "
            f"{rows[0].shape[1]} of the same data. Audit it with the version that trained it, or train again."
        )
    members, others = (
        (prepared.of_features(part), torch.from_numpy(labels))
        for part, labels in zip(rows, (task.train[1], task.test[1]), strict=True)
    )
    anew = partial(prepared.model, rows[0].shape[1], task.data.classes or 2)
    model = anew()
    model.load_state_dict(tree["model"])

    def repeat() -> Training:
        """The steps again, on rows that are prepared by what was released; that is not released again."""
        plan: Plan = tree["plan"]
        stages, optimizer = (plan.mechanism, plan.sampling, plan.steps), partial(make_optimizer, task.recipe)
        return Training(anew(), LOSS, members, *stages, optimizer, before=prepared.event, **task.data.people)

    return AuditTarget(
        RunFolder(folder),
        task.settings,
        model,
        LOSS,
        members,
        others,
        repeat,
        lambda: _make_recipe_shadows(task, rows),
        check_charges(RunFolder(folder), task.settings, tree),
        units=task.data.owners or (None, None),
    )


def check_charges(folder: RunFolder, settings: Settings, tree: dict[str, Any]) -> ReleaseTest:
    """Whether guarantee, ledger and budget cover every step that the save holds."""
    plan: Plan = tree["plan"]
    # What is saved of a finished recipe are its plan and its weights.
    guarantee, steps = folder.read_guarantee(), sum(n for _, n in tree["events"]) if "events" in tree else plan.steps
    found = []
    if not covers(guarantee.event, plan.total(steps)):
        found.append(f"the guarantee does not count all of the {steps} steps that were made")
    if settings.epsilon is not None and settings.mode == "rigorous":
        spent = guarantee.epsilon(settings.delta)
        if spent > settings.epsilon * (1 + 1e-9):
            found.append(f"the run costs epsilon {spent:.6g}, and its budget is {settings.epsilon:.6g}")
    if settings.ledger is None or not storage_at(settings.ledger).exists():
        return ReleaseTest(tuple(found))
    charges = Ledger(settings.ledger).account(settings.ledger_name).charges
    if not any(covers(charge.event, guarantee.event) for charge in charges):
        found.append("the ledger was charged less than the guarantee counts")
    return ReleaseTest(tuple(found), ("ledger",))


@contextmanager
def _make_recipe_shadows(task: RecipeTask, rows: tuple[Any, Any]) -> Iterator[ShadowTrainer]:
    """Examples by their numbers. Their features are kept in a file, which all processes read and none holds."""
    labels = np.concatenate([task.train[1], task.test[1]])
    settings = (task.plan, task.data.classes or 2, task.image_shape, task.data.rows_per_unit)
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
    rows_per_unit: int | None = None

    def __call__(self, examples: Any) -> nn.Module:
        numbers, labels, *unit = examples
        rows = sparse.load_npz(self.rows) if self.rows.suffix == ".npz" else np.load(self.rows, mmap_mode="r")
        begun = begin_by_recipe(
            self.plan,
            rows[numbers],
            labels,
            features=None,
            classes=self.classes,
            seed=None,
            shape=self.shape,
            unit=unit[0] if unit else None,
            rows_per_unit=self.rows_per_unit,
        )
        trained = begun.finish()
        return ModelOfRows(trained.model, trained.prepared, rows)


class ModelOfRows(nn.Module):
    """A model of examples that are given by their numbers."""

    def __init__(self, model: nn.Module, prepared: PreparedInputs, rows: Any) -> None:
        super().__init__()
        self.model, self._prepared, self._rows = model, prepared, rows

    def forward(self, numbers: Tensor) -> Tensor:
        """[examples, classes]."""
        found: Tensor = self.model(self._prepared.of_features(self._rows[numbers.numpy()]))
        return found
