"""Runs, one a line of a file, written when each ends: whatever was run is not run again."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run that can be made alone: the part it belongs to, what is asked for (plain values), and how it is made.

    `make` returns plain values, as JSON knows them: see `finite` for what may be infinite.
    """

    part: str
    asked: Values
    make: Callable[[], Values]

    @property
    def key(self) -> str:
        """The same for the same run, whenever it is asked for."""
        return _key(self.part, self.asked)

    def __str__(self) -> str:
        return ", ".join([self.part, *(f"{name} {value}" for name, value in self.asked.items())])


@dataclass(frozen=True)
class Record:
    """What a run found, and when, where and in how much processor time (None if nobody measured it)."""

    part: str
    asked: dict[str, Any]
    found: dict[str, Any]
    seconds: float | None
    date: str
    machine: str

    @property
    def key(self) -> str:
        """That of the cell."""
        return _key(self.part, self.asked)


@dataclass(frozen=True)
class Records:
    """The runs so far, in a file of JSON lines."""

    path: Path

    def read(self) -> list[Record]:
        """All of them."""
        return [Record(**json.loads(line)) for line in self._lines()]

    def where(self, part: str, **asked: Any) -> list[Record]:
        """Those of one part that were asked for with these values."""
        return [
            each
            for each in self.read()
            if each.part == part and all(each.asked.get(name) == value for name, value in asked.items())
        ]

    def make(self, cell: Cell) -> Record:
        """Run a cell and keep what it finds."""
        started = time.process_time()
        found = dict(cell.make())
        seconds = round(time.process_time() - started, 1)
        record = Record(cell.part, dict(cell.asked), found, seconds, today(), machine())
        self._add(json.dumps(asdict(record), allow_nan=False))
        return record

    def _lines(self) -> list[str]:
        """A last line that was cut off in the middle, by a full disk or a loss of power, counts as not run."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.is_file() else []
        return [line for line in lines if line.endswith("\n")]

    def _add(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = sum(len(each.encode()) for each in self._lines())
        with self.path.open("ab") as file:
            file.truncate(whole)
            file.write(f"{line}\n".encode())


def missing(cells: Iterator[Cell], records: Records) -> Iterator[Cell]:
    """The cells that no record answers. Lazy: a cell may depend on what those before it found."""
    done = {record.key for record in records.read()}
    return (cell for cell in cells if cell.key not in done)


def finite(value: float) -> float | None:
    """The number, or None where nothing finite is known: JSON has no infinity.

    >>> finite(2.5), finite(float("inf"))
    (2.5, None)
    """
    return float(value) if math.isfinite(value) else None


def _key(part: str, asked: Values) -> str:
    return json.dumps([part, dict(asked)], sort_keys=True)


def today() -> str:
    """The day of a run."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def machine() -> str:
    """Where it was made, as far as times and last digits depend on it."""
    return f"{os.cpu_count()} cores, {platform.machine()}, torch {version('torch')}"
