"""The trials of `make faults`: each kind runs, and what is planted in the product is counted."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tacit import datasets
from tacit.datasets import Bounds
from tacit.errors import InvalidArgument
from tacit.ledger import Ledger
from tacit.ledger.account import Account

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import fault_counts  # noqa: E402
import fault_inputs  # noqa: E402
import fault_pages  # noqa: E402
import fault_runs  # noqa: E402
import faults  # noqa: E402
from fault_counts import Counts, Kind, Lost, UnderCount, judge  # noqa: E402

# Newer interpreters warn of a fork beside threads, of which the child uses none.
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")
INPUTS = {kind.name: kind for kind in fault_inputs.KINDS}


def raises(error):
    def call(*_, **__):
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidArgument("This is wrong. Do that."), (0, 0, 0)),
        (InvalidArgument(""), (0, 1, 0)),
        (KeyError("x"), (0, 1, 0)),
        (SystemExit(1), (0, 1, 0)),
        (Lost("x"), (1, 0, 0)),
        (UnderCount("x"), (0, 0, 1)),
    ],
    ids=repr,
)
def test_every_outcome_is_counted_as_what_it_is(error, expected):
    counts = judge(raises(error))
    assert (counts.lost, counts.tracebacks, counts.under_counts) == expected
    assert counts.done == 1


@pytest.mark.parametrize("name", ["events", "bounds", "ledgers", "csv", "parquet"])
def test_a_few_damaged_inputs_find_no_fault(name, tmp_path):
    with INPUTS[name].open(tmp_path) as trial:
        for number in range(10):
            assert trial(number, tmp_path).found == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoints", "commands"])
def test_a_few_damaged_saves_and_command_lines_find_no_fault(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with INPUTS[name].open(tmp_path) as trial:
        for number in range(5):
            assert trial(number, tmp_path).found == []


def count_all(name, folder, count=30) -> Counts:
    counts = Counts()
    with INPUTS[name].open(folder) as trial:
        for number in range(count):
            counts.add(trial(number, folder))
    return counts


def test_a_planted_traceback_is_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(Bounds, "parse", staticmethod(raises(KeyError("columns"))))
    assert count_all("bounds", tmp_path).tracebacks == 30


def test_a_table_read_beyond_its_bounds_is_counted(monkeypatch, tmp_path):
    class Loaded:
        train = ([[2.0]], [0])

    monkeypatch.setattr(datasets, "load_table", lambda *_, **__: Loaded)
    assert count_all("csv", tmp_path).under_counts == 30


def test_an_account_that_forgets_a_charge_is_counted(monkeypatch, tmp_path):
    of = Account.of
    with INPUTS["ledgers"].open(tmp_path) as trial:
        monkeypatch.setattr(Account, "of", staticmethod(lambda name, entries: of(name, list(entries)[:2])))
        monkeypatch.setattr(Ledger, "verify", lambda self: None)
        assert sum(trial(number, tmp_path).under_counts for number in range(30))


def test_a_page_that_does_not_escape_a_name_is_found():
    clean = '<title>x</title><script type="application/json" id="facts">{"a": "\\u003cscript>"}</script>'
    assert fault_pages.find_executable(clean) == []
    for payload in fault_pages.PAYLOADS:
        if "<" in payload:
            assert fault_pages.find_executable(f"{clean}<p>{payload}</p>"), payload
            assert fault_pages.find_executable(clean.replace("\\u003cscript>", json.dumps(payload)[1:-1])), payload
    assert fault_pages.find_executable("<p title='' onmouseover='alert(1)' x=''></p>")


@pytest.mark.filterwarnings("ignore")
def test_an_archive_that_is_unpacked_to_where_it_says_is_counted(monkeypatch, tmp_path):
    def unpack(name, folder):
        (Path(folder).parent / "data_batch_1.bin").write_bytes(b"")

    monkeypatch.chdir(tmp_path)
    assert fault_pages.try_path(0, tmp_path).faults == 0
    monkeypatch.setattr(datasets, "load", unpack)
    assert fault_pages.try_path(1, tmp_path).lost == 1


@contextmanager
def _opened(folder):
    def trial(number, _):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 5:
            time.sleep(60)
        return Counts(done=1, notes={"refused": 1})

    yield trial


@forks
def test_a_trial_that_dies_or_hangs_is_counted_and_the_next_one_goes_on(tmp_path):
    kind = Kind("odd", "odd", 8, _opened, seconds=0.5)
    path = tmp_path / "odd.json"
    for goal in (3, 8):
        # What is in the file goes on.
        fault_counts.run_trials(kind, Counts.read(path), goal, path, time.monotonic() + 60)
    counts = Counts.read(path)
    assert (counts.calls, counts.done, counts.tracebacks, counts.notes) == (8, 8, 2, {"refused": 6})
    assert counts.found == ["odd 2: the process of the trials ended with code -9", "odd 5: no answer in 0.5 seconds"]


@forks
def test_trials_that_cannot_be_prepared_are_an_error_and_not_counted(tmp_path):
    kind = Kind("odd", "odd", 8, contextmanager(raises(KeyError("nothing"))), seconds=5)
    with pytest.raises(RuntimeError, match=r"(?s)odd: the trials cannot be run.*KeyError: 'nothing'"):
        fault_counts.run_trials(kind, Counts(), 1, tmp_path / "odd.json", time.monotonic() + 60)
    assert not (tmp_path / "odd.json").exists()


@forks
def test_the_table_says_what_was_done_and_fails_if_there_was_a_fault(monkeypatch, tmp_path, capsys):
    kind = Kind("odd", "odd things", 1000, _opened, seconds=0.5)
    monkeypatch.setattr(faults, "KINDS", (kind,))
    monkeypatch.setattr(faults.write_table, "__defaults__", ((kind,),))
    page = tmp_path / "page.md"
    words = ["--out", str(tmp_path), "--page", str(page), "--count"]
    assert faults.main([*words, "2"]) == 0
    assert "| odd things | 2        | 0    | 0          | 0            |" in page.read_text()
    assert faults.main([*words, "2"]) == 1
    assert "4 trials, 1 faults" in page.read_text()
    assert "| odd things | 4        | 0    | 1          | 0            |" in page.read_text()


@forks
def test_a_ledger_that_grants_too_much_is_counted(monkeypatch, tmp_path):
    def race():
        return fault_runs.try_writers(0, tmp_path, tmp_path / "a.ledger", writers=2, reservations=8)

    right = race()
    assert (right.done, right.found) == (8, [])
    (tmp_path / "a.ledger").unlink()
    monkeypatch.setattr(Account, "allows", lambda *_: True)
    assert race().under_counts == 1


@pytest.mark.slow
def test_every_kind_of_trial_runs(tmp_path):
    """Also those that take their own processes: kills, disks, other homes and locales."""
    # Two of a sort take as long as one again: kills-two and writers are tried.
    kinds = [kind.name for kind in faults.KINDS if kind.name not in {"kills", "kills-postgres", "writers-postgres"}]
    command = [sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--count", "1", "--out", str(tmp_path)]
    command += ["--only", *kinds]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--page", str(tmp_path / "page.md")], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in kinds:
        assert Counts.read(tmp_path / f"{kind}.json").done or f"{kind}: not run" in done.stdout, kind
