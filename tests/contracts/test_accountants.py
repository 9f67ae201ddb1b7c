"""What every accountant keeps to. A new one is held to it by being listed."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    ACCOUNTANTS,
    Adaptive,
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    RandomizedResponse,
    ShuffledReports,
    StudentT,
    Unproven,
    curve,
    gdp,
)
from tacit.errors import InvalidArgument, NotProven

DELTA = 1e-6
EVERY = pytest.mark.parametrize("by", ACCOUNTANTS)
# The central limit theorem is an approximation: it promises nothing.
CERTIFIED = pytest.mark.parametrize("by", [name for name, one in ACCOUNTANTS.items() if not one.is_asymptotic])

multipliers = st.floats(0.5, 20)
rates = st.floats(-3, -0.1).map(lambda exponent: 10.0**exponent)
counts = st.integers(100, 3000)
# Two bounds of the same thing by different roads may differ by this much.
SLACK = 1 + 1e-9


def sampled(multiplier, rate, steps):
    return Gaussian(multiplier).sampled(rate) * steps


def test_the_suite_covers_the_four_accountants():
    assert set(ACCOUNTANTS) == {"pld", "rdp", "moments", "clt"}


@pytest.mark.slow
@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts, st.integers(1, 1000))
def test_more_steps_cost_no_less(by, multiplier, rate, steps, more):
    fewer = curve(sampled(multiplier, rate, steps), by).epsilon(DELTA)
    assert fewer <= curve(sampled(multiplier, rate, steps + more), by).epsilon(DELTA) * SLACK


@pytest.mark.slow
@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts, st.floats(1.001, 3))
def test_more_noise_costs_no_more(by, multiplier, rate, steps, factor):
    quiet = curve(sampled(multiplier, rate, steps), by).epsilon(DELTA)
    assert curve(sampled(multiplier * factor, rate, steps), by).epsilon(DELTA) <= quiet * SLACK


@pytest.mark.slow
@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts, st.floats(0.1, 0.999))
def test_smaller_lots_cost_no_more(by, multiplier, rate, steps, factor):
    large = curve(sampled(multiplier, rate, steps), by).epsilon(DELTA)
    assert curve(sampled(multiplier, rate * factor, steps), by).epsilon(DELTA) <= large * SLACK


@pytest.mark.slow
@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts)
def test_a_larger_delta_needs_no_larger_epsilon(by, multiplier, rate, steps):
    privacy = curve(sampled(multiplier, rate, steps), by)
    found = [privacy.epsilon(delta) for delta in (1e-10, 1e-6, 1e-3)]
    assert found[2] <= found[1] * SLACK <= found[0] * SLACK**2


@pytest.mark.slow
@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts)
def test_a_larger_epsilon_needs_no_larger_delta(by, multiplier, rate, steps):
    privacy = curve(sampled(multiplier, rate, steps), by)
    found = [privacy.delta(epsilon) for epsilon in (0.0, 0.5, 2.0, 8.0)]
    assert all(0 <= value <= 1 for value in found)
    assert all(later <= earlier * SLACK for earlier, later in itertools.pairwise(found))


@EVERY
@settings(max_examples=6)
@given(multipliers, rates, counts)
def test_composing_more_costs_no_less(by, multiplier, rate, steps):
    alone = curve(sampled(multiplier, rate, steps), by).epsilon(DELTA)
    assert alone <= curve(sampled(multiplier, rate, steps) + Gaussian(5.0), by).epsilon(DELTA) * SLACK


@EVERY
def test_the_order_of_composition_does_not_matter(by):
    parts = [sampled(1.0, 0.05, 20), Gaussian(4.0), sampled(2.0, 0.01, 300)]
    one = curve(parts[0] + parts[1] + parts[2], by).epsilon(DELTA)
    assert curve(parts[2] + parts[0] + parts[1], by).epsilon(DELTA) == pytest.approx(one, rel=1e-12)


@EVERY
@pytest.mark.parametrize("event", [sampled(1.0, 0.1, 0), Gaussian(0.5) * 0, (Gaussian(1.0) + Laplace(1.0)) * 0])
def test_zero_steps_cost_nothing(by, event):
    assert curve(event, by).epsilon(DELTA) == 0
    assert curve(event, by).delta(0.0) == 0


@EVERY
def test_zero_steps_add_nothing(by):
    event = sampled(1.0, 0.05, 20)
    assert curve(event + Gaussian(0.1) * 0, by).epsilon(DELTA) == curve(event, by).epsilon(DELTA)


WRAPPERS = {
    "bare": lambda event: event,
    "sampled": lambda event: event.sampled(0.1),
    "repeated": lambda event: event * 3,
    "composed": lambda event: Gaussian(1.0) + event,
    "deep": lambda event: (Gaussian(1.0) + (event.sampled(0.5) * 2 + Gaussian(2.0))).sampled(0.1) * 7,
}
EVERYWHERE = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


@EVERY
@EVERYWHERE
def test_what_is_unproven_is_refused_wherever_it_stands(by, wrap):
    with pytest.raises(NotProven, match="claimed to be private, but nobody has shown it"):
        curve(wrap(Unproven("private", "nobody has shown it")), by)


@EVERY
@EVERYWHERE
def test_a_schedule_chosen_from_releases_is_refused_wherever_it_stands(by, wrap):
    with pytest.raises(NotProven, match="chosen after seeing earlier releases"):
        curve(wrap(Adaptive(Gaussian(1.0))), by)


@pytest.mark.slow
@EVERY
def test_repeating_is_composing_with_itself(by):
    thrice = curve(sampled(1.1, 0.01, 3), by).epsilon(DELTA)
    apart = curve(sampled(1.1, 0.01, 1) + sampled(1.1, 0.01, 2), by).epsilon(DELTA)
    assert apart == pytest.approx(thrice, rel=1e-12)


@pytest.mark.parametrize("by", ["pld", "rdp"])
def test_pure_noise_never_costs_more_than_its_pure_bound(by):
    assert curve(Laplace(2.0) * 4, by).epsilon(DELTA) <= 4 * 0.5 * (1 + 1e-12)


def test_an_unknown_accountant_is_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"by must be one of 'clt', 'moments', 'pld', 'rdp'\. Got 'magic'"):
        curve(Gaussian(1.0), by="magic")


def test_what_is_no_event_is_refused():
    with pytest.raises(InvalidArgument, match="event must be an event such as Gaussian"):
        curve(1.1)


@EVERY
@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, True, "1e-5", None])
def test_a_delta_outside_its_range_is_refused(by, delta):
    with pytest.raises(InvalidArgument, match=r"delta must be a number strictly between 0 and 1\. Got "):
        curve(Gaussian(1.0), by).epsilon(delta)


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("multiplier", [0.4, 1.0, 30.0])
def test_the_tradeoff_is_between_nothing_and_guessing(by, multiplier):
    privacy = curve(sampled(multiplier, 0.05, 20), by)
    for alpha in (0.0, 0.01, 0.3, 1.0):
        assert 0 <= privacy.tradeoff(alpha) <= 1 - alpha + 1e-15


@CERTIFIED
@settings(max_examples=25)
@given(st.floats(0.3, 100), st.integers(1, 10_000), st.floats(-12, -1).map(lambda exponent: 10.0**exponent))
def test_never_below_the_exact_gaussian(by, multiplier, steps, delta):
    exact = gdp.epsilon(delta, math.sqrt(steps) / multiplier)
    assert curve(Gaussian(multiplier) * steps, by).epsilon(delta) >= exact * (1 - 1e-12)


@pytest.mark.slow
@CERTIFIED
@settings(max_examples=25)
@given(st.floats(0.3, 20), rates, st.floats(-12, -3).map(lambda exponent: 10.0**exponent))
def test_never_below_the_exact_sampled_step(by, multiplier, rate, delta):
    inside = gdp.epsilon(delta / rate, 1 / multiplier) if delta < rate else 0.0
    exact = math.log1p(rate * math.expm1(inside))
    assert curve(Gaussian(multiplier).sampled(rate), by).epsilon(delta) >= exact * (1 - 1e-9)


@CERTIFIED
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_never_below_the_exact_randomized_response(by, steps):
    likely = 1 / (1 + math.exp(-0.5))

    def exact(epsilon):
        return sum(
            math.comb(steps, k)
            * likely**k
            * (1 - likely) ** (steps - k)
            * max(0.0, -math.expm1(epsilon - 0.5 * (2 * k - steps)))
            for k in range(steps + 1)
        )

    epsilon = curve(RandomizedResponse(0.5) * steps, by).epsilon(1e-4)
    assert exact(epsilon) <= 1e-4 * (1 + 1e-9)


@CERTIFIED
@pytest.mark.parametrize("multiplier", [0.8, 3.0])
def test_never_below_the_exact_laplace(by, multiplier):
    # One release: delta = 1 - e^{(eps - 1/multiplier) / 2}.
    exact = 1 / multiplier + 2 * math.log1p(-1e-3)
    assert curve(Laplace(multiplier), by).epsilon(1e-3) >= exact * (1 - 1e-9)


@pytest.mark.slow
@CERTIFIED
@pytest.mark.parametrize(
    "event",
    [
        sampled(1.1, 256 / 60000, 14062),
        sampled(0.6, 0.05, 100) + Gaussian(3.0),
        StudentT(9.0, 0.9, (0.6, 0.8)).sampled(0.01) * 500,
        Laplace(2.0) * 5,
        RandomizedResponse(0.4, 4, Adjacency.ADD_REMOVE).sampled(0.2) * 10 + EpsilonDelta(0.1) * 3,
        ShuffledReports(RandomizedResponse(1.0), 500) * 3 + Gaussian(8.0, Adjacency.REPLACE_ONE),
    ],
    ids=["published", "mixed", "student_t", "laplace", "responses", "shuffled"],
)
def test_never_below_the_certified_lower_bound(by, event):
    assert curve(event, by).epsilon(DELTA) >= curve(event).epsilon_bounds(DELTA)[0]


@CERTIFIED
def test_the_tighter_accountant_is_below_the_looser_ones(by):
    event = sampled(1.1, 256 / 60000, 14062)
    assert curve(event, "pld").epsilon(DELTA) <= curve(event, by).epsilon(DELTA)
