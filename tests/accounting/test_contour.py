"""The contour integral's three facts, each against long arithmetic; and the bounds they make."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy import optimize

from support.exact_losses import composed, epsilon_delta, gaussian_delta, hockey_stick, response
from tacit.accounting import contour, gdp
from tacit.accounting.composition import Composition
from tacit.accounting.contour import (
    Lines,
    draw_line,
    saddle,
    saddle_epsilon,
    saddle_for_delta,
    saddle_log_delta,
    try_line,
)
from tacit.accounting.losses import LossAtoms
from tacit.accounting.mixture import GaussianMixture


def response_atoms(epsilon):
    likely = 1 / (1 + math.exp(-epsilon))
    pair = np.array([likely, likely * math.exp(-epsilon)])
    return LossAtoms(np.array([epsilon, -epsilon]), pair, pair[::-1].copy())


def smoothed(u, eta):
    """E(1 - e^{-(u + G)})_+ with G the loss of a Gaussian mechanism of parameter eta."""
    return mpmath.ncdf(u / eta + eta / 2) - mpmath.exp(-u) * mpmath.ncdf(u / eta - eta / 2)


def bump(u, eta):
    return eta * mpmath.npdf(u / eta) * mpmath.exp(-u / 2)


SMOOTHINGS = [mpf(10) ** exponent for exponent in (-4, -2, -1, 0)] + [mpf(3)]
PLACES = [mpf(k) / 8 for k in range(-64, 65)]


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


@pytest.mark.parametrize("eta", SMOOTHINGS, ids=lambda eta: f"{float(eta):g}")
def test_smoothing_raises_the_hockey_stick(eta):
    for place in PLACES:
        u = place * eta
        assert smoothed(u, eta) >= max(1 - mpmath.exp(-u), 0)


@pytest.mark.parametrize("eta", SMOOTHINGS, ids=lambda eta: f"{float(eta):g}")
def test_the_bump_is_at_least_what_smoothing_raises(eta):
    for place in PLACES:
        u = place * eta
        assert smoothed(u, eta) - bump(u, eta) <= max(1 - mpmath.exp(-u), 0)


@pytest.mark.slow
@pytest.mark.parametrize("eta", [mpf("0.05"), mpf("0.7")], ids=float)
@pytest.mark.parametrize("z", [mpf("0.3"), mpf(2), mpf(20)], ids=float)
def test_the_transform_of_the_bump_is_a_gaussian(eta, z):
    # Integrated against e^{z u} of the loss, where u = loss - epsilon.
    ends = [eta * k for k in range(-40, 41, 4)]
    integral = mpmath.quad(lambda u: bump(u, eta) * mpmath.exp(-z * u), ends)
    assert abs(integral / (eta**2 * mpmath.exp(eta**2 * (z + mpf(1) / 2) ** 2 / 2)) - 1) < mpf(10) ** -20


@pytest.mark.parametrize("z", [mpf("0.3"), mpf(4)], ids=float)
def test_half_the_bump_leaves_an_error_of_fourth_order(z):
    def error(eta):
        w = z * (z + 1)
        raised = (mpmath.exp(eta**2 * w / 2) - 1) / w
        return raised - eta**2 / 2 * mpmath.exp(eta**2 * (z + mpf(1) / 2) ** 2 / 2)

    assert abs(error(mpf("1e-3")) / error(mpf("2e-3")) - mpf(1) / 16) < mpf(10) ** -4


@pytest.mark.parametrize("mu", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("log_delta", [-5.0, -12.0, -34.0, -200.0])
def test_the_line_brackets_a_gaussian(mu, log_delta):
    measure = Composition((), mu)
    epsilon = optimize.brentq(lambda e: gdp.log_delta(e, mu) - log_delta, 0.0, 40 * mu + mu**2)
    c = saddle(measure, epsilon)
    line = Lines((draw_line(measure, 0.85 * c, epsilon, log_delta, 1e-6),), 0.0, math.inf)
    exact = gaussian_delta(epsilon, mu)
    assert mpf(line.delta(epsilon, "lower")) <= exact <= mpf(line.delta(epsilon, "upper"))
    assert line.doubt(epsilon) < 1e-8


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.floats(-2, 1).map(lambda exponent: 10.0**exponent),
    st.integers(1, 60),
    st.floats(0, 0.98),
    st.floats(0.4, 1.6),
    st.sampled_from([1e-2, 1e-4, 1e-6]),
    st.sampled_from([0.0, 0.01, 0.3]),
)
def test_lines_bracket_randomized_response_wherever_they_stand(e0, times, share, place, tolerance, mu):
    measure = Composition(((response_atoms(e0), times),), mu)
    epsilon = share * times * e0
    exact = hockey_stick(composed((response(e0), times)), epsilon, mu)
    assume(exact > 1e-250)
    c = place * saddle(measure, epsilon)
    log_delta = min(saddle_log_delta(measure, c, epsilon), 0.0)
    line = draw_line(measure, c, epsilon, log_delta, tolerance)
    lines = Lines((line,), 0.0, math.inf)
    assert mpf(lines.delta(epsilon, "lower")) <= exact <= mpf(lines.delta(epsilon, "upper"))


@pytest.mark.parametrize("offset", [-0.5, -0.1, 0.1, 0.5])
def test_a_line_serves_epsilons_other_than_its_own(offset):
    measure = Composition(((response_atoms(0.5), 40),), 0.2)
    points = composed((response(0.5), 40))
    c = saddle(measure, 8.0)
    lines = Lines((draw_line(measure, 0.85 * c, 8.0, -9.0, 1e-5),), 0.0, math.inf)
    epsilon = 8.0 + offset * lines.scale
    exact = hockey_stick(points, epsilon, 0.2)
    assert mpf(lines.delta(epsilon, "lower")) <= exact <= mpf(lines.delta(epsilon, "upper"))


def test_what_only_one_side_can_produce_is_added():
    atoms = LossAtoms(np.array([0.5, -0.5]), response_atoms(0.5).p * 0.999, response_atoms(0.5).q * 0.999, 1e-3, 1e-3)
    measure = Composition(((atoms, 20),), 0.0)
    c = saddle(measure, 3.0)
    lines = Lines((draw_line(measure, 0.85 * c, 3.0, -3.0, 1e-5),), measure.infinite(), math.inf)
    exact = hockey_stick(composed((epsilon_delta(0.5, 1e-3), 20)), 3.0)
    assert mpf(lines.delta(3.0, "lower")) <= exact <= mpf(lines.delta(3.0, "upper"))


@pytest.mark.parametrize("mu", [0.3, 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_endless_sum_is_the_sum_of_all_aliases(mu, epsilon):
    # Poisson summation: with period P the sum gives sum over m of delta(eps + m P) e^{c m P}.
    measure = Composition((), mu)
    c = 0.85 * saddle(measure, epsilon)
    line = draw_line(measure, c, epsilon, math.log(gdp.delta(epsilon, mu)), 1e-6)
    period = 2 * math.pi / line.spacing
    whole = mpmath.fsum(gaussian_delta(epsilon + m * period, mu) * mpmath.exp(c * m * period) for m in range(-8, 9))
    got, _ = line.delta_and_slope(epsilon, "upper")
    # The upper bound includes what is cut off, up to e^-23.
    assert got == pytest.approx(float(whole), rel=1e-10)


@pytest.mark.parametrize("mu", [0.3, 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_the_aliases_are_below_their_bound(mu, epsilon):
    measure = Composition((), mu)
    c = 0.85 * saddle(measure, epsilon)
    line = draw_line(measure, c, epsilon, -1.0, 1e-6)
    period = 2 * math.pi / line.spacing
    for at in (0.5 * epsilon, epsilon, 1.2 * epsilon):
        aliases = mpmath.fsum(
            gaussian_delta(at + m * period, mu) * mpmath.exp(c * m * period) for m in range(-8, 9) if m
        )
        assert line.aliases(at) >= aliases * (1 - mpf(10) ** -10)


@pytest.mark.parametrize(
    "measure",
    [
        Composition((), 0.7),
        Composition(((response_atoms(0.3), 50),), 0.0),
        Composition(((GaussianMixture(1.0, (0.99, 0.01)), 1000),), 0.1),
        Composition(((GaussianMixture(1.0, (0.99, 0.01), added=True), 1000),), 0.1),
    ],
    ids=["gaussian", "response", "sampled", "added"],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_saddle_is_where_the_integrand_is_smallest(measure, epsilon):
    def height(log_c):
        c = math.exp(log_c)
        return measure.cumulants(c)[0] - c * epsilon - math.log(c * (c + 1))

    best = optimize.minimize_scalar(height, bounds=(-9, 8), method="bounded", options={"xatol": 1e-8})
    assert height(math.log(saddle(measure, epsilon))) <= best.fun + 0.05


@pytest.mark.parametrize("log_delta", [-3.0, -11.5, -34.0])
def test_the_saddle_point_formula_is_near_for_a_gaussian(log_delta):
    measure = Composition((), 1.0)
    c = saddle_for_delta(measure, log_delta)
    epsilon = saddle_epsilon(measure, c)
    assert gdp.log_delta(epsilon, 1.0) == pytest.approx(log_delta, abs=0.3)


def test_a_strict_line_is_none_where_smoothing_would_cost_too_much():
    measure = Composition(((response_atoms(1e-3), 2),), 0.0)
    assert try_line(measure, 1000.0, 1e-3, -7.0, 1e-12, strict=True) is None


def test_a_line_that_is_all_smoothing_has_trivial_bounds(monkeypatch):
    # Losses of 25,000 and more, seen from epsilon 3 with few nodes: eta is in the hundreds.
    monkeypatch.setattr(contour, "_MOST_WORK", 1e4)
    composition = Composition(((response_atoms(0.5), 100_000),))
    lines = Lines((draw_line(composition, 1e-7, 3.0, 0.0, 1e-4),), 0.0, math.inf)
    assert lines.smoothing > 1e4
    assert lines.delta(3.0, "lower") == 0.0
    assert lines.delta(3.0, "upper") == 1.0
