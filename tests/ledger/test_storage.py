"""The file: seals that show every edit, damage that is named, versions that keep their meaning."""

import hashlib
import json
import shutil
import sqlite3
import sys
from contextlib import closing, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import version_1
from tacit.accounting import Gaussian, Laplace, curve
from tacit.budget import Budget, Terms
from tacit.errors import BadLedger, InvalidArgument, TacitError
from tacit.ledger import Block, Course, Ledger, Reservation
from tacit.ledger.storage import _explain_errors, storage_at

STEP = Gaussian(1.1).sampled(0.01)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A budget, a settled run, one that is under way, and one release."""
    one = Ledger(tmp_path_factory.mktemp("original") / "adult.ledger")
    one.set_budget("adult", Budget(3, 1e-5))
    for steps, is_over in ((5, True), (3, False)):
        run = Reservation(one, Course((Block(STEP, 10),)), dataset="adult", fingerprint="ab")
        for step in range(steps):
            run.begin(step)
        if is_over:
            run.settle()
    one.spend("adult", Gaussian(9.0))
    return one


@pytest.fixture
def ledger(original, tmp_path):
    return Ledger(shutil.copy(original.path, tmp_path / "adult.ledger"))


def edit(ledger, *statements):
    """Change the file behind the library's back."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.executescript("DROP TRIGGER entries_stay; DROP TRIGGER entries_last;")
        for statement in statements:
            connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)


@pytest.mark.slow
def test_a_whole_ledger_is_verified_and_its_seal_is_that_of_the_last_row(ledger):
    assert ledger.verify() == ledger.entries()[-1].hash == ledger.export()["head"]


@pytest.mark.slow
def test_the_chain_can_be_checked_from_an_export_alone(ledger):
    exported = json.loads(json.dumps(ledger.export()))
    previous = exported["entries"][0]["previous"]
    for row, entry in zip(exported["entries"], ledger.entries(), strict=True):
        columns = [row[key] for key in ("number", "at", "who", "kind", "dataset", "run")]
        text = json.dumps([*columns, json.dumps(row["content"]), previous])
        previous = hashlib.sha256(text.encode()).hexdigest()
        assert previous == row["hash"] == entry.hash
    assert previous == exported["head"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4, 6])
@pytest.mark.parametrize("column", ["at", "who", "kind", "dataset", "run", "content", "previous", "hash"])
def test_an_edit_of_any_column_of_any_row_is_named(ledger, column, number):
    edit(ledger, f"UPDATE entries SET {column} = {column} || ' ' WHERE number = {number}")
    for use in (ledger.verify, ledger.entries, lambda: ledger.spend("adult", Gaussian(9.0))):
        with pytest.raises(BadLedger, match=f"^Entry {number} of .*adult.ledger was changed"):
            use()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 7))
def test_a_row_that_was_removed_is_named(ledger, number):
    edit(ledger, f"DELETE FROM entries WHERE number = {number}")
    with pytest.raises(BadLedger, match=f"^Entry {number} of .* is missing"):
        ledger.verify()


@pytest.mark.slow
def test_rows_that_changed_places_are_named(ledger):
    edit(ledger, "UPDATE entries SET number = 300 WHERE number = 3", "UPDATE entries SET number = 3 WHERE number = 4")
    with pytest.raises(BadLedger, match=r"^Entry 3 of"):
        ledger.verify()


@pytest.mark.slow
def test_a_row_from_another_ledger_is_named(ledger, tmp_path):
    other = Ledger(tmp_path / "other.ledger")
    row = ledger.entries()[0]
    with closing(sqlite3.connect(other.path, isolation_level=None)) as connection:
        columns = (1, row.at, row.who, row.kind, row.dataset, row.run, row.text, row.previous, row.hash)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", columns)
    with pytest.raises(BadLedger, match=r"^Entry 1 of"):
        other.verify()


@pytest.mark.slow
def test_a_chain_that_was_written_anew_is_found_by_a_seal_that_was_noted(ledger, tmp_path):
    noted = ledger.verify()
    assert ledger.verify(noted) == noted
    copy = tmp_path / "copy.ledger"
    shutil.copy(ledger.path, copy)
    ledger.spend("adult", Gaussian(50.0))
    assert ledger.verify(noted) != noted
    edit(Ledger(copy), "DELETE FROM entries WHERE number > 3", "UPDATE sqlite_sequence SET seq = 3")
    shortened = Ledger(copy)
    shortened.verify()
    with pytest.raises(BadLedger, match="no entry with the seal"):
        shortened.verify(noted)


@pytest.mark.slow
def test_rows_cannot_be_changed_or_removed_by_accident(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        for statement in ("UPDATE entries SET who = 'me'", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="an entry is never"):
                connection.execute(statement)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["attempt = 'x'", "stop = 1", "seal = 'x'"])
def test_a_mark_that_was_changed_is_found_when_it_counts(ledger, column):
    [run] = [charge.run for charge in ledger.account("adult").charges if not charge.is_settled]
    edit(ledger, f"UPDATE live SET {column}")
    with pytest.raises(BadLedger, match=f"the mark of run {run}"):
        ledger.settle(run)


@pytest.mark.slow
def test_a_run_whose_mark_is_gone_is_taken_to_have_drawn_everything(ledger):
    [run] = [charge.run for charge in ledger.account("adult").charges if not charge.is_settled]
    edit(ledger, "DELETE FROM live")
    assert ledger.settle(run) == STEP * 10


@pytest.mark.slow
def test_a_row_with_a_right_seal_that_means_nothing_is_named(ledger):
    with ledger.storage.write() as book:
        book.append("settle", "adult", "x", {"event": {"version": 99}, "about": {}})
    with pytest.raises(BadLedger, match=r"^Entry 7 of"):
        ledger.verify()
    with pytest.raises(BadLedger, match=r"^Entry 7 holds an event that this version of tacit cannot read"):
        ledger.account("adult")


@pytest.mark.slow
def test_all_or_nothing(ledger):
    before = ledger.entries()

    def break_off():
        with ledger.storage.write() as book:
            book.append("budget", "adult", "", {})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert ledger.entries() == before


@pytest.mark.slow
def test_a_ledger_of_a_newer_tacit_is_refused(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(BadLedger, match="has version 2; this tacit reads version 1"):
        Ledger(ledger.path)


@pytest.mark.parametrize("content", [b"", b"not a ledger", b"SQLite format 3\x00" + bytes(100)])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "adult.ledger"
    path.write_bytes(content)
    with pytest.raises(BadLedger, match=r"adult\.ledger"):
        Ledger(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path):
    path = tmp_path / "adult.ledger"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(BadLedger, match="a database, but not a ledger"):
        Ledger(path)


def test_a_folder_is_no_ledger_and_a_folder_that_is_not_there_holds_none(tmp_path):
    with pytest.raises(TacitError, match="cannot be"):
        Ledger(tmp_path)
    with pytest.raises(TacitError, match=r"there is no folder .*none"):
        Ledger(tmp_path / "none" / "adult.ledger")


@pytest.mark.slow
def test_a_ledger_that_vanished_is_missed(ledger):
    ledger.path.unlink()
    with pytest.raises(BadLedger, match="There is no ledger"):
        ledger.spend("adult", STEP)
    assert not ledger.path.exists()


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_an_error_or_changes_nothing(ledger, data):
    """Bytes overwritten or cut off anywhere: the ledger says the same as before, or that it is damaged."""
    whole = ledger.path.read_bytes()
    charges = ledger.account("adult").charges
    spoilt = bytearray(whole)
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        spoilt = spoilt[:place]
    else:
        garbage = data.draw(st.binary(min_size=1, max_size=40))
        spoilt[place : place + len(garbage)] = garbage
    copy = ledger.path.with_name("copy.ledger")
    for path in copy.parent.glob("copy.ledger*"):
        path.unlink()
    copy.write_bytes(spoilt)
    with suppress(TacitError):
        assert Ledger(copy).account("adult").charges == charges


OLD_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL, who TEXT NOT NULL, kind TEXT NOT NULL, dataset TEXT NOT NULL, run TEXT NOT NULL,
    content TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE live (run TEXT PRIMARY KEY, attempt TEXT NOT NULL, stop INTEGER NOT NULL, seal TEXT NOT NULL);
PRAGMA application_id = 1952672116;
PRAGMA user_version = 1;
"""


def test_a_ledger_of_the_first_version_keeps_its_meaning(tmp_path):
    path = tmp_path / "old.ledger"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(OLD_SCHEMA)
        for table, rows in (("meta", version_1.META), ("entries", version_1.ENTRIES), ("live", version_1.LIVE)):
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    old = Ledger(path)
    assert old.verify() == version_1.ENTRIES[-1][-1]
    first, second, third = Gaussian(1.1).sampled(0.01), Gaussian(0.9).sampled(0.02), Laplace(3.0) + Gaussian(9.0)
    assert old.account("adult").epsilon(1e-5) == pytest.approx(curve(first * 4 + second * 20 + third).epsilon(1e-5))
    assert old.account("adult").terms == Terms(Budget(3, 1e-5))
    assert old.settle("second") == second * 3
    with pytest.raises(InvalidArgument, match="in the ledger as 'adult'"):
        old.spend("another name", first, fingerprint="ab")


@pytest.mark.slow
def test_reading_needs_no_lock(ledger):
    with ledger.storage.write() as book:
        book.append("budget", "adult", "", {"epsilon": 9, "delta": 1e-5, "adjacency": "add_remove", "order": None})
        with ledger.storage.read() as seen:
            assert len(seen.entries) == 6
    assert ledger.account("adult").terms.budget.epsilon == 9


@pytest.mark.slow
def test_the_accounting_of_this_ledger(ledger):
    expected = curve(STEP * 15 + Gaussian(9.0)).epsilon(1e-5)
    assert ledger.account("adult").epsilon(1e-5) == pytest.approx(expected, rel=1e-12)


def test_a_locked_ledger_is_named_and_one_may_try_again(ledger, monkeypatch):
    monkeypatch.setattr("tacit.ledger.storage._SECONDS_TO_WAIT", 0.01)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TacitError, match=r"Other processes have locked the ledger .* Try again"):
            ledger.set_budget("adult", Budget(4, 1e-5))


def test_an_error_of_the_database_inside_a_transaction_changes_nothing(ledger):
    before = ledger.entries()

    def break_off():
        with ledger.storage.write() as book:
            book.append("budget", "adult", "", {})
            raise sqlite3.OperationalError("broken")

    with pytest.raises(TacitError, match=r"adult\.ledger"):
        break_off()
    assert ledger.entries() == before


def test_a_ledger_on_a_server_says_which_package_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "tacit.ledger.postgres", None)
    with pytest.raises(TacitError, match=r"needs tacit.ledger.postgres, .* pip install 'tacit\[postgres\]'"):
        storage_at("postgresql://user@host/database")


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (PermissionError(13, "Permission denied"), TacitError, "cannot be used: Permission denied"),
        (ValueError("not text"), BadLedger, "is damaged: not text. Restore it from a copy"),
    ],
)
def test_what_the_system_refuses_and_what_cannot_be_read_are_told_apart(tmp_path, error, kind, words):
    with pytest.raises(kind, match=words), _explain_errors(tmp_path / "adult.ledger"):
        raise error
