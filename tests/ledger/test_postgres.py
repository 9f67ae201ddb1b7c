"""A ledger on a real PostgreSQL server: what differs from a file. The rest of its tests are those of every ledger."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.errors import BadLedger, InvalidArgument, OutOfOrder, TacitError
from tacit.ledger import Block, Course, Ledger, Reservation
from tacit.ledger.reservation import find_ledger

STEP = Gaussian(20.0)
COURSE = Course((Block(STEP, 12),))


@pytest.fixture
def ledger(address):
    """A budget, a settled run, one that is under way, and one release."""
    one = Ledger(address)
    one.set_budget("adult", Budget(3, 1e-5))
    for is_over in (True, False):
        run = Reservation(one, COURSE, dataset="adult", fingerprint="ab")
        run.begin(0)
        if is_over:
            run.settle()
    one.spend("adult", STEP)
    return one


def execute(ledger, *statements):
    """Do something behind the library's back."""
    from sqlalchemy import text

    with ledger.storage.engine.begin() as connection:
        return [connection.execute(text(statement)) for statement in statements]


def edit(ledger, statement):
    execute(ledger, "ALTER TABLE tacit_entries DISABLE TRIGGER tacit_entries_stay", statement)


@pytest.mark.parametrize("number", [1, 6])
@pytest.mark.parametrize("column", ["at", "who", "kind", "dataset", "run", "content", "previous", "hash"])
def test_an_edit_of_any_column_is_named(ledger, column, number):
    edit(ledger, f"UPDATE tacit_entries SET {column} = {column} || ' ' WHERE number = {number}")
    for use in (ledger.verify, lambda: ledger.spend("adult", STEP)):
        with pytest.raises(BadLedger, match=f"^Entry {number} of postgresql://.* was changed"):
            use()


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_row_that_was_removed_is_named(ledger, number):
    assert len(ledger.entries()) == 6
    edit(ledger, f"DELETE FROM tacit_entries WHERE number = {number}")
    with pytest.raises(BadLedger, match=f"^Entry {number} of .* is missing"):
        ledger.verify()


@pytest.mark.parametrize(
    "statement", ["UPDATE tacit_entries SET who = 'me'", "DELETE FROM tacit_entries", "TRUNCATE tacit_entries"]
)
def test_rows_cannot_be_changed_or_removed_by_accident(ledger, statement):
    with pytest.raises(Exception, match="an entry is never changed or removed"):
        execute(ledger, statement)
    ledger.verify()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE tacit_meta SET value = '2' WHERE key = 'version'", "has version 2"),
        ("DELETE FROM tacit_meta WHERE key = 'secret'", "identity is missing"),
        ("DELETE FROM tacit_head", "number of its entries"),
        ("DROP TABLE tacit_entries", "does not hold a complete ledger"),
        ("ALTER TABLE tacit_live DROP COLUMN seal", "does not hold a complete ledger"),
    ],
)
def test_what_is_damaged_is_named(ledger, statement, words):
    execute(ledger, statement)
    with pytest.raises(BadLedger, match=words):
        ledger.settle(ledger_run(ledger))


def ledger_run(ledger):
    return next(charge.run for charge in ledger.account("adult").charges if not charge.is_settled)


def test_a_mark_that_was_changed_is_found_when_it_counts(ledger):
    run = ledger_run(ledger)
    execute(ledger, "UPDATE tacit_live SET stop = 0")
    with pytest.raises(BadLedger, match=f"the mark of run {run}"):
        ledger.settle(run)


@pytest.mark.slow
def test_while_one_decides_nobody_draws_and_whoever_waited_finds_out(address):
    """The race that would lose a step: another process takes a run over between a mark and what it saw of it."""
    ledger = Ledger(address)
    first = Reservation(ledger, COURSE, dataset="adult")
    first.begin(0)
    said = []

    def draw():
        try:
            first.begin(1)
        except OutOfOrder as error:
            said.append(str(error))

    waiting = threading.Thread(target=draw)
    with ledger.storage.write() as book:
        live = book.live(first.run)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive(), "a step was marked while another process decided"
        assert book.live(first.run) == live
        book.tables.end_live(first.run)
    waiting.join(20)
    assert "continues in another process" in said[0]


def test_a_server_that_would_lose_commits_is_refused(address):
    ledger = Ledger(address)
    engine = ledger.storage.engine.execution_options(isolation_level="AUTOCOMMIT")
    from sqlalchemy import text

    def turn(value):
        with engine.connect() as connection:
            connection.execute(text(f"ALTER SYSTEM SET fsync = {value}"))
            connection.execute(text("SELECT pg_reload_conf()"))
            while connection.execute(text("SHOW fsync")).scalar_one() != value:
                time.sleep(0.01)

    turn("off")
    try:
        with pytest.raises(TacitError, match="fsync off"):
            ledger.spend("adult", STEP)
    finally:
        turn("on")
    ledger.spend("adult", STEP)


def test_a_commit_waits_for_the_disk_whatever_the_default(ledger):
    execute(ledger, "ALTER ROLE tacit SET synchronous_commit = off")
    try:
        with ledger.storage.write() as book:
            [found] = book.tables.connection.exec_driver_sql("SHOW synchronous_commit").one()
    finally:
        execute(ledger, "ALTER ROLE tacit RESET synchronous_commit")
    assert found == "on"


def test_a_colleague_can_charge_and_cannot_rewrite(ledger, address):
    execute(
        ledger,
        "DROP ROLE IF EXISTS colleague",
        "CREATE ROLE colleague LOGIN",
        f"GRANT USAGE ON SCHEMA {address.rpartition('%3D')[2]} TO colleague",
        "GRANT SELECT ON tacit_meta TO colleague",
        "GRANT SELECT, INSERT ON tacit_entries TO colleague",
        "GRANT SELECT, UPDATE ON tacit_head TO colleague",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON tacit_live TO colleague",
    )
    theirs = Ledger(address.replace("tacit@", "colleague@"))
    run = Reservation(theirs, COURSE, dataset="adult")
    run.begin(0)
    run.settle()
    assert ledger.verify() == theirs.verify()
    with pytest.raises(Exception, match=r"permission denied|must be owner"):
        execute(theirs, "ALTER TABLE tacit_entries DISABLE TRIGGER tacit_entries_stay")
    with pytest.raises(Exception, match="permission denied"):
        execute(theirs, "DELETE FROM tacit_entries")


def test_a_stranger_is_told_that_they_may_not(ledger, address):
    execute(
        ledger,
        "DROP ROLE IF EXISTS stranger",
        "CREATE ROLE stranger LOGIN",
        f"GRANT USAGE ON SCHEMA {address.rpartition('%3D')[2]} TO stranger",
    )
    with pytest.raises(TacitError, match="permission denied"):
        Ledger(address.replace("tacit@", "stranger@"))


def test_a_password_is_neither_shown_nor_saved(address):
    secret = Ledger(address.replace("tacit@", "tacit:swordfish@") + "&password=swordfish")
    run = Reservation(secret, COURSE, dataset="adult")
    run.begin(0)
    saved = run.saved()
    assert "swordfish" not in f"{secret} {secret.path} {secret.storage} {json.dumps(saved)} {secret.export()}"
    assert find_ledger(saved, None) == secret


def test_a_server_that_is_not_there_is_named_in_a_sentence():
    with pytest.raises(
        TacitError, match=r"postgresql://ada@127\.0\.0\.1:1/team cannot be used: .*refused.*server runs"
    ) as found:
        Ledger("postgresql://ada:swordfish@127.0.0.1:1/team")
    assert "swordfish" not in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("address", ["postgresql://", "postgresql://host:port/x", "postgres://a@[::1/b"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(TacitError):
        Ledger(address)


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb"])
def test_a_name_that_no_database_holds_is_refused(place, name):
    with pytest.raises(InvalidArgument, match="dataset must be"):
        Ledger(place).spend(name, STEP)


@pytest.mark.slow
def test_without_the_extra_one_is_told_what_to_install():
    program = """
import sys
sys.modules["sqlalchemy"] = None
from tacit.errors import TacitError
from tacit.ledger import Ledger
try:
    Ledger("postgresql://somewhere/team")
except TacitError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'tacit[postgres]'" in done.stdout


@pytest.mark.slow
def test_a_file_needs_neither_sqlalchemy_nor_psycopg():
    program = "import sys, tacit.ledger; print({'sqlalchemy', 'psycopg'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


SPENDER = """
import os, sys
from tacit.accounting import Gaussian
from tacit.ledger import Ledger
ledger = Ledger(sys.argv[1])
while True:
    os.write(1, f"{ledger.spend('adult', Gaussian(20.0))}\\n".encode())
"""


@pytest.mark.slow
def test_charges_of_processes_that_were_killed_are_kept(address):
    ledger, returned = Ledger(address), set()
    for seconds in (0.0, 0.13, 0.29):
        command = [sys.executable, "-c", SPENDER, address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        first = process.stdout.readline().strip()
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        returned |= {first, *process.communicate()[0].split()}
    known = {charge.run for charge in ledger.account("adult").charges}
    assert returned <= known
    assert len(known) <= len(returned) + 3
    ledger.verify()


def test_a_run_is_charged_there_and_finds_its_ledger_again(address, tmp_path):
    import torch
    from torch.nn.functional import cross_entropy

    import tacit

    data = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    ledger = Ledger(address)
    run = tacit.PrivateRun(
        torch.nn.Linear(3, 2),
        cross_entropy,
        data=data,
        mechanism=tacit.methods.dpsgd(1.0, 20.0),
        sampling=tacit.FullBatch(40),
        steps=6,
        ledger=ledger,
        dataset="adult",
    )
    for lot in run:
        if lot.step == 2:
            run.save(tmp_path)
        if lot.step == 4:
            break
        run.release(lot)
    again = tacit.PrivateRun.resume(tmp_path, torch.nn.Linear(3, 2), cross_entropy, data=data)
    for lot in again:
        again.release(lot)
    [charge] = ledger.account("adult").charges
    assert charge.event == STEP * 8
    assert charge.is_settled
    assert again.guarantee().epsilon(1e-5) == pytest.approx(curve(STEP * 8).epsilon(1e-5))


@pytest.mark.slow
def test_the_command_line_takes_an_address(address, tmp_path, monkeypatch, capsys):
    from tacit.cli import main

    def run_cli(*line):
        monkeypatch.setattr("sys.argv", ["tacit", *line])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    code, _, said = run_cli("ledger", "show", address)
    assert (code, said.startswith("Error: There is no ledger postgresql://tacit@/postgres")) == (2, True)
    assert run_cli("ledger", "budget", address, "iris", "--epsilon", "3", "--delta", "1e-5")[0] == 0
    settings = ["--multiplier", "8", "--delta", "1e-5", "--lot-size", "119", "--steps", "2", "--out", "first"]
    code, said, _ = run_cli("train", "iris", "--ledger", address, *settings)
    assert code == 0
    assert "charged as run" in said
    assert "of 3 at delta 1e-05 (add/remove one example, PLD, 1 run)" in run_cli("ledger", "show", address)[1]
    assert "is unchanged: 4 entries" in run_cli("ledger", "verify", address)[1]
    assert json.loads(run_cli("ledger", "export", address)[1])["entries"][-1]["kind"] == "settle"
