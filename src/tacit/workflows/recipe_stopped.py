"""A run by recipe that was stopped between two steps: what is written then, and how it goes on.

Its steps are saved like those of any other run, in run.safetensors; what was released to prepare lies beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tacit import PrivateRun
from tacit.accounting.events import Event, from_json
from tacit.errors import CannotResume, InvalidArgument
from tacit.ledger import Reservation
from tacit.recipes.run import LOSS, RecipeRun, list_released, make_optimizer, restore_prepared
from tacit.reports.settings import command_of
from tacit.training import checkpoint
from tacit.training.journal import lost_steps
from tacit.workflows.recipe_task import Task
from tacit.workflows.scoring import Score
from tacit.workflows.settings import Settings
from tacit.workflows.training import read_scores, written

STOPPED = "prepared.safetensors"
_ENTERED, _COST = "entered", "preparation_event"


@dataclass(frozen=True, eq=False)
class Stopped:
    """What was released to prepare and what that cost, scores so far, and the name of the run in its ledger, if any.

    `event` is None where nothing was released, and in folders of earlier versions, which do not hold it.
    """

    folder: Path
    arrays: Mapping[str, NDArray[np.float32]]
    event: Event | None
    scores: Mapping[int, Score]
    entered: str | None

    @staticmethod
    def read(folder: Path, settings: Settings) -> Stopped:
        """What `save_stopped` wrote. `CannotResume` if the run is finished, or cannot go on within its budget."""
        unseeded = {**asdict(settings), "seed": None}
        again = f"Another run, with fresh noise and a cost of its own: {command_of(unseeded, with_paths=True)}"
        if not (folder / STOPPED).is_file():
            raise CannotResume(f"{folder} holds a finished run: there is nothing to go on with. {again}")
        try:
            with safe_open(folder / STOPPED, framework="np") as opened:
                about = opened.metadata() or {}
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dict
            event = from_json(about[_COST]) if _COST in about else None
        except (SafetensorError, OSError, InvalidArgument) as error:
            raise CannotResume(f"{folder / STOPPED} cannot be read: {error}. {again}") from error
        tree = checkpoint.read(folder, (), needs=checkpoint.RUN)
        done = sum(times for _, times in tree["events"])
        if tree["seed"] is None and lost_steps(folder, done, Counter(tree["lost"])).total():
            raise CannotResume(
                f"{folder} was saved after step {done:,} and has gone on since, without being saved again. A recipe "
                f"spends its whole budget, so that there is none left for what was lost. {again}"
            )
        return Stopped(folder, arrays, event, read_scores(folder), about.get(_ENTERED))

    def begun(self, task: Task, rows: Any, booking: Reservation | None) -> RecipeRun:
        """The run where it stopped, on features that are prepared as before: nothing is released for that."""
        prepared = restore_prepared(task.recipe, task.features, task.plan.multipliers[0], self.arrays, self.event)
        model = prepared.model(rows.shape[1], task.data.classes or 2)
        optimizer = make_optimizer(task.recipe, model)
        data = prepared.of_features(rows), torch.from_numpy(task.train[1])
        run = PrivateRun.resume(self.folder, model, LOSS, data=data, optimizer=optimizer)
        if booking is not None:
            _take_over(booking, task, run.step)
        return RecipeRun(prepared, run, optimizer)


def _take_over(booking: Reservation, task: Task, done: int) -> None:
    before = task.recipe.releases
    start, stop = before + done, before + task.recipe.steps
    known = booking.resume(start, stop, drawn=[(0, start)])
    if known.stop < stop:
        booking.settle()
        raise CannotResume(
            f"{booking.ledger.path} has room for {known.stop - start:,} of the {stop - start:,} steps that are left. "
            "Give its data set a larger budget, and resume then."
        )


def save_stopped(folder: Path, task: Task, begun: RecipeRun, booking: Reservation | None) -> None:
    """Write all that going on needs. The steps come last, without which there is nothing to go on with."""
    cost = begun.prepared.event
    about = {} if cost is None else {_COST: cost.to_json()}
    if booking is not None:
        about[_ENTERED] = booking.run
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        task.settings.write(folder)
        save_file(list_released(begun.prepared.preparation), folder / STOPPED, metadata=about)
        begun.run.save(folder, begun.optimizer)
