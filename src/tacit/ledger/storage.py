"""Where a ledger is kept: in a file of its own, or in a PostgreSQL database that a team shares."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tacit.errors import TacitError
from tacit.ledger.book import Book, Live
from tacit.ledger.sqlite import SqliteStorage

_ADDRESSES = ("postgresql://", "postgres://", "postgresql+psycopg://")


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
