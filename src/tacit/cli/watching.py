"""What is seen while a comparison trains: how far it is, and which cells are being trained."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self, final

from rich.console import Console
from rich.text import Text

from tacit.cli.progress import Every, bar_on

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

    from tacit.workflows.cells import Job

_SECONDS_BETWEEN_LINES = 10.0


@final
class Display:
    """How many cells are done, by their files: a bar for whoever watches, a line now and then for a log.

    `started` says what the processes have begun, each by its number; whatever waits for one is not being trained.
    """

    def __init__(self, done: int, total: int, cells: Path, started: SimpleQueue[tuple[int, Job]]) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._total, self._first, self._cells, self._began = total, done, cells, time.monotonic()
        self._started = started
        self._begun: dict[int, Job] = {}
        self._lines = Every(_SECONDS_BETWEEN_LINES)
        # Cells of other methods or epsilons may lie there from before.
        self._others = self._files() - done
        self._bar = bar_on(self._console)
        self._task = self._bar.add_task("Comparing", total=total, completed=done, seen="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, unfinished: Iterable[Job]) -> None:
        """Count the files, and name what is being trained."""
        done = self._files() - self._others
        seen = ", ".join(map(str, self.running(unfinished)))
        self._bar.update(self._task, completed=done, seen=seen)
        if not self._console.is_terminal and done > self._first and self._lines.due():
            left = (time.monotonic() - self._began) / (done - self._first) * (self._total - done)
            self._console.print(Text(f"{done} of {self._total} cells, about {left:.0f} s left"))

    def _files(self) -> int:
        return sum(1 for _ in self._cells.glob("*.json")) if self._cells.is_dir() else 0

    def running(self, unfinished: Iterable[Job]) -> list[Job]:
        """What each process has begun last, unless it has ended."""
        while not self._started.empty():
            process, job = self._started.get()
            self._begun[process] = job
        there = set(unfinished)
        return [job for job in self._begun.values() if job in there]
