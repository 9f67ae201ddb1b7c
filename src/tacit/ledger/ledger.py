"""The ledger: everything ever released from each data set, and what may still be released."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from tacit.accounting.events import Adjacency, Event
from tacit.budget import Budget, Terms
from tacit.errors import BadLedger, InvalidArgument, OutOfOrder
from tacit.ledger.account import UNIT, Account, find_largest
from tacit.ledger.book import VERSION, Book, Entry, Live, drop_fingerprints
from tacit.ledger.course import Course, Range, add_range, merge_ranges
from tacit.ledger.likeness import Similar, Traits, find_similar, key_traits
from tacit.ledger.storage import Storage, storage_at

_EVENT = "an event such as Gaussian(multiplier=1.1).sampled(0.01) * 1000"


@dataclass(frozen=True)
class ReservedSteps:
    """The steps of a run that a process may draw, `start` to `stop`; `drawn` lists what earlier processes drew.

    `entry` and `seal` identify the row that reserves them.
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
    """Everything that was released from some data sets. A missing ledger is created.

    `path` is a file, or the address of a PostgreSQL database that a team shares: postgresql://user@host/database.

    A process **reserves** a release first and **settles** the actual cost afterwards. If it is killed in between, the
    reservation stays, so the ledger never states less than was released. Two processes cannot reserve the same
    remainder. `PrivateRun(..., ledger=ledger, dataset="adult")` does all of this.

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
        if not storage.exists():
            storage.create()
        with storage.read():
            # Reading checks every seal: a damaged ledger is refused here.
            pass

    @property
    def identity(self) -> str:
        """The identity given at creation; a copy has the same."""
        with self.storage.read() as book:
            return book.identity

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets in the order of their first entries."""
        return tuple(dict.fromkeys(entry.dataset for entry in self.entries()))

    def entries(self) -> tuple[Entry, ...]:
        """All rows, oldest first."""
        with self.storage.read() as book:
            return tuple(book.entries)

    def account(self, dataset: str) -> Account:
        """The account of a data set; an unknown one has spent nothing."""
        return Account.of(dataset, self.entries())

    def set_budget(
        self,
        dataset: str,
        budget: Budget,
        *,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        adaptive: bool = False,
        like: Event | None = None,
    ) -> Budget | None:
        """From now on, refuse releases that would exceed this budget. Returns the budget before, if there was one.

        `adaptive=True` uses a Rényi filter, so that settings of a run may depend on earlier releases; the filter is
        tuned for runs `like` the one given. The newest budget counts; earlier ones stay on record.
        """
        terms = Terms.adaptive(budget, adjacency, like) if adaptive else Terms(budget, adjacency)
        content = {**asdict(budget), "adjacency": adjacency.value, "order": terms.order}
        with self.storage.write() as book:
            before = Account.of(_check_name(dataset), book.entries).terms
            book.append("budget", dataset, "", content)
        return None if before is None else before.budget

    def recognise(self, dataset: str, traits: Traits) -> list[Similar]:
        """Data sets with charges that look like this table, if it has none; the table's traits are stored, keyed.

        The answer depends on private rows: it is for their owner only.
        """
        with self.storage.write() as book:
            found = key_traits(book, traits)
            mine = [entry for entry in book.entries if entry.dataset == dataset]
            is_new = not any(entry.kind in ("reserve", "settle") for entry in mine)
            similar = find_similar(book, dataset, found) if is_new else []
            if not any(entry.kind == "table" and entry.content == found for entry in mine):
                book.append("table", _check_name(dataset), "", found)
        return similar

    def spend(
        self,
        dataset: str,
        event: Event,
        *,
        about: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        is_released: bool = False,
    ) -> str:
        """Charge a single release; call it before the release. Returns the name of its record.

        Raises `BudgetExceeded`, and charges nothing, if it does not fit. `is_released=True` charges a release that has
        already happened, whether it fits or not. `about` appears in exports, so it must hold nothing private. A
        `fingerprint` of the examples is stored only keyed with the ledger's secret.
        """
        if not isinstance(event, Event):
            raise InvalidArgument(f"event must be {_EVENT}. Got {event!r}.")
        run, course = new_token(), Course.of(event)
        with self.storage.write() as book:
            dataset = record_name(book, dataset, fingerprint)
            _refuse_other_unit(book, dataset, about)
            account = Account.of(dataset, book.entries)
            is_allowed = is_released or account.allows(event)
            if is_allowed:
                content = _row_content(about, course, event, drawn=[(0, course.steps)])
                book.append("settle", dataset, run, content)
        if not is_allowed:
            # Finding what would fit takes time: not while others wait for the lock.
            raise account.refusal(course)
        return run

    def check(
        self,
        dataset: str | None,
        course: Course,
        fingerprint: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> str:
        """The name of the data set; `BudgetExceeded` if the whole course does not fit now. Reserves nothing."""
        with self.storage.read() as book:
            name = find_name(book, dataset, fingerprint)
            _refuse_other_unit(book, name, about)
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
    ) -> ReservedSteps:
        """Let this process, and no other, continue the run from step `start` to `stop`, and charge those steps.

        A new run must fit as a whole. A run that is resumed is shortened to what still fits, also into `own`, its own
        budget, because steps lost in a crash stay charged. `drawn` lists steps known from elsewhere: from before the
        run used this ledger, or from notes that the ledger lost when it was moved without its log.
        `nothing_left=True` declares that nothing the previous process drew from `start` on left that process.
        """
        with self.storage.write() as book:
            dataset = record_name(book, dataset, fingerprint)
            _refuse_other_unit(book, dataset, about)
            last = book.last_of(run)
            if last is not None and last.dataset != dataset:
                raise InvalidArgument(
                    f"Run {run} is charged to {last.dataset!r}, not to {dataset!r}, and its releases stay there. Use "
                    f"dataset={last.dataset!r}, or leave it out."
                )
            course = course if last is None else Course.from_data(last.content["course"])
            planned = course.steps if stop is None else stop
            before, forgiven = _drawn_ranges(book, run, last, start if nothing_left else None)
            ranges = merge_ranges(before, drawn)
            account = Account.of(dataset, book.entries).without(run)

            def fits(stop: int) -> bool:
                cost = course.cost(add_range(ranges, (start, stop)))
                return account.allows(cost) and (own is None or not ranges or own.allows(cost))

            stop = planned if start < planned and fits(planned) else find_largest(fits, start, planned)
            is_allowed = stop == planned or bool(ranges)
            if is_allowed:
                event, attempt = course.cost(add_range(ranges, (start, stop))), new_token()
                content = _row_content(about, course, event, ranges, start=start, stop=stop, attempt=attempt)
                entry = book.append("reserve", dataset, run, {**content, "forgiven": forgiven})
                book.tables.set_live(Live(run, attempt, start))
        if not is_allowed:
            raise account.refusal(course)
        seal = book.public_seal(entry.number)
        return ReservedSteps(dataset, run, attempt, start, stop, tuple(ranges), forgiven, entry.number, seal)

    def settle(self, run: str, attempt: str | None = None) -> Event:
        """Charge the run for exactly what was drawn, and stop any process that still owns it. Returns the cost.

        With `attempt`, only if that process owns the run.
        """
        with self.storage.write() as book:
            last = book.last_of(run)
            if last is None:
                raise InvalidArgument(f"The ledger {self.path} has no run {run!r}. `tacit ledger show` lists its runs.")
            account = Account.of(last.dataset, book.entries)
            charged = next(charge.event for charge in account.charges if charge.run == run)
            if last.kind == "settle":
                return charged
            if attempt is not None and attempt != last.content["attempt"]:
                raise takeover_error(run, last)
            (ranges, _), course = _drawn_ranges(book, run, last, None), Course.from_data(last.content["course"])
            event = course.cost(ranges)
            book.append("settle", last.dataset, run, _row_content(last.content["about"], course, event, ranges))
            book.tables.end_live(run)
            return event

    def verify(self, head: str | None = None) -> str:
        """Check the whole file and return the newest seal; `BadLedger` names the first bad row.

        A seal noted earlier and given as `head` must still be in the chain: someone who can write the file can forge a
        chain, but not one with the same seal.
        """
        self.storage.check()
        with self.storage.read() as book:
            for entry in book.entries:
                # A correct seal and unreadable content: other software wrote the row.
                try:
                    if entry.kind in ("reserve", "settle"):
                        Course.from_data(entry.content["course"])
                    Account.of(entry.dataset, [entry])
                except (InvalidArgument, BadLedger, KeyError, TypeError, ValueError) as error:
                    raise BadLedger(
                        f"Entry {entry.number} of {self.path} cannot be read by this version of tacit: {error}"
                    ) from error
            is_known = head is None or any(book.holds(number, head) for number in range(len(book.entries) + 1))
            if not is_known:
                raise BadLedger(
                    f"{self.path} has no entry with the seal {head}: it was rewritten, or is another ledger."
                )
            return book.public_seal(len(book.entries))

    def holds(self, entry: int, seal: str) -> bool:
        """Whether a row written earlier still exists."""
        with self.storage.read() as book:
            return book.holds(entry, seal)

    def export(self) -> dict[str, Any]:
        """All rows as JSON values, without the secret that keys fingerprints.

        Unkeyed fingerprints of old versions are left out, and seals from row `keyed_from` on are keyed; None if there
        is no such row.
        """
        with self.storage.read() as book:
            rows = [
                {
                    **{
                        name: getattr(entry, name)
                        for name in ("number", "at", "who", "kind", "dataset", "run", "content")
                    },
                    "previous": book.public_seal(entry.number - 1),
                    "hash": book.public_seal(entry.number),
                }
                for entry in book.entries
            ]
            return {
                "version": VERSION,
                "identity": book.identity,
                "head": book.public_seal(len(rows)),
                "keyed_from": book.keyed_from,
                "entries": rows,
            }


def find_name(book: Book, dataset: str | None, fingerprint: str | None) -> str:
    """The name of the data set. A second name for the same examples, which would give a second budget, is refused."""
    known = {entry.content["fingerprint"]: entry.dataset for entry in book.entries if entry.kind == "data"}
    found = None if fingerprint is None else known.get(book.key_fingerprint(fingerprint))
    if dataset is None and found is None:
        raise InvalidArgument(
            f"The ledger {book.place} does not know these examples. Name their data set: dataset='adult'."
        )
    if dataset is not None and found not in (None, dataset):
        raise InvalidArgument(
            f"These examples are in the ledger as {found!r}, not as {dataset!r}. A second name would give them a "
            f"second budget. Use dataset={found!r} (--dataset {found})."
        )
    return _check_name(dataset if found is None else found)


def record_name(book: Book, dataset: str | None, fingerprint: str | None) -> str:
    """The name of the data set, recorded with the fingerprint of the examples."""
    name = find_name(book, dataset, fingerprint)
    if fingerprint is not None:
        mixed = book.key_fingerprint(fingerprint)
        if not any(entry.kind == "data" and entry.content["fingerprint"] == mixed for entry in book.entries):
            book.append("data", name, "", {"fingerprint": mixed})
    return name


def _refuse_other_unit(book: Book, dataset: str, about: Mapping[str, Any] | None) -> None:
    """Refuse to add what a person's privacy cost to what that of an example cost: neither covers the other.

    A person who loses one of several rows is replaced, which costs more than adding or removing an example.
    """
    unit = (about or {}).get("unit", UNIT)
    for entry in book.entries:
        known = (
            entry.content["about"].get("unit", UNIT) if entry.dataset == dataset and "about" in entry.content else unit
        )
        if known != unit:
            raise InvalidArgument(
                f"Releases of {dataset!r} are charged for one {known}, and this one is about one {unit}: their costs "
                f"cannot be added up. Give the data set another name for releases about one {unit}."
            )


def takeover_error(run: str, last: Entry) -> OutOfOrder:
    """The error for a process whose run another process has taken over or settled."""
    how = "was settled" if last.kind == "settle" else "continues in another process"
    return OutOfOrder(
        f"Run {run} {how} since {last.at} ({last.who}), so this process must release nothing more of it. Its "
        "steps so far are charged."
    )


def _drawn_ranges(book: Book, run: str, last: Entry | None, forgiven_from: int | None) -> tuple[list[Range], int]:
    """The steps that all processes drew so far, and how many lost steps of the last one are not charged."""
    if last is None:
        return [], 0
    ranges = [(int(start), int(stop)) for start, stop in last.content["drawn"]]
    if last.kind == "settle":
        return ranges, 0
    live = book.live(run)
    start, planned = last.content["start"], last.content["stop"]
    # Without its mark, a process may have drawn everything that it reserved.
    stop = planned if live is None or live.attempt != last.content["attempt"] else min(max(live.stop, start), planned)
    kept = stop if forgiven_from is None else min(stop, max(forgiven_from, start))
    return add_range(ranges, (start, kept)), stop - kept


def _row_content(
    about: Mapping[str, Any] | None, course: Course, event: Event, drawn: Sequence[Range], **more: Any
) -> dict[str, Any]:
    return {
        "about": _check_about(about or {}),
        "event": json.loads(event.to_json()),
        "course": course.to_data(),
        "drawn": [list(one) for one in drawn],
        **more,
    }


def _check_about(about: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(about)))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"about must hold values that JSON can store. Got {about!r}: {error}.") from error
    if plain != drop_fingerprints(plain):
        raise InvalidArgument(
            "about must not hold a fingerprint: exports show it, and with it someone who knows all examples but one "
            "can find the last one. Pass it as fingerprint=..., which the ledger stores keyed with its secret."
        )
    return plain


def _check_name(dataset: object) -> str:
    # Databases store neither the zero character nor surrogates.
    is_text = isinstance(dataset, str) and "\0" not in dataset and not any("\ud800" <= c <= "\udfff" for c in dataset)
    if not is_text or not isinstance(dataset, str) or not dataset.strip():
        raise InvalidArgument(f"dataset must be a name such as 'adult'. Got {dataset!r}.")
    return dataset


def new_token() -> str:
    """A random name."""
    return secrets.token_hex(6)
