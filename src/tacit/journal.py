"""A write-ahead journal: which steps were begun since the last save, so that none is forgotten in a crash.

A step that was drawn, lost and drawn again has been released twice, unless nothing of it left the process. So a run
that was saved notes in the save's folder which steps it may begin, before it begins them, and makes sure the note
is on the disk. Steps are noted some at a time (a thousandth of the run): a crash is charged for the
rest of such a block too, which errs on the safe side. A save settles the journal.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from pathlib import Path
from typing import final


@final
class Journal:
    """The notes of one process on the steps of a saved run."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder = folder
        self._steps = steps
        self._block = max(1, steps // 1000)
        self._attempt = secrets.token_hex(8)
        self._reserved = 0

    def begin(self, step: int) -> None:
        """Note that `step` is about to be released; returns once the note is safe."""
        if step >= self._reserved:
            self._reserve(step, min(step + self._block, self._steps))

    def leave(self, step: int) -> None:
        """This run goes on elsewhere: whoever resumes from here pays for all of its steps."""
        if step < self._steps:
            self._reserve(step, self._steps)

    def settle(self) -> None:
        """Forget the notes: the save that just succeeded holds what they said."""
        with _path(self.folder).open("w") as file:
            _sync(file.fileno())
        self._reserved = 0

    def _reserve(self, start: int, stop: int) -> None:
        note = json.dumps({"attempt": self._attempt, "start": start, "stop": stop})
        with _path(self.folder).open("a") as file:
            # The break before it keeps a note that an earlier process did not finish from spoiling this one.
            file.write(f"\n{note}\n")
            file.flush()
            _sync(file.fileno())
        self._reserved = stop


def lost_steps(folder: Path, saved: int) -> Counter[int]:
    """How often each step from `saved` on was begun by processes that did not live to save it."""
    path = _path(folder)
    begun: set[tuple[str, int]] = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            note = json.loads(line)
        except ValueError:
            # A note that was never finished: its steps were never begun.
            continue
        begun.update((note["attempt"], step) for step in range(max(note["start"], saved), note["stop"]))
    return Counter(step for _, step in begun)


def _path(folder: Path) -> Path:
    return folder / "journal.jsonl"


def _sync(file: int) -> None:
    os.fsync(file)
