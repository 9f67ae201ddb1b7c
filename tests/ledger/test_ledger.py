"""The ledger as one process sees it: reserve, release, settle; names, budgets, seals."""

import json
import os
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

import tacit
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, Unproven, curve
from tacit.errors import BadLedger, BudgetExceeded, InvalidArgument, NotProven, OutOfOrder, TacitError
from tacit.ledger import Block, Booking, Budget, Course, Ledger, fingerprint
from tacit.ledger.booking import ledger_of

STEP = Gaussian(20.0)
COURSE = Course((Block(STEP, 12),))
SEEDED = Course((Block(STEP, 12),), is_repeatable=True)


@pytest.fixture
def ledger(place):
    return Ledger(place)


@pytest.fixture
def file(tmp_path):
    """A ledger of which it matters that it is a file."""
    return Ledger(tmp_path / "adult.ledger")


def booking(ledger, course=COURSE, **settings):
    return Booking(ledger, course, dataset="adult", **settings)


def drawn(ledger, steps, course=COURSE, **settings):
    """A process that drew so many steps, and was killed."""
    one = booking(ledger, course, **settings)
    for step in range(steps):
        one.begin(step)
    return one


def total(ledger):
    return ledger.account("adult").total


def test_the_ledger_is_a_public_name():
    assert tacit.Ledger is Ledger
    assert tacit.Budget is Budget


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
    with pytest.raises(BudgetExceeded, match="Nothing of this kind fits any more"):
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
    with pytest.raises(InvalidArgument, match="numbers and text"):
        ledger.spend("adult", STEP, about={"model": object()})
    assert ledger.entries() == ()


def test_a_run_stays_with_its_data_set(ledger):
    first = drawn(ledger, 5)
    with pytest.raises(InvalidArgument, match="is charged to 'adult'"):
        Booking(ledger, COURSE, dataset="fresh", run=first.run).resume(5, 12)
    assert ledger.datasets == ("adult",)


def test_the_same_examples_under_another_name_are_refused(ledger):
    marks = fingerprint(np.arange(6.0), np.arange(6))
    ledger.spend("adult", STEP, fingerprint=marks)
    with pytest.raises(InvalidArgument, match="in the ledger as 'adult', and were now called 'fresh'"):
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


# A run of twelve steps: what the ledger says at every moment of it.


def test_a_run_is_reserved_before_its_first_step_and_settled_to_what_it_drew(ledger):
    run = booking(ledger)
    assert ledger.entries() == ()
    run.begin(0)
    assert total(ledger) == STEP * 12
    for step in range(1, 5):
        run.begin(step)
    run.settle()
    assert total(ledger) == STEP * 5
    assert [charge.is_settled for charge in ledger.account("adult").charges] == [True]


def test_a_run_that_was_killed_stays_reserved_in_full(ledger):
    drawn(ledger, 5)
    assert total(ledger) == STEP * 12
    assert not ledger.account("adult").charges[0].is_settled


@pytest.mark.parametrize("saved", [0, 3, 5])
def test_a_run_that_goes_on_with_fresh_noise_pays_for_what_it_draws_again(ledger, saved):
    first = drawn(ledger, 5)
    second = booking(ledger, run=first.run)
    resumed = second.resume(saved, 12)
    assert (resumed.stop, dict(resumed.lost)) == (12, dict.fromkeys(range(saved, 5), 1))
    assert total(ledger) == STEP * (12 + 5 - saved)
    for step in range(saved, 12):
        second.begin(step)
    second.settle()
    assert total(ledger) == STEP * (12 + 5 - saved)


@pytest.mark.parametrize("saved", [0, 3, 5])
def test_a_run_that_draws_the_same_numbers_again_is_not_charged_twice(ledger, saved):
    first = drawn(ledger, 5, SEEDED)
    second = booking(ledger, SEEDED, run=first.run)
    assert second.resume(saved, 12).lost == {}
    assert total(ledger) == STEP * 12


def test_a_run_killed_again_and_again_pays_for_every_draw(ledger):
    first = drawn(ledger, 5)
    for saved, reached in ((3, 4), (3, 9), (0, 2)):
        next_one = booking(ledger, run=first.run)
        next_one.resume(saved, 12)
        for step in range(saved, reached):
            next_one.begin(step)
    last = booking(ledger, run=first.run)
    assert last.resume(9, 12).lost.total() == 5 + 1 + 6 + 2 - 9
    assert total(ledger) == STEP * (5 + 1 + 6 + 2 + 3)


def test_a_run_resumed_from_an_old_copy_after_it_was_over_pays_for_both(ledger):
    first = drawn(ledger, 12)
    first.settle()
    branch = booking(ledger, run=first.run)
    branch.resume(5, 12)
    assert total(ledger) == STEP * (12 + 7)


def test_a_finished_run_that_is_looked_at_again_adds_no_row(ledger):
    first = drawn(ledger, 12)
    first.settle()
    before = ledger.entries()
    again = booking(ledger, run=first.run)
    assert again.resume(12, 12) == (12, {}, 0)
    again.settle()
    assert ledger.entries() == before


def test_a_run_killed_between_its_last_step_and_its_settlement_is_settled_when_it_is_looked_at(ledger):
    first = drawn(ledger, 12)
    booking(ledger, run=first.run).resume(12, 12)
    assert ledger.account("adult").charges[0].is_settled
    assert total(ledger) == STEP * 12


def test_steps_of_which_nothing_left_the_process_are_forgiven_on_record(ledger):
    first = drawn(ledger, 5)
    second = booking(ledger, run=first.run)
    assert second.resume(3, 12, nothing_left=True) == (12, {}, 2)
    assert total(ledger) == STEP * 12
    assert ledger.entries()[-1].content["forgiven"] == 2


def test_what_was_settled_is_never_forgiven(ledger):
    first = drawn(ledger, 8)
    first.settle()
    second = booking(ledger, run=first.run)
    assert second.resume(3, 12, nothing_left=True).forgiven == 0
    assert total(ledger) == STEP * (8 + 9)


def test_whoever_is_overtaken_draws_nothing_more(ledger):
    first = drawn(ledger, 5)
    second = booking(ledger, run=first.run)
    second.resume(3, 12)
    with pytest.raises(OutOfOrder, match="goes on in another process since"):
        first.begin(5)
    with pytest.raises(OutOfOrder, match="goes on in another process"):
        first.settle()
    second.begin(3)


def test_a_run_that_was_settled_from_outside_draws_nothing_more(ledger):
    first = drawn(ledger, 5)
    assert ledger.settle(first.run) == STEP * 5
    with pytest.raises(OutOfOrder, match="was settled since"):
        first.begin(5)
    assert ledger.settle(first.run) == STEP * 5
    with pytest.raises(InvalidArgument, match="knows no run 'none'"):
        ledger.settle("none")


def test_a_run_may_go_on_after_it_settled_by_reserving_anew(ledger):
    first = drawn(ledger, 5)
    first.settle()
    first.begin(5)
    assert total(ledger) == STEP * 12


def test_a_run_that_does_not_fit_is_refused_before_its_first_step(ledger):
    ledger.set_budget("adult", Budget(curve(STEP * 11).epsilon(1e-5), 1e-5))
    one = booking(ledger)
    with pytest.raises(BudgetExceeded, match="stop after 11 of 12 steps"):
        one.check()
    with pytest.raises(BudgetExceeded, match="stop after 11 of 12 steps"):
        one.begin(0)
    assert total(ledger) == Gaussian(1.0) * 0


def test_a_resumed_run_is_cut_to_what_the_data_set_still_has(ledger):
    ledger.set_budget("adult", Budget(curve(STEP * 14).epsilon(1e-5), 1e-5))
    first = drawn(ledger, 5)
    second = booking(ledger, run=first.run)
    assert second.resume(0, 12).stop == 9
    with pytest.raises(OutOfOrder, match="Step 9 is not reserved"):
        second.begin(9)
    third = booking(ledger, run=first.run)
    assert third.resume(0, 9).stop == 9
    assert total(ledger) == STEP * 14


def test_a_resumed_run_is_cut_to_its_own_budget(ledger):
    own = Budget(curve(STEP * 12).epsilon(1e-5), 1e-5)
    first = drawn(ledger, 5, own=own)
    assert booking(ledger, run=first.run, own=own).resume(3, 12).stop == 10


def test_a_run_with_nothing_left_to_spend_ends_where_it_was_saved(ledger):
    ledger.set_budget("adult", Budget(curve(STEP * 12).epsilon(1e-5), 1e-5))
    first = drawn(ledger, 12)
    assert booking(ledger, run=first.run).resume(3, 12).stop == 3
    assert ledger.account("adult").charges[0].is_settled
    assert total(ledger) == STEP * 12


def test_a_run_that_comes_late_brings_along_what_it_released(ledger):
    late = booking(ledger)
    late.resume(4, 12, drawn=[(0, 4), (2, 3)])
    assert total(ledger) == STEP * 13


def test_a_long_run_is_marked_some_steps_at_a_time(ledger):
    long = Course((Block(STEP, 5000),))
    first = drawn(ledger, 7, long)
    second = booking(ledger, long, run=first.run)
    assert sorted(second.resume(3, 5000).lost) == [3, 4, 5, 6, 7, 8, 9]


def test_two_runs_share_one_budget(ledger):
    ledger.set_budget("adult", Budget(curve(STEP * 30).epsilon(1e-5), 1e-5))
    drawn(ledger, 3)
    second = drawn(ledger, 3)
    with pytest.raises(BudgetExceeded, match="stop after 6 of 12 steps"):
        booking(ledger).begin(0)
    second.settle()
    booking(ledger).begin(0)
    assert total(ledger) == STEP * (12 + 3 + 12)


def test_a_saved_run_finds_its_ledger_again(file, tmp_path):
    first = drawn(file, 5)
    saved = json.loads(json.dumps(first.saved()))
    assert ledger_of(saved, None) == file
    moved = Ledger(file.path.rename(tmp_path / "moved.ledger"))
    assert ledger_of(saved, moved) == moved
    with pytest.raises(TacitError, match="not there any more"):
        ledger_of(saved, None)
    with pytest.raises(TacitError, match="charged to another ledger"):
        ledger_of(saved, Ledger(tmp_path / "another.ledger"))


def test_an_old_copy_of_the_ledger_is_recognised(file):
    file.spend("adult", STEP)
    copy = file.path.read_bytes()
    first = drawn(file, 5)
    saved = first.saved()
    first.settle()
    file.path.write_bytes(copy)
    with pytest.raises(BadLedger, match="has lost entry 2"):
        ledger_of(saved, None)
    file.spend("adult", EpsilonDelta(0.1))
    with pytest.raises(BadLedger, match="has lost entry 2"):
        ledger_of(saved, None)
