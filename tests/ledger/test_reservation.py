"""A run of twelve steps: what the ledger says at every moment of it."""

import json

import pytest

from tacit.accounting import EpsilonDelta, Gaussian, curve
from tacit.budget import Budget
from tacit.errors import BadLedger, BudgetExceeded, InvalidArgument, OutOfOrder, TacitError
from tacit.ledger import Block, Course, Ledger, Reservation
from tacit.ledger.reservation import find_ledger

STEP = Gaussian(20.0)
COURSE = Course((Block(STEP, 12),))
SEEDED = Course((Block(STEP, 12),), is_repeatable=True)


def booking(ledger, course=COURSE, **settings):
    return Reservation(ledger, course, dataset="adult", **settings)


def drawn(ledger, steps, course=COURSE, **settings):
    """A process that drew so many steps, and was killed."""
    one = booking(ledger, course, **settings)
    for step in range(steps):
        one.begin(step)
    return one


def total(ledger):
    return ledger.account("adult").total


def test_a_run_stays_with_its_data_set(ledger):
    first = drawn(ledger, 5)
    with pytest.raises(InvalidArgument, match="is charged to 'adult'"):
        Reservation(ledger, COURSE, dataset="fresh", run=first.run).resume(5, 12)
    assert ledger.datasets == ("adult",)


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
    with pytest.raises(OutOfOrder, match="continues in another process since"):
        first.begin(5)
    with pytest.raises(OutOfOrder, match="continues in another process"):
        first.settle()
    second.begin(3)


def test_a_run_that_was_settled_from_outside_draws_nothing_more(ledger):
    first = drawn(ledger, 5)
    assert ledger.settle(first.run) == STEP * 5
    with pytest.raises(OutOfOrder, match="was settled since"):
        first.begin(5)
    assert ledger.settle(first.run) == STEP * 5
    with pytest.raises(InvalidArgument, match="has no run 'none'"):
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
    assert find_ledger(saved, None) == file
    moved = Ledger(file.path.rename(tmp_path / "moved.ledger"))
    assert find_ledger(saved, moved) == moved
    with pytest.raises(TacitError, match="does not exist any more"):
        find_ledger(saved, None)
    with pytest.raises(TacitError, match="charged to the ledger that was at"):
        find_ledger(saved, Ledger(tmp_path / "another.ledger"))


def test_an_old_copy_of_the_ledger_is_recognised(file):
    file.spend("adult", STEP)
    copy = file.path.read_bytes()
    first = drawn(file, 5)
    saved = first.saved()
    first.settle()
    file.path.write_bytes(copy)
    with pytest.raises(BadLedger, match="has no entry 2"):
        find_ledger(saved, None)
    file.spend("adult", EpsilonDelta(0.1))
    with pytest.raises(BadLedger, match="has no entry 2"):
        find_ledger(saved, None)
