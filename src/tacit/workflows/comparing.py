"""A comparison from its plan to its last cell: in parallel, with one display, and never the same cell twice."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tacit
from tacit._files import write_whole
from tacit.cli.output import note
from tacit.cli.progress import stop_on_interrupt
from tacit.cli.watching import Display
from tacit.errors import CannotResume, InvalidArgument, TacitError
from tacit.ledger import salted_fingerprint
from tacit.methods.registry import list_methods
from tacit.reports.cells import key_of
from tacit.workflows.cells import CELLS, NON_PRIVATE, Job, run_job
from tacit.workflows.defaults import ModeName

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

    from tacit.datasets import Data
    from tacit.workflows.settings import Settings, Typed

FILE = "comparison.json"
_VERSION = 3
_DEFAULTED = ("lot_size", "steps", "epochs", "clip_norm", "learning_rate")
_SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class Comparison:
    """What is compared, with the options that all cells share. Another epsilon, method or seed can be added later.

    `choices` holds, by method, what `--set` chose of it: NAME=VALUE.
    """

    typed: Typed
    settings: Settings
    methods: tuple[str, ...]
    modes: tuple[ModeName, ...]
    epsilons: tuple[float, ...]
    seeds: int
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def jobs(self) -> list[Job]:
        """Everything there is to train. The model without privacy, which takes longest on images, comes first."""
        seeds = tuple(range(self.seeds))
        private = [
            Job(method, mode, epsilon, seeds, self.choices.get(method, ()))
            for method in self.methods
            for mode in self.modes
            for epsilon in self.epsilons
        ]
        return [Job(NON_PRIVATE, "rigorous", None, seeds), *private]

    def keep(self, data: Data, folder: Path, command: str) -> None:
        """Write the plan beside the cells; refuse a folder in which another comparison lies."""
        before = _before(folder)
        salt = secrets.token_hex() if before is None else before["salt"]
        rows = salted_fingerprint(salt, *data.train, *data.test)
        values = {
            "version": _VERSION,
            "settings": self._shared(),
            "same": {"data": rows, "model": self._model(), "tacit": tacit.__version__},
            "data": {**self._about(data, salt), "is_own": self.typed.bounds is not None},
            "salt": salt,
            "given": self._given(),
            "plans": self._plans([] if before is None else before["plans"], command),
        }
        if before is not None:
            _refuse_another(folder, before, values)
        try:
            # The secret is in it, and which share of held-out rows has the commonest target.
            write_whole(folder / FILE, json.dumps(values, indent=1).encode(), is_private=True)
        except OSError as error:
            raise InvalidArgument(
                f"The comparison cannot be written to {folder}: {error.strerror}. Choose another --out."
            ) from error

    def _about(self, data: Data, salt: str) -> dict[str, Any]:
        from tacit.workflows.training import about_data

        return {
            **about_data(data, salt),
            "name": data.name,
            # That from which lots are drawn, whether it was published or declared.
            "population": self.settings.population,
            "test_examples": len(data.test[1]),
            "constant": _constant(data),
        }

    def _given(self) -> dict[str, float]:
        """What was typed of that which methods have defaults for."""
        typed = {name: getattr(self.typed, name) for name in _DEFAULTED}
        return {name: value for name, value in typed.items() if value is not None}

    def _plans(self, before: list[dict[str, Any]], command: str) -> list[dict[str, Any]]:
        """What this command asks for, and what earlier ones did beyond it: that is still wanted."""
        cells = [cell for job in self.jobs() for cell in job.cells()]
        asked = {key_of(cell) for cell in cells}
        beyond = [plan for plan in before if not asked.issuperset(map(key_of, plan["cells"]))]
        return [*beyond, {"command": command, "cells": cells}]

    def _shared(self) -> dict[str, Any]:
        """What all cells have in common, and what may be told of it; a learning rate only if it was given."""
        of_one_cell = ("epsilon", "method", "mode", "multiplier", "learning_rate")
        shared = {name: value for name, value in self.settings.public().items() if name not in of_one_cell}
        chosen = {method: list(texts) for method, texts in self.choices.items()}
        return {**shared, "learning_rate": self.typed.learning_rate, "choices": chosen}

    def _model(self) -> str:
        """The name of the model, or what the user's file with it says."""
        if ":" not in self.settings.model:
            return self.settings.model
        file = Path(self.settings.model.rpartition(":")[0])
        return hashlib.sha256(file.read_bytes()).hexdigest()


def _constant(data: Data) -> float | None:
    """What the best answer that is always the same scores: who does no better has learnt nothing."""
    targets = data.test[1]
    if not len(targets):
        return None
    if data.classes is None:
        return data.unit * float(targets.std())
    return float(np.bincount(targets).max() / len(targets))


def _before(folder: Path) -> dict[str, Any] | None:
    """The plan of the comparison that lies in the folder already."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        before = dict(json.loads(path.read_text(encoding="utf-8")))
        if before["version"] != _VERSION:
            raise CannotResume(
                f"{folder} holds a comparison of another version of tacit, which keeps other things of its data and "
                "cells. Choose another --out."
            )
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
            f"{folder} holds another comparison: {', '.join(changed)} differ. Choose another --out, or leave those as "
            "they were; methods, epsilons and seeds can be added."
        )


def methods_that_fit(data: Data, model: str) -> tuple[str, ...]:
    """Noisy gradients fit everything, the others linear models of features."""
    is_linear = model == "linear" and not data.vocabulary
    return tuple(one.name for one in list_methods() if one.kind == "gradient" or is_linear)


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counted(comparison: Comparison, folder: Path) -> tuple[int, int]:
    """How many cells are trained, and of how many."""
    total, missing = (
        sum(len(job.seeds) for job in jobs)
        for jobs in (comparison.jobs(), [job.missing(folder) for job in comparison.jobs()])
    )
    return total - missing, total


def run(comparison: Comparison, data: Data, folder: Path, workers: int) -> bool:
    """Train whatever has no file yet, or a damaged one. False if Ctrl-C came first: what was finished is kept."""
    jobs = [job.missing(folder) for job in comparison.jobs()]
    for damaged in [path for job in jobs for path in job.paths(folder) if path.is_file()]:
        note(f"{damaged} is damaged, and is trained again.")
        damaged.unlink()
    total = sum(len(job.seeds) for job in comparison.jobs())
    done = total - sum(len(job.seeds) for job in jobs)
    left = [job for job in jobs if job.seeds]
    if not left:
        return True
    if len(left) < 2 * workers:
        # Rather find the noise once for each seed than leave a core without work.
        left = [replace(job, seeds=(seed,)) for job in left for seed in job.seeds]
    # Spawned, not forked: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    started: SimpleQueue[tuple[int, Job]] = context.SimpleQueue()
    begin = (data, comparison.typed, folder, started)
    workers = min(workers, len(left))
    with stop_on_interrupt() as asked, Display(done, total, folder / CELLS, started) as display:
        pool = ProcessPoolExecutor(workers, context, _begin, begin)
        with _deaf():
            running = {pool.submit(_run, job): job for job in left}
        try:
            return _watch(running, display, asked)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
                # Only then it is known how many cells there are.
                process.join()


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is for the command alone, but reaches its processes too, before they can say so. They begin deaf to it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(running: dict[Future[int], Job], display: Display, asked: Any) -> bool:
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
            except OSError as error:
                raise InvalidArgument(f"A cell of {job.method} cannot be written: {error}.") from error
        display.show(running.values())
        if asked():
            return False
    return True


_STATE: dict[str, Any] = {}


def _begin(data: Data, typed: Typed, folder: Path, started: SimpleQueue[tuple[int, Job]]) -> None:
    """In each process: one thread, no ear for Ctrl-C, no life after the command's own, and the data."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    torch.set_num_threads(1)
    _STATE.update(data=data, typed=typed, folder=folder, started=started)


def _end_with_the_command() -> None:
    """A command that was killed cannot stop its processes; they would train, and then wait, for nobody."""
    command = multiprocessing.parent_process()
    if command is not None:
        command.join()
        os._exit(1)


def _run(job: Job) -> int:
    _STATE["started"].put((os.getpid(), job))
    return run_job(job, _STATE["data"], _STATE["typed"], _STATE["folder"])
