"""A run's place in a ledger, as the process sees it that goes on with the run."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from tacit.budget import Budget
from tacit.errors import BadLedger, CannotResume, OutOfOrder
from tacit.ledger.book import Live
from tacit.ledger.course import Course, Range
from tacit.ledger.ledger import Ledger, Place, taken_over, token
from tacit.ledger.storage import Marks, storage_at
from tacit.randomness import refuse_forked


class Resumed(NamedTuple):
    """Up to where a resumed run may go; which steps were drawn in vain; how many of those are forgiven."""

    stop: int
    lost: Counter[int]
    forgiven: int


@final
class Booking:
    """Reserves before the first draw, marks every step before it is drawn, and settles when the run is over.

    Marks are made some steps at a time, a thousandth of the run: a crash is charged for the rest of such a piece too.
    """

    def __init__(
        self,
        ledger: Ledger,
        course: Course,
        *,
        dataset: str | None,
        fingerprint: str | None = None,
        about: Mapping[str, Any] | None = None,
        own: Budget | None = None,
        run: str | None = None,
        stop: int | None = None,
    ) -> None:
        self.ledger, self.run, self.dataset = ledger, run or token(), dataset
        self._course, self._own, self._about, self._fingerprint = course, own, about, fingerprint
        self._place: Place | None = None
        self._stop = stop
        self._marked, self._process = 0, os.getpid()
        self._marks: tuple[int, Marks] | None = None

    def check(self) -> None:
        """Raise `BudgetExceeded` if the run could not be begun now."""
        self.dataset = self.ledger.check(self.dataset, self._course, self._fingerprint)

    def begin(self, step: int) -> None:
        """Make sure, before the step is drawn, that it is charged. Returns once that is on the disk."""
        refuse_forked(self._process)
        place = self._place or self._reserve(step, self._stop)
        if step < self._marked:
            return
        if step >= place.stop:
            raise OutOfOrder(f"Step {step} is not reserved in the ledger: run {self.run} may go up to {place.stop}.")
        stop = min(step + max(1, self._course.steps // 1000), place.stop)
        self._mark(place, stop)

    def resume(self, start: int, stop: int, *, drawn: Sequence[Range] = (), nothing_left: bool = False) -> Resumed:
        """Take over from whatever process went on with the run before this one.

        `drawn` is what the run is known to have drawn, for a ledger that does not know it.
        """
        last = next((entry for entry in reversed(self.ledger.entries()) if entry.run == self.run), None)
        if last is not None and last.kind == "settle" and start >= stop:
            self.dataset = last.dataset
            return Resumed(stop, self._lost(last.content["drawn"], start), 0)
        place = self._reserve(start, stop, drawn=drawn, nothing_left=nothing_left)
        if place.stop == start:
            self.settle()
        return Resumed(place.stop, self._lost(place.drawn, start), place.forgiven)

    def refuse_unless_current(self) -> None:
        """Raise `OutOfOrder` if another process has taken the run over. Leaves the ledger as one whole file."""
        if self._place is not None:
            self._mark(self._place, self._marked)
            self._close()

    def settle(self) -> None:
        """Charge what was drawn, and no more. The run may still go on, by reserving anew."""
        if self._place is not None:
            self.ledger.settle(self.run, self._place.attempt)
            self._place, self._marked = None, 0
            self._close()

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps, for `of_saved`."""
        return {
            "path": self.ledger.storage.saved_place,
            "identity": self.ledger.identity,
            "dataset": self.dataset,
            "run": self.run,
            "entry": None if self._place is None else self._place.entry,
            "seal": None if self._place is None else self._place.seal,
        }

    def _reserve(self, start: int, stop: int | None, **more: Any) -> Place:
        self._place = self.ledger.reserve(
            self.dataset,
            self._course,
            run=self.run,
            start=start,
            stop=stop,
            own=self._own,
            about=self._about,
            fingerprint=self._fingerprint,
            **more,
        )
        self.dataset, self._stop, self._marked = self._place.dataset, self._place.stop, start
        return self._place

    def _lost(self, drawn: Sequence[Range], start: int) -> Counter[int]:
        """The steps that were drawn and do not lead up to `start`; none where they are the same numbers again."""
        if self._course.is_repeatable:
            return Counter()
        counts = Counter(step for first, last in drawn for step in range(first, last))
        counts.subtract(range(start))
        return +counts

    def _mark(self, place: Place, stop: int) -> None:
        try:
            is_ours = self._open().mark(Live(self.run, place.attempt, stop))
        except BaseException:
            # Whoever tries again does so with a new connection.
            self._close()
            raise
        if not is_ours:
            self._close()
            raise taken_over(self.run, [entry for entry in self.ledger.entries() if entry.run == self.run][-1])
        self._marked = stop

    def _open(self) -> Marks:
        # A connection must not be used by a forked process: it belongs to the one that opened it.
        if self._marks is None or self._marks[0] != os.getpid():
            marks = self.ledger.storage.marks()
            weakref.finalize(self, marks.close).atexit = False
            self._marks = os.getpid(), marks
        return self._marks[1]

    def _close(self) -> None:
        if self._marks is not None and self._marks[0] == os.getpid():
            self._marks[1].close()
        self._marks = None


def ledger_of(saved: Mapping[str, Any], given: Ledger | None) -> Ledger:
    """The ledger that a saved run is charged to: the one given, or the one where it was."""
    path = saved["path"]
    if given is None and not storage_at(path).is_there():
        raise CannotResume(
            f"The run is charged to the ledger {path}, which is not there any more. Say where it is: "
            "ledger=Ledger(path), or --ledger FILE."
        )
    ledger = given or Ledger(path)
    if ledger.identity != saved["identity"]:
        raise CannotResume(
            f"The run is charged to another ledger than {ledger.path}: to the one that was at {path}. Going on under "
            "this one would forget what was released so far. Give the ledger that it began with."
        )
    if saved["entry"] is not None and not ledger.holds(saved["entry"], saved["seal"]):
        raise BadLedger(
            f"{ledger.path} has lost entry {saved['entry']}, in which run {saved['run']} is charged: it is an old "
            "copy, or was written anew. Restore the newest copy."
        )
    return ledger
