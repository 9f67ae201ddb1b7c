"""A ledger's rows, each sealed by a hash of it and of the one before, wherever they are kept."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Protocol, final

import numpy as np

from tacit.errors import BadLedger, InvalidArgument

VERSION = 1
Kind = Literal["data", "budget", "reserve", "settle"]


@dataclass(frozen=True)
class Entry:
    """One row: what was decided, by whom and when."""

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
        """What the row says, beside what its columns do; without a fingerprint that an old tacit left unkeyed."""
        values: dict[str, Any] = json.loads(self.text)
        shown: dict[str, Any] = without_fingerprints(values) if self.is_unkeyed else values
        return shown

    @property
    def is_unkeyed(self) -> bool:
        """Whether an old tacit has written a fingerprint into the row without the ledger's secret."""
        if self.kind == "data" or '"fingerprint"' not in self.text:
            return False
        try:
            values = json.loads(self.text)
        except ValueError:
            # Nothing of it can be shown either.
            return False
        return bool(values != without_fingerprints(values))

    def seal(self) -> str:
        """The hash that the row must have."""
        return _hash(self.number, self.at, self.who, self.kind, self.dataset, self.run, self.text, self.previous)


@dataclass(frozen=True)
class Live:
    """How far the process that goes on with a run may have drawn."""

    run: str
    attempt: str
    stop: int

    def seal(self) -> str:
        """A checksum against damage."""
        return _hash(self.run, self.attempt, self.stop)


class Rows(Protocol):
    """What a database holds of a ledger, within one transaction."""

    def meta(self) -> dict[str, str]:
        """The ledger's own name and its secret."""

    def entries(self) -> list[Entry]:
        """All rows, oldest first."""

    def last_number(self) -> int:
        """The number of the newest row that was ever added, also if it is gone."""

    def add(self, entry: Entry) -> None:
        """Add a row."""

    def live(self, run: str) -> tuple[Live, str] | None:
        """The mark of a run and its seal, if there is one."""

    def set_live(self, live: Live) -> None:
        """Write the mark of a run, in place of the one before."""

    def end_live(self, run: str) -> None:
        """Remove the mark of a run."""


@final
class Book:
    """A ledger's rows within one transaction. Reading them checks every seal."""

    def __init__(self, place: str, rows: Rows) -> None:
        self.place, self._rows = place, rows
        self._meta = rows.meta()
        if self._meta.keys() != {"identity", "secret"}:
            raise BadLedger(f"{place} is damaged: it has lost its name. Restore it from a copy.")
        self.entries = rows.entries()
        _refuse_broken(place, self.origin, self.entries, rows.last_number())
        # From this row on, seals are hashes of an unkeyed fingerprint among other things.
        self.keyed_from = next((entry.number for entry in self.entries if entry.is_unkeyed), None)

    @property
    def identity(self) -> str:
        """The ledger's own name, which a copy shares."""
        return str(self._meta["identity"])

    @property
    def origin(self) -> str:
        """What the first row's seal follows on."""
        return _hash(self._meta["identity"], self._meta["secret"])

    @property
    def head(self) -> str:
        """The newest seal: it vouches for all rows."""
        return self._seal(len(self.entries))

    def mixed(self, fingerprint: str) -> str:
        """The fingerprint, keyed with the ledger's secret: it says nothing to whoever does not have both."""
        return hmac.new(str(self._meta["secret"]).encode(), fingerprint.encode(), "sha256").hexdigest()

    def public_seal(self, number: int) -> str:
        """The seal of a row, or what the first row's follows on for 0, as it may leave the ledger.

        The seal of a row with an unkeyed fingerprint, and all that follow, would show whether a guess of the examples
        is right. They leave the ledger keyed.
        """
        seal = self._seal(number)
        return seal if self.keyed_from is None or number < self.keyed_from else self.mixed(f"seal {seal}")

    def holds(self, number: int, seal: str) -> bool:
        """Whether the row of this number is there with this seal, keyed or not."""
        return number <= len(self.entries) and seal in (self._seal(number), self.public_seal(number))

    def _seal(self, number: int) -> str:
        return self.entries[number - 1].hash if number else self.origin

    def last_of(self, run: str) -> Entry | None:
        """The newest row of a run."""
        return next((entry for entry in reversed(self.entries) if entry.run == run), None)

    def append(self, kind: Kind, dataset: str, run: str, content: dict[str, Any]) -> Entry:
        """Add a row."""
        at, who, text = datetime.now(UTC).isoformat(timespec="seconds"), _who(), json.dumps(content)
        number = self.entries[-1].number + 1 if self.entries else 1
        columns = (number, at, who, kind, dataset, run, text, self.head)
        entry = Entry(*columns, hash=_hash(*columns))
        self._rows.add(entry)
        self.entries.append(entry)
        return entry

    def live(self, run: str) -> Live | None:
        """The mark of the process that goes on with a run, if one does."""
        found = self._rows.live(run)
        if found is None:
            return None
        live, seal = found
        if live.seal() != seal:
            raise BadLedger(
                f"{self.place} is damaged: how far run {run} has drawn cannot be read. Restore the ledger from a copy."
            )
        return live

    def set_live(self, live: Live) -> None:
        """Let this process, and no other, go on with the run."""
        self._rows.set_live(live)

    def end_live(self, run: str) -> None:
        """Let no process go on with the run."""
        self._rows.end_live(run)


def without_fingerprints(value: Any) -> Any:
    """What is said about a release, without whatever is called a fingerprint in it."""
    if isinstance(value, dict):
        return {name: without_fingerprints(each) for name, each in value.items() if name != "fingerprint"}
    return [without_fingerprints(each) for each in value] if isinstance(value, list) else value


def new_meta() -> dict[str, str]:
    """A name and a secret for a ledger that is being made."""
    return {"identity": secrets.token_hex(16), "secret": secrets.token_hex(32)}


def _refuse_broken(place: str, origin: str, entries: list[Entry], last: int) -> None:
    previous = origin
    for number, entry in enumerate(entries, start=1):
        if entry.number != number:
            raise BadLedger(_tampered(place, number, "is missing"))
        if entry.previous != previous or entry.seal() != entry.hash:
            raise BadLedger(_tampered(place, number, "is not as it was written"))
        previous = entry.hash
    if last > len(entries):
        raise BadLedger(_tampered(place, len(entries) + 1, "is missing"))


def _tampered(place: str, number: int, what: str) -> str:
    return (
        f"Entry {number} of {place} {what}, so the ledger may say less than was released. Restore it from a copy that "
        f"`tacit ledger verify` finds whole."
    )


def _hash(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A user without a name, as containers have them.
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def fingerprint(*arrays: Any) -> str:
    """A SHA-256 of the arrays' types, shapes and contents.

    It is a function of private data: whoever has it can tell whether a guess of *all* the data is right. Never write it
    down: `Ledger.spend(..., fingerprint=...)` keys it first, and `salted_fingerprint` is the one for other files.

    >>> fingerprint(np.zeros(3)) == fingerprint(np.zeros(3)), fingerprint(np.zeros(3)) == fingerprint(np.zeros((3, 1)))
    (True, False)
    """
    digest = hashlib.sha256()
    for each in arrays:
        array = np.asarray(each)
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"An array of Python objects ({array.dtype}) has no fingerprint. Turn its columns into numbers or "
                "text of fixed length first."
            )
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def salted_fingerprint(salt: str, *arrays: Any) -> str:
    """The fingerprint of the arrays behind a secret `salt` of hexadecimal digits: it commits, and tells nothing."""
    return fingerprint(np.frombuffer(bytes.fromhex(salt), np.uint8), *arrays)


def new_salt() -> str:
    """A secret of 128 bits, also for a run with a seed: whoever reads about such a run may know the seed."""
    return secrets.token_hex(16)


def is_secret_salt(salt: str | None, seed: int | None) -> bool:
    """Whether nobody else knows the salt of a run: there is one, and it was not made from the seed, as it once was."""
    return salt is not None and (seed is None or salt != _salt_of_seed(seed))


def _salt_of_seed(seed: int) -> str:
    return hashlib.sha256(f"salt {seed}".encode()).hexdigest()[:32]
