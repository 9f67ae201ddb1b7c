"""A ledger in a PostgreSQL database that a team shares: the same rows and seals as in a file, under one lock.

A process takes an exclusive lock on the table of marks before it decides anything. Processes that own a run change
marks, so during a decision no other process decides, and none draws a step that the first would not see. A commit
returns once it is on the server's disk, regardless of the server's default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import psycopg.errors
from sqlalchemy import URL, Connection, CursorResult, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit.errors import BadLedger, InvalidArgument, TacitError
from tacit.ledger.book import VERSION, Book, Entry, LedgerTables, Live, new_meta

_SECONDS_TO_WAIT = 120
_SCHEMA = (
    "CREATE TABLE tacit_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE tacit_entries (
        number INTEGER PRIMARY KEY,
        at TEXT NOT NULL, who TEXT NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL, run TEXT NOT NULL,
        content TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
    )""",
    "CREATE TABLE tacit_live (run TEXT PRIMARY KEY, attempt TEXT NOT NULL, stop INTEGER NOT NULL, seal TEXT NOT NULL)",
    # One row: how many entries were ever added. Without it, nobody would notice the loss of the last ones.
    "CREATE TABLE tacit_head (number INTEGER NOT NULL)",
    """CREATE FUNCTION tacit_entries_stay() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'an entry is never changed or removed'; END $$""",
    """CREATE TRIGGER tacit_entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON tacit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION tacit_entries_stay()""",
)


@final
@dataclass(frozen=True)
class PostgresStorage:
    """A ledger's database. Its tables belong to the user who creates the ledger; others need grants."""

    place: str
    engine: Engine = field(repr=False, compare=False)

    @staticmethod
    def at(address: str) -> PostgresStorage:
        """The storage at an address; a password in it is used, but neither printed nor saved."""
        try:
            url = make_url(address).set(drivername="postgresql+psycopg")
            # One connection per transaction: processes may fork in between.
            engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 20})
        except (ArgumentError, ValueError) as error:
            raise InvalidArgument(
                "The address of a ledger on PostgreSQL must be one such as postgresql://user@host:5432/database. "
                f"This one cannot be read: {error}."
            ) from None
        bare = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
        # A password may also be among the options.
        shown = bare.difference_update_query(["password", "sslpassword"])
        return PostgresStorage(shown.render_as_string(hide_password=False), engine)

    @property
    def saved_place(self) -> str:
        """The address without a password; libpq reads that from PGPASSWORD or ~/.pgpass."""
        return self.place

    def exists(self) -> bool:
        """Whether the database holds a ledger's tables."""
        with self._explain_errors(), self.engine.connect() as connection:
            return _holds_tables(connection)

    def create(self) -> None:
        with self._explain_errors(), self.engine.begin() as connection:
            _prepare(connection, self.place)
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({0x74636974})")
            if _holds_tables(connection):
                return
            for statement in (*_SCHEMA, "INSERT INTO tacit_head VALUES (0)"):
                connection.exec_driver_sql(statement)
            meta = {**new_meta(), "version": str(VERSION)}
            connection.exec_driver_sql("INSERT INTO tacit_meta VALUES (%s, %s)", list(meta.items()))

    def read(self) -> AbstractContextManager[Book]:
        return self._transaction(is_writing=False)

    def write(self) -> AbstractContextManager[Book]:
        return self._transaction(is_writing=True)

    def open_marks(self) -> PostgresMarks:
        """A connection for marks; each mark is its own transaction."""
        with self._explain_errors():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            _prepare(connection, self.place)
        return PostgresMarks(self, connection, os.getpid())

    def check(self) -> None:
        """Nothing to do: the server checks its pages if it uses data checksums."""

    @contextmanager
    def _transaction(self, is_writing: bool) -> Iterator[Book]:
        # Under the lock every statement must see earlier decisions; a reader needs one consistent view.
        level = "READ COMMITTED" if is_writing else "REPEATABLE READ"
        with self._explain_errors(), self.engine.connect() as connection:
            connection = connection.execution_options(isolation_level=level, postgresql_readonly=not is_writing)
            with connection.begin():
                _prepare(connection, self.place)
                if is_writing:
                    connection.exec_driver_sql("LOCK TABLE tacit_live IN EXCLUSIVE MODE")
                yield Book(self.place, _PostgresTables(connection, self.place))

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn errors of the server into errors of tacit."""
        try:
            yield
        except DBAPIError as error:
            raise _translate_error(self.place, error) from error
        except SQLAlchemyError as error:
            raise TacitError(f"The ledger {self.place} cannot be used: {_join_lines(error)}.") from error


@final
@dataclass(frozen=True)
class PostgresMarks:
    """An open connection, of this process only."""

    storage: PostgresStorage
    connection: Connection
    process: int

    def mark(self, live: Live) -> bool:
        with self.storage._explain_errors():
            return _PostgresTables(self.connection, self.storage.place).move_live(live)

    def close(self) -> None:
        """Close the connection; a forked process would close its parent's, so it does nothing."""
        if os.getpid() == self.process:
            self.connection.close()


@final
@dataclass(frozen=True)
class _PostgresTables(LedgerTables):
    connection: Connection
    place: str
    prefix: ClassVar[str] = "tacit_"

    def execute(self, statement: str, *values: object) -> CursorResult[Any]:
        return self.connection.exec_driver_sql(statement.replace("?", "%s"), values)

    def meta(self) -> dict[str, str]:
        meta = {row.key: row.value for row in self.execute("SELECT key, value FROM tacit_meta")}
        version = meta.pop("version", None)
        if version != str(VERSION):
            raise BadLedger(
                f"{self.place} has version {version}; this tacit reads version {VERSION}. Use a newer tacit."
            )
        return meta

    def last_number(self) -> int:
        number = self.execute("SELECT number FROM tacit_head").scalar_one_or_none()
        if number is None:
            raise BadLedger(f"{self.place} is damaged: the number of its entries is missing. Restore it from a copy.")
        return int(number)

    def add(self, entry: Entry) -> None:
        super().add(entry)
        self.execute("UPDATE tacit_head SET number = ?", entry.number)


def _prepare(connection: Connection, place: str) -> None:
    """Wait for the disk at every commit, and for a lock only up to a limit."""
    settings = connection.exec_driver_sql(
        "SELECT set_config('synchronous_commit', 'on', false), "
        f"set_config('lock_timeout', '{_SECONDS_TO_WAIT}s', false), current_setting('fsync')"
    )
    if settings.one()[2] != "on":
        raise TacitError(
            f"The server of {place} runs with fsync off, so a power cut could lose charges of releases that have "
            "been published. Switch fsync on, or use another server."
        )


def _holds_tables(connection: Connection) -> bool:
    return connection.exec_driver_sql("SELECT to_regclass('tacit_meta')").scalar_one() is not None


def _translate_error(place: str, error: DBAPIError) -> TacitError:
    cause, said = error.orig, _join_lines(error.orig or error)
    if isinstance(cause, psycopg.errors.LockNotAvailable):
        return TacitError(f"Other processes have locked the ledger {place} for {_SECONDS_TO_WAIT} seconds. Try again.")
    if isinstance(cause, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return BadLedger(f"{place} does not hold a complete ledger: {said}. Restore it from a copy.")
    if isinstance(cause, psycopg.DataError):
        return InvalidArgument(f"The ledger {place} cannot hold this: {said}.")
    return TacitError(
        f"The ledger {place} cannot be used: {said}. Nothing may be released until it can. Check that the server runs, "
        "that you can log in, and that you may write the ledger's tables."
    )


def _join_lines(error: BaseException) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split()).rstrip(".")
