"""A run folder under attack: its model asked about its examples, its training repeated with canaries in the data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit._files import for_the_owner
from tacit.audit import (
    AuditReport,
    NeighbourTest,
    Roc,
    Runs,
    Training,
    audit_training,
    infer_membership,
    neighbour_test,
    recorded,
    roc,
    train_shadows,
)
from tacit.audit.membership import ScoreName, scores
from tacit.cli.output import without_infinity
from tacit.cli.progress import stop_on_interrupt
from tacit.gradients.losses import Loss
from tacit.guarantee import Guarantee
from tacit.workflows.settings import GUARANTEE, MODEL, Settings

FOLDER = "audit"
# The key of what the neighbour test found, in a guarantee.
_NEIGHBOURS = "neighbours"
Pair = tuple[Any, Any]
Shadowed = tuple[Callable[[Any], nn.Module], Pair]


@dataclass(frozen=True, eq=False)
class Subject:
    """A finished or stopped run: what it was trained with, and what it says it guarantees.

    `model` is what is handed out: where the run keeps a running mean of its weights, that mean. `members` and `others`
    are as it takes them. `repeated` makes the training anew, with fresh first
    weights. `shadowed` gives, while it is entered, a function that trains as the run did on other examples, and all
    examples, as its models take them: members first. `own_model` makes the trained model anew, if the user wrote it.
    """

    folder: Path
    settings: Settings
    model: nn.Module
    loss: Loss
    members: Pair
    others: Pair
    repeated: Callable[[], Training]
    shadowed: Callable[[], AbstractContextManager[Shadowed]]
    own_model: Callable[[], nn.Module] | None = None

    @property
    def audit_folder(self) -> Path:
        """Where an audit keeps what it needs to go on, and what it found."""
        return self.folder / FOLDER

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the run says of itself."""
        return Guarantee.from_json((self.folder / GUARANTEE).read_text(encoding="utf-8"))

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
        where = f"as in {MODEL}" if (self.folder / MODEL).is_file() else "as saved; the run is not finished"
        mean = "; the running mean of the weights is made of these" if decay else ""
        return {"membership": f"{weights}, {where}", "canaries": f"the noisy gradient of every step{mean}"}

    def neighbours(self) -> NeighbourTest | None:
        """How far one example moves the released sum. None for a model that tacit ships, whose examples never meet."""
        if self.own_model is None:
            return None
        clip_norm, pieces = self.settings.clip_norm, self.settings.micro_batch
        return neighbour_test(self.own_model, self.loss, self.members, clip_norm=clip_norm, micro_batch=pieces)

    def membership(self) -> dict[str, Roc]:
        """Scores of the trained model: examples it was trained on against public ones."""
        return infer_membership(self.model, self.loss, members=self.members, others=self.others)

    def shadows(self, count: int, seed: int | None, workers: int | None = None) -> Roc:
        """The likelihood-ratio attack, with so many shadow models, trained like this one on halves of all examples."""
        name: ScoreName = "loss" if self.members[1].dtype.is_floating_point else "confidence"
        # Earlier versions kept shadows without the mean of their weights in the audit's own folder.
        folder = self.audit_folder / "averaged" if self.settings.averaging else self.audit_folder
        runs = Runs(folder, workers=min(workers or os.cpu_count() or 1, count), seed=seed)
        with self.shadowed() as (train, pool):
            found = train_shadows(train, self.loss, pool, count=count, runs=runs, name=name)
        target = [scores(self.model, self.loss, part, name) for part in (self.members, self.others)]
        ratio = found.ratio(np.concatenate(target))
        members = len(target[0])
        return roc(ratio[:members], ratio[members:])

    def canaries(self, count: int, steps: int | None, confidence: float, seed: int | None) -> AuditReport:
        """The training again, from fresh weights, with gradient canaries in the data and every release looked at."""
        if seed is not None:
            torch.manual_seed(seed % 2**63)
        training = self.repeated()
        planned = training.steps
        training = replace(training, steps=min(steps or planned, planned))
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
        same = claim is not None and claim.delta == self.settings.delta and training.steps == planned
        return replace(report, claimed=claim.epsilon if same and claim is not None else None)

    def found_before(self) -> dict[str, Any]:
        """What earlier audits of the run have written; nothing about members if other weights were attacked."""
        try:
            found: dict[str, Any] = json.loads((self.audit_folder / "audit.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if found.get("attacked", {}).get("membership", self._attacked_before) != self.attacked["membership"]:
            found["membership"] = {}
        return found

    @property
    def _attacked_before(self) -> str | None:
        """What audits that did not say so have asked: the last weights, also where a mean of them is handed out."""
        return None if self.settings.averaging else self.attacked["membership"]

    def record(self, test: NeighbourTest | None, report: AuditReport | None) -> None:
        """Write what was found into the run's guarantee."""
        if test is None and report is None:
            return
        guarantee = self.guarantee
        if test is not None:
            # The guarantee may be released, so it does not say how far private examples moved the sum.
            said = f"passed (tried {test.tried:,} neighbours)." if test.passed else str(test)
            guarantee = guarantee.with_finding(_NEIGHBOURS, f"Neighbour test: {said}", is_error=not test.passed)
        if report is not None:
            guarantee = recorded(guarantee, report)
        path = self.folder / GUARANTEE
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.write_text(guarantee.to_json(), encoding="utf-8")
        unfinished.replace(path)


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
    """For `tacit report`, and for the owner, who alone may know how well members are recognised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(without_infinity(values), indent=1, allow_nan=False)
    with open(path, "w", encoding="utf-8", opener=for_the_owner) as file:
        file.write(text)
