"""Moments of many steps, and deltas of compositions whose exact answer is a sum."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf

from support.exact_losses import (
    composed,
    epsilon_delta,
    gaussian_delta,
    hockey_stick,
    laplace_delta,
    response,
    sampled,
    several_sampled_gaussians,
    swapped,
)
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, Laplace, RandomizedResponse, curve, gdp
from tacit.accounting.composition import ROUNDING, Composition, characteristic, chernoff_bound
from tacit.accounting.jumps import Jumps, separate
from tacit.accounting.losses import LossAtoms
from tacit.accounting.mixture import GaussianMixture

ADD_REMOVE = Adjacency.ADD_REMOVE
# Listed and single losses are not rounded outwards; every other bound must hold to the last digit.
ROUNDINGS = 1e-12


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def assert_between(bounds, exact, slack=ROUNDINGS):
    lower, upper = bounds
    assert mpf(lower) <= mpf(exact) * (1 + mpf(slack))
    assert mpf(upper) >= mpf(exact) * (1 - mpf(slack))


def random_atoms(size, seed):
    draw = np.random.default_rng(seed)
    p, q = draw.random(size), draw.random(size)
    p, q = p / p.sum(), q / q.sum()
    return LossAtoms(np.log(p / q), p, q)


def exact_moment(atoms, z):
    return mpmath.fsum(
        mpf(float(p)) * mpmath.exp(z * mpf(float(loss))) for p, loss in zip(atoms.p, atoms.loss, strict=True)
    )


# The last two are long enough for a fast transform.
@pytest.mark.parametrize(("atoms", "count"), [(2, 400), (5, 900), (300, 2000), (700, 1500), (900, 30_000)])
def test_values_of_the_characteristic_function_are_right_to_the_stated_rounding(atoms, count):
    assert largest_error(atoms, count) < ROUNDING


def test_values_far_out_on_long_lines_are_right_to_the_stated_rounding():
    assert largest_error(2, 90_000) < ROUNDING


def largest_error(atoms, count):
    """Beyond what rounding the phases may do, as `Composition.moments` bounds it."""
    draw = np.random.default_rng(0)
    loss = draw.normal(size=atoms)
    loss = np.where(np.arange(atoms) > 0, 0.0, loss) if atoms == 2 else loss
    weight = draw.random(atoms)
    weight /= weight.sum()
    change, _ = characteristic(weight[None], loss[None], 0.01, count)
    worst = 0.0
    with mpmath.workdps(40):
        for k in (0, 1, count - 1, *draw.integers(0, count, 30)):
            exact = mpmath.fsum(
                mpf(float(w)) * (mpmath.expj(int(k) * mpf(0.01) * mpf(float(x))) - 1)
                for w, x in zip(weight, loss, strict=True)
            )
            phase = 2.0**-51 * 0.01 * int(k) * float(weight @ np.abs(loss))
            worst = max(worst, float(abs(mpmath.mpc(complex(change[0, k])) - exact)) - phase)
    return worst


@pytest.mark.parametrize("c", [0.2, 1.0, 7.0])
def test_cumulants_are_the_derivatives_of_log_m(c):
    parts = ((random_atoms(20, 1), 30), (random_atoms(7, 2), 1))
    with mpmath.workdps(40):

        def log_m(z):
            steps = mpmath.fsum(times * mpmath.log(exact_moment(atoms, z)) for atoms, times in parts)
            return steps + mpf(0.6) ** 2 * z * (z + 1) / 2

        exact = [float(mpmath.diff(log_m, c, order)) for order in range(3)]
    assert Composition(parts, 0.6).cumulants(c) == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("c", [0.1, 0.5, 3.0])
def test_cumulants_of_jumps_are_the_derivatives_of_their_log_m(c):
    atoms = random_atoms(20, 3)
    _, jumps = separate(Composition(((atoms, 5),), 0.3), 0.8)
    small, large = atoms.cut(0.8)
    with mpmath.workdps(40):

        def log_m(z):
            core = exact_moment(small, z)
            jump = (core + exact_moment(large, z)) ** 5 - core**5
            return mpmath.log(jump) + mpf(0.3) ** 2 * z * (z + 1) / 2

        exact = [float(mpmath.diff(log_m, c, order)) for order in range(3)]
    assert jumps.cumulants(c) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("threshold", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("times", [1, 4, 1000])
def test_moments_of_core_and_jumps_are_right_to_their_doubt(threshold, times):
    atoms = random_atoms(30, 4)
    whole = Composition(((atoms, times),), 0.1)
    core, jumps = separate(whole, threshold)
    small, large = atoms.cut(threshold)
    c, spacing = 0.7, 0.05
    with mpmath.workdps(60):
        for measure in (whole, core, jumps):
            got = measure.moments(c, spacing, 144)
            for k in range(0, 144, 13):
                z = mpmath.mpc(c, k * mpf(spacing))
                inside, outside = exact_moment(small, z), exact_moment(large, z)
                gaussian = mpmath.exp(mpf(0.1) ** 2 * z * (z + 1) / 2)
                exact = {
                    id(whole): (inside + outside) ** times,
                    id(core): inside**times,
                    id(jumps): (inside + outside) ** times - inside**times,
                }[id(measure)] * gaussian
                value = mpmath.mpc(complex(got.values[k])) * mpmath.exp(mpf(got.log_scale))
                scale = mpmath.exp(mpf(got.log_scale))
                assert abs(value - exact) / scale <= got.doubts[k] + 1e-18


def test_core_and_jumps_make_up_the_whole():
    whole = Composition(((random_atoms(30, 5), 9),), 0.0)
    parts = separate(whole, 1.0)
    values = [np.exp(m.log_scale) * m.values for m in (part.moments(0.5, 0.1, 25) for part in (*parts, whole))]
    assert values[0] + values[1] == pytest.approx(values[2], rel=1e-11)


def test_where_no_loss_is_large_there_is_nothing_to_separate():
    assert separate(Composition(((random_atoms(30, 5), 9),), 0.0), 100.0) is None


def test_closed_forms_are_not_separated():
    assert separate(Composition(((GaussianMixture(1.0, (0.9, 0.1)), 9),), 0.0), 1.0) is None


def test_the_mass_of_the_jumps_is_the_probability_of_at_least_one():
    atoms = random_atoms(30, 6)
    _, jumps = separate(Composition(((atoms, 7),), 0.0), 1.0)
    small, _ = atoms.cut(1.0)
    assert isinstance(jumps, Jumps)
    assert jumps.mass() == pytest.approx(1 - float(small.p.sum()) ** 7, rel=1e-12)


@pytest.mark.parametrize(("delta", "times"), [(1e-5, 1000), (1e-17, 3), (0.3, 4), (1e-12, 10**6)])
def test_the_probability_of_an_infinite_loss_is_exact(delta, times):
    atoms = LossAtoms(np.zeros(1), np.array([1 - delta]), np.array([1 - delta]), delta, delta)
    with mpmath.workdps(60):
        exact = float(-mpmath.expm1(times * mpmath.log1p(-mpf(delta))))
    assert Composition(((atoms, times),), 0.0).infinite() == pytest.approx(exact, rel=1e-14, abs=0)


@pytest.mark.parametrize("a", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("eta", [0.0, 0.2])
def test_chernoff_lines_lie_above_delta(a, eta):
    slope, height = chernoff_bound(Composition((), 0.8), a, eta)
    total = math.hypot(0.8, eta)
    for epsilon in np.linspace(-3, 12, 61):
        assert gdp.delta(float(epsilon), total) <= math.exp(height - slope * epsilon) * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=30)
@given(powers_of_ten(-2.5, 1), st.integers(1, 300), st.floats(0, 0.999))
def test_randomized_response_is_bracketed_by_its_binomial_sum(e0, times, share):
    epsilon = share * times * e0
    exact = hockey_stick(composed((response(e0), times)), epsilon)
    assume(exact > 1e-280)
    assert_between(curve(RandomizedResponse(e0) * times).delta_bounds(epsilon), exact)


@settings(max_examples=25)
@given(powers_of_ten(-2, 0.7), st.integers(3, 20), st.integers(1, 15), st.floats(0, 0.999))
def test_responses_with_many_choices_are_bracketed_by_their_multinomial_sum(e0, choices, times, share):
    epsilon = share * times * e0
    exact = hockey_stick(composed((response(e0, choices), times)), epsilon)
    assume(exact > 1e-280)
    assert_between(curve(RandomizedResponse(e0, choices) * times).delta_bounds(epsilon), exact)


@settings(max_examples=25)
@given(powers_of_ten(-2, 0.7), powers_of_ten(-20, -2), st.integers(1, 8), st.floats(0, 1.2))
def test_epsilon_delta_mechanisms_are_bracketed_by_their_exact_composition(e0, d0, times, share):
    # Kairouz, Oh, Viswanath 2015: the worst (epsilon, delta)-DP mechanism has four outcomes.
    epsilon = share * times * e0
    exact = hockey_stick(composed((epsilon_delta(e0, d0), times)), epsilon)
    assert_between(curve(EpsilonDelta(e0, d0) * times).delta_bounds(epsilon), exact)


@settings(max_examples=25)
@given(powers_of_ten(-2, 0.7), powers_of_ten(-2, 0.7), st.integers(1, 25), st.integers(1, 25), st.floats(0, 0.999))
def test_different_epsilons_are_bracketed_by_their_exact_composition(first, second, many, more, share):
    epsilon = share * (many * first + more * second)
    exact = hockey_stick(composed((response(first), many), (response(second), more)), epsilon)
    assume(exact > 1e-280)
    assert_between(curve(EpsilonDelta(first) * many + EpsilonDelta(second) * more).delta_bounds(epsilon), exact)


def test_two_pure_mechanisms_compose_to_a_fraction():
    # e^epsilon = 2, twice, at epsilon = 0: (4 - 1) / 9.
    assert_between(curve(EpsilonDelta(math.log(2)) * 2).delta_bounds(0.0), Fraction(1, 3).numerator / mpf(3))


@pytest.mark.parametrize(
    ("e0", "rate", "times", "share"),
    [
        (0.1, 0.1, 20, 0.3),
        (0.5, 0.1, 20, 0.3),
        (1.0, 0.01, 50, 0.05),
        (1.0, 0.3, 10, 0.5),
        (0.3, 0.9, 30, 0.2),
        (1.0, 0.05, 500, 0.1),
        (1.0, 0.3, 100, 0.3),
        (0.05, 0.99, 400, 0.02),
    ],
)
def test_sampled_responses_are_bracketed_in_the_worse_direction(e0, rate, times, share):
    epsilon = share * times * math.log1p(rate * math.expm1(e0))
    removed = composed((sampled(response(e0), rate), times))
    exact = max(hockey_stick(removed, epsilon), hockey_stick(swapped(removed), epsilon))
    event = RandomizedResponse(e0, adjacency=ADD_REMOVE).sampled(rate) * times
    assert_between(curve(event).delta_bounds(epsilon), exact)


@settings(max_examples=25)
@given(powers_of_ten(-2, 0.5), st.integers(1, 40), powers_of_ten(-2, 0.5), st.floats(0, 6))
def test_a_gaussian_with_responses_is_bracketed(e0, times, mu, distance):
    multiplier = 1 / mu
    mu = 1 / multiplier
    epsilon = (times * e0**2 + mu**2) / 2 + distance * math.sqrt(times * e0**2 + mu**2)
    exact = hockey_stick(composed((response(e0), times)), epsilon, mu)
    assume(exact > 1e-280)
    event = Gaussian(multiplier) + EpsilonDelta(e0) * times
    assert_between(curve(event).delta_bounds(epsilon), exact)


# At epsilon 0 a line of several releases has a million nodes.
LAPLACES = [(t, z, s) for t in (1, 2, 3, 4) for z in (0.7, 1.0, 3.0) for s in (0.0, 0.2, 0.5, 0.8) if t < 2 or s > 0]


@pytest.mark.slow
@pytest.mark.parametrize(("times", "multiplier", "share"), [*LAPLACES, (2, 0.7, 0.0), (3, 1.0, 0.0), (4, 3.0, 0.0)])
def test_laplace_releases_are_bracketed_by_piecewise_polynomials(times, multiplier, share):
    epsilon = share * times / multiplier
    exact = laplace_delta(epsilon, multiplier, times)
    bounds = curve(Laplace(multiplier) * times).delta_bounds(epsilon)
    assert_between(bounds, exact)
    assert bounds[1] == pytest.approx(float(exact), rel=3e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        ((1.1, 0.1), (1.1, 0.1)),
        ((0.5, 0.01), (2.0, 0.3)),
        ((1.0, 0.1),) * 3,
        ((0.4, 0.02), (1.0, 0.2), (3.0, 0.9)),
        ((1.0, 0.01), (1.0, 0.01)),
    ],
    ids=["equal", "different", "three", "three_different", "rare"],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.05, 0.3])
def test_few_sampled_gaussians_are_bracketed_by_an_integral(steps, epsilon):
    event = sum((Gaussian(z).sampled(q) for z, q in steps[1:]), start=Gaussian(steps[0][0]).sampled(steps[0][1]))
    exact = max(several_sampled_gaussians(epsilon, *steps, added=added) for added in (False, True))
    # The integral is good to 1e-12.
    assert_between(curve(event).delta_bounds(epsilon), exact, slack=1e-8 + 1e-12 / exact)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0])
def test_unsampled_gaussians_are_one_gaussian(mu):
    event = Gaussian(2 / mu) * 4
    for epsilon in (0.0, mu, mu**2 / 2 + 5 * mu):
        assert_between(curve(event).delta_bounds(epsilon), gaussian_delta(epsilon, mu))


def test_listed_losses_bracket_to_the_last_digit():
    for times in range(1, 40):
        for share in (0.1, 0.3, 0.6):
            exact = hockey_stick(composed((response(0.3), times)), share * times * 0.3)
            assert_between(curve(RandomizedResponse(0.3) * times).delta_bounds(share * times * 0.3), exact, slack=0)


@pytest.mark.parametrize("rate", [1e-9, 1e-6])
def test_rarely_sampled_responses_are_bracketed(rate):
    epsilon = 50.37 * math.log1p(rate * math.expm1(1.5))
    exact = hockey_stick(composed((sampled(response(1.5), rate), 1000)), epsilon)
    event = RandomizedResponse(1.5, adjacency=ADD_REMOVE).sampled(rate) * 1000
    assert_between(curve(event).delta_bounds(epsilon), exact)


@pytest.mark.parametrize("d0", [1e-17, 1.7e-16, 1e-10])
def test_tiny_deltas_on_one_lot_add_up(d0):
    event = (EpsilonDelta(0.1, d0) * 2).sampled(0.5)
    # Beyond every finite loss only the outcomes remain that one side alone can produce.
    assert curve(event).delta_bounds(50.0) == pytest.approx((d0, d0), rel=1e-9, abs=0)


@pytest.mark.parametrize("d0", [1e-17, 1.7e-16, 1e-10])
def test_tiny_deltas_add_up(d0):
    assert curve(EpsilonDelta(0.1, d0) * 2).delta_bounds(50.0) == pytest.approx((2 * d0, 2 * d0), rel=1e-9, abs=0)


def test_no_epsilon_will_do_below_the_probability_of_an_infinite_loss():
    assert curve((EpsilonDelta(0.1, 1e-17) * 2).sampled(0.5)).epsilon(1e-18) == math.inf
    assert curve(EpsilonDelta(0.1, 1e-17) * 2).epsilon(1e-18) == math.inf


KINDS = st.one_of(
    powers_of_ten(-0.3, 1).map(Gaussian),
    st.builds(
        lambda multiplier, rate: Gaussian(multiplier).sampled(rate), powers_of_ten(-0.3, 0.7), powers_of_ten(-4, 0)
    ),
    powers_of_ten(-0.3, 1.3).map(Laplace),
    st.builds(EpsilonDelta, powers_of_ten(-1.5, 0.5), powers_of_ten(-9, -5.5)),
    powers_of_ten(-1.5, 0.3).map(lambda epsilon: RandomizedResponse(epsilon, adjacency=ADD_REMOVE)),
)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.lists(st.tuples(KINDS, st.integers(1, 30)), min_size=2, max_size=4), powers_of_ten(-8, -4))
def test_a_composition_costs_at_least_each_part_and_at_most_their_sum(parts, delta):
    events = [event * times for event, times in parts]
    low, high = curve(sum(events[1:], start=events[0])).epsilon_bounds(delta)
    assert high >= max(curve(event).epsilon_bounds(delta)[0] for event in events)
    assert low <= sum(curve(event).epsilon_bounds(delta / len(events))[1] for event in events) + ROUNDINGS
