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
from typing import final

import psycopg.errors
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    func,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tacit.errors import BadLedger, InvalidArgument, TacitError
from tacit.ledger.book import VERSION, Book, Entry, Live, new_meta

_SECONDS_TO_WAIT = 120
_TABLES = MetaData()
_META = Table("tacit_meta", _TABLES, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))
_ENTRIES = Table(
    "tacit_entries",
    _TABLES,
    Column("number", Integer, primary_key=True, autoincrement=False),
    *(Column(name, Text, nullable=False) for name in ("at", "who", "kind", "dataset", "run")),
    *(Column(name, Text, nullable=False) for name in ("content", "previous", "hash")),
)
_LIVE = Table(
    "tacit_live",
    _TABLES,
    Column("run", Text, primary_key=True),
    Column("attempt", Text, nullable=False),
    Column("stop", Integer, nullable=False),
    Column("seal", Text, nullable=False),
)
# One row: how many entries were ever added. Without it, nobody would notice the loss of the last ones.
_HEAD = Table("tacit_head", _TABLES, Column("number", Integer, nullable=False))
_ENTRIES_STAY = (
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
        return PostgresStorage(_hide_password(url), engine)

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
            connection.execute(select(func.pg_advisory_xact_lock(0x74636974)))
            if _holds_tables(connection):
                return
            _TABLES.create_all(connection, checkfirst=False)
            for statement in _ENTRIES_STAY:
                connection.execute(text(statement))
            meta = {**new_meta(), "version": str(VERSION)}
            connection.execute(insert(_META), [{"key": key, "value": value} for key, value in meta.items()])
            connection.execute(insert(_HEAD).values(number=0))

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
                    connection.execute(text("LOCK TABLE tacit_live IN EXCLUSIVE MODE"))
                yield Book(self.place, _PostgresRows(connection, self.place))

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
        mine = (_LIVE.c.run == live.run) & (_LIVE.c.attempt == live.attempt)
        with self.storage._explain_errors():
            changed = self.connection.execute(update(_LIVE).where(mine).values(stop=live.stop, seal=live.seal()))
            return changed.rowcount == 1

    def close(self) -> None:
        """Close the connection; a forked process would close its parent's, so it does nothing."""
        if os.getpid() == self.process:
            self.connection.close()


@final
@dataclass(frozen=True)
class _PostgresRows:
    """The tables, within one transaction."""

    connection: Connection
    place: str

    def meta(self) -> dict[str, str]:
        meta = {row.key: row.value for row in self.connection.execute(select(_META))}
        version = meta.pop("version", None)
        if version != str(VERSION):
            raise BadLedger(
                f"{self.place} has version {version}; this tacit reads version {VERSION}. Use a newer tacit."
            )
        return meta

    def entries(self) -> list[Entry]:
        return [Entry(*row) for row in self.connection.execute(select(_ENTRIES).order_by(_ENTRIES.c.number))]

    def last_number(self) -> int:
        number = self.connection.execute(select(_HEAD.c.number)).scalar_one_or_none()
        if number is None:
            raise BadLedger(f"{self.place} is damaged: the number of its entries is missing. Restore it from a copy.")
        return int(number)

    def add(self, entry: Entry) -> None:
        columns = (entry.number, entry.at, entry.who, entry.kind, entry.dataset, entry.run, entry.text, entry.previous)
        self.connection.execute(insert(_ENTRIES).values((*columns, entry.hash)))
        self.connection.execute(update(_HEAD).values(number=entry.number))

    def live(self, run: str) -> tuple[Live, str] | None:
        row = self.connection.execute(select(_LIVE).where(_LIVE.c.run == run)).one_or_none()
        return None if row is None else (Live(row.run, row.attempt, row.stop), row.seal)

    def set_live(self, live: Live) -> None:
        changing = {"attempt": live.attempt, "stop": live.stop, "seal": live.seal()}
        added = upsert(_LIVE).values(run=live.run, **changing)
        self.connection.execute(added.on_conflict_do_update(index_elements=[_LIVE.c.run], set_=changing))

    def end_live(self, run: str) -> None:
        self.connection.execute(delete(_LIVE).where(_LIVE.c.run == run))


def _prepare(connection: Connection, place: str) -> None:
    """Wait for the disk at every commit, and for a lock only up to a limit."""
    settings = select(
        func.set_config("synchronous_commit", "on", False),
        func.set_config("lock_timeout", f"{_SECONDS_TO_WAIT}s", False),
        func.current_setting("fsync"),
    )
    if connection.execute(settings).one()[2] != "on":
        raise TacitError(
            f"The server of {place} runs with fsync off, so a power cut could lose charges of releases that have "
            "been published. Switch fsync on, or use another server."
        )


def _holds_tables(connection: Connection) -> bool:
    return connection.execute(select(func.to_regclass("tacit_meta"))).scalar_one() is not None


def _hide_password(url: URL) -> str:
    bare = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    # A password may also be among the options.
    return bare.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=False)


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
