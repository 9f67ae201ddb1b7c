"""The sampled Gaussian's loss in closed form: characteristic function, its stated error, its decay."""

import math
from contextlib import contextmanager

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.accounting import mixture as module
from tacit.accounting.composition import ROUNDING, Composition, characteristic
from tacit.accounting.mixture import GaussianMixture, Mixtures, Tilted

LONG = np.longdouble


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


rates = st.one_of(powers_of_ten(-6, -0.01), powers_of_ten(-6, -0.3).map(lambda rest: 1 - rest))
shifts = powers_of_ten(-2, 0.53)
tilts = powers_of_ten(-2, 1.3)
reaches = powers_of_ten(-1, 2.7)


@st.composite
def mixtures(draw, most=1):
    rate, shift, size = draw(rates), draw(shifts), draw(st.integers(1, most))
    weights = tuple(math.comb(size, j) * rate**j * (1 - rate) ** (size - j) for j in range(size + 1))
    return GaussianMixture(shift / size, weights, draw(st.booleans()))


@contextmanager
def aiming_at(target):
    """Ask for less accuracy than rounding allows, so that the stated error can be seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TARGET", target)
        yield


def tilt(mixture, c, reach):
    """The nodes of one kind of step."""
    law = Mixtures.of([(mixture, 1)]).tilt(c, reach)
    return Tilted(law.weight[0], law.loss[0], float(law.log_total[0]), float(law.error[0]))


def log_ratio(mixture, x):
    """log sum_j w_j exp(j m x - j^2 m^2 / 2), in long doubles, largest term first."""
    j = np.arange(len(mixture.weights), dtype=LONG)
    weights = np.array(mixture.weights, dtype=LONG)
    terms = LONG(mixture.shift) * np.multiply.outer(x, j) - (LONG(mixture.shift) * j) ** 2 / 2
    change = np.expm1(np.minimum(terms[:, 1:], 40)) @ weights[1:]
    peak = terms.max(axis=1)
    large = peak + np.log(np.exp(terms - peak[:, None]) @ weights)
    return np.where((peak < 40) & (change > -0.5), np.log1p(np.maximum(change, LONG(-0.9))), large)


def moments(mixture, c, times):
    """(log M(c), phi(t) = M(c + i t) / M(c)) by a very fine trapezoidal sum in long doubles."""
    frequency = float(np.max(times)) * mixture.shift * mixture.most
    step = LONG(min(0.02, 0.5 / (1 + frequency)))
    power = LONG(-c if mixture.added else c + 1)
    centre = max(float(power), 0.0) * mixture.most * mixture.shift
    low = -16 - (c * mixture.most * mixture.shift if mixture.added else 0)
    x = low + step * np.arange(int((centre + 16 - low) / step) + 1, dtype=LONG)
    ratio = log_ratio(mixture, x)
    exponent = power * ratio - x**2 / 2
    top = exponent.max()
    weight = np.exp(exponent - top)
    total = weight.sum()
    loss = -ratio if mixture.added else ratio
    log_total = float(top + np.log(total * step / np.sqrt(2 * LONG(np.pi))))
    return log_total, [complex(np.sum(weight * np.exp(1j * LONG(t) * loss)) / total) for t in times]


def phi(tilted, times):
    return [complex(np.sum(tilted.weight * np.exp(1j * t * tilted.loss))) for t in times]


def assert_error_is_bounded(mixture, c, reach, target, shares):
    """Of the characteristic function, at these shares of the reach: by what the tilted law says of itself."""
    with aiming_at(target):
        tilted = tilt(mixture, c, reach)
    times = np.array(shares) * reach
    _, exact = moments(mixture, c, times)
    worst = max(abs(a - b) for a, b in zip(phi(tilted, times), exact, strict=True))
    assert worst <= tilted.error + 1e-14 * (1 + reach)


@pytest.mark.slow
@settings(max_examples=60)
@given(mixtures(), tilts, reaches, st.sampled_from([1e-3, 1e-6, 1e-10]))
def test_the_stated_error_bounds_the_error_up_to_the_reach(mixture, c, reach, target):
    assume(c * mixture.shift < 25)
    assert_error_is_bounded(mixture, c, reach, target, shares=[0.01, 0.3, 0.77, 1.0])


@pytest.mark.slow
@settings(max_examples=50)
@given(mixtures(most=6), tilts, reaches)
def test_the_stated_error_bounds_the_error_for_groups(mixture, c, reach):
    assume(c * mixture.shift * mixture.most < 25)
    assert_error_is_bounded(mixture, c, reach, 1e-6, shares=[0.1, 0.5, 1.0])


@pytest.mark.parametrize(
    ("shift", "rest", "c", "reach", "target"),
    [
        (3.314842376483499, 1.2994605391725145e-11, 6.940010213017614, 1.9684556819502748, 5.227072653112919e-11),
        (3.0221190923920958, 3.168609449299975e-05, 5.787062091268931, 1.972638646354337, 1.8319385812047206e-11),
        (7.809564389970709, 1.757425804882473e-08, 2.7703082101254797, 2.906609085881005, 7.464294448637082e-10),
    ],
)
def test_the_stated_error_bounds_the_error_where_nearly_everyone_is_sampled(shift, rest, c, reach, target):
    mixture = GaussianMixture(shift, (rest, 1 - rest), added=True)
    assert_error_is_bounded(mixture, c, reach, target, shares=[0.01, 0.3, 0.6, 0.77, 0.9, 1.0])


@pytest.mark.slow
@settings(max_examples=60)
@given(mixtures(most=4), tilts, reaches)
def test_the_characteristic_function_is_right_to_rounding(mixture, c, reach):
    assume(c * mixture.shift * mixture.most < 25)
    tilted = tilt(mixture, c, reach)
    # Nodes that are denser where the loss rises are rounded, and t times that is a phase.
    assert tilted.error < 1e-15 * (1 + reach * mixture.shift * mixture.most)
    times = np.array([0.05, 0.4, 1.0]) * reach
    _, exact = moments(mixture, c, times)
    # Losses are rounded to doubles, and t times that is a phase.
    rounding = 2e-15 + 3e-16 * reach * float(tilted.weight @ np.abs(tilted.loss))
    assert phi(tilted, times) == pytest.approx(exact, abs=rounding)


@pytest.mark.slow
@settings(max_examples=60)
@given(mixtures(most=4), tilts)
def test_the_moment_itself_is_right_with_few_nodes_and_with_many(mixture, c):
    assume(c * mixture.shift * mixture.most < 25)
    exact, _ = moments(mixture, c, [1.0])
    assert tilt(mixture, c, 30.0).log_total == pytest.approx(exact, rel=1e-13, abs=2e-14)
    block = Mixtures.of([(mixture, 1)])
    assert abs(block.cumulants(c)[0] - exact) <= block.coarse_error(c) + 1e-13 * (1 + abs(exact))


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.5])
@pytest.mark.parametrize("shift", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("order", [2, 3, 7])
def test_moments_of_whole_orders_have_their_binomial_formula(rate, shift, order):
    with mpmath.workdps(40):
        terms = (
            math.comb(order, k)
            * mpmath.mpf(rate) ** k
            * (1 - mpmath.mpf(rate)) ** (order - k)
            * mpmath.exp(k * (k - 1) * mpmath.mpf(shift) ** 2 / 2)
            for k in range(order + 1)
        )
        exact = float(mpmath.log(mpmath.fsum(terms)))
    tilted = tilt(GaussianMixture(shift, (1 - rate, rate)), order - 1.0, 1.0)
    assert tilted.log_total == pytest.approx(exact, rel=1e-13, abs=2e-15)


@pytest.mark.slow
@settings(max_examples=60)
@given(mixtures(most=3), tilts, st.floats(0.5, 30))
def test_the_decay_bounds_the_characteristic_function_from_there_on(mixture, c, start):
    assume(c * mixture.shift * mixture.most < 25)
    tilted = tilt(mixture, c, 1.0)
    spread = math.sqrt(float(tilted.weight @ (tilted.loss - tilted.weight @ tilted.loss) ** 2))
    t = start / max(spread, 1e-9)
    assume(t * mixture.shift * mixture.most < 2000)
    bound = math.exp(Mixtures.of([(mixture, 1)]).log_decay(c, t))
    times = t * np.concatenate([np.linspace(1, 2, 60), np.geomspace(2, 20, 60)])
    far = tilt(mixture, c, float(times[-1]))
    sizes = np.abs(np.exp(1j * np.multiply.outer(times, far.loss)) @ far.weight)
    assert float(sizes.max()) <= bound + 1e-13


@settings(max_examples=30)
@given(mixtures(most=3), st.floats(0.5, 30))
def test_the_decay_only_falls(mixture, t):
    block = Mixtures.of([(mixture, 1)])
    values = [block.log_decay(1.0, t * factor) for factor in (1.0, 1.3, 2.0, 5.0, 30.0)]
    assert values[0] <= 0
    assert values[-1] <= values[0] + 1e-9


@given(mixtures(most=5), st.floats(-20, 20))
def test_the_log_ratio_keeps_its_digits(mixture, x):
    with mpmath.workdps(60):
        m = mpmath.mpf(mixture.shift)
        terms = (mpmath.mpf(w) * mpmath.expm1(j * m * x - (j * m) ** 2 / 2) for j, w in enumerate(mixture.weights))
        lacking = mpmath.fsum(map(mpmath.mpf, mixture.weights)) - 1
        exact = mpmath.log1p(mpmath.fsum(terms) + lacking)
        got = mixture.log_ratio(np.array([x]))[0]
        # The weights themselves add up to 1 only to within a rounding.
        assert abs(got - exact) <= 2e-14 * abs(exact) + 4e-16


@given(rates, shifts, powers_of_ten(-6, 1.5))
def test_position_finds_the_outcome_of_a_loss(rate, shift, loss):
    mixture = GaussianMixture(shift, (1 - rate, rate))
    x = mixture.position(np.array([loss]))
    assert mixture.log_ratio(x)[0] == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("added", [False, True])
def test_losses_of_the_example_added_are_those_of_it_removed_with_the_sign_turned(added):
    # E_P[e^{cL}] with the example removed is E_Q[A^{c+1}]; added, E_Q[A^{-c}].
    block = Mixtures.of([(GaussianMixture(1.0, (0.9, 0.1), added), 1)])
    assert block.power(0.3) == pytest.approx(-0.3 if added else 1.3)


@st.composite
def many_kinds(draw):
    """A few kinds of very different shifts, rates and numbers, in one direction."""
    added = draw(st.booleans())
    kinds = draw(st.lists(st.tuples(shifts, rates, st.integers(1, 2000)), min_size=2, max_size=7, unique=True))
    return [(GaussianMixture(shift, (1 - rate, rate), added), times) for shift, rate, times in kinds]


@pytest.mark.slow
@settings(max_examples=10)
@given(many_kinds(), powers_of_ten(-1, 0.7))
def test_moments_of_many_kinds_at_once_are_those_of_each_kind_in_long_doubles(kinds, c):
    assume(all(c * mixture.shift < 20 for mixture, _ in kinds))
    composition = Composition(tuple(kinds))
    spacing, count = 0.3 / math.sqrt(composition.cumulants(c)[2]), 12
    found = composition.moments(c, spacing, count)
    times = spacing * np.arange(count)
    scale, product = 0.0, np.ones(count, dtype=complex)
    for mixture, number in kinds:
        log_total, values = moments(mixture, c, times)
        scale += number * log_total
        product *= np.array(values) ** number
    assert found.log_scale == pytest.approx(scale, rel=1e-12, abs=1e-10)
    # Powers of doubles lose a few digits themselves.
    slack = 1e-15 * sum(number for _, number in kinds)
    assert np.all(np.abs(found.values - product) <= found.doubts + slack * np.abs(product))


@pytest.mark.parametrize(("rate", "most"), [(1e-6, 0.05), (1e-4, 0.5)])
def test_rounding_is_in_proportion_to_what_is_sampled(rate, most):
    law = Mixtures.of([(GaussianMixture(2.0, (1 - rate, rate)), 1)]).tilt(3.0, 4000.0)
    change, rounding = characteristic(law.weight, law.loss, 1.0, 4000)
    assert rounding[0] < most * ROUNDING
    k = np.array([1, 40, 700, 3999])
    exact = np.expm1(1j * np.multiply.outer(k.astype(LONG), law.loss[0].astype(LONG))) @ law.weight[0].astype(LONG)
    assert (
        np.abs(change[0, k] - exact.astype(complex)).max()
        <= rounding[0] + 2.0**-51 * 4000 * np.abs(law.weight[0] * law.loss[0]).sum()
    )


@pytest.mark.parametrize("added", [False, True])
def test_without_a_tilt_the_whole_is_one(added):
    for rate, shift in ((1e-5, 0.1), (0.3, 1.0), (0.01, 3.3)):
        tilted = tilt(GaussianMixture(shift, (1 - rate, rate), added), 1e-12, 1.0)
        assert tilted.log_total == pytest.approx(0, abs=2e-11)
        assert float(tilted.weight.sum()) == pytest.approx(1, abs=1e-14)
