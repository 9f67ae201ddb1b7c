"""Noise as Kang et al. publish it: formulas, noise, steps, and the numbers that refute them."""

import math
import pickle

import numpy as np
import pytest

from tacit.accounting import Adjacency, Gaussian, curve, gdp
from tacit.erm.descent import step_size_for
from tacit.erm.losses import Logistic, Multinomial
from tacit.erm.noisy_data import (
    Descent,
    InputRule,
    add_noise,
    check_noise,
    draw_below,
    draw_lot,
    draw_permutation,
    kang_2020_std,
    kang_2021_std,
    one_step_event,
    with_rows,
)
from tacit.erm.problem import prepare
from tacit.erm.result import Unnoised
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource

DELTA = 1e-5


def stream(seed=0, purpose=Purpose.NOISE):
    return SeededSource(seed).stream(purpose, 0)


def logistic(x, y, regularisation=0.0):
    return prepare(x, y, loss=Logistic(), regularisation=regularisation, data_norm=1.0, intercept=False)


@pytest.mark.parametrize(
    ("n", "steps", "epsilon", "convex", "lojasiewicz", "local_mu", "local_epsilon"),
    [
        (1000, 20, 0.25, 0.1920370790436898, 0.06072745649838495, 10.414655388, 97.81292079616664),
        (45222, 100, 0.1, 0.023727276034856422, 0.007503223494167503, 84.291175989, 3911.018352824857),
        (45222, 100, 0.25, 0.009490910413942571, 0.0030012893976670016, 210.72793997, 23100.87398592891),
    ],
)
def test_the_noise_of_2020_and_what_it_is_worth_locally(
    n, steps, epsilon, convex, lojasiewicz, local_mu, local_epsilon
):
    settings = {"n": n, "steps": steps, "epsilon": epsilon, "delta": DELTA}
    assert kang_2020_std(**settings, strong_convexity=0.01) == pytest.approx(convex, rel=1e-12)
    assert kang_2020_std(**settings) == pytest.approx(lojasiewicz, rel=1e-12)
    assert 2 / convex == pytest.approx(local_mu, rel=1e-9)
    event = Gaussian(convex / 2, Adjacency.REPLACE_ONE)
    assert curve(event).epsilon(DELTA) == pytest.approx(local_epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "claimed", "std", "mu", "epsilon", "needed"),
    [
        (150, 0.25, 0.28708736164587445, 0.5688140197093622, 2.302594871207495, 57.10814341447849),
        (699, 0.25, 0.06144499859938746, 1.2311327068364113, 5.578848065892722, 267.5267389483623),
        (1000, 0.25, 0.04294079629421907, 1.4728546897459855, 6.899154869420715, 382.8928541682149),
        (41188, 0.1, 0.002605118089769314, 3.7828335227603382, 22.621458425847642, 13530.456294822536),
        (45222, 0.1, 0.0023727276034856424, 3.963758899443502, 24.084542048799182, 14855.67689096486),
        (45222, 0.25, 0.000949091041394257, 9.909397248608755, 90.53017246440314, 17332.12988822907),
        (70000, 0.25, 0.0006131375299378116, 12.328864391894681, 127.72388690641559, 26828.945844765636),
    ],
)
def test_one_step_with_noise_per_example_costs_far_more_than_is_claimed(n, claimed, std, mu, epsilon, needed):
    settings = {"n": n, "steps": 1, "epsilon": claimed, "delta": DELTA, "strong_convexity": 0.01}
    assert kang_2020_std(**settings) == pytest.approx(std, rel=1e-12)
    event = one_step_event(n, std, 1.0)
    assert 1 / event.multiplier == pytest.approx(mu, rel=1e-12)
    assert curve(event).epsilon_bounds(DELTA) == pytest.approx((epsilon, epsilon), rel=1e-8)
    # The constant that would be needed grows with n: no constant will do.
    enough = one_step_event(n, kang_2020_std(**settings, constant=needed), 1.0)
    assert 1 / enough.multiplier == pytest.approx(gdp.mu(claimed, DELTA), rel=1e-9)


def test_the_noise_of_2021():
    settings = {"rate": 0.01, "steps": 1000, "epsilon": 0.25, "delta": DELTA}
    assert kang_2021_std(**settings) == pytest.approx(4.291932052578694, rel=1e-12)
    assert kang_2021_std(**settings, constant=2, lipschitz=3) == pytest.approx(6 * 4.291932052578694, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "lot", "epsilon", "mu", "true", "delta_at_claim"),
    [
        (10_000, 100, 0.1, 0.5894366679488149, 0.016457080876739562, 8.41195158644764e-19),
        (10_000, 100, 0.25, 1.4735916698720373, 0.0832750121128878, 2.20568603166822e-08),
        (45_222, 213, 0.25, 2.1436679670619876, 0.10543035951305019, 5.364296821299954e-07),
        (70_000, 265, 0.25, 2.3911476109687024, 0.12299764589251794, 1.2605855876444665e-06),
        (1_000_000, 1000, 0.25, 4.65990601784656, 1.000743325799716, 5.691286609136812e-05),
    ],
)
def test_noise_per_example_averages_out_within_a_lot(n, lot, epsilon, mu, true, delta_at_claim):
    std = kang_2021_std(rate=lot / n, steps=1, epsilon=epsilon, delta=DELTA)
    assert 2 / (std * math.sqrt(lot)) == pytest.approx(mu, rel=1e-12)
    step = curve(Gaussian(1 / mu, Adjacency.REPLACE_ONE).sampled(lot / n))
    lower, upper = step.epsilon_bounds(DELTA)
    assert lower <= true * (1 + 1e-7) <= upper * (1 + 1e-7)
    assert lower == pytest.approx(true, rel=1e-5)
    assert step.delta_bounds(epsilon)[0] == pytest.approx(delta_at_claim, rel=1e-4)


def test_the_rule_takes_the_theorem_that_fits():
    x, y = np.zeros((10, 1)), np.ones(10)
    strong, plain = logistic(x, y, 0.01), logistic(x, y)
    settings = (5, 1.0, DELTA, 1.0)
    assert InputRule().std(strong, *settings) == pytest.approx(
        kang_2020_std(n=10, steps=5, epsilon=1.0, delta=DELTA, strong_convexity=0.01)
    )
    other = kang_2020_std(n=10, steps=5, epsilon=1.0, delta=DELTA)
    assert InputRule().std(plain, *settings) == pytest.approx(other)
    assert InputRule(condition="polyak_lojasiewicz").std(strong, *settings) == pytest.approx(other)
    with pytest.raises(InvalidArgument, match="condition must be 'strongly_convex' or 'polyak_lojasiewicz'"):
        InputRule(condition="convex")


def test_shared_noise_is_one_vector_and_noise_per_example_is_not():
    rows = np.zeros((50, 3))
    shared = add_noise(rows, 2.0, "shared", stream())
    assert np.ptp(shared, axis=0).max() == 0
    each = add_noise(rows, 2.0, "per_example", stream())
    assert np.unique(each).size == each.size
    # 150 squares: between 0.6 and 1.5 of what they should be but for a probability of 1e-4.
    assert 0.6 < each.var() / 4 < 1.5
    assert np.all(shared[0] != 0)


def test_with_one_example_shared_noise_and_noise_per_example_lead_to_the_same_model():
    problem = logistic(np.array([[0.3, -0.4]]), np.array([1.0]), 0.01)
    found = [
        Descent(steps=7).fit(with_rows(problem, add_noise(problem.rows, 1.0, noise, stream(3)), intercept=True), None)
        for noise in ("shared", "per_example")
    ]
    assert np.array_equal(*found)


def test_with_endless_noise_the_model_does_not_depend_on_the_features():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    worlds = [rng.normal(size=(40, 2)), rng.normal(size=(40, 2))]
    outcomes = []
    for x in worlds:
        problem = logistic(x, y)
        noisy = with_rows(problem, add_noise(problem.rows, 1e9, "per_example", stream(1)), intercept=False)
        outcomes.append(Descent(steps=5, step_size=1e-9).fit(noisy, None))
    assert np.allclose(*outcomes, rtol=1e-6)


def test_a_step_over_a_lot_is_the_slow_mean_over_it():
    rng = np.random.default_rng(1)
    problem = logistic(rng.normal(size=(30, 2)) / 3, np.where(rng.random(30) < 0.5, 1, -1), 0.1)
    source = SeededSource(5)
    theta = Descent(steps=2, step_size=0.5, lot_size=7).fit(problem, source)
    slow = np.zeros(2)
    for step in range(2):
        lot = draw_lot(30, 7, source.stream(Purpose.LOT, step))
        assert len(set(lot.tolist())) == 7
        gradient = np.zeros(2)
        for i in lot:
            margin = problem.targets[i, 0] * (problem.rows[i] @ slow)
            gradient -= problem.targets[i, 0] * problem.rows[i] / (1 + math.exp(margin)) / 7
        slow = slow - 0.5 * (gradient + 0.1 * slow)
    assert theta[:, 0] == pytest.approx(slow, rel=1e-12)


def test_lots_and_orders_are_uniform():
    counts = np.zeros(6)
    orders = set()
    for seed in range(3000):
        counts[draw_lot(6, 2, stream(seed, Purpose.LOT))] += 1
        orders.add(tuple(draw_permutation(4, stream(seed, Purpose.SHUFFLE)).tolist()))
    # Each index is expected 1000 times, with a deviation of 26: five of them, a false alarm in two million.
    assert np.abs(counts - 1000).max() < 130
    assert len(orders) == 24
    assert set(draw_below(3, 200, stream()).tolist()) == {0, 1, 2}


def test_an_endless_step_size_is_taken_from_the_length_of_noisy_rows():
    problem = logistic(np.ones((5, 1)), np.ones(5), 0.5)
    assert step_size_for(problem, Descent().step_size) == pytest.approx(1 / (0.25 + 0.5))
    longer = with_rows(problem, problem.rows, intercept=True, length=2.0)
    assert step_size_for(longer, Descent().step_size) == 1 / (1 + 0.5)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(2)])
def test_wrong_settings_are_refused(loss):
    with pytest.raises(InvalidArgument, match="noise must be 'per_example'"):
        check_noise("per_record")
    with pytest.raises(InvalidArgument, match="n must be a whole number of at least 2"):
        kang_2020_std(n=1, steps=1, epsilon=1, delta=DELTA)
    problem = prepare(np.ones((3, 1)), np.ones(3), loss=loss, regularisation=0.0, data_norm=1.0, intercept=False)
    with pytest.raises(InvalidArgument, match="lot_size must be at most the number of examples, 3"):
        Descent(lot_size=4).fit(problem, SeededSource(0))


def test_who_had_no_noise_is_neither_shown_nor_saved():
    private = Unnoised(np.array([3, 17]))
    assert "17" not in repr(private)
    with pytest.raises(TypeError, match="private and is not saved"):
        pickle.dumps(private)
    assert private.for_curator().tolist() == [3, 17]
