"""Results, one run per line of a file, written when each run ends. A run with a result is not repeated."""

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
    """One independent run: its part, its settings (plain values), and the function that makes it.

    `make` returns JSON values; `finite` turns infinity into None.
    """

    part: str
    asked: Values
    make: Callable[[], Values]

    @property
    def key(self) -> str:
        """Identifies the run: equal for equal part and values."""
        return _key(self.part, self.asked)

    def __str__(self) -> str:
        return ", ".join([self.part, *(f"{name} {value}" for name, value in self.asked.items())])


@dataclass(frozen=True)
class Record:
    """The result of a run, with its date, machine and processor time (None if not measured)."""

    part: str
    asked: dict[str, Any]
    found: dict[str, Any]
    seconds: float | None
    date: str
    machine: str

    @property
    def key(self) -> str:
        """The key of its cell."""
        return _key(self.part, self.asked)


@dataclass(frozen=True)
class Records:
    """The runs so far, in a file of JSON lines."""

    path: Path

    def read(self) -> list[Record]:
        """All of them."""
        return [Record(**json.loads(line)) for line in self._lines()]

    def where(self, part: str, **asked: Any) -> list[Record]:
        """The records of one part with these values."""
        return [
            each
            for each in self.read()
            if each.part == part and all(each.asked.get(name) == value for name, value in asked.items())
        ]

    def make(self, cell: Cell) -> Record:
        """Run a cell and save its result."""
        started = time.process_time()
        found = dict(cell.make())
        seconds = round(time.process_time() - started, 1)
        record = Record(cell.part, dict(cell.asked), found, seconds, today(), machine())
        self._add(json.dumps(asdict(record), allow_nan=False))
        return record

    def _lines(self) -> list[str]:
        """All complete lines: one cut off by a full disk or a power failure counts as not run."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.is_file() else []
        return [line for line in lines if line.endswith("\n")]

    def _add(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = sum(len(each.encode()) for each in self._lines())
        with self.path.open("ab") as file:
            file.truncate(whole)
            file.write(f"{line}\n".encode())


def missing(cells: Iterator[Cell], records: Records) -> Iterator[Cell]:
    """The cells without a record. Lazy: a cell may depend on the results of earlier ones."""
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
    """The machine, as far as times and last digits depend on it."""
    return f"{os.cpu_count()} cores, {platform.machine()}, torch {version('torch')}"
