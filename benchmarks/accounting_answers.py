"""How the questions are put: to each tool in a process of its own, one at a time and within a limit of time."""

from __future__ import annotations

import functools
import gc
import logging
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from accounting_questions import WARM_UP, Setting

CACHE = type(functools.lru_cache(lambda: None))
LOADING_LIMIT = 120.0


@dataclass(frozen=True)
class Answer:
    """What one tool said to one question and in what median time, or why it said nothing."""

    value: Any = math.nan
    seconds: float = math.nan
    repetitions: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Effort:
    """How long to wait for one answer, how often to ask, and for how many seconds in all before that is enough."""

    limit: float
    repetitions: int
    patience: float


def forget(package: str) -> None:
    """Empty every function cache of a package, so that each repetition starts from nothing."""
    for thing in gc.get_objects():
        if type(thing) is CACHE and str(thing.__module__).partition(".")[0] == package:
            thing.cache_clear()
    gc.collect()


def serve(package: str, questions: Connection) -> None:
    """Answer questions until told to stop: (True, value, seconds) or (False, reason, seconds)."""
    warnings.simplefilter("ignore")
    logging.disable()
    while (question := questions.recv()) is not None:
        ask, argument = question
        forget(package)
        start = time.perf_counter()
        try:
            reply = (True, ask(argument))
        except Exception as error:
            reply = (False, f"{type(error).__name__}: {' '.join(str(error).split())}")
        questions.send((*reply, time.perf_counter() - start))


class Worker:
    """A tool in a process of its own, replaced when it dies or is too slow."""

    def __init__(self, package: str, warm_up: Callable[[Setting], Any]) -> None:
        self.package = package
        self.warm_up = warm_up
        self.process: Any = None
        self.questions: Any = None

    def ask(self, question: Callable[[Any], Any], argument: object, limit: float) -> Answer:
        """One question, once; a new process first answers another one, so that its packages are loaded."""
        if self.process is None:
            self._start()
            first = self._exchange(self.warm_up, WARM_UP, LOADING_LIMIT)
            if self.process is None:
                return first
        return self._exchange(question, argument, limit)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.questions, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(self.package, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def _exchange(self, question: Callable[[Any], Any], argument: object, limit: float) -> Answer:
        try:
            self.questions.send((question, argument))
            if not self.questions.poll(limit):
                self.stop()
                return Answer(seconds=limit, failure="timeout")
            fine, value, seconds = self.questions.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.stop()
            return Answer(failure=f"process died with exit code {code}")
        if fine and not _is_finite(value):
            fine, value = False, f"answered {value}"
        return Answer(value, seconds, 1) if fine else Answer(seconds=seconds, failure=value)

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.questions.close()
        self.process = None


def _is_finite(value: Any) -> bool:
    return all(map(math.isfinite, value)) if isinstance(value, tuple) else math.isfinite(value)


def measure(worker: Worker, question: Callable[[Any], Any], argument: object, effort: Effort) -> Answer:
    """Ask until there are enough repetitions or patience runs out; the median time counts."""
    answers: list[Answer] = []
    while len(answers) < effort.repetitions and sum(a.seconds for a in answers) <= effort.patience:
        answer = worker.ask(question, argument, effort.limit)
        if answer.failure:
            return answer
        answers.append(answer)
    return Answer(answers[-1].value, statistics.median(a.seconds for a in answers), len(answers))
