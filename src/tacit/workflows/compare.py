"""Compare methods at several epsilons over seeds, beside a baseline without privacy: what `tacit compare` calls."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

import tacit
from tacit import _validate
from tacit._files import write_atomic
from tacit.datasets import Data
from tacit.errors import CannotResume, InvalidArgument
from tacit.methods.registry import find_method, list_methods
from tacit.randomness import salted_fingerprint
from tacit.reports.answer import Answer
from tacit.reports.cells import NON_PRIVATE, RECIPE, key_of
from tacit.reports.comparison import write_table
from tacit.reports.page import write_comparison
from tacit.reports.score_plots import draw_lines, list_panels
from tacit.workflows.cells import Job
from tacit.workflows.cluster import Mirror, is_remote
from tacit.workflows.defaults import refuse_unless_fitting, resolve_settings
from tacit.workflows.progress import Interrupted, show_status
from tacit.workflows.recipe import has_recipe
from tacit.workflows.settings import (
    ModeName,
    Settings,
    TrainOptions,
    describe_data,
    load_data,
    refuse_people,
    warn_about,
)
from tacit.workflows.text import ShownAsText
from tacit.workflows.train import take_options
from tacit.workflows.workers import count_cores, run_jobs

if TYPE_CHECKING:
    import pandas

FILE = "comparison.json"
_VERSION = 3
_DEFAULTED = ("lot_size", "steps", "epochs", "clip_norm", "learning_rate")
Modes = Literal["rigorous", "paper", "both"]


def compare(
    data: Any,
    *,
    epsilon: float | Iterable[float] = (0.5, 1.0, 3.0),
    methods: Sequence[str] | None = None,
    mode: Modes = "rigorous",
    seeds: float = 3,
    workers: float | None = None,
    choices: Sequence[str] = (),
    command: str | None = None,
    cluster: str | None = None,
    **options: Any,
) -> Comparison:
    """Train every method that fits the data at each epsilon and seed, in parallel, beside models without privacy.

    `data` and `options` are those of `tacit.train`. `methods` defaults to all that fit and "recipe", the automatic
    recipe of `tacit.train`, unless `model` is given. `mode` chooses forms with a proof, as published, or both.
    `choices` are options of a method, as "METHOD.NAME=VALUE". Finished results are kept in the folder `out`: after
    Ctrl-C, which raises `Interrupted`, the same call continues. Seeds are fixed, so nothing that a comparison trains
    may be released.

    Results are trained in local processes, or on the workers of the Dask or Ray `cluster` at this address. `out` may be
    an address that fsspec knows, such as s3://bucket/folder: results are sent there one by one.
    """
    mirror = Mirror(options["out"], Path("comparisons")) if is_remote(options.get("out")) else None
    given = take_options(options if mirror is None else {**options, "out": mirror.local})
    levels = [epsilon] if isinstance(epsilon, (int, float)) else epsilon
    epsilons = tuple(sorted({_validate.positive("epsilon", value) for value in levels}))
    if not epsilons:
        raise InvalidArgument("Which budgets? Give --epsilon 0.5,1,3.")
    chosen = None if methods is None else _check_methods(methods)
    modes: tuple[ModeName, ...] = ("rigorous", "paper") if mode == "both" else (mode,)
    with show_status("Reading data"):
        loaded, table = load_data(data, given)
        refuse_people(loaded, "This command trains models of single rows too")
    plan = _plan(loaded, given, table, epsilons, chosen, modes, _validate.count("seeds", seeds), choices)
    folder = given.out or Path("comparisons") / loaded.name
    count = count_cores() if workers is None else _validate.count("workers", workers)
    name, place = data if isinstance(data, str) else "DATA", str(folder if mirror is None else mirror.address)
    shown = ",".join(f"{value:g}" for value in epsilons)
    again = command or shlex.join(["tacit", "compare", name, "--epsilon", shown, "--out", place])
    if mirror is not None:
        mirror.pull()
    plan.write(loaded, folder, again)
    save: Callable[[], object] = (lambda: None) if mirror is None else mirror.push
    save()
    warn_about(loaded, plan.settings)
    if not run_jobs(plan.list_jobs(), loaded, given, folder, count, cluster, save):
        done, total = plan.count_results(folder)
        raise Interrupted(f"Stopped. {done} of {total} results are kept in {folder}. Continue with: {again}")
    compared = read_comparison_folder(folder)
    save()
    return compared


@dataclass(frozen=True, eq=False)
class Comparison(ShownAsText):
    """A finished comparison. `answer` says which method to use and what privacy costs."""

    folder: Path
    facts: dict[str, Any]
    page: Path
    picture: Path

    @property
    def answer(self) -> Answer:
        """For each epsilon: the best method with a proof, its score, its cost and which methods are tied with it."""
        return Answer.of(self.facts)

    def frame(self) -> pandas.DataFrame:
        """One row per method, mode and epsilon: score, interval, AUC, adjacency, certified epsilon, seconds."""
        # pandas is not a dependency of tacit.
        import pandas

        measure = self.facts["measure"]
        rows = [
            {
                "method": row["method"],
                "mode": row["mode"],
                "epsilon": row["epsilon"],
                measure: row["mean"],
                "low": None if row["interval"] is None else row["interval"][0],
                "high": None if row["interval"] is None else row["interval"][1],
                "auc": row["auc"],
                "adjacency": row["adjacency"],
                "certified_epsilon": row["certified"],
                "seeds": row["seeds"],
                "seconds": row["seconds"],
            }
            for row in self.facts["rows"]
            if not row["refused"]
        ]
        return pandas.DataFrame(rows)

    def plot(self, axes: Axes | None = None, *, adjacency: str | None = None) -> Axes:
        """Draw scores over the certified epsilon into `axes` or the current ones, the best methods with their names.

        Guarantees of different adjacency cannot be compared, so it draws one: "add_remove" or "replace_one", by default
        the first of them that has scores.
        """
        axes = pyplot.gca() if axes is None else axes
        drawn = list_panels(self.facts)
        adjacency = adjacency or next(iter(drawn), None)
        if adjacency is None or adjacency not in drawn:
            raise InvalidArgument(f"No method with a proof has a score for {adjacency}. There are: {', '.join(drawn)}.")
        draw_lines(axes, self.facts, adjacency)
        return axes

    def table(self) -> str:
        """All scores as text: a table for each adjacency, a line for each method, a column for each epsilon."""
        return write_table(self.facts)

    def report(self) -> Path:
        """The path of the HTML page."""
        return self.page

    def __str__(self) -> str:
        return "\n".join(self.answer.lines(self.page))


def read_comparison_folder(folder: str | Path) -> Comparison:
    """The comparison in a folder; its page and picture are written again."""
    with show_status("Drawing"):
        facts, written = write_comparison(Path(folder), Path(folder))
    return Comparison(Path(folder), facts, written[0], written[2])


def _check_methods(names: Sequence[str]) -> tuple[str, ...]:
    methods = tuple(dict.fromkeys(name if name == RECIPE else find_method(name).name for name in names))
    if not methods:
        raise InvalidArgument("Which methods? Give --methods dpsgd,adaclip, or leave it out for all that fit.")
    return methods


def _plan(
    data: Data,
    options: TrainOptions,
    table: dict[str, str] | None,
    epsilons: tuple[float, ...],
    methods: tuple[str, ...] | None,
    modes: tuple[ModeName, ...],
    seeds: int,
    choices: Sequence[str],
) -> ComparisonPlan:
    if not len(data.test[1]):
        raise InvalidArgument(
            "Methods are compared by their scores, and there are no rows to score: the bounds declare held_out = 0, or "
            "the table is so small that none was held out. Declare a larger share, or a file of public rows as test."
        )
    settings = resolve_settings(data, replace(options, epsilon=epsilons[0]), table)
    refuse_unless_fitting(settings.model, data)
    fitting = list_fitting_methods(data, settings.model)
    if has_recipe(data) and (options.model is None or RECIPE in (methods or ())):
        fitting = (RECIPE, *fitting)
    unfit = [each for each in methods or () if each not in fitting]
    if unfit:
        for_what = "classes" if unfit == [RECIPE] else "linear models of features"
        raise InvalidArgument(
            f"{', '.join(unfit)} is for {for_what}, and does not fit --model {settings.model} on "
            f"{data.name}. Methods that fit: {', '.join(fitting)}."
        )
    by_method = _group_choices(choices, tuple(name for name in methods or fitting if name != RECIPE))
    for method, texts in by_method.items():
        for mode in modes:
            # Options that a method does not take are refused now, not in every one of its results.
            resolve_settings(data, replace(options, epsilon=epsilons[0], method=method, mode=mode, set=texts))
    return ComparisonPlan(options, settings, methods or fitting, modes, epsilons, seeds, by_method)


def _group_choices(texts: Sequence[str], methods: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The options of each method: METHOD.NAME=VALUE becomes NAME=VALUE under METHOD."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        method, dot, choice = text.partition(".")
        if not dot or "=" in method:
            raise InvalidArgument(
                f"Which method? --set takes METHOD.NAME=VALUE here, such as directional.variant=w1. Got {text!r}."
            )
        if method not in methods:
            raise InvalidArgument(f"--set {text} is for {method!r}, and the compared methods are {', '.join(methods)}.")
        found[method] = (*found.get(method, ()), choice)
    return found


def list_fitting_methods(data: Data, model: str) -> tuple[str, ...]:
    """Methods with noisy gradients fit everything, the others linear models of features."""
    is_linear = model == "linear" and not data.vocabulary
    return tuple(one.name for one in list_methods() if one.kind == "gradient" or is_linear)


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared, and the options that all results share. Epsilons, methods and seeds can be added later.

    `choices` holds the options of each method that `--set` gave, as NAME=VALUE.
    """

    options: TrainOptions
    settings: Settings
    methods: tuple[str, ...]
    modes: tuple[ModeName, ...]
    epsilons: tuple[float, ...]
    seeds: int
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def list_jobs(self) -> list[Job]:
        """Everything to train. The baselines without privacy, which take longest on images, come first."""
        seeds = tuple(range(self.seeds))
        # A recipe has no published form. Without an epsilon it is the baseline over its features.
        has_recipe = RECIPE in self.methods and "rigorous" in self.modes
        recipes = [Job(RECIPE, "rigorous", at, seeds) for at in (None, *self.epsilons)] if has_recipe else []
        private = [
            Job(method, mode, epsilon, seeds, self.choices.get(method, ()))
            for method in self.methods
            if method != RECIPE
            for mode in self.modes
            for epsilon in self.epsilons
        ]
        return [Job(NON_PRIVATE, "rigorous", None, seeds), *recipes, *private]

    def count_results(self, folder: Path) -> tuple[int, int]:
        """How many results are there, and how many there will be."""
        total = sum(len(job.seeds) for job in self.list_jobs())
        return total - sum(len(job.missing(folder).seeds) for job in self.list_jobs()), total

    def write(self, data: Data, folder: Path, command: str) -> None:
        """Write the plan beside the results; `CannotResume` if the folder holds another comparison."""
        before = _read_plan(folder)
        salt = secrets.token_hex() if before is None else before["salt"]
        rows = salted_fingerprint(salt, *data.train, *data.test)
        values = {
            "version": _VERSION,
            "settings": self._share_settings(),
            "same": {"data": rows, "model": self._identify_model(), "tacit": tacit.__version__},
            "data": {**self._describe(data, salt), "is_own": self.options.bounds is not None},
            "salt": salt,
            # The given options for which methods have defaults.
            "given": {name: given for name in _DEFAULTED if (given := getattr(self.options, name)) is not None},
            "plans": self._plans([] if before is None else before["plans"], command),
        }
        if before is not None:
            _refuse_another(folder, before, values)
        try:
            # It holds the salt, and the share of held-out rows in the majority class.
            write_atomic(folder / FILE, json.dumps(values, indent=1).encode(), is_private=True)
        except OSError as error:
            raise InvalidArgument(
                f"The comparison cannot be written to {folder}: {error.strerror}. Choose another --out."
            ) from error

    def _describe(self, data: Data, salt: str) -> dict[str, Any]:
        return {
            **describe_data(data, salt),
            "name": data.name,
            # The population that lots are drawn from, published or declared.
            "population": self.settings.population,
            "test_examples": len(data.test[1]),
            "constant": _score_constant(data),
        }

    def _plans(self, before: list[dict[str, Any]], command: str) -> list[dict[str, Any]]:
        """What this command asks for, and what earlier commands asked for beyond it."""
        cells = [cell for job in self.list_jobs() for cell in job.cells()]
        asked = {key_of(cell) for cell in cells}
        beyond = [plan for plan in before if not asked.issuperset(map(key_of, plan["cells"]))]
        return [*beyond, {"command": command, "cells": cells}]

    def _share_settings(self) -> dict[str, Any]:
        """The public settings that all results share; a learning rate only if it was given."""
        of_one_cell = ("epsilon", "method", "mode", "multiplier", "learning_rate")
        shared = {name: value for name, value in self.settings.public().items() if name not in of_one_cell}
        chosen = {method: list(texts) for method, texts in self.choices.items()}
        return {**shared, "learning_rate": self.options.learning_rate, "choices": chosen}

    def _identify_model(self) -> str:
        """The name of the model, or a hash of the user's file with it."""
        if ":" not in self.settings.model:
            return self.settings.model
        file = Path(self.settings.model.rpartition(":")[0])
        return hashlib.sha256(file.read_bytes()).hexdigest()


def _score_constant(data: Data) -> float | None:
    """The score of the best constant prediction: the majority class, or the mean."""
    targets = data.test[1]
    if not len(targets):
        return None
    if data.classes is None:
        return data.unit * float(targets.std())
    return float(np.bincount(targets).max() / len(targets))


def _read_plan(folder: Path) -> dict[str, Any] | None:
    """The plan of the comparison that is in the folder already, if any."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
        if before["version"] != _VERSION:
            raise CannotResume(f"{folder} holds a comparison of another version of tacit. Choose another --out.")
        bytes.fromhex(before["salt"])
        before["plans"] = [{"command": plan["command"], "cells": list(plan["cells"])} for plan in before["plans"]]
        return {name: before[name] for name in ("settings", "same", "salt", "plans")}
    except (ValueError, KeyError, TypeError) as error:
        raise CannotResume(f"{path} was not written by tacit compare: {error!r}. Choose another --out.") from error


def _refuse_another(folder: Path, before: dict[str, Any], values: dict[str, Any]) -> None:
    was, now = ({**each["settings"], **each["same"]} for each in (before, values))
    changed = [name for name in now if was.get(name) != now[name]]
    if changed:
        raise CannotResume(
            f"{folder} holds another comparison: {', '.join(changed)} differ. Choose another --out or the same values; "
            "methods, epsilons and seeds can be added."
        )
