"""A run's reservation in a ledger, as seen by the process that owns the run."""

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
from tacit.ledger.ledger import Ledger, ReservedSteps, new_token, takeover_error
from tacit.ledger.storage import Marks, storage_at
from tacit.randomness import refuse_forked


class Resumed(NamedTuple):
    """The last step that a resumed run may reach, the lost steps, and how many of them are not charged."""

    stop: int
    lost: Counter[int]
    forgiven: int


@final
class Reservation:
    """Reserves before the first draw, marks every step before it is drawn, and settles at the end of the run.

    Steps are marked in pieces of a thousandth of the run, so a crash is charged for the rest of such a piece too.
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
        self.ledger, self.run, self.dataset = ledger, run or new_token(), dataset
        self._course, self._own, self._about, self._fingerprint = course, own, about, fingerprint
        self._place: ReservedSteps | None = None
        self._stop = stop
        self._marked, self._process = 0, os.getpid()
        self._marks: tuple[int, Marks] | None = None

    def check(self) -> None:
        """Raise `BudgetExceeded` if the run does not fit into the budget now."""
        self.dataset = self.ledger.check(self.dataset, self._course, self._fingerprint, self._about)

    def begin(self, step: int) -> None:
        """Charge the step before it is drawn. Returns once that is on the disk."""
        refuse_forked(self._process)
        place = self._place or self._reserve(step, self._stop)
        if step < self._marked:
            return
        if step >= place.stop:
            raise OutOfOrder(
                f"Step {step} is not reserved in the ledger: run {self.run} may draw steps below {place.stop}."
            )
        stop = min(step + max(1, self._course.steps // 1000), place.stop)
        self._mark(place, stop)

    def resume(self, start: int, stop: int, *, drawn: Sequence[Range] = (), nothing_left: bool = False) -> Resumed:
        """Take the run over from the process that owned it before.

        `drawn` lists steps that the run is known to have drawn, in case the ledger does not know them.
        """
        last = next((entry for entry in reversed(self.ledger.entries()) if entry.run == self.run), None)
        if last is not None and last.kind == "settle" and start >= stop:
            self.dataset = last.dataset
            return Resumed(stop, self._count_lost(last.content["drawn"], start), 0)
        place = self._reserve(start, stop, drawn=drawn, nothing_left=nothing_left)
        if place.stop == start:
            self.settle()
        return Resumed(place.stop, self._count_lost(place.drawn, start), place.forgiven)

    def refuse_unless_current(self) -> None:
        """Raise `OutOfOrder` if another process has taken the run over. Closes the ledger's file."""
        if self._place is not None:
            self._mark(self._place, self._marked)
            self._close()

    def settle(self) -> None:
        """Charge exactly what was drawn. The run may continue by reserving again."""
        if self._place is not None:
            self.ledger.settle(self.run, self._place.attempt)
            self._place, self._marked = None, 0
            self._close()

    def saved(self) -> dict[str, Any]:
        """What a checkpoint stores, for `find_ledger`."""
        return {
            "path": self.ledger.storage.saved_place,
            "identity": self.ledger.identity,
            "dataset": self.dataset,
            "run": self.run,
            "entry": None if self._place is None else self._place.entry,
            "seal": None if self._place is None else self._place.seal,
        }

    def _reserve(self, start: int, stop: int | None, **more: Any) -> ReservedSteps:
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

    def _count_lost(self, drawn: Sequence[Range], start: int) -> Counter[int]:
        """Steps drawn but not part of the run up to `start`; none where a step drawn again gives the same numbers."""
        if self._course.is_repeatable:
            return Counter()
        counts = Counter(step for first, last in drawn for step in range(first, last))
        counts.subtract(range(start))
        return +counts

    def _mark(self, place: ReservedSteps, stop: int) -> None:
        try:
            is_ours = self._open().mark(Live(self.run, place.attempt, stop))
        except BaseException:
            # A retry gets a new connection.
            self._close()
            raise
        if not is_ours:
            self._close()
            raise takeover_error(self.run, [entry for entry in self.ledger.entries() if entry.run == self.run][-1])
        self._marked = stop

    def _open(self) -> Marks:
        # A connection belongs to the process that opened it, not to a fork.
        if self._marks is None or self._marks[0] != os.getpid():
            marks = self.ledger.storage.open_marks()
            weakref.finalize(self, marks.close).atexit = False
            self._marks = os.getpid(), marks
        return self._marks[1]

    def _close(self) -> None:
        if self._marks is not None and self._marks[0] == os.getpid():
            self._marks[1].close()
        self._marks = None


def find_ledger(saved: Mapping[str, Any], given: Ledger | None) -> Ledger:
    """The ledger that a saved run is charged to: the one given, else the one at the saved path."""
    path = saved["path"]
    if given is None and not storage_at(path).exists():
        raise CannotResume(
            f"The run is charged to the ledger {path}, which does not exist any more. Pass its new path: "
            "ledger=Ledger(path), or --ledger FILE."
        )
    ledger = given or Ledger(path)
    if ledger.identity != saved["identity"]:
        raise CannotResume(
            f"The run is charged to the ledger that was at {path}, not to {ledger.path}. Continuing with another "
            "ledger would lose what was released so far. Pass the ledger that the run began with."
        )
    if saved["entry"] is not None and not ledger.holds(saved["entry"], saved["seal"]):
        raise BadLedger(
            f"{ledger.path} has no entry {saved['entry']}, which charges run {saved['run']}: it is an old copy, or was "
            "rewritten. Restore the newest copy."
        )
    return ledger
