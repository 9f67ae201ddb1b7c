"""Training by recipe on tables larger than memory: time and memory over the number of rows.

The tables are made here and written as Parquet: a class in the proportions of Adult, then every column independently
from Adult's public values of that class. Each size is trained by `tacit train TABLE --memory 2GB` in a process of its
own, whose processor time and largest memory (resident, with the pages of its files) are asked of the system. The
table replaces what stands between this script's markers in RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from results import THREADS, deliver, draw_growth, environment, show_table

SIZES = (100_000, 1_000_000, 10_000_000)
EPSILON = 1.0
PICTURE = Path(__file__).with_name("large_table.svg")
_GROUP = 2**17
_TARGET = "income"
PACKAGES = ("tacit", "pyarrow", "numpy", "torch")


@dataclass(frozen=True)
class Trained:
    """One size: seconds of the processor and by the clock, bytes, and what came out."""

    rows: int
    file: int
    processor: float
    clock: float
    memory: int
    result: dict[str, Any]


def read_values() -> dict[str, dict[str, Any]]:
    """The values of every column of Adult, by class."""
    import zipfile

    import numpy as np

    import tacit
    from tacit.datasets.adult import _BOOK, _COLUMNS

    with zipfile.ZipFile(Path(tacit.__file__).parent / "datasets/files/adult.zip") as archive:
        lines = archive.read("adult.data").decode().splitlines()
    table = [dict(zip(_COLUMNS, line.split(", "), strict=True)) for line in lines if line.count(", ") == 14]
    return {
        income: {name: np.array([row[name] for row in table if row[_TARGET] == income]) for name in _BOOK}
        for income in ("<=50K", ">50K")
    }


def write_bounds(path: Path, rows: int) -> None:
    """The code book of Adult as bounds."""
    from tacit.datasets._columns import Category
    from tacit.datasets.adult import _BOOK

    lines = [f"rows = {rows}", "[columns]"]
    for name, column in _BOOK.items():
        if isinstance(column, Category):
            lines.append(f"{json.dumps(name)} = {json.dumps([*column.values, '?'])}")
        else:
            log = ", log = true" if column.logarithmic else ""
            lines.append(f"{json.dumps(name)} = {{ low = {column.low}, high = {column.high}{log} }}")
    lines.append(f'{_TARGET} = ["<=50K", ">50K"]')
    path.write_text("\n".join(lines))


def write_table(path: Path, rows: int) -> None:
    """Rows drawn with a fixed seed, in row groups."""
    import numpy as np
    import pyarrow
    from pyarrow import parquet

    from tacit.datasets._columns import Category
    from tacit.datasets.adult import _BOOK

    values, rng, writer = read_values(), np.random.default_rng(0), None
    share = len(values[">50K"]["age"]) / sum(len(each["age"]) for each in values.values())
    for start in range(0, rows, _GROUP):
        size = min(_GROUP, rows - start)
        is_rich = rng.random(size) < share
        columns: dict[str, Any] = {}
        for name, column in _BOOK.items():
            drawn = np.where(is_rich, rng.choice(values[">50K"][name], size), rng.choice(values["<=50K"][name], size))
            columns[name] = drawn if isinstance(column, Category) else drawn.astype(np.int64)
        columns[_TARGET] = np.where(is_rich, ">50K", "<=50K")
        table = pyarrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def train(folder: Path, rows: int, memory: str) -> Trained:
    """Train on a table of so many rows in another process."""
    table, bounds = folder / f"people{rows}.parquet", folder / f"bounds{rows}.toml"
    kept = folder / f"trained{rows}.json"
    if kept.exists():
        return Trained(**json.loads(kept.read_text()))
    write_bounds(bounds, rows)
    if not table.exists():
        write_table(table, rows)
    out = folder / f"run{rows}"
    shutil.rmtree(out, ignore_errors=True)
    words = [str(table), "--target", _TARGET, "--bounds", str(bounds), "--epsilon", str(EPSILON), "--json"]
    command = [sys.executable, "-m", "tacit", "train", *words, "--memory", memory, "--out", str(out)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"Training on {rows:,} rows failed.")
    clock = time.monotonic() - began
    size = table.stat().st_size
    found = Trained(rows, size, used.ru_utime + used.ru_stime, clock, used.ru_maxrss * 1024, json.loads(told))
    kept.write_text(json.dumps(asdict(found)))
    return found


def write_section(found: Sequence[Trained], memory: str) -> str:
    """The section of RESULTS.md."""
    head = ["rows", "Parquet", "lot size", "processor time", "per million rows", "clock", "largest memory", "accuracy"]
    lines = [head]
    for one in found:
        settings, score = one.result["settings"], one.result["score"]
        lines.append(
            [
                f"{one.rows:,}",
                f"{one.file / 1e6:.0f} MB",
                f"{settings['lot_size']:,.0f}",
                f"{one.processor:.0f} s",
                f"{one.processor / one.rows * 1e6:.0f} s",
                f"{one.clock:.0f} s",
                f"{one.memory / 1e9:.2f} GB",
                f"{100 * score['accuracy']:.2f} %",
            ]
        )
    return "\n\n".join(
        [
            "## Large tables: training by recipe in pieces",
            environment(PACKAGES),
            f"`tacit train TABLE.parquet --epsilon {EPSILON:g} --memory {memory}`: a table with the columns of Adult, "
            "drawn independently of each other in each class. Processor time of the whole command, from reading the "
            "table to the score on rows held out. Memory is the largest resident size, with the pages of its files. "
            f"The load of the machine was {os.getloadavg()[0]:.0f}.",
            show_table(lines),
            f"![Processor time and memory over the number of rows]({PICTURE.name})",
            "Up to 500,000 rows every step takes all rows; beyond, lots save most of the time.",
        ]
    )


def draw(found: Sequence[Trained]) -> None:
    """Time and memory over rows."""
    lines = {
        "processor time (seconds)": [(one.rows, one.processor) for one in found],
        "largest memory (100 MB)": [(one.rows, one.memory / 1e8) for one in found],
    }
    draw_growth(PICTURE, "rows of the table", "seconds, or 100 MB", lines)


def main() -> None:
    """Make the tables, train on them, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="ROWS")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, help="keep tables, runs and measurements here")
    parser.add_argument("--print", dest="printed", action="store_true", help="print the section and write no file")
    parser.add_argument("--output", type=Path, help="write the section to this file instead of RESULTS.md")
    arguments = parser.parse_args()
    for name in THREADS:
        os.environ.setdefault(name, "1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for rows in arguments.sizes:
            found.append(train(folder, rows, arguments.memory))
            print(f"{rows:,} rows: {found[-1].processor:.0f} s, {found[-1].memory / 1e9:.2f} GB", file=sys.stderr)
            if not arguments.printed:
                draw(found)
            deliver("large tables", write_section(found, arguments.memory), arguments.output, arguments.printed)


if __name__ == "__main__":
    main()
