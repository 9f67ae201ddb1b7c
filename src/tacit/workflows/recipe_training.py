"""The private training by recipe: preparing features, stepping, saving and resuming, and how it is described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from tacit.accounting import curve
from tacit.accounting.events import Event, from_json
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import CannotResume, InvalidArgument
from tacit.estimators.by_recipe import save_model
from tacit.guarantee import FIXED_SEED, Guarantee
from tacit.ledger import Ledger, Reservation, fingerprint
from tacit.ledger.storage import storage_at
from tacit.recipes.recipe import Recipe
from tacit.recipes.run import (
    LOSS,
    RecipePlan,
    RecipeRun,
    begin_by_recipe,
    list_released,
    make_optimizer,
    restore_prepared,
)
from tacit.reports.settings import command_of
from tacit.reports.wording import up
from tacit.training import checkpoint
from tacit.training.charging import refuse_unless_reserved
from tacit.training.fit import Callback, Step, fit
from tacit.training.folder import RunFolder, find_free_folder
from tacit.training.journal import lost_steps
from tacit.training.lots import Lot
from tacit.training.run import PrivateRun
from tacit.workflows.model_file import describe_model
from tacit.workflows.network import (
    NOT_FOR_RELEASE,
    add_assumptions,
    describe_data,
    describe_reservation,
    read_scores,
    resume_command,
)
from tacit.workflows.progress import (
    TrainingProgress,
    show_status,
    stop_on_interrupt,
)
from tacit.workflows.recipe import RecipeTask, make_task, resolve_recipe
from tacit.workflows.scoring import Score, accuracy_of, held_out_score, refuse_unless_charged, with_score
from tacit.workflows.settings import Settings, Table, TrainOptions
from tacit.workflows.text import Paragraph

# How often the model is scored on public examples while it trains.
_SCORES = 20
_BOOKED_AS, _PREPARATION_EVENT = "entered", "preparation_event"


@final
class _ChargedRun:
    """The steps of a run by recipe, each charged to the ledger before its noise is drawn.

    In the ledger, the releases that prepare the features come first, so a step's place is offset by their number.
    """

    def __init__(self, begun: RecipeRun, booking: Reservation | None, offset: int) -> None:
        self._run, self._booking, self._offset = begun.run, booking, offset
        # A run can be saved between steps; Ctrl-C pressed twice ends it in the middle of one.
        self.is_between_steps = True

    @property
    def step(self) -> int:
        return self._run.step

    def __len__(self) -> int:
        return len(self._run)

    def __iter__(self) -> Iterator[Lot]:
        return iter(self._run)

    def backward(self, lot: Lot) -> None:
        self.is_between_steps = False
        if self._booking is not None:
            self._booking.begin(self._offset + self._run.step)
        self._run.backward(lot)


@final
class RecipeTraining:
    """A run by recipe from its features to its last step. `scores` holds the test scores, by step."""

    def __init__(self, task: RecipeTask, folder: Path, stopped: StoppedRun | None = None) -> None:
        self.task, self.data, self.settings = task, task.data, task.settings
        self.folder, self._stopped = RunFolder(folder), stopped
        self.scores: dict[int, Score] = {} if stopped is None else dict(stopped.scores)
        self.booking = _book(task, stopped)
        self._has_released = False
        self._begun: RecipeRun | None = None
        self._charged: _ChargedRun | None = None

    @classmethod
    def begin(cls, data: Data, options: TrainOptions, table: Table | None) -> Self:
        """Plan a new run. Nothing is released, charged or written yet."""
        with show_status("Reading data"):
            task = make_task(data, resolve_recipe(data, options, table), options.data_path)
        return cls(task, options.out or find_free_folder(data.name))

    @staticmethod
    def plan_cost(data: Data, options: TrainOptions) -> Event:
        """What a run with these options would release."""
        settings = resolve_recipe(data, options, None)
        assert settings.recipe is not None
        assert settings.epsilon is not None
        return RecipePlan.of(Recipe(**settings.recipe), Budget(settings.epsilon, settings.delta)).event(settings.steps)

    @classmethod
    def resume(cls, folder: Path, settings: Settings, data: Data, options: TrainOptions) -> Self:
        """Resume a run that was stopped and saved."""
        stopped = StoppedRun.read(RunFolder(folder), settings)
        if options.ledger is not None:
            settings = replace(settings, ledger=storage_at(options.ledger).saved_place)
        return cls(make_task(data, settings, options.data_path), folder, stopped)

    @property
    def begun(self) -> RecipeRun:
        """The run, once the preparation is released."""
        assert self._begun is not None
        return self._begun

    @property
    def model(self) -> nn.Module:
        """The linear model over the prepared features."""
        return self.begun.run.model

    @property
    def final_score(self) -> Score | None:
        """The score after the last step."""
        return self.scores.get(self.task.recipe.steps)

    def go(self, callbacks: Sequence[Callback] = ()) -> bool:
        """Prepare the features, make the remaining steps and write all files. False if Ctrl-C came first."""
        task = self.task
        rows, test_rows = task.compute_features()
        with show_status("Preparing the features"):
            if self._stopped is None:
                self._begun = self._prepare(rows)
            else:
                self._begun = self._stopped.restore(task, rows, self.booking)
            del rows
            test = self.begun.prepared.of_features(test_rows)
        self._charged = _ChargedRun(self.begun, self.booking, task.recipe.releases)
        if not self._make_steps(self._charged, test, callbacks):
            return False
        if task.data.is_test_private:
            self._score_held_out(test)
        if self.booking is not None:
            self.booking.settle()
        self._write()
        return True

    def _prepare(self, rows: Any) -> RecipeRun:
        """Charge and release what prepares the features; the run has made no step yet."""
        task = self.task
        self._has_released = task.recipe.releases > 0
        for release in range(task.recipe.releases):
            if self.booking is not None:
                self.booking.begin(release)
        return begin_by_recipe(
            task.plan,
            rows,
            task.train[1],
            features=None,
            classes=task.data.classes or 2,
            seed=task.settings.seed,
            shape=task.image_shape,
        )

    def _make_steps(self, charged: _ChargedRun, test: torch.Tensor, callbacks: Sequence[Callback]) -> bool:
        run, steps, is_scored = self.begun.run, self.task.recipe.steps, not self.data.is_test_private
        progress = TrainingProgress(run.step, steps, self.task.budget.epsilon)
        with stop_on_interrupt() as is_asked, progress:

            def show_and_score(step: Step) -> bool:
                charged.is_between_steps = True
                if is_scored and step.number % max(1, steps // _SCORES) == 0:
                    self._score(test)
                    epoch = int(step.number * self.task.recipe.rate)
                    progress.show_score(epoch, step.number, str(self.scores[step.number]))
                progress.show_step(step.number, lambda: None, self._spent)
                return is_asked() and len(run) > 0

            if not fit(charged, self.begun.optimizer, [show_and_score, *callbacks]):
                return False
        self._refuse_unless_reserved()
        if is_scored:
            self._score(test)
        return True

    def _score(self, test: torch.Tensor) -> None:
        """Score the present weights on public examples."""
        self._refuse_unless_reserved()
        self.scores[self.begun.run.step] = accuracy_of(self.model, test.numpy(), self.task.test[1])

    def _refuse_unless_reserved(self) -> None:
        """Raise `OutOfOrder`, before anything is shown or written, if the ledger reserved less than was drawn."""
        if self.booking is not None:
            run = self.begun.run
            refuse_unless_reserved(self.booking, run.plan.total(run.step), run.guarantee().event)

    def _score_held_out(self, test: torch.Tensor) -> None:
        run = self.begun.run
        data = replace(self.data, test=(test.numpy(), self.task.test[1]))
        found = held_out_score(run.model, data, run, self.settings.seed)
        with_score(self.begun.guarantee(), found)
        refuse_unless_charged(self.booking, found)
        if found is not None:
            self.scores[run.step] = found

    def guarantee(self) -> Guarantee:
        """What is proven about the preparation and all steps."""
        proven = with_score(self.begun.guarantee(), self.scores.get(self.begun.run.step))
        return add_assumptions(proven, self.settings, self.data)

    def metrics(self) -> dict[str, Any]:
        """Public settings and scores, in the form of any other run."""
        task, run = self.task, self.begun.run
        return {
            "settings": self.settings.public(),
            "multiplier": run.multiplier,
            "preparation_multiplier": task.plan.multipliers[0],
            "steps": run.step,
            "is_finished": run.step == task.recipe.steps,
            "test": [{"step": step, **one.as_row()} for step, one in self.scores.items()],
            "test_examples": None if self.data.is_test_private else len(task.test[1]),
            "data": describe_data(self.data, self.settings.salt),
        }

    def _event(self) -> Event | None:
        """What was drawn so far; of a preparation that did not end, everything that was planned."""
        if self._begun is not None:
            return self._begun.guarantee().event
        return self.task.plan.event(0) if self._has_released else None

    def _spent(self) -> str:
        event = self._event()
        return "0" if event is None else up(curve(event).epsilon(self.task.budget.delta), 4)

    def describe_plan(self) -> Paragraph:
        """What is about to happen and what it will cost."""
        recipe, budget, (preparation, step) = self.task.recipe, self.task.budget, self.task.plan.multipliers
        lines = [
            f"epsilon {up(budget.epsilon)} at delta {budget.delta:g} for everything (add/remove one example, PLD).",
            f"{recipe.steps:,} steps, lots of {recipe.lot_size:,.0f} expected out of {recipe.population:,} examples, "
            f"multiplier {step:.4g}, clip norm {recipe.clip_norm:g}, learning rate {recipe.learning_rate:.4g}.",
        ]
        if preparation is not None:
            what = "mean and second moments" if recipe.preparation == "whitening" else "mean"
            lines.insert(
                1, f"First the {what} of the features are released, with noise of multiplier {preparation:.4g}."
            )
        if self.settings.seed is not None:
            lines.append(NOT_FOR_RELEASE)
        if self._stopped is not None:
            return f"Resuming {self.folder.path}", lines
        return f"Plan: automatic recipe ({recipe.kind}) on {self.data.name}", [*lines, f"Folder: {self.folder.path}"]

    def describe_stop(self, *, is_mid_step: bool) -> str:
        """Save the run if it can be saved; say what was spent, and how to resume or start again."""
        charged = self._charged
        if self._begun is not None and charged is not None and charged.is_between_steps:
            return self._save_stopped(self._begun)
        if self._begun is None and self._stopped is not None:
            return (
                "Stopped before the next step: nothing more was released, and nothing more was spent. Resume with: "
                f"{resume_command(self.folder.path)}"
            )
        again = f"Start again with: {command_of(asdict(self.settings), with_paths=True)}"
        if self._event() is None:
            return f"Stopped before any noise was drawn: nothing is released, spent or written. {again}"
        booked = ""
        if self.booking is not None:
            self.booking.settle()
            booked = f" {self.booking.ledger.path} is charged for that as run {self.booking.run}, and for no more."
        budget = self.task.budget
        where = "the release that prepares the features" if self._begun is None else "a step"
        return (
            f"Stopped in the middle of {where}. That was not saved, so this run cannot be resumed, and the noise that "
            f"was drawn is lost. Spent: epsilon {self._spent()} of {up(budget.epsilon)} at delta {budget.delta:g}."
            f"{booked} {again}"
        )

    def _save_stopped(self, begun: RecipeRun) -> str:
        self._refuse_unless_reserved()
        save_stopped(self.folder, self.task, begun, self.booking)
        self.folder.write_metrics(self.metrics())
        self.folder.write_guarantee(self.guarantee())
        budget = self.task.budget
        return (
            f"Stopped after step {begun.run.step:,} of {begun.run.steps:,} and saved. Spent so far: epsilon "
            f"{self._spent()} of {up(budget.epsilon)} at delta {budget.delta:g}; if intermediate results made you "
            f"stop, count the full planned budget.{describe_reservation(self.booking)} "
            f"Resume with: {resume_command(self.folder.path)}"
        )

    def _write(self) -> None:
        """Write the files of a finished run; the guarantee comes last, without which a folder holds no run."""
        task, run, prepared, folder = self.task, self.begun.run, self.begun.prepared, self.folder
        guarantee = self.guarantee()
        weights = {name: value.contiguous() for name, value in run.model.state_dict().items()}
        tree = {"plan": run.plan, "model": weights, "prepared": list_released(prepared.preparation)}
        with folder.explain_errors():
            self.settings.write(folder.path)
            checkpoint.write(folder.path, {**tree, _PREPARATION_EVENT: prepared.event})
            save_model(
                folder.model,
                run.model,
                prepared,
                task.recipe,
                task.examples,
                guarantee,
                multiplier=task.plan.multipliers[0],
                about=describe_model(task.data, self.settings),
            )
            folder.write_metrics(self.metrics())
            folder.write_guarantee(guarantee)
            folder.prepared.unlink(missing_ok=True)


def _book(task: RecipeTask, stopped: StoppedRun | None) -> Reservation | None:
    """The run's entry in the ledger, if there is one; `BudgetExceeded` if the ledger has no room for it."""
    settings = task.settings
    if settings.ledger is None:
        return None
    is_seeded = settings.seed is not None
    booking = Reservation(
        Ledger(settings.ledger),
        task.plan.course(is_repeatable=is_seeded),
        dataset=settings.ledger_name,
        fingerprint=fingerprint(*task.data.train),
        about={"method": "dpsgd", "recipe": "auto", "violations": [FIXED_SEED] if is_seeded else []},
        run=None if stopped is None else stopped.booked_as,
    )
    if stopped is None:
        booking.check()
    return booking


@dataclass(frozen=True, eq=False)
class StoppedRun:
    """A run by recipe that was stopped between two steps: the released preparation, its event and the scores so far.

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
        """Read what `save_stopped` wrote. `CannotResume` if the run is finished or has no budget left."""
        unseeded = {**asdict(settings), "seed": None}
        again = f"Another run, with fresh noise and a cost of its own: {command_of(unseeded, with_paths=True)}"
        if not folder.prepared.is_file():
            raise CannotResume(f"{folder.path} holds a finished run: there is nothing to resume. {again}")
        try:
            with safe_open(folder.prepared, framework="np") as opened:
                about = opened.metadata() or {}
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dict
            event = from_json(about[_PREPARATION_EVENT]) if _PREPARATION_EVENT in about else None
        except (SafetensorError, OSError, InvalidArgument) as error:
            raise CannotResume(f"{folder.prepared} cannot be read: {error}. {again}") from error
        tree = checkpoint.read(folder.path, (), needs=checkpoint.RUN)
        done = sum(times for _, times in tree["events"])
        if tree["seed"] is None and lost_steps(folder.path, done, Counter(tree["lost"])).total():
            raise CannotResume(
                f"{folder.path} was saved after step {done:,} and made more steps since that were not saved. A recipe "
                f"spends its whole budget, so nothing is left to pay for lost steps. {again}"
            )
        return StoppedRun(folder, arrays, event, read_scores(folder), about.get(_BOOKED_AS))

    def restore(self, task: RecipeTask, rows: Any, booking: Reservation | None) -> RecipeRun:
        """The run where it stopped, on features prepared by what was released then; nothing is released now."""
        prepared = restore_prepared(task.recipe, task.features, task.plan.multipliers[0], self.arrays, self.event)
        model = prepared.model(rows.shape[1], task.data.classes or 2)
        optimizer = make_optimizer(task.recipe, model)
        data = prepared.of_features(rows), torch.from_numpy(task.train[1])
        run = PrivateRun.resume(self.folder.path, model, LOSS, data=data, optimizer=optimizer)
        if booking is not None:
            _resume_booking(booking, task, run.step)
        return RecipeRun(prepared, run, optimizer)


def _resume_booking(booking: Reservation, task: RecipeTask, done: int) -> None:
    before = task.recipe.releases
    start, stop = before + done, before + task.recipe.steps
    known = booking.resume(start, stop, drawn=[(0, start)])
    if known.stop < stop:
        booking.settle()
        raise CannotResume(
            f"{booking.ledger.path} has room for {known.stop - start:,} of the {stop - start:,} remaining steps. Raise "
            "the budget of its data set, then resume."
        )


def save_stopped(folder: RunFolder, task: RecipeTask, begun: RecipeRun, booking: Reservation | None) -> None:
    """Write everything that resuming needs. The steps come last: without them there is nothing to resume."""
    cost = begun.prepared.event
    about = {} if cost is None else {_PREPARATION_EVENT: cost.to_json()}
    if booking is not None:
        about[_BOOKED_AS] = booking.run
    with folder.explain_errors():
        task.settings.write(folder.path)
        save_file(list_released(begun.prepared.preparation), folder.prepared, metadata=about)
        begun.run.save(folder.path, begun.optimizer)
