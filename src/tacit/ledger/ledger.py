"""Ledger: what was ever released from each data set, and what may still be."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from tacit.accounting.events import Adjacency, Event
from tacit.budget import Budget, Terms
from tacit.errors import BadLedger, InvalidArgument, OutOfOrder
from tacit.ledger.account import Account, largest
from tacit.ledger.book import VERSION, Book, Entry, Live, without_fingerprints
from tacit.ledger.course import Course, Range, added, both
from tacit.ledger.storage import Storage, storage_at

_EVENT = "an event such as Gaussian(multiplier=1.1).sampled(0.01) * 1000"


@dataclass(frozen=True)
class Place:
    """What a process may draw of a run: steps `start` to `stop`. `drawn` is what others have drawn before it.

    `entry` and `seal` name the row that says so.
    """

    dataset: str
    run: str
    attempt: str
    start: int
    stop: int
    drawn: tuple[Range, ...]
    forgiven: int
    entry: int
    seal: str


@final
@dataclass(frozen=True)
class Ledger:
    """Everything that was released from some data sets, in one place. A new one is made where there is none.

    `path` is a file, or the address of a PostgreSQL database that a team shares: postgresql://user@host/database.

    Whoever releases something **reserves** it first and **settles** to what was released when it is over. Killed
    anywhere in between, the reservation stands, so the ledger never says less than was released. No two processes
    can reserve the same remainder. `PrivateRun(..., ledger=ledger, dataset="adult")` does all of this by itself.

    >>> from tempfile import mkdtemp
    >>> from tacit.accounting import Gaussian
    >>> ledger = Ledger(Path(mkdtemp()) / "adult.ledger")
    >>> ledger.set_budget("adult", Budget(epsilon=1, delta=1e-5))
    >>> run = ledger.spend("adult", Gaussian(5.0), about={"method": "a table of means"})
    >>> ledger.spend("adult", Gaussian(5.0))
    Traceback (most recent call last):
    ...
    tacit.errors.BudgetExceeded: This would bring the data set 'adult' to epsilon 1.061 at delta 1e-05; the budget \
is 1, of which 0.7255 is spent or reserved. Raise the multiplier to 5.6033.
    """

    path: Path | str
    storage: Storage = field(repr=False, compare=False)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        storage = storage_at(path)
        object.__setattr__(self, "storage", storage)
        object.__setattr__(self, "path", storage.place)
        if not storage.is_there():
            storage.create()
        with storage.reading():
            # A ledger that cannot be relied upon is refused before anything relies on it.
            pass

    @property
    def identity(self) -> str:
        """The name that the ledger was given when it was made; a copy has the same."""
        with self.storage.reading() as book:
            return book.identity

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets, in the order in which they came."""
        return tuple(dict.fromkeys(entry.dataset for entry in self.entries()))

    def entries(self) -> tuple[Entry, ...]:
        """All rows, oldest first."""
        with self.storage.reading() as book:
            return tuple(book.entries)

    def account(self, dataset: str) -> Account:
        """What the ledger says of a data set; one that it does not know has spent nothing."""
        return Account.of(dataset, self.entries())

    def set_budget(
        self,
        dataset: str,
        budget: Budget,
        *,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        adaptive: bool = False,
        like: Event | None = None,
    ) -> None:
        """From now on, refuse what would bring the data set over the budget.

        `adaptive=True` holds it by a Rényi filter, so that the settings of a run may be chosen by what earlier runs
        have released; most room is made for runs `like` the one given. The budget that was set last counts, and all
        of them stay on record.
        """
        terms = Terms.adaptive(budget, adjacency, like) if adaptive else Terms(budget, adjacency)
        content = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "adjacency": adjacency.value,
            "order": terms.order,
        }
        with self.storage.writing() as book:
            book.append("budget", _name(dataset), "", content)

    def spend(
        self,
        dataset: str,
        event: Event,
        *,
        about: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        is_released: bool = False,
    ) -> str:
        """Charge a single release; call it before the release. Returns the name under which it is on record.

        `BudgetExceeded` if there is no room for it, and then nothing is charged. `is_released=True` says that it has
        happened already: then it is charged, room or not. `about` is shown in exports, so it must say nothing that is
        private. A `fingerprint` of the examples is written keyed with the ledger's secret only.
        """
        if not isinstance(event, Event):
            raise InvalidArgument(f"event must be {_EVENT}. Got {event!r}.")
        run, course = token(), Course.of(event)
        with self.storage.writing() as book:
            dataset = identify(book, dataset, fingerprint)
            account = Account.of(dataset, book.entries)
            is_allowed = is_released or account.allows(event)
            if is_allowed:
                content = _content(about, course, event, drawn=[(0, course.steps)])
                book.append("settle", dataset, run, content)
        if not is_allowed:
            # What would have fitted takes a while to find: not while others wait for the lock.
            raise account.refusal(course)
        return run

    def check(self, dataset: str | None, course: Course, fingerprint: str | None = None) -> str:
        """Name the data set; raise `BudgetExceeded` if it has no room for the whole course now. Reserves nothing."""
        with self.storage.reading() as book:
            name = named(book, dataset, fingerprint)
            account = Account.of(name, book.entries)
        if not account.allows(course.cost([(0, course.steps)])):
            raise account.refusal(course)
        return name

    def reserve(
        self,
        dataset: str | None,
        course: Course,
        *,
        run: str,
        start: int = 0,
        stop: int | None = None,
        drawn: Sequence[Range] = (),
        own: Budget | None = None,
        about: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        nothing_left: bool = False,
    ) -> Place:
        """Let this process, and no other, go on with the run from step `start` to `stop`; charge it for that.

        A run that is new must fit as a whole. One that was begun before is cut short to what still fits, and within
        `own`, its own budget: steps that were lost in a crash have been paid for. `drawn` is what the run is known to
        have drawn from elsewhere: from before it came to this ledger, or from notes that the ledger has lost since
        someone moved it without its log. `nothing_left=True` declares that nothing of what the process before
        this one drew from `start` on left it.
        """
        with self.storage.writing() as book:
            dataset = identify(book, dataset, fingerprint)
            last = book.last_of(run)
            _refuse_other_name(run, dataset, last)
            course = course if last is None else Course.from_data(last.content["course"])
            planned = course.steps if stop is None else stop
            before, forgiven = _drawn(book, run, last, start if nothing_left else None)
            ranges = both(before, drawn)
            account = Account.of(dataset, book.entries).without(run)
            stop = _stop(account, course, ranges, (start, planned), own)
            is_allowed = stop == planned or bool(ranges)
            if is_allowed:
                event, attempt = course.cost(added(ranges, (start, stop))), token()
                content = _content(about, course, event, ranges, start=start, stop=stop, attempt=attempt)
                entry = book.append("reserve", dataset, run, {**content, "forgiven": forgiven})
                book.set_live(Live(run, attempt, start))
        if not is_allowed:
            raise account.refusal(course)
        seal = book.public_seal(entry.number)
        return Place(dataset, run, attempt, start, stop, tuple(ranges), forgiven, entry.number, seal)

    def settle(self, run: str, attempt: str | None = None) -> Event:
        """Charge the run for what was drawn, and no more. Whatever process still goes on with it is stopped.

        With `attempt`, only if that is the process that goes on with it. Returns what the run costs.
        """
        with self.storage.writing() as book:
            last = book.last_of(run)
            if last is None:
                raise InvalidArgument(f"The ledger {self.path} knows no run {run!r}. `tacit ledger show` lists them.")
            account = Account.of(last.dataset, book.entries)
            charged = next(charge.event for charge in account.charges if charge.run == run)
            if last.kind == "settle":
                return charged
            if attempt is not None and attempt != last.content["attempt"]:
                raise taken_over(run, last)
            (ranges, _), course = _drawn(book, run, last, None), Course.from_data(last.content["course"])
            event = course.cost(ranges)
            book.append("settle", last.dataset, run, _content(last.content["about"], course, event, ranges))
            book.end_live(run)
            return event

    def verify(self, head: str | None = None) -> str:
        """Check the whole file, raise `BadLedger` naming the first bad row, and return the newest row's seal.

        A seal that was noted earlier and is given as `head` must still be in the chain: who can write the file can
        write a chain of their own, but not one with the same seal.
        """
        self.storage.check()
        with self.storage.reading() as book:
            for entry in book.entries:
                _check_content(self.path, entry)
            is_known = head is None or any(book.holds(number, head) for number in range(len(book.entries) + 1))
            if not is_known:
                raise BadLedger(
                    f"{self.path} holds no entry with the seal {head}: it was written anew, or is another ledger."
                )
            return book.public_seal(len(book.entries))

    def holds(self, entry: int, seal: str) -> bool:
        """Whether a row that was written once is still there."""
        with self.storage.reading() as book:
            return book.holds(entry, seal)

    def export(self) -> dict[str, Any]:
        """All rows, for machines, without the secret that fingerprints are keyed with.

        Fingerprints that an old tacit wrote without that key are left out, and seals are keyed from the row on that
        `keyed_from` names: None, and all seals as they are, where there is no such row.
        """
        with self.storage.reading() as book:
            rows = [
                {
                    "number": entry.number,
                    "at": entry.at,
                    "who": entry.who,
                    "kind": entry.kind,
                    "dataset": entry.dataset,
                    "run": entry.run,
                    "content": entry.content,
                    "previous": book.public_seal(entry.number - 1),
                    "hash": book.public_seal(entry.number),
                }
                for entry in book.entries
            ]
            head = book.public_seal(len(rows))
            return {
                "version": VERSION,
                "identity": book.identity,
                "head": head,
                "keyed_from": book.keyed_from,
                "entries": rows,
            }


def named(book: Book, dataset: str | None, fingerprint: str | None) -> str:
    """The name that the examples go by. A second name for the same ones, and with it a second budget, is refused."""
    known = {entry.content["fingerprint"]: entry.dataset for entry in book.entries if entry.kind == "data"}
    found = None if fingerprint is None else known.get(book.mixed(fingerprint))
    if dataset is None and found is None:
        raise InvalidArgument(
            f"The ledger {book.place} does not know these examples. Say which data set they are: dataset='adult'."
        )
    if dataset is not None and found not in (None, dataset):
        raise InvalidArgument(
            f"These examples are in the ledger as {found!r}, and were now called {dataset!r}. A second name would give "
            f"them a second budget. Use dataset={found!r}."
        )
    return _name(dataset if found is None else found)


def identify(book: Book, dataset: str | None, fingerprint: str | None) -> str:
    """`named`, and from now on the ledger knows the examples by it."""
    name = named(book, dataset, fingerprint)
    if fingerprint is not None:
        mixed = book.mixed(fingerprint)
        if not any(entry.kind == "data" and entry.content["fingerprint"] == mixed for entry in book.entries):
            book.append("data", name, "", {"fingerprint": mixed})
    return name


def taken_over(run: str, last: Entry) -> OutOfOrder:
    """What a process is told whose run another one has taken over, or settled."""
    how = "was settled" if last.kind == "settle" else "goes on in another process"
    return OutOfOrder(
        f"Run {run} {how} since {last.at} ({last.who}), so this one must release nothing more of it. Its steps are "
        "charged up to here."
    )


def _refuse_other_name(run: str, dataset: str, last: Entry | None) -> None:
    if last is not None and last.dataset != dataset:
        raise InvalidArgument(
            f"Run {run} is charged to {last.dataset!r}, and was now said to be about {dataset!r}. What it has released "
            f"stays with {last.dataset!r}. Use that name, or leave it out."
        )


def _stop(account: Account, course: Course, drawn: list[Range], planned: Range, own: Budget | None) -> int:
    """How far the run may go: to its planned end if that fits, else as far as does."""
    start, end = planned

    def fits(stop: int) -> bool:
        cost = course.cost(added(drawn, (start, stop)))
        return account.allows(cost) and (own is None or not drawn or own.allows(cost))

    return end if start < end and fits(end) else largest(fits, start, end)


def _drawn(book: Book, run: str, last: Entry | None, forgiven_from: int | None) -> tuple[list[Range], int]:
    """What was drawn of a run, by all processes so far; and how many steps of the last, unsettled one are forgiven."""
    if last is None:
        return [], 0
    ranges = [(int(start), int(stop)) for start, stop in last.content["drawn"]]
    if last.kind == "settle":
        return ranges, 0
    live = book.live(run)
    start, planned = last.content["start"], last.content["stop"]
    # Without its mark, a process may have drawn all that it had reserved.
    stop = planned if live is None or live.attempt != last.content["attempt"] else min(max(live.stop, start), planned)
    kept = stop if forgiven_from is None else min(stop, max(forgiven_from, start))
    return added(ranges, (start, kept)), stop - kept


def _content(
    about: Mapping[str, Any] | None, course: Course, event: Event, drawn: Sequence[Range], **more: Any
) -> dict[str, Any]:
    return {
        "about": _plain(about or {}),
        "event": json.loads(event.to_json()),
        "course": course.to_data(),
        "drawn": [list(one) for one in drawn],
        **more,
    }


def _plain(about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(about)))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"about must hold numbers and text, as JSON can. Got {about!r}: {error}.") from error
    if plain != without_fingerprints(plain):
        raise InvalidArgument(
            "about must hold no fingerprint: exports show it, and whoever knows all examples but one could find the "
            "last one by it. Give it as fingerprint=..., and the ledger writes it keyed with its secret."
        )
    return plain


def _check_content(path: Path | str, entry: Entry) -> None:
    """Refuse a row whose seal is right and whose content means nothing: someone wrote it by other means."""
    try:
        if entry.kind in ("reserve", "settle"):
            Course.from_data(entry.content["course"])
        Account.of(entry.dataset, [entry])
    except (InvalidArgument, BadLedger, KeyError, TypeError, ValueError) as error:
        raise BadLedger(f"Entry {entry.number} of {path} means nothing to this tacit: {error}") from error


def _name(dataset: object) -> str:
    # Neither do databases hold a zero character, nor bytes that are no text.
    is_text = isinstance(dataset, str) and "\0" not in dataset and not any("\ud800" <= c <= "\udfff" for c in dataset)
    if not is_text or not isinstance(dataset, str) or not dataset.strip():
        raise InvalidArgument(f"dataset must be a name such as 'adult'. Got {dataset!r}.")
    return dataset


def token() -> str:
    """A name that nothing else has."""
    return secrets.token_hex(6)
