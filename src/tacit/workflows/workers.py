"""Run the jobs of a comparison in several processes, each on one thread; Ctrl-C keeps what is finished."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch

from tacit.datasets import Data
from tacit.errors import Caution, InvalidArgument, TacitError
from tacit.workflows.cells import CELLS, Job, run_job, train_cells, write_cell
from tacit.workflows.cluster import map_on_cluster
from tacit.workflows.progress import ComparisonProgress, stop_on_interrupt
from tacit.workflows.settings import TrainOptions

_SECONDS_BETWEEN_LOOKS = 0.2


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(
    jobs: list[Job],
    data: Data,
    options: TrainOptions,
    folder: Path,
    workers: int,
    cluster: str | None = None,
    save: Callable[[], object] = lambda: None,
) -> bool:
    """Train every result that has no file yet, or a damaged one. False if Ctrl-C came first.

    With the address of a `cluster`, its workers train. `save` is called whenever a result has come.
    """
    missing = [job.missing(folder) for job in jobs]
    for damaged in [path for job in missing for path in job.paths(folder) if path.is_file()]:
        warnings.warn(f"{damaged} is damaged and is trained again.", Caution, stacklevel=2)
        damaged.unlink()
    total = sum(len(job.seeds) for job in jobs)
    done = total - sum(len(job.seeds) for job in missing)
    left = [job for job in missing if job.seeds]
    if not left:
        return True
    if cluster is not None or len(left) < 2 * workers:
        # Finding the noise once per seed is better than leaving a core idle, or than losing more with a worker.
        left = [replace(job, seeds=(seed,)) for job in left for seed in job.seeds]
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    started: SimpleQueue[tuple[int, Job]] = context.SimpleQueue()
    arguments = (data, options, folder, started)
    with stop_on_interrupt() as is_asked, ComparisonProgress(done, total, folder / CELLS, started) as progress:
        if cluster is not None:
            # One result per task; each is written here when it comes. Ctrl-C waits for the next one.
            with closing(map_on_cluster(cluster, _train_on_worker, (data, options), left)) as results:
                for job, contents in results:
                    for path, content in zip(job.paths(folder), contents, strict=True):
                        write_cell(path, content, options)
                    save()
                    progress.update(())
                    if is_asked():
                        return False
            return True
        pool = ProcessPoolExecutor(min(workers, len(left)), context, _start_worker, arguments)
        with _block_interrupts():
            running = {pool.submit(_run_in_worker, job): job for job in left}
        try:
            return _wait(running, progress, is_asked, save)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
                # The number of finished results is known only after that.
                process.join()


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Start processes with SIGINT blocked: Ctrl-C is for the command alone, but reaches its processes too."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _train_on_worker(shared: tuple[Data, TrainOptions], job: Job) -> tuple[Job, list[bytes]]:
    return job, list(train_cells(job, *shared))


def _wait(
    running: dict[Future[int], Job],
    progress: ComparisonProgress[Job],
    is_asked: Callable[[], bool],
    save: Callable[[], object],
) -> bool:
    while running:
        finished, _ = wait(running, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
        for future in finished:
            job = running.pop(future)
            try:
                future.result()
            except BrokenProcessPool as error:
                raise TacitError(
                    f"A process that trained {job.method} was killed; the machine may be out of memory. The same "
                    "command continues from here; --workers 1 needs least memory."
                ) from error
            except OSError as error:
                raise InvalidArgument(f"A result of {job.method} cannot be written: {error}.") from error
        if finished:
            save()
        progress.update(running.values())
        if is_asked():
            return False
    return True


_STATE: dict[str, Any] = {}


def _start_worker(data: Data, options: TrainOptions, folder: Path, started: SimpleQueue[tuple[int, Job]]) -> None:
    """Prepare a worker: one thread, ignores SIGINT, exits with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _STATE.update(data=data, options=options, folder=folder, started=started)


def _run_in_worker(job: Job) -> int:
    _STATE["started"].put((os.getpid(), job))
    return run_job(job, _STATE["data"], _STATE["options"], _STATE["folder"])
