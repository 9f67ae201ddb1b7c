"""A run folder under attack: its model asked about its examples, its training repeated with canaries in the data."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit import checkpoint
from tacit.audit import AuditReport, Roc, Runs, Training, audit_training, infer_membership, recorded, roc, train_shadows
from tacit.audit.membership import ScoreName, scores
from tacit.cli.networks import loss_for, network_for, optimizer_for
from tacit.cli.output import without_infinity
from tacit.cli.progress import stop_on_interrupt
from tacit.cli.settings import FILE as SETTINGS
from tacit.cli.settings import GUARANTEE, Settings
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.plan import Plan, Schedule
from tacit.run import PrivateRun

FOLDER = "audit"


@dataclass(frozen=True, eq=False)
class Subject:
    """A finished or stopped run: what it was trained with, and what it says it guarantees."""

    folder: Path
    settings: Settings
    data: Data
    plan: Plan
    weights: dict[str, torch.Tensor]

    @staticmethod
    def read(folder: Path, data_path: Path | None) -> Subject:
        """What `tacit train` left in the folder; `CannotResume` where it left nothing that can be read."""
        _refuse_recipe(folder)
        settings = Settings.read(folder)
        tree = checkpoint.read(folder)
        data = settings.load(data_path)
        return Subject(folder, settings, data, tree["plan"], tree["model"])

    @property
    def audit_folder(self) -> Path:
        """Where an audit keeps what it needs to go on, and what it found."""
        return self.folder / FOLDER

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the run says of itself."""
        return Guarantee.from_json((self.folder / GUARANTEE).read_text(encoding="utf-8"))

    def membership(self) -> dict[str, Roc]:
        """Scores of the trained model: examples it was trained on against public ones."""
        model = network_for(self.settings.model, self.data)
        model.load_state_dict(self.weights)
        return infer_membership(model, loss_for(self.data), members=self.data.train, others=self.data.test)

    def shadows(self, count: int, seed: int | None, workers: int | None = None) -> Roc:
        """The likelihood-ratio attack, with so many shadow models, trained like this one on halves of all examples."""
        pool = tuple(np.concatenate(pair) for pair in zip(self.data.train, self.data.test, strict=True))
        name: ScoreName = "confidence" if self.data.classes else "loss"
        runs = Runs(self.audit_folder, workers=min(workers or os.cpu_count() or 1, count), seed=seed)
        train = ShadowTraining(self.settings, replace(self.data, train=_nothing(pool), test=_nothing(pool)), self.plan)
        found = train_shadows(train, loss_for(self.data), (pool[0], pool[1]), count=count, runs=runs, name=name)
        model = network_for(self.settings.model, self.data)
        model.load_state_dict(self.weights)
        ratio = found.ratio(scores(model, loss_for(self.data), pool, name))
        members = len(self.data.train[1])
        return roc(ratio[:members], ratio[members:])

    def canaries(self, count: int, steps: int | None, confidence: float, seed: int | None) -> AuditReport:
        """The training again, from fresh weights, with gradient canaries in the data and every release looked at."""
        if seed is not None:
            torch.manual_seed(seed % 2**63)
        training = _training(self.settings, self.data, self.plan, self.data.train)
        training = replace(training, steps=min(steps or training.steps, training.steps))
        with stop_on_interrupt() as asked:
            report = audit_training(
                training,
                delta=self.settings.delta,
                canaries=count,
                confidence=confidence,
                folder=self.audit_folder / "canaries",
                seed=seed,
                is_stopped=asked,
            )
        claim = self.guarantee.claim
        same = claim is not None and claim.delta == self.settings.delta and training.steps == self.plan.steps
        return replace(report, claimed=claim.epsilon if same and claim is not None else None)

    def record(self, report: AuditReport) -> None:
        """Write the verdict into the run's guarantee."""
        path = self.folder / GUARANTEE
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.write_text(recorded(self.guarantee, report).to_json(), encoding="utf-8")
        unfinished.replace(path)


def _refuse_recipe(folder: Path) -> None:
    if (folder / GUARANTEE).exists() and not (folder / SETTINGS).exists():
        raise InvalidArgument(
            f"{folder} was not trained step by step (by --recipe auto, for instance), so there are no steps to repeat "
            "with canaries. Attack the training function instead, with tacit.audit.audit(train, data, delta=...): "
            "docs/audit.md shows how."
        )


@dataclass(frozen=True, eq=False)
class ShadowTraining:
    """Train as the run did, on other examples. Importable, so that other processes can run it."""

    settings: Settings
    about: Data
    plan: Plan

    def __call__(self, examples: Any) -> nn.Module:
        training = _training(self.settings, self.about, self.plan, examples)
        run = PrivateRun(
            training.model,
            training.loss,
            data=training.data,
            mechanism=training.mechanism,
            sampling=training.sampling,
            steps=training.steps,
            schedule=training.schedule,
            micro_batch=training.micro_batch,
        )
        optimizer = training.optimizer(training.model)
        for lot in run:
            run.backward(lot)
            optimizer.step()
        return training.model


def _training(settings: Settings, data: Data, plan: Plan, examples: Any) -> Training:
    schedule = Schedule(plan.schedule.multiplier or None, plan.schedule.lot_size or None)
    return Training(
        network_for(settings.model, data),
        loss_for(data),
        examples,
        plan.mechanism,
        plan.sampling,
        plan.steps,
        lambda model: optimizer_for(settings.method, model, settings.learning_rate),
        schedule,
        settings.micro_batch,
    )


def _nothing(pool: tuple[Any, ...]) -> tuple[Any, Any]:
    """No examples, of the right shape: a process is sent those to train on apart."""
    return pool[0][:0], pool[1][:0]


def roc_json(one: Roc) -> dict[str, Any]:
    """What is read off a ROC curve, with its intervals."""
    return {
        "area": asdict(one.area),
        "found_at": {f"fpr_{rate:g}": asdict(interval) for rate, interval in one.found_at.items()},
        "members": one.members,
        "others": one.others,
        "confidence": one.confidence,
    }


def write_json(path: Path, values: dict[str, Any]) -> None:
    """For `tacit report`, and for whoever asks later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(without_infinity(values), indent=1, allow_nan=False), encoding="utf-8")
