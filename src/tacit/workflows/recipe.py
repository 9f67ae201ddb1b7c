"""Training by the automatic recipe: features, noise and learning rate from public facts, a linear model.

A run is saved once its preparation is released, every half minute, when Ctrl-C stops it between two steps, and at its
end. So it survives a power cut: steps that were begun after the last save are paid for by as many steps less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from tacit import _validate, datasets
from tacit._rows import drop_pages, make_rows
from tacit.accounting import curve
from tacit.accounting.calibrate import Budget
from tacit.accounting.events import Event
from tacit.datasets import Data
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Guarantee, round_up
from tacit.ledger import Ledger, Reservation
from tacit.ledger.storage import storage_at
from tacit.randomness import fingerprint
from tacit.recipes.recipe import Kind, Recipe, RecipePlan, auto
from tacit.recipes.run import ExampleForm, RecipeRun, begin_by_recipe, choose_features, list_released, save_model
from tacit.reports.scores import Score, accuracy_of
from tacit.training.charging import refuse_unless_reserved
from tacit.training.fit import Callback, Step, fit
from tacit.training.folder import RunFolder, find_free_folder, write_checkpoint
from tacit.training.lots import Lot
from tacit.workflows.progress import (
    SECONDS_BETWEEN_SAVES,
    Timer,
    TrainingProgress,
    make_bar,
    open_console,
    show_status,
    stop_on_interrupt,
)
from tacit.workflows.scoring import held_out_score, refuse_unless_charged, with_score
from tacit.workflows.settings import (
    NOT_FOR_RELEASE,
    Settings,
    Table,
    TrainOptions,
    add_assumptions,
    describe_data,
    describe_model,
    describe_run,
    resolve_delta,
    resolve_population,
)
from tacit.workflows.stopped import BOOKED_AS, PREPARATION_EVENT, StoppedRun, stop_run
from tacit.workflows.text import Paragraph

# Features are computed for so many rows at a time, between two updates of the progress bar.
_PIECE = 1_500
_BETWEEN_DROPS = 32
# What a preparation releases, where that is more than a mean.
_RELEASED = {"whitening": "mean and second moments", "whitening and counts": "mean, second moments and counts of cells"}
# How often the model is scored on public examples while it trains.
_SCORES = 20

Pair = tuple[Any, Any]


def _find_kind(data: Data) -> Kind:
    if data.vocabulary:
        if not data.is_text:
            raise InvalidArgument(f"There is no recipe for {data.name}. Leave --recipe out.")
        return "text"
    if len(data.shape) == 1:
        return "table"
    return "handwriting" if data.is_handwriting else "image"


def has_recipe(data: Data) -> bool:
    """Whether the automatic recipe can train on these data: it predicts classes, from images, tables or texts."""
    return data.classes is not None and (not data.vocabulary or data.is_text)


def resolve_recipe(data: Data, options: TrainOptions, table: Table | None) -> Settings:
    """The settings that the recipe chooses, from public facts alone."""
    if data.classes is None:
        raise InvalidArgument(
            f"--recipe auto trains classifiers, and the target of {data.name} is a number. Leave it out."
        )
    population = resolve_population(data, options)
    delta, epsilon = resolve_delta(options.delta, population), _validate.positive("epsilon", options.epsilon)
    public: dict[str, Any] = {"population": population, "numbers": data.numbers, "shape": _image_shape(data)}
    public |= {"of_people": data.owners is not None, "features": options.features}
    recipe = auto(_find_kind(data), epsilon=epsilon, delta=delta, **public)
    return Settings.of(
        data,
        options,
        table,
        method="dpsgd",
        model="linear",
        epsilon=epsilon,
        lot_size=recipe.lot_size,
        steps=recipe.steps,
        clip_norm=recipe.clip_norm,
        learning_rate=recipe.learning_rate,
        recipe=asdict(recipe),
    )


@dataclass(frozen=True, eq=False)
class RecipeTask:
    """The examples of a data set as a recipe takes them, with the function that computes their public features.

    `train` and `test` hold pixels or columns; for texts they hold features, which are counted while reading, and
    `features` is None.
    """

    data: Data
    settings: Settings
    recipe: Recipe
    features: Any
    train: Pair
    test: Pair

    @property
    def budget(self) -> Budget:
        """What preparation and training together may cost."""
        assert self.settings.epsilon is not None
        return Budget(self.settings.epsilon, self.settings.delta)

    @cached_property
    def plan(self) -> RecipePlan:
        """Everything that will be released."""
        return RecipePlan.of(self.recipe, self.budget)

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """The shape of an image; None if the examples are no images."""
        return _image_shape(self.data) if self.recipe.kind in ("handwriting", "image") else None

    @property
    def examples(self) -> ExampleForm:
        """What whoever loads the model has to know about inputs."""
        return ExampleForm(self.image_shape, self.data.numbers if self.recipe.kind == "table" else 0)

    def begin(self, rows: Any, seed: int | None) -> RecipeRun:
        """Release what prepares the features in `rows`, which costs privacy. The run has made no step yet."""
        return begin_by_recipe(
            self.plan,
            rows,
            self.train[1],
            features=None,
            classes=self.data.classes or 2,
            seed=seed,
            shape=self.image_shape,
            **self.data.people,
        )

    def compute_features(self, *, is_shown: bool = True) -> tuple[Any, Any]:
        """The features of training and test examples, with a progress bar or without."""
        if self.features is None:
            return self.train[0], self.test[0]
        parts = self.train[0], self.test[0]
        self.features.fit(parts[0])
        with _show_bar(sum(len(part) for part in parts), is_shown=is_shown) as advance:
            return self._transform(parts[0], advance), self._transform(parts[1], advance)

    def _transform(self, inputs: Any, advance: Callable[[int], None]) -> Any:
        if not len(inputs):
            return self.features.transform(np.zeros((1, *inputs.shape[1:]), dtype=np.float32))[:0]
        rows: Any = None
        for start in range(0, len(inputs), _PIECE):
            piece = self.features.transform(inputs[start : start + _PIECE])
            if rows is None:
                rows = make_rows((len(inputs), piece.shape[1]), inputs)
            rows[start : start + len(piece)] = piece
            advance(len(piece))
            if start % (_PIECE * _BETWEEN_DROPS) == 0:
                drop_pages(inputs, rows)
        return rows


def make_task(data: Data, settings: Settings, data_path: Path | None = None) -> RecipeTask:
    """The task of a run with these settings; `data_path` if the data have moved."""
    assert settings.recipe is not None
    recipe = Recipe(**settings.recipe)
    if recipe.kind == "text":
        features = choose_features(recipe, None, 0)
        if data.words is None:
            texts = datasets.load_words(data.name, data_path or settings.data_path)
        else:
            # The user's own texts.
            texts = (data.words[0], data.train[1]), (data.words[1], data.test[1])
        train, test = ((features.of_words(words), labels) for words, labels in texts)
        return RecipeTask(data, settings, recipe, None, train, test)
    features = choose_features(recipe, _image_shape(data), data.numbers)
    return RecipeTask(data, settings, recipe, features, _flatten(data.train), _flatten(data.test))


def _image_shape(data: Data) -> tuple[int, ...]:
    return data.shape[1:] if len(data.shape) == 3 and data.shape[0] == 1 else data.shape


def _flatten(part: Pair) -> Pair:
    return part[0].reshape(len(part[0]), math.prod(part[0].shape[1:])), part[1]


@contextmanager
def _show_bar(total: int, *, is_shown: bool) -> Iterator[Callable[[int], None]]:
    if not is_shown:
        yield lambda _: None
        return
    with make_bar(open_console()) as bar:
        task = bar.add_task("Features", total=total, seen=())
        yield lambda count: bar.advance(task, count)


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
        self.folder, self.stopped = RunFolder(folder), stopped
        self.scores: dict[int, Score] = {} if stopped is None else dict(stopped.scores)
        self.booking = _book(task, stopped)
        self._has_released = False
        self.run: RecipeRun | None = None
        self.charged: _ChargedRun | None = None

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
        assert self.run is not None
        return self.run

    @property
    def model(self) -> nn.Module:
        """The linear model over the prepared features."""
        return self.begun.run.model

    @property
    def final_score(self) -> Score | None:
        """The score after the last step."""
        return None if self.run is None else self.scores.get(self.run.run.steps)

    def go(self, callbacks: Sequence[Callback] = ()) -> bool:
        """Prepare the features, make the remaining steps and write all files. False if Ctrl-C came first."""
        task = self.task
        rows, test_rows = task.compute_features()
        with show_status("Preparing the features"):
            if self.stopped is None:
                self.run = self._prepare(rows)
            else:
                self.run = self.stopped.restore(task, rows, self.booking)
            del rows
            test = self.begun.prepared.of_features(test_rows)
        self.charged = _ChargedRun(self.begun, self.booking, task.recipe.releases)
        if self.stopped is None:
            # What the preparation released was paid for: from here on it is not lost.
            self.save(self.begun)
        if not self._make_steps(self.charged, test, callbacks):
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
        return task.begin(rows, task.settings.seed)

    def _make_steps(self, charged: _ChargedRun, test: torch.Tensor, callbacks: Sequence[Callback]) -> bool:
        run, steps, is_scored = self.begun.run, self.begun.run.steps, not self.data.is_test_private
        timer = Timer(SECONDS_BETWEEN_SAVES)
        progress = TrainingProgress(run.step, steps, self.task.budget.epsilon)
        with stop_on_interrupt() as is_asked, progress:

            def show_and_score(step: Step) -> bool:
                charged.is_between_steps = True
                if is_scored and step.number % max(1, steps // _SCORES) == 0:
                    self._score(test)
                    epoch = int(step.number * self.task.recipe.rate)
                    progress.show_score(epoch, step.number, str(self.scores[step.number]))
                progress.show_step(step.number, lambda: None, self.describe_spent)
                if timer.is_due() and len(run) > 0:
                    self.save(self.begun)
                return is_asked() and len(run) > 0

            if not fit(charged, self.begun.optimizer, [show_and_score, *callbacks]):
                return False
        self.refuse_unless_reserved()
        if is_scored:
            self._score(test)
        return True

    def _score(self, test: torch.Tensor) -> None:
        """Score the present weights on public examples."""
        self.refuse_unless_reserved()
        self.scores[self.begun.run.step] = accuracy_of(self.model, test.numpy(), self.task.test[1])

    def refuse_unless_reserved(self) -> None:
        """Raise `OutOfOrder`, before anything is shown or written, if the ledger reserved less than was drawn."""
        run = self.begun.run
        # With lost steps the sum has another form; each step was compared when it was drawn.
        if self.booking is not None and not run.lost:
            refuse_unless_reserved(self.booking, run.plan.total(run.step), run.guarantee().event)

    def _score_held_out(self, test: torch.Tensor) -> None:
        """Release the one score of private rows. A crash after the mark and before the end costs the score."""
        if self.folder.score_begun.exists():
            return
        with self.folder.explain_errors():
            self.folder.score_begun.touch()
        run = self.begun.run
        data = replace(self.data, test=(test.numpy(), self.task.test[1]))
        found = held_out_score(run.model, data, run, self.settings.seed)
        with_score(self.begun.guarantee(), found)
        refuse_unless_charged(self.booking, found)
        if found is not None:
            self.scores[run.step] = found

    def guarantee(self) -> Guarantee:
        """What is proven about the preparation and all steps."""
        proven = self.begun.guarantee()
        if self.data.is_test_private:
            proven = with_score(proven, self.scores.get(self.begun.run.step))
        return add_assumptions(proven, self.settings, self.data)

    def metrics(self) -> dict[str, Any]:
        """Public settings and scores, in the form of any other run."""
        run, before = self.begun.run, self.task.plan.multipliers[0]
        facts = describe_data(self.data, self.settings.salt)
        about = {"multiplier": run.multiplier, "preparation_multiplier": before, "data": facts}
        is_finished = run.step == run.steps
        return describe_run(self.data, self.settings, self.scores, steps=run.step, is_finished=is_finished, **about)

    def event(self) -> Event | None:
        """What was drawn so far; of a preparation that did not end, everything that was planned."""
        if self.run is not None:
            return self.run.guarantee().event
        return self.task.plan.event(0) if self._has_released else None

    def describe_spent(self) -> str:
        """The epsilon of what was drawn so far."""
        event = self.event()
        return "0" if event is None else round_up(curve(event).epsilon(self.task.budget.delta))

    def describe_plan(self) -> Paragraph:
        """What is about to happen and what it will cost."""
        recipe, budget, (preparation, step) = self.task.recipe, self.task.budget, self.task.plan.multipliers
        lines = [
            f"epsilon {round_up(budget.epsilon)} at delta {budget.delta:g} in total (add/remove one "
            f"{self.data.unit_name}, PLD).",
            f"{recipe.steps:,} steps, lots of {recipe.lot_size:,.0f} expected out of {recipe.population:,} "
            f"{self.data.units_name}, "
            f"multiplier {step:.4g}, clip norm {recipe.clip_norm:g}, learning rate {recipe.learning_rate:.4g}.",
        ]
        if preparation is not None:
            what = _RELEASED.get(recipe.preparation, "mean")
            verb = "are" if recipe.preparation in _RELEASED else "is"
            lines.insert(
                1, f"First the {what} of the features {verb} released, with noise of multiplier {preparation:.4g}."
            )
        if self.settings.seed is not None:
            lines.append(NOT_FOR_RELEASE)
        if self.stopped is not None:
            return f"Resuming {self.folder.path}", lines
        return f"Plan: automatic recipe ({recipe.kind}) on {self.data.name}", [*lines, f"Folder: {self.folder.path}"]

    def describe_stop(self, *, is_mid_step: bool) -> str:
        """Save the run if it can be saved; say what was spent, and how to resume or start again."""
        return stop_run(self)

    def save(self, run: RecipeRun) -> None:
        """Write everything that resuming needs. The steps come last: without them there is nothing to resume."""
        folder, cost = self.folder, run.prepared.event
        about = {} if cost is None else {PREPARATION_EVENT: cost.to_json()}
        if self.booking is not None:
            about[BOOKED_AS] = self.booking.run
        with folder.explain_errors():
            self.settings.write(folder.path)
            save_file(list_released(run.prepared.preparation), folder.prepared, metadata=about)
            run.run.save(folder.path, run.optimizer)
        folder.write_metrics(self.metrics())
        folder.write_guarantee(self.guarantee())

    def _write(self) -> None:
        """Write the files of a finished run; the guarantee comes last, without which a folder holds no run."""
        task, run, prepared, folder = self.task, self.begun.run, self.begun.prepared, self.folder
        guarantee = self.guarantee()
        weights = {name: value.contiguous() for name, value in run.model.state_dict().items()}
        tree = {"plan": run.plan, "model": weights, "prepared": list_released(prepared.preparation)}
        with folder.explain_errors():
            self.settings.write(folder.path)
            write_checkpoint(folder.path, {**tree, PREPARATION_EVENT: prepared.event})
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
        fingerprint=fingerprint(*task.data.identified),
        about={
            "method": "dpsgd",
            "recipe": "auto",
            "unit": task.data.unit_name,
            "violations": [FIXED_SEED] if is_seeded else [],
        },
        run=None if stopped is None else stopped.booked_as,
    )
    if stopped is None:
        booking.check()
    return booking
