"""Compare methods at several epsilons over seeds, beside a baseline without privacy: what `tacit compare` calls."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

import tacit
from tacit import _validate
from tacit._files import write_atomic
from tacit.accounting import Adjacency
from tacit.accounting.events import Unproven
from tacit.datasets import Data
from tacit.errors import CannotResume, Caution, InvalidArgument
from tacit.guarantee import Status
from tacit.methods.choices import read_choices
from tacit.methods.registry import find_method, list_methods
from tacit.randomness import salted_fingerprint
from tacit.reports.cells import key_of
from tacit.reports.comparison import columns, competes, lines
from tacit.reports.page import write_comparison
from tacit.reports.wording import neighbours
from tacit.workflows.cells import NON_PRIVATE, Job
from tacit.workflows.defaults import refuse_unless_fitting, resolve_settings
from tacit.workflows.network import DOUBTFUL, describe_doubt, is_doubtful, make_mechanism
from tacit.workflows.progress import Interrupted, show_status
from tacit.workflows.settings import ModeName, Settings, TrainOptions, describe_data, load_data, warn_about
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
    **options: Any,
) -> Comparison:
    """Train every method that fits the data at each epsilon and seed, in parallel, beside a baseline without privacy.

    `data` and `options` are those of `tacit.train`. `methods` defaults to all that fit. `mode` chooses forms with a
    proof, as published, or both. `choices` are options of a method, as "METHOD.NAME=VALUE". Finished results are kept
    in the folder `out`: after Ctrl-C, which raises `Interrupted`, the same call continues. Seeds are fixed, so nothing
    that a comparison trains may be released.
    """
    given = take_options(options)
    epsilons = _check_epsilons([epsilon] if isinstance(epsilon, (int, float)) else epsilon)
    chosen = None if methods is None else _check_methods(methods)
    modes: tuple[ModeName, ...] = ("rigorous", "paper") if mode == "both" else (mode,)
    with show_status("Reading data"):
        loaded, table = load_data(data, given)
    plan = _plan(loaded, given, table, epsilons, chosen, modes, _validate.count("seeds", seeds), choices)
    folder = given.out or Path("comparisons") / loaded.name
    count = count_cores() if workers is None else _validate.count("workers", workers)
    again = command or _describe_call(data, epsilons, folder)
    plan.write(loaded, folder, again)
    warn_about(loaded, plan.settings)
    for text in _list_doubts(plan):
        warnings.warn(text, Caution, stacklevel=2)
    if not run_jobs(plan.list_jobs(), loaded, given, folder, count):
        done, total = plan.count_results(folder)
        raise Interrupted(f"Stopped. {done} of {total} results are kept in {folder}. Continue with: {again}")
    return read_comparison_folder(folder)


def _describe_call(data: Any, epsilons: tuple[float, ...], folder: Path) -> str:
    name = data if isinstance(data, str) else "DATA"
    return shlex.join(
        ["tacit", "compare", name, "--epsilon", ",".join(f"{e:g}" for e in epsilons), "--out", str(folder)]
    )


@dataclass(frozen=True, eq=False)
class Comparison:
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
        """One row per method, mode and epsilon: score, interval, certified epsilon, seconds."""
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
                "certified_epsilon": row["certified"],
                "seeds": row["seeds"],
                "seconds": row["seconds"],
            }
            for row in self.facts["rows"]
            if not row["refused"]
        ]
        return pandas.DataFrame(rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the score of every method over its certified epsilon, into `axes` or the current ones."""
        axes = pyplot.gca() if axes is None else axes
        for method in dict.fromkeys(row["label"] for row in _list_scored(self.facts)):
            rows = [row for row in _list_scored(self.facts) if row["label"] == method and row["certified"] is not None]
            if rows:
                ends = [row["interval"] or (row["mean"], row["mean"]) for row in rows]
                errors = [
                    [r["mean"] - e[0] for r, e in zip(rows, ends, strict=True)],
                    [e[1] - r["mean"] for r, e in zip(rows, ends, strict=True)],
                ]
                places = [row["certified"] for row in rows]
                axes.errorbar(places, [row["mean"] for row in rows], errors, marker="o", capsize=3, label=method)
        baseline = self.answer.baseline
        if baseline is not None:
            axes.axhline(baseline, color="grey", linestyle="--", label="without privacy")
        axes.set(xscale="log", xlabel="certified ε", ylabel=self.facts["measure"], title=self.facts["title"])
        axes.legend(fontsize="small")
        return axes

    def table(self) -> list[list[str]]:
        """The column heads, then a line for every method with its scores at all epsilons, as text."""
        return [columns(self.facts), *lines(self.facts)]

    def report(self) -> Path:
        """The path of the HTML page."""
        return self.page

    def __str__(self) -> str:
        return str(self.answer)


def read_comparison_folder(folder: str | Path) -> Comparison:
    """The comparison in a folder; its page and picture are written again."""
    with show_status("Drawing"):
        facts, written = write_comparison(Path(folder), Path(folder))
    return Comparison(Path(folder), facts, written[0], written[2])


@dataclass(frozen=True)
class Choice:
    """The method to use at one epsilon and adjacency, which are never compared with each other.

    `cost` is what privacy costs against the baseline; the intervals of `ties` overlap with that of the method.
    """

    epsilon: float
    adjacency: str
    method: str
    score: float
    interval: tuple[float, float] | None
    cost: float | None
    ties: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a comparison says: the baseline, a constant prediction, and the method to use at each epsilon."""

    measure: str
    baseline: float | None
    constant: float | None
    choices: tuple[Choice, ...]

    @staticmethod
    def of(facts: dict[str, Any]) -> Answer:
        """Read the answer off the rows of a comparison. Only forms with a proof compete."""
        sign = 1.0 if facts["measure"] == "accuracy" else -1.0
        plain = next((row for row in facts["rows"] if row["method"] == NON_PRIVATE and not row["refused"]), None)
        baseline = None if plain is None else plain["mean"]
        rows = [row for row in _list_scored(facts) if row["mode"] == "rigorous" and competes(row)]
        choices = []
        for epsilon, adjacency in sorted({(row["epsilon"], row["adjacency"]) for row in rows}):
            here = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency)]
            best = max(here, key=lambda row: sign * row["mean"])
            ties = tuple(row["label"] for row in here if row is not best and _overlap(row, best))
            cost = None if baseline is None else sign * (baseline - best["mean"])
            ends = None if best["interval"] is None else (best["interval"][0], best["interval"][1])
            choices.append(Choice(epsilon, adjacency, best["label"], best["mean"], ends, cost, ties))
        return Answer(facts["measure"], baseline, facts["data"].get("constant"), tuple(choices))

    def __str__(self) -> str:
        is_share = self.measure == "accuracy"
        constant = "majority class" if is_share else "constant prediction"
        lines = [f"Without privacy: {self._write(self.baseline)}; {constant}: {self._write(self.constant)}"]
        for choice in self.choices:
            ends = choice.interval
            sure = "" if ends is None else f" ({self._write(ends[0])} to {self._write(ends[1])})"
            cost = ""
            if choice.cost is not None:
                cost = f", {100 * choice.cost:.1f} points below" if is_share else f", {choice.cost:.4g} above"
            ties = f"; tied: {', '.join(choice.ties)}" if choice.ties else ""
            where = f"epsilon {choice.epsilon:g} ({neighbours(Adjacency(choice.adjacency))})"
            lines.append(f"{where}: {choice.method}, {self._write(choice.score)}{sure}{cost}{ties}")
        return "\n".join(lines)

    def _write(self, value: float | None) -> str:
        if value is None:
            return "not known"
        return f"{100 * value:.1f} %" if self.measure == "accuracy" else f"{value:.4g}"


def _list_scored(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of private methods that have a score."""
    return [row for row in facts["rows"] if row["method"] != NON_PRIVATE and row["mean"] is not None]


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["interval"] is None or other["interval"] is None:
        return False
    return bool(one["interval"][0] <= other["interval"][1] and other["interval"][0] <= one["interval"][1])


def _check_epsilons(values: Iterable[float]) -> tuple[float, ...]:
    epsilons = tuple(sorted({_validate.positive("epsilon", value) for value in values}))
    if not epsilons:
        raise InvalidArgument("Which budgets? Give --epsilon 0.5,1,3.")
    return epsilons


def _check_methods(names: Sequence[str]) -> tuple[str, ...]:
    methods = tuple(dict.fromkeys(find_method(name).name for name in names))
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
    unfit = [each for each in methods or () if each not in fitting]
    if unfit:
        raise InvalidArgument(
            f"{', '.join(unfit)} is for linear models of features, and does not fit --model {settings.model} on "
            f"{data.name}. Methods that fit: {', '.join(fitting)}."
        )
    by_method = _group_choices(choices, methods or fitting)
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
        """Everything to train. The baseline without privacy, which takes longest on images, comes first."""
        seeds = tuple(range(self.seeds))
        private = [
            Job(method, mode, epsilon, seeds, self.choices.get(method, ()))
            for method in self.methods
            for mode in self.modes
            for epsilon in self.epsilons
        ]
        return [Job(NON_PRIVATE, "rigorous", None, seeds), *private]

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
            "given": self._list_given(),
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

    def _list_given(self) -> dict[str, float]:
        """The given options for which methods have defaults."""
        given = {name: getattr(self.options, name) for name in _DEFAULTED}
        return {name: value for name, value in given.items() if value is not None}

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


def _list_doubts(plan: ComparisonPlan) -> list[str]:
    """A warning for each method that is compared as published and whose claim does not hold."""
    if "paper" not in plan.modes:
        return []
    mode = "both" if len(plan.modes) > 1 else "paper"
    found = [
        _doubt_gradient(name, plan, mode) if _is_gradient(name) else _doubt_linear(name, mode) for name in plan.methods
    ]
    return [text for text in found if text is not None]


def _is_gradient(name: str) -> bool:
    return find_method(name).kind == "gradient"


def _doubt_gradient(name: str, plan: ComparisonPlan, mode: str) -> str | None:
    chosen = read_choices(name, plan.choices.get(name, ()))
    mechanism = make_mechanism(replace(plan.settings, method=name, mode="paper", multiplier=1.0, choices=chosen))
    method = mechanism.method
    if not is_doubtful(method):
        return None
    # Whether there is a proof depends on the noise law only, not on its size or the model's.
    is_proven = not any(isinstance(event, Unproven) for event in mechanism.noise.event(1).walk())
    instead = "The table says what is proven." if is_proven else "Nothing is proven about these runs."
    return describe_doubt(method.name, method.source, method.status, method.because, method.unprotected, instead, mode)


def _doubt_linear(name: str, mode: str) -> str | None:
    one = find_method(name)
    if Status(one.status) not in DOUBTFUL:
        return None
    instead = "The table says what is proven, if anything."
    return describe_doubt(name, one.paper, one.status, one.verdict, one.exposed, instead, mode)
