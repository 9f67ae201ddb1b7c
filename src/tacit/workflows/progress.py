"""Progress of training and comparisons on standard error, and a Ctrl-C that lets the current step finish.

A progress bar appears in a terminal or a notebook; a log gets a line now and then. The loss shown is that of private
examples: it is for whoever trains, who holds them anyway, and is written nowhere.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import FrameType
from typing import Generic, Self, TypeVar, final

from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

_SECONDS_BETWEEN_LOSSES = 0.25
_SECONDS_BETWEEN_EPSILONS = 2.0
_SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_SAVES = 30.0

Job = TypeVar("Job")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed. The message says what was saved, what was spent and how to resume."""


@contextmanager
def explain_interrupt(*, is_resumed: bool = False) -> Iterator[None]:
    """Turn Ctrl-C while reading and planning into `Interrupted`: nothing was spent."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt:
        more = "more " if is_resumed else ""
        raise Interrupted(
            f"Stopped before the first step: nothing {more}was released, and nothing {more}was spent."
        ) from None


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; pressed twice, it interrupts at once.

    Only the main thread receives signals; in another thread the function always returns False.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    is_asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked:
            raise KeyboardInterrupt
        is_asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: is_asked
    finally:
        signal.signal(signal.SIGINT, before)


@final
class Timer:
    """Says at most once in so many seconds that it is time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether the time has passed; if so, it starts again."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def open_console() -> Console:
    """Standard error, without line breaks of its own."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def is_watched(console: Console) -> bool:
    """Whether somebody sees the console now: a terminal or a notebook, not a log file.

    In a notebook a bar needs ipywidgets. Without it, rich would warn and draw nothing, so it gets lines like a log.
    """
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def show_status(what: str) -> AbstractContextManager[object]:
    """Show a spinner with a text while something is computed, if somebody is watching."""
    console = Console(stderr=True)
    return console.status(what) if is_watched(console) else nullcontext()


@final
class _Texts:
    """As many of these texts as there is room for. The first one is cut if it does not fit; the others are left out."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        shown = "  ".join(self._texts[:1])
        for text in self._texts[1:]:
            if len(shown) + 2 + len(text) <= options.max_width:
                shown += f"  {text}"
        yield Text(shown, no_wrap=True, overflow="ellipsis")


@final
class _Seen(ProgressColumn):
    """The field `seen` of a task: what there is to say, the most important first."""

    max_refresh = None

    def render(self, task: Task) -> _Texts:
        return _Texts(task.fields["seen"])


def make_bar(console: Console) -> Progress:
    """A progress bar with counts, the time left and the texts in the field `seen`; invisible if nobody is watching."""
    is_wide = console.width >= 100
    return Progress(
        *([TextColumn("{task.description}")] if is_wide else []),
        BarColumn(bar_width=20 if is_wide else 10),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        _Seen(table_column=Column(ratio=1, no_wrap=True)),
        console=console,
        expand=True,
        transient=True,
        disable=not is_watched(console),
    )


class _Bar:
    """A progress bar in a terminal or notebook, and the time for lines in a log."""

    def __init__(self, name: str, done: int, total: int) -> None:
        self._console = open_console()
        self._first, self._total, self._began = done, total, time.monotonic()
        self._lines = Timer(_SECONDS_BETWEEN_LINES)
        self._bar = make_bar(self._console)
        self._task = self._bar.add_task(name, total=total, completed=done, seen=())

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _write_line(self, done: int, *texts: str) -> None:
        """A line for a log, if the last one is some seconds old; with the time left, once that is known."""
        if is_watched(self._console) or done <= self._first or not self._lines.is_due():
            return
        made, open_still = done - self._first, self._total - done
        left = (time.monotonic() - self._began) / made * open_still
        # The first results come late, as processes start, and would promise far too long a time.
        is_known = made >= 0.1 * (self._total - self._first)
        self._console.print(Text(", ".join([*texts, *([f"about {left:.0f} s left"] if is_known else [])])))


@final
class TrainingProgress(_Bar):
    """The progress of one run: steps, epsilon spent so far, test score, loss."""

    def __init__(self, done: int, steps: int, budget: float | None) -> None:
        super().__init__("Training", done, steps)
        self._budget = budget
        self._loss, self._score, self._epsilon = "", "", ""
        self._losses, self._epsilons = Timer(_SECONDS_BETWEEN_LOSSES), Timer(_SECONDS_BETWEEN_EPSILONS)

    def show_step(self, done: int, loss: Callable[[], float | None], epsilon: Callable[[], str]) -> None:
        """Show that a step is done. Loss and epsilon take time, so they are computed only now and then."""
        if is_watched(self._console) and self._losses.is_due() and (value := loss()) is not None:
            self._loss = f"loss {value:.3f} (private)"
        if self._epsilons.is_due():
            self._epsilon = f"epsilon {epsilon()}" + ("" if self._budget is None else f" of {self._budget:.4g}")
        self._bar.update(self._task, completed=done, seen=self._texts())

    def show_score(self, epoch: int, done: int, score: str) -> None:
        """Show the score on public examples."""
        self._score = score
        self._write_line(done, f"epoch {epoch}", *self._texts())

    def _texts(self) -> list[str]:
        return [text for text in (self._epsilon, self._score, self._loss) if text]


@final
class ComparisonProgress(_Bar, Generic[Job]):
    """The progress of a comparison: how many results are there, and what each process is training.

    `started` receives (process, job) whenever a process starts a job.
    """

    def __init__(self, done: int, total: int, cells: Path, started: SimpleQueue[tuple[int, Job]]) -> None:
        super().__init__("Comparing", done, total)
        self._cells, self._started = cells, started
        self._running: dict[int, Job] = {}
        # Results of other methods or epsilons may be there from before.
        self._others = self._count_files() - done

    def update(self, unfinished: Iterable[Job]) -> None:
        """Count the results, and name the jobs that are running."""
        done = self._count_files() - self._others
        self._bar.update(self._task, completed=done, seen=[str(job) for job in self.list_running(unfinished)])
        self._write_line(done, f"{done} of {self._total} cells")

    def _count_files(self) -> int:
        return sum(1 for _ in self._cells.glob("*.json")) if self._cells.is_dir() else 0

    def list_running(self, unfinished: Iterable[Job]) -> list[Job]:
        """The last job that each process started, if it is not finished."""
        while not self._started.empty():
            process, job = self._started.get()
            self._running[process] = job
        left = set(unfinished)
        return [job for job in self._running.values() if job in left]
