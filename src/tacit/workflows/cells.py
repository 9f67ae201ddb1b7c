"""One cell of a comparison: a method at an epsilon with a seed, trained, scored and written to a file of its own.

Importable and free of state beside the data, so that other processes can run it. The seed makes a cell repeatable, and
its noise removable: nothing that a comparison trains is for release.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, final

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
    cells = _make_cells(job, data, options)
    for asked in job.cells():
        try:
            found = cells.train(asked["seed"])
        except TacitError as error:
            found = {"refused": " ".join(str(error).split())}
        if job.choices:
            asked["choices"] = list(job.choices)
        yield json.dumps({**asked, **found}, indent=1, allow_nan=False).encode()


def write_cell(path: Path, content: bytes, options: TrainOptions) -> None:
    """Write the file of a cell. Seeds are known, so what they score on somebody's own rows tells about the rows."""
    write_atomic(path, content, is_private=options.bounds is not None)


def _make_cells(job: Job, data: Data, options: TrainOptions) -> _Cells:
    if job.method == RECIPE:
        return _Recipe(data, options, job.epsilon)
    is_gradient = job.method != NON_PRIVATE and find_method(job.method).kind == "gradient"
    method, epsilon = (job.method, job.epsilon) if is_gradient else ("dpsgd", 1.0)
    settings = resolve_settings(data, replace(options, method=method, mode=job.mode, epsilon=epsilon, set=job.choices))
    if job.method == NON_PRIVATE:
        return _Plain(data, settings)
    return _Gradient(data, settings) if is_gradient else _Linear(data, settings, job)


class _Cells(Protocol):
    """Trains a cell: its score, and what is known of its guarantee."""

    def train(self, seed: int) -> dict[str, Any]: ...


@final
class _Plain:
    """Without privacy."""

    def __init__(self, data: Data, settings: Settings) -> None:
        self._data, self._settings = data, settings

    def train(self, seed: int) -> dict[str, Any]:
        return _describe_baseline(baseline(self._data, self._settings.model, seed))


@final
class _Gradient:
    """Noisy gradients of any model. What one seed has found about the noise serves the others."""

    def __init__(self, data: Data, settings: Settings) -> None:
        self._data, self._settings = data, settings
        self._multiplier: float | None = None
        self._guarantee: dict[str, Any] = {}

    def train(self, seed: int) -> dict[str, Any]:
        data, settings = self._data, replace(self._settings, multiplier=self._multiplier)
        assert settings.epsilon is not None
        set_torch_seed(seed)
        model = network_for(settings.model, data)
        run = make_run(data, settings, model, seed=seed, budget=Budget(settings.epsilon, settings.delta))
        descent = Descent(model, settings)
        began = time.process_time()
        fit(run, descent)
        seconds = time.process_time() - began
        # A paper's rule may want other noise in every step, or a budget to find it from.
        self._multiplier = run.multiplier if settings.mode == "rigorous" else None
        self._guarantee = self._guarantee or _describe_guarantee(run.guarantee(), run.sampling, data)
        found = score(descent.averaged_model, data)
        return {
            **_describe_score(found),
            "learning_rate": settings.learning_rate,
            "multiplier": run.multiplier,
            "seconds": seconds,
            **self._guarantee,
        }


@final
class _Linear:
    """A linear model with noise on its data, objective, output or gradients, as `tacit train` trains it."""

    def __init__(self, data: Data, settings: Settings, job: Job) -> None:
        self._data, self._job, self._delta = data, job, settings.delta
        self._guarantee: dict[str, Any] = {}

    def train(self, seed: int) -> dict[str, Any]:
        data, job = self._data, self._job
        began = time.process_time()
        fitted = fit_linear(data, method=job.method, mode=job.mode, epsilon=job.epsilon, delta=self._delta, seed=seed)
        seconds, guarantee = time.process_time() - began, fitted.guarantee_
        self._guarantee = self._guarantee or _describe_guarantee(guarantee, None, data)
        return {**_describe_score(score(make_module(fitted), data)), "seconds": seconds, **self._guarantee}


@final
class _Recipe:
    """The automatic recipe, as `tacit train` trains it; without an epsilon, the same model without privacy."""

    def __init__(self, data: Data, options: TrainOptions, epsilon: float | None) -> None:
        settings = resolve_recipe(data, replace(options, epsilon=epsilon or 1.0), None)
        self._task, self._is_private = make_task(data, settings, options.data_path), epsilon is not None
        self._rows, self._test_rows = self._task.compute_features(is_shown=False)
        self._guarantee: dict[str, Any] = {}

    def train(self, seed: int) -> dict[str, Any]:
        task = self._task
        if not self._is_private:
            return _describe_baseline(baseline_by_recipe(task, self._rows, self._test_rows, seed))
        began = time.process_time()
        begun = task.begin(self._rows, seed)
        model = begun.finish().model
        seconds = time.process_time() - began
        run = begun.run
        self._guarantee = self._guarantee or _describe_guarantee(begun.guarantee(), run.sampling, task.data)
        test = begun.prepared.of_features(self._test_rows)
        return {
            **_describe_score(accuracy_of(model, test.numpy(), task.test[1])),
            "learning_rate": task.recipe.learning_rate,
            "multiplier": run.multiplier,
            "seconds": seconds,
            **self._guarantee,
        }


def _describe_baseline(found: dict[str, Any]) -> dict[str, Any]:
    score = Score(found["measure"], found["final"], found["interval"], auc=found["auc"])
    return {**_describe_score(score), "seconds": found["seconds"], "how": found["how"]}


def _describe_score(found: Score) -> dict[str, Any]:
    """The score; None if the training diverged, for JSON has finite numbers only."""
    is_known = found.interval is not None and all(map(math.isfinite, found.interval))
    score = {"score": {found.name: finite(found.value)}, "interval": found.interval if is_known else None}
    return score if found.auc is None else {**score, "auc": found.auc}


def _describe_guarantee(guarantee: Guarantee, sampling: Any | None, data: Data) -> dict[str, Any]:
    """What is proven, and all that a report says of it: found once for all seeds, by the process that trains them."""
    details = details_of(guarantee, sampling=sampling, is_held_out=data.is_test_private)
    return {"guarantee": json.loads(guarantee.to_json()), "details": details}
