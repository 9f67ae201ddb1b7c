"""One cell of a comparison: a method at an epsilon with a seed, trained, scored and written to a file of its own.

Importable and free of state beside the data, so that other processes can run it. The seed makes a cell repeatable, and
its noise removable: nothing that a comparison trains is for release.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit._files import write_atomic
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import Guarantee, finite
from tacit.methods.registry import find_method
from tacit.reports.cells import NON_PRIVATE, RECIPE, key_of, label_of, read_cell
from tacit.reports.facts import details_of
from tacit.reports.scores import Score, accuracy_of
from tacit.training.fit import fit
from tacit.workflows.baseline import baseline, baseline_by_recipe
from tacit.workflows.defaults import network_for, resolve_settings
from tacit.workflows.descent import Descent
from tacit.workflows.linear import fit_linear, make_module
from tacit.workflows.network import make_run, set_torch_seed
from tacit.workflows.recipe import make_task, resolve_recipe
from tacit.workflows.scoring import score
from tacit.workflows.settings import ModeName, Settings, TrainOptions

CELLS = "cells"
# Trains a cell with a seed: its score, and what is known of its guarantee.
Trainer = Callable[[int], dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """A method at an epsilon, with all its seeds: the noise is found once for them."""

    method: str
    mode: ModeName
    epsilon: float | None
    seeds: tuple[int, ...]
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.epsilon is None:
            return label_of(self.method, self.mode, is_private=False)
        return f"{self.method}{' (as published)' if self.mode == 'paper' else ''} at {self.epsilon:g}"

    def cells(self) -> list[dict[str, Any]]:
        """What tells its cells from all others."""
        return [
            {"method": self.method, "mode": self.mode, "epsilon": self.epsilon, "seed": seed} for seed in self.seeds
        ]

    def file(self, seed: int) -> str:
        """The name of a cell's file."""
        # With every digit: no two epsilons share a file.
        at = "" if self.epsilon is None else f"-{self.epsilon}".removesuffix(".0")
        published = "-paper" if self.mode == "paper" else ""
        return f"{self.method}{published}{at}-seed{seed}.json"

    def paths(self, folder: Path) -> list[Path]:
        """Where its cells lie."""
        return [folder / CELLS / self.file(seed) for seed in self.seeds]

    def missing(self, folder: Path) -> Job:
        """The same with the seeds only of which there is no file yet, or none that can be read."""
        found = zip(self.paths(folder), self.cells(), strict=True)
        return replace(self, seeds=tuple(cell["seed"] for path, cell in found if not _is_readable(path, cell)))


def _is_readable(path: Path, asked: dict[str, Any]) -> bool:
    try:
        return path.is_file() and key_of(read_cell(path, remedy="")) == key_of(asked)
    except InvalidArgument:
        return False


def run_job(job: Job, data: Data, options: TrainOptions, folder: Path) -> int:
    """Train every seed of the job; each leaves its file once it is done. How many cells that were."""
    for path, content in zip(job.paths(folder), train_cells(job, data, options), strict=True):
        write_cell(path, content, options)
    return len(job.seeds)


def train_cells(job: Job, data: Data, options: TrainOptions) -> Iterator[bytes]:
    """The content of each cell's file, seed by seed. It depends on the arguments only, wherever it is made."""
    train = _make_trainer(job, data, options)
    for asked in job.cells():
        try:
            found = train(asked["seed"])
        except TacitError as error:
            found = {"refused": " ".join(str(error).split())}
        if job.choices:
            asked["choices"] = list(job.choices)
        yield json.dumps({**asked, **found}, indent=1, allow_nan=False).encode()


def write_cell(path: Path, content: bytes, options: TrainOptions) -> None:
    """Write the file of a cell. Seeds are known, so what they score on somebody's own rows tells about the rows."""
    write_atomic(path, content, is_private=options.bounds is not None)


def _make_trainer(job: Job, data: Data, options: TrainOptions) -> Trainer:
    if job.method == RECIPE:
        return _train_recipe(data, options, job.epsilon)
    is_gradient = job.method != NON_PRIVATE and find_method(job.method).kind == "gradient"
    method, epsilon = (job.method, job.epsilon) if is_gradient else ("dpsgd", 1.0)
    settings = resolve_settings(data, replace(options, method=method, mode=job.mode, epsilon=epsilon, set=job.choices))
    if job.method == NON_PRIVATE:
        return lambda seed: _describe_baseline(baseline(data, settings.model, seed))
    return _train_gradient(data, settings) if is_gradient else _train_linear(data, job, settings.delta)


def _train_gradient(data: Data, settings: Settings) -> Trainer:
    """Noisy gradients of any model. What one seed has found about the noise serves the others."""
    assert settings.epsilon is not None
    budget, describe_guarantee = Budget(settings.epsilon, settings.delta), _describe_once(data)
    multiplier: float | None = None

    def train(seed: int) -> dict[str, Any]:
        nonlocal multiplier
        chosen = replace(settings, multiplier=multiplier)
        set_torch_seed(seed)
        model = network_for(chosen.model, data)
        run = make_run(data, chosen, model, seed=seed, budget=budget)
        descent = Descent(model, chosen)
        began = time.process_time()
        fit(run, descent)
        seconds = time.process_time() - began
        # A paper's rule may want other noise in every step, or a budget to find it from.
        multiplier = run.multiplier if settings.mode == "rigorous" else None
        found = _describe_score(score(descent.averaged_model, data))
        about = {"learning_rate": settings.learning_rate, "multiplier": run.multiplier, "seconds": seconds}
        return {**found, **about, **describe_guarantee(run.guarantee, run.sampling)}

    return train


def _train_linear(data: Data, job: Job, delta: float) -> Trainer:
    """A linear model with noise on its data, objective, output or gradients, as `tacit train` trains it."""
    describe_guarantee = _describe_once(data)

    def train(seed: int) -> dict[str, Any]:
        began = time.process_time()
        fitted = fit_linear(data, method=job.method, mode=job.mode, epsilon=job.epsilon, delta=delta, seed=seed)
        seconds = time.process_time() - began
        found = _describe_score(score(make_module(fitted), data))
        return {**found, "seconds": seconds, **describe_guarantee(lambda: fitted.guarantee_, None)}

    return train


def _train_recipe(data: Data, options: TrainOptions, epsilon: float | None) -> Trainer:
    """The automatic recipe, as `tacit train` trains it; without an epsilon, the same model without privacy."""
    task = make_task(data, resolve_recipe(data, replace(options, epsilon=epsilon or 1.0), None), options.data_path)
    rows, test_rows = task.compute_features(is_shown=False)
    describe_guarantee = _describe_once(data)

    def train(seed: int) -> dict[str, Any]:
        if epsilon is None:
            return _describe_baseline(baseline_by_recipe(task, rows, test_rows, seed))
        began = time.process_time()
        begun = task.begin(rows, seed)
        model = begun.finish().model
        seconds = time.process_time() - began
        test = begun.prepared.of_features(test_rows)
        found = _describe_score(accuracy_of(model, test.numpy(), task.test[1]))
        about = {"learning_rate": task.recipe.learning_rate, "multiplier": begun.run.multiplier, "seconds": seconds}
        return {**found, **about, **describe_guarantee(begun.guarantee, begun.run.sampling)}

    return train


def _describe_once(data: Data) -> Callable[[Callable[[], Guarantee], Any], dict[str, Any]]:
    """What is proven, and all that a report says of it: found once for all seeds, by the process that trains them."""
    known: dict[str, Any] = {}

    def describe(guarantee: Callable[[], Guarantee], sampling: Any | None) -> dict[str, Any]:
        if not known:
            proven = guarantee()
            details = details_of(proven, sampling=sampling, is_held_out=data.is_test_private)
            known.update(guarantee=json.loads(proven.to_json()), details=details)
        return known

    return describe


def _describe_baseline(found: dict[str, Any]) -> dict[str, Any]:
    score = Score(found["measure"], found["final"], found["interval"], auc=found["auc"])
    return {**_describe_score(score), "seconds": found["seconds"], "how": found["how"]}


def _describe_score(found: Score) -> dict[str, Any]:
    """The score; None if the training diverged, for JSON has finite numbers only."""
    is_known = found.interval is not None and all(map(math.isfinite, found.interval))
    score = {"score": {found.name: finite(found.value)}, "interval": found.interval if is_known else None}
    return score if found.auc is None else {**score, "auc": found.auc}
