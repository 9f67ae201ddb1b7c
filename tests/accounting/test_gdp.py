"""Gaussian DP and trade-off functions against worked values, 60-digit arithmetic, polygons and brute force."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from tacit.accounting import gdp
from tacit.errors import InvalidArgument

mus = st.floats(-6, 3).map(lambda exponent: 10.0**exponent)
ordinary_mus = st.floats(1e-3, 60)
deltas = st.floats(-300, -0.001).map(lambda exponent: 10.0**exponent)
epsilons = st.floats(-8, 5).map(lambda exponent: 10.0**exponent)
alphas = st.one_of(st.floats(0, 1), st.floats(-300, 0).map(lambda exponent: 10.0**exponent))
rates = st.floats(-6, 0).map(lambda exponent: 10.0**exponent)
GRID = np.linspace(0, 1, 401)


def exact_normal(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def exact_quantile(probability):
    return mpmath.findroot(lambda x: mpmath.log(exact_normal(x) / probability), float(ndtri(probability)))


def exact_delta(epsilon, mu):
    """The defining difference, as it stands."""
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    return exact_normal(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * exact_normal(-mu / 2 - epsilon / mu)


def relative_error(got, exact):
    return float(abs(mpmath.mpf(got) / exact - 1))


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize(
    ("epsilon", "mu", "expected"),
    [
        (0.0, 1.0, 0.3829249225480263),
        (1.0, 1.0, 0.12693673750664392),
        (1.0, 0.5, 0.006829594983114584),
        (3.0, 1.13, 0.005435015479506946),
        (0.5, 0.1, 6.856582455838601e-09),
    ],
)
def test_delta_has_the_worked_values(epsilon, mu, expected):
    assert gdp.delta(epsilon, mu) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("mu", "expected"),
    [
        (0.1, 0.34066936468435954),
        (0.2273, 0.834566784636955),
        (0.5, 1.9930914044151182),
        (0.5736, 2.3243549728807764),
        (1.0, 4.377178095681235),
        (1.1339, 5.065986438359724),
        (2.0, 9.997256146434303),
    ],
)
def test_epsilon_has_the_worked_values(mu, expected):
    assert gdp.epsilon(1e-5, mu) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [
        (0.1, 0.03252078405620507),
        (0.25, 0.07526988825468435),
        (0.5, 0.1422105586692609),
        (1.0, 0.2680511232112955),
        (2.0, 0.5015516891696563),
        (5.0, 1.1212418238184085),
        (10.0, 2.0004456204306336),
    ],
)
def test_mu_has_the_worked_values(epsilon, expected):
    assert gdp.mu(epsilon, 1e-5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("alpha", "mu", "expected"),
    [
        (0.05, 1.0, 0.7404889771585558),
        (0.1, 0.57, 0.761628745688115),
        (0.5, 1.13, 0.12923811224001786),
        (0.3, 0.0, 0.7),
    ],
)
def test_gaussian_tradeoff_has_the_worked_values(alpha, mu, expected):
    assert gdp.tradeoff(alpha, mu) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.05, 0.8640759085770477), (0.2689414213, 0.2689377426013332), (0.5, 0.18393604179130946)],
)
def test_epsilon_delta_tradeoff_has_the_worked_values(alpha, expected):
    assert gdp.epsilon_delta_tradeoff(alpha, 1.0, 1e-5) == pytest.approx(expected, rel=1e-14)


def test_smallest_error_sum_has_the_worked_value():
    assert gdp.smallest_error_sum(0.5736) == pytest.approx(0.7742654629402334, rel=1e-14)


def test_three_and_four_compose_to_five():
    assert gdp.compose(0.3, 0.4) == 0.5


@pytest.mark.parametrize(
    ("epsilon", "classic", "true_epsilon", "analytic"),
    [
        (0.1, 48.44805262605389, 0.060703781619677245, 30.74956613197635),
        (0.5, 9.689610525210778, 0.35257249186660894, 7.031826675582507),
        (0.9, 5.383116958450432, 0.6692746052827475, 4.106624331723859),
        (1.0, 4.844805262605389, 0.7509769568672022, 3.730631634815924),
        (2.0, 2.4224026313026945, 1.6103160667035303, 1.993812445643538),
        (3.0, 1.6149350875351296, 2.5332694553012804, 1.390593456674536),
        (5.0, 0.9689610525210778, 4.540104401564501, 0.8918682649515183),
        (7.0, 0.6921150375150555, 6.742895503747317, 0.6707584100660084),
        (10.0, 0.4844805262605389, 10.393882381222282, 0.4998886197090082),
    ],
)
def test_the_textbook_gaussian_is_loose_below_7_and_wrong_at_10(epsilon, classic, true_epsilon, analytic):
    assert math.sqrt(2 * math.log(1.25e5)) / epsilon == pytest.approx(classic, rel=1e-14)
    assert gdp.epsilon(1e-5, 1 / classic) == pytest.approx(true_epsilon, rel=1e-12)
    assert 1 / gdp.mu(epsilon, 1e-5) == pytest.approx(analytic, rel=1e-12)
    assert (true_epsilon <= epsilon) == (epsilon < 10)


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta", "mu", "epsilon"),
    [
        (1.3, 256 / 60000, 3516, 1e-5, 0.2273, 0.8345),
        (1.1, 256 / 60000, 14062, 1e-5, 0.5736, 2.3243),
        (0.7, 256 / 60000, 10547, 1e-5, 1.1339, 5.0662),
        (0.6, 256 / 60000, 14531, 1e-5, 1.9975, 9.9818),
        (0.55, 256 / 60000, 15938, 1e-5, 2.7608, 14.984),
        (0.5, 256 / 60000, 23438, 1e-5, 4.7822, 31.118),
        (0.55, 256 / 29305, 2061, 1e-5, 2.0327, 10.199),
        (0.56, 512 / 25000, 439, 1e-5, 2.0695, 10.427),
        (0.6, 1 / 80, 1600, 1e-6, 1.9419, 10.613),
    ],
)
def test_central_limit_values_of_the_nine_published_rows(multiplier, rate, steps, delta, mu, epsilon):
    limit = gdp.clt_mu(multiplier, rate, steps)
    assert limit == pytest.approx(mu, abs=5.1e-5)
    assert gdp.epsilon(delta, limit) == pytest.approx(epsilon, rel=5.1e-5)


def test_central_limit_of_weak_noise_is_infinite_and_of_strong_noise_tiny():
    assert gdp.clt_mu(1e-200, 0.1, 10) == math.inf
    assert gdp.clt_mu(0.03, 1.0, 1) == pytest.approx(float(mpmath.exp(mpmath.mpf(0.03) ** -2 / 2)), rel=1e-12)
    assert gdp.clt_mu(1e10, 0.1, 10) == pytest.approx(0.1 * math.sqrt(10) * 1e-10, rel=1e-14)


@given(mus, st.floats(0, 1), st.floats(-40, 37.5))
def test_delta_is_exact_in_every_digit_that_matters(mu, share, distance):
    epsilon = mu * (max(distance, -mu / 2 * share) + mu / 2)
    exact = exact_delta(epsilon, mu)
    assume(exact > 1e-300)
    assert relative_error(gdp.delta(epsilon, mu), exact) < (1e-12 if mu <= 60 else 5e-12)


@given(mus, st.floats(-12, 8).map(lambda exponent: 10.0**exponent))
def test_log_delta_is_exact_where_delta_underflows(mu, epsilon):
    exact = exact_delta(epsilon, mu)
    # Closer to 1 the exact one itself runs out of digits.
    assume(exact < 1 - mpmath.mpf("1e-40"))
    assert relative_error(gdp.log_delta(epsilon, mu), mpmath.log(exact)) < 1e-12


@given(mus, st.floats(-12, 2.8).map(lambda exponent: 10.0**exponent))
def test_delta_of_a_negative_epsilon_is_exact(mu, size):
    assert relative_error(gdp.delta(-size, mu), exact_delta(-size, mu)) < 1e-13


@given(deltas, mus)
def test_epsilon_is_the_root_to_thirteen_digits(delta, mu):
    found = gdp.epsilon(delta, mu)
    if found == 0:
        assert exact_delta(0, mu) <= delta * (1 + 1e-13)
        return
    slope = mpmath.exp(mpmath.mpf(found)) * exact_normal(-mu / 2 - mpmath.mpf(found) / mu)
    error = abs(exact_delta(found, mu) - delta) / slope / found
    # Near epsilon 0 a rounding of delta alone moves the root by more.
    conditioning = delta / slope / found
    assert error < 1e-13 * max(1, conditioning)


@given(epsilons, deltas)
def test_mu_is_the_root_to_thirteen_digits(epsilon, delta):
    found = mpmath.mpf(gdp.mu(epsilon, delta))
    slope = mpmath.npdf(epsilon / found - found / 2)
    assert abs(exact_delta(epsilon, found) - delta) / slope / found < 1e-13


@given(epsilons, deltas)
def test_epsilon_undoes_mu(epsilon, delta):
    mu = gdp.mu(epsilon, delta)
    assume(gdp.delta(0.0, mu) > delta * 1.01)
    assert gdp.epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-11)


def test_epsilon_is_zero_where_delta_pays_for_everything():
    assert gdp.epsilon(0.3829249225480263 + 1e-12, 1.0) == 0.0
    assert 0 < gdp.epsilon(0.3829249225480263 - 1e-12, 1.0) < 1e-11


def test_without_a_signal_there_is_perfect_privacy():
    assert gdp.delta(0.0, 0.0) == 0.0
    assert gdp.delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1), rel=1e-15)
    assert gdp.epsilon(1e-5, 0.0) == 0.0
    assert gdp.delta(0.5, 1e-3) < 1e-300
    assert gdp.compose() == 0.0
    assert gdp.smallest_error_sum(0.0) == 1.0


def test_with_an_infinite_signal_there_is_none():
    assert gdp.delta(1e6, math.inf) == 1.0
    assert gdp.epsilon(0.5, math.inf) == math.inf
    assert gdp.mu(math.inf, 1e-5) == math.inf
    assert gdp.compose(1.0, math.inf) == math.inf
    assert gdp.smallest_error_sum(math.inf) == 0.0
    assert gdp.tradeoff(0.0, math.inf) == 0.0
    assert gdp.epsilon_delta_tradeoff(0.0, math.inf, 0.0) == 0.0


def test_an_infinite_epsilon_needs_no_delta():
    assert gdp.delta(math.inf, 1.0) == 0.0
    assert gdp.log_delta(math.inf, 1.0) == -math.inf
    assert gdp.delta(-math.inf, 1.0) == 1.0


def test_a_sampled_infinite_signal_is_seen_whenever_it_is_drawn():
    expected = np.maximum(0, 0.7 - GRID)
    assert gdp.subsampled_gaussian_tradeoff(GRID, math.inf, 0.3) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    "function",
    [
        lambda alpha: gdp.delta(alpha, 0.7),
        lambda alpha: gdp.log_delta(alpha, 0.7),
        lambda alpha: gdp.tradeoff(alpha, 0.7),
        lambda alpha: gdp.epsilon_delta_tradeoff(alpha, 0.7, 0.01),
        lambda alpha: gdp.subsampled_gaussian_tradeoff(alpha, 0.7, 0.1),
    ],
    ids=[
        "delta",
        "log_delta",
        "tradeoff",
        "epsilon_delta",
        "subsampled_gaussian",
    ],
)
def test_an_array_is_answered_entry_by_entry_and_a_number_by_a_float(function):
    table = np.array([[0.0, 0.01, 0.4], [0.7, 0.99, 1.0]])
    answer = function(table)
    assert answer.shape == table.shape
    for alpha, value in zip(table.flat, answer.flat, strict=True):
        assert type(function(float(alpha))) is float
        assert function(float(alpha)) == value


@pytest.mark.slow
@given(alphas, ordinary_mus)
def test_gaussian_tradeoff_is_exact_in_the_tails(alpha, mu):
    assume(1e-300 < alpha < 1)
    got = gdp.tradeoff(alpha, mu)
    assume(got > 1e-300)
    assert relative_error(got, exact_normal(-exact_quantile(alpha) - mu)) < 1e-12


@pytest.mark.slow
@given(alphas, mus)
def test_gaussian_tradeoff_is_its_own_inverse(alpha, mu):
    beta = gdp.tradeoff(alpha, mu)
    assume(1e-300 < beta < 0.9)
    assert gdp.tradeoff(beta, mu) == pytest.approx(alpha, rel=1e-10)


@given(st.floats(0.01, 10), st.floats(0, 10))
def test_gaussian_tradeoff_touches_the_line_of_its_epsilon_and_delta(mu, epsilon):
    lines = gdp.epsilon_delta_tradeoff(GRID, epsilon, gdp.delta(epsilon, mu))
    assert np.all(gdp.tradeoff(GRID, mu) >= lines - 1e-14)
    touching = float(ndtr(-epsilon / mu - mu / 2))
    line = gdp.epsilon_delta_tradeoff(touching, epsilon, gdp.delta(epsilon, mu))
    assert gdp.tradeoff(touching, mu) == pytest.approx(line, rel=1e-9, abs=1e-14)


@given(st.floats(0, 2000), st.floats(0, 1), alphas)
def test_epsilon_delta_tradeoff_is_the_largest_of_three_lines(epsilon, delta, alpha):
    steep = 1 - mpmath.mpf(delta) - mpmath.exp(epsilon) * alpha
    shallow = mpmath.exp(-epsilon) * (1 - mpmath.mpf(delta) - alpha)
    exact = float(max(0, steep, shallow))
    assert gdp.epsilon_delta_tradeoff(alpha, epsilon, delta) == pytest.approx(exact, rel=1e-9, abs=1e-14)


@pytest.mark.slow
@given(ordinary_mus, rates, st.floats(0, 5), st.floats(0, 1))
def test_tradeoff_functions_are_convex_falling_and_below_guessing(mu, rate, epsilon, delta):
    for curve in (
        gdp.tradeoff(GRID, mu),
        gdp.epsilon_delta_tradeoff(GRID, epsilon, delta),
        gdp.subsampled_gaussian_tradeoff(GRID, mu, rate),
    ):
        assert np.all(curve >= 0)
        assert np.all(curve <= 1 - GRID + 1e-15)
        assert np.all(np.diff(curve) <= 1e-15)
        assert np.all(np.diff(curve, 2) >= -1e-14)


@given(ordinary_mus, rates)
def test_smallest_error_sum_is_where_the_curve_comes_closest(mu, rate):
    touching = float(ndtr(-mu / 2))
    assert touching + gdp.tradeoff(touching, mu) == pytest.approx(gdp.smallest_error_sum(mu), rel=1e-11)
    assert np.all(GRID + gdp.tradeoff(GRID, mu) >= gdp.smallest_error_sum(mu) - 1e-15)


@given(alphas, ordinary_mus, rates)
def test_sampled_gaussian_is_its_own_inverse(alpha, mu, rate):
    miss = gdp.subsampled_gaussian_tradeoff(alpha, mu, rate)
    assume(miss > 1e-300)
    back = gdp.subsampled_gaussian_tradeoff(miss, mu, rate)
    assert back == pytest.approx(alpha, rel=1e-9, abs=1e-12)


@pytest.mark.slow
@given(st.one_of(st.floats(0, 1), st.floats(-15, 0).map(lambda exponent: 1 - 10.0**exponent)), mus, rates)
def test_sampled_gaussian_is_exact_where_misses_are_rare(alpha, mu, rate):
    miss = gdp.subsampled_gaussian_tradeoff(alpha, mu, rate)
    assume(1e-300 < miss < ndtr(-mu / 2))
    # There it is the inverse of f_p. A change of alpha by a rounding may change it by much more.
    exact = rate * exact_normal(-exact_quantile(miss) - mu) + (1 - mpmath.mpf(rate)) * (1 - mpmath.mpf(miss))
    assert abs(exact - alpha) < 1e-12 * min(alpha, 1 - alpha)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gdp.delta(math.nan, 1.0), "epsilon must be a number"),
        (lambda: gdp.delta(1.0, -1.0), "mu must be a number of at least 0. Got -1.0"),
        (lambda: gdp.epsilon(0, 1.0), "delta must be a number strictly between 0 and 1. Got 0"),
        (lambda: gdp.epsilon(1, 1.0), "delta must be a number strictly between 0 and 1. Got 1"),
        (lambda: gdp.mu(-1.0, 1e-5), "epsilon must be a number of at least 0. Got -1.0"),
        (lambda: gdp.tradeoff(1.5, 1.0), "alpha must be a number from 0 to 1. Got 1.5"),
        (lambda: gdp.tradeoff([0.5, -1], 1.0), "alpha must be a number from 0 to 1. Got -1.0"),
        (lambda: gdp.clt_mu(-1.0, 0.1, 1), "multiplier must be a finite number above 0. Got -1.0"),
        (lambda: gdp.clt_mu(1.0, 1.5, 1), "rate must be a number above 0 and at most 1. Got 1.5"),
        (lambda: gdp.clt_mu(1.0, 0.1, 2.5), "steps must be a whole number of at least 1. Got 2.5"),
        (lambda: gdp.compose(1.0, math.nan), "mu must be a number of at least 0. Got nan"),
    ],
)
def test_bad_input_is_named_with_its_value_and_range(call, said):
    with pytest.raises(InvalidArgument, match=said):
        call()


def sampled_one_way(alpha, mu, rate):
    """One direction of the add/remove pair: rate * G_mu + (1 - rate)(1 - alpha)."""
    return rate * gdp.tradeoff(alpha, mu) + (1 - rate) * (1 - alpha)


def test_sampled_gaussian_has_the_worked_value():
    assert gdp.subsampled_gaussian_tradeoff(0.05, 1.0, 0.01) == pytest.approx(0.9479048897715856, rel=1e-14)


@pytest.mark.parametrize(("mu", "rate"), [(2.0, 0.5), (1.0, 0.01), (0.5, 0.9)])
def test_sampled_gaussian_is_the_convex_hull_of_both_directions(mu, rate):
    fine = np.linspace(0, 1, 20_001)
    miss = sampled_one_way(fine, mu, rate)
    points = np.concatenate([fine, miss]), np.concatenate([miss, fine])
    slopes = np.concatenate([np.linspace(0, 3, 601), np.linspace(0.9, 1.1, 801), np.geomspace(3, 1e4, 600)])
    # The lowest line of each slope that still touches the points, then the highest of these lines.
    heights = np.array([np.min(points[1] + slope * points[0]) for slope in slopes])
    hull = np.max(heights - slopes * GRID[:, None], axis=1)
    assert gdp.subsampled_gaussian_tradeoff(GRID, mu, rate) == pytest.approx(hull, abs=1e-5)
