"""Lots that are not plain Poisson samples: their accountants against closed forms, quadrature and simulation."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import integrate, stats

from tacit.accounting import (
    ACCOUNTANTS,
    Adjacency,
    Allocated,
    Correlated,
    FixedSize,
    Gaussian,
    Laplace,
    Truncated,
    curve,
    from_json,
    gdp,
)
from tacit.accounting.lots import separate_steps
from tacit.errors import AdjacencyMismatch, InvalidArgument, NotAccountable

DELTA = 1e-5
REPLACED = Gaussian(0.5, Adjacency.REPLACE_ONE)
EVENTS = [
    Allocated(Gaussian(1.0), lots=20, steps=20),
    Allocated(Gaussian(1.0), lots=20, steps=7),
    Truncated(Gaussian(1.0), rate=0.01, most=20, population=1000),
    FixedSize(REPLACED, rate=0.01),
]


def two_lots_delta(multiplier, epsilon, *, added):
    """The hockey stick of an epoch of two lots: the second lot in closed form, the first by quadrature."""
    s = 1 / multiplier

    def inner(x):
        one = math.exp(s * x - s * s / 2)
        if added:
            strike = 2 * math.exp(-epsilon) - one
            if strike <= 0:
                return 0.0
            # E[1 - e^eps (one + Y) / 2; Y < strike]
            d = (math.log(strike) + s * s / 2) / s
            low = stats.norm.cdf(d)
            return (1 - math.exp(epsilon) * one / 2) * low - math.exp(epsilon) / 2 * stats.norm.cdf(d - s)
        strike = 2 * math.exp(epsilon) - one
        if strike <= 0:
            return (one + 1) / 2 - math.exp(epsilon)
        d = (math.log(strike) + s * s / 2) / s
        return stats.norm.cdf(s - d) / 2 - strike / 2 * stats.norm.cdf(-d)

    turn = math.log(2) + (-epsilon if added else epsilon)
    turn = (turn + s * s / 2) / s
    return integrate.quad(
        lambda x: inner(x) * stats.norm.pdf(x), -12, 14, points=[turn], epsabs=1e-14, epsrel=1e-10, limit=400
    )[0]


@pytest.mark.slow
@pytest.mark.parametrize(("multiplier", "epsilon"), [(0.5, 0.3), (0.5, 2.0), (1.0, 2.0), (3.0, 0.3)])
def test_two_lots_agree_with_quadrature(multiplier, epsilon):
    exact = max(two_lots_delta(multiplier, epsilon, added=added) for added in (False, True))
    lower, upper = curve(Allocated(Gaussian(multiplier), lots=2, steps=2)).delta_bounds(epsilon)
    assert lower <= exact * (1 + 1e-8)
    assert exact <= upper * (1 + 1e-8)
    assert upper - lower < 5e-3 * exact + 1e-12


def test_one_lot_is_no_sampling():
    assert curve(Allocated(Gaussian(1.0), lots=1, steps=1) * 4).epsilon(DELTA) == pytest.approx(
        gdp.epsilon(DELTA, 2.0), rel=1e-5
    )


def test_one_step_of_an_epoch_is_a_poisson_step():
    allocated = curve(Allocated(Gaussian(1.0), lots=50, steps=1)).delta_bounds(0.1)
    poisson = curve(Gaussian(1.0).sampled(1 / 50)).delta(0.1)
    assert allocated[0] * (1 - 1e-6) <= poisson <= allocated[1] * (1 + 1e-6)


@pytest.mark.slow
def test_ten_epochs_lie_in_the_published_interval_and_are_known_to_a_thousandth():
    # The same noise costs 1.828 on Poisson lots (METHODS.md 4.4).
    lower, upper = curve(Allocated(Gaussian(1.0), lots=100, steps=100) * 10).epsilon_bounds(DELTA)
    assert 1.658 < lower <= upper < 1.745
    assert upper - lower < 1e-3 * upper


@pytest.mark.slow
@pytest.mark.parametrize(("multiplier", "lots", "epsilon"), [(0.8, 30, 0.5), (0.5, 12, 1.5), (2.0, 8, 0.4)])
@pytest.mark.parametrize("added", [False, True])
def test_the_bounds_hold_the_simulated_delta(multiplier, lots, epsilon, added):
    # Six standard errors: a false alarm has probability 2e-9.
    rng, s, count = np.random.default_rng(1), 1 / multiplier, 100_000
    x = rng.standard_normal((count, lots))
    if not added:
        x[:, 0] += s
    loss = np.log(np.exp(s * x - s * s / 2).mean(axis=1)) * (-1 if added else 1)
    gain = np.maximum(-np.expm1(epsilon - loss), 0.0)
    error = 6 * gain.std() / math.sqrt(count)
    atoms = [
        Allocated(Gaussian(multiplier), lots, lots).atoms(kind, added=added, tail=1e-14, size=4000)
        for kind in ("lower", "upper")
    ]
    lower, upper = (one.delta(epsilon) for one in atoms)
    assert lower <= gain.mean() + error
    assert gain.mean() - error <= upper
    assert upper - lower < 0.02 * upper


@pytest.mark.slow
def test_fewer_steps_of_an_epoch_cost_less():
    found = [curve(Allocated(Gaussian(1.0), lots=30, steps=steps)).epsilon(DELTA) for steps in (5, 15, 30)]
    assert found == sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("most", [640, 760])
def test_truncated_lots_cost_no_more_than_by_another_library_and_no_less_than_poisson(most):
    other = privacy_loss_distribution.from_truncated_subsampled_gaussian_mechanism(
        60_000, 0.01, most, 1.0, value_discretization_interval=1e-3
    )
    lower, upper = curve(Truncated(Gaussian(1.0), 0.01, most, 60_000) * 100).epsilon_bounds(DELTA)
    assert upper <= other.self_compose(100).get_epsilon_for_delta(DELTA) * 1.01
    plain = curve(Gaussian(1.0).sampled(0.01) * 100).epsilon(DELTA)
    assert lower <= plain <= upper


def test_lots_that_are_never_full_are_poisson_lots():
    event = Truncated(Gaussian(1.0), 0.01, 900, 60_000)
    assert curve(event).epsilon(DELTA) == pytest.approx(curve(Gaussian(1.0).sampled(0.01)).epsilon(DELTA), rel=1e-4)


def test_a_lot_that_is_always_full_replaces_an_example():
    # With one place and every example drawn, one of two examples is chosen by a coin.
    lower, upper = curve(Truncated(Gaussian(1.0), 1.0, 1, 2)).delta_bounds(0.5)
    exact = 0.5 * gdp.delta(math.log1p(math.expm1(0.5) / 0.5), 2.0)
    assert lower <= exact <= upper


@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_one_lot_of_fixed_size_has_the_closed_form_of_balle(rate, epsilon):
    exact = rate * gdp.delta(math.log1p(math.expm1(epsilon) / rate), 2.0)
    lower, upper = curve(FixedSize(REPLACED, rate)).delta_bounds(epsilon)
    assert lower <= exact <= upper <= exact * (1 + 1e-4)


def test_lots_of_everyone_are_no_sampling():
    assert curve(FixedSize(REPLACED, 1.0) * 3).epsilon(DELTA) == pytest.approx(
        curve(Gaussian(0.5) * 3).epsilon(DELTA), rel=1e-5
    )


@pytest.mark.slow
def test_fixed_lots_cost_at_least_their_attained_pair():
    lower, upper = curve(FixedSize(REPLACED, 0.02) * 50).epsilon_bounds(DELTA)
    attained = curve(Gaussian(0.5).sampled(0.02) * 50).epsilon(DELTA)
    assert lower == pytest.approx(attained, rel=1e-3)
    assert attained <= upper


@pytest.mark.parametrize("event", [*EVENTS, Correlated(Gaussian(1.0), bands=4)], ids=str)
def test_events_survive_their_text(event):
    assert from_json((event * 3).to_json()) == event * 3


@pytest.mark.parametrize("event", EVENTS, ids=str)
@pytest.mark.parametrize("by", [name for name in ACCOUNTANTS if name != "pld"])
def test_other_accountants_refuse_them(event, by):
    with pytest.raises(NotAccountable, match="pld"):
        curve(event * 5, by).epsilon(DELTA)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_a_lot_from_a_lot_is_refused(event):
    with pytest.raises(NotAccountable, match="cannot be sampled once more"):
        curve(event.sampled(0.5)).epsilon(DELTA)


def test_other_noise_is_refused():
    with pytest.raises(NotAccountable, match="Gaussian noise only"):
        Allocated(Laplace(1.0), 10, 10)


def test_the_wrong_adjacency_is_refused():
    with pytest.raises(AdjacencyMismatch):
        FixedSize(Gaussian(1.0), 0.1)


def test_more_steps_than_lots_are_refused():
    with pytest.raises(InvalidArgument, match="at most as many steps"):
        Allocated(Gaussian(1.0), 10, 11)


def test_correlated_noise_has_no_cost_by_itself():
    with pytest.raises(NotAccountable, match="CyclicPoisson"):
        curve(Correlated(Gaussian(1.0), bands=4) * 10)


@pytest.mark.parametrize(("apart", "fits"), [(3, False), (4, True), (5, True)])
def test_correlated_noise_needs_steps_as_far_apart_as_its_bands(apart, fits):
    event = Correlated(Gaussian(1.0), bands=4)
    if fits:
        assert separate_steps(event, apart) == Gaussian(1.0)
    else:
        with pytest.raises(NotAccountable, match="4 groups"):
            separate_steps(event, apart)
