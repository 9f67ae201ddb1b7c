"""The ledger as one process sees it: names, budgets, what is charged and what is written."""

import json
import os
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

import tacit
from tacit.accounting import Adjacency, Gaussian, Unproven
from tacit.budget import Budget
from tacit.errors import BudgetExceeded, InvalidArgument, NotProven
from tacit.ledger import Block, Course, Ledger, fingerprint

STEP = Gaussian(20.0)
COURSE = Course((Block(STEP, 12),))


def total(ledger):
    return ledger.account("adult").total


def test_the_ledger_is_a_public_name():
    assert tacit.Ledger is Ledger
    assert tacit.Budget is Budget


@pytest.mark.slow
def test_everything_is_there_again_when_the_file_is_opened_again(ledger):
    ledger.set_budget("adult", Budget(3, 1e-5))
    ledger.spend("adult", STEP * 5, about={"method": "dpsgd"})
    again = Ledger(ledger.path)
    assert again == ledger
    assert again.datasets == ("adult",)
    [charge] = again.account("adult").charges
    assert (charge.event, charge.is_settled, charge.about) == (STEP * 5, True, {"method": "dpsgd"})
    assert again.account("adult").terms.budget == Budget(3, 1e-5)


def test_every_row_says_who_and_when(ledger):
    ledger.spend("adult", STEP)
    [entry] = ledger.entries()
    assert "@" in entry.who
    assert entry.at.endswith("+00:00")


def test_only_the_owner_can_read_it(file):
    umask = os.umask(0)
    try:
        other = Ledger(file.path.with_name("other.ledger"))
        connection = sqlite3.connect(other.path)
        connection.execute("BEGIN IMMEDIATE")
        files = list(other.path.parent.glob("other.ledger*"))
        modes = [stat.S_IMODE(path.stat().st_mode) for path in files]
        connection.close()
    finally:
        os.umask(umask)
    assert len(files) >= 2, "the write-ahead log is a file of its own"
    assert set(modes) == {0o600}


def test_nothing_is_left_beside_the_file(file):
    file.spend("adult", STEP)
    assert [path.name for path in file.path.parent.iterdir()] == ["adult.ledger"]


def test_a_release_that_does_not_fit_is_refused_and_leaves_no_row(ledger):
    ledger.set_budget("adult", Budget(1, 1e-5))
    before = ledger.entries()
    with pytest.raises(BudgetExceeded, match="Raise the multiplier to"):
        ledger.spend("adult", Gaussian(1.0))
    assert ledger.entries() == before


def test_what_was_released_already_is_charged_all_the_same(ledger):
    ledger.set_budget("adult", Budget(1, 1e-5))
    ledger.spend("adult", Gaussian(1.0), is_released=True)
    assert total(ledger) == Gaussian(1.0) * 1
    with pytest.raises(BudgetExceeded, match="No release of this kind fits any more"):
        ledger.spend("adult", Gaussian(100.0))


def test_what_is_not_proven_is_refused_where_there_is_a_budget_and_kept_where_there_is_none(ledger):
    claim = Unproven("(1, 0)-DP", "nobody has shown it")
    ledger.spend("free", claim)
    assert ledger.account("free").epsilon(1e-5) == np.inf
    ledger.set_budget("adult", Budget(1, 1e-5))
    with pytest.raises(NotProven):
        ledger.spend("adult", claim)
    assert [entry.dataset for entry in ledger.entries()] == ["free", "adult"]


def test_data_sets_have_budgets_of_their_own(ledger):
    ledger.set_budget("adult", Budget(1, 1e-5))
    ledger.set_budget("wine", Budget(1, 1e-5), adjacency=Adjacency.REPLACE_ONE)
    ledger.spend("adult", Gaussian(4.0))
    ledger.spend("wine", Gaussian(8.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend("wine", Gaussian(7.0))


def test_the_budget_that_was_set_last_counts(ledger):
    ledger.set_budget("adult", Budget(1, 1e-5))
    ledger.set_budget("adult", Budget(9, 1e-5), adaptive=True)
    ledger.spend("adult", Gaussian(1.0))
    ledger.set_budget("adult", Budget(0.1, 1e-5))
    with pytest.raises(BudgetExceeded):
        ledger.spend("adult", Gaussian(1000.0))
    assert [entry.kind for entry in ledger.entries()] == ["budget", "budget", "settle", "budget"]


@pytest.mark.parametrize("name", ["", " ", None, 3])
def test_a_data_set_needs_a_name(ledger, name):
    with pytest.raises(InvalidArgument):
        ledger.spend(name, STEP)
    with pytest.raises(InvalidArgument, match="dataset must be a name"):
        ledger.set_budget(name, Budget(1, 1e-5))


def test_no_event_no_charge(ledger):
    with pytest.raises(InvalidArgument, match="event must be an event such as"):
        ledger.spend("adult", "lots")


def test_what_is_said_about_a_release_is_plain(ledger):
    with pytest.raises(InvalidArgument, match="JSON can store"):
        ledger.spend("adult", STEP, about={"model": object()})
    assert ledger.entries() == ()


def test_the_same_examples_under_another_name_are_refused(ledger):
    marks = fingerprint(np.arange(6.0), np.arange(6))
    ledger.spend("adult", STEP, fingerprint=marks)
    with pytest.raises(InvalidArgument, match="in the ledger as 'adult', not as 'fresh'"):
        ledger.spend("fresh", STEP, fingerprint=marks)
    ledger.spend("adult", STEP, fingerprint=fingerprint(np.arange(7.0)))
    assert [entry.kind for entry in ledger.entries()] == ["data", "settle", "data", "settle"]
    assert ledger.check(None, COURSE, marks) == "adult"
    with pytest.raises(InvalidArgument, match="does not know these examples"):
        ledger.check(None, COURSE, fingerprint(np.arange(8.0)))


def test_fingerprints_see_types_shapes_and_values():
    base = np.arange(6, dtype=np.float32)
    others = [base.astype(np.float64), base.reshape(2, 3), base + 1, base[:5], np.zeros(0)]
    assert len({fingerprint(each) for each in [base, *others]}) == 6
    assert fingerprint(base) == fingerprint(base.copy())
    assert fingerprint(np.asfortranarray(base.reshape(2, 3))) == fingerprint(base.reshape(2, 3))
    with pytest.raises(InvalidArgument, match="Python objects"):
        fingerprint(np.array([{}]))


def test_what_is_written_says_nothing_about_the_examples(file):
    marks = fingerprint(np.arange(6.0))
    file.spend("adult", STEP, fingerprint=marks)
    assert marks.encode() not in file.path.read_bytes()
    other = Ledger(file.path.with_name("other.ledger"))
    other.spend("adult", STEP, fingerprint=marks)
    mixed = [each.entries()[0].content["fingerprint"] for each in (file, other)]
    assert mixed[0] != mixed[1]
    with closing(sqlite3.connect(file.path)) as connection:
        [(secret,)] = connection.execute("SELECT value FROM meta WHERE key = 'secret'")
    assert secret not in json.dumps(file.export())
