"""The best of a random number of runs: published closed forms, another library, and outcomes that can be integrated."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import optimize
from scipy.stats import norm

from tacit.accounting import EpsilonDelta, Gaussian, Laplace, curve
from tacit.accounting.selection import BestOf, PoissonRepetitions, TruncatedNegativeBinomial, draw
from tacit.errors import InvalidArgument

TNB = TruncatedNegativeBinomial
SHAPES = [-0.5, 0.0, 0.5, 1.0, 3.0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gamma", [0.5, 0.05])
def test_probabilities_add_up_to_one_and_to_the_mean(shape, gamma):
    repetitions = TNB(shape, gamma)
    chances = np.array([repetitions.probability(times) for times in range(1500)])
    assert chances.sum() == pytest.approx(1, abs=1e-9)
    assert chances @ np.arange(1500) == pytest.approx(repetitions.mean, rel=1e-9)


def test_probabilities_are_those_of_known_distributions():
    assert [TNB(1, 0.3).probability(k) for k in (1, 2, 5)] == pytest.approx([0.3 * 0.7 ** (k - 1) for k in (1, 2, 5)])
    assert TNB(0, 0.3).probability(2) == pytest.approx(0.7**2 / (2 * math.log(1 / 0.3)))
    assert PoissonRepetitions(4.0).probability(3) == pytest.approx(math.exp(-4) * 64 / 6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [1.5, 10.0, 200.0])
def test_a_distribution_is_found_by_its_mean(shape, mean):
    assert TNB.with_mean(mean, shape).mean == pytest.approx(mean, rel=1e-9)


def test_draws_follow_the_probabilities():
    repetitions = TNB.with_mean(5, shape=0.5)
    uniforms = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.array([draw(repetitions, float(u)) for u in uniforms])
    for times in (1, 2, 3, 10):
        assert np.mean(drawn == times) == pytest.approx(repetitions.probability(times), abs=1e-4)
    assert draw(PoissonRepetitions(1.0), 0.0) == 0


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_pure_privacy_costs_at_most_two_plus_shape_times_as_much(shape, epsilon):
    """Liu and Talwar 2019 (shape 1: three times); Papernot and Steinke 2022."""
    for mean in (1.1, 10.0, 1000.0):
        best = BestOf(EpsilonDelta(epsilon), TNB.with_mean(mean, shape))
        assert best.epsilon(1e-12) <= (2 + shape) * epsilon * (1 + 1e-6)
    # Where runs are many, nothing less is proven.
    assert BestOf(EpsilonDelta(epsilon), TNB.with_mean(1e5, 1.0)).epsilon(1e-12) > 2.9 * epsilon


@pytest.mark.parametrize("multiplier", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_gaussian_noise_costs_what_the_closed_form_for_concentrated_privacy_says(multiplier, shape):
    """With rho = 1 / (2 z^2), the best second order is sqrt(log(1 / gamma) / rho): 2 sqrt(rho log(1/gamma)) - rho."""
    rho, repetitions = 1 / (2 * multiplier**2), TNB(shape, 0.01)
    best = BestOf(Gaussian(multiplier), repetitions)
    choice = (1 + shape) * (2 * math.sqrt(rho * math.log(100)) - rho)
    for order in (2.0, 5.0, 20.0):
        expected = order * rho + choice + math.log(repetitions.mean) / (order - 1)
        assert expected <= best.divergence(order) * (1 + 1e-9)
        assert best.divergence(order) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, math.inf])
@pytest.mark.parametrize("mean", [2.0, 10.0])
def test_another_library_agrees(shape, mean):
    """It has fewer orders and, for Poisson, a looser delta of one run; so it is never below, and not far above."""
    orders = [*np.arange(1.5, 20, 0.25), *range(20, 200)]
    theirs = RdpAccountant(orders)
    theirs.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(3.0), mean, shape))
    repetitions = PoissonRepetitions(mean) if math.isinf(shape) else TNB.with_mean(mean, shape)
    ours = BestOf(Gaussian(3.0), repetitions).epsilon_by_divergence(1e-6)
    assert ours <= theirs.get_epsilon(1e-6) * (1 + 1e-3)
    if math.isfinite(shape):
        assert ours == pytest.approx(theirs.get_epsilon(1e-6), rel=5e-3)


def attained(repetitions, multiplier: float, delta: float) -> float:
    """The epsilon of the best of many Gaussian outcomes where the largest is the best, integrated numerically."""
    y = np.linspace(-12, 12, 200_001)

    def density(shift: float) -> np.ndarray:
        better = norm.sf(y, shift)
        if isinstance(repetitions, PoissonRepetitions):
            often = repetitions.mean * np.exp(-repetitions.mean * better)
        else:
            gamma = repetitions.gamma
            often = repetitions.mean * (gamma / (gamma + (1 - gamma) * better)) ** (1 + repetitions.shape)
        return norm.pdf(y, shift) * often

    here, there = density(0.0), density(1 / multiplier)
    assert np.trapezoid(here, y) == pytest.approx(1 - repetitions.probability(0), abs=1e-6)

    def excess(epsilon: float) -> float:
        pairs = ((here, there), (there, here))
        return max(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), y) for p, q in pairs) - delta

    return optimize.brentq(excess, 0, 30)


@pytest.mark.parametrize("multiplier", [1.0, 3.0])
@pytest.mark.parametrize(
    "repetitions",
    [
        TNB.with_mean(3, 1.0),
        TNB.with_mean(30, 0.0),
        TNB(-0.5, 1e-3),
        PoissonRepetitions(10.0),
        PoissonRepetitions(50.0),
    ],
    ids=str,
)
def test_no_bound_lies_below_what_a_selection_attains(repetitions, multiplier):
    best = BestOf(Gaussian(multiplier), repetitions)
    for delta in (1e-3, 1e-6):
        truth = attained(repetitions, multiplier, delta)
        assert truth <= best.epsilon_by_profile(delta)
        assert truth <= best.epsilon_by_divergence(delta)


def test_the_curve_of_one_run_says_more_than_its_divergences():
    best = BestOf(Gaussian(3.0), TNB.with_mean(10, 1.0))
    assert best.epsilon(1e-6) == best.epsilon_by_profile(1e-6) < 0.75 * best.epsilon_by_divergence(1e-6)


def test_a_training_run_that_is_tuned_costs_less_than_two():
    run = Gaussian(1.1).sampled(256 / 60_000) * 2000
    alone = curve(run).epsilon(1e-5)
    tuned = BestOf(run, TNB.with_mean(10, 0.0)).epsilon(1e-5)
    assert alone < tuned < 2 * alone
    assert tuned < curve(run * 10).epsilon(1e-5)


def test_more_runs_and_a_larger_shape_cost_more():
    costs = [BestOf(Laplace(2.0), TNB.with_mean(mean, 1.0)).epsilon(1e-6) for mean in (1.5, 5, 50)]
    assert costs == sorted(costs)
    shapes = [BestOf(Gaussian(3.0), TNB.with_mean(5, shape)).epsilon(1e-6) for shape in (0.0, 0.5, 1.0, 2.0)]
    assert shapes == sorted(shapes)


def test_a_selection_is_an_event_for_a_ledger():
    best = BestOf(Gaussian(3.0), TNB.with_mean(5))
    assert best.release(1e-6) == EpsilonDelta(best.epsilon(1e-6), 1e-6)


def test_poisson_has_no_bound_through_the_curve():
    assert BestOf(Gaussian(3.0), PoissonRepetitions(5)).epsilon_by_profile(1e-6) == math.inf


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TNB(-1.0, 0.5),
        lambda: TNB(math.nan, 0.5),
        lambda: TNB(1.0, 0.0),
        lambda: TNB.with_mean(1.0),
        lambda: TNB.with_mean(1e9, shape=-0.999),
        lambda: PoissonRepetitions(0.5),
        lambda: draw(TNB(1.0, 0.5), 1.5),
        lambda: BestOf(Gaussian(1.0), TNB(1.0, 0.5)).divergence(1.0),
        lambda: BestOf(Gaussian(1.0), TNB(1.0, 0.5)).epsilon(0.0),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        wrong()
