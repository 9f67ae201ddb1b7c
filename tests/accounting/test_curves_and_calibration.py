"""Properties over wide settings: bounds in order and close, monotone, composable; curves convex; budgets kept."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    RandomizedResponse,
    calibrate,
    curve,
    gdp,
    lot_size_for,
    multiplier_for,
    steps_for,
)
from tacit.errors import Asymptotic, NotAchievable, NotProven

rates = st.floats(-6, 0).map(lambda power: 10.0**power)
steps = st.floats(0, 6).map(lambda power: int(10**power))
multipliers = st.floats(math.log10(0.3), 2).map(lambda power: 10.0**power)
deltas = st.floats(-15, -1).map(lambda power: 10.0**power)


def sampled(multiplier, rate, count):
    return Gaussian(multiplier).sampled(rate) * count


@pytest.mark.slow
@settings(max_examples=20)
@given(multipliers, rates, steps, deltas)
def test_bounds_are_ordered_and_close_over_the_whole_range(multiplier, rate, count, delta):
    privacy = curve(sampled(multiplier, rate, count))
    lower, upper = privacy.epsilon_bounds(delta)
    assert 0 <= lower <= privacy.epsilon_estimate(delta) <= upper < math.inf
    if 0.003 <= upper <= 70:
        assert upper <= lower * 1.02


@pytest.mark.slow
@settings(max_examples=10)
@given(multipliers, rates, steps, deltas)
def test_more_steps_less_noise_and_larger_lots_cost_no_less(multiplier, rate, count, delta):
    lower, upper = curve(sampled(multiplier, rate, count)).epsilon_bounds(delta)
    assert curve(sampled(multiplier, rate, 2 * count)).epsilon(delta) >= lower
    assert curve(sampled(multiplier * 0.8, rate, count)).epsilon(delta) >= lower
    assert curve(sampled(multiplier, rate / 2, count)).epsilon_bounds(delta)[0] <= upper


@pytest.mark.slow
@settings(max_examples=10)
@given(multipliers, rates, steps, deltas)
def test_epsilon_and_delta_are_inverse_to_each_other(multiplier, rate, count, delta):
    privacy = curve(sampled(multiplier, rate, count))
    lower, upper = privacy.epsilon_bounds(delta)
    assert privacy.delta_bounds(upper)[0] <= delta * (1 + 1e-9)
    if 1e-3 < lower < 70:
        assert privacy.delta(lower) >= delta * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=12)
@given(multipliers, rates, st.integers(1, 3000), deltas)
def test_the_order_of_composition_does_not_matter(multiplier, rate, count, delta):
    one, other = sampled(multiplier, rate, count), Gaussian(20.0) + EpsilonDelta(0.05)
    assert curve(one + other).epsilon_bounds(delta) == curve(other + one).epsilon_bounds(delta)


@settings(max_examples=10)
@given(st.floats(0.3, 100), st.integers(1, 1000), deltas)
def test_unsampled_gaussians_are_exact(multiplier, count, delta):
    exact = gdp.epsilon(delta, math.sqrt(count) / multiplier)
    lower, upper = curve(Gaussian(multiplier) * count).epsilon_bounds(delta)
    assert lower <= exact <= upper <= lower * (1 + 1e-9) + 1e-9


@settings(max_examples=10)
@given(multipliers, rates, deltas)
def test_one_sampled_step_has_the_closed_form(multiplier, rate, delta):
    # The hockey stick of a mixture is a scaled hockey stick of the Gaussian pair.
    exact = math.log1p(rate * math.expm1(gdp.epsilon(delta / rate, 1 / multiplier))) if delta < rate else 0.0
    lower, upper = curve(sampled(multiplier, rate, 1)).epsilon_bounds(delta)
    assert lower * (1 - 1e-9) <= exact <= upper * (1 + 1e-9) + 1e-300


def test_randomized_response_against_its_exact_binomial_sum():
    count, epsilon = 40, 0.3
    likely = 1 / (1 + math.exp(-epsilon))
    at = 1.5
    exact = sum(
        math.comb(count, k)
        * likely**k
        * (1 - likely) ** (count - k)
        * max(0.0, 1 - math.exp(at - epsilon * (2 * k - count)))
        for k in range(count + 1)
    )
    lower, upper = curve(RandomizedResponse(epsilon) * count).delta_bounds(at)
    assert lower * (1 - 1e-10) <= exact <= upper * (1 + 1e-10)
    assert upper == pytest.approx(lower, rel=1e-9)


def test_one_laplace_release_is_pure():
    privacy = curve(Laplace(2.0))
    assert privacy.delta(0.5) == 0
    # Closed form for scale b and shift 1: delta(eps) = 1 - exp((eps - 1/b) / 2) below 1/b.
    assert privacy.delta(0.1) == pytest.approx(1 - math.exp((0.1 - 0.5) / 2), rel=2e-5)


ALPHAS = np.array([0.0, 1e-4, 0.001, 0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0])
CURVES = {
    "mnist": sampled(1.1, 256 / 60000, 14062),
    "large": sampled(0.6, 0.05, 300),
    "gaussian": Gaussian(0.8),
    "response": RandomizedResponse(1.0) * 3,
}
# A curve keeps its table: tests of one event share it.
known = cache(curve)


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVES)
def test_the_tradeoff_is_convex_below_the_diagonal_and_within_its_band(name):
    privacy = known(CURVES[name])
    lower, upper = privacy.tradeoff_bounds(ALPHAS)
    assert (lower <= upper).all()
    assert (upper <= 1 - ALPHAS + 1e-15).all()
    slopes = np.diff(lower) / np.diff(ALPHAS)
    assert (np.diff(slopes) >= -1e-9).all()
    assert (upper - lower).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVES)
def test_the_tradeoff_is_its_own_inverse(name):
    privacy = known(CURVES[name])
    alphas = np.array([0.01, 0.05, 0.2, 0.5])
    assert np.asarray(privacy.tradeoff(np.asarray(privacy.tradeoff(alphas)))) == pytest.approx(alphas, abs=0.01)


def test_the_tradeoff_of_one_gaussian_is_never_above_the_exact_one():
    exact = np.asarray(gdp.tradeoff(ALPHAS, 1.25))
    lower, upper = curve(Gaussian(0.8)).tradeoff_bounds(ALPHAS)
    assert (lower <= exact + 1e-12).all()
    assert (exact <= upper + 1e-12).all()
    assert np.abs(exact - lower).max() < 1e-3


def test_an_attacker_with_one_percent_false_alarms_finds_four_percent():
    assert known(CURVES["mnist"]).true_positive_rate(0.01) == pytest.approx(0.040, abs=5e-4)


def test_the_advantage_is_delta_at_zero():
    privacy = known(CURVES["large"])
    assert privacy.advantage() == privacy.delta(0.0)
    half = 0.5 * (1 - privacy.advantage())
    assert privacy.advantage() == pytest.approx(1 - 2 * float(privacy.tradeoff(half)), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("regret", [1e-6, 1e-3])
def test_the_curve_lies_above_that_of_its_mu_less_the_regret(regret):
    privacy = known(CURVES["mnist"])
    floor = np.asarray(gdp.tradeoff(ALPHAS, privacy.mu(regret))) - regret
    assert (np.asarray(privacy.tradeoff_bounds(ALPHAS)[1]) >= floor - 1e-9).all()
    assert privacy.mu(regret) == pytest.approx(0.58, abs=0.01)


def test_over_the_whole_curve_sampling_does_not_lower_mu():
    assert known(CURVES["mnist"]).mu() == pytest.approx(math.sqrt(14062) / 1.1)
    assert curve(Gaussian(0.8)).mu() == pytest.approx(1.25)


def test_a_group_of_k_multiplies_mu_without_sampling():
    assert curve(Gaussian(3.0)).group(3).epsilon(1e-5) == pytest.approx(gdp.epsilon(1e-5, 1.0), rel=1e-9)


def test_a_group_under_sampling_is_between_one_example_and_the_chain():
    single = known(CURVES["mnist"])
    pair = single.group(2).epsilon(1e-5)
    chained = min(2 * single.epsilon(1e-5 / (1 + math.exp(e))) for e in (single.epsilon(1e-6),))
    assert single.epsilon(1e-5) < pair < chained


def test_one_sampled_group_against_numerical_integration():
    # Two examples at rate r: N(j m, 1) with binomial weights against N(0, 1).
    rate, multiplier, epsilon = 0.3, 1.5, 0.7
    x = np.linspace(-12, 14, 2_000_001)
    base = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    mixture = sum(
        math.comb(2, j) * rate**j * (1 - rate) ** (2 - j) * np.exp(-((x - j / multiplier) ** 2) / 2) for j in range(3)
    ) / math.sqrt(2 * math.pi)
    width = x[1] - x[0]
    removed = float(np.maximum(mixture - math.exp(epsilon) * base, 0).sum() * width)
    added = float(np.maximum(base - math.exp(epsilon) * mixture, 0).sum() * width)
    lower, upper = curve(sampled(multiplier, rate, 1)).group(2).delta_bounds(epsilon)
    assert lower - 1e-9 <= max(removed, added) <= upper + 1e-9
    assert upper == pytest.approx(lower, rel=1e-4)


def test_replacing_one_example_costs_more_than_removing_and_less_than_revealing_the_coin():
    event = Gaussian(1.1, Adjacency.REPLACE_ONE).sampled(256 / 60000) * 14062
    lower, upper = curve(event).epsilon_bounds(1e-5)
    # Sensitivity is twice the clip norm, so this is multiplier 2.2 for one hop.
    assert curve(sampled(2.2, 256 / 60000, 14062)).epsilon(1e-5) < lower < upper < 2.2
    assert upper < 1.1 * lower


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "count"),
    [(0.2, 1e-5, 512 / 55000, 6445), (3, 1e-5, 256 / 60000, 14062), (30, 1e-6, 0.3, 50), (1, 1e-5, 1.0, 10)],
)
def test_a_calibrated_multiplier_keeps_the_budget_and_wastes_none(epsilon, delta, rate, count):
    multiplier = multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=count)
    assert curve(sampled(multiplier, rate, count)).epsilon(delta) <= epsilon
    assert curve(sampled(multiplier * 0.9999, rate, count)).epsilon_bounds(delta)[0] > epsilon


@pytest.mark.parametrize("by", ["rdp", "moments"])
def test_calibration_by_a_looser_accountant_asks_for_more_noise(by):
    budget = {"epsilon": 3, "delta": 1e-5, "rate": 256 / 60000, "steps": 14062}
    multiplier = multiplier_for(**budget, by=by)
    assert multiplier > multiplier_for(**budget)
    assert curve(sampled(multiplier, 256 / 60000, 14062), by=by).epsilon(1e-5) <= 3


def test_the_most_steps_are_the_last_that_fit():
    found = steps_for(epsilon=3, delta=1e-5, rate=256 / 60000, multiplier=1.1)
    assert curve(sampled(1.1, 256 / 60000, found)).epsilon(1e-5) <= 3
    assert curve(sampled(1.1, 256 / 60000, found + 1)).epsilon_bounds(1e-5)[0] > 3


@pytest.mark.slow
def test_the_largest_lot_is_the_last_that_fits():
    found = lot_size_for(epsilon=3, delta=1e-5, population=60_000, steps=14_062, multiplier=1.1)
    assert curve(sampled(1.1, found / 60_000, 14062)).epsilon(1e-5) <= 3
    assert curve(sampled(1.1, (found + 1) / 60_000, 14062)).epsilon_bounds(1e-5)[0] > 3


def test_a_lot_may_be_the_whole_population():
    assert lot_size_for(epsilon=3, delta=1e-5, population=100, steps=1, multiplier=50) == 100


@pytest.mark.slow
def test_a_budget_that_nothing_fits_is_refused():
    with pytest.raises(NotAchievable, match="Not even one step fits"):
        steps_for(epsilon=0.1, delta=1e-5, rate=0.5, multiplier=0.5)
    with pytest.raises(NotAchievable, match="Not even lots of one example fit"):
        lot_size_for(epsilon=0.01, delta=1e-9, population=10, steps=100, multiplier=0.5)
    with pytest.raises(NotAchievable, match="No amount of noise"):
        calibrate(lambda x: Gaussian(x) + EpsilonDelta(2.0), epsilon=1, delta=1e-5)


def test_calibration_by_the_central_limit_theorem_must_be_asked_for():
    budget = {"epsilon": 3, "delta": 1e-5, "rate": 256 / 60000, "steps": 14062}
    with pytest.raises(Asymptotic, match="can be exceeded"):
        multiplier_for(**budget, by="clt")
    assert multiplier_for(**budget, by="clt", allow_asymptotic=True) < multiplier_for(**budget)


def test_the_central_limit_theorem_has_no_bounds():
    with pytest.raises(Asymptotic, match="larger or smaller"):
        curve(CURVES["mnist"], by="clt").epsilon_bounds(1e-5)


def test_a_schedule_chosen_from_releases_is_refused():
    from tacit.accounting import Adaptive

    with pytest.raises(NotProven, match="chosen after seeing earlier releases"):
        curve(Gaussian(1.0) + Adaptive(Gaussian(2.0) * 3))
