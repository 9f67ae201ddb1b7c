"""Shuffling: published numbers, exact small cases, and what every accountant makes of the event."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import (
    ACCOUNTANTS,
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    RandomizedResponse,
    ShuffledReports,
    Unproven,
    curve,
    from_json,
    gdp,
    shuffle,
)
from tacit.errors import AdjacencyMismatch, InvalidArgument, NotAccountable, NotProven

REPLACE = Adjacency.REPLACE_ONE

# population, epsilon of one report, its delta, closed form, delta there, numerical bound, delta there, 2023 form
TABLE = [
    (45222, 2.0, 1e-11, 0.2531891921, 6.104754968e-6, 0.0607584334, 5.995886263e-6, 0.1963071628),
    (45222, 3.0, 1e-11, 0.4484273798, 6.189212333e-6, 0.1264512588, 5.989428739e-6, 0.3431017292),
    (70000, 4.0, 1e-11, 0.5878423439, 6.978020121e-6, 0.1840370050, 6.555558463e-6, 0.4508745647),
]
published = pytest.mark.parametrize(
    ("n", "local", "delta0", "closed", "at_closed", "numeric", "at_numeric", "later"), TABLE
)


@published
def test_the_closed_forms_are_the_published_ones(n, local, delta0, closed, at_closed, numeric, at_numeric, later):
    found = shuffle.closed_form_epsilon(5e-6, local_epsilon=local, population=n)
    assert found == pytest.approx(closed, rel=1e-8)
    added = shuffle.added_delta(found, local_epsilon=local, local_delta=delta0, population=n)
    assert 5e-6 + added == pytest.approx(at_closed, rel=1e-8)
    assert shuffle.optimistic_epsilon(5e-6, local_epsilon=local, population=n) == pytest.approx(later, rel=1e-8)


@published
def test_the_clone_bound_is_just_above_the_published_one(
    n, local, delta0, closed, at_closed, numeric, at_numeric, later
):
    found = shuffle.clone_epsilon(5e-6, local_epsilon=local, population=n)
    assert numeric <= found <= numeric * 1.002
    added = shuffle.added_delta(found, local_epsilon=local, local_delta=delta0, population=n)
    assert 5e-6 + added == pytest.approx(at_numeric, rel=1e-4)
    event = ShuffledReports(EpsilonDelta(local, delta0, REPLACE), n)
    assert curve(event).epsilon(at_numeric) == pytest.approx(found, rel=1e-3)


def test_where_the_closed_form_does_not_hold_shuffling_counts_for_nothing_and_the_clone_bound_still_holds():
    assert shuffle.closed_form_epsilon(5e-6, local_epsilon=2.0, population=1000) == 2.0
    found = shuffle.clone_epsilon(5e-6, local_epsilon=2.0, population=1000)
    assert 0.4917404809 <= found <= 0.4927


def test_a_provable_quarter_needs_460_times_the_noise_that_kang_et_al_prescribe():
    event = ShuffledReports(EpsilonDelta(4.0, 1e-11, REPLACE), 45222)
    assert 0.23363 <= curve(event).epsilon(6.0328282e-6) <= 0.2340
    assert 2 / gdp.mu(3.0, 1e-11) / 0.009490910413942571 == pytest.approx(458, abs=1)


def slow_clone_delta(epsilon, local_epsilon, population):
    """The hockey-stick divergence of the two counts, outcome by outcome."""
    likely, rate = 1 / (1 + math.exp(-local_epsilon)), math.exp(-local_epsilon)
    total = 0.0
    for clones in range(population):
        # With k of the clones and the example's own answer on one side, k - 1 or k of the clones are there.
        fair = stats.binom.pmf(np.arange(-1, clones + 2), clones, 0.5)
        p = likely * fair[:-1] + (1 - likely) * fair[1:]
        q = (1 - likely) * fair[:-1] + likely * fair[1:]
        gain = np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
        total += stats.binom.pmf(clones, population - 1, rate) * gain
    return total


@pytest.mark.parametrize("population", [1, 2, 7, 60])
@pytest.mark.parametrize("local", [0.05, 1.0, 4.0])
def test_the_clone_bound_is_the_slow_sum(population, local):
    for share in (0.0, 0.1, 0.5, 0.95):
        slow = slow_clone_delta(share * local, local, population)
        fast = shuffle.clone_delta(share * local, local_epsilon=local, population=population)
        assert slow <= fast <= slow * (1 + 1e-8) + 1e-12


def test_rounding_the_clones_down_costs_little():
    slow = slow_clone_delta(0.2, 1.0, 1000)
    assert slow <= shuffle.clone_delta(0.2, local_epsilon=1.0, population=1000) <= slow * 1.02


def shuffled_responses_delta(epsilon, local_epsilon, others):
    """Exact delta of shuffled binary answers, of which these others hold a 1: how many say 1 is all there is to see."""
    likely = 1 / (1 + math.exp(-local_epsilon))

    def answers(bits):
        law = [1.0]
        for bit in bits:
            says_one = likely if bit else 1 - likely
            law = [
                (law[k] * (1 - says_one) if k < len(law) else 0.0) + (law[k - 1] * says_one if k else 0.0)
                for k in range(len(law) + 1)
            ]
        return law

    p, q = answers([*others, 1]), answers([*others, 0])
    forth = sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(p, q, strict=True))
    back = sum(max(b - math.exp(epsilon) * a, 0.0) for a, b in zip(p, q, strict=True))
    return max(forth, back)


@settings(max_examples=60)
@given(st.integers(1, 60), st.floats(0.1, 4.0), st.floats(0, 1), st.data())
def test_real_shuffled_answers_are_never_worse_than_the_bound(n, local, share, data):
    ones = data.draw(st.integers(0, n - 1))
    exact = shuffled_responses_delta(share * local, local, [1] * ones + [0] * (n - 1 - ones))
    bound = curve(ShuffledReports(RandomizedResponse(local), n)).delta(share * local)
    assert exact <= bound * (1 + 1e-9) + 1e-15


def revealing_delta(epsilon, local_epsilon, local_delta, others):
    """Exact delta of shuffled reports that show their bit with probability local_delta, else answer at random."""
    likely = (1 - local_delta) / (1 + math.exp(-local_epsilon))
    law = {
        bit: {("sure", bit): local_delta, ("says", bit): likely, ("says", 1 - bit): 1 - local_delta - likely}
        for bit in (0, 1)
    }

    def seen(bits):
        total: dict[tuple, float] = {}
        for outcome in itertools.product(*(law[bit].items() for bit in bits)):
            key = tuple(sorted(report for report, _ in outcome))
            total[key] = total.get(key, 0.0) + math.prod(mass for _, mass in outcome)
        return total

    p, q = seen([*others, 1]), seen([*others, 0])
    return sum(max(mass - math.exp(epsilon) * q.get(key, 0.0), 0.0) for key, mass in p.items())


@pytest.mark.parametrize("others", [(0, 0, 0), (0, 1, 1), (1, 1, 1, 1, 0)])
@pytest.mark.parametrize("local_delta", [1e-3, 0.05])
def test_reports_that_sometimes_reveal_all_are_never_worse_than_the_bound(others, local_delta):
    event = ShuffledReports(EpsilonDelta(1.5, local_delta, REPLACE), len(others) + 1)
    for epsilon in (0.0, 0.3, 0.8, 1.4):
        assert revealing_delta(epsilon, 1.5, local_delta, others) <= curve(event).delta(epsilon)


@settings(max_examples=30)
@given(st.integers(100, 10**8), st.floats(0.05, 8.0), st.floats(-12, -2).map(lambda power: 10.0**power))
def test_the_clone_bound_is_below_the_closed_form_and_below_one_report(n, local, delta):
    found = shuffle.clone_epsilon(delta, local_epsilon=local, population=n)
    assert found <= shuffle.closed_form_epsilon(delta, local_epsilon=local, population=n) <= local
    assert shuffle.clone_delta(found, local_epsilon=local, population=n) <= delta


@settings(max_examples=30)
@given(st.integers(2, 10**6), st.floats(0.1, 5.0), st.floats(1.01, 3), st.floats(0.02, 0.9))
def test_more_people_and_more_noise_hide_better(n, local, factor, share):
    epsilon = share * local
    here = shuffle.clone_delta(epsilon, local_epsilon=local, population=n)
    # Rounding the clones down may cost a per cent here and none there.
    assert shuffle.clone_delta(epsilon, local_epsilon=local, population=int(n * factor) + 1) <= here * 1.05 + 1e-12
    assert shuffle.clone_delta(epsilon, local_epsilon=local * factor, population=n) >= here * 0.95 - 1e-12


REPORT = Gaussian(1 / 0.31268385, REPLACE) + RandomizedResponse(1.0)


def test_features_and_label_together_cost_less_than_their_epsilons_added():
    event = ShuffledReports(REPORT, 45222)
    assert curve(event).epsilon(5.989428739e-6) < 0.1264512588


def test_one_report_alone_costs_what_it_costs_by_itself():
    alone = curve(REPORT)
    for delta in (1e-3, 1e-6):
        shuffled = curve(ShuffledReports(REPORT, 1)).epsilon(delta)
        assert shuffled == pytest.approx(alone.epsilon(delta), rel=1e-6)


def test_noise_of_the_whole_sum_is_a_lower_bound():
    event = ShuffledReports(Gaussian(2.0, REPLACE), 10_000)
    lower, upper = curve(event).epsilon_bounds(1e-6)
    assert lower == pytest.approx(gdp.epsilon(1e-6, 0.005), rel=1e-6)
    assert lower < upper < gdp.epsilon(1e-6, 0.5)


@pytest.mark.slow
def test_two_rounds_cost_more_than_one_and_less_than_twice():
    event = ShuffledReports(REPORT, 5000)
    once = curve(event).epsilon(1e-6)
    twice = curve(event * 2).epsilon(2e-6)
    assert once < twice < 2 * curve(event).epsilon(1e-6)


@pytest.mark.slow
def test_shuffled_reports_compose_with_other_releases():
    reports = ShuffledReports(RandomizedResponse(1.0), 2000)
    together = curve(reports + Gaussian(5.0, REPLACE)).epsilon(1e-6)
    assert gdp.epsilon(1e-6, 0.2) < together < gdp.epsilon(5e-7, 0.2) + curve(reports).epsilon(5e-7)


def test_bounded_noise_counts_as_its_largest_loss():
    laplace = curve(ShuffledReports(Laplace(0.5, REPLACE), 3000)).epsilon(1e-6)
    assert laplace == pytest.approx(
        curve(ShuffledReports(EpsilonDelta(2.0, 0.0, REPLACE), 3000)).epsilon(1e-6), rel=1e-9
    )


@pytest.mark.slow
def test_renyi_accounting_is_above_the_certified_bound_and_refuses_what_it_cannot_do():
    pure = ShuffledReports(RandomizedResponse(1.0), 2000) * 5
    assert curve(pure, by="rdp").epsilon(1e-6) > curve(pure).epsilon(1e-6)
    with pytest.raises(NotAccountable, match="Rényi divergences of ShuffledReports are infinite"):
        curve(ShuffledReports(REPORT, 2000), by="rdp").epsilon(1e-6)


def test_the_central_limit_theorem_says_nothing_about_it():
    with pytest.raises(NotAccountable, match="ShuffledReports"):
        curve(ShuffledReports(REPORT, 2000), by="clt")


@pytest.mark.parametrize("by", ACCOUNTANTS)
def test_reports_without_a_proof_are_refused(by):
    with pytest.raises(NotProven, match="nobody has shown it"):
        curve(ShuffledReports(Unproven("private", "nobody has shown it", REPLACE), 10), by)


@pytest.mark.parametrize("by", ["pld", "rdp", "moments"])
def test_a_lot_of_shuffled_reports_is_refused(by):
    with pytest.raises(NotAccountable, match="Shuffle the reports of everyone"):
        curve(ShuffledReports(RandomizedResponse(1.0), 2000).sampled(0.1), by).epsilon(1e-6)


def test_a_group_is_chained():
    privacy = curve(ShuffledReports(RandomizedResponse(1.0), 2000))
    assert privacy.epsilon(1e-6) < privacy.group(2).epsilon(1e-6) < 3 * privacy.epsilon(1e-8)


def test_a_report_is_about_replacing_its_example():
    with pytest.raises(AdjacencyMismatch, match="must be stated under replace one example"):
        ShuffledReports(Gaussian(1.0), 100)
    assert ShuffledReports(REPORT, 100).adjacency is REPLACE


@pytest.mark.parametrize("population", [0, -1, 2.5, math.nan, True])
def test_the_population_is_a_whole_number(population):
    with pytest.raises(InvalidArgument, match="population must be a whole number of at least 1"):
        ShuffledReports(REPORT, population)


def test_the_event_is_read_back_as_it_was_written():
    event = ShuffledReports(REPORT, 45222) * 2 + Gaussian(3.0, REPLACE)
    assert from_json(event.to_json()) == event
    assert '"event": "shuffled_reports", "population": 45222' in event.to_json()
