"""Noisy descents: what a step adds up, what it costs, and formulas of the papers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from support.erm_examples import LOSSES, replaced, table, targets_for
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, curve, gdp
from tacit.erm import FullDescent, Logistic, NoisyDescent, NoisyLots, NoisyPass, NoisySnapshots, Squared, prepare
from tacit.erm.descent import clipped_sum, weighted_sum
from tacit.errors import InvalidArgument
from tacit.methods.gradient_perturbation import (
    bassily_2014_std,
    singles_event,
    wang_2017_least_constant,
    wang_2017_std,
)
from tacit.randomness import source_for

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
DESCENTS = [
    NoisyDescent(30),
    NoisyLots(30, lot_size=20),
    NoisyPass(passes=2, lot_size=10),
    NoisySnapshots(rounds=3, inner=4, lot_size=20),
]


def problem_of(loss=None, n=60, regularisation=0.05, data_norm=1.0):
    loss = loss or Logistic()
    y = targets_for(loss, n, np.random.default_rng(0))
    return prepare(table(n), y, loss=loss, regularisation=regularisation, data_norm=data_norm)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@given(seed=st.integers(0, 10_000), clip_norm=st.sampled_from([0.01, 0.3, 1.0, 5.0]))
def test_one_example_moves_a_sum_by_at_most_the_clip_norm(loss, seed, clip_norm):
    rng = np.random.default_rng(seed)
    x, y = 3 * rng.normal(size=(8, 2)), targets_for(loss, 8, rng)
    settings = {"loss": loss, "regularisation": 0.1, "data_norm": 1.0}
    problem, other = prepare(x, y, **settings), prepare(*replaced(x, y, loss, rng), **settings)
    theta = 3 * rng.normal(size=problem.shape)
    total = clipped_sum(problem, theta, clip_norm)
    moved = np.linalg.norm(total - clipped_sum(other, theta, clip_norm))
    assert moved <= 2 * min(clip_norm, problem.lipschitz) * (1 + 1e-12)
    without = clipped_sum(problem, theta, clip_norm, np.arange(1, 8))
    assert np.linalg.norm(total - without) <= clip_norm * (1 + 1e-12)


def test_a_slow_loop_clips_the_same():
    problem = problem_of()
    theta = np.random.default_rng(1).normal(size=problem.shape)
    slopes = problem.slopes(theta)
    expected = np.zeros(problem.shape)
    for row, slope in zip(problem.rows, slopes, strict=True):
        gradient = np.outer(row, slope)
        expected += gradient * min(1, 0.2 / np.linalg.norm(gradient))
    assert clipped_sum(problem, theta, 0.2) == pytest.approx(expected)
    assert weighted_sum(problem, slopes, 0.2) == pytest.approx(expected)


def test_an_empty_lot_adds_up_to_nothing():
    problem = problem_of()
    assert not clipped_sum(problem, np.ones(problem.shape), 1.0, np.zeros(0, dtype=np.int64)).any()


@pytest.mark.parametrize("descent", DESCENTS, ids=str)
def test_the_steps_emit_what_calibration_was_told(descent):
    problem = problem_of()
    run = descent.run(problem, 4.0, REPLACE, source_for(0))
    assert curve(run.event).epsilon(1e-5) == curve(descent.event(problem.n, 4.0, REPLACE)).epsilon(1e-5)


def test_events_of_each_descent():
    assert NoisyDescent(7).event(60, 2.0, ADD) == Gaussian(2.0, ADD) * 7
    assert NoisyLots(7, lot_size=6).event(60, 2.0, ADD) == Gaussian(2.0, ADD).sampled(0.1) * 7
    assert NoisyPass(3).event(60, 2.0, REPLACE) == EpsilonDelta(0.5, 0.0, REPLACE) * 3
    snapshots = NoisySnapshots(rounds=2, inner=5, lot_size=6, share=1.5)
    expected = Gaussian(3.0, ADD) * 2 + Gaussian(2.0, ADD).sampled(0.1) * 10
    assert snapshots.event(60, 2.0, ADD) == expected


@pytest.mark.parametrize("descent", [NoisyDescent(50), NoisyLots(50, lot_size=60)], ids=str)
def test_without_noise_a_full_descent_is_left(descent):
    problem = problem_of()
    if isinstance(descent, NoisyLots):
        descent = NoisyLots(50, lot_size=60, step_size=1 / problem.smoothness)
    found = descent.run(problem, 1e-9, REPLACE, source_for(0)).values
    assert found == pytest.approx(FullDescent(50).fit(problem), abs=1e-6)


def test_without_noise_snapshots_come_to_the_minimum():
    from tacit.erm import minimise

    problem = problem_of()
    found = NoisySnapshots(rounds=60, inner=5, lot_size=60).run(problem, 1e-9, REPLACE, source_for(0)).values
    assert found == pytest.approx(minimise(problem, 1e-10).theta, abs=1e-3)


def test_lots_are_drawn_by_one_coin_per_example():
    """Sixty equal rows: one step from zero tells how many were drawn. 2000 lots, false alarm below 1e-6."""
    same = prepare(np.ones((60, 1)), np.ones(60), loss=Logistic(), regularisation=0.0, data_norm=1.0, intercept=False)
    descent = NoisyLots(steps=1, lot_size=10, step_size=1.0)
    ends = [descent.run(same, 1e-9, ADD, source_for(seed)).values[0, 0] for seed in range(2000)]
    sizes = np.round(np.array(ends) * 10 / 0.5).astype(int)
    counts = np.bincount(np.clip(sizes, 5, 16), minlength=17)[5:]
    coins = stats.binom(60, 1 / 6)
    expected = 2000 * np.array([coins.cdf(5), *coins.pmf(range(6, 16)), coins.sf(15)])
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_normal_noise_is_multiplier_times_shift_over_n():
    """One step from zero: what is not the gradient is noise. 500 runs of 4 coefficients, false alarm below 1e-6."""
    problem = problem_of()
    clean = NoisyDescent(1, step_size=1.0).run(problem, 1e-9, REPLACE, source_for(0)).values
    noise = [
        NoisyDescent(1, step_size=1.0).run(problem, 3.0, REPLACE, source_for(seed)).values - clean
        for seed in range(500)
    ]
    assert np.std(noise) == pytest.approx(3.0 * 2 / 60, rel=0.12)


def test_planned_steps_grow_with_the_budget_and_need_no_data():
    problem = problem_of(n=60)
    steps = [NoisyDescent().plan_steps(problem, mu).steps for mu in (0.01, 0.1, 1.0, 10.0)]
    assert steps == sorted(steps)
    assert 5 <= steps[0] < steps[-1] <= 500
    assert NoisyDescent(7).plan_steps(problem, 1.0) == NoisyDescent(7)
    with pytest.raises(InvalidArgument, match="no number of steps yet"):
        NoisyDescent().event(60, 1.0, ADD)


def test_squared_loss_is_clipped_where_its_minimiser_cannot_be():
    problem = problem_of(Squared(1.0))
    assert math.isfinite(np.abs(NoisyDescent(5).run(problem, 1.0, REPLACE, source_for(0)).values).max())
    with pytest.raises(InvalidArgument, match="clip_norm"):
        NoisyDescent(5).run(problem_of(Squared(1.0), regularisation=0.0), 1.0, REPLACE, source_for(0))


def test_a_pass_is_about_replaced_examples():
    for ask in (
        lambda: NoisyPass().event(60, 1.0, ADD),
        lambda: NoisyPass().run(problem_of(), 1.0, ADD, source_for(0)),
    ):
        with pytest.raises(InvalidArgument, match="removing one would move all later lots"):
            ask()


@pytest.mark.parametrize(
    ("n", "steps", "epsilon", "std", "true", "least"),
    [
        (1000, 50, 0.25, 0.09597051824376161, 0.5197713764133511, 3.8327613029851335),
        (45222, 100, 0.1, 0.007503140533827685, 0.19151554800611945, 3.2851279031788025),
        (1000, 50, 1.0, 0.023992629560940403, 2.3965722184026856, 4.835473811425504),
    ],
)
def test_numbers_of_wang_2017(n, steps, epsilon, std, true, least):
    assert wang_2017_std(n, 1.0, steps, epsilon, 1e-5) == pytest.approx(std)
    mu = 2 * math.sqrt(steps) / (n * std)
    assert mu == pytest.approx(2 * epsilon / math.sqrt(math.log(1e5)))
    assert gdp.epsilon(1e-5, mu) == pytest.approx(true)
    assert wang_2017_least_constant(epsilon, 1e-5) == pytest.approx(least)
    kept = wang_2017_std(n, 1.0, steps, epsilon, 1e-5, constant=least)
    assert gdp.epsilon(1e-5, 2 * math.sqrt(steps) / (n * kept)) == pytest.approx(epsilon)


@pytest.mark.parametrize(
    ("n", "steps", "epsilon", "std"),
    [(1000, 50, 0.25, 0.18788569973532315), (45222, 100, 0.1, 0.013599383544282143), (1000, 50, 1.0, 0.05275909854)],
)
def test_the_least_noise_on_a_mean_gradient(n, steps, epsilon, std):
    from tacit.accounting import multiplier_for

    multiplier = multiplier_for(epsilon=epsilon, delta=1e-5, rate=1.0, steps=steps)
    assert multiplier * 2 / n == pytest.approx(std)


@pytest.mark.parametrize(
    ("n", "epsilon", "multiplier", "limit"),
    [(1000, 1.0, 82.37978867059778, 0.0725785660876903), (45222, 0.1, 905.0231438237286, 0.004923184328685944)],
)
def test_numbers_of_bassily_2014(n, epsilon, multiplier, limit):
    assert bassily_2014_std(n, 1.0, epsilon, 1e-5) / n == pytest.approx(multiplier)
    mu = gdp.clt_mu(multiplier / 2, 1 / n, n**2)
    assert gdp.epsilon(1e-5, mu) == pytest.approx(limit)


@pytest.mark.slow
def test_bassily_2014_is_within_its_claim_by_our_own_proof():
    """Amplification and composition of (epsilon, delta) give 0.46 for a claim of 1, with all n^2 steps."""
    event = singles_event(1000, 1_000_000, 82.38 / 2, 1e-5)
    assert 0.07 < curve(event).epsilon(1e-5) < 0.6


def test_one_uniform_example_per_step_is_no_easier_to_find_than_stated():
    """One step on ten examples on a line: exact mixtures of normal densities, with the worst neighbours."""
    n, multiplier = 10, 1.2
    grid = np.linspace(-30, 30, 60_001)

    def mixture(ends):
        return np.mean([np.exp(-((grid - end) ** 2) / (2 * (2 * multiplier) ** 2)) for end in ends], axis=0)

    p, q = mixture([1.0] + [1.0] * (n - 1)), mixture([-1.0] + [1.0] * (n - 1))
    cell = (grid[1] - grid[0]) / (2 * multiplier * math.sqrt(2 * math.pi))
    event = singles_event(n, 1, multiplier, 1e-3)
    epsilon = curve(event).epsilon(1e-3)
    for one, other in ((p, q), (q, p)):
        assert np.maximum(one - math.exp(epsilon) * other, 0).sum() * cell <= 1e-3


def test_a_declared_clip_norm_bounds_the_noise_where_gradients_are_unbounded():
    x, y = table(40, 2), np.linspace(-1.0, 1.0, 40)
    problem = prepare(x, y, loss=Squared(1.0), regularisation=0.0, data_norm=1.0)
    with pytest.raises(InvalidArgument, match="clip_norm"):
        NoisyDescent(3).run(problem, 1.0, Adjacency.REPLACE_ONE, source_for(0))
    clipped = NoisyDescent(3, clip_norm=0.5).run(problem, 1.0, Adjacency.REPLACE_ONE, source_for(0))
    assert clipped.event == Gaussian(1.0, Adjacency.REPLACE_ONE) * 3
