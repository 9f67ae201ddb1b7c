"""Train a private model on a data set: `train` is what `tacit train` calls."""

from __future__ import annotations

import difflib
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from tacit._other_names import explain_other_name
from tacit.accounting import Event
from tacit.datasets import Data
from tacit.errors import BudgetExceeded, CannotResume, Caution, InvalidArgument
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger, Reservation
from tacit.reports.scores import Score, describe_precision
from tacit.reports.settings import command_of
from tacit.training.fit import Callback
from tacit.training.folder import refuse_unless_free
from tacit.workflows.ledger import describe_standing, explain_over_budget, warn_if_similar
from tacit.workflows.linear import LinearTraining
from tacit.workflows.network import NetworkTraining
from tacit.workflows.predict import predict
from tacit.workflows.progress import Interrupted, explain_interrupt, show_status
from tacit.workflows.recipe import RecipeTraining, has_recipe
from tacit.workflows.saved import read_settings
from tacit.workflows.settings import (
    Settings,
    TrainOptions,
    export_run,
    is_linear_method,
    load_data,
    resolve_delta,
    warn_about,
)
from tacit.workflows.text import Paragraph, Printable

# Options that a recipe chooses.
_CHOSEN_BY_RECIPE = (
    *("--method", "--mode", "--set", "--model", "--multiplier", "--lot-size", "--steps", "--epochs"),
    *("--clip-norm", "--learning-rate", "--micro-batch", "--momentum", "--views", "--averaging"),
)
Announce = Callable[[Sequence[Paragraph]], None]
# A run that is planned and ready to go: of a network, by recipe, or of a linear model by one release.
Training = NetworkTraining | RecipeTraining | LinearTraining


def train(
    data: Any = None,
    *,
    recipe: Literal["auto", "none"] | None = None,
    resume: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    announce: Announce | None = None,
    **options: Any,
) -> TrainedRun:
    """Train a private model and save it with its guarantee. Everything that `tacit train` takes can be given here.

    `data` is the name of a data set; the path of a table, or a DataFrame, with `target` and `bounds`; or a pair of
    arrays with `population` (and `classes`). With `epsilon` alone, the automatic recipe trains a classifier and chooses
    everything else from public facts; with other options, for numbers as targets and for arrays, a network is trained
    as the options say. `resume` names the folder of
    a stopped run; arrays (with `classes`) or a DataFrame are then given again as `data`. `callbacks` are called after
    every step with a `tacit.training.fit.Step`. `announce` receives the plan before the first step. Ctrl-C finishes
    the step, saves the run and raises `Interrupted`.
    """
    given = take_options(options)
    training = _resume(data, given, Path(resume)) if resume is not None else _begin(data, given, recipe)
    if not isinstance(training, RecipeTraining) and (doubt := training.describe_doubt()) is not None:
        warnings.warn(doubt, Caution, stacklevel=2)
    if announce is not None:
        announce([training.describe_plan()])
    try:
        is_finished = training.go(callbacks)
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted(training.describe_stop(is_mid_step=True)) from None
    if not is_finished:
        raise Interrupted(training.describe_stop(is_mid_step=False))
    return TrainedRun.of(training)


def take_options(options: dict[str, Any]) -> TrainOptions:
    """Options given by keyword; an unknown one is an `InvalidArgument` that names the closest."""
    known = [one.name for one in fields(TrainOptions)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Options are {', '.join(known)}."
            raise InvalidArgument(f"There is no option {name!r}. {explain_other_name(name, known) or hint}")
    paths = {name: Path(options[name]) for name in ("out", "data_path", "bounds") if options.get(name) is not None}
    chosen = {"set": tuple(options["set"])} if options.get("set") is not None else {}
    return TrainOptions(**{**options, **paths, **chosen})


def _begin(source: Any, options: TrainOptions, recipe: str | None) -> Training:
    with explain_interrupt():
        refuse_unless_free(options.out)
        with show_status("Reading data"):
            is_linear = is_linear_method(options.method)
            data, table = load_data(source, options, hold_out=not is_linear)
        by_recipe = _wants_recipe(recipe, options, data, is_scaled=table is not None or isinstance(source, str))
        kind = RecipeTraining if by_recipe else LinearTraining if is_linear else NetworkTraining
        _refuse_memory_unless(by_recipe and table is not None, options)
        try:
            with show_status("Accounting"):
                training = kind.begin(data, options, table)
        except BudgetExceeded as refused:
            raise _explain_over_budget(refused, data, options, kind) from None
        warn_about(data, training.settings)
        if table is not None and "bounds" in table and training.settings.ledger is not None:
            settings = training.settings
            warn_if_similar(options.ledger or "", settings.ledger_name, data, table["bounds"])
        return training


def _wants_recipe(asked: str | None, options: TrainOptions, data: Data, *, is_scaled: bool) -> bool:
    """Whether to train by recipe: if asked for, and by default for a classifier with an epsilon alone.

    Arrays, whose scale nobody declared, are trained on as they are unless a recipe is asked for. `InvalidArgument` if
    a recipe is asked for together with something that it chooses.
    """
    given = [option for option in options.list_given() if option in _CHOSEN_BY_RECIPE]
    if options.features is not None and (given or asked == "none" or options.epsilon is None):
        raise InvalidArgument(
            "--features is for the automatic recipe, which needs --epsilon and chooses the rest. Leave out "
            f"{', '.join(given) or '--recipe none'}."
        )
    if asked is None:
        return has_recipe(data) and not given and is_scaled and options.epsilon is not None
    if asked == "none":
        return False
    if given:
        raise InvalidArgument(f"--recipe auto chooses {', '.join(given)} itself. Leave out one or the other.")
    if options.epsilon is None:
        raise InvalidArgument("--recipe auto needs --epsilon: the noise follows from it.")
    return True


def _refuse_memory_unless(is_table_by_recipe: bool, options: TrainOptions) -> None:
    if options.memory is not None and not is_table_by_recipe:
        raise InvalidArgument(
            "--memory is for a table of your own that a recipe trains on. Leave it out, or leave out what a recipe "
            "chooses itself."
        )


def _explain_over_budget(
    refused: BudgetExceeded, data: Data, options: TrainOptions, kind: type[Training]
) -> BudgetExceeded:
    """The refusal with the --epsilon that would fit, if an epsilon was typed."""
    if options.epsilon is None or options.ledger is None:
        return refused

    def cost(epsilon: float, delta: float) -> Event:
        planned = RecipeTraining if kind is RecipeTraining else NetworkTraining
        return planned.plan_cost(data, replace(options, epsilon=epsilon, delta=delta))

    dataset = options.dataset or data.name
    delta = resolve_delta(options.delta, data.population)
    return explain_over_budget(refused, Ledger(options.ledger), dataset, cost, (options.epsilon, delta))


def _resume(data: Any, options: TrainOptions, folder: Path) -> NetworkTraining | RecipeTraining:
    movable = ("--data-path", "--ledger", "--memory", *(["--classes"] if isinstance(data, tuple) else []))
    is_name = isinstance(data, str)
    extra = [*([data] if is_name else []), *(name for name in options.list_given() if name not in movable)]
    if extra:
        raise InvalidArgument(
            f"--resume continues a run as it was planned, but {', '.join(extra)} was given too. Leave that out; only "
            "--data-path and --ledger, if the files have moved, --memory and --json can be given."
        )
    with explain_interrupt(is_resumed=True):
        settings = read_settings(folder)
        if is_linear_method(settings.method):
            again = command_of({**asdict(settings), "seed": None}, with_paths=True)
            raise CannotResume(
                f"{folder} holds a finished run: {settings.method} makes one release, and there is nothing to resume. "
                f"Another run, with fresh noise and a cost of its own: {again}"
            )
        kind = NetworkTraining if settings.recipe is None else RecipeTraining
        _refuse_memory_unless(kind is RecipeTraining and settings.table is not None, options)
        with show_status("Reading the saved run"):
            source = settings.load(options.data_path, data, options.classes, options.memory)
            return kind.resume(folder, settings, source, options)


@dataclass(frozen=True, eq=False)
class TrainedRun(Printable):
    """A finished run: its model, score and guarantee, and the folder that holds them. Printing it says all of that."""

    folder: Path
    data: Data
    settings: Settings
    model: nn.Module
    score: Score | None
    guarantee: Guarantee
    metrics: dict[str, Any]
    booking: Reservation | None

    @staticmethod
    def of(training: Training) -> TrainedRun:
        """The result of a training that has gone through all its steps."""
        score, guarantee, metrics = training.final_score, training.guarantee(), training.metrics()
        about = training.data, training.settings, training.model
        return TrainedRun(training.folder.path, *about, score, guarantee, metrics, training.booking)

    def predict(self, data: Any, probabilities: bool = False) -> Any:
        """Class names, or numbers in the target's unit, for raw rows: `tacit.predict` with this run."""
        return predict(self.folder, data, probabilities)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report of this run as an HTML page; return its path."""
        # Reports train baselines, so they import this module.
        from tacit.workflows.report import report

        return report(self.folder, out).page

    def paragraphs(self) -> list[Paragraph]:
        """The score, the guarantee, the ledger and the files, as titles with lines."""
        booking, name = self.booking, self.settings.ledger_name
        return [
            (self._describe_score(), []),
            ("Guarantee", str(self.guarantee).splitlines()),
            *([] if booking is None else [("Ledger", [describe_standing(booking.ledger, name, booking.run)])]),
            ("Files", [f"{self.folder}: model.safetensors, guarantee.json, metrics.json"]),
            *self._describe_use(),
        ]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return export_run(self.folder, self.metrics, self.score, self.guarantee)

    def _describe_score(self) -> str:
        data, found = self.data, self.score
        if not data.is_test_private:
            return f"{found} on {len(data.test[1]):,} public examples{_describe_interval(found)}"
        if is_linear_method(self.settings.method):
            return "No score: this method trains on every row, and no public rows to test on were named"
        if not data.is_tested:
            return "No score: no rows are held out, as declared"
        if found is None:
            return "No score: a score of private rows needs Gaussian noise, and this method has another noise"
        return f"{found} on rows held out, measured with noise{_describe_interval(found)}"

    def _describe_use(self) -> list[Paragraph]:
        return [] if self.settings.seed is not None else describe_use(self.folder)


def describe_use(folder: Path) -> list[Paragraph]:
    """How to predict with the model of a run."""
    command = shlex.join(["tacit", "predict", str(folder)])
    return [("Use", [f"{command} NEW.csv, or tacit.load({str(folder)!r}).predict(rows) in Python."])]


def _describe_interval(found: Score | None) -> str:
    return "" if found is None else describe_precision(found.name, found.interval, found.noise_std)
