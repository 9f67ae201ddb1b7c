"""The central limit theorem: its published numbers to every digit, and that it is never taken for a bound."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    RandomizedResponse,
    StudentT,
    calibrate,
    central_limit_mu,
    claim_side,
    curve,
    gdp,
    lot_size_for,
    multiplier_for,
    steps_for,
)
from tacit.errors import Asymptotic, NotAccountable

# Bu et al. 2019, with more digits than printed there: multiplier, rate, steps, delta, mu, epsilon, side.
ROWS = {
    "mnist 1": (1.3, 256 / 60000, 3516, 1e-5, 0.22728628834317083, 0.8345116453284046, "under"),
    "mnist 2": (1.1, 256 / 60000, 14062, 1e-5, 0.573581076035896, 2.3242688733471373, "under"),
    "mnist 3": (0.7, 256 / 60000, 10547, 1e-5, 1.1339391882883287, 5.06619100522068, "under"),
    "mnist 4": (0.6, 256 / 60000, 14531, 1e-5, 1.997486241991545, 9.981781905606994, "under"),
    "mnist 5": (0.55, 256 / 60000, 15938, 1e-5, 2.76080158304966, 14.983875658103246, "under"),
    "mnist 6": (0.5, 256 / 60000, 23438, 1e-5, 4.782157659092164, 31.117476990687518, "over"),
    "adult": (0.55, 256 / 29305, 2061, 1e-5, 2.0326696588886497, 10.198969806945591, "under"),
    "imdb": (0.56, 512 / 25000, 439, 1e-5, 2.069450176617169, 10.427408838861677, "under"),
    "movielens": (0.6, 1 / 80, 1600, 1e-6, 1.941857401565763, 10.612519235640018, "under"),
}


def event_of(row):
    multiplier, rate, steps = ROWS[row][:3]
    return Gaussian(multiplier).sampled(rate) * steps


@pytest.mark.parametrize("row", ROWS)
def test_mu_of_a_published_row_to_twelve_digits(row):
    assert central_limit_mu(event_of(row)) == pytest.approx(ROWS[row][4], rel=1e-12)


@pytest.mark.parametrize("row", ROWS)
def test_epsilon_of_a_published_row_to_twelve_digits(row):
    assert curve(event_of(row), "clt").epsilon(ROWS[row][3]) == pytest.approx(ROWS[row][5], rel=1e-11)


@pytest.mark.parametrize("row", ROWS)
def test_a_published_epsilon_lies_on_the_stated_side_of_the_truth(row):
    assert claim_side(ROWS[row][5], curve(event_of(row)).epsilon_bounds(ROWS[row][3])) == ROWS[row][6]


@pytest.mark.parametrize(("claimed", "side"), [(0.9, "under"), (1.0, "inside"), (1.05, "inside"), (1.2, "over")])
def test_a_claim_is_under_inside_or_over_an_interval(claimed, side):
    assert claim_side(claimed, (1.0, 1.1)) == side


def test_gaussians_without_sampling_are_exact():
    assert central_limit_mu(Gaussian(2.0) * 4 + Gaussian(1.0)) == pytest.approx(math.sqrt(2))


def test_different_steps_add_their_squares():
    one, other = Gaussian(1.0).sampled(0.01) * 500, Gaussian(0.8).sampled(0.02) * 100
    squares = central_limit_mu(one) ** 2 + central_limit_mu(other) ** 2 + 0.25
    assert central_limit_mu(one + other + Gaussian(2.0)) == pytest.approx(math.sqrt(squares), rel=1e-12)


def test_sampled_laplace_has_its_chi_square():
    # The integral of p^2 / q for a shift of s scales is (2 e^s + e^{-2 s}) / 3.
    s = 1 / 1.6
    chi_square = (2 * math.exp(s) + math.exp(-2 * s)) / 3 - 1
    expected = 0.01 * math.sqrt(700 * chi_square)
    assert central_limit_mu(Laplace(1.6).sampled(0.01) * 700) == pytest.approx(expected, rel=1e-7)


def test_sampled_student_t_has_the_worked_chi_square():
    # METHODS 4.5: E_2 = 2.4452973098 for nu = 9, unit variance, shift 1.
    event = StudentT(9.0, 0.8819171036881969).sampled(0.01) * 700
    assert central_limit_mu(event) == pytest.approx(0.01 * math.sqrt(700 * 1.4452973098209507), rel=1e-7)


def test_several_releases_on_one_lot_multiply_their_chi_squares():
    s = 1 / 1.6
    both = (2 * math.exp(s) + math.exp(-2 * s)) / 3 * math.exp(1 / 4) - 1
    event = (Laplace(1.6) + Gaussian(2.0)).sampled(0.01) * 700
    assert central_limit_mu(event) == pytest.approx(0.01 * math.sqrt(700 * both), rel=1e-7)


@pytest.mark.parametrize("multiplier", [0.6, 2.0])
def test_replacing_one_example_has_the_chi_square_of_its_pair(multiplier):
    half = 0.5 / multiplier

    def integrand(x):
        difference = stats.norm.pdf(x - half) - stats.norm.pdf(x + half)
        return difference**2 / stats.norm.pdf(x)

    chi_square, _ = integrate.quad(integrand, -12, 12, epsabs=1e-13)
    event = Gaussian(multiplier, Adjacency.REPLACE_ONE).sampled(0.01) * 700
    assert central_limit_mu(event) == pytest.approx(0.01 * math.sqrt(700 * chi_square), rel=1e-8)


@given(st.floats(0.5, 50), st.integers(1, 10**6), st.floats(1e-5, 1))
def test_the_profile_is_that_of_its_mu(multiplier, steps, rate):
    event = Gaussian(multiplier).sampled(rate) * steps
    mu = central_limit_mu(event)
    assert curve(event, "clt").epsilon(1e-6) == gdp.epsilon(1e-6, mu)
    assert curve(event, "clt").delta(1.0) == gdp.delta(1.0, mu)


@pytest.mark.parametrize("row", ["mnist 2", "imdb"])
def test_with_ever_smaller_lots_the_truth_tends_to_the_limit(row):
    multiplier, rate, steps, delta = ROWS[row][:4]
    # rate * sqrt(steps) stays the same, so the limit does.
    gaps = []
    for factor in (1, 4, 16):
        event = Gaussian(multiplier).sampled(rate / factor) * (steps * factor**2)
        gaps.append(abs(curve(event, "clt").epsilon(delta) / curve(event).epsilon(delta) - 1))
    assert gaps[0] > 1.2 * gaps[1] > 1.44 * gaps[2]


@pytest.mark.parametrize("event", [Laplace(1.0), RandomizedResponse(1.0), EpsilonDelta(0.1) * 10_000])
def test_what_is_neither_sampled_nor_gaussian_is_refused(event):
    with pytest.raises(NotAccountable, match="Use the accountant 'pld'"):
        curve(event, "clt").epsilon(1e-5)


@pytest.mark.parametrize(
    "ask",
    [lambda c: c.epsilon_bounds(1e-5), lambda c: c.delta_bounds(1.0), lambda c: c.tradeoff_bounds(0.1)],
    ids=["epsilon", "delta", "tradeoff"],
)
def test_it_has_no_bounds(ask):
    with pytest.raises(Asymptotic, match="approximation without bounds"):
        ask(curve(event_of("mnist 2"), "clt"))


BUDGET = {"epsilon": 2.0, "delta": 1e-5, "by": "clt"}


CALIBRATIONS = {
    "multiplier": lambda **extra: multiplier_for(rate=0.01, steps=1000, **BUDGET, **extra),
    "steps": lambda **extra: steps_for(rate=0.01, multiplier=1.0, **BUDGET, **extra),
    "lot_size": lambda **extra: lot_size_for(population=10_000, steps=1000, multiplier=1.0, **BUDGET, **extra),
    "calibrate": lambda **extra: calibrate(lambda x: Gaussian(x).sampled(0.01) * 1000, **BUDGET, **extra),
}


@pytest.mark.parametrize("ask", CALIBRATIONS.values(), ids=CALIBRATIONS)
def test_calibration_by_it_is_refused(ask):
    with pytest.raises(Asymptotic, match="allow_asymptotic=True"):
        ask()


@pytest.mark.parametrize("ask", CALIBRATIONS.values(), ids=CALIBRATIONS)
def test_calibration_by_it_is_done_if_asked_for(ask):
    assert ask(allow_asymptotic=True) > 0


def test_a_calibrated_multiplier_is_that_of_the_formula():
    # mu = rate sqrt(steps (e^{1/z^2} - 1)), solved for z.
    mu = gdp.mu(2.0, 1e-5)
    expected = 1 / math.sqrt(math.log1p((mu / 0.01) ** 2 / 1000))
    found = multiplier_for(rate=0.01, steps=1000, **BUDGET, allow_asymptotic=True)
    assert expected <= found <= expected * (1 + 1e-4)


def test_nothing_has_mu_zero():
    assert curve(Gaussian(1.0) * 0, "clt").mu() == 0
