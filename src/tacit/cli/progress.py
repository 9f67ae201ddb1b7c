"""What is seen while a model trains: a bar for whoever watches, a line now and then for a log.

The loss is that of private examples. It is shown to whoever trains, who holds them anyway, and goes nowhere else.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

_SECONDS_BETWEEN_LOSSES = 0.25
_SECONDS_BETWEEN_EPSILONS = 2.0
_SECONDS_BETWEEN_LINES = 10.0


@final
class Every:
    """True at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time again; if so, the clock starts anew."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def bar_on(console: Console) -> Progress:
    """A bar with what is done, the time left and `seen`, a text beside them; nothing where nobody watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        # Where there is no room for all, this text is cut off, and nothing else.
        TextColumn("left  {task.fields[seen]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal,
    )


@final
class Display:
    """The state of a run on standard error."""

    def __init__(self, done: int, steps: int, budget: float | None) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._budget, self._first, self._started = budget, done, time.monotonic()
        self._loss, self._score, self._epsilon = "", "", ""
        self._losses, self._epsilons = Every(_SECONDS_BETWEEN_LOSSES), Every(_SECONDS_BETWEEN_EPSILONS)
        self._lines = Every(_SECONDS_BETWEEN_LINES)
        self._bar = bar_on(self._console)
        self._task = self._bar.add_task("Training", total=steps, completed=done, seen="")
        self._steps = steps

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, done: int, loss: Callable[[], float | None], epsilon: Callable[[], str]) -> None:
        """Show that a step is done. What takes time to know is asked for only now and then."""
        if self._console.is_terminal and self._losses.due() and (value := loss()) is not None:
            self._loss = f"loss {value:.3f} (private: seen by you, not released)"
        if self._epsilons.due():
            self._epsilon = f"epsilon {epsilon()}" + ("" if self._budget is None else f" of {self._budget:.4g}")
        self._bar.update(self._task, completed=done, seen="  ".join(filter(None, self._seen())))

    def epoch(self, number: int, done: int, score: str) -> None:
        """Show how well the model does on public examples."""
        self._score = score
        if not self._console.is_terminal and self._lines.due():
            left = (time.monotonic() - self._started) / (done - self._first) * (self._steps - done)
            seen = [f"epoch {number}", *filter(None, self._seen()), f"about {left:.0f} s left"]
            self._console.print(Text(", ".join(seen)))

    def _seen(self) -> tuple[str, str, str]:
        return self._score, self._epsilon, self._loss


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """A function that says whether Ctrl-C was pressed, so that a step can be finished; pressed twice, it interrupts."""
    asked = False

    def ask(_signal: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
