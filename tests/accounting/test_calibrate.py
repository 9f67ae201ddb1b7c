"""Calibration: never over budget by the upper bound, hardly under it by the lower; largest means one more breaks it."""

import importlib
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.accounting import (
    Adjacency,
    EpsilonDelta,
    Gaussian,
    Laplace,
    StudentT,
    calibrate,
    curve,
    gdp,
    lot_size_for,
    multiplier_for,
    steps_for,
)
from tacit.errors import InvalidArgument, NotAchievable, NotProven


def powers_of_ten(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def sampled(multiplier, rate, steps):
    return Gaussian(multiplier).sampled(rate) * steps


budgets = (powers_of_ten(-1, 1.3), powers_of_ten(-12, -3), powers_of_ten(-4, -0.3), powers_of_ten(0.5, 4.5).map(int))


@pytest.mark.slow
@settings(max_examples=5)
@given(*budgets)
def test_a_multiplier_keeps_its_budget_and_a_little_less_noise_breaks_it(epsilon, delta, rate, steps):
    multiplier = multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=steps)
    assert curve(sampled(multiplier, rate, steps)).epsilon(delta) <= epsilon
    assert curve(sampled(0.9998 * multiplier, rate, steps)).epsilon_bounds(delta)[0] > epsilon


@settings(max_examples=12)
@given(powers_of_ten(-1, 1.3), powers_of_ten(-12, -3), st.integers(1, 10**6))
def test_without_sampling_the_multiplier_has_its_closed_form(epsilon, delta, steps):
    exact = math.sqrt(steps) / gdp.mu(epsilon, delta)
    assert exact <= multiplier_for(epsilon=epsilon, delta=delta, rate=1.0, steps=steps) <= exact * (1 + 1e-10)


@pytest.mark.slow
@settings(max_examples=5)
@given(powers_of_ten(-0.5, 1), powers_of_ten(-9, -3), powers_of_ten(-3.5, -0.5), st.floats(0.6, 4))
def test_steps_are_the_last_that_fit(epsilon, delta, rate, multiplier):
    try:
        steps = steps_for(epsilon=epsilon, delta=delta, rate=rate, multiplier=multiplier)
    except NotAchievable:
        assert curve(sampled(multiplier, rate, 1)).epsilon(delta) > epsilon
        return
    assert curve(sampled(multiplier, rate, steps)).epsilon(delta) <= epsilon
    assert curve(sampled(multiplier, rate, steps + 1)).epsilon(delta) > epsilon


@pytest.mark.slow
@settings(max_examples=5)
@given(
    powers_of_ten(-0.5, 1), powers_of_ten(-9, -3), st.integers(100, 10**5), st.integers(10, 10**4), st.floats(0.6, 4)
)
def test_a_lot_is_the_largest_that_fits(epsilon, delta, population, steps, multiplier):
    budget = {"epsilon": epsilon, "delta": delta, "population": population, "steps": steps, "multiplier": multiplier}
    try:
        lot_size = lot_size_for(**budget)
    except NotAchievable:
        assert curve(sampled(multiplier, 1 / population, steps)).epsilon(delta) > epsilon
        return
    assert curve(sampled(multiplier, lot_size / population, steps)).epsilon(delta) <= epsilon
    assume(lot_size < population)
    assert curve(sampled(multiplier, (lot_size + 1) / population, steps)).epsilon(delta) > epsilon


def test_steps_without_sampling_have_their_closed_form():
    # mu^2 z^2 rounded down.
    exact = int(gdp.mu(2.0, 1e-6) ** 2 * 30.0**2)
    assert steps_for(epsilon=2.0, delta=1e-6, rate=1.0, multiplier=30.0) == exact


@pytest.mark.slow
@pytest.mark.parametrize("guess", [0.3, 30.0])
def test_the_guess_does_not_matter(guess):
    found = calibrate(lambda x: sampled(x, 0.02, 200), epsilon=1.5, delta=1e-6, guess=guess)
    assert found == pytest.approx(multiplier_for(epsilon=1.5, delta=1e-6, rate=0.02, steps=200), rel=1e-4)


def test_a_guess_far_too_small_does_not_matter():
    found = calibrate(lambda x: sampled(x, 0.02, 200), epsilon=1.5, delta=1e-6, guess=1e-3)
    assert found == pytest.approx(multiplier_for(epsilon=1.5, delta=1e-6, rate=0.02, steps=200), rel=1e-4)


@pytest.mark.parametrize("delta", [1e-10, 1e-3, 0.05])
def test_one_laplace_release_is_calibrated_to_its_closed_form(delta):
    # 1 - e^{(eps - 1/b) / 2} = delta
    exact = 1 / (1.0 - 2 * math.log1p(-delta))
    found = calibrate(Laplace, epsilon=1.0, delta=delta)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4)


@pytest.mark.slow
def test_student_t_is_calibrated_within_its_budget():
    def event(scale):
        return StudentT(9.0, scale, (0.6, 0.8)).sampled(0.05) * 20

    scale = calibrate(event, epsilon=1.0, delta=1e-5)
    assert curve(event(scale)).epsilon(1e-5) <= 1.0
    assert curve(event(0.999 * scale)).epsilon_bounds(1e-5)[0] > 1.0


def test_noise_is_calibrated_around_what_was_already_spent():
    spent = sampled(1.2, 0.01, 500)

    def event(multiplier):
        return spent + sampled(multiplier, 0.01, 500)

    found = calibrate(event, epsilon=2.0, delta=1e-5)
    assert curve(event(found)).epsilon(1e-5) <= 2.0
    assert curve(event(0.9998 * found)).epsilon_bounds(1e-5)[0] > 2.0


@pytest.mark.parametrize("by", ["rdp", "moments"])
def test_a_looser_accountant_keeps_its_own_budget(by):
    budget = {"epsilon": 2.0, "delta": 1e-5, "rate": 0.01}
    multiplier = multiplier_for(**budget, steps=1000, by=by)
    assert curve(sampled(multiplier, 0.01, 1000), by).epsilon(1e-5) <= 2.0
    steps = steps_for(**budget, multiplier=1.0, by=by)
    assert (
        curve(sampled(1.0, 0.01, steps), by).epsilon(1e-5)
        <= 2.0
        < curve(sampled(1.0, 0.01, steps + 1), by).epsilon(1e-5)
    )
    assert steps < steps_for(**budget, multiplier=1.0)


@pytest.mark.slow
def test_replacing_an_example_needs_its_own_multiplier():
    budget = {"epsilon": 2.0, "delta": 1e-5, "rate": 0.05, "steps": 50}
    found = multiplier_for(**budget, adjacency=Adjacency.REPLACE_ONE)

    def spent(multiplier):
        return curve(Gaussian(multiplier, Adjacency.REPLACE_ONE).sampled(0.05) * 50).epsilon(1e-5)

    assert spent(found) <= 2.0 < spent(0.995 * found)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: steps_for(epsilon=0.1, delta=1e-5, rate=0.5, multiplier=0.5),
            "Not even one step fits: with multiplier 0.5 and rate 0.5 it costs epsilon .* the budget is 0.1",
        ),
        (
            lambda: lot_size_for(epsilon=0.01, delta=1e-9, population=10, steps=100, multiplier=0.5),
            "Not even lots of one example fit: 100 steps with multiplier 0.5 cost epsilon",
        ),
        (
            lambda: calibrate(lambda x: Gaussian(x) + EpsilonDelta(2.0), epsilon=1.0, delta=1e-5),
            "No amount of noise brings this event down to epsilon 1:",
        ),
        (
            lambda: calibrate(lambda x: Gaussian(x) + EpsilonDelta(0.1, 1e-3), epsilon=1.0, delta=1e-5),
            "No amount of noise brings this event down to epsilon 1:",
        ),
    ],
    ids=["steps", "lot_size", "calibrate", "infinite"],
)
def test_what_cannot_be_achieved_is_said(ask, said):
    with pytest.raises(NotAchievable, match=said):
        ask()


BUDGET = {"epsilon": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: multiplier_for(epsilon=0.0, delta=1e-5, rate=0.1, steps=10),
            "epsilon must be a finite number above 0",
        ),
        (lambda: multiplier_for(epsilon=1.0, delta=0.0, rate=0.1, steps=10), "delta must be a number strictly between"),
        (lambda: multiplier_for(**BUDGET, rate=1.5, steps=10), "rate must be a number above 0 and at most 1. Got 1.5"),
        (lambda: multiplier_for(**BUDGET, rate=0.1, steps=2.5), "steps must be a whole number of at least 1. Got 2.5"),
        (lambda: multiplier_for(**BUDGET, rate=0.1, steps=0), "steps must be a whole number of at least 1. Got 0"),
        (lambda: steps_for(**BUDGET, rate=0.1, multiplier=-1), "multiplier must be a finite number above 0. Got -1"),
        (
            lambda: steps_for(**BUDGET, rate=math.nan, multiplier=1),
            "rate must be a number above 0 and at most 1. Got nan",
        ),
        (
            lambda: lot_size_for(**BUDGET, population=0, steps=1, multiplier=1),
            "population must be a whole number of at least 1. Got 0",
        ),
        (lambda: calibrate(Gaussian, **BUDGET, guess=-1.0), "guess must be a finite number above 0. Got -1.0"),
    ],
)
def test_bad_input_is_named_with_its_value_and_range(ask, said):
    with pytest.raises(InvalidArgument, match=said):
        ask()


def test_what_is_unproven_cannot_be_calibrated():
    from tacit.accounting import Unproven

    with pytest.raises(NotProven):
        calibrate(lambda x: Gaussian(x) + Unproven("private", "nobody proved it"), **BUDGET)


def test_a_budget_that_protects_nothing_is_not_searched_to_its_last_bit(monkeypatch):
    searched = []
    module = importlib.import_module("tacit.accounting.calibrate")
    monkeypatch.setattr(module, "calibrate", lambda _, **budget: searched.append(budget["epsilon"]) or 1.0)
    multiplier_for(epsilon=1e9, delta=1e-5, rate=0.5, steps=200)
    assert searched == [1e6]
