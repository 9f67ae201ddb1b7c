"""Certified intervals: against dp-accounting, closed forms and worked examples, to the corners of their range."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld as google
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import mpf
from scipy import stats

from support.exact_losses import gaussian_delta, panels, sampled_gaussian_delta
from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    LaplaceDensity,
    ProductNoise,
    RandomizedResponse,
    StudentT,
    curve,
    gdp,
)
from tacit.accounting.pld import LossProfile

REPLACE = Adjacency.REPLACE_ONE
ROWS = [
    (1.3, 256 / 60000, 3516, 1e-5),
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 256 / 60000, 10547, 1e-5),
    (0.6, 256 / 60000, 14531, 1e-5),
    (0.55, 256 / 60000, 15938, 1e-5),
    (0.5, 256 / 60000, 23438, 1e-5),
    (0.55, 256 / 29305, 2061, 1e-5),
    (0.56, 512 / 25000, 439, 1e-5),
    (0.6, 1 / 80, 1600, 1e-6),
]


def sampled(multiplier, rate, steps):
    return Gaussian(multiplier).sampled(rate) * steps


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(("multiplier", "rate", "steps", "delta"), ROWS)
def test_published_rows_are_certified_to_nine_digits(multiplier, rate, steps, delta):
    lower, upper = curve(sampled(multiplier, rate, steps)).epsilon_bounds(delta)
    assert 0 < upper - lower < 1e-8


@pytest.mark.parametrize(
    ("multiplier", "lot", "population", "steps", "on_a_grid", "shown"),
    [
        (20.975828912929213, 512, 55000, 6445, 0.11070685181464918, 0.1107),
        (15.932234205925393, 512, 55000, 6445, 0.1496402389285467, 0.1496),
        (11.725783161062918, 512, 55000, 6445, 0.2093581035258857, 0.2094),
        (8.004667755640392, 512, 55000, 6445, 0.31834827814562605, 0.3183),
        (2.4545460771539207, 256, 73257, 8585, 0.48651193283675825, 0.4865),
        (1.7338456087280283, 256, 73257, 8585, 0.7494243975607098, 0.7494),
        (4.483784290554857, 256, 60000, 23438, 0.5217823894914735, 0.5218),
        (3.1664048652206316, 256, 60000, 23438, 0.7745341029754379, 0.7745),
        (2.5842432019614203, 256, 60000, 23438, 0.9823421645727589, 0.9823),
    ],
)
def test_the_epsilon_of_directional_noise_in_its_published_settings(
    multiplier, lot, population, steps, on_a_grid, shown
):
    # METHODS 1.4(g): upper bounds on a grid, which an exact accountant may only undercut.
    lower, upper = curve(sampled(multiplier, lot / population, steps)).epsilon_bounds(1e-5)
    assert upper <= on_a_grid
    assert lower == pytest.approx(shown, abs=1.1e-4)


def test_directional_noise_with_the_true_number_of_training_images_costs_more():
    # METHODS 1.4(g), last line: 50,000 instead of 60,000 images.
    lower, upper = curve(sampled(2.5842432019614203, 256 / 50000, round(100 * 50000 / 256))).epsilon_bounds(1e-5)
    assert (round(lower, 3), round(upper, 3)) == (1.086, 1.086)


def test_abadi_et_al_2016_have_the_worked_epsilon():
    # METHODS 0.6; 0.9470 is the grid's upper bound, 0.9424 the central limit.
    lower, upper = curve(sampled(4.0, 0.01, 10_000)).epsilon_bounds(1e-5)
    assert 0.9424 < lower <= upper <= 0.9469993068921693
    assert upper == pytest.approx(0.9469993068921693, abs=5e-4)


def test_both_directions_of_a_sampled_gaussian_have_the_worked_epsilon():
    # METHODS 4.6: removed 1.8282381, added 1.4166607.
    directions = LossProfile.of(sampled(1.0, 0.01, 1000)).directions
    removed, added = (direction.epsilon(1e-5) for direction in directions)
    assert removed.upper == pytest.approx(1.8282381223831519, abs=2e-5)
    assert added.upper == pytest.approx(1.4166606919768914, abs=2e-5)


@pytest.mark.slow
def test_student_t_on_two_coordinates_is_below_its_pure_epsilon():
    # METHODS 4.6: 2.6085 near exact, pure-DP bound 2.63763.
    event = StudentT(9.0, 0.8819171036881969, (0.6, 0.8))
    lower, upper = curve(event).epsilon_bounds(1e-5)
    assert lower == pytest.approx(2.608524404381166, abs=5e-5)
    assert upper < 2.6376344786143213
    assert curve(event).delta(2.6376344786143213 + 1e-9) == 0


@pytest.mark.slow
def test_a_shift_of_nothing_costs_nothing():
    event = StudentT(9.0, 1.0, (0.0, 0.0)).sampled(0.1) * 100
    assert curve(event).epsilon_bounds(1e-5) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [(1.0, 0.1, 100, 1e-5), (3.0, 0.5, 50, 1e-4), (1.3, 256 / 60000, 3516, 1e-5), (0.8, 1.0, 5, 1e-6)],
)  # fmt: skip
def test_dp_accounting_brackets_sampled_gaussians_around_our_interval(multiplier, rate, steps, delta):
    lower, upper = curve(sampled(multiplier, rate, steps)).epsilon_bounds(delta)
    above, below = (
        google.privacy_loss_distribution.from_gaussian_mechanism(
            multiplier,
            sampling_prob=rate,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            value_discretization_interval=1e-4,
        )
        .self_compose(steps)
        .get_epsilon_for_delta(delta)
        for pessimistic in (True, False)
    )
    assert below <= upper
    assert above >= lower
    assert above == pytest.approx(upper, rel=2e-3)


@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(2.0, 1.0, 20), (1.0, 0.1, 30)])
def test_dp_accounting_brackets_laplace_around_our_interval(multiplier, rate, steps):
    lower, upper = curve(Laplace(multiplier).sampled(rate) * steps).epsilon_bounds(1e-6)
    above, below = (
        google.privacy_loss_distribution.from_laplace_mechanism(
            multiplier,
            sampling_prob=rate,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
            value_discretization_interval=1e-3 / steps,
        )
        .self_compose(steps)
        .get_epsilon_for_delta(1e-6)
        for pessimistic in (True, False)
    )
    assert below <= upper
    assert above >= lower
    assert above == pytest.approx(upper, rel=2e-3)


def test_dp_accounting_agrees_on_responses_with_many_choices():
    # Its noise parameter is the chance of a random answer among all choices.
    noise, choices, steps = 0.3, 5, 30
    epsilon = math.log(1 + choices * (1 - noise) / noise)
    lower, upper = curve(RandomizedResponse(epsilon, choices) * steps).epsilon_bounds(1e-6)
    theirs = google.privacy_loss_distribution.from_randomized_response(
        noise, choices, value_discretization_interval=1e-4
    )
    assert lower <= theirs.self_compose(steps).get_epsilon_for_delta(1e-6) <= upper + 30 * 1e-4


@pytest.mark.slow
def test_dp_accounting_agrees_on_a_mixed_run():
    ours = sampled(1.0, 0.02, 200) + Gaussian(8.0) * 4 + Laplace(10.0) * 3 + sampled(2.0, 0.1, 50)
    theirs = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.0)), 200
            ),
            dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(8.0), 4),
            dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(10.0), 3),
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0)), 50
            ),
        ]
    )
    accountant = google.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(theirs)
    lower, upper = curve(ours).epsilon_bounds(1e-6)
    assert lower <= accountant.get_epsilon(1e-6) <= upper * (1 + 1e-3)


@pytest.mark.slow
@given(powers_of_ten(-0.52, 2), powers_of_ten(-6, -0.001), powers_of_ten(-15, -1))
def test_one_sampled_step_is_certified_to_eight_digits(multiplier, rate, delta):
    found = LossProfile.of(Gaussian(multiplier).sampled(rate)).directions[0].epsilon(delta)
    assert found.lower <= found.estimate <= found.upper <= found.lower * (1 + 1e-8)
    exact = [sampled_gaussian_delta(epsilon, multiplier, rate) for epsilon in (found.lower, found.upper)]
    assert exact[1] <= mpf(delta) * (1 + mpf("1e-12"))
    assert found.lower == 0 or exact[0] >= mpf(delta) * (1 - mpf("1e-12"))


def test_one_sampled_step_is_certified_with_the_example_added():
    # The other direction is worse and hides this from every public answer.
    multiplier = rate = 0.31622776601683794
    found = LossProfile.of(Gaussian(multiplier).sampled(rate)).directions[1].epsilon(1e-15)
    exact = [sampled_gaussian_delta(epsilon, multiplier, rate, True) for epsilon in (found.lower, found.upper)]
    assert exact[1] <= mpf(1e-15) * (1 + mpf("1e-10"))
    assert exact[0] >= mpf(1e-15) * (1 - mpf("1e-10"))


@given(powers_of_ten(-0.52, 2), powers_of_ten(-6, -0.01), powers_of_ten(-4, 1))
def test_delta_of_one_sampled_step_is_the_larger_of_both_directions(multiplier, rate, epsilon):
    exact = max(sampled_gaussian_delta(epsilon, multiplier, rate, added) for added in (False, True))
    assume(exact > 1e-290)
    lower, upper = curve(Gaussian(multiplier).sampled(rate)).delta_bounds(epsilon)
    assert mpf(lower) <= exact <= mpf(upper)


@given(powers_of_ten(-0.52, 2), st.integers(1, 10**6), powers_of_ten(-15, -1))
def test_with_everyone_in_the_lot_it_is_the_exact_gaussian(multiplier, steps, delta):
    lower, upper = curve(sampled(multiplier, 1.0, steps)).epsilon_bounds(delta)
    exact = gdp.epsilon(delta, math.sqrt(steps) / multiplier)
    assert lower == pytest.approx(exact, rel=1e-11)
    assert upper == pytest.approx(exact, rel=1e-11)


RATES, STEPS, MULTIPLIERS, DELTAS = (1e-6, 1e-3, 1.0), (1, 1000, 10**6), (0.3, 2.0, 100.0), (1e-15, 1e-5)


@pytest.fixture(scope="module")
def corners():
    """Certified intervals at the corners of the range that must work; test_curves_and_calibration draws from within."""
    return {
        (multiplier, rate, steps, delta): curve(sampled(multiplier, rate, steps)).epsilon_bounds(delta)
        for multiplier in MULTIPLIERS
        for rate in RATES
        for steps in STEPS
        for delta in DELTAS
    }


@pytest.mark.slow
def test_the_corners_of_the_range_are_certified(corners):
    for lower, upper in corners.values():
        assert 0 <= lower <= upper < math.inf
        assert upper <= lower * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "values", "sign"),
    [(0, MULTIPLIERS, -1), (1, RATES, 1), (2, STEPS, 1), (3, DELTAS, -1)],
    ids=["multiplier", "rate", "steps", "delta"],
)
def test_from_corner_to_corner_the_certified_intervals_are_in_order(corners, place, values, sign):
    for setting, (lower, upper) in corners.items():
        for other in values[values.index(setting[place]) + 1 :]:
            there = corners[(*setting[:place], other, *setting[place + 1 :])]
            small, large = ((lower, upper), there) if sign > 0 else (there, (lower, upper))
            assert small[0] <= large[1]
            assert small[1] < large[0] or large[0] == 0


EVENTS = {
    "gaussian": Gaussian(2.0),
    "sampled": sampled(0.8, 0.05, 40),
    "laplace": Laplace(3.0) * 4,
    "student_t": StudentT(5.0, 1.5, (0.3, 0.8)),
    "sampled_laplace": Laplace(1.5).sampled(0.2) * 10,
    "response": RandomizedResponse(0.7) * 6,
    "epsilon_delta": EpsilonDelta(0.3, 1e-4) * 5,
    "mixed": sampled(1.0, 0.1, 20) + Laplace(4.0) + Gaussian(5.0),
    "one_lot": ((Laplace(2.0) + Gaussian(3.0)).sampled(0.1)) * 20,
    "replaced": Gaussian(1.0, REPLACE).sampled(0.1) * 20,
}


@pytest.mark.slow
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_delta_falls_with_epsilon_and_stays_a_probability(event):
    privacy = curve(event)
    found = [privacy.delta_bounds(epsilon) for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0)]
    for lower, upper in found:
        assert 0 <= lower <= upper <= 1
    for (_, upper), (lower, _) in itertools.pairwise(found):
        assert lower <= upper


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_bounds_of_delta_are_close_to_each_other(event):
    lower, upper = curve(event).delta_bounds(0.1)
    # Under replace-one the best proof and the best attack differ.
    assert upper <= lower * (1.5 if event.adjacency is REPLACE else 1.005)


@pytest.mark.slow
def test_many_different_shifts_are_rounded_to_the_safe_side():
    # Sums of Laplace losses with tiny shifts are nearly Gaussian: Fisher information 1 / scale^2.
    shifts = tuple(np.linspace(0.01, 1, 300) * 0.1)
    lower, upper = curve(ProductNoise(LaplaceDensity(1.0), shifts)).epsilon_bounds(1e-5)
    assert lower < upper < lower * 1.02
    norm = math.sqrt(sum(shift**2 for shift in shifts))
    assert upper == pytest.approx(gdp.epsilon(1e-5, norm), rel=0.03)


def replaced_pair_delta(epsilon, multiplier, rate, centre):
    """One lot in which the example contributes centre + 1/2 or centre - 1/2 sensitivities: brute force."""
    shift = 1 / multiplier
    x, weight = panels(-9.0, 9.0 + centre + shift, 0.002)
    base = (1 - rate) * stats.norm.pdf(x)
    p = base + rate * stats.norm.pdf(x - centre - shift / 2)
    q = base + rate * stats.norm.pdf(x - centre + shift / 2)
    return float(weight @ np.maximum(p - math.exp(epsilon) * q, 0))


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_replacing_an_example_by_its_opposite_is_within_the_bounds(rate, epsilon):
    lower, upper = curve(Gaussian(1.0, REPLACE).sampled(rate)).delta_bounds(epsilon)
    exact = replaced_pair_delta(epsilon, 1.0, rate, 0.0)
    assert lower <= exact * (1 + 1e-5)
    assert upper >= exact * (1 - 1e-5)


@pytest.mark.parametrize(
    "event", [Gaussian(0.05), EpsilonDelta(0.9902467245008116, 5.0148668766657655e-09) * 561], ids=["gauss", "listed"]
)
def test_delta_is_at_most_one(event):
    assert curve(event).delta(0.1) <= 1


@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-11])
def test_a_gaussian_is_certified_where_epsilon_is_nearly_zero(gap):
    delta = gdp.delta(0.0, 1.0) - gap
    lower, upper = curve(Gaussian(1.0)).epsilon_bounds(delta)
    assert gaussian_delta(upper, 1.0) <= mpf(delta) <= gaussian_delta(lower, 1.0)


@pytest.mark.parametrize("call", [lambda c: c.epsilon(1e-5), lambda c: c.delta(800.0)], ids=["epsilon", "delta"])
def test_one_step_with_very_little_noise_has_a_large_epsilon(call):
    assert math.isfinite(call(curve(Gaussian(0.02).sampled(0.1))))


@pytest.mark.slow
@pytest.mark.parametrize("event", [Gaussian(1.0) * 0, (Gaussian(1.0) * 0).sampled(0.1) * 4, EpsilonDelta(0.0, 0.0) * 9])
def test_nothing_costs_nothing(event):
    assert curve(event).epsilon_bounds(1e-9) == (0.0, 0.0)


def test_no_epsilon_will_do_for_what_reveals_everything():
    assert curve(EpsilonDelta(0.1, 1.0) * 2).epsilon_bounds(1e-5) == (math.inf, math.inf)


@pytest.mark.parametrize("times", [1, 2, 7])
@pytest.mark.parametrize("delta", [1e-5, 0.1, 1e-9])
def test_rounding_does_not_hide_that_a_stated_pair_holds(times, delta):
    each = EpsilonDelta(0.3, delta / 8) * times
    assert curve(each).epsilon(delta / 8 * times) <= 0.3 * times * (1 + 1e-15)
    assert curve(each).delta(math.nextafter(0.3 * times, 9)) <= delta / 8 * times
    assert curve(EpsilonDelta(0.3, delta)).epsilon(math.nextafter(delta, 0)) == math.inf


@pytest.mark.parametrize("epsilon", [0.0, 3.0, 600.0])
def test_what_gives_everybody_away_has_delta_one(epsilon):
    sampled = RandomizedResponse(3.0, 2).sampled(0.5) * 30_000
    assert curve(sampled).delta_bounds(epsilon) == (pytest.approx(1, abs=1e-8), 1.0)


@pytest.mark.parametrize("times", [700, 800])
def test_nearly_certain_outcomes_are_not_taken_for_more_than_they_are(times):
    # The loss of answers that are right with probability p is a binomial number of steps to the right.
    right = 1 / (1 + math.exp(-0.5))
    loss = 0.5 * (2 * np.arange(times + 1) - times)
    left = np.exp(np.minimum(1.0 - loss, 0)) @ stats.binom.pmf(np.arange(times + 1), times, right)
    # A little Gaussian noise keeps them from being listed one by one.
    lower, upper = curve(EpsilonDelta(0.5) * times + Gaussian(1000.0)).delta_bounds(1.0)
    assert lower <= 1 - left * (1 - 1e-3)
    assert upper >= 1 - left


def test_a_stated_pair_beside_a_gaussian_has_the_closed_form_at_many_epsilons():
    """The worst pair answers truly with odds e^epsilon, and gives everything away with probability delta."""
    pair, multiplier = EpsilonDelta(0.999, 1e-5, adjacency=REPLACE), 300.0
    mu = 1 / multiplier
    right = 1 / (1 + math.exp(-pair.epsilon))
    epsilons = np.linspace(0.0, 1.03, 60)
    exact = pair.delta + (1 - pair.delta) * sum(
        share * (stats.norm.cdf(mu / 2 - left / mu) - np.exp(left) * stats.norm.cdf(-mu / 2 - left / mu))
        for share, left in ((right, epsilons - pair.epsilon), (1 - right, epsilons + pair.epsilon))
    )
    lower, upper = LossProfile.of(pair + Gaussian(multiplier, adjacency=REPLACE)).deltas(epsilons)
    assert np.all(lower <= exact * (1 + 1e-9))
    assert np.all(exact <= upper * (1 + 1e-9))
    assert upper == pytest.approx(exact, abs=1e-8)


@pytest.mark.slow
def test_with_next_to_no_noise_whoever_takes_part_is_revealed():
    # At multiplier 0.05 outcomes with and without the example overlap by Phi(-10), which is 1e-23.
    lower, upper = curve(Gaussian(0.05).sampled(0.02) * 200).delta_bounds(1.5)
    exact = -math.expm1(200 * math.log1p(-0.02))
    assert lower <= exact * (1 + 1e-14)
    assert upper >= exact * (1 - 1e-14)
    assert upper - lower < 1e-12
