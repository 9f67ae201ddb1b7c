"""The ledger's file: an SQLite database to which rows are added, each sealed by a hash of it and of the one before.

Every change is one transaction that begins with the write lock, so two processes never decide on the same state. A
commit returns once it is on the disk. Rows are never changed; only the mark of how far a living process has drawn is.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import json
import os
import secrets
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

from tacit.errors import BadLedger, TacitError

VERSION = 1
Kind = Literal["data", "budget", "reserve", "settle"]

# "tcit", which tells a ledger from any other database.
_APPLICATION = 0x74636974
_SECONDS_TO_WAIT = 120.0
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL, who TEXT NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL, run TEXT NOT NULL,
    content TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE live (run TEXT PRIMARY KEY, attempt TEXT NOT NULL, stop INTEGER NOT NULL, seal TEXT NOT NULL);
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never changed'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'an entry is never removed'); END;
"""


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
        """What the row says, beside what its columns do."""
        values: dict[str, Any] = json.loads(self.text)
        return values

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


@final
class Book:
    """A ledger's rows within one transaction. Reading them checks every seal."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._meta = dict(connection.execute("SELECT key, value FROM meta"))
        if self._meta.keys() != {"identity", "secret"}:
            raise BadLedger(f"{path} is damaged: it has lost its name. Restore it from a copy.")
        self.entries = [Entry(*row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]
        _refuse_broken(path, self.origin, self.entries, _last_number(connection))

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
        return self.entries[-1].hash if self.entries else self.origin

    def mixed(self, fingerprint: str) -> str:
        """The fingerprint, mixed with the ledger's secret: it says nothing to whoever does not have both."""
        return hmac.new(str(self._meta["secret"]).encode(), fingerprint.encode(), "sha256").hexdigest()

    def last_of(self, run: str) -> Entry | None:
        """The newest row of a run."""
        return next((entry for entry in reversed(self.entries) if entry.run == run), None)

    def append(self, kind: Kind, dataset: str, run: str, content: dict[str, Any]) -> Entry:
        """Add a row."""
        at, who, text = datetime.now(UTC).isoformat(timespec="seconds"), _who(), json.dumps(content)
        number = self.entries[-1].number + 1 if self.entries else 1
        columns = (number, at, who, kind, dataset, run, text, self.head)
        entry = Entry(*columns, hash=_hash(*columns))
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, entry.hash))
        self.entries.append(entry)
        return entry

    def live(self, run: str) -> Live | None:
        """The mark of the process that goes on with a run, if one does."""
        row = self._connection.execute("SELECT run, attempt, stop, seal FROM live WHERE run = ?", (run,)).fetchone()
        if row is None:
            return None
        live = Live(*row[:3])
        if live.seal() != row[3]:
            raise BadLedger(
                f"{self.path} is damaged: how far run {run} has drawn cannot be read. Restore the ledger from a copy."
            )
        return live

    def set_live(self, live: Live) -> None:
        """Let this process, and no other, go on with the run."""
        self._connection.execute(
            "INSERT OR REPLACE INTO live VALUES (?, ?, ?, ?)", (live.run, live.attempt, live.stop, live.seal())
        )

    def end_live(self, run: str) -> None:
        """Let no process go on with the run."""
        self._connection.execute("DELETE FROM live WHERE run = ?", (run,))


def create(path: Path) -> None:
    """An empty ledger, readable and writable by its owner only. Nothing happens if another process was faster."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _explained(path):
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION};")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                meta = [("identity", secrets.token_hex(16)), ("secret", secrets.token_hex(32))]
                connection.executemany("INSERT INTO meta VALUES (?, ?)", meta)
                connection.execute("COMMIT")
            # Under its name, it is whole from the first moment on; and what is there already is not replaced.
            with suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            unfinished.unlink()
        _sync_folder(path.parent)


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a ledger; `BadLedger` for what is none, or one of a newer tacit."""
    with _explained(path):
        if not path.stat().st_size:
            raise BadLedger(f"{path} is empty: it is no ledger, or it has lost what it held. Restore it from a copy.")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=_SECONDS_TO_WAIT,
            check_same_thread=False,
        )
    try:
        with _explained(path):
            connection.execute("PRAGMA synchronous = FULL")
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise BadLedger(f"{path} is a database, but no ledger. Choose another file.")
        if version != VERSION:
            raise BadLedger(f"{path} has version {version}; this tacit reads version {VERSION}. Use a newer tacit.")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def reading(path: Path) -> Iterator[Book]:
    """The ledger as it is at one moment."""
    with _transaction(path, "BEGIN") as book:
        yield book


@contextmanager
def writing(path: Path) -> Iterator[Book]:
    """The ledger with its write lock: no other process decides anything until this one is done. All or nothing."""
    with _transaction(path, "BEGIN IMMEDIATE") as book:
        yield book


@contextmanager
def _transaction(path: Path, begin: str) -> Iterator[Book]:
    with closing(connect(path)) as connection:
        with _explained(path):
            connection.execute(begin)
            book = Book(path, connection)
        try:
            yield book
        except sqlite3.Error as error:
            connection.rollback()
            raise _sentence(path, error) from error
        except BaseException:
            connection.rollback()
            raise
        with _explained(path):
            connection.execute("COMMIT")
            # What was decided goes into the file itself at once, should someone move it without its log.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def mark(path: Path, connection: sqlite3.Connection, live: Live) -> bool:
    """Note how far this process may draw; False if it is no longer the one that goes on with the run."""
    with _explained(path):
        changed = connection.execute(
            "UPDATE live SET stop = ?, seal = ? WHERE run = ? AND attempt = ?",
            (live.stop, live.seal(), live.run, live.attempt),
        )
        return changed.rowcount == 1


def check_pages(path: Path) -> None:
    """Refuse a database whose pages are damaged anywhere, used or not."""
    with closing(connect(path)) as connection, _explained(path):
        found = connection.execute("PRAGMA quick_check").fetchone()[0]
    if found != "ok":
        raise BadLedger(f"{path} is damaged: {found}. Restore it from a copy.")


def _refuse_broken(path: Path, origin: str, entries: list[Entry], last: int) -> None:
    previous = origin
    for number, entry in enumerate(entries, start=1):
        if entry.number != number:
            raise BadLedger(_tampered(path, number, "is missing"))
        if entry.previous != previous or entry.seal() != entry.hash:
            raise BadLedger(_tampered(path, number, "is not as it was written"))
        previous = entry.hash
    if last > len(entries):
        raise BadLedger(_tampered(path, len(entries) + 1, "is missing"))


def _tampered(path: Path, number: int, what: str) -> str:
    return (
        f"Entry {number} of {path} {what}, so the ledger may say less than was released. Restore it from a copy that "
        f"`tacit ledger verify` finds whole."
    )


def _last_number(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
    return 0 if row is None else int(row[0])


def _hash(*values: object) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _who() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # A user without a name, as containers have them.
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What SQLite or the system says, as a sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadLedger(f"There is no ledger {path}. Create one by `tacit ledger budget`, or Ledger(path).") from error
    except OSError as error:
        raise TacitError(f"The ledger {path} cannot be used: {error.strerror or error}.") from error
    except sqlite3.Error as error:
        raise _sentence(path, error) from error
    except (TypeError, ValueError) as error:
        # A column that holds no text any more.
        raise BadLedger(f"{path} is damaged: {error}. Restore it from a copy.") from error


def _sentence(path: Path, error: sqlite3.Error) -> TacitError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TacitError(
            f"Other processes have kept the ledger {path} to themselves for {_SECONDS_TO_WAIT:g} seconds. Try again."
        )
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return TacitError(
            f"The ledger {path} cannot be written: {error}. Nothing may be released before it can. Make room, or see "
            "to it that you may write the file and its folder."
        )
    return BadLedger(f"{path} is not a ledger, or is damaged: {error}. Restore it from a copy.")
