"""A comparison from its plan to its last cell: in parallel, with one display, and never the same cell twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tacit.cli.cells import CELLS, NON_PRIVATE, Job, run_job
from tacit.cli.progress import Every, stop_on_interrupt
from tacit.cli.recipes import ModeName
from tacit.errors import CannotResume, TacitError
from tacit.methods.registry import METHODS

if TYPE_CHECKING:
    from tacit.cli.settings import Settings, Typed
    from tacit.datasets import Data

FILE = "comparison.json"
_VERSION = 1
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Comparison:
    """What is compared, with the options that all cells share. Another epsilon, method or seed can be added later."""

    typed: Typed
    settings: Settings
    methods: tuple[str, ...]
    modes: tuple[ModeName, ...]
    epsilons: tuple[float, ...]
    seeds: int

    def jobs(self) -> list[Job]:
        """Everything there is to train, what takes longest first, so that no core waits for another at the end."""
        seeds = tuple(range(self.seeds))
        private = [
            Job(method, mode, epsilon, seeds)
            for method in self.methods
            for mode in self.modes
            for epsilon in self.epsilons
        ]
        return [*private, Job(NON_PRIVATE, "rigorous", None, seeds)]

    def keep(self, folder: Path, about: dict[str, Any], command: str) -> None:
        """Write the plan beside the cells; refuse a folder in which another comparison lies."""
        folder.mkdir(parents=True, exist_ok=True)
        path, settings = folder / FILE, _comparable(self.settings)
        values = {"version": _VERSION, "settings": settings, "data": about, "command": command}
        if path.is_file():
            before = json.loads(path.read_text(encoding="utf-8")).get("settings")
            if before != settings:
                changed = [name for name in settings if (before or {}).get(name) != settings[name]]
                raise CannotResume(
                    f"{folder} holds another comparison: {', '.join(changed)} differ. Choose another --out, or leave "
                    "those options as they were; methods, epsilons and seeds can be added."
                )
        path.write_text(json.dumps(values, indent=1), encoding="utf-8")


def _comparable(settings: Settings) -> dict[str, Any]:
    """What all cells have in common, and what may be told of it."""
    of_one_cell = ("epsilon", "method", "mode", "multiplier", "learning_rate")
    return {name: value for name, value in settings.public().items() if name not in of_one_cell}


def methods_that_fit(data: Data, model: str) -> tuple[str, ...]:
    """Noisy gradients fit everything, the others linear models of features."""
    is_linear = model == "linear" and not data.vocabulary
    return tuple(one.name for one in METHODS if one.kind == "gradient" or is_linear)


def run(comparison: Comparison, data: Data, folder: Path, workers: int) -> bool:
    """Train whatever has no file yet. False if Ctrl-C came first: what was finished is kept."""
    jobs = [job.missing(folder) for job in comparison.jobs()]
    total = sum(len(job.seeds) for job in comparison.jobs())
    done = total - sum(len(job.seeds) for job in jobs)
    left = [job for job in jobs if job.seeds]
    if not left:
        return True
    begin = (data, comparison.typed, folder)
    workers = min(workers, len(left))
    with stop_on_interrupt() as asked, _Display(done, total, folder) as display:
        # Spawned, not forked: torch's threads do not survive a fork.
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, begin)
        running = {pool.submit(_run, job): job for job in left}
        try:
            return _watch(running, display, asked)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()


def _watch(running: dict[Future[int], Job], display: _Display, asked: Any) -> bool:
    while running:
        finished, _ = wait(running, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
        for future in finished:
            job = running.pop(future)
            try:
                future.result()
            except BrokenProcessPool as error:
                raise TacitError(
                    f"A process that trained {job.method} ended without a word; the machine may be out of memory. The "
                    "same command goes on from here; --workers 1 needs least."
                ) from error
        display.show(running)
        if asked():
            return False
    return True


_STATE: dict[str, Any] = {}


def _begin(data: Data, typed: Typed, folder: Path) -> None:
    """In each process: one thread, no ear for Ctrl-C, and the data."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _STATE.update(data=data, typed=typed, folder=folder)


def _run(job: Job) -> int:
    return run_job(job, _STATE["data"], _STATE["typed"], _STATE["folder"])


class _Display:
    """How many cells are done, by their files: a bar for whoever watches, a line now and then for a log."""

    def __init__(self, done: int, total: int, folder: Path) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._total, self._first, self._folder, self._began = total, done, folder / CELLS, time.monotonic()
        self._lines = Every(_SECONDS_BETWEEN_LINES)
        self._bar = Progress(
            TextColumn("Comparing"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left  {task.fields[seen]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=done, seen="")

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, running: dict[Future[int], Job]) -> None:
        """Count the files, and name what is being trained."""
        done = sum(1 for file in self._folder.glob("*.json")) if self._folder.is_dir() else 0
        busy = [job for future, job in running.items() if future.running()]
        seen = ", ".join(
            f"{job.method} at {job.epsilon:g}" for job in busy[: os.cpu_count()] if job.epsilon is not None
        )
        self._bar.update(self._task, completed=min(done, self._total), seen=seen)
        if not self._console.is_terminal and done > self._first and self._lines.due():
            left = (time.monotonic() - self._began) / (done - self._first) * (self._total - done)
            self._console.print(Text(f"{done} of {self._total} cells, about {left:.0f} s left"))
