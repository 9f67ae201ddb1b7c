"""The strongest audit of one's own training: one run with gradient canaries, whose attacker sees every release.

It is saved every half minute and can resume: directions and coins come from a seed that is stored beside the run.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit import _validate
from tacit._files import write_atomic
from tacit.accounting.events import Event
from tacit.audit.canaries import CanaryGame
from tacit.audit.evidence import AuditReport, Finding, find_curve
from tacit.audit.guessing import one_run
from tacit.audit.runs import show_progress
from tacit.audit.statistics import list_error_points
from tacit.audit.watching import AnyWatch
from tacit.errors import CannotResume, InvalidArgument
from tacit.gradients.losses import Loss
from tacit.stages.mechanism import Mechanism
from tacit.training.fit import Step, fit
from tacit.training.lots import NoGradients
from tacit.training.plan import Schedule
from tacit.training.run import PrivateRun
from tacit.types import Sampling

# The norm of a canary over the sensitivity: large, to detect a bound that does not clip.
_LENGTH = 100.0
_SECONDS_BETWEEN_SAVES = 30.0
_NOT_ATTACKED = (
    "The attack covers the steps, but not the releases that prepared the features; the proven epsilon covers both."
)


@dataclass(frozen=True, eq=False)
class Training:
    """A training to audit: the arguments of a `PrivateRun`, and a function that makes the optimizer.

    `before` is the event of releases from the same examples before the first step, such as a preparation of features.
    The proof covers it; the attack does not. `unit` and `rows_per_unit` are those of `PrivateRun`: then people are
    protected, and each canary is one person with one row.
    """

    model: nn.Module
    loss: Loss
    data: Any
    mechanism: Mechanism
    sampling: Sampling
    steps: int
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    schedule: Schedule | None = None
    micro_batch: int | None = None
    before: Event | None = None
    unit: Any = None
    rows_per_unit: int | None = None

    def make_run(self, **changes: Any) -> PrivateRun:
        """The run of this training, with other data, gradients or mechanism where they are given."""
        names = ("data", "mechanism", "sampling", "steps", "schedule", "micro_batch", "unit", "rows_per_unit")
        same = {name: getattr(self, name) for name in names}
        return PrivateRun(self.model, self.loss, **same | changes)


def audit_training(
    training: Training,
    *,
    delta: float,
    canaries: int = 1000,
    confidence: float = 0.99,
    share: float = 0.1,
    folder: Path | None = None,
    seed: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> AuditReport:
    """Train once with `canaries` gradient canaries in the data, and compare the result with what is proven.

    The model is trained in place; neither it nor the report is for release. With a `folder` the audit can be stopped
    and called again: `is_stopped` is called after every step, and if it returns True everything is saved and
    `KeyboardInterrupt` raised. A `seed` fixes canaries, lots and noise.
    """
    delta = _validate.open_unit("delta", delta)
    kept = _AuditFolder(folder, canaries, training.steps, seed)
    like = {name: value.detach() for name, value in training.model.named_parameters() if value.requires_grad}
    state = training.mechanism.init(like, training.sampling.lot_size)
    bounded = training.mechanism.sum(NoGradients(like), state)
    game = CanaryGame.draw(
        training.model,
        training.data,
        count=canaries,
        length=_LENGTH * (bounded.sensitivity if math.isfinite(bounded.sensitivity) else 1.0),
        seed=kept.game_seed,
        unit=training.unit,
    )
    optimizer = training.optimizer(training.model)
    run, watch = kept.begin(training, game, optimizer)
    _make_steps(run, watch, optimizer, kept, is_stopped)
    event = run.guarantee().event
    proven = find_curve(event if training.before is None else training.before + event)
    settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "share": share, "proven": proven}
    result = one_run(watch.scores, game.included, log_odds=True, **settings)
    scores, guesses = watch.scores, result.guesses
    finding = Finding(
        f"one run, {canaries:,} gradient canaries{'' if training.unit is None else ', each of them a person'}",
        result.bound,
        result.gaussian,
        result.contradicts,
        list_error_points(scores[game.included], scores[~game.included]),
        (
            f"{guesses.right} of the {guesses.made} most certain guesses were right. By the theorem of Mahloujifar, "
            f"Melis and Chaudhuri: {result.counted}.",
            f"By the theorem of Steinke, Nasr and Jagielski: {result.steinke}.",
            *_warn_if_crowded(run, canaries),
            *(() if training.before is None else (_NOT_ATTACKED,)),
        ),
    )
    return AuditReport(finding, None, math.inf if proven is None else proven.epsilon(delta), proven)


def _warn_if_crowded(run: PrivateRun, canaries: int) -> tuple[str, ...]:
    """A note if the canaries of a lot hide each other as much as the noise does."""
    size = sum(value.numel() for value in run.model.parameters() if value.requires_grad)
    rate = run.sampling.lot_size / run.sampling.population
    if math.sqrt(rate * canaries / 2 / size) < run.multiplier / 2:
        return ()
    best = max(2, int(size * run.multiplier**2 / (2 * rate)))
    return (f"{canaries:,} canaries hide each other in a model of {size:,} parameters: {best:,} or fewer show more.",)


def _make_steps(
    run: PrivateRun,
    watch: AnyWatch,
    optimizer: torch.optim.Optimizer,
    kept: _AuditFolder,
    is_stopped: Callable[[], bool],
) -> None:
    saved = time.monotonic()
    with show_progress("training with canaries", run.steps, run.step) as advance:

        def look_and_save(_: Step) -> bool:
            nonlocal saved
            # The released gradient is still in p.grad after the step.
            watch.see()
            advance()
            is_due = time.monotonic() - saved > _SECONDS_BETWEEN_SAVES
            if is_due:
                kept.save(run, watch, optimizer)
                saved = time.monotonic()
            return is_stopped()

        is_finished = fit(run, optimizer, [look_and_save])
    kept.save(run, watch, optimizer)
    if not is_finished:
        raise KeyboardInterrupt


@final
class _AuditFolder:
    """The folder of an audit: the game's seed, the run, and its scores. Without a folder nothing is saved."""

    def __init__(self, folder: Path | None, canaries: int, steps: int, seed: int | None) -> None:
        self._folder, self._seed = folder, seed
        self._coins: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self.game_seed = secrets.randbits(64) if seed is None else seed
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "game.json"
        about = {"canaries": canaries, "steps": steps, "seed": seed}
        if path.exists():
            written = json.loads(path.read_text(encoding="utf-8"))
            self.game_seed = written.pop("game_seed")
            if written != about:
                raise InvalidArgument(
                    f"{folder} holds another audit ({written}), and this one is {about}. Choose another folder, or "
                    "empty this one."
                )
        else:
            path.write_text(json.dumps({**about, "game_seed": self.game_seed}), encoding="utf-8")

    def begin(
        self, training: Training, game: CanaryGame, optimizer: torch.optim.Optimizer
    ) -> tuple[PrivateRun, AnyWatch]:
        """The saved run with its scores, or a new one."""
        self._coins = game.included
        if self._folder is not None and (self._folder / "scores.npz").exists():
            try:
                return self._resume(self._folder, training, game, optimizer)
            except CannotResume:
                # Stopped between the two files, or damaged: the audit starts again, because nothing was released.
                pass
        mechanism = game.record_bound(training.mechanism)
        run = training.make_run(
            data=game.data, mechanism=mechanism, gradients=game.gradients, seed=self._seed, unit=game.unit
        )
        return run, game.watch(run)

    def _resume(
        self, folder: Path, training: Training, game: CanaryGame, optimizer: torch.optim.Optimizer
    ) -> tuple[PrivateRun, AnyWatch]:
        run = PrivateRun.resume(
            folder,
            training.model,
            training.loss,
            data=game.data,
            optimizer=optimizer,
            # Only the auditor sees the releases of an audit.
            nothing_left=True,
            gradients=game.gradients,
            unit=game.unit,
        )
        with np.load(folder / "scores.npz") as saved:
            step, scores, coins = int(saved["step"]), saved["scores"], saved["coins"]
        if step != run.step or not np.array_equal(coins, game.included):
            raise CannotResume(f"The scores in {folder} belong to another step or game than the run beside them.")
        watch = game.watch(run)
        watch.resume(scores)
        return run, watch

    def save(self, run: PrivateRun, watch: AnyWatch, optimizer: torch.optim.Optimizer) -> None:
        """Save the run, then the scores, so that a crash in between is noticed."""
        if self._folder is None:
            return
        run.save(self._folder, optimizer)
        content = BytesIO()
        np.savez(content, step=run.step, scores=watch.scores, coins=self._coins)
        write_atomic(self._folder / "scores.npz", content.getvalue(), is_private=True)
