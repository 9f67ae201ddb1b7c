"""Damaged and made-up input: command lines, bounds, events, guarantees, checkpoints, ledgers and tables.

What comes of it is an answer or a sentence of tacit's, and whatever is accepted keeps its promise.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fault_counts import Counts, Kind, Lost, Trial, UnderCount, judge
from tacit.errors import TacitError

_WORDS = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1e999",
    "1e-320",
    "0x10",
    "1_0",
    "½",
    "日本",
    "\0",
    "\x1b[31m",
    "x" * 300,
)
_ODD = (
    *(None, True, False, 0, -1, 1, 2, 0.5, 1e308, -1e308, 1e-320, 10**30, -(10**400), float("nan"), float("inf")),
    *("", "x", "\ud800", "\0", "gaussian", "os:system", "x" * 5000, [], {}, [[]], [None], {"": None}, [1, 2, 3]),
)


def damage_bytes(chance: random.Random, whole: bytes) -> bytes:
    """The content with some bytes changed, put in, taken out, repeated or cut off."""
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        place = chance.randrange(len(whole) + 1)
        length = chance.choice((1, 1, 2, 4, 16, 200))
        garbage = bytes([chance.choice((0, 255, 10, 34, chance.randrange(256)))]) * length
        if chance.random() < 0.5:
            garbage = chance.randbytes(length)
        whole = chance.choice(
            (
                whole[:place],
                whole[:place] + garbage + whole[place:],
                whole[:place] + whole[place + length :],
                whole[:place] + garbage + whole[place + length :],
                whole[:place] + whole[max(place - length, 0) : place] * 3 + whole[place:],
            )
        )
    return whole


def damage_text(chance: random.Random, whole: str) -> str:
    """The text with one or two of its words replaced by odd ones, or swapped."""
    parts = re.split(r"(\W)", whole)
    for _ in range(chance.choice((1, 2))):
        place = chance.randrange(len(parts))
        parts[place] = chance.choice((*_WORDS, *parts, "[", "]", "{", "}", "=", '"', "\n", "-", "1" * 5000))
    return "".join(parts)


def damage_tree(chance: random.Random, value: Any) -> Any:
    """The tree with one of its nodes replaced, left out, repeated or wrapped."""
    if not isinstance(value, (dict, list)) or not value or chance.random() < 0.15:
        return chance.choice((*_ODD, [value], {"event": value}, [value] * 3))
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = chance.choice(list(keys))
    how = chance.random()
    changed = dict(value) if isinstance(value, dict) else list(value)
    if how < 0.1:
        del changed[key]
    elif how < 0.2 and isinstance(changed, dict):
        changed[chance.choice((*value, "nothing", "", "$", "class"))] = changed[key]
    else:
        changed[key] = damage_tree(chance, value[key])
    return changed


def damage_json(chance: random.Random, whole: str) -> str:
    """JSON text with damage to its tree, its words or its bytes."""
    how = chance.random()
    if how < 0.6:
        return json.dumps(damage_tree(chance, json.loads(whole)))
    return damage_text(chance, whole) if how < 0.8 else damage_bytes(chance, whole.encode()).decode(errors="replace")


@contextmanager
def _open(attempt: Callable[[random.Random], object], name: str) -> Iterator[Trial]:
    """Trials of an attempt that raises what is wrong; each has its own chance."""
    warnings.simplefilter("ignore")
    yield lambda number, _: judge(partial(attempt, random.Random(f"{name} {number}")))


def list_events() -> list[str]:
    """Events of every kind, as JSON."""
    from tacit.accounting import (
        Composed,
        EpsilonDelta,
        Gaussian,
        GaussianDensity,
        Laplace,
        LaplaceDensity,
        ProductNoise,
        RandomizedResponse,
        StudentT,
    )

    step = Gaussian(1.1).sampled(0.01)
    events = [
        step * 1000,
        Laplace(2.0) + step,
        EpsilonDelta(0.5, 1e-6),
        StudentT(5.0, 2.0, (1.0, 0.5)),
        Composed((Gaussian(2.0), Laplace(1.0) * 3)),
        *_try_all(
            lambda: RandomizedResponse(1.0),
            lambda: ProductNoise(GaussianDensity(2.0), (1.0,)),
            lambda: ProductNoise(LaplaceDensity(1.0), (1.0, 0.5)),
        ),
    ]
    return [event.to_json() for event in events]


def _try_all(*makers: Callable[[], Any]) -> list[Any]:
    found = []
    for make in makers:
        try:
            found.append(make())
        except TypeError:
            continue
    return found


@contextmanager
def open_events(_: Path) -> Iterator[Trial]:
    """Events and guarantees as JSON."""
    from tacit.accounting import Gaussian, from_json
    from tacit.guarantee import Assumption, Guarantee

    events = list_events()
    guarantee = Guarantee(Gaussian(2.0) * 3, 1e-5, assumptions=(Assumption("one", "One."),)).to_json()

    def attempt(chance: random.Random) -> None:
        if chance.random() < 0.3:
            found = Guarantee.from_json(damage_json(chance, guarantee))
            if Guarantee.from_json(found.to_json()) != found:
                raise Lost(f"a guarantee does not come back from its own JSON: {found!r}")
            return
        event = from_json(damage_json(chance, chance.choice(events)))
        if from_json(event.to_json()) != event:
            raise Lost(f"an event does not come back from its own JSON: {event!r}")

    with _open(attempt, "events") as trial:
        yield trial


@contextmanager
def open_prices(_: Path) -> Iterator[Trial]:
    """Events that were damaged and can still be read: what they cost, by two accountants."""
    from tacit.accounting import curve, from_json

    events = list_events()

    def attempt(chance: random.Random) -> None:
        event = None
        while event is None:
            with suppress(TacitError):
                event = from_json(damage_json(chance, chance.choice(events)))
        delta = chance.choice((1e-5, 1e-5, 1e-12, 0.3))
        lower, upper = curve(event).epsilon_bounds(delta)
        if not 0 <= lower <= upper:
            raise UnderCount(f"epsilon between {lower} and {upper}: {event!r}")
        least, most = curve(event).delta_bounds(1.0)
        if not 0 <= least <= most <= 1 or (upper <= 1 and least > delta * (1 + 1e-6)):
            raise UnderCount(f"epsilon at most {upper} at delta {delta}, but delta at least {least} at 1: {event!r}")
        if curve(event, by="rdp").epsilon(delta) < lower * (1 - 1e-6):
            raise UnderCount(f"another accountant is below the lower bound {lower}: {event!r}")

    with _open(attempt, "prices") as trial:
        yield trial


BOUNDS = """\
rows = 50
held_out = 0.2
example = "patient"
[columns]
age = { low = 0, high = 100 }
income = { low = 1, high = 1e6, log = true }
weight = { low = 0, high = 300, missing = "indicator", fill = 75 }
admitted = { type = "date", low = 2015-01-01, high = 2025-12-31 }
smoker = ["no", "yes"]
visit = { ignore = true }
outcome = ["a", "b"]
"""
_PEOPLE = (
    'people = 40\nrows_per_unit = 3\n[columns]\nwho = { type = "unit" }\nage = { low = 0, high = 9 }\ny = [0, 1]\n'
)
_TEXTS = 'rows = 40\ntest = "test.csv"\n[columns]\nreview = { type = "text" }\ny = ["bad", "good"]\n'


@contextmanager
def open_bounds(_: Path) -> Iterator[Trial]:
    """bounds.toml."""
    from tacit.datasets import Bounds

    def attempt(chance: random.Random) -> None:
        whole = chance.choice((BOUNDS, BOUNDS, _PEOPLE, _TEXTS))
        text = damage_text(chance, whole)
        if chance.random() < 0.3:
            text = damage_bytes(chance, whole.encode()).decode(errors="replace")
        bounds = Bounds.parse(text)
        for target in ("outcome", "y"):
            if target in bounds.columns:
                bounds.features(target)

    with _open(attempt, "bounds") as trial:
        yield trial


@contextmanager
def open_checkpoints(folder: Path) -> Iterator[Trial]:
    """Saves and journals of a run: damaged, or forged with a right hash."""
    import torch
    from safetensors.torch import load, save
    from torch.nn.functional import cross_entropy

    import tacit
    from tacit.training.folder import _hash, read_checkpoint

    torch.set_num_threads(1)
    x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    run = tacit.PrivateRun(
        torch.nn.Linear(3, 2),
        cross_entropy,
        data=(x, y),
        mechanism=tacit.methods.dpsgd(clip_norm=1.0, multiplier=2.0),
        sampling=tacit.FullBatch(40),
        steps=8,
    )
    optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if run.step in (2, 4):
            run.save(folder / "run")
        if run.step == 5:
            break
    path, journal = folder / "run" / "run.safetensors", folder / "run" / "journal.jsonl"
    whole, notes = path.read_bytes(), journal.read_bytes()
    weight, tensors = read_checkpoint(folder / "run")["model"]["weight"], load(whole)
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])["__metadata__"]["tacit"]

    def attempt(chance: random.Random) -> None:
        how = chance.random()
        is_forged = how > 0.5
        content, noted = whole, notes
        if how < 0.4:
            content = damage_bytes(chance, whole)
        elif not is_forged:
            noted = damage_bytes(chance, notes)
        else:
            forged = json.dumps(damage_tree(chance, json.loads(header)))
            content = save(tensors, metadata={"tacit": forged, "sha256": _hash(forged, tensors)})
        path.write_bytes(content)
        journal.write_bytes(noted)
        if how < 0.4:
            found = read_checkpoint(folder / "run")["model"]["weight"]
            if not torch.equal(found, weight):
                raise Lost("a damaged save was read with other weights")
        else:
            tacit.PrivateRun.resume(folder / "run", torch.nn.Linear(3, 2), cross_entropy, data=(x, y))

    with _open(attempt, "checkpoints") as trial:
        yield trial


@contextmanager
def open_ledgers(folder: Path) -> Iterator[Trial]:
    """Files of ledgers with damaged bytes or rows."""
    from tacit.accounting import Gaussian
    from tacit.budget import Budget
    from tacit.ledger import Block, Course, Ledger, Reservation

    original = Ledger(folder / "original.ledger")
    original.set_budget("adult", Budget(8, 1e-5))
    for _ in range(2):
        original.spend("adult", Gaussian(5.0))
    for is_over in (True, False):
        run = Reservation(original, Course((Block(Gaussian(9.0), 12),)), dataset="adult", fingerprint="ab")
        run.begin(0)
        run.begin(1)
        if is_over:
            run.settle()
    whole, charges = Path(original.path).read_bytes(), original.account("adult").charges
    path = folder / "damaged.ledger"

    def attempt(chance: random.Random) -> None:
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        is_edited = chance.random() < 0.4
        path.write_bytes(whole if is_edited else damage_bytes(chance, whole))
        if is_edited:
            _edit_row(chance, path)
        ledger = Ledger(path)
        try:
            found = ledger.account("adult").charges
            # The mark of a process that is still drawing is not part of the chain of seals.
            if len(found) < len(charges):
                raise UnderCount(f"{len(charges) - len(found)} of {len(charges)} charges are missing")
            for one, other in zip(charges, found, strict=False):
                if one.event != other.event:
                    raise UnderCount(f"{one.event} became {other.event}")
        finally:
            ledger.verify()

    with _open(attempt, "ledgers") as trial:
        yield trial


def _edit_row(chance: random.Random, path: Path) -> None:
    """Change one value or remove one row, as somebody could who has the file."""
    columns = {
        "entries": ("number", "at", "who", "kind", "dataset", "run", "content", "previous", "hash"),
        "meta": ("key", "value"),
        "live": ("run", "attempt", "stop", "seal"),
    }
    table = chance.choice(list(columns))
    column, odd = chance.choice(columns[table]), chance.choice((*_WORDS, None, 0, -1, 2**40, b"\xff\x00", 1e300))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for name in ("entries_stay", "entries_last"):
            connection.execute(f"DROP TRIGGER {name}")
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        row = chance.choice(rows)
        try:
            if table == "entries" and chance.random() < 0.3:
                connection.execute("DELETE FROM entries WHERE rowid = ?", (row,))
            else:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (odd, row))
        except sqlite3.Error:
            return


def make_table(rows: int = 50) -> dict[str, list[Any]]:
    """A table that fits BOUNDS."""
    return {
        "age": [i % 90 for i in range(rows)],
        "income": [1.5 + 100 * i for i in range(rows)],
        "weight": [70.5 + i % 7 if i % 5 else None for i in range(rows)],
        "admitted": [f"20{15 + i % 10}-03-{1 + i % 28:02}" for i in range(rows)],
        "smoker": ["no" if i % 2 else "yes" for i in range(rows)],
        "visit": [str(i) for i in range(rows)],
        "outcome": ["a" if i % 3 else "b" for i in range(rows)],
    }


@contextmanager
def _open_tables(folder: Path, name: str, contents: Sequence[tuple[str, bytes]]) -> Iterator[Trial]:
    from tacit.datasets import Bounds, load_table

    bounds = Bounds.parse(BOUNDS, str(folder))

    def attempt(chance: random.Random) -> None:
        file, whole = chance.choice(contents)
        path = folder / file
        is_text = file.endswith("csv") and chance.random() < 0.5
        path.write_bytes(
            damage_text(chance, whole.decode()).encode(errors="replace") if is_text else damage_bytes(chance, whole)
        )
        inputs, targets = load_table(path, target="outcome", bounds=bounds).train
        if not np.all(np.abs(inputs) <= 1) or not set(np.unique(targets)) <= {0, 1}:
            raise UnderCount("a row was read that is not within its bounds")

    with _open(attempt, name) as trial:
        yield trial


@contextmanager
def open_csv(folder: Path) -> Iterator[Trial]:
    """Tables as CSV, plain and packed, and as .npz."""
    import gzip

    table = make_table()
    lines = [",".join(table), *(",".join("" if v is None else str(v) for v in row) for row in zip(*table.values()))]  # noqa: B905
    whole, packed = "\n".join(lines).encode() + b"\n", io.BytesIO()
    np.savez(packed, **{name: np.array([0 if v is None else v for v in values]) for name, values in table.items()})
    contents = [("t.csv", whole), ("t.csv", whole), ("t.csv.gz", gzip.compress(whole, mtime=0))]
    with _open_tables(folder, "csv", [*contents, ("t.npz", packed.getvalue())]) as trial:
        yield trial


@contextmanager
def open_parquet(folder: Path) -> Iterator[Trial]:
    """Tables as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents = []
    for compression in ("none", "snappy"):
        written = io.BytesIO()
        pq.write_table(pa.table(make_table()), written, compression=compression)
        contents.append(("t.parquet", written.getvalue()))
    with _open_tables(folder, "parquet", contents) as trial:
        yield trial


_OPTIONS = (
    *("--epsilon", "--delta", "--multiplier", "--rate", "--lot-size", "--population", "--epochs", "--group"),
    *("--clip-norm", "--learning-rate", "--micro-batch", "--seed", "--method", "--mode", "--model", "--adjacency"),
    *("--target", "--bounds", "--event", "--note", "--head", "--like", "--adaptive", "--json", "--released"),
    *("--trials", "--shape", "--by", "--set", "--dataset", "--ledger", "--nonsense", "--data-path", "--dimension"),
)
_VALUES = (
    *(*_WORDS[:-5], "\udcff", "a\nb", "--help", "-", "--", "x" * 300, "1", "2", "0.5", "1e-5", "1e300", "1e-300"),
    *("iris", "adult", "dpsgd", "recipe", "rigorous", "paper", "../..", "/", "here.ledger", "t.csv", "b.toml"),
    *("event.json", "outcome", "pld", "rdp", "add_remove", "replace_one", "linear"),
)
# How often each command is tried: training takes longest.
_COMMANDS = {
    **{"epsilon": 30, "noise": 6, "methods": 8, "bounds": 8, "report": 8, "predict": 8, "nothing": 3, "": 3},
    **{"ledger show": 12, "ledger budget": 12, "ledger add": 12, "ledger settle": 8, "ledger verify": 6, "plan": 2},
    **{"ledger export": 6, "train": 2, "audit": 4},
}


def say(*line: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line in this process; `Lost` if it fails without a sentence."""
    from tacit.cli import main

    before, out, err, code = sys.argv, io.StringIO(), io.StringIO(), 0
    sys.argv = ["tacit", *line]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = before
    if (
        code not in (0, 1, 2)
        or "Traceback (most recent" in err.getvalue()
        or (code == 2 and not err.getvalue().strip())
    ):
        raise RuntimeError(f"code {code} of {line}: {err.getvalue()[-300:]}")
    return code, out.getvalue(), err.getvalue()


@contextmanager
def open_commands(folder: Path) -> Iterator[Trial]:
    """Arguments of every command, in a folder with a ledger, a table, bounds and an event."""
    from tacit.accounting import Gaussian
    from tacit.ledger import Ledger

    here = folder / "a" / "b" / "c"
    here.mkdir(parents=True)
    os.chdir(here)
    table = make_table()
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    Path("t.csv").write_text("\n".join(lines), encoding="utf-8")
    Path("b.toml").write_text(BOUNDS, encoding="utf-8")
    Path("event.json").write_text(list_events()[0], encoding="utf-8")
    Ledger(here / "original").spend("adult", Gaussian(3.0))
    charges = Ledger(here / "original").account("adult").charges
    names, weights = list(_COMMANDS), list(_COMMANDS.values())

    def attempt(chance: random.Random) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"here.ledger{ending}").unlink(missing_ok=True)
        shutil.copy("original", "here.ledger")
        command = chance.choices(names, weights)[0].split(" ")
        words = [chance.choice(_VALUES) for _ in range(chance.choice((0, 1, 1, 2)))]
        if command[0] == "ledger" and chance.random() < 0.8:
            words = ["here.ledger", "adult", *words]
        for _ in range(chance.randrange(5)):
            words.append(chance.choice(_OPTIONS))
            if chance.random() < 0.9:
                words.append(chance.choice(_VALUES))
        # What is accepted is over at once.
        few = {"epsilon": "2", "noise": "2", "train": "1"}.get(command[0])
        # No system passes on a zero character.
        line = [part for part in (*command, *words, *(("--steps", few) if few else ())) if "\0" not in part]
        say(*line)
        ledger = Ledger(here / "here.ledger")
        ledger.verify()
        if ledger.account("adult").charges[: len(charges)] != charges:
            raise Lost(f"{line} changed a charge")

    with _open(attempt, "commands") as trial:
        yield trial


KINDS = (
    Kind("events", "damaged or made-up JSON of events and guarantees, read", 400_000, open_events),
    Kind("prices", "events of such JSON, priced by two accountants", 5_000, open_prices, seconds=300),
    Kind("bounds", "damaged bounds.toml", 200_000, open_bounds),
    Kind("checkpoints", "damaged or forged checkpoints and journals", 100_000, open_checkpoints),
    Kind("ledgers", "ledgers with damaged bytes, edited or removed rows", 50_000, open_ledgers),
    Kind("csv", "damaged tables as CSV, packed CSV and npz", 100_000, open_csv),
    Kind("parquet", "damaged tables as Parquet", 100_000, open_parquet),
    Kind("commands", "command lines of random words and options", 50_000, open_commands, seconds=120),
)


def count_one(kind: Kind, number: int, folder: Path) -> Counts:
    """One trial of this kind in this process."""
    with kind.open(folder) as trial:
        return trial(number, folder)
