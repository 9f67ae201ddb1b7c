"""One cell of a comparison: a method at an epsilon with a seed, trained, scored and written to a file of its own.

Importable and free of state beside the data, so that other processes can run it. The seed makes a cell repeatable, and
its noise removable: nothing that a comparison trains is for release.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, final

from tacit._files import write_atomic
from tacit.budget import Budget
from tacit.datasets import Data
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import Guarantee, finite
from tacit.methods.registry import find_method
from tacit.reports.cells import key_of, read_cell
from tacit.reports.facts import details_of
from tacit.reports.scores import error_of, share_of
from tacit.training.fit import fit
from tacit.workflows.baseline import baseline
from tacit.workflows.defaults import network_for, resolve_settings
from tacit.workflows.descent import Descent
from tacit.workflows.linear import fit_linear, normalise_rows
from tacit.workflows.network import make_run, set_torch_seed
from tacit.workflows.scoring import score
from tacit.workflows.settings import ModeName, Settings, TrainOptions

NON_PRIVATE = "non_private"
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
        if self.method == NON_PRIVATE:
            return "without privacy"
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
    cells = _make_cells(job, data, options)
    for path, asked in zip(job.paths(folder), job.cells(), strict=True):
        try:
            found = cells.train(asked["seed"])
        except TacitError as error:
            found = {"refused": " ".join(str(error).split())}
        if job.choices:
            asked["choices"] = list(job.choices)
        # Seeds are known, so that whatever they score on somebody's own rows tells about them.
        content = json.dumps({**asked, **found}, indent=1, allow_nan=False).encode()
        write_atomic(path, content, is_private=options.bounds is not None)
    return len(job.seeds)


def _make_cells(job: Job, data: Data, options: TrainOptions) -> _Cells:
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
        found = baseline(self._data, self._settings.model, seed)
        score = _describe_score(found["measure"], found["final"], found["interval"])
        return {**score, "seconds": found["seconds"], "how": found["how"]}


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
            **_describe_score(found.name, found.value, found.interval),
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
        test, truth = normalise_rows(data.test[0]), data.test[1]
        if data.classes is None:
            score = error_of(fitted.predict(test).reshape(-1) - truth[:, 0], data.unit)
        else:
            score = share_of(fitted.predict(test) == truth)
        self._guarantee = self._guarantee or _describe_guarantee(guarantee, None, data)
        return {**_describe_score(score.name, score.value, score.interval), "seconds": seconds, **self._guarantee}


def _describe_score(measure: str, value: float, interval: list[float] | None) -> dict[str, Any]:
    """The score; None if the training diverged, for JSON has finite numbers only."""
    is_known = interval is not None and all(map(math.isfinite, interval))
    return {"score": {measure: finite(value)}, "interval": interval if is_known else None}


def _describe_guarantee(guarantee: Guarantee, sampling: Any | None, data: Data) -> dict[str, Any]:
    """What is proven, and all that a report says of it: found once for all seeds, by the process that trains them."""
    details = details_of(guarantee, sampling=sampling, is_held_out=data.is_test_private)
    return {"guarantee": json.loads(guarantee.to_json()), "details": details}
