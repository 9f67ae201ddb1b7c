"""The strongest audit of one's own training: one run, a thousand gradient canaries, every release seen.

Saved every half minute and resumable: directions and coins come from a seed that is kept beside the run, so an
audit that was stopped goes on with the same game.
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
from tacit.accounting.curve import PrivacyCurve, curve
from tacit.accounting.events import Event
from tacit.audit.canaries import CanaryGame, Watch
from tacit.audit.evidence import Finding
from tacit.audit.guessing import OneRun, one_run
from tacit.audit.reports import AuditReport
from tacit.audit.runs import progress
from tacit.audit.statistics import error_points
from tacit.errors import CannotResume, InvalidArgument, NotProven
from tacit.gradients.losses import Loss
from tacit.stages.mechanism import Mechanism
from tacit.training.lots import NoGradients
from tacit.training.plan import Schedule
from tacit.training.run import PrivateRun
from tacit.types import Sampling

# So much longer than the sensitivity is a canary: whatever does not clip it is found out.
_LENGTH = 100.0
_SECONDS_BETWEEN_SAVES = 30.0
_NOT_ATTACKED = (
    "Attacked are the steps. What prepared the features before them is a release of its own, which this attack does "
    "not look at; what is proven is about both together."
)


@dataclass(frozen=True, eq=False)
class Training:
    """A training to be audited: what a `PrivateRun` needs, and how the optimizer is made.

    `before` is what was released from the same examples before the first step, such as a preparation of features. It
    is part of what is proven, and no part of what is attacked.
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
    """Train once with `canaries` gradient canaries in the data, and hold what they show against what is proven.

    The model is trained in place; like the report, it has seen private data with an attacker looking on, and is not for
    release. With a `folder` the audit can be stopped and called again: `is_stopped` is asked after every step, and
    once it says so all is saved and `KeyboardInterrupt` raised. A `seed` fixes canaries, lots and noise.
    """
    delta = _validate.open_unit("delta", delta)
    kept = _Kept(folder, canaries, training.steps, seed)
    game = CanaryGame.draw(training.model, training.data, count=canaries, length=_length(training), seed=kept.game_seed)
    optimizer = training.optimizer(training.model)
    run, watch = kept.begun(training, game, optimizer)
    _make_steps(run, watch, optimizer, kept, is_stopped)
    proven = _proven(run, training.before)
    settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "share": share, "proven": proven}
    result = one_run(watch.scores, game.included, log_odds=True, **settings)
    scores = watch.scores
    finding = Finding(
        f"one run, {canaries:,} gradient canaries",
        result.bound,
        result.gaussian,
        result.contradicts,
        error_points(scores[game.included], scores[~game.included]),
        (*_counted(result), *_crowded(run, canaries), *_unseen(training)),
    )
    return AuditReport(finding, None, math.inf if proven is None else proven.epsilon(delta), proven)


def _counted(result: OneRun) -> tuple[str, ...]:
    """What the surest guesses show where they are counted and not weighed, by either theorem."""
    guesses = result.guesses
    return (
        f"Of the {guesses.made} surest guesses {guesses.right} were right. Counted by the theorem of Mahloujifar, "
        f"Melis and Chaudhuri: {result.counted}.",
        f"Counted by the theorem of Steinke, Nasr and Jagielski: {result.steinke}.",
    )


def _crowded(run: PrivateRun, canaries: int) -> tuple[str, ...]:
    """A note where the canaries of a lot, in random directions, hide each other as well as noise would."""
    size = sum(value.numel() for value in run.model.parameters() if value.requires_grad)
    rate = run.sampling.lot_size / run.sampling.population
    if math.sqrt(rate * canaries / 2 / size) < run.multiplier / 2:
        return ()
    best = max(2, int(size * run.multiplier**2 / (2 * rate)))
    return (f"{canaries:,} canaries drown each other in a model of {size:,} parameters: {best:,} or fewer show more.",)


def _length(training: Training) -> float:
    like = {name: value.detach() for name, value in training.model.named_parameters() if value.requires_grad}
    mechanism = training.mechanism
    bounded = mechanism.sum(NoGradients(like), mechanism.init(like, training.sampling.lot_size))
    return _LENGTH * (bounded.sensitivity if math.isfinite(bounded.sensitivity) else 1.0)


def _unseen(training: Training) -> tuple[str, ...]:
    return () if training.before is None else (_NOT_ATTACKED,)


def _proven(run: PrivateRun, before: Event | None) -> PrivacyCurve | None:
    event = run.guarantee().event
    try:
        return curve(event if before is None else before + event)
    except NotProven:
        return None


def _make_steps(
    run: PrivateRun, watch: Watch, optimizer: torch.optim.Optimizer, kept: _Kept, is_stopped: Callable[[], bool]
) -> None:
    saved = time.monotonic()
    with progress("training with canaries", run.steps, run.step) as advance:
        for lot in run:
            run.backward(lot)
            watch.see()
            optimizer.step()
            advance()
            stopped = is_stopped()
            if stopped or time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                kept.save(run, watch, optimizer)
                saved = time.monotonic()
            if stopped and run.step < run.steps:
                raise KeyboardInterrupt
    kept.save(run, watch, optimizer)


@final
class _Kept:
    """What is kept in the folder of an audit: the game's seed, the run, and the scores that belong to it."""

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
            said = json.loads(path.read_text(encoding="utf-8"))
            self.game_seed = said.pop("game_seed")
            if said != about:
                raise InvalidArgument(
                    f"{folder} holds another audit ({said}), and this one is {about}. Choose another folder, or empty "
                    "this one."
                )
        else:
            path.write_text(json.dumps({**about, "game_seed": self.game_seed}), encoding="utf-8")

    def begun(self, training: Training, game: CanaryGame, optimizer: torch.optim.Optimizer) -> tuple[PrivateRun, Watch]:
        """The saved run with its scores, or a fresh one."""
        self._coins = game.included
        if self._folder is not None and (self._folder / "scores.npz").exists():
            try:
                return self._resumed(self._folder, training, game, optimizer)
            except CannotResume:
                # Stopped between the two files, or damaged: the audit starts over, and nothing was released.
                pass
        run = PrivateRun(
            training.model,
            training.loss,
            data=game.data,
            mechanism=game.watched(training.mechanism),
            sampling=training.sampling,
            steps=training.steps,
            schedule=training.schedule,
            micro_batch=training.micro_batch,
            seed=self._seed,
            gradients=game.gradients,
        )
        return run, game.watch(run)

    def _resumed(
        self, folder: Path, training: Training, game: CanaryGame, optimizer: torch.optim.Optimizer
    ) -> tuple[PrivateRun, Watch]:
        run = PrivateRun.resume(
            folder,
            training.model,
            training.loss,
            data=game.data,
            optimizer=optimizer,
            # An audit's releases are seen by the auditor alone, and are none.
            nothing_left=True,
            gradients=game.gradients,
        )
        with np.load(folder / "scores.npz") as saved:
            step, scores, coins = int(saved["step"]), saved["scores"], saved["coins"]
        if step != run.step or not np.array_equal(coins, game.included):
            raise CannotResume(f"The scores in {folder} are those of another step or game than the run beside them.")
        watch = game.watch(run)
        watch.scores[:] = scores
        return run, watch

    def save(self, run: PrivateRun, watch: Watch, optimizer: torch.optim.Optimizer) -> None:
        """Run first, scores after it: a crash in between is noticed."""
        if self._folder is None:
            return
        run.save(self._folder, optimizer)
        content = BytesIO()
        np.savez(content, step=run.step, scores=watch.scores, coins=self._coins)
        write_atomic(self._folder / "scores.npz", content.getvalue(), is_private=True)
