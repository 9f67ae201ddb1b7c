"""How outcomes of fault trials are judged, counted, and kept, so that counts of several days add up.

Trials run in a process of their own, which sends a line for each: one that dies or hangs is counted too, and the next
process goes on after it.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tacit.errors import TacitError

# Descriptions that are kept of what went wrong.
_KEPT = 20
_SECONDS_BETWEEN_SAVES = 5.0


class Lost(Exception):  # noqa: N818
    """Something that was released, saved or written is gone."""


class UnderCount(Exception):  # noqa: N818
    """A charge, a bound or an account states less than is true."""


class NotHere(Exception):  # noqa: N818
    """This machine lacks what the trial needs."""


@dataclass
class Counts:
    """What happened so far. `calls` numbers the trials, which may count for several each."""

    calls: int = 0
    done: int = 0
    lost: int = 0
    tracebacks: int = 0
    under_counts: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many outcomes should not have been."""
        return self.lost + self.tracebacks + self.under_counts

    def add(self, other: Counts) -> None:
        """Count what `other` counts too."""
        for name in ("calls", "done", "lost", "tracebacks", "under_counts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for note, count in other.notes.items():
            self.notes[note] = self.notes.get(note, 0) + count
        self.found = [*self.found, *other.found][:_KEPT]

    @staticmethod
    def read(path: Path) -> Counts:
        """The counts in the file, or none yet."""
        return Counts(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Counts()

    def write(self, path: Path) -> None:
        """Replace the file at once, so that a kill leaves the counts before or after."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        unfinished.replace(path)


# One trial, by its number: what it does depends on nothing else.
Trial = Callable[[int, Path], Counts]


@dataclass(frozen=True)
class Kind:
    """A kind of trial. `open` prepares what all of its trials share, and is given a folder for it.

    `full` is how many there should be in the end, and no trial may take longer than `seconds`.
    """

    name: str
    label: str
    full: int
    open: Callable[[Path], AbstractContextManager[Trial]]
    seconds: float = 30.0


def judge(call: Callable[[], object]) -> Counts:
    """Count one outcome: an answer and an error of tacit's are right, anything else is not."""
    try:
        call()
    except TacitError as error:
        said = str(error).strip()
        if not said or "Traceback (most recent call last)" in said:
            return Counts(done=1, tracebacks=1, found=[f"{type(error).__name__} without a sentence: {said!r}"])
        return Counts(done=1, notes={"refused": 1})
    except UnderCount as error:
        return Counts(done=1, under_counts=1, found=[f"under-count: {error}"])
    except Lost as error:
        return Counts(done=1, lost=1, found=[f"lost: {error}"])
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Counts(done=1, tracebacks=1, found=[_describe(error)])
    return Counts(done=1)


def _describe(error: BaseException) -> str:
    """The error, and the last lines of ours and of others that it went through."""
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return f"{type(error).__name__}: {str(error)[:300]} ({' > '.join(places[-6:])})"


def run_trials(kind: Kind, counts: Counts, goal: int, path: Path | None, until: float) -> None:
    """Run trials until so many are done or the time is over; the file, if there is one, keeps the counts."""
    saved = time.monotonic()
    try:
        while counts.done < goal and time.monotonic() < until:
            for one in _run_process(kind, counts.calls):
                one.found = [f"{kind.name} {counts.calls}: {each}" for each in one.found]
                one.calls = 1
                counts.add(one)
                for each in one.found:
                    print(each, flush=True)
                if path is not None and time.monotonic() - saved > _SECONDS_BETWEEN_SAVES:
                    counts.write(path)
                    saved = time.monotonic()
                if counts.done >= goal or time.monotonic() > until:
                    break
    finally:
        if path is not None and counts.calls:
            counts.write(path)


def _run_process(kind: Kind, first: int) -> Iterator[Counts]:
    """The counts of one trial after another, until its process dies or hangs, which is counted, or nobody asks."""
    folder = Path(tempfile.mkdtemp(prefix="tacit-faults-"))
    reader, writer = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if not process:
        os.close(reader)
        _serve(kind, first, folder, writer)
    os.close(writer)
    is_over = False
    try:
        with os.fdopen(reader, "rb", buffering=0) as pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            waiting = b""
            while True:
                if not selector.select(kind.seconds):
                    is_over = True
                    yield Counts(done=1, tracebacks=1, found=[f"no answer in {kind.seconds:g} seconds"])
                    return
                content = os.read(reader, 65536)
                if not content:
                    break
                *lines, waiting = (waiting + content).split(b"\n")
                for line in lines:
                    values = json.loads(line)
                    if "not_here" in values:
                        raise NotHere(values["not_here"])
                    if "broken" in values:
                        raise RuntimeError(f"{kind.name}: the trials cannot be run.\n{values['broken']}")
                    yield Counts(**values)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        is_over = True
        yield Counts(done=1, tracebacks=1, found=[f"the process of the trials ended with code {code}"])
    finally:
        _end(process, is_over)
        shutil.rmtree(folder, ignore_errors=True)


def _end(process: int, is_over: bool) -> None:
    """Let the process close what it opened, unless it hangs or is gone; then end all that it started."""
    with suppress(ProcessLookupError, ChildProcessError):
        if not is_over:
            os.kill(process, signal.SIGTERM)
            for _ in range(500):
                if os.waitpid(process, os.WNOHANG)[0]:
                    break
                time.sleep(0.02)
    with suppress(ProcessLookupError, ChildProcessError):
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _serve(kind: Kind, first: int, folder: Path, writer: int) -> None:
    """Send the counts of one trial after another: this process does nothing else, and ends by a signal."""
    number = first
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, _stop)
        with kind.open(folder) as trial:
            while True:
                _send(writer, asdict(trial(number, folder)))
                number += 1
    except NotHere as reason:
        _send(writer, {"not_here": str(reason)})
    except (SystemExit, BrokenPipeError):
        # Nobody asks for more.
        pass
    except BaseException:
        # An error of the script, or of what it prepares: no outcome of a trial.
        _send(writer, {"broken": traceback.format_exc()})
    finally:
        # Also where the signal to stop arrives after all of the above.
        os._exit(0)


def _stop(*_: object) -> None:
    raise SystemExit(0)


def _send(writer: int, values: dict[str, object]) -> None:
    waiting = json.dumps(values).encode() + b"\n"
    while waiting:
        waiting = waiting[os.write(writer, waiting) :]


@contextmanager
def alone(trial: Trial) -> Iterator[Trial]:
    """A trial that shares nothing with others."""
    yield trial
