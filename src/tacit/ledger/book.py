"""The rows of a ledger, each sealed by a hash of itself and of the row before.

A fingerprint of data is keyed with the ledger's own secret before it is written (`tacit.randomness.fingerprint`).
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Literal, final

from tacit.errors import BadLedger

VERSION = 1
Kind = Literal["data", "table", "budget", "reserve", "settle"]


@dataclass(frozen=True)
class Entry:
    """One row: a decision, by whom and when."""

    number: int
    at: str
    who: str
    kind: Kind
    dataset: str
    run: str
    text: str = field(repr=False)
    previous: str = field(repr=False)
    hash: str = field(repr=False)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content beside the columns, without a fingerprint that an old version wrote unkeyed."""
        values: dict[str, Any] = json.loads(self.text)
        return drop_fingerprints(values) if self.is_unkeyed else values

    @property
    def is_unkeyed(self) -> bool:
        """Whether an old version wrote a fingerprint into the row without the ledger's secret."""
        if self.kind == "data" or '"fingerprint"' not in self.text:
            return False
        try:
            values = json.loads(self.text)
        except ValueError:
            # Damaged text cannot be shown either.
            return False
        return bool(values != drop_fingerprints(values))

    def seal(self) -> str:
        """The hash that the row must have."""
        return _hash(self.number, self.at, self.who, self.kind, self.dataset, self.run, self.text, self.previous)


@dataclass(frozen=True)
class Live:
    """How far the process that currently owns a run may have drawn."""

    run: str
    attempt: str
    stop: int

    def seal(self) -> str:
        """A checksum against damage."""
        return _hash(self.run, self.attempt, self.stop)


class LedgerTables(ABC):
    """The tables of a ledger within one transaction, in SQL that SQLite and PostgreSQL share."""

    # What their names begin with.
    prefix: ClassVar[str] = ""

    @abstractmethod
    def execute(self, statement: str, *values: object) -> Any:
        """The result of a statement, in which ? stands for each value."""

    @abstractmethod
    def meta(self) -> dict[str, str]:
        """The ledger's own name and its secret."""

    @abstractmethod
    def last_number(self) -> int:
        """The number of the newest row ever added, even if the row is gone."""

    def entries(self) -> list[Entry]:
        """All rows, oldest first."""
        return [Entry(*row) for row in self.execute(f"SELECT * FROM {self.prefix}entries ORDER BY number")]

    def add(self, entry: Entry) -> None:
        """Add a row."""
        columns = astuple(entry)
        self.execute(f"INSERT INTO {self.prefix}entries VALUES ({', '.join('?' * len(columns))})", *columns)

    def live(self, run: str) -> tuple[Live, str] | None:
        """The mark of a run and its seal, if there is one."""
        found = self.execute(f"SELECT run, attempt, stop, seal FROM {self.prefix}live WHERE run = ?", run).fetchone()
        return None if found is None else (Live(*found[:3]), found[3])

    def set_live(self, live: Live) -> None:
        """Let this process, and no other, continue the run: write its mark in place of the one before."""
        self.execute(
            f"INSERT INTO {self.prefix}live VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE "
            "SET attempt = excluded.attempt, stop = excluded.stop, seal = excluded.seal",
            *astuple(live),
            live.seal(),
        )

    def move_live(self, live: Live) -> bool:
        """Record how far this process may draw; False if another process owns the run now."""
        statement = f"UPDATE {self.prefix}live SET stop = ?, seal = ? WHERE run = ? AND attempt = ?"
        changed = self.execute(statement, live.stop, live.seal(), live.run, live.attempt)
        return bool(changed.rowcount == 1)

    def end_live(self, run: str) -> None:
        """Let no process continue the run: remove its mark."""
        self.execute(f"DELETE FROM {self.prefix}live WHERE run = ?", run)


@final
class Book:
    """A ledger's rows within one transaction. Reading them checks every seal."""

    def __init__(self, place: str, tables: LedgerTables) -> None:
        self.place, self.tables = place, tables
        self._meta = tables.meta()
        if self._meta.keys() != {"identity", "secret"}:
            raise BadLedger(f"{place} is damaged: its identity is missing. Restore it from a copy.")
        self.entries = tables.entries()
        previous, last = self.origin, tables.last_number()
        for number, entry in enumerate(self.entries, start=1):
            if entry.number != number:
                raise BadLedger(_describe_damage(place, number, "is missing"))
            if entry.previous != previous or entry.seal() != entry.hash:
                raise BadLedger(_describe_damage(place, number, "was changed"))
            previous = entry.hash
        if last > len(self.entries):
            raise BadLedger(_describe_damage(place, len(self.entries) + 1, "is missing"))
        # Seals from this row on depend on an unkeyed fingerprint.
        self.keyed_from = next((entry.number for entry in self.entries if entry.is_unkeyed), None)

    @property
    def identity(self) -> str:
        """The ledger's identity, which a copy shares."""
        return str(self._meta["identity"])

    @property
    def origin(self) -> str:
        """The seal before the first row."""
        return _hash(self._meta["identity"], self._meta["secret"])

    def key_fingerprint(self, fingerprint: str) -> str:
        """Key a fingerprint with the ledger's secret: it tells nothing without both."""
        return hmac.new(str(self._meta["secret"]).encode(), fingerprint.encode(), "sha256").hexdigest()

    def public_seal(self, number: int) -> str:
        """The seal of a row as it may leave the ledger; 0 stands for the seal before the first row.

        The seal of a row with an unkeyed fingerprint, and every later one, would confirm a guess of the examples, so
        they leave the ledger keyed.
        """
        seal = self._seal(number)
        return seal if self.keyed_from is None or number < self.keyed_from else self.key_fingerprint(f"seal {seal}")

    def holds(self, number: int, seal: str) -> bool:
        """Whether the row of this number exists with this seal, keyed or not."""
        return number <= len(self.entries) and seal in (self._seal(number), self.public_seal(number))

    def _seal(self, number: int) -> str:
        return self.entries[number - 1].hash if number else self.origin

    def last_of(self, run: str) -> Entry | None:
        """The newest row of a run."""
        return next((entry for entry in reversed(self.entries) if entry.run == run), None)

    def append(self, kind: Kind, dataset: str, run: str, content: dict[str, Any]) -> Entry:
        """Add a row."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            # A user without a name, as in some containers.
            user = f"user {os.getuid()}"
        at, who = datetime.now(UTC).isoformat(timespec="seconds"), f"{user}@{socket.gethostname()}"
        number = self.entries[-1].number + 1 if self.entries else 1
        columns = (number, at, who, kind, dataset, run, json.dumps(content), self._seal(len(self.entries)))
        entry = Entry(*columns, hash=_hash(*columns))
        self.tables.add(entry)
        self.entries.append(entry)
        return entry

    def live(self, run: str) -> Live | None:
        """The mark of the process that owns a run, if there is one."""
        found = self.tables.live(run)
        if found is None:
            return None
        live, seal = found
        if live.seal() != seal:
            raise BadLedger(
                f"{self.place} is damaged: the mark of run {run} cannot be read. Restore the ledger from a copy."
            )
        return live


def drop_fingerprints(value: Any) -> Any:
    """The value without any entry named `fingerprint`."""
    if isinstance(value, dict):
        return {name: drop_fingerprints(each) for name, each in value.items() if name != "fingerprint"}
    return [drop_fingerprints(each) for each in value] if isinstance(value, list) else value


def new_meta() -> dict[str, str]:
    """An identity and a secret for a new ledger."""
    return {"identity": secrets.token_hex(16), "secret": secrets.token_hex(32)}


def _describe_damage(place: str, number: int, what: str) -> str:
    return (
        f"Entry {number} of {place} {what}, so the ledger may state less than was released. Restore it from a copy "
        "that passes `tacit ledger verify`."
    )


def _hash(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
