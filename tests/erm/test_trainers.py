"""Sensitivities: the published numbers, and no pair of neighbours further apart than ours."""

import numpy as np
import pytest

from support.erm_examples import BOUNDED, LOSSES, replaced, table, targets_for
from tacit.accounting import gdp
from tacit.erm import FullDescent, Huber, Logistic, Minimiser, PermutedDescent, Squared, prepare
from tacit.erm.trainers import decreasing_steps, minimiser_sensitivity, steps_sensitivity
from tacit.errors import InvalidArgument
from tacit.methods.output_perturbation import classic_multiplier, wu_constant, wu_decreasing, zhang_sensitivity

WU = {"n": 1000, "passes": 5, "lipschitz": 1.0}


def test_minimiser_of_chaudhuri_2011():
    assert minimiser_sensitivity(1000, 1.0, 0.01) == pytest.approx(0.2)
    assert minimiser_sensitivity(1000, 1.0, 0.01, tolerance=1e-4) == pytest.approx(0.2 + 0.02)


def test_four_regimes_of_wu_2017_as_published():
    constant = {"n": 1000, "passes": 5, "lot_size": 10, "lipschitz": 1.0}
    assert wu_constant(0.1, gamma=0.0, **constant) == pytest.approx(0.1)
    assert wu_constant(0.1, gamma=0.01, **constant) == pytest.approx(0.21006670556772727)
    decreasing = {**WU, "smoothness": 0.26, "exponent": 0.5}
    assert wu_decreasing(gamma=0.0, **decreasing) == pytest.approx(0.5112648386787367)
    assert wu_decreasing(gamma=0.01, **decreasing) == pytest.approx(0.2)


def test_our_sum_for_decreasing_steps():
    sizes = decreasing_steps(5000, 0.26, 0.0, offset=1000**0.5)
    found = steps_sensitivity(sizes, lots_per_pass=1000, lot_size=1, lipschitz=1.0, strong_convexity=0.0)
    assert found == pytest.approx(0.502946741907004)


def test_our_sums_are_never_above_what_is_published():
    for gamma in (0.0, 0.01):
        for lot_size in (1, 10):
            lots = 1000 // lot_size
            constant = np.full(5 * lots, 0.1)
            ours = steps_sensitivity(
                constant, lots_per_pass=lots, lot_size=lot_size, lipschitz=1.0, strong_convexity=gamma
            )
            theirs = wu_constant(0.1, n=1000, passes=5, lot_size=lot_size, lipschitz=1.0, gamma=gamma)
            assert ours <= theirs * (1 + 1e-9)
        sizes = decreasing_steps(5000, 0.26, gamma, offset=1000**0.5)
        ours = steps_sensitivity(sizes, lots_per_pass=1000, lot_size=1, lipschitz=1.0, strong_convexity=gamma)
        assert ours <= wu_decreasing(**WU, smoothness=0.26, gamma=gamma, exponent=0.5) * (1 + 1e-9)


def test_a_slow_loop_gives_the_same_sum():
    sizes = np.random.default_rng(0).uniform(0.1, 1.0, 17)
    worst = 0.0
    for place in range(5):
        moved = 0.0
        for step, size in enumerate(sizes):
            moved = (1 - 0.3 * size) * moved + (2 * 1.5 * size / 4 if step % 5 == place else 0.0)
        worst = max(worst, moved)
    found = steps_sensitivity(sizes, lots_per_pass=5, lot_size=4, lipschitz=1.5, strong_convexity=0.3)
    assert found == pytest.approx(worst, rel=1e-10)


def test_full_descent_of_zhang_2017():
    x, y = np.zeros((1000, 1)), np.ones(1000)
    convex = prepare(x, y, loss=Logistic(), regularisation=0.0, data_norm=1.0)
    strongly = prepare(x, y, loss=Logistic(), regularisation=0.01, data_norm=1.0)
    assert FullDescent(100, 0.1).sensitivity(convex) == pytest.approx(0.02)
    assert FullDescent(100, 0.1).sensitivity(strongly) == pytest.approx(0.019041570577258218)
    assert FullDescent(100_000, 0.1).sensitivity(strongly) == pytest.approx(0.2)


def test_the_order_that_zhang_2017_publish():
    found = zhang_sensitivity(n=1000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, constant=5.0)
    assert found == pytest.approx(5 / 1000 * (1 / 0.26 + 100))


def test_classic_and_exact_noise_of_wu_2017():
    assert 0.2 * classic_multiplier(0.5, 1e-5) == pytest.approx(1.9379221050421558)
    assert 0.2 / gdp.mu(0.5, 1e-5) == pytest.approx(1.4063653351165015)


@pytest.mark.parametrize(
    ("epsilon", "true"), [(0.1, 0.060703781619677245), (1.0, 0.7509769568672022), (7.0, 6.742895503747317)]
)
def test_what_classic_noise_is_worth(epsilon, true):
    assert gdp.epsilon(1e-5, 1 / classic_multiplier(epsilon, 1e-5)) == pytest.approx(true)


def test_classic_noise_breaks_its_claim_at_ten():
    assert gdp.epsilon(1e-5, 1 / classic_multiplier(10.0, 1e-5)) == pytest.approx(10.393882381222282)


TRAININGS = [
    PermutedDescent(passes=3, lot_size=5),
    PermutedDescent(passes=3, lot_size=5, step_size=0.15),
    PermutedDescent(passes=2, lot_size=1),
    FullDescent(15),
]


def distance(training, loss, x, y, other, regularisation):
    settings = {"loss": loss, "regularisation": regularisation, "data_norm": 1.0}
    one, two = (prepare(*data, **settings) for data in ((x, y), other))
    return float(np.linalg.norm(training.fit(one) - training.fit(two))), training.sensitivity(one)


# A minimiser needs regularisation, and steps need slopes with a bound.
SETTINGS = [
    *((Minimiser(), loss, 0.05) for loss in LOSSES),
    *((training, loss, strength) for training in TRAININGS for loss in BOUNDED for strength in (0.0, 0.05)),
]


@pytest.mark.parametrize(("training", "loss", "regularisation"), SETTINGS, ids=str)
def test_no_two_neighbours_are_further_apart_than_the_sensitivity(training, loss, regularisation):
    """Eleven examples and lots of five: the last lot is smaller."""
    rng = np.random.default_rng(11)
    for _ in range(12):
        x, y = 2 * rng.normal(size=(11, 2)), targets_for(loss, 11, rng)
        apart, allowed = distance(training, loss, x, y, replaced(x, y, loss, rng), regularisation)
        assert apart <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("regularisation", [0.0, 0.05])
def test_a_thousand_pairs_stay_within_the_sensitivity(regularisation):
    training, loss = PermutedDescent(passes=3, lot_size=5, step_size=3.0), Logistic()
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(1000):
        x = rng.normal(size=(11, 1)) * rng.choice([0.0, 1.0, 10.0])
        y = rng.integers(0, 2, 11)
        apart, allowed = distance(training, loss, x, y, replaced(x, y, loss, rng), regularisation)
        worst = max(worst, apart / allowed)
    assert 0.2 < worst <= 1


def test_a_smaller_last_lot_divided_by_its_own_size_would_break_the_bound():
    """Ten empty rows and one in the last lot: 5.57 apart where 4.8 is allowed; with a constant divisor 1.97."""
    lone, training = PermutedDescent(passes=3, lot_size=1, step_size=4.0), PermutedDescent(3, 5, 4.0)
    order = np.random.default_rng(0).permutation(11)
    ends = []
    for row in (1.0, -1.0):
        x = np.zeros((11, 1))
        x[order[-1]] = row
        problem = prepare(x, np.ones(11), loss=Logistic(), regularisation=0.0, data_norm=1.0, intercept=False)
        ends.append((lone.fit(problem)[0, 0], training.fit(problem)[0, 0]))
    allowed = training.sensitivity(problem)
    assert allowed == pytest.approx(4.8)
    assert ends[0][0] - ends[1][0] == pytest.approx(5.573622090129662)
    assert ends[0][1] - ends[1][1] == pytest.approx(1.96555868124181)
    assert ends[0][1] - ends[1][1] <= allowed < ends[0][0] - ends[1][0]


def test_the_sensitivity_of_a_minimiser_is_reached_within_a_third():
    """Opposite examples under strong regularisation: the bound is no idle constant."""
    x, y = np.zeros((10, 1)), np.ones(10)
    other = x.copy()
    x[0], other[0] = 1.0, -1.0
    settings = {"loss": Huber(0.05), "regularisation": 0.5, "data_norm": 1.0, "intercept": False}
    one, two = (prepare(data, 10 * y, **settings) for data in (x, other))
    apart = np.linalg.norm(Minimiser().fit(one) - Minimiser().fit(two))
    assert 0.66 * Minimiser().sensitivity(one) <= apart <= Minimiser().sensitivity(one)


@pytest.mark.parametrize("training", [PermutedDescent(), FullDescent()], ids=str)
def test_steps_on_slopes_without_a_bound_are_refused(training):
    problem = prepare(table(), np.ones(60), loss=Squared(1.0), regularisation=0.1, data_norm=1.0)
    with pytest.raises(InvalidArgument, match="are unbounded"):
        training.sensitivity(problem)


@pytest.mark.parametrize("loss", BOUNDED, ids=str)
def test_steps_that_are_too_long_are_refused(loss):
    y = targets_for(loss, 60, np.random.default_rng(0))
    convex = prepare(table(), y, loss=loss, regularisation=0.0, data_norm=1.0)
    FullDescent(5, 1.99 / convex.smoothness).sensitivity(convex)
    with pytest.raises(InvalidArgument, match="step_size must be at most"):
        FullDescent(5, 2.01 / convex.smoothness).sensitivity(convex)
    strongly = prepare(table(), y, loss=loss, regularisation=0.1, data_norm=1.0)
    with pytest.raises(InvalidArgument, match="step_size must be at most"):
        PermutedDescent(step_size=1.01 / strongly.smoothness).sensitivity(strongly)


def test_a_minimiser_without_regularisation_is_refused():
    problem = prepare(table(), np.ones(60), loss=Logistic(), regularisation=0.0, data_norm=1.0)
    with pytest.raises(InvalidArgument, match="regularisation must be above 0"):
        Minimiser().sensitivity(problem)


def test_bad_numbers_are_named():
    with pytest.raises(InvalidArgument, match="passes must be a whole number"):
        PermutedDescent(passes=0)
    with pytest.raises(InvalidArgument, match="step_size must be a finite number above 0"):
        FullDescent(step_size=-1.0)
    with pytest.raises(InvalidArgument, match="tolerance must be"):
        Minimiser(tolerance=0.0)
