"""A write-ahead journal: which steps were begun since the last save, so that none is forgotten in a crash.

A step that was drawn, lost and drawn again has been released twice, unless nothing of it left the process. So a run
that was saved notes in the save's folder which steps it may begin, before it begins them, and makes sure the note
is on the disk. Steps are noted some at a time (a thousandth of the run): a crash is charged for the
rest of such a block too, which errs on the safe side. A save settles the journal: of all notes one remains, that the
steps up to it were begun, for whoever goes back to an older save. Notes that someone else has made meanwhile show that
two processes go on with one run, neither of which would count what the other releases: then the one that notices stops.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from pathlib import Path
from typing import final

from tacit._files import open_private, write_atomic
from tacit.errors import CannotResume, OutOfOrder
from tacit.randomness import refuse_forked
from tacit.training.folder import JOURNAL


@final
class Journal:
    """The notes of one process on the steps of a saved run."""

    def __init__(self, folder: Path, steps: int, after: str | None = None) -> None:
        """`after` is what the notes were when the run was resumed; None for a run that starts a journal of its own."""
        self.folder = folder
        self._steps, self._notes = steps, after
        self._block = max(1, steps // 1000)
        self._attempt = secrets.token_hex(8)
        self._reserved, self._process = 0, os.getpid()

    def begin(self, step: int) -> None:
        """Note that `step` is about to be released; returns once the note is safe."""
        refuse_forked(self._process)
        if step >= self._reserved:
            self._reserve(step, min(step + self._block, self._steps))

    def leave(self, step: int) -> None:
        """This run goes on elsewhere: whoever resumes from here pays for all of its steps."""
        if step < self._steps:
            self._reserve(step, self._steps)

    def settle(self, saved: int, lost: Counter[int]) -> None:
        """Sum the notes up: the save that just succeeded holds `saved` steps, and knows which were lost before it."""
        self.refuse_unless_alone()
        note = f"{json.dumps({'saved': saved, 'lost': sorted(lost.items())})}\n" if saved or lost else ""
        write_atomic(_find_path(self.folder), note.encode(), is_private=True)
        self._notes, self._reserved = note, 0

    def refuse_unless_alone(self) -> None:
        """Raise `OutOfOrder` if someone else goes on with the run, or this process is a copy of the one that did."""
        refuse_forked(self._process)
        if self._notes is not None and notes_in(self.folder) != self._notes:
            raise OutOfOrder(
                f"{_find_path(self.folder)} is not as this process left it: another process resumed the run, and "
                "neither would count what the other releases. Stop one of the two, and resume the run with the other."
            )

    def _reserve(self, start: int, stop: int) -> None:
        self.refuse_unless_alone()
        # The break before it keeps a note that an earlier process did not finish from spoiling this one.
        note = f"\n{json.dumps({'attempt': self._attempt, 'start': start, 'stop': stop})}\n"
        try:
            with open(_find_path(self.folder), "a", opener=open_private) as file:
                file.write(note)
                file.flush()
                _sync(file.fileno())
        finally:
            # On a full disk, half a note.
            self._notes = notes_in(self.folder)
        self._reserved = stop


def notes_in(folder: Path) -> str:
    """All notes, as they stand there."""
    path = _find_path(folder)
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def lost_steps(folder: Path, saved: int, known: Counter[int] | None = None) -> Counter[int]:
    """How often each step was drawn and lost, for a save that holds `saved` steps and counts `known` lost ones.

    Steps from `saved` on were begun by processes that did not live to save them, or that saved them where this save
    has been put back in their place.
    """
    path = _find_path(folder)
    begun: set[tuple[str, int]] = set()
    lost: Counter[int] = Counter()
    for line in notes_in(folder).splitlines():
        match _parse_note(path, line):
            case {"attempt": str(attempt), "start": int(start), "stop": int(stop)}:
                begun.update((attempt, step) for step in range(max(start, saved), stop))
            case {"saved": int(stop), "lost": list(steps)}:
                begun.update(("saved", step) for step in range(saved, stop))
                lost.update({int(step): int(times) for step, times in steps})
            case None:
                pass
            case _:
                raise _explain_damage(path, line)
    return Counter(step for _, step in begun) + (lost - (known or Counter()))


def _parse_note(path: Path, line: str) -> object:
    """What a line says; None for one that was never finished: its steps were never begun."""
    try:
        return json.loads(line)
    except ValueError:
        if line.endswith("}"):
            raise _explain_damage(path, line) from None
        return None


def _explain_damage(path: Path, line: str) -> CannotResume:
    return CannotResume(
        f"{path} is damaged: it says {line[:80]!r}, so it is not known which steps were drawn since the save. If you "
        "remove the file, see to it that nothing of what was drawn since then is used or seen."
    )


def _find_path(folder: Path) -> Path:
    return folder / JOURNAL


def _sync(file: int) -> None:
    os.fsync(file)
