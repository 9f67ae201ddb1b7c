"""Where a ledger is kept: in an SQLite file of its own, or in a PostgreSQL database that a team shares.

In the file, every change is one transaction that begins with the write lock, so two processes never decide on the same
state. A commit returns once it is on the disk. Rows are never changed; only the mark of how far a living process has
drawn is.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from tacit.errors import BadLedger, TacitError
from tacit.ledger.book import VERSION, Book, Entry, Live, new_meta

# "tcit", which tells a ledger from any other database.
_APPLICATION = 0x74636974
_SECONDS_TO_WAIT = 120.0
_ADDRESSES = ("postgresql://", "postgres://", "postgresql+psycopg://")
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


class Marks(Protocol):
    """A connection that stays open, for a process that marks one step after the other."""

    def mark(self, live: Live) -> bool:
        """Note how far this process may draw; False if it is no longer the one that goes on with the run."""

    def close(self) -> None:
        """Give the connection back."""


class Storage(Protocol):
    """A place for one ledger. Whatever goes wrong with it is a `TacitError` that says what and where."""

    @property
    def place(self) -> Path | str:
        """The file, or the address without a password."""

    @property
    def saved_place(self) -> str:
        """Where a run that is resumed in another folder finds it again."""

    def is_there(self) -> bool:
        """Whether there is a ledger, whole or not."""

    def create(self) -> None:
        """Make an empty ledger. Nothing happens if another process was faster."""

    def reading(self) -> AbstractContextManager[Book]:
        """The ledger as it is at one moment."""

    def writing(self) -> AbstractContextManager[Book]:
        """The ledger with its write lock: no other process decides anything until this one is done. All or nothing."""

    def marks(self) -> Marks:
        """A connection for marks, which a forked process must not use."""

    def check(self) -> None:
        """Raise `BadLedger` if what the database itself checks is damaged anywhere."""


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """The storage at a path, or at an address such as postgresql://user@host/database."""
    text = os.fspath(place)
    if not text.startswith(_ADDRESSES):
        return SqliteStorage(Path(text))
    try:
        from tacit.ledger.postgres import PostgresStorage
    except ImportError as error:
        raise TacitError(
            f"A ledger on PostgreSQL needs {error.name}, which is not installed. Install tacit with it: "
            "pip install 'tacit[postgres]'."
        ) from error
    return PostgresStorage.at(text)


@final
@dataclass(frozen=True)
class SqliteStorage:
    """A ledger's file, readable and writable by its owner only."""

    path: Path

    @property
    def place(self) -> Path:
        """The file."""
        return self.path

    @property
    def saved_place(self) -> str:
        """The file, from wherever one looks."""
        return str(self.path.absolute())

    def is_there(self) -> bool:
        """Whether there is a file of this name."""
        return self.path.exists()

    def create(self) -> None:
        """Make an empty ledger. Nothing happens if another process was faster."""
        _create(self.path)

    def reading(self) -> AbstractContextManager[Book]:
        """The ledger as it is at one moment."""
        return _transaction(self.path, "BEGIN")

    def writing(self) -> AbstractContextManager[Book]:
        """The ledger with its write lock: no other process decides anything until this one is done. All or nothing."""
        return _transaction(self.path, "BEGIN IMMEDIATE")

    def marks(self) -> SqliteMarks:
        """A connection for marks. SQLite's locks belong to the process that opened it."""
        return SqliteMarks(self.path, _connect(self.path))

    def check(self) -> None:
        """Refuse a database whose pages are damaged anywhere, used or not."""
        with closing(_connect(self.path)) as connection, _explained(self.path):
            found = connection.execute("PRAGMA quick_check").fetchone()[0]
        if found != "ok":
            raise BadLedger(f"{self.path} is damaged: {found}. Restore it from a copy.")


@final
@dataclass(frozen=True)
class SqliteMarks:
    """An open connection."""

    path: Path
    connection: sqlite3.Connection

    def mark(self, live: Live) -> bool:
        """Note how far this process may draw; False if it is no longer the one that goes on with the run."""
        with _explained(self.path):
            changed = self.connection.execute(
                "UPDATE live SET stop = ?, seal = ? WHERE run = ? AND attempt = ?",
                (live.stop, live.seal(), live.run, live.attempt),
            )
            return changed.rowcount == 1

    def close(self) -> None:
        """Close it."""
        self.connection.close()


@final
@dataclass(frozen=True)
class _SqliteRows:
    """The tables, within one transaction."""

    connection: sqlite3.Connection

    def meta(self) -> dict[str, str]:
        return dict(self.connection.execute("SELECT key, value FROM meta"))

    def entries(self) -> list[Entry]:
        return [Entry(*row) for row in self.connection.execute("SELECT * FROM entries ORDER BY number")]

    def last_number(self) -> int:
        row = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        return 0 if row is None else int(row[0])

    def add(self, entry: Entry) -> None:
        columns = (entry.number, entry.at, entry.who, entry.kind, entry.dataset, entry.run, entry.text, entry.previous)
        self.connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*columns, entry.hash))

    def live(self, run: str) -> tuple[Live, str] | None:
        row = self.connection.execute("SELECT run, attempt, stop, seal FROM live WHERE run = ?", (run,)).fetchone()
        return None if row is None else (Live(*row[:3]), row[3])

    def set_live(self, live: Live) -> None:
        columns = (live.run, live.attempt, live.stop, live.seal())
        self.connection.execute("INSERT OR REPLACE INTO live VALUES (?, ?, ?, ?)", columns)

    def end_live(self, run: str) -> None:
        self.connection.execute("DELETE FROM live WHERE run = ?", (run,))


def _create(path: Path) -> None:
    """An empty ledger, readable and writable by its owner only."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _explained(path):
        try:
            os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileNotFoundError as error:
            raise TacitError(
                f"The ledger {path} cannot be made: there is no folder {path.absolute().parent} to write to. Create it "
                "first, or choose another place."
            ) from error
        try:
            with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION};")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.executemany("INSERT INTO meta VALUES (?, ?)", new_meta().items())
                connection.execute("COMMIT")
            # Under its name, it is whole from the first moment on; and what is there already is not replaced.
            with suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            unfinished.unlink()
        _sync_folder(path.parent)


def _connect(path: Path) -> sqlite3.Connection:
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
def _transaction(path: Path, begin: str) -> Iterator[Book]:
    with closing(_connect(path)) as connection:
        with _explained(path):
            connection.execute(begin)
            book = Book(str(path), _SqliteRows(connection))
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
