"""Many independent runs: on all cores, resumable, with a progress bar; only small results are kept.

Each run's result is an array in its own file, written when the run ends, so an audit that was stopped can resume.
Before each run the generators of Python, numpy and torch are seeded: runs that share their randomness say nothing
about privacy.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit import _validate
from tacit._files import write_atomic
from tacit.errors import InvalidArgument

Job = Callable[[int], Any]


@dataclass(frozen=True)
class Runs:
    """The folder of the results, the number of processes, and the seed of the runs' randomness.

    Without a `seed` randomness comes from the operating system. `workers` above 1 start fresh processes, so the job
    must be importable: a function at the top level of a module, or a frozen dataclass with `__call__`.
    """

    folder: Path
    workers: int = 1
    seed: int | None = None

    def results(self, name: str, job: Job, count: int) -> list[Path]:
        """Files with `job(index)` for every index below `count`; existing ones are not made again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [self.folder / f"{name}-{index:06d}.npy" for index in range(count)]
        missing = [index for index, path in enumerate(paths) if not path.exists()]
        seeds = [int.from_bytes(os.urandom(16), "big") if self.seed is None else self.seed for _ in missing]
        words = ((seed, *name.encode(), index) for seed, index in zip(seeds, missing, strict=True))
        tasks = [_Task(index, paths[index], each) for index, each in zip(missing, words, strict=True)]
        with show_progress(name, count, count - len(missing)) as advance:
            self._run_tasks(job, tasks, advance)
        return paths

    def _run_tasks(self, job: Job, tasks: list[_Task], advance: Callable[[], None]) -> None:
        if self.workers == 1 or len(tasks) < 2:
            for task in tasks:
                task.run(job)
                advance()
            return
        try:
            pickle.dumps(job)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InvalidArgument(
                f"workers above 1 run in separate processes, and this cannot be sent there: {error}. Define the "
                "training function at the top level of a module, or use workers=1."
            ) from error
        # Forked processes would inherit locks that torch's threads hold.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.workers, context, _prepare, (job,)) as pool:
            waiting = iter(tasks)
            begun = {pool.submit(_run, task) for task in islice(waiting, self.workers)}
            try:
                # Each process gets one task at a time, so that only tasks under way must finish after an interrupt.
                while begun:
                    done, begun = wait(begun, return_when=FIRST_COMPLETED)
                    begun |= {pool.submit(_run, task) for task in islice(waiting, len(done))}
                    for one in done:
                        one.result()
                        advance()
            except KeyboardInterrupt:
                count = len(begun)
                words = "1 run" if count == 1 else f"{count} runs"
                Console(stderr=True, highlight=False).print(f"Stopping after {words} under way.", soft_wrap=True)
                raise
            finally:
                pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Task:
    """One run: its seeds and its file."""

    index: int
    path: Path
    seeds: tuple[int, ...]

    def run(self, job: Job) -> None:
        seed_generators(*self.seeds)
        result = np.asarray(job(self.index))
        content = BytesIO()
        np.save(content, result)
        write_atomic(self.path, content.getvalue(), is_private=True)


# Whether a progress bar is already shown.
_HAS_BAR: ContextVar[bool] = ContextVar("_HAS_BAR", default=False)
# The job of a worker process: sent once to each, because it may hold the data.
_PREPARED: list[Job] = []


def _prepare(job: Job) -> None:
    _PREPARED.append(job)
    # Only the parent handles Ctrl-C and shows a progress bar.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _HAS_BAR.set(True)
    # One core per process.
    torch.set_num_threads(1)


def _run(task: _Task) -> None:
    task.run(_PREPARED[0])


def load_results(paths: list[Path]) -> NDArray[np.float64]:
    """The results, one row per run."""
    return np.stack(list(iterate_results(paths)))


def iterate_results(paths: list[Path]) -> Iterator[NDArray[np.float64]]:
    """The results one by one: only one is in memory at a time."""
    for path in paths:
        yield np.load(path).astype(np.float64)


@contextmanager
def open_runs(folder: str | os.PathLike[str] | None, workers: int, seed: int | None) -> Iterator[Runs]:
    """`Runs` in this folder, or in a temporary one."""
    workers = _validate.count("workers", workers)
    if folder is not None:
        yield Runs(Path(folder), workers, seed)
        return
    with TemporaryDirectory(prefix="tacit-audit-") as passing:
        yield Runs(Path(passing), workers, seed)


def seed_generators(*words: int) -> None:
    """Seed the generators of Python, numpy and torch from these words."""
    first, second, third, fourth = (int(word) for word in np.random.SeedSequence(words).generate_state(4))
    random.seed(first)
    np.random.seed(second)  # noqa: NPY002 - the user's function may draw from numpy's global generator
    # torch.manual_seed formats the stack on every call, which takes longer than many runs.
    torch.default_generator.manual_seed(third << 31 | fourth)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(third << 31 | fourth)


@contextmanager
def show_progress(name: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, if it is a terminal; call the result to advance it.

    Nested runs show the outer bar only.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    is_hidden = _HAS_BAR.get() or not console.is_terminal
    outer = _HAS_BAR.set(True)
    try:
        with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
            task = bar.add_task(name.replace("-", " ").capitalize(), total=total, completed=done)
            yield lambda: bar.advance(task)
    finally:
        _HAS_BAR.reset(outer)
