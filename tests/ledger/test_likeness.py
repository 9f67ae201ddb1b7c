"""A table that the ledger knows under another name is recognised, and nothing of it can be read from the ledger."""

import json

import pytest

from tacit.accounting import Gaussian
from tacit.budget import Budget
from tacit.ledger import Ledger
from tacit.ledger.likeness import Traits

ROWS = tuple(f"row number {place}" for place in range(2_000))
TABLE = Traits(("age", "outcome"), "rows = 2000", ROWS)


@pytest.fixture
def ledger(tmp_path):
    """A ledger with one charged table."""
    made = Ledger(tmp_path / "it.ledger")
    made.recognise("patients", TABLE)
    made.spend("patients", Gaussian(5.0))
    return made


def test_a_table_with_half_of_the_rows_is_recognised_with_its_share(ledger):
    other = Traits(("age", "outcome", "more"), "rows = 2500", ROWS[:1000] + tuple(f"new {i}" for i in range(1_000)))
    [found] = ledger.recognise("patients2", other)
    # A third of all rows of both; five standard deviations of a sample of 256.
    assert found.share == pytest.approx(1 / 3, abs=0.15)
    assert (found.dataset, found.has_same_columns, found.has_same_bounds) == ("patients", False, False)


def test_a_table_of_other_rows_is_recognised_by_its_columns_or_its_bounds(ledger):
    others = tuple(f"new {i}" for i in range(500))
    [found] = ledger.recognise("a", Traits(TABLE.columns, "other", others))
    assert (found.has_same_columns, found.has_same_bounds, found.share) == (True, False, 0)
    [found] = ledger.recognise("b", Traits(("x", "y"), TABLE.bounds, others))
    assert (found.has_same_columns, found.has_same_bounds, found.share) == (False, True, 0)
    assert ledger.recognise("c", Traits(("x", "y"), "other", others)) == []


def test_a_table_that_has_charges_is_not_compared(ledger):
    assert ledger.recognise("patients", TABLE) == []
    ledger.spend("patients2", Gaussian(5.0))
    assert ledger.recognise("patients2", TABLE) == []


def test_a_table_without_charges_is_no_warning_to_others(tmp_path):
    ledger = Ledger(tmp_path / "it.ledger")
    ledger.recognise("patients", TABLE)
    assert ledger.recognise("patients2", TABLE) == []


def test_the_ledger_keeps_a_keyed_sample_of_the_rows_and_no_name(ledger):
    text = json.dumps(ledger.export())
    [entry] = [entry for entry in ledger.entries() if entry.kind == "table"]
    assert len(entry.content["rows"]) == 256
    assert not any(word in text for word in ("row number", "age", "rows = 2000"))
    again = Ledger(ledger.path.with_name("other.ledger"))
    again.recognise("patients", TABLE)
    # Another ledger has another secret.
    [other] = again.entries()
    assert not set(entry.content["rows"]) & set(other.content["rows"])
    ledger.verify()


def test_a_budget_that_is_raised_gives_the_old_one_back(tmp_path):
    ledger = Ledger(tmp_path / "it.ledger")
    assert ledger.set_budget("patients", Budget(1.0, 1e-5)) is None
    assert ledger.set_budget("patients", Budget(3.0, 1e-5)) == Budget(1.0, 1e-5)
