"""What is spent and what is left, against closed forms of Gaussian DP and the accountant on the plain sum."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import (
    Adjacency,
    Composed,
    EpsilonDelta,
    Gaussian,
    Laplace,
    RandomizedResponse,
    ShuffledReports,
    Unproven,
    curve,
    gdp,
)
from tacit.accounting.rdp import RenyiProfile
from tacit.budget import Budget, Terms
from tacit.errors import AdjacencyMismatch, BudgetExceeded, InvalidArgument, NotProven
from tacit.ledger import Account, Charge, Course
from tacit.ledger.account import find_largest, restate

BUDGET = Budget(epsilon=1, delta=1e-5)
MU = float(gdp.mu(1, 1e-5))
RUN = Gaussian(1.1).sampled(256 / 60_000) * 500
REPLACE = Adjacency.REPLACE_ONE


def account(*events, terms=Terms(BUDGET)) -> Account:  # noqa: B008 - frozen
    charges = [Charge(f"run {i}", event, True, "2026", "me", {}) for i, event in enumerate(events)]
    return Account("adult", terms, tuple(charges))


@pytest.mark.slow
def test_the_total_is_that_of_the_accountant_over_all_runs():
    runs = [RUN, Gaussian(0.9).sampled(0.01) * 100, Laplace(2.0), EpsilonDelta(0.1, 1e-7)]
    assert account(*runs).epsilon(1e-5) == pytest.approx(curve(Composed(tuple(runs))).epsilon(1e-5), rel=1e-9)


def test_nothing_spent_is_nothing():
    assert account().epsilon(1e-5) == 0
    assert account().more_like_last() is None
    assert account().remaining().epsilon == pytest.approx(1, rel=1e-4)


def test_what_remains_after_a_gaussian_release_is_the_rest_of_the_squares():
    left = account(Gaussian(5.0)).remaining()
    assert left.delta == 1e-5
    assert left.epsilon == pytest.approx(float(gdp.epsilon(1e-5, math.sqrt(MU**2 - 1 / 25))), rel=2e-3)
    assert account(Gaussian(5.0)).allows(Gaussian(1 / float(gdp.mu(left.epsilon, 1e-5))))


def test_nothing_remains_of_a_budget_that_is_spent():
    assert account(Gaussian(1 / MU * 0.999)).remaining() is None
    assert account(Gaussian(1.0)).remaining() is None


def test_as_many_runs_like_the_last_as_the_squares_allow():
    small = Gaussian(40.0)
    assert account(small).more_like_last() == math.floor((MU * 40) ** 2) - 1
    assert account(Gaussian(1.0)).more_like_last() == 0


def test_no_run_more_is_allowed_than_is_said():
    here = account(RUN)
    more = here.more_like_last()
    assert more > 0
    assert here.allows(RUN * more)
    assert not here.allows(RUN * (more + 1))


def test_a_refusal_names_the_multiplier_that_fits():
    here = account(Gaussian(5.0))
    with pytest.raises(BudgetExceeded, match=r"to epsilon 1\.061 .* 0\.7255 is spent .* multiplier to 5\.6033\.$"):
        raise here.refusal(Course.of(Gaussian(5.0)))
    assert here.allows(Gaussian(5.6033))
    assert 1 / math.sqrt(MU**2 - 1 / 25) == pytest.approx(5.6033, rel=1e-4)


def test_a_refusal_of_a_course_names_the_steps_that_fit():
    from tacit.ledger import Block

    course = Course((Block(Gaussian(20.0), 100),))
    message = str(account(Gaussian(10.0)).refusal(course))
    most = math.floor((MU**2 - 1 / 100) * 400)
    assert f"or stop after {most} of 100 steps." in message
    found = float(message.partition("multiplier to ")[2].partition(",")[0])
    assert found == pytest.approx(math.sqrt(100 / (MU**2 - 1 / 100)), rel=1e-3)
    assert account(Gaussian(10.0)).allows(Gaussian(found) * 100)


def test_mixed_noise_is_told_a_factor_and_hopeless_releases_are_told_so():
    mixed = Composed((Gaussian(2.0), Laplace(3.0)))
    assert "Raise the multiplier by a factor of " in str(account().refusal(Course.of(mixed)))
    assert str(account().refusal(Course.of(EpsilonDelta(2.0, 2e-5)))).endswith("No release of this kind fits any more.")


def test_a_pair_is_told_the_epsilon_that_fits():
    said = str(account(Gaussian(6.0)).refusal(Course.of(EpsilonDelta(2.0, 1e-6))))
    fits = float(said.partition("Lower epsilon to ")[2].rstrip("."))
    assert account(Gaussian(6.0)).allows(EpsilonDelta(fits, 1e-6))
    assert not account(Gaussian(6.0)).allows(EpsilonDelta(fits + 0.01, 1e-6))


def test_a_run_that_costs_exactly_the_budget_is_allowed():
    from tacit.accounting import multiplier_for

    rate = 0.01
    exact = Gaussian(multiplier_for(epsilon=1, delta=1e-5, rate=rate, steps=300)).sampled(rate) * 300
    assert account().allows(exact)
    assert not account().allows(exact + Gaussian(50.0))


def test_without_a_budget_everything_is_allowed_and_nothing_remains():
    free = account(Gaussian(0.1), terms=None)
    assert free.allows(Gaussian(0.1))
    with pytest.raises(InvalidArgument, match="has no budget"):
        free.remaining()


def test_what_is_not_proven_cannot_be_checked_and_makes_everything_infinite():
    claim = Unproven("(1, 1e-5)-DP", "nobody has shown it")
    with pytest.raises(NotProven):
        account().allows(claim)
    spoilt = account(claim, terms=None)
    assert spoilt.epsilon(1e-5) == math.inf
    assert account(claim).remaining() is None
    assert account(claim).more_like_last() == 0


@pytest.mark.parametrize("runs", [1, 3])
def test_the_filter_lets_through_what_its_order_certifies(runs):
    """A filter at one order is the Rényi accountant with that order alone, whose conversion is tested elsewhere."""
    terms = Terms.adaptive(BUDGET)
    for multiplier in (3.0, 4.0, 4.1, 5.0, 6.0, 7.0, 7.2):
        event = Gaussian(multiplier) * runs
        certified = RenyiProfile.of(event, (terms.order,)).epsilon(1e-5).upper
        assert terms.allows(event) == (certified <= 1)


def test_the_filter_is_never_more_generous_than_the_exact_rule():
    exact, filtered = account(RUN), account(RUN, terms=Terms.adaptive(BUDGET, like=RUN))
    assert 0 < filtered.more_like_last() < exact.more_like_last()
    assert 0 < filtered.remaining().epsilon < exact.remaining().epsilon
    assert "held by a Rényi filter of order" in str(filtered.refusal(Course.of(Gaussian(4.5))))


def test_an_adaptive_choice_that_breaks_the_exact_rule_is_stopped_by_the_filter():
    """Release mu = 1; by its outcome choose one of two branches, both of which compose to exactly 13.009.

    The choice between them has delta 1.31e-5 at that epsilon, so the exact rule would have been wrong to allow both.
    """
    first, branches = Gaussian(1.0), (Gaussian(1 / 2.2589), Gaussian(0.45).sampled(0.01) * 300)
    budget = Budget(13.0095, 1e-5)
    exact, filtered = (account(first, terms=terms) for terms in (Terms(budget), Terms.adaptive(budget)))
    assert all(exact.allows(branch) for branch in branches)
    assert not all(filtered.allows(branch) for branch in branches)


def test_what_is_about_an_added_example_counts_twice_for_a_replaced_one():
    mixed = account(Gaussian(20.0), Gaussian(20.0, REPLACE), terms=Terms(BUDGET, REPLACE))
    assert mixed.total.adjacency is REPLACE
    assert mixed.epsilon(1e-5) == pytest.approx(float(gdp.epsilon(1e-5, math.hypot(1 / 10, 1 / 20))), rel=1e-6)


def test_what_is_about_a_replaced_example_says_nothing_about_an_added_one():
    with pytest.raises(AdjacencyMismatch, match="--adjacency replace_one"):
        account().allows(Gaussian(20.0, REPLACE))


def test_without_a_budget_one_replaced_example_makes_all_of_it_so():
    mixed = account(Gaussian(20.0), Gaussian(20.0, REPLACE), terms=None)
    assert mixed.total.adjacency is REPLACE


@pytest.mark.parametrize(
    "event",
    [
        Laplace(3.0),
        EpsilonDelta(0.3, 1e-6),
        RandomizedResponse(0.4, adjacency=Adjacency.ADD_REMOVE),
        Gaussian(2.0),
        Laplace(2.0) + Gaussian(3.0),
    ],
    ids=str,
)
def test_a_statement_about_a_replaced_example_is_never_below_the_truth(event):
    """Two neighbours in a row are a group of two: chaining is what the curve does for groups."""
    replaced = curve(restate(event, REPLACE))
    for epsilon in (0.5, 1.0, 2.0):
        assert replaced.delta(epsilon) >= curve(event).group(2).delta_bounds(epsilon)[0] * (1 - 1e-9)


def test_a_sampled_release_stated_for_a_replaced_example_covers_one_that_turns_round():
    """Neighbours whose differing example pushes by +1 in one and by -1 in the other, integrated numerically."""
    multiplier, rate, x = 1.5, 0.3, np.linspace(-15, 15, 300_001)
    one, other = ((1 - rate) * norm.pdf(x, 0, multiplier) + rate * norm.pdf(x, push, multiplier) for push in (1, -1))
    replaced = curve(restate(Gaussian(multiplier).sampled(rate), REPLACE))
    for epsilon in (0.1, 0.3, 0.6):
        truth = np.trapezoid(np.maximum(one - math.exp(epsilon) * other, 0), x)
        assert truth <= replaced.delta(epsilon) < 2 * truth


@pytest.mark.parametrize("answer", [*range(12), 99, 100])
def test_the_largest_that_fits_is_found(answer):
    assert find_largest(lambda n: n <= answer, 0, 100) == answer
    assert find_largest(lambda n: n <= answer, 100, 3) == 100


def test_what_is_far_too_much_is_never_asked_for():
    asked = []
    assert find_largest(lambda n: asked.append(n) or n <= 9, 0, 10**6) == 9
    assert max(asked) < 20


def test_composed_and_unproven_releases_are_restated_part_by_part():
    unproven = Unproven("(1, 1e-5)-DP", "nobody has proven it")
    restated = restate(Gaussian(2.0) + unproven, Adjacency.REPLACE_ONE)
    assert restated == Gaussian(1.0, Adjacency.REPLACE_ONE) + Unproven(
        "(1, 1e-5)-DP", "nobody has proven it", Adjacency.REPLACE_ONE
    )


def test_shuffled_reports_are_not_restated():
    reports = ShuffledReports(Gaussian(4.0, Adjacency.REPLACE_ONE), 100)
    assert restate(reports, Adjacency.REPLACE_ONE) is reports
    with pytest.raises(AdjacencyMismatch):
        restate(reports, Adjacency.ADD_REMOVE)
