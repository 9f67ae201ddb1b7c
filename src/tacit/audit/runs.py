"""Many independent runs: on all cores, resumable, with a bar for whoever watches; only small results are kept.

Each run's result is an array that is written to a file of its own as soon as it is there, so that an audit that was
stopped goes on where it was. Before each run the generators of Python, numpy and torch are seeded afresh: two runs
that share their randomness say nothing about privacy.
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
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit import _validate
from tacit._files import write_atomic
from tacit.errors import InvalidArgument

Job = Callable[[int], Any]


@dataclass(frozen=True)
class Runs:
    """Where results go, how many processes there are, and what the runs' randomness is derived from.

    Without a `seed` it comes from the operating system. `workers` above 1 start fresh processes, so what they run must
    be importable: a function at the top level of a module, or a frozen dataclass with `__call__`.
    """

    folder: Path
    workers: int = 1
    seed: int | None = None

    def results(self, name: str, job: Job, count: int) -> list[Path]:
        """Files with `job(index)` for every index below `count`; those that are there already are not made again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [self.folder / f"{name}-{index:06d}.npy" for index in range(count)]
        missing = [index for index, path in enumerate(paths) if not path.exists()]
        tasks = [_Task(index, paths[index], _seed(self.seed, name, index)) for index in missing]
        with progress(name, count, count - len(missing)) as advance:
            for _ in self._done(job, tasks):
                advance()
        return paths

    def _done(self, job: Job, tasks: list[_Task]) -> Iterator[None]:
        if self.workers == 1 or len(tasks) < 2:
            for task in tasks:
                task.run(job)
                yield
            return
        _refuse_unless_picklable(job)
        # Forked processes would inherit locks that torch's threads hold.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.workers, context, _prepare, (job,)) as pool:
            waiting = iter(tasks)
            begun = {pool.submit(_run, task) for task in islice(waiting, self.workers)}
            try:
                # No more are handed over than are being made: what a process holds is finished, whatever happens.
                while begun:
                    done, begun = wait(begun, return_when=FIRST_COMPLETED)
                    begun |= {pool.submit(_run, task) for task in islice(waiting, len(done))}
                    for one in done:
                        yield one.result()
            except KeyboardInterrupt:
                count = len(begun)
                words = "a run that has begun is" if count == 1 else f"{count} runs that have begun are"
                Console(stderr=True, highlight=False).print(f"Stopping: {words} finished and kept.", soft_wrap=True)
                raise
            finally:
                pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Task:
    """One run, from its seeds to its file."""

    index: int
    path: Path
    seeds: tuple[int, ...]

    def run(self, job: Job) -> None:
        import torch

        words = np.random.SeedSequence(self.seeds).generate_state(4)
        random.seed(int(words[0]))
        np.random.seed(int(words[1]))  # noqa: NPY002 - the user's function may draw from numpy's global generator
        seed = int(words[2]) << 31 | int(words[3])
        # torch.manual_seed formats the stack each time, which takes longer than many a run.
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        result = np.asarray(job(self.index))
        content = BytesIO()
        np.save(content, result)
        write_atomic(self.path, content.getvalue(), is_private=True)


# Whether a progress bar is shown already.
_IS_WATCHED: ContextVar[bool] = ContextVar("_IS_WATCHED", default=False)
# What a worker process runs: sent once to each, as it may hold the data.
_PREPARED: list[Job] = []


def _prepare(job: Job) -> None:
    import torch

    _PREPARED.append(job)
    # Ctrl-C is for the process that waits; and so is the progress bar.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _IS_WATCHED.set(True)
    # Each process has a core of its own.
    torch.set_num_threads(1)


def _run(task: _Task) -> None:
    task.run(_PREPARED[0])


def load(paths: list[Path]) -> NDArray[np.float64]:
    """The results, one row a run."""
    return np.stack(list(each(paths)))


def each(paths: list[Path]) -> Iterator[NDArray[np.float64]]:
    """The results, one after the other: no more than one is in memory."""
    for path in paths:
        yield np.load(path).astype(np.float64)


@contextmanager
def runs_in(folder: str | os.PathLike[str] | None, workers: int, seed: int | None) -> Iterator[Runs]:
    """`Runs` in this folder, or in one that is gone afterwards."""
    workers = _validate.count("workers", workers)
    if folder is not None:
        yield Runs(Path(folder), workers, seed)
        return
    with TemporaryDirectory(prefix="tacit-audit-") as passing:
        yield Runs(Path(passing), workers, seed)


def _seed(seed: int | None, name: str, index: int) -> tuple[int, ...]:
    start = (int.from_bytes(os.urandom(16), "big"),) if seed is None else (seed,)
    return (*start, *name.encode(), index)


def _refuse_unless_picklable(job: Job) -> None:
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"workers above 1 run in processes of their own, and this cannot be sent there: {error}. Define the "
            "training function at the top level of a module, or use workers=1."
        ) from error


@contextmanager
def progress(name: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, if someone is watching; call what comes back whenever one more is done.

    Runs within runs show the outer bar only.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    is_hidden = _IS_WATCHED.get() or not console.is_terminal
    outer = _IS_WATCHED.set(True)
    try:
        with Progress(*columns, console=console, transient=True, disable=is_hidden) as bar:
            task = bar.add_task(name.replace("-", " ").capitalize(), total=total, completed=done)
            yield lambda: bar.advance(task)
    finally:
        _IS_WATCHED.reset(outer)
