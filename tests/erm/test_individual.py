"""Descent under a filter: the budget is kept, who contributes little lasts, and who has left is nobody's business."""

import math

import numpy as np
import pytest

from support.erm_examples import LOSSES, table, targets_for
from tacit.accounting import Adjacency, EpsilonDelta, Gaussian, gdp
from tacit.erm import (
    FilteredDescent,
    Logistic,
    NoisyDescent,
    individual_descent,
    minimise,
    prepare,
)
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED
from tacit.methods.gradient_perturbation import gradient_perturbation

N = 300
X = table(N)
Y = (X[:, 0] > 0).astype(int)
SETTINGS = {"loss": Logistic(), "regularisation": 0.05, "data_norm": 1.0, "delta": 1e-5}
LOTS = FilteredDescent(steps=20, lot_size=100)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
@pytest.mark.parametrize("training", [FilteredDescent(), LOTS], ids=str)
def test_the_budget_is_kept(adjacency, training):
    result = individual_descent(X, Y, **SETTINGS, epsilon=1.0, training=training, adjacency=adjacency, seed=0)
    assert 0.999 < result.guarantee.epsilon(1e-5) <= 1.0
    assert result.guarantee.adjacency is adjacency


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_can_be_filtered(loss):
    y = targets_for(loss, N, np.random.default_rng(0))
    result = individual_descent(X, y, **{**SETTINGS, "loss": loss}, epsilon=1.0, seed=0)
    spent = result.curator
    assert result.coef.shape == (loss.outputs, 3)
    # Half of mu each way, squared.
    assert spent.for_curator().max() <= (gdp.mu(1.0, 1e-5) / 2) ** 2


def test_an_event_per_filter():
    full = individual_descent(X, Y, **SETTINGS, epsilon=1.0, adjacency=Adjacency.ADD_REMOVE, seed=0).event
    assert isinstance(full, Gaussian)
    assert 1 / full.multiplier == pytest.approx(gdp.mu(1.0, 1e-5))
    lots = individual_descent(X, Y, **SETTINGS, epsilon=1.0, training=LOTS, seed=0).event
    assert isinstance(lots, EpsilonDelta)
    assert (lots.epsilon, lots.delta) == pytest.approx((1.0, 1e-5))


def test_examples_that_contribute_little_spend_little():
    """Rows of zero and of a tenth, beside full ones, without an intercept."""
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows[:100] *= 0.1
    rows[100:110] = 0.0
    spent = individual_descent(rows, Y, **SETTINGS, epsilon=1.0, intercept=False, seed=0).curator
    costs = spent.for_curator()
    assert not costs[100:110].any()
    assert costs[:100].max() < 0.03 * np.median(costs[110:])


def test_a_full_share_charges_nobody_out():
    """With a share of 1 nobody can run out, and the noise is that of a descent that charges everyone alike."""
    training = FilteredDescent(steps=30, full_share=1.0)
    filtered = individual_descent(X, Y, **SETTINGS, epsilon=1.0, training=training, seed=0)
    spent = filtered.curator
    plain = gradient_perturbation(X, Y, **SETTINGS, epsilon=1.0, training=NoisyDescent(30), seed=0)
    assert filtered.coef == pytest.approx(plain.coef, rel=1e-6, abs=1e-3)
    assert spent.for_curator().max() < (gdp.mu(1.0, 1e-5) / 2) ** 2


def test_with_little_noise_descent_comes_to_the_minimum():
    problem = prepare(X, Y, loss=Logistic(), regularisation=0.05, data_norm=1.0)
    result = individual_descent(
        X, Y, **SETTINGS, epsilon=1e4, training=FilteredDescent(steps=200, full_share=1.0), seed=0
    )
    found = np.concatenate([result.coef.T, result.intercept[None]])
    assert problem.objective(found) - problem.objective(minimise(problem, 1e-9).theta) < 1e-3


def test_lots_have_noise_for_the_steps_that_full_gradients_last():
    result = individual_descent(X, Y, **SETTINGS, epsilon=1.0, training=LOTS, seed=0)
    spent = result.curator
    costs = spent.for_curator()
    assert np.all(costs > 0)
    assert math.isfinite(result.coef.sum())


def test_what_was_spent_stands_in_no_report():
    result = individual_descent(X, Y, **SETTINGS, epsilon=1.0, seed=0)
    spent = result.curator
    assert "private" in repr(spent)
    shown = str(result.guarantee) + result.guarantee.to_json() + repr(result)
    assert not any(f"{cost:.6g}" in shown for cost in spent.for_curator())


def test_a_seed_is_reproducible_and_not_for_release():
    first, second = (individual_descent(X, Y, **SETTINGS, epsilon=1, seed=3) for _ in range(2))
    assert np.array_equal(first.coef, second.coef)
    assert first.guarantee.violations == (FIXED_SEED,)
    assert individual_descent(X, Y, **SETTINGS, epsilon=1).guarantee.violations == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"full_share": 0.0}, "full_share must be a number above 0 and at most 1"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"lot_size": -1}, "lot_size must be"),
    ],
)
def test_bad_numbers_are_named(change, said):
    with pytest.raises(InvalidArgument, match=said):
        FilteredDescent(**change)


def test_a_filter_needs_a_delta():
    with pytest.raises(InvalidArgument, match="delta must be"):
        individual_descent(X, Y, **{**SETTINGS, "delta": None}, epsilon=1.0)
