"""Mutual-information bounds and the distortion-rate bound, against worked values and independent answers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from tacit.accounting.information import (
    DistortionRate,
    distortion_rate,
    example_mutual_information_bound,
    gaussian_mutual_information_bound,
    mutual_information_bound,
    published_mutual_information_bound,
)
from tacit.errors import InvalidArgument

GAUSSIAN_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)
ENTROPIES = (2.112085713764618, 1.4189385332046727, 0.7257913526447274)
WEIGHTS = (1.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("epsilon", "published", "tight"),
    [
        (0.1, 0.005258545903782386, 0.004995837495787998),
        (0.5, 0.16218031767503205, 0.12245933120185457),
        (1.0, 0.8591409142295225, 0.46211715726000974),
        (2.0, 6.38905609893065, 1.5231883119115297),
        (10.0, 110127.32897403359, 9.999092042625952),
    ],
)
def test_mutual_information_bounds_have_the_worked_values(epsilon, published, tight):
    assert published_mutual_information_bound(epsilon) == pytest.approx(published, rel=1e-14)
    assert mutual_information_bound(epsilon) == pytest.approx(tight, rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 5.0])
def test_randomized_response_attains_the_divergence_behind_the_bound(epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    divergence = truth * epsilon - (1 - truth) * epsilon
    assert mutual_information_bound(epsilon) == pytest.approx(divergence, rel=1e-9)


@given(st.floats(1e-9, 1e4))
def test_the_tight_bound_is_below_the_published_one_and_below_epsilon(epsilon):
    assert mutual_information_bound(epsilon) <= min(epsilon, published_mutual_information_bound(epsilon))


def test_the_published_bound_is_vacuous_above_ln_3():
    assert published_mutual_information_bound(math.log(3) * 0.999) < math.log(3) * 0.999
    assert published_mutual_information_bound(math.log(3) * 1.001) > math.log(3) * 1.001


def test_without_privacy_nothing_bounds_the_information():
    assert mutual_information_bound(math.inf) == math.inf
    assert published_mutual_information_bound(1000.0) == math.inf
    assert example_mutual_information_bound(math.inf) == math.inf


@pytest.mark.parametrize("bound", [mutual_information_bound, published_mutual_information_bound])
def test_without_information_both_bounds_are_zero(bound):
    assert bound(0.0) == 0.0


def test_gaussian_bound_exceeds_the_information_of_a_gaussian_source():
    variances, stds = np.array([0.01, 1.0, 9.0]), np.array([1.0, 2.0, 3.0])
    information = 0.5 * np.sum(np.log1p(variances / stds**2))
    assert information < gaussian_mutual_information_bound(variances, stds) == pytest.approx(0.63, rel=1e-14)


def test_gaussian_bound_is_nearly_attained_under_much_noise():
    bound = gaussian_mutual_information_bound([1.0], [1e3])
    assert bound == pytest.approx(0.5 * math.log1p(1e-6), rel=1e-6)


def test_a_coordinate_without_noise_tells_everything_unless_it_is_constant():
    assert gaussian_mutual_information_bound([1.0, 1.0], [1.0, 0.0]) == math.inf
    assert gaussian_mutual_information_bound([1.0, 0.0], [1.0, 0.0]) == 0.5


def test_one_example_is_told_by_half_its_squared_mu():
    # The Kullback-Leibler divergence of N(mu, 1) from N(0, 1).
    assert example_mutual_information_bound(0.3) == pytest.approx(0.045, rel=1e-14)


@pytest.mark.parametrize(
    ("rate", "level", "shares", "distortion"),
    [
        (0.5, 2.426122638850538, (2.426122638850538, 2.426122638850538, 0.25), 5.102245277701076),
        (1.0, 1.471517764685848, (1.471517764685848, 1.471517764685848, 0.25), 3.193035529371696),
        (3.5, 0.15393340379938303, (0.15393340379938303,) * 3, 0.4618002113981491),
    ],
)
def test_water_filling_has_the_worked_values(rate, level, shares, distortion):
    result = distortion_rate(ENTROPIES, WEIGHTS, rate)
    # The worked values come from a bisection: good to 1e-13.
    assert result.water_level == pytest.approx(level, rel=1e-13)
    assert result.per_coordinate == pytest.approx(shares, rel=1e-13)
    assert result.distortion == pytest.approx(distortion, rel=1e-13)
    assert result.active == (True, True, rate == 3.5)


def test_uniform_coordinates_have_the_worked_values():
    result = distortion_rate([0.0, math.log(2)], [1.0, 1.0], 1.0)
    assert result.water_level == pytest.approx(0.04307855860369727, rel=1e-13)
    assert result.distortion == pytest.approx(0.08615711720739454, rel=1e-13)
    untold = distortion_rate([0.0, math.log(2)], [1.0, 1.0], 0.0)
    assert untold.per_coordinate == pytest.approx((0.05854983152431917, 0.23419932609727667), rel=1e-14)


def test_without_rate_every_coordinate_is_wrong_by_its_own_spread():
    result = distortion_rate(ENTROPIES, WEIGHTS, 0.0)
    assert result.per_coordinate == pytest.approx((4.0, 4.0, 0.25), rel=1e-14)
    assert result.water_level == max(result.per_coordinate)
    assert result.active == (False, False, False)


def test_one_gaussian_has_its_classical_distortion_rate():
    result = distortion_rate([GAUSSIAN_ENTROPY + math.log(3)], [2.0], 1.7)
    assert result.distortion == pytest.approx(4 * 9 * math.exp(-3.4), rel=1e-13)


def test_weight_zero_and_discrete_coordinates_change_nothing():
    plain = distortion_rate(ENTROPIES, WEIGHTS, 1.0)
    padded = distortion_rate((*ENTROPIES, 5.0, -math.inf), (*WEIGHTS, 0.0, 1.0), 1.0)
    assert padded.distortion == plain.distortion
    assert padded.water_level == plain.water_level
    assert padded.per_coordinate == (*plain.per_coordinate, 0.0, 0.0)
    assert padded.active == (*plain.active, False, False)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_of_weight_means_no_distortion(rate):
    nothing = DistortionRate(distortion=0.0, water_level=0.0, per_coordinate=(0.0,) * 2, active=(False,) * 2)
    assert distortion_rate([1.0, -math.inf], [0.0, 3.0], rate) == nothing
    assert distortion_rate([], [], rate) == DistortionRate(0.0, 0.0, (), ())


def test_equal_coordinates_are_told_alike():
    result = distortion_rate([0.1] * 7, [0.3] * 7, 1e-12)
    assert result.active == (True,) * 7
    assert len(set(result.per_coordinate)) == 1


def test_the_sign_of_a_weight_does_not_matter():
    assert distortion_rate([1.0, 2.0], [-1.0, 2.0], 1.0) == distortion_rate([1.0, 2.0], [1.0, -2.0], 1.0)


coordinates = st.lists(st.tuples(st.floats(-20, 20), st.floats(1e-3, 1e3)), min_size=1, max_size=12)


@pytest.mark.slow
@given(coordinates, st.floats(1e-6, 100))
def test_the_level_solves_the_rate_equation(pairs, rate):
    entropies, weights = np.array(pairs).T
    log_beta = 2 * np.log(weights) + 2 * entropies - 2 * GAUSSIAN_ENTROPY

    def excess(log_level):
        return np.sum(np.maximum(0, log_beta - log_level)) / 2 - rate

    level = brentq(excess, log_beta.min() - 2 * rate - 1, log_beta.max(), xtol=1e-13, rtol=1e-14)
    result = distortion_rate(entropies, weights, rate)
    assert math.log(result.water_level) == pytest.approx(level, abs=1e-11)
    assert result.distortion == pytest.approx(np.sum(np.exp(np.minimum(level, log_beta))), rel=1e-10)


def test_no_other_split_of_the_rate_does_better():
    untold = np.array([4.0, 4.0, 0.25])
    split = minimize(
        lambda rates: np.sum(untold * np.exp(-2 * rates)),
        np.full(3, 1 / 3),
        bounds=[(0, None)] * 3,
        constraints={"type": "eq", "fun": lambda rates: rates.sum() - 1},
        options={"ftol": 1e-14},
    )
    assert distortion_rate(ENTROPIES, WEIGHTS, 1.0).distortion == pytest.approx(split.fun, rel=1e-7)


@given(coordinates, st.floats(0, 50), st.floats(1e-3, 50))
def test_more_rate_never_means_more_distortion(pairs, rate, more):
    entropies, weights = np.array(pairs).T
    before = distortion_rate(entropies, weights, rate).distortion
    assert distortion_rate(entropies, weights, rate + more).distortion <= before


@pytest.mark.parametrize(
    ("entropies", "weights", "rate", "said"),
    [
        ([math.inf], [1.0], 1.0, "entropies must be below infinity"),
        ([math.nan], [1.0], 1.0, "entropies must be a number"),
        ([1.0], [math.inf], 1.0, "weights must be a finite number"),
        ([1.0], [1.0], -1.0, r"rate \(in nats\) must be a finite number of at least 0. Got -1.0"),
        ([1.0], [1.0, 2.0], 1.0, r"one entry for each coordinate. Got shapes \(1,\) and \(2,\)"),
        (1.0, 1.0, 1.0, r"one entry for each coordinate. Got shapes \(\) and \(\)"),
    ],
)
def test_bad_input_is_named(entropies, weights, rate, said):
    with pytest.raises(InvalidArgument, match=said):
        distortion_rate(entropies, weights, rate)
