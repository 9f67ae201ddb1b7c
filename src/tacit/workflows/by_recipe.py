"""`tacit train --recipe auto`: features, numbers and noise from public facts, a linear model, one guarantee.

Everything is written when it is done, or when Ctrl-C stops it between two steps: a run takes seconds after its features
are there.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, final

import torch
import typer

from tacit.accounting import Event, curve
from tacit.cli.outcome import NOT_FOR_RELEASE, reserved, result, result_json
from tacit.cli.output import before_the_first_step, note, say, say_json, working
from tacit.cli.progress import Display, stop_on_interrupt
from tacit.cli.statement import Paragraph
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.estimators.by_recipe import save_model
from tacit.guarantee import FIXED_SEED, Guarantee
from tacit.ledger import Ledger, Reservation, fingerprint
from tacit.ledger.storage import storage_at
from tacit.recipes.run import RecipeRun, begin_by_recipe, list_released
from tacit.reports.settings import command_of
from tacit.reports.wording import up
from tacit.training import checkpoint
from tacit.training.charging import refuse_unless_reserved
from tacit.workflows.cautions import cautions
from tacit.workflows.held_out import held_out_score, refuse_unless_charged, with_score
from tacit.workflows.recipe_stopped import STOPPED, Stopped, save_stopped
from tacit.workflows.recipe_task import Task, has_recipe, settle_recipe, task_of
from tacit.workflows.scoring import Score, accuracy_of
from tacit.workflows.settings import GUARANTEE, METRICS, MODEL, Settings, Typed, free_folder
from tacit.workflows.training import about_data, completed, write_text, written

_CHOSEN_BY_RECIPE = (
    "--method",
    "--mode",
    "--set",
    "--model",
    "--multiplier",
    "--lot-size",
    "--steps",
    "--epochs",
    "--clip-norm",
    "--learning-rate",
    "--micro-batch",
    "--momentum",
    "--views",
    "--averaging",
)
# How often the model is scored on public examples while it trains.
_SCORES = 20


def takes_recipe(asked: str | None, typed: Typed, data: Data, *, is_own: bool) -> bool:
    """Whether to train by recipe: where that is asked for, and with a data set by name and an epsilon alone.

    A table of one's own is trained on as it is unless someone asks: its model is then one of its columns.
    `InvalidArgument` where a recipe is asked for together with something that it chooses.
    """
    said = [option for option in typed.given() if option in _CHOSEN_BY_RECIPE]
    if asked is None:
        return not said and not is_own and typed.epsilon is not None and has_recipe(data)
    if asked == "none":
        return False
    if said:
        raise InvalidArgument(f"--recipe auto chooses what {', '.join(said)} would say. Leave out one or the other.")
    if typed.epsilon is None:
        raise InvalidArgument("--recipe auto needs --epsilon: the noise is found from it.")
    return True


def train_as_typed(data: Data, table: dict[str, str] | None, typed: Typed, as_json: bool) -> None:
    """From the command to the files: nothing is drawn before the ledger, if there is one, has been charged."""
    with before_the_first_step():
        with working("Reading data"):
            task = task_of(data, settle_recipe(data, typed, table), typed.data_path)
        folder = typed.out or free_folder(data.name)
        for line in cautions(data, task.settings):
            note(line)
        if not as_json:
            lines = [*plan_lines(task), f"The run will be written to {folder}."]
            say([(f"Plan: the automatic recipe ({task.recipe.kind}) on {data.name}", lines)])
    _finish(Attempt(task, folder), as_json)


def go_on(folder: Path, settings: Settings, data_path: Path | None, ledger: str | None, as_json: bool) -> None:
    """With a run that was stopped and saved, where it stopped; `data_path` and `ledger` say what has moved."""
    with before_the_first_step(is_resumed=True):
        stopped = Stopped.read(folder, settings)
        with working("Reading data"):
            moved = settings if ledger is None else replace(settings, ledger=storage_at(ledger).saved_place)
            task = task_of(settings.load(data_path), moved, data_path)
        if not as_json:
            say([(f"Going on with {folder}", plan_lines(task))])
    _finish(Attempt(task, folder, stopped), as_json)


def _finish(attempt: Attempt, as_json: bool) -> None:
    task, folder = attempt.task, attempt.folder
    try:
        attempt.go()
    except KeyboardInterrupt:
        note(attempt.stopped())
        raise typer.Exit(130) from None
    guarantee, score = attempt.guarantee(), attempt.scores.get(task.recipe.steps)
    _write(attempt, guarantee)
    if as_json:
        say_json(result_json(folder, attempt.metrics(), score, guarantee))
        return
    print()
    say([*result(task.data, score, guarantee, folder, attempt.booking), *_use(task, folder)])


def _use(task: Task, folder: Path) -> list[Paragraph]:
    """How to predict with a model that is for use."""
    if task.settings.seed is not None:
        return []
    return [("Use", [f"tacit.load({str(folder)!r}) gives a classifier that predicts, from model.safetensors alone."])]


def plan_lines(task: Task) -> list[str]:
    """What is about to happen and what it will cost."""
    recipe, (preparation, step) = task.recipe, task.plan.multipliers
    lines = [
        f"epsilon {up(task.budget[0])} at delta {task.budget[1]:g} for all of it (one example added or removed, PLD).",
        f"{recipe.steps:,} steps with lots of {recipe.lot_size:,.0f} expected out of {recipe.population:,} examples, "
        f"multiplier {step:.4g}, clip norm {recipe.clip_norm:g}, learning rate {recipe.learning_rate:.4g}.",
    ]
    if preparation is not None:
        what = "mean and then second moments" if recipe.preparation == "whitening" else "mean"
        lines.insert(1, f"First the {what} of the features: noise with multiplier {preparation:.4g}.")
    if task.settings.seed is not None:
        lines.append(NOT_FOR_RELEASE)
    return lines


@final
class Attempt:
    """A task from its features to its last step. `scores` holds what was measured on test examples, by step."""

    def __init__(self, task: Task, folder: Path, before: Stopped | None = None) -> None:
        self.task, self.folder, self._before = task, folder, before
        self.scores: dict[int, Score] = {} if before is None else dict(before.scores)
        self.booking = _booking(task, before)
        self._has_released = False
        # Between steps a run can be saved; pressed twice, Ctrl-C ends it in the midst of one.
        self._is_between_steps = True
        self._begun: RecipeRun | None = None

    @property
    def begun(self) -> RecipeRun:
        """The run; there is none before the preparation was released."""
        assert self._begun is not None
        return self._begun

    def go(self) -> None:
        """All of it. Ctrl-C raises `KeyboardInterrupt`, once the step that was begun is over."""
        task = self.task
        rows, test_rows = task.rows()
        doing = "Releasing what prepares the features" if self._before is None else "Preparing the features"
        with working(doing):
            self._begun = self._first(rows) if self._before is None else self._before.begun(task, rows, self.booking)
            del rows
            test = self.begun.prepared.of_features(test_rows)
        self._make_steps(test)
        if task.data.is_test_private:
            self._score_held_out(test)
        if self.booking is not None:
            self.booking.settle()

    def _first(self, rows: Any) -> RecipeRun:
        """The run before its first step. Before anything is drawn, it is charged."""
        task = self.task
        self._has_released = task.recipe.releases > 0
        for release in range(task.recipe.releases):
            self._charge(release)
        return begin_by_recipe(
            task.plan,
            rows,
            task.train[1],
            features=None,
            classes=task.data.classes or 2,
            seed=task.settings.seed,
            shape=task.image_shape,
        )

    def _charge(self, place: int) -> None:
        if self.booking is not None:
            self.booking.begin(place)

    def _make_steps(self, test: torch.Tensor) -> None:
        begun, run, steps = self.begun, self.begun.run, self.task.recipe.steps
        with stop_on_interrupt() as asked, Display(run.step, steps, self.task.budget[0]) as display:
            for lot in run:
                self._is_between_steps = False
                self._charge(self.task.recipe.releases + run.step)
                begun.step(lot)
                self._is_between_steps = True
                if not self.task.data.is_test_private and run.step % max(1, steps // _SCORES) == 0:
                    self._refuse_unless_reserved()
                    self.scores[run.step] = accuracy_of(run.model, test.numpy(), self.task.test[1])
                    display.epoch(int(run.step * self.task.recipe.rate), run.step, str(self.scores[run.step]))
                display.step(run.step, lambda: None, self._spent)
                if asked() and len(run):
                    raise KeyboardInterrupt
        self._refuse_unless_reserved()
        if not self.task.data.is_test_private:
            self.scores[steps] = accuracy_of(run.model, test.numpy(), self.task.test[1])

    def _refuse_unless_reserved(self) -> None:
        """Before anything is shown or written: the ledger must have reserved what the noise says was drawn."""
        if self.booking is not None:
            run = self.begun.run
            refuse_unless_reserved(self.booking, run.plan.total(run.step), run.guarantee().event)

    def _score_held_out(self, test: torch.Tensor) -> None:
        run, labels = self.begun.run, self.task.test[1]
        data = replace(self.task.data, test=(test.numpy(), labels))
        found = held_out_score(run.model, data, run, self.task.settings.seed)
        with_score(self.begun.guarantee(), found)
        refuse_unless_charged(self.booking, found)
        if found is not None:
            self.scores[run.step] = found

    def guarantee(self) -> Guarantee:
        """What is proven about the preparation and all steps."""
        proven = with_score(self.begun.guarantee(), self.scores.get(self.begun.run.step))
        return completed(proven, self.task.settings, self.task.data)

    def metrics(self) -> dict[str, Any]:
        """How well the model did, and with which settings: in the form of any other run."""
        task, run = self.task, self.begun.run
        return {
            "settings": task.settings.public(),
            "multiplier": run.multiplier,
            "preparation_multiplier": task.plan.multipliers[0],
            "steps": run.step,
            "is_finished": run.step == task.recipe.steps,
            "test": [{"step": step, **one.as_row()} for step, one in self.scores.items()],
            "test_examples": None if task.data.is_test_private else len(task.test[1]),
            "data": about_data(task.data, task.settings.salt),
        }

    def _event(self) -> Event | None:
        """What was drawn so far; of a preparation that did not end, all that was planned."""
        if self._begun is not None:
            return self._begun.guarantee().event
        return self.task.plan.event(0) if self._has_released else None

    def _spent(self) -> str:
        event = self._event()
        return "0" if event is None else up(curve(event).epsilon(self.task.budget[1]), 4)

    def stopped(self) -> str:
        """Where it was stopped, what that has cost, and the command that goes on or starts again."""
        if self._begun is not None and self._is_between_steps:
            return self._saved(self._begun)
        if self._begun is None and self._before is not None:
            go_on = f"Go on with: {_resuming(self.folder)}"
            return f"Stopped before the next step: nothing more was released, and nothing more was spent. {go_on}"
        again = f"Start again with: {command_of(asdict(self.task.settings), with_paths=True)}"
        if self._event() is None:
            return f"Stopped before any noise was drawn: nothing is released, spent or written. {again}"
        charged = ""
        if self.booking is not None:
            self.booking.settle()
            charged = f" {self.booking.ledger.path} is charged for that as run {self.booking.run}, and for no more."
        epsilon, delta = self.task.budget
        where = "the release that prepares" if self._begun is None else "a step"
        return (
            f"Stopped at once, in the midst of {where}. That was not saved, so this run cannot go on, and the noise "
            f"that was drawn is lost. Spent: epsilon {self._spent()} of {up(epsilon)} at delta {delta:g}."
            f"{charged} {again}"
        )

    def _saved(self, begun: RecipeRun) -> str:
        """Save the run, and say so."""
        self._refuse_unless_reserved()
        save_stopped(self.folder, self.task, begun, self.booking)
        write_text(self.folder / METRICS, json.dumps(self.metrics(), indent=1, allow_nan=False))
        write_text(self.folder / GUARANTEE, self.guarantee().to_json())
        epsilon, delta = self.task.budget
        return (
            f"Stopped after step {begun.run.step:,} of {begun.run.steps:,} and saved. Spent so far: epsilon "
            f"{self._spent()} of {up(epsilon)} at delta {delta:g}; if it was for what you saw that you stopped, count "
            f"all of it.{reserved(self.booking)} Go on with: {_resuming(self.folder)}"
        )


def _resuming(folder: Path) -> str:
    return shlex.join(["tacit", "train", "--resume", str(folder)])


def _booking(task: Task, before: Stopped | None) -> Reservation | None:
    """The run's place in the ledger, if there is one; `BudgetExceeded` now if there is no room for it."""
    settings = task.settings
    if settings.ledger is None:
        return None
    seeded = settings.seed is not None
    booking = Reservation(
        Ledger(settings.ledger),
        task.plan.course(is_repeatable=seeded),
        dataset=settings.data,
        fingerprint=fingerprint(*task.data.train),
        about={"method": "dpsgd", "recipe": "auto", "violations": [FIXED_SEED] if seeded else []},
        run=None if before is None else before.entered,
    )
    if before is None:
        booking.check()
    return booking


def _write(attempt: Attempt, guarantee: Guarantee) -> None:
    """The files of any other run; the guarantee comes last, without which a folder is none."""
    task, run, folder = attempt.task, attempt.begun.run, attempt.folder
    weights = {name: value.contiguous() for name, value in run.model.state_dict().items()}
    prepared = attempt.begun.prepared
    tree = {"plan": run.plan, "model": weights, "prepared": list_released(prepared.preparation)}
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        task.settings.write(folder)
        checkpoint.write(folder, {**tree, "preparation_event": prepared.event})
        save_model(
            folder / MODEL,
            run.model,
            prepared,
            task.recipe,
            task.examples,
            guarantee,
            multiplier=task.plan.multipliers[0],
            about={"data": task.data.name},
        )
        write_text(folder / METRICS, json.dumps(attempt.metrics(), indent=1, allow_nan=False))
        write_text(folder / GUARANTEE, guarantee.to_json())
        (folder / STOPPED).unlink(missing_ok=True)
