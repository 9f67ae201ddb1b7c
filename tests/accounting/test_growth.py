"""Totals of many different steps, tiny deltas, and totals that are used again."""

import itertools

import mpmath
import pytest
from mpmath import mpf

from tacit.accounting import Composed, Gaussian, Laplace, StudentT, curve
from tacit.accounting.pld import _totals

DELTA = 1e-5


def schedule(kinds, times=1):
    """Steps whose multiplier and rate all differ."""
    pairs = ((0.7 + 2 * step / kinds, 0.005 + 0.01 * ((7 * step) % kinds) / kinds) for step in range(kinds))
    return tuple(Gaussian(multiplier).sampled(rate) * times for multiplier, rate in pairs)


def overlap(one, other):
    return one[0] <= other[1] and other[0] <= one[1]


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    _totals.cache_clear()


def test_different_steps_are_bracketed_where_dp_accounting_puts_them():
    dp_accounting = pytest.importorskip("dp_accounting")
    accountant = dp_accounting.pld.PLDAccountant()
    pairs = [(0.9 + 0.4 * step, 0.01 + 0.003 * step) for step in range(4)]
    for multiplier, rate in pairs:
        noise = dp_accounting.GaussianDpEvent(multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, noise), 20)
    lower, upper = curve(Composed(tuple(Gaussian(m).sampled(q) * 20 for m, q in pairs))).epsilon_bounds(DELTA)
    # Theirs is an upper bound with a discretisation of 1e-4.
    assert lower <= accountant.get_epsilon(DELTA) <= upper * (1 + 1e-3)


def test_the_interval_of_many_different_steps_is_narrow():
    lower, upper = curve(Composed(schedule(150))).epsilon_bounds(DELTA)
    assert upper <= lower * (1 + 1e-4)


def test_kinds_that_differ_by_a_rounding_cost_what_one_kind_costs():
    # 60 multipliers within 1e-12 of each other.
    near = Composed(tuple(Gaussian(1.2 * (1 + 2e-14 * step)).sampled(0.02) for step in range(60)))
    one = curve(Gaussian(1.2).sampled(0.02) * 60).epsilon_bounds(DELTA)
    assert curve(near).epsilon_bounds(DELTA) == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize(
    "event",
    [
        Laplace(2.0).sampled(0.1) * 100,
        StudentT(3.0, 1.0).sampled(0.01) * 1000,
        (Gaussian(2.0) + Laplace(3.0)).sampled(0.02) * 500,
        (Laplace(4.0) * 3).sampled(0.02) * 500,
    ],
    ids=["laplace", "student_t", "two releases", "three releases"],
)
@pytest.mark.slow
def test_other_noise_on_lots_has_a_narrow_interval(event):
    lower, upper = curve(event).epsilon_bounds(DELTA)
    assert 0 < lower <= upper <= lower * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("more", [1, 5])
def test_a_known_total_with_more_runs_costs_what_it_costs_from_nothing(more):
    runs = schedule(70, times=30)
    curve(Composed(runs)).epsilon_bounds(DELTA)
    event = Composed((*runs, Gaussian(4.0), *(Gaussian(0.8 + 0.1 * k).sampled(0.011) * 25 for k in range(more))))
    again = curve(event).epsilon_bounds(DELTA)
    _totals.cache_clear()
    assert overlap(again, curve(event).epsilon_bounds(DELTA))
    assert again[1] <= again[0] * (1 + 1e-6)


def test_more_runs_of_a_known_kind_are_seen_as_more():
    runs = schedule(60, times=10)
    before = curve(Composed(runs)).epsilon_bounds(DELTA)
    after = curve(Composed((*runs, runs[0] * 30))).epsilon_bounds(DELTA)
    _totals.cache_clear()
    assert before[1] < after[0]
    assert overlap(after, curve(Composed((*runs, runs[0] * 30))).epsilon_bounds(DELTA))


def two_steps(epsilon, shift, rate):
    """delta(epsilon) of two sampled Gaussian steps: an integral over the first, the second in closed form."""

    def tail(x):
        return mpmath.erfc(x / mpmath.sqrt(2)) / 2

    def loss(x):
        return mpmath.log(1 - rate + rate * mpmath.exp(shift * x - shift**2 / 2))

    def second(left):
        if mpmath.exp(left) <= 1 - rate:
            return 1 - mpmath.exp(left)
        x = mpmath.log((mpmath.exp(left) - 1 + rate) / rate) / shift + shift / 2
        return (1 - rate) * tail(x) + rate * tail(x - shift) - mpmath.exp(left) * tail(x)

    def height(x):
        return mpmath.npdf(x) * mpmath.exp(loss(x)) * second(epsilon - loss(x))

    kink = mpmath.log((mpmath.exp(epsilon) / (1 - rate) - 1 + rate) / rate) / shift + shift / 2
    ends = sorted({*(mpf(x) for x in range(-14, 60, 2)), kink, kink - 1, kink + 1})
    # Quadrature stops at an absolute error.
    scale = mpmath.fsum(height(x) for x in ends)
    return scale * mpmath.fsum(mpmath.quad(lambda x: height(x) / scale, piece) for piece in itertools.pairwise(ends))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 12.0, 30.0])
def test_two_steps_are_bracketed_down_to_tiny_deltas(epsilon):
    with mpmath.workdps(30):
        exact = two_steps(mpf(epsilon), mpf(1), mpf(0.01))
        lower, upper = curve(Gaussian(1.0).sampled(0.01) * 2).delta_bounds(epsilon)
        assert lower <= exact <= upper
        assert upper <= lower * (1 + 1e-3)


@pytest.mark.parametrize("delta", [0.1, 1e-30, 1e-100, 1e-300])
def test_tiny_deltas_have_narrow_intervals(delta):
    lower, upper = curve(Gaussian(1.1).sampled(0.004) * 14_000).epsilon_bounds(delta)
    assert 0 < lower <= upper <= lower * (1 + 1e-8)


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "width"),
    [(0.5, 1e-6, 10**6, 1e-6), (0.3, 1e-6, 1_000, 2e-6), (0.6, 1e-5, 30_000, 1e-6), (0.4161, 0.000256, 381, 1e-8)],
)
def test_rare_large_losses_have_narrow_bounds(multiplier, rate, steps, width):
    """The closed form where a line of bearable length is enough, and else fine atoms."""
    lower, upper = curve(Gaussian(multiplier).sampled(rate) * steps).epsilon_bounds(1e-5)
    assert 0 < upper - lower < width * lower
