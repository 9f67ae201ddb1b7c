"""What a guarantee says: trade-offs, attackers, groups, mu; against closed forms, brute force and dp-accounting."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from dp_accounting import pld as google
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from support.exact_losses import panels
from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    ProductNoise,
    RandomizedResponse,
    SechDensity,
    StudentT,
    central_limit_mu,
    curve,
    gdp,
)
from tacit.accounting.curve import GroupProfile

GRID = np.linspace(0, 1, 201)
EVENTS = {
    "gaussian": Gaussian(1.5),
    "one_step": Gaussian(1.0).sampled(0.2),
    "sampled": Gaussian(0.8).sampled(0.02) * 300,
    "laplace": Laplace(1.0),
    "response": RandomizedResponse(1.0) * 3,
    "epsilon_delta": EpsilonDelta(0.5, 0.01) * 2,
    "nothing": Gaussian(1.0) * 0,
}
ALL = pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
# A curve keeps its table: tests of one event share it.
known = cache(curve)


@pytest.mark.slow
@ALL
def test_the_tradeoff_is_convex(event):
    assert np.all(np.diff(known(event).tradeoff(GRID), 2) >= -1e-12)


@pytest.mark.slow
@ALL
def test_the_tradeoff_falls_from_at_most_one_to_zero(event):
    miss = known(event).tradeoff(GRID)
    assert miss[0] <= 1
    assert miss[-1] == 0
    assert np.all(np.diff(miss) <= 0)


@pytest.mark.slow
@ALL
def test_the_tradeoff_is_no_better_than_guessing(event):
    lower, upper = known(event).tradeoff_bounds(GRID)
    assert np.all(lower <= 1 - GRID + 1e-15)
    assert np.all(upper <= 1 - GRID + 1e-15)


@pytest.mark.slow
@ALL
def test_the_bounds_of_the_tradeoff_are_in_order_and_close(event):
    lower, upper = known(event).tradeoff_bounds(GRID)
    assert np.all(lower <= upper)
    assert np.all(upper - lower < 0.03)


@pytest.mark.slow
@ALL
def test_the_tradeoff_is_symmetric_within_its_band(event):
    privacy = known(event)
    lower, upper = privacy.tradeoff_bounds(GRID[1:-1])
    # f falls and is its own inverse: at a miss no smaller than f(alpha) it is no larger than alpha, and vice versa.
    assert np.all(privacy.tradeoff(upper) <= GRID[1:-1] + 1e-9)
    inside = lower > 0
    assert np.all(privacy.tradeoff_bounds(lower)[1][inside] >= GRID[1:-1][inside] - 1e-9)


@pytest.mark.slow
@ALL
def test_the_tradeoff_touches_its_epsilons_and_deltas_from_above(event):
    privacy = known(event)
    _, upper = privacy.tradeoff_bounds(GRID)
    for epsilon in (0.0, 0.3, 1.0):
        assert np.all(upper >= gdp.epsilon_delta_tradeoff(GRID, epsilon, min(privacy.delta(epsilon), 1.0)) - 1e-9)


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 3.0, 6.0])
def test_the_tradeoff_of_a_gaussian_is_just_below_the_exact_one(mu):
    exact = gdp.tradeoff(GRID, mu)
    lower, upper = curve(Gaussian(1 / mu)).tradeoff_bounds(GRID)
    assert np.all(lower <= exact + 1e-11)
    assert np.all(upper >= exact - 1e-11)
    assert np.all(exact - lower < 2e-4)


@pytest.mark.slow
@settings(max_examples=6)
@given(st.floats(-2, 0.5).map(lambda e: 10.0**e), st.floats(-4, -0.01).map(lambda e: 10.0**e))
def test_the_tradeoff_of_one_sampled_step_is_just_below_the_exact_one(mu, rate):
    exact = gdp.subsampled_gaussian_tradeoff(GRID, mu, rate)
    lower, upper = curve(Gaussian(1 / mu).sampled(rate)).tradeoff_bounds(GRID)
    assert np.all(lower <= exact + 1e-10)
    assert np.all(upper >= exact - 1e-10)
    assert np.all(exact - lower < 2e-3)


def test_the_tradeoff_of_a_pure_mechanism_is_two_lines():
    exact = gdp.epsilon_delta_tradeoff(GRID, 1.0, 0.0)
    lower, upper = curve(RandomizedResponse(1.0)).tradeoff_bounds(GRID)
    assert np.all(lower <= exact + 1e-12)
    assert np.all(upper >= exact - 1e-12)
    assert np.all(exact - lower < 3e-3)


@pytest.mark.slow
def test_the_tradeoff_of_many_steps_lies_above_that_of_rdp():
    event = EVENTS["sampled"]
    assert np.all(curve(event, "rdp").tradeoff(GRID) <= known(event).tradeoff_bounds(GRID)[1])


def test_the_tradeoff_of_the_central_limit_is_that_of_its_mu():
    event = Gaussian(1.0).sampled(0.01) * 1000
    exact = gdp.tradeoff(GRID, central_limit_mu(event))
    assert curve(event, "clt").tradeoff(GRID) == pytest.approx(exact, abs=1e-3)


def test_a_number_is_answered_by_a_float_and_an_array_by_an_array():
    privacy = curve(Gaussian(1.0))
    assert type(privacy.tradeoff(0.3)) is float
    assert privacy.tradeoff(np.array([0.3, 0.4])).shape == (2,)


def test_an_attacker_finds_what_the_tradeoff_leaves():
    privacy = curve(Gaussian(1.0))
    assert privacy.true_positive_rate(0.05) == pytest.approx(1 - 0.7404889771585558, abs=2e-4)
    assert privacy.true_positive_rate(0.05) >= 1 - 0.7404889771585558


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_the_advantage_of_a_gaussian_is_its_total_variation(mu):
    exact = 2 * stats.norm.cdf(mu / 2) - 1
    assert exact <= curve(Gaussian(1 / mu)).advantage() <= exact * (1 + 1e-9)


@pytest.mark.parametrize("rate", [0.01, 0.4])
def test_sampling_scales_the_advantage_of_one_step(rate):
    exact = rate * (2 * stats.norm.cdf(0.5) - 1)
    assert curve(Gaussian(1.0).sampled(rate)).advantage() == pytest.approx(exact, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("multiplier", "rate"), [(0.43, 3e-5)])
def test_the_advantage_of_two_steps_is_at_most_twice_that_of_one(multiplier, rate):
    step = Gaussian(multiplier).sampled(rate)
    assert curve(step * 2).advantage() <= 2 * curve(step).advantage() * (1 + 1e-6)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_group_of_gaussian_releases_has_size_times_mu(size):
    grouped = curve(Gaussian(8.0) * 3).group(size)
    exact = gdp.epsilon(1e-5, size * math.sqrt(3) / 8)
    assert grouped.epsilon_bounds(1e-5) == pytest.approx((exact, exact), rel=1e-11)


def test_a_group_of_groups_is_a_larger_group():
    privacy = curve(Gaussian(8.0).sampled(0.1) * 10)
    assert privacy.group(2).group(3).epsilon(1e-5) == privacy.group(6).epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "steps"), [(2, 20), (3, 50)])
def test_a_group_of_sampled_gaussians_agrees_with_dp_accounting(size, steps):
    # How many of a group are drawn is binomial: a mixture of shifts.
    multiplier, rate = 3.0, 0.05
    weights = [math.comb(size, j) * rate**j * (1 - rate) ** (size - j) for j in range(size + 1)]
    theirs = google.privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier, list(range(size + 1)), weights, value_discretization_interval=1e-3
    ).self_compose(steps)
    lower, upper = curve(Gaussian(multiplier).sampled(rate) * steps).group(size).epsilon_bounds(1e-5)
    assert lower <= theirs.get_epsilon_for_delta(1e-5)
    assert theirs.get_epsilon_for_delta(1e-5) == pytest.approx(upper, rel=1e-2)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("epsilon", [0.05, 0.4])
def test_a_group_in_one_lot_is_bracketed_by_brute_force(size, epsilon):
    rate, shift = 0.2, 0.7
    x, weight = panels(-9.0, 9.0 + size * shift, 0.002)
    weights = [math.comb(size, j) * rate**j * (1 - rate) ** (size - j) for j in range(size + 1)]
    p, q = sum(w * stats.norm.pdf(x - j * shift) for j, w in enumerate(weights)), stats.norm.pdf(x)
    exact = max(float(weight @ np.maximum(a - math.exp(epsilon) * b, 0)) for a, b in ((p, q), (q, p)))
    lower, upper = curve(Gaussian(1 / shift).sampled(rate)).group(size).delta_bounds(epsilon)
    assert lower * (1 - 1e-6) <= exact <= upper * (1 + 1e-6)
    assert upper == pytest.approx(lower, rel=1e-3)


def test_a_group_of_laplace_releases_moves_the_number_further():
    assert curve(Laplace(10.0)).group(3).epsilon_bounds(1e-6) == pytest.approx(
        curve(Laplace(10 / 3)).epsilon_bounds(1e-6), rel=1e-6
    )


def test_a_group_of_others_is_chained():
    # (eps, delta) for one is (2 eps, (1 + e^eps) delta) for two.
    grouped = curve(EpsilonDelta(0.4, 1e-6)).group(2)
    assert grouped.delta(0.8) == pytest.approx(1e-6 * (1 + math.exp(0.4)), rel=1e-9)


def test_the_chain_holds_for_two_answers_of_randomized_response():
    # Two people's answers: the pair (both true) against (both the other) composes two responses.
    exact = curve(RandomizedResponse(0.5) * 2).delta_bounds(0.6)[0]
    assert curve(RandomizedResponse(0.5)).group(2).delta(0.6) >= exact


def test_a_larger_group_is_no_better_off():
    privacy = curve(Gaussian(2.0).sampled(0.05) * 50)
    found = [privacy.group(size).epsilon_bounds(1e-5) for size in (1, 2, 3, 4)]
    assert all(small[1] < large[0] for small, large in itertools.pairwise(found))


def test_a_group_may_use_a_smaller_epsilon_than_its_share():
    # (0.4, 1e-6) holds for one, so (0.8, 2.5e-6) for two, and with it every larger epsilon.
    grouped = curve(EpsilonDelta(0.4, 1e-6)).group(2)
    assert grouped.delta(2.0) <= grouped.delta(0.8) * (1 + 1e-9)
    assert grouped.epsilon(3e-6) <= 0.8 * (1 + 1e-9)


def test_a_group_has_infinite_losses_that_one_example_has_not():
    # One outcome with probability 0, d, d (1 + e^eps), d (1 + e^eps + e^2eps) along three neighbours is
    # (eps, d)-DP at every step; so below the last of these no epsilon will do.
    assert 3.3e-8 * (1 + math.exp(2.71) + math.exp(5.42)) > 7e-6
    assert curve(EpsilonDelta(2.71, 3.3e-8)).group(3).epsilon(1e-6) == math.inf


def test_a_group_at_a_huge_epsilon_has_infinite_losses_that_one_example_has_not():
    assert curve(EpsilonDelta(10.0, 1e-20)).group(2).delta(1400.0) >= 1e-20 * (1 + math.exp(10))


@pytest.mark.slow
@pytest.mark.parametrize("regret", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize(
    "event", [EVENTS["one_step"], EVENTS["sampled"], EVENTS["laplace"]], ids=["one", "many", "laplace"]
)
def test_the_curve_lies_above_that_of_its_mu_less_the_regret(event, regret):
    privacy = known(event)
    floor = gdp.tradeoff(GRID, privacy.mu(regret)) - regret
    assert np.all(privacy.tradeoff_bounds(GRID)[1] >= floor - 1e-12)
    # The lower bound is a polygon: between its corners it cuts off a little of the curve.
    assert np.all(privacy.tradeoff(GRID) >= floor - 3e-3)


@pytest.mark.slow
def test_every_delta_is_below_that_of_mu_plus_the_regret():
    privacy = known(EVENTS["sampled"])
    mu = privacy.mu(1e-5)
    for epsilon in np.linspace(0, 6, 25):
        assert privacy.delta_bounds(float(epsilon))[0] <= gdp.delta(float(epsilon), mu) + 1e-5


@pytest.mark.slow
def test_a_larger_regret_asks_for_a_smaller_mu():
    privacy = known(EVENTS["sampled"])
    found = [privacy.mu(regret) for regret in (0.0, 1e-9, 1e-6, 1e-3, 0.1)]
    assert found == sorted(found, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_the_mu_of_a_gaussian_is_its_own(mu):
    assert curve(Gaussian(1 / mu)).mu() == pytest.approx(mu, rel=1e-12)
    assert curve(Gaussian(1 / mu)).mu(1e-9) == pytest.approx(mu, rel=0.02)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 30.0])
def test_a_pure_mechanism_has_the_mu_that_touches_it(epsilon):
    # Both curves pass through the point where the two errors are equal: Phi(-mu/2) = 1 / (1 + e^eps).
    exact = -2 * stats.norm.ppf(1 / (1 + math.exp(epsilon)))
    assert curve(RandomizedResponse(epsilon)).mu() == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("epsilon", [34.0, 35.0, 36.3, 40.0])
def test_a_pure_mechanism_with_a_large_epsilon_has_the_mu_that_touches_it(epsilon):
    exact = -2 * stats.norm.ppf(1 / (1 + math.exp(epsilon)))
    assert exact * (1 - 1e-9) <= curve(RandomizedResponse(epsilon)).mu() <= exact * (1 + 1e-3)


def test_the_mu_of_student_t_is_that_of_its_pure_epsilon():
    # METHODS 4.5: largest loss 1.8787504567451565 at shift 1.
    exact = -2 * stats.norm.ppf(1 / (1 + math.exp(1.8787504567451565)))
    assert curve(StudentT(9.0, 0.8819171036881969)).mu() == pytest.approx(exact, rel=1e-9)


def test_several_mus_add_their_squares():
    parts = (Gaussian(2.0), RandomizedResponse(0.5, adjacency=Adjacency.ADD_REMOVE), Laplace(3.0).sampled(0.1))
    whole = curve(parts[0] + parts[1] + parts[2]).mu()
    assert whole == pytest.approx(math.sqrt(sum(curve(part).mu() ** 2 for part in parts)), rel=1e-12)


@pytest.mark.slow
def test_no_mu_holds_for_what_may_reveal_everything():
    assert curve(EpsilonDelta(0.1, 1e-6)).mu() == math.inf
    assert math.isfinite(curve(EpsilonDelta(0.1, 1e-6)).mu(1e-5))


def test_sech_noise_has_its_pure_epsilon():
    event = ProductNoise(SechDensity(2.0), (1.0,))
    assert curve(event).delta(math.pi / 4) == 0
    assert 0 < curve(event).delta(0.99 * math.pi / 4) < 1e-3


@pytest.mark.parametrize("by", ["moments", "rdp"])
def test_the_advantage_is_what_the_trade_off_curve_allows(by):
    found = curve(Gaussian(1.1).sampled(0.004) * 3_000, by=by)
    alphas = np.linspace(0, 1, 4001)
    allowed = float(np.max(1 - alphas - found.tradeoff(alphas)))
    assert found.advantage() == pytest.approx(allowed, abs=5e-4)
    assert found.advantage() >= curve(found.event).advantage()


@pytest.mark.parametrize("size", [2, 5, 20])
def test_chained_neighbours_cost_the_least_epsilon_whose_chain_stays_within_delta(size):
    event = Gaussian(2.0) * 3
    one, group = curve(event, by="rdp"), curve(event, by="rdp").group(size)

    def chain(share):
        return one.delta(share) * sum(math.exp(power * share) for power in range(size))

    found = group.epsilon(1e-6) / size
    assert chain(found) <= 1e-6 * (1 + 1e-9)
    assert all(chain(found * part) > 1e-6 for part in np.linspace(0.05, 0.999, 40))


@pytest.mark.slow
def test_the_curve_of_a_replaced_example_agrees_with_its_points():
    event = Gaussian(1.1, Adjacency.REPLACE_ONE).sampled(0.01) * 20
    profile = curve(event)._profile
    epsilons = np.array([0.0, 0.3])
    lower, upper = profile.deltas(epsilons)
    for below, above, epsilon in zip(lower, upper, epsilons, strict=True):
        point = profile.delta(float(epsilon))
        assert above == pytest.approx(point.upper, rel=1e-3)
        assert below <= point.upper
        assert above >= point.lower


@pytest.mark.parametrize("by", ["pld", "rdp"])
def test_the_curve_of_chained_neighbours_is_at_most_the_chain_at_each_point(by):
    single = curve(Gaussian(2.0).sampled(0.05) * 20, by=by)._profile
    epsilons = np.linspace(0.0, 3.0, 40)
    lower, upper = GroupProfile(single, 3).deltas(epsilons)
    for below, above, epsilon in list(zip(lower, upper, epsilons, strict=True))[::13]:
        share = epsilon / 3
        chain = single.delta(share).upper * (1 + math.exp(share) + math.exp(2 * share))
        assert below <= above <= min(chain, 1.0) * (1 + 1e-6)
        assert above >= single.delta(epsilon).upper * (1 - 1e-9)


def test_a_chain_of_many_neighbours_is_found_where_its_delta_is_too_small_to_ask_for():
    group = curve(Gaussian(1.1).sampled(0.01) * 500, by="rdp").group(20)
    found = group.epsilon(1e-5)
    assert group.delta(found) <= 1e-5 < group.delta(0.9 * found)
