"""Any history of runs, crashes, resumptions and budgets, against a count of draws kept by hand."""

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.accounting import Gaussian, Repeated, curve
from tacit.budget import Budget
from tacit.errors import BudgetExceeded, OutOfOrder
from tacit.ledger import Block, Course, Ledger, Reservation

STEP, STEPS, ALLOWED = Gaussian(30.0), 6, 14
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["begin", "draw", "draw", "resume", "settle", "stale"]), st.integers(0, 5)), max_size=10
)


@dataclass
class Run:
    """A run, the process that goes on with it, the one before, and every draw of it so far."""

    booking: Reservation
    is_seeded: bool
    at: int = 0
    stop: int = STEPS
    stale: Reservation | None = None
    draws: list[int] = field(default_factory=list)

    def spent(self) -> int:
        return len(set(self.draws)) if self.is_seeded else len(self.draws)


def draw(run: Run, steps: int) -> None:
    for _ in range(min(steps, run.stop - run.at)):
        run.booking.begin(run.at)
        run.draws.append(run.at)
        run.at += 1


def act(ledger: Ledger, runs: list[Run], action: str, number: int) -> None:
    if action == "begin" or not runs:
        is_seeded = number % 2 == 1
        course = Course((Block(STEP, STEPS),), is_seeded)
        runs.append(Run(Reservation(ledger, course, dataset="adult"), is_seeded))
        return
    run = runs[number % len(runs)]
    if action == "draw":
        draw(run, number)
    elif action == "resume" and run.draws:
        saved = min(number, run.at)
        course = Course((Block(STEP, STEPS),), run.is_seeded)
        run.stale, run.booking = run.booking, Reservation(ledger, course, dataset="adult", run=run.booking.run)
        run.stop, run.at = run.booking.resume(saved, run.stop).stop, saved
    elif action == "settle":
        run.booking.settle()
    elif action == "stale" and run.stale is not None and run.stale._place is not None and run.stale._marked < STEPS:
        with pytest.raises(OutOfOrder):
            run.stale.begin(run.stale._marked)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS)
def test_the_ledger_never_says_less_than_was_drawn_nor_more_than_is_allowed(places, actions):
    ledger = Ledger(places())
    ledger.set_budget("adult", Budget(curve(STEP * ALLOWED).epsilon(1e-5), 1e-5))
    runs: list[Run] = []
    for action, number in actions:
        with suppress(BudgetExceeded):
            act(ledger, runs, action, number)
        charged = ledger.account("adult").total
        assert isinstance(charged, Repeated)
        assert sum(run.spent() for run in runs) <= charged.times <= ALLOWED
    for run in runs:
        run.booking.settle()
    assert ledger.account("adult").total.times == sum(run.spent() for run in runs)
    ledger.verify()
