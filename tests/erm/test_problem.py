"""Problems: rows stay within the declared norm, the intercept included; what is not finite counts nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from support.erm_examples import LOSSES, table, targets_for
from tacit.erm import Logistic, Squared, prepare
from tacit.errors import InvalidArgument


def problem_of(loss, n=20, seed=0, **settings):
    rng = np.random.default_rng(seed)
    settings = {"regularisation": 0.1, "data_norm": 1.0, **settings}
    return prepare(table(n, seed=seed), targets_for(loss, n, rng), loss=loss, **settings)


@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-3, 1.0, 1e8, 1e160]),
    data_norm=st.floats(1e-3, 1e3),
    intercept=st.booleans(),
)
def test_no_row_is_longer_than_declared(seed, scale, data_norm, intercept):
    x = scale * table(10, seed=seed)
    problem = prepare(x, np.ones(10), loss=Logistic(), regularisation=0.1, data_norm=data_norm, intercept=intercept)
    assert np.linalg.norm(problem.rows, axis=1).max() <= data_norm


def test_rows_that_are_short_enough_stay_as_they_are():
    problem = prepare(0.1 * table(), np.ones(60), loss=Logistic(), regularisation=0.1, data_norm=2.0)
    assert np.array_equal(problem.rows[:, :-1], 0.1 * table())
    assert np.all(problem.rows[:, -1] == 1)


def test_clipping_turns_no_score_around():
    """A row is scaled as a whole, the 1 of its intercept too: training and prediction agree on the side."""
    problem = prepare(5 * table(), np.ones(60), loss=Logistic(), regularisation=0.1, data_norm=1.0)
    theta = np.random.default_rng(1).normal(size=(4, 1))
    unclipped = 5 * table() @ theta[:-1] + theta[-1]
    assert np.array_equal(np.sign(problem.scores(theta)), np.sign(unclipped))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_an_example_that_is_not_finite_counts_nothing(loss, bad):
    """Nor does one whose norm overflows: nothing bounds it."""
    rng = np.random.default_rng(0)
    x, y = table(6), targets_for(loss, 6, rng).astype(float)
    x[2, 1] = bad
    problem = prepare(x, y, loss=loss, regularisation=0.1, data_norm=1.0)
    theta = rng.normal(size=problem.shape)
    rest = np.delete(np.arange(6), 2)
    without = prepare(x[rest], y[rest], loss=loss, regularisation=0.1, data_norm=1.0)
    gradient = problem.value_and_gradient(theta)[1] - 0.1 * theta
    expected = without.value_and_gradient(theta)[1] - 0.1 * theta
    assert 6 * gradient == pytest.approx(5 * expected)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_an_example_without_a_target_counts_nothing(loss):
    rng = np.random.default_rng(0)
    y = targets_for(loss, 6, rng).astype(float)
    y[3] = np.nan
    problem = prepare(table(6), y, loss=loss, regularisation=0.1, data_norm=1.0)
    assert not problem.rows[3].any()
    assert np.isfinite(problem.objective(rng.normal(size=problem.shape)))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_gradients_are_differences_of_the_objective(loss):
    problem = problem_of(loss)
    theta = np.random.default_rng(3).normal(size=problem.dimension)
    expected = approx_fprime(theta, lambda t: problem.objective(t.reshape(problem.shape)), 1e-7)
    found = problem.value_and_gradient(theta.reshape(problem.shape))[1].ravel()
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_hessians_are_differences_of_gradients(loss):
    problem = problem_of(loss, n=40)
    rng = np.random.default_rng(3)
    theta, direction = 0.1 * rng.normal(size=problem.shape), rng.normal(size=problem.shape)
    step = 1e-7
    ahead, behind = (problem.value_and_gradient(theta + sign * step * direction)[1] for sign in (1, -1))
    found = problem.hessian_times(problem.scores(theta), direction)
    assert found == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-6)
    if loss.outputs == 1:
        assert problem.hessian(theta) @ direction == pytest.approx(found)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_no_gradient_is_longer_and_no_curvature_larger_than_stated(loss):
    problem = problem_of(loss, data_norm=2.5)
    rng = np.random.default_rng(5)
    for spread in (0.1, 3.0, 100.0):
        slopes = problem.slopes(spread * rng.normal(size=problem.shape))
        assert (np.linalg.norm(slopes, axis=1) * problem.norms).max() <= problem.lipschitz
    if loss.outputs == 1:
        assert np.linalg.eigvalsh(problem.hessian(np.zeros(problem.shape))).max() <= problem.smoothness


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data_norm": 0}, "data_norm must be a finite number above 0"),
        ({"regularisation": -1}, "regularisation must be a finite number of at least 0"),
        ({"loss": "logistic"}, "loss must be one of tacit.erm's losses"),
    ],
)
def test_bad_settings_are_named(change, said):
    settings = {"loss": Squared(1.0), "regularisation": 0.1, "data_norm": 1.0, **change}
    with pytest.raises(InvalidArgument, match=said):
        prepare(table(), np.ones(60), **settings)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (np.ones(3), np.ones(3), "x must be a table of numbers"),
        (np.array([["a"]]), np.ones(1), "x must be a table of numbers"),
        (np.ones((3, 1)), np.ones(2), "the same number of examples, at least one. Got 3 and 2"),
        (np.ones((0, 1)), np.ones(0), "at least one"),
    ],
)
def test_bad_data_are_refused(x, y, said):
    with pytest.raises(InvalidArgument, match=said):
        prepare(x, y, loss=Logistic(), regularisation=0.1, data_norm=1.0)
