"""A run by recipe that was stopped or killed: what is said then, and how it is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tacit.accounting.events import Event, from_json
from tacit.errors import CannotResume, InvalidArgument
from tacit.ledger import Reservation
from tacit.recipes.run import LOSS, RecipeRun, make_optimizer, restore_prepared
from tacit.reports.scores import Score
from tacit.reports.settings import command_of
from tacit.training.folder import RunFolder
from tacit.training.run import PrivateRun
from tacit.workflows.scoring import read_scores
from tacit.workflows.settings import Settings, describe_reservation, write_resume_command

if TYPE_CHECKING:
    from tacit.workflows.recipe import RecipeTask, RecipeTraining

PREPARATION_EVENT = "preparation_event"
BOOKED_AS = "entered"


@dataclass(frozen=True, eq=False)
class StoppedRun:
    """The released preparation of a stopped run, its event, and the scores so far.

    Its steps are saved like those of any other run. `event` is None if nothing was released, and for folders of
    earlier versions, which do not hold it. `booked_as` is the name of the run in its ledger, if there is one.
    """

    folder: RunFolder
    arrays: Mapping[str, NDArray[np.float32]]
    event: Event | None
    scores: Mapping[int, Score]
    booked_as: str | None

    @staticmethod
    def read(folder: RunFolder, settings: Settings) -> StoppedRun:
        """Read what `RecipeTraining.save` wrote. `CannotResume` if the run is finished or has no budget left."""
        unseeded = {**asdict(settings), "seed": None}
        again = f"Another run, with fresh noise and a cost of its own: {command_of(unseeded, with_paths=True)}"
        if not folder.prepared.is_file():
            raise CannotResume(f"{folder.path} holds a finished run: there is nothing to resume. {again}")
        try:
            with safe_open(folder.prepared, framework="np") as opened:
                about = opened.metadata() or {}
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dict
            event = from_json(about[PREPARATION_EVENT]) if PREPARATION_EVENT in about else None
        except (SafetensorError, OSError, InvalidArgument) as error:
            raise CannotResume(f"{folder.prepared} cannot be read: {error}. {again}") from error
        return StoppedRun(folder, arrays, event, read_scores(folder), about.get(BOOKED_AS))

    def restore(self, task: RecipeTask, rows: Any, booking: Reservation | None) -> RecipeRun:
        """The run where it was saved, on features prepared by what was released then; nothing is released now.

        Steps that were begun after the save, by a process that was killed, are paid for: the run makes as many less.
        """
        prepared = restore_prepared(task.recipe, task.features, task.plan.multipliers[0], self.arrays, self.event)
        model = prepared.model(rows.shape[1], task.data.classes or 2)
        optimizer = make_optimizer(task.recipe, model)
        data, how = prepared.examples(rows, task.train[1])
        # The size of pieces is that of the saved run.
        how.pop("micro_batch", None)
        before = prepared.event
        how["unit"] = task.data.people.get("unit")
        run = PrivateRun.resume(self.folder.path, model, LOSS, data=data, optimizer=optimizer, before=before, **how)
        if booking is not None:
            _resume_booking(booking, task, run)
        return RecipeRun(prepared, run, optimizer)


def _resume_booking(booking: Reservation, task: RecipeTask, run: PrivateRun) -> None:
    before = task.recipe.releases
    start, stop = before + run.step, before + run.steps
    lost = [(before + step, before + step + 1) for step in run.lost.elements()]
    known = booking.resume(start, stop, drawn=[(0, start), *lost])
    if known.stop < stop:
        booking.settle()
        raise CannotResume(
            f"{booking.ledger.path} allows {known.stop - start:,} of the {stop - start:,} remaining steps. Raise "
            "the budget of its data set, then resume."
        )


def stop_run(training: RecipeTraining) -> str:
    """Save a run that Ctrl-C stopped, if that is possible; say what was spent, and how to resume or start again."""
    booking, budget, run = training.booking, training.task.budget, training.run
    total = f"of {budget.epsilon:g} at delta {budget.delta:g}"
    resume = f"Resume with: {write_resume_command(training.folder.path)}"
    if run is not None and training.charged is not None and training.charged.is_between_steps:
        training.refuse_unless_reserved()
        training.save(run)
        return (
            f"Stopped after step {run.run.step:,} of {run.run.steps:,} and saved. Spent so far: epsilon "
            f"{training.describe_spent()} {total}; if intermediate results made you stop, count the full planned "
            f"budget.{describe_reservation(booking)} {resume}"
        )
    if run is None and training.stopped is not None:
        return f"Stopped before the next step: nothing more was released, and nothing more was spent. {resume}"
    again = f"Start again with: {command_of(asdict(training.settings), with_paths=True)}"
    if training.event() is None:
        return f"Stopped before any noise was drawn: nothing is released, spent or written. {again}"
    charged = ""
    if booking is not None:
        booking.settle()
        charged = f" {booking.ledger.path} is charged for that as run {booking.run}, and for no more."
    if run is not None:
        return (
            "Stopped in the middle of a step. Steps since the last save are lost. Their noise was drawn, so a resumed "
            "run without a seed makes that many fewer. "
            f"Spent: epsilon {training.describe_spent()} {total}.{charged} {resume}"
        )
    return (
        "Stopped in the middle of the release that prepares the features. That was not saved, so this run cannot be "
        f"resumed, and the noise that was drawn is lost. Spent: epsilon {training.describe_spent()} {total}.{charged} "
        f"{again}"
    )
