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

from tacit._files import sync_folder
from tacit.errors import BadLedger, TacitError
from tacit.ledger.book import VERSION, Book, LedgerTables, Live, new_meta

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
    """An open connection, for a process that marks one step after another."""

    def mark(self, live: Live) -> bool:
        """Record how far this process may draw; False if another process owns the run now."""

    def close(self) -> None:
        """Close the connection."""


class Storage(Protocol):
    """Where one ledger is stored. Every failure is a `TacitError` that names the problem and the place."""

    @property
    def place(self) -> Path | str:
        """The file, or the address without a password."""

    @property
    def saved_place(self) -> str:
        """The place, valid also from another working directory."""

    def exists(self) -> bool:
        """Whether there is a ledger, intact or not."""

    def create(self) -> None:
        """Create an empty ledger, unless another process already did."""

    def read(self) -> AbstractContextManager[Book]:
        """A consistent view of the ledger."""

    def write(self) -> AbstractContextManager[Book]:
        """The ledger under its write lock, as one transaction: all of it is written, or nothing."""

    def open_marks(self) -> Marks:
        """A connection for marks; a forked process must not use it."""

    def check(self) -> None:
        """Run the database's own check; `BadLedger` if it finds damage."""


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
        return self.path

    @property
    def saved_place(self) -> str:
        """The absolute path."""
        return str(self.path.absolute())

    def exists(self) -> bool:
        return self.path.exists()

    def create(self) -> None:
        path = self.path
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with _explain_errors(path):
            try:
                os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileNotFoundError as error:
                raise TacitError(
                    f"The ledger {path} cannot be created: there is no folder {path.absolute().parent}. Create the "
                    "folder first, or choose another path."
                ) from error
            try:
                with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION};")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                    connection.executemany("INSERT INTO meta VALUES (?, ?)", new_meta().items())
                    connection.execute("COMMIT")
                # A link makes the complete file appear at once, and never replaces an existing one.
                with suppress(FileExistsError):
                    os.link(unfinished, path)
            finally:
                unfinished.unlink()
            sync_folder(path.parent)

    def read(self) -> AbstractContextManager[Book]:
        return _transaction(self.path, "BEGIN")

    def write(self) -> AbstractContextManager[Book]:
        return _transaction(self.path, "BEGIN IMMEDIATE")

    def open_marks(self) -> SqliteMarks:
        """A connection for marks; SQLite's locks belong to the process that opens it."""
        return SqliteMarks(self.path, _connect(self.path))

    def check(self) -> None:
        """Refuse a database with any damaged page, used or not."""
        with closing(_connect(self.path)) as connection, _explain_errors(self.path):
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
        with _explain_errors(self.path):
            return _SqliteTables(self.connection).move_live(live)

    def close(self) -> None:
        self.connection.close()


@final
@dataclass(frozen=True)
class _SqliteTables(LedgerTables):
    connection: sqlite3.Connection

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self.connection.execute(statement, values)

    def meta(self) -> dict[str, str]:
        return dict(self.execute("SELECT key, value FROM meta"))

    def last_number(self) -> int:
        row = self.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        return 0 if row is None else int(row[0])


def _connect(path: Path) -> sqlite3.Connection:
    """A connection to a ledger; `BadLedger` for another kind of file, or a newer version."""
    with _explain_errors(path):
        if not path.stat().st_size:
            raise BadLedger(f"{path} is empty: it is not a ledger, or it lost its content. Restore it from a copy.")
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=_SECONDS_TO_WAIT,
            check_same_thread=False,
        )
    try:
        with _explain_errors(path):
            connection.execute("PRAGMA synchronous = FULL")
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise BadLedger(f"{path} is a database, but not a ledger. Choose another file.")
        if version != VERSION:
            raise BadLedger(f"{path} has version {version}; this tacit reads version {VERSION}. Use a newer tacit.")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(path: Path, begin: str) -> Iterator[Book]:
    with closing(_connect(path)) as connection:
        with _explain_errors(path):
            connection.execute(begin)
            book = Book(str(path), _SqliteTables(connection))
        try:
            yield book
        except sqlite3.Error as error:
            connection.rollback()
            raise _translate_error(path, error) from error
        except BaseException:
            connection.rollback()
            raise
        with _explain_errors(path):
            connection.execute("COMMIT")
            # Write the log into the file at once, in case someone moves the file without it.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite or the system into errors of tacit."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadLedger(f"There is no ledger {path}. Create one by `tacit ledger budget`, or Ledger(path).") from error
    except OSError as error:
        raise TacitError(f"The ledger {path} cannot be used: {error.strerror or error}.") from error
    except sqlite3.Error as error:
        raise _translate_error(path, error) from error
    except (TypeError, ValueError) as error:
        # A column that is not text any more.
        raise BadLedger(f"{path} is damaged: {error}. Restore it from a copy.") from error


def _translate_error(path: Path, error: sqlite3.Error) -> TacitError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return TacitError(f"Other processes have locked the ledger {path} for {_SECONDS_TO_WAIT:g} seconds. Try again.")
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return TacitError(
            f"The ledger {path} cannot be written: {error}. Nothing may be released until it can. Free some disk "
            "space, or check that you may write the file and its folder."
        )
    return BadLedger(f"{path} is not a ledger, or is damaged: {error}. Restore it from a copy.")
