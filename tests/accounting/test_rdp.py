"""Rényi accounting: divergences against binomial sums, integrals and dp-accounting; conversions as published."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy.special import gammaln, logsumexp

from support.exact_losses import panels
from tacit.accounting import (
    EpsilonDelta,
    Gaussian,
    Laplace,
    ProductNoise,
    RandomizedResponse,
    RenyiProfile,
    StudentT,
    StudentTDensity,
    curve,
)
from tacit.accounting.rdp import MOMENTS_ORDERS
from tacit.errors import InvalidArgument, NotAccountable

# Log moments are doubles near zero: so much of each step may be rounding.
ROUNDING = 1e-14


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def sampled(multiplier, rate, steps):
    return Gaussian(multiplier).sampled(rate) * steps


@mpmath.workdps(40)
def binomial_divergence(order, multiplier, rate):
    """Mironov, Talwar, Zhang 2019, section 3.3: whole orders."""
    z, q = mpf(multiplier), mpf(rate)
    terms = (
        math.comb(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(mpf(k * (k - 1)) / (2 * z**2))
        for k in range(order + 1)
    )
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)


@given(powers_of_ten(-0.52, 2), powers_of_ten(-6, -0.01), st.sampled_from([2, 3, 5, 8, 16, 40]))
def test_sampled_gaussians_have_their_binomial_sum_at_whole_orders(multiplier, rate, order):
    got = RenyiProfile.of(Gaussian(multiplier).sampled(rate)).divergence(float(order))
    assume(math.isfinite(got))
    assert got == pytest.approx(float(binomial_divergence(order, multiplier, rate)), rel=1e-11, abs=ROUNDING)


@settings(max_examples=50)
@given(powers_of_ten(-0.3, 1), powers_of_ten(-4, -0.01), st.floats(1.05, 12))
def test_sampled_gaussians_have_their_integral_at_any_order(multiplier, rate, order):
    shift = 1 / multiplier
    x, weight = panels(-12.0, 12.0 + order * shift, 0.25)
    exponent = order * np.log1p(rate * np.expm1(shift * x - shift**2 / 2)) - x**2 / 2
    top = exponent.max()
    exact = (top + math.log(weight @ np.exp(exponent - top)) - 0.5 * math.log(2 * math.pi)) / (order - 1)
    got = RenyiProfile.of(Gaussian(multiplier).sampled(rate)).divergence(order)
    assume(math.isfinite(got))
    assert got == pytest.approx(exact, rel=1e-9, abs=1e-12 / (order - 1))


@pytest.mark.parametrize("multiplier", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 17.5, 1000.0])
def test_a_gaussian_has_order_over_twice_the_squared_multiplier(multiplier, order):
    profile = RenyiProfile.of(Gaussian(multiplier) * 3)
    assert profile.divergence(order) == pytest.approx(3 * order / (2 * multiplier**2), rel=1e-12)


@pytest.mark.parametrize("order", [1.5, 2.0, 10.0])
def test_laplace_has_its_closed_form(order):
    # Mironov 2017, proposition 6, scale 2.
    s = 1 / 2.0
    inside = order / (2 * order - 1) * math.exp((order - 1) * s) + (order - 1) / (2 * order - 1) * math.exp(-order * s)
    exact = math.log(inside) / (order - 1)
    assert exact * (1 - 1e-12) <= RenyiProfile.of(Laplace(2.0)).divergence(order) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("order", [1.5, 2.0, 10.0])
def test_randomized_response_has_its_closed_form(order):
    likely = 1 / (1 + math.exp(-0.8))
    other = 1 - likely
    inside = likely**order * other ** (1 - order) + other**order * likely ** (1 - order)
    got = RenyiProfile.of(RandomizedResponse(0.8) * 5).divergence(order)
    assert got == pytest.approx(5 * math.log(inside) / (order - 1), rel=1e-12)


@pytest.mark.parametrize(
    ("dimensions", "expected"),
    [
        (1, 0.8941667146430363),
        (10, 1.0480247220330579),
        (100, 1.0690056040312639),
        (1000, 1.071185409952469),
        (10_000, 1.071404246592696),
    ],
)
def test_student_t_loses_its_advantage_in_high_dimensions(dimensions, expected):
    # METHODS 4.5: equal shifts of norm 1, order 2; the limit is 15/14, above the Gaussian's 1.
    event = ProductNoise(StudentTDensity(9.0, 0.8819171036881969), (dimensions**-0.5,) * dimensions)
    got = RenyiProfile.of(event).divergence(2.0)
    assert expected * (1 - 1e-8) <= got <= expected * (1 + 1e-3)


def dp_accounting_divergences(event, orders):
    accountant = RdpAccountant(orders)
    accountant.compose(event)
    return accountant._rdp


SAMPLED = pytest.mark.parametrize(("multiplier", "rate"), [(1.1, 256 / 60000), (0.6, 0.0125), (4.0, 0.01), (2.0, 0.3)])


@SAMPLED
def test_dp_accounting_has_the_same_divergences_at_whole_orders(multiplier, rate):
    orders = [2, 3, 5, 8]
    theirs = dp_accounting_divergences(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), orders)
    profile = RenyiProfile.of(Gaussian(multiplier).sampled(rate))
    assert [profile.divergence(order) for order in orders] == pytest.approx(list(theirs), rel=1e-9, abs=ROUNDING)


@SAMPLED
def test_dp_accounting_has_no_smaller_divergences_at_fractional_orders(multiplier, rate):
    # There it has upper bounds, up to a tenth too large.
    orders = [1.1, 1.5, 3.7, 6.5]
    theirs = dp_accounting_divergences(PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier)), orders)
    profile = RenyiProfile.of(Gaussian(multiplier).sampled(rate))
    for order, bound in zip(orders, theirs, strict=True):
        assert profile.divergence(order) <= bound * (1 + 1e-9)


def test_dp_accounting_has_the_same_divergences_of_laplace():
    orders = [1.1, 2.0, 3.7, 20.0]
    theirs = dp_accounting_divergences(LaplaceDpEvent(1.5), orders)
    profile = RenyiProfile.of(Laplace(1.5))
    assert [profile.divergence(order) for order in orders] == pytest.approx(list(theirs), rel=1e-4)


def test_dp_accounting_converts_to_no_smaller_epsilon():
    # It has the same conversion, but fewer orders.
    accountant = RdpAccountant()
    accountant.compose(PoissonSampledDpEvent(256 / 60000, GaussianDpEvent(1.1)), 14062)
    ours = curve(sampled(1.1, 256 / 60000, 14062), "rdp").epsilon(1e-5)
    assert accountant.get_epsilon(1e-5) * (1 - 1e-3) < ours <= accountant.get_epsilon(1e-5)


@pytest.mark.parametrize("order", [1.5, 4.0, 30.0])
def test_the_classical_conversion_is_mironovs(order):
    profile = RenyiProfile.of(Gaussian(1.5), (order,), "classical")
    rdp = order / (2 * 1.5**2)
    assert profile.epsilon(1e-6).upper == pytest.approx(rdp + math.log(1e6) / (order - 1), rel=1e-12)
    assert profile.delta(9.0).upper == pytest.approx(math.exp((order - 1) * min(rdp - 9.0, 0)), rel=1e-10)


@pytest.mark.parametrize("order", [1.5, 4.0, 30.0])
def test_the_improved_conversion_is_canonne_kamath_and_steinkes(order):
    profile = RenyiProfile.of(Gaussian(1.5), (order,), "improved")
    rdp = order / (2 * 1.5**2)
    epsilon = rdp + math.log((order - 1) / order) - (math.log(1e-6) + math.log(order)) / (order - 1)
    assert profile.epsilon(1e-6).upper == pytest.approx(epsilon, rel=1e-12)
    delta = math.exp((order - 1) * (rdp - 9.0)) / order * (1 - 1 / order) ** (order - 1)
    assert profile.delta(9.0).upper == pytest.approx(min(delta, 1), rel=1e-10)


def test_the_best_order_of_a_gaussian_is_found():
    # Without sampling, rdp + log(1/delta)/(order - 1) has its minimum at order 1 + z sqrt(2 log(1/delta)).
    z, delta = 3.0, 1e-6
    exact = 1 / (2 * z**2) + math.sqrt(2 * math.log(1 / delta)) / z
    assert RenyiProfile.of(Gaussian(z), conversion="classical").epsilon(delta).upper == pytest.approx(exact, rel=1e-6)


def test_tiny_epsilons_need_orders_far_above_63():
    event = Gaussian(300.0)
    limited = RenyiProfile.of(event, tuple(each for each in MOMENTS_ORDERS if each < 64)).epsilon(1e-6).upper
    assert curve(event, "rdp").epsilon(1e-6) < limited / 5


def test_the_moments_accountant_uses_the_orders_of_tf_privacy():
    assert pytest.approx([*np.arange(11, 110) / 10, *range(12, 64), 128, 256, 512]) == MOMENTS_ORDERS


@pytest.mark.parametrize(("most", "multiplier"), [(63, 35.08144), (512, 18.12625)])
def test_at_an_epsilon_of_a_fifth_orders_up_to_63_double_the_noise(most, multiplier):
    """MNIST of Xiang et al.: 512 of 55,000, 60 epochs. The divergence as a sum over binomial terms."""
    rate, steps, orders = 512 / 55_000, 6445, [order for order in (*range(12, 64), 128, 256, 512) if order <= most]

    def divergence(order):
        k = np.arange(order + 1)
        terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + k * math.log(rate)
        terms = terms + (order - k) * math.log1p(-rate) + k * (k - 1) / (2 * multiplier**2)
        return steps * logsumexp(terms) / (order - 1)

    found = min(divergence(order) - math.log(1e-5) / (order - 1) for order in orders)
    assert found == pytest.approx(0.2, rel=1e-5)
    event = Gaussian(multiplier).sampled(rate) * steps
    assert RenyiProfile.of(event, tuple(map(float, orders)), "classical").epsilon(1e-5).upper == pytest.approx(found)


def test_student_t_by_renyi_has_no_more_than_the_worked_epsilons():
    # METHODS 4.6 with whole orders: 2.173 classical, 1.832 improved; more orders can only lower them.
    event = StudentT(9.0, 0.8819171036881969, (0.6, 0.8)).sampled(0.01) * 1000
    for conversion, listed in (("classical", 2.172634502134243), ("improved", 1.831722778344081)):
        whole = RenyiProfile.of(event, tuple(map(float, range(2, 64))), conversion).epsilon(1e-5).upper
        assert whole == pytest.approx(listed, rel=2e-3)
        assert RenyiProfile.of(event, conversion=conversion).epsilon(1e-5).upper <= whole
    assert curve(event).epsilon(1e-5) < 1.831722778344081


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta", "listed"),
    [
        (0.6, 256 / 60000, 14531, 1e-5, 12.222956045631872),
        (0.55, 256 / 60000, 15938, 1e-5, 17.49906647317522),
        (0.56, 512 / 25000, 439, 1e-5, 13.991385516173864),
    ],
)
def test_searching_all_orders_is_at_most_what_a_list_of_orders_gives(multiplier, rate, steps, delta, listed):
    # Three of the nine published settings over a list of orders; the other six rows are in test_published_numbers.
    ours = curve(sampled(multiplier, rate, steps), "rdp").epsilon(delta)
    assert listed * 0.98 < ours <= listed


@pytest.mark.slow
@settings(max_examples=20)
@given(powers_of_ten(-0.52, 1.5), powers_of_ten(-4, 0), powers_of_ten(0, 5).map(int), powers_of_ten(-12, -1))
def test_renyi_is_never_below_the_certified_lower_bound(multiplier, rate, steps, delta):
    event = sampled(multiplier, rate, steps)
    assert curve(event, "rdp").epsilon(delta) >= curve(event).epsilon_bounds(delta)[0]


def test_delta_by_renyi_is_never_below_the_certified_lower_bound():
    event = sampled(1.0, 0.02, 500)
    for epsilon in (0.1, 1.0, 4.0):
        assert curve(event, "rdp").delta(epsilon) >= curve(event).delta_bounds(epsilon)[0]


def test_renyi_says_nothing_from_below():
    assert curve(Gaussian(1.0), "rdp").epsilon_bounds(1e-5)[0] == 0
    assert curve(Gaussian(1.0), "rdp").delta_bounds(1.0)[0] == 0


@pytest.mark.parametrize("by", ["rdp", "moments"])
def test_outcomes_that_only_one_side_has_are_not_for_renyi(by):
    with pytest.raises(NotAccountable, match=r"Rényi divergences of EpsilonDelta are infinite.*'pld'"):
        curve(EpsilonDelta(1.0, 1e-9), by).epsilon(1e-5)


@pytest.mark.parametrize("orders", [(), (1.0,), (0.5, 2.0), (math.inf,), (math.nan,)])
def test_orders_must_be_above_one(orders):
    with pytest.raises(InvalidArgument, match="orders must be finite numbers above 1"):
        RenyiProfile.of(Gaussian(1.0), orders)


def test_a_conversion_must_be_known():
    with pytest.raises(InvalidArgument, match="conversion must be 'improved' or 'classical'"):
        RenyiProfile.of(Gaussian(1.0), conversion="best")


def test_a_gaussian_with_company_on_its_lot_is_refused():
    # Atoms end at 37 standard deviations, and high orders live beyond.
    with pytest.raises(NotAccountable, match="together with other noise on one lot"):
        curve((Gaussian(1.0) + Laplace(100.0)).sampled(0.5), by="rdp").epsilon(1e-5)


@pytest.mark.parametrize(("multiplier", "rate", "delta"), [(16.0, 0.001, 1e-4), (3.0, 0.01, 1e-7), (6.0, 0.001, 1e-6)])
def test_the_search_for_the_best_order_copes_with_orders_out_of_reach(multiplier, rate, delta):
    assert math.isfinite(curve(Gaussian(multiplier).sampled(rate), "rdp").epsilon(delta))
