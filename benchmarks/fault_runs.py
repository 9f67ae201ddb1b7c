"""Runs and ledgers under load and faults: kills, full disks, many writers, clocks that jump, odd environments."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

from fault_counts import Counts, Kind, Lost, NotHere, Trial, UnderCount, alone, judge

ROOT = Path(__file__).resolve().parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path.append(str(ROOT / "tests"))

_KILLS_AT_ONCE, _DISKS_AT_ONCE = 5, 4
# Of unshare(2) and mount(2): MS_REC and MS_PRIVATE.
_NEW_USERS, _NEW_MOUNTS, _PRIVATE = 0x10000000, 0x20000, 0x44000
WRITERS, RESERVATIONS = 16, 200
_WEEK = timedelta(days=7)


@contextmanager
def _addresses() -> Iterator[Callable[[], str]]:
    """Addresses of empty databases on a server of our own."""
    from support.postgres_server import NoServer, empty_schemas, serve

    try:
        with serve() as server, empty_schemas(server) as address:
            yield address
    except NoServer as reason:
        raise NotHere(str(reason)) from reason


def _tell_apart(call: Callable[[], None]) -> None:
    """Raise what an assertion of the trials is about."""
    try:
        call()
    except AssertionError as error:
        text = str(error)
        if "charged" in text or "ledger" in text:
            raise UnderCount(text) from error
        if "weights" in text or "lost" in text:
            raise Lost(text) from error
        raise


def _kill(number: int, folder: Path, address: Callable[[], str | None], **options: Any) -> Counts:
    from support.kill_many import survive

    here, notes, kills = folder / str(number), dict[str, int](), 0
    here.mkdir()

    def attempt() -> None:
        nonlocal kills
        tally = survive(_KILLS_AT_ONCE, number, here, address=address, **options)
        notes.update({**tally.kills, "runs finished": tally.finished.total()})
        kills = tally.kills.total()

    counts = judge(lambda: _tell_apart(attempt))
    counts.done, counts.notes = kills or counts.done, notes
    shutil.rmtree(here, ignore_errors=True)
    return counts


@contextmanager
def _open_kills(folder: Path) -> Iterator[Trial]:
    from support.kill_many import references

    expected = references(folder)
    yield lambda number, here: _kill(number, here, lambda: None, expected=expected)


@contextmanager
def _open_kills_of_two(folder: Path) -> Iterator[Trial]:
    from support.kill_many import references

    expected = references(folder, processes=2)
    yield lambda number, here: _kill(number, here, lambda: None, processes=2, expected=expected)


@contextmanager
def _open_kills_postgres(folder: Path) -> Iterator[Trial]:
    from support.kill_many import references

    expected = references(folder)
    with _addresses() as address:
        yield lambda number, here: _kill(number, here, address, expected=expected)


def try_disks(number: int, folder: Path) -> Counts:
    """A few runs on a disk of one megabyte, each with another number of free pages at its beginning."""
    from support import fill_disk

    disk, said = folder / f"disk-{number}", folder / f"said-{number}"
    disk.mkdir()
    chance = random.Random(f"disks {number}")
    free = [chance.choice((0, 1, 2, 3, chance.randrange(30))) for _ in range(_DISKS_AT_ONCE)]

    def attempt() -> None:
        process = os.fork()
        if not process:
            code = 1
            try:
                _mount_small(disk)
                fill_disk.survive(disk, free)
                code = 0
            except BaseException as error:
                said.write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
            finally:
                os._exit(code)
        if code := os.waitpid(process, 0)[1]:
            _tell_apart(lambda: _fail(said.read_text(encoding="utf-8") if said.exists() else f"code {code}"))

    counts = judge(attempt)
    counts.done = counts.done if counts.faults else _DISKS_AT_ONCE
    return counts


def _fail(text: str) -> None:
    if text.startswith("AssertionError"):
        raise AssertionError(text)
    raise RuntimeError(text)


def _mount_small(place: Path) -> None:
    """A file system of one megabyte that only this process sees, in name spaces of its own; it must have no threads."""
    user, group = os.getuid(), os.getgid()
    system = ctypes.CDLL(None, use_errno=True)
    _check(system.unshare(_NEW_USERS | _NEW_MOUNTS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _check(system.mount(b"none", b"/", None, _PRIVATE, None))
    _check(system.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=1m"))


def _check(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _can_mount(folder: Path) -> bool:
    process = os.fork()
    if not process:
        try:
            _mount_small(folder)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return not os.waitpid(process, 0)[1]


@contextmanager
def _open_disks(folder: Path) -> Iterator[Trial]:
    from support.kill_many import warm

    if not _can_mount(folder):
        raise NotHere("this system lets nobody mount a small file system")
    warm()
    yield try_disks


def _write_many(place: Path | str, writer: int, share: int, granted: Path) -> None:
    """Reserve so often, noting what the ledger granted; for a process of its own."""
    from tacit.accounting import Gaussian
    from tacit.errors import BudgetExceeded
    from tacit.ledger import Block, Course, Ledger, Reservation

    event, ledger = Gaussian(30.0), Ledger(place)
    with granted.open("w", encoding="utf-8") as file:
        for each in range(share):
            try:
                if (writer + each) % 4:
                    run = ledger.spend("adult", event)
                else:
                    reservation = Reservation(ledger, Course((Block(event, 1),)), dataset="adult")
                    reservation.begin(0)
                    reservation.settle()
                    run = reservation.run
            except BudgetExceeded:
                continue
            print(run, file=file, flush=True)


def try_writers(
    number: int, folder: Path, place: Path | str, *, writers: int = WRITERS, reservations: int = RESERVATIONS
) -> Counts:
    """Writers that race for one budget, which three quarters of their reservations fit into."""
    from tacit.accounting import Gaussian, curve
    from tacit.budget import Budget
    from tacit.ledger import Ledger

    fits = reservations * 3 // 4
    ledger, allowed = Ledger(place), curve(Gaussian(30.0) * fits).epsilon(1e-5)
    ledger.set_budget("adult", Budget(allowed, 1e-5))
    files, processes = [folder / f"granted {number} {writer}" for writer in range(writers)], []
    for writer, file in enumerate(files):
        process = os.fork()
        if not process:
            code = 1
            try:
                _write_many(place, writer, reservations // writers + (writer < reservations % writers), file)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        processes.append(process)
    codes = [os.waitpid(process, 0)[1] for process in processes]

    def attempt() -> None:
        if any(codes):
            raise RuntimeError(f"{sum(map(bool, codes))} of {writers} writers ended with an error")
        granted = [run for file in files for run in file.read_text(encoding="utf-8").split()]
        ledger.verify()
        charged = {charge.run for charge in ledger.account("adult").charges}
        if not set(granted) <= charged or len(set(granted)) != len(granted):
            raise Lost(f"{len(set(granted) - charged)} of {len(granted)} reservations are not in the ledger")
        if len(charged) > fits or curve(ledger.account("adult").total).epsilon(1e-5) > allowed * (1 + 1e-9):
            raise UnderCount(f"{len(charged)} reservations were granted, and {fits} fit into the budget")
        if len(charged) < fits:
            raise Lost(f"{len(charged)} reservations were granted, although {fits} fit into the budget")

    counts = judge(attempt)
    counts.done, counts.notes = reservations, {"ledgers": 1, "granted": fits}
    return counts


@contextmanager
def _open_writers(_: Path) -> Iterator[Trial]:
    yield lambda number, folder: try_writers(number, folder, folder / f"{number}.ledger")


@contextmanager
def _open_writers_postgres(_: Path) -> Iterator[Trial]:
    with _addresses() as address:
        yield lambda number, folder: try_writers(number, folder, address())


class _Jumping(datetime):
    """A clock that is a week fast or slow, or right, at random."""

    chance = random.Random(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + cls.chance.choice((-_WEEK, -_WEEK / 2, timedelta(), _WEEK / 2, _WEEK))


def try_clock(number: int, folder: Path) -> Counts:
    """A run that is stopped and resumed, charged to a ledger, while the clock jumps at every look at it."""
    from support.kill_many import Case, check, check_end, go, reference
    from tacit.accounting import curve
    from tacit.budget import Budget
    from tacit.ledger import Ledger, book
    from tacit.training.run import PrivateRun

    here = folder / f"clock {number}"
    here.mkdir()
    _Jumping.chance = random.Random(number)
    seconds, stop = time.time, _Jumping.chance.randrange(2, 20)
    case = Case(here / "case", 7 if number % 2 else None, bool(number // 2 % 2))
    case.folder.mkdir()
    backward = PrivateRun.backward

    def interrupted(self: PrivateRun, lot: object) -> None:
        if self.step == stop:
            raise KeyboardInterrupt
        backward(self, lot)

    def attempt() -> None:
        ledger = Ledger(case.ledger)
        ledger.set_budget("data", Budget(curve(case.step * 48).epsilon(1e-6), 1e-6))
        try:
            with mock.patch.object(PrivateRun, "backward", interrupted):
                go(case)
        except KeyboardInterrupt:
            pass
        check(case)
        go(case)
        check(case)
        check_end(case, 1, lambda is_sampled: reference(here, is_sampled))

    def look() -> float:
        return seconds() + _Jumping.chance.choice((-1, 0, 1)) * _WEEK.total_seconds()

    with (
        mock.patch.object(book, "datetime", _Jumping),
        mock.patch.object(time, "time", look),
    ):
        counts = judge(lambda: _tell_apart(attempt))
    shutil.rmtree(here, ignore_errors=True)
    return counts


@contextmanager
def _open_clock(_: Path) -> Iterator[Trial]:
    from support.kill_many import warm

    warm()
    with alone(try_clock) as trial:
        yield trial


_PREPARE = "train iris --epsilon 3 --recipe none --steps 3 --out first --ledger first.ledger"
# Command lines, and the codes that they may end with. Without a locale, an argument that is not ASCII may be refused.
COMMANDS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("--help", (0,)),
    ("--version", (0,)),
    ("methods", (0,)),
    ("methods dpsgd", (0,)),
    ("epsilon --multiplier 1.1 --rate 0.01 --steps 100 --delta 1e-5", (0,)),
    ("epsilon --multiplier 1.1 --rate 0.01 --steps 100 --delta 1e-5 --plot e.png", (0,)),
    ("noise --epsilon 1 --rate 0.01 --steps 100 --delta 1e-5", (0,)),
    ("bounds größe.csv --target klasse --out b2.toml", (0, 2)),
    ("train größe.csv --target klasse --bounds b.toml --epsilon 8 --recipe none --steps 2 --out läufe/1", (0,)),
    ("train iris --epsilon 3 --steps 3", (0,)),
    ("train iris --epsilon 3 --recipe auto --out auto", (0,)),
    ("report first --no-baseline", (0,)),
    ("report first --format registry", (0,)),
    ("predict first größe.csv", (0, 2)),
    ("compare iris --epsilon 3 --methods output_perturbation --seeds 1 --workers 1 --steps 3", (0,)),
    ("ledger show first.ledger", (0,)),
    ("ledger budget first.ledger größe --epsilon 3 --delta 1e-5", (0, 2)),
    ("ledger add first.ledger größe --multiplier 9 --rate 0.01 --steps 1 --note Größe", (0, 2)),
    ("ledger verify first.ledger", (0,)),
    ("ledger export first.ledger", (0,)),
    ("train größe.csv --target größe --epsilon 1", (2,)),
    ("train nichts-ähnliches --epsilon 1", (2,)),
    ("epsilon --multiplier x --delta 1e-5", (2,)),
    ("audit first --canaries 20 --steps 2", (0, 2)),
)


def _prepare(folder: Path) -> None:
    """A run, a ledger, a table and bounds with names that are not ASCII."""
    rows = [f"{1.5 + i % 7},{'süß' if i % 2 else 'größer'},{'ä' if i % 3 else 'ß'}" for i in range(60)]
    (folder / "größe.csv").write_text("\n".join(["größe,sorte,klasse", *rows]), encoding="utf-8")
    (folder / "b.toml").write_text(
        'rows = 60\n[columns]\n"größe" = { low = 0, high = 9 }\nsorte = ["süß", "größer"]\nklasse = ["ä", "ß"]\n',
        encoding="utf-8",
    )
    _run_command(_PREPARE, folder, {}, (0,))


def _run_command(
    line: str, folder: Path, changes: dict[str, str | None], codes: tuple[int, ...], before: str = ""
) -> None:
    """Run a command line in a process of its own; it must end with one of the codes, and errors must be sentences."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **changes}
    given = {name: value for name, value in environment.items() if value is not None}
    command = [sys.executable, "-m", "tacit", *line.split()]
    if before:
        command = ["unshare", "-rm", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
    # Names in the file system and in arguments are bytes: those of UTF-8.
    done = subprocess.run(
        [os.fsencode(each) for each in command], cwd=folder, env=given, capture_output=True, check=False
    )
    errors = done.stderr.decode(errors="replace")
    if "Traceback (most recent call last)" in errors or done.returncode not in codes:
        raise RuntimeError(f"{line} ended with {done.returncode}: {errors.strip()[-300:]}")


@contextmanager
def _open_home(folder: Path) -> Iterator[Trial]:
    """Commands of a user whose home cannot be written, and who has no other place for caches."""
    home = folder / "home"
    home.mkdir()
    mount = f"mount -t tmpfs -o ro tmpfs {home}"
    is_root = os.getuid() == 0
    if is_root and subprocess.run(["unshare", "-rm", "sh", "-c", mount], check=False).returncode:
        raise NotHere("this system lets nobody mount a file system that cannot be written")
    home.chmod(0o555)
    changes: dict[str, str | None] = {"HOME": str(home)}
    caches = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "TACIT_DATA")
    _prepare(folder)
    yield _in_environment(changes | dict.fromkeys(caches), mount if is_root else "")


@contextmanager
def _open_locale(folder: Path) -> Iterator[Trial]:
    """Commands without a locale: Python then takes output for ASCII, unless told otherwise."""
    changes: dict[str, str | None] = {
        **{"LC_ALL": "C", "LANG": None, "LC_CTYPE": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "PYTHONIOENCODING": None,
    }
    _prepare(folder)
    yield _in_environment(changes)


def _in_environment(changes: dict[str, str | None], before: str = "") -> Trial:
    def trial(number: int, folder: Path) -> Counts:
        line, codes = COMMANDS[number % len(COMMANDS)]
        return judge(lambda: _run_command(line, folder, changes, codes, before))

    return trial


KINDS = (
    Kind("writers", "reservations by 16 processes at once, ledgers on SQLite", 5_000, _open_writers, seconds=170),
    Kind("writers-postgres", "the same, ledgers on PostgreSQL", 5_000, _open_writers_postgres, seconds=170),
    Kind("clock", "runs while the clock jumps by up to a week, forward and back", 40, _open_clock, seconds=120),
    Kind("home", "commands with a home that cannot be written", len(COMMANDS), _open_home, seconds=170),
    Kind("locale", "commands without a locale (`LC_ALL=C`, `PYTHONUTF8=0`)", len(COMMANDS), _open_locale, seconds=170),
    Kind("disks", "disks that become full in training", 200, _open_disks, seconds=300),
    Kind("kills", "SIGKILL of a run, ledger on SQLite", 600, _open_kills, seconds=600),
    Kind("kills-two", "SIGKILL of one of two processes of a run (gloo)", 200, _open_kills_of_two, seconds=600),
    Kind("kills-postgres", "SIGKILL of a run, ledger on PostgreSQL", 200, _open_kills_postgres, seconds=600),
)
