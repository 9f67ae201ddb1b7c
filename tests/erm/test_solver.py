"""The solver: the minimiser that others find, and a certificate that exact arithmetic confirms."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.optimize import minimize as scipy_minimize
from sklearn.linear_model import LogisticRegression, Ridge

from support.erm_examples import LOSSES, table, targets_for
from tacit.erm import Logistic, Minimiser, Multinomial, Squared, minimise, prepare
from tacit.erm.solver import certified_gradient_norm, reachable_tolerance
from tacit.errors import NotConverged


def problem_of(loss, n=80, seed=0, regularisation=0.02, data_norm=1.0, features=3):
    y = targets_for(loss, n, np.random.default_rng(seed))
    return prepare(table(n, features, seed=seed), y, loss=loss, regularisation=regularisation, data_norm=data_norm)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("regularisation", [1e-5, 1e-2, 1.0])
def test_no_one_finds_a_lower_point(loss, regularisation):
    problem = problem_of(loss, regularisation=regularisation)
    found = minimise(problem, 1e-9)

    def flat(theta):
        value, gradient = problem.value_and_gradient(theta.reshape(problem.shape))
        return value, gradient.ravel()

    peer = scipy_minimize(flat, np.zeros(problem.dimension), jac=True, method="BFGS", options={"gtol": 1e-9})
    assert problem.objective(found.theta) <= peer.fun + 1e-12
    assert found.theta.ravel() == pytest.approx(peer.x, abs=2e-3 * (1 + np.abs(peer.x).max()))


def test_logistic_regression_is_that_of_scikit_learn():
    problem = problem_of(Logistic(), data_norm=5.0)
    peer = LogisticRegression(C=1 / (80 * 0.02), fit_intercept=False, tol=1e-10, max_iter=1000)
    peer.fit(problem.rows, problem.targets[:, 0])
    assert minimise(problem, 1e-11).theta[:, 0] == pytest.approx(peer.coef_[0], abs=1e-6)


def test_a_softmax_is_that_of_scikit_learn():
    problem = problem_of(Multinomial(3), data_norm=5.0)
    peer = LogisticRegression(C=1 / (80 * 0.02), fit_intercept=False, tol=1e-10, max_iter=2000)
    peer.fit(problem.rows, problem.targets[:, 0])
    assert pytest.approx(peer.coef_, abs=1e-6) == minimise(problem, 1e-11).theta.T


def test_squared_loss_gives_ridge_regression():
    problem = problem_of(Squared(10.0), data_norm=5.0)
    peer = Ridge(alpha=80 * 0.02, fit_intercept=False).fit(problem.rows, problem.targets[:, 0])
    assert minimise(problem, 1e-11).theta[:, 0] == pytest.approx(peer.coef_.ravel(), abs=1e-8)


def exact_gradient_norm(problem, theta):
    """The gradient of logistic loss to 50 digits."""
    with mp.workdps(50):
        total = [mpf(0)] * problem.columns
        for row, target in zip(problem.rows.tolist(), problem.targets[:, 0].tolist(), strict=True):
            score = mp.fsum(mpf(a) * mpf(b) for a, b in zip(row, theta[:, 0].tolist(), strict=True))
            slope = -mpf(target) / (1 + mp.exp(mpf(target) * score))
            total = [t + slope * mpf(a) for t, a in zip(total, row, strict=True)]
        means = [t / problem.n + mpf(problem.regularisation) * mpf(c) for t, c in zip(total, theta[:, 0], strict=True)]
        return mp.sqrt(mp.fsum(m**2 for m in means))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("regularisation", [1e-6, 1e-2])
def test_the_certificate_holds_in_exact_arithmetic(seed, regularisation):
    problem = problem_of(Logistic(), n=300, seed=seed, regularisation=regularisation)
    solution = minimise(problem, Minimiser().tolerance_for(problem))
    assert exact_gradient_norm(problem, solution.theta) <= solution.gradient_norm
    tightest = minimise(problem, reachable_tolerance(problem, 1 / regularisation))
    assert exact_gradient_norm(problem, tightest.theta) <= tightest.gradient_norm <= 1e-9


def test_a_certificate_away_from_the_minimum_is_the_gradient():
    problem = problem_of(Logistic(), n=50)
    theta = np.full(problem.shape, 3.0)
    exact = float(exact_gradient_norm(problem, theta))
    assert exact <= certified_gradient_norm(problem, theta) <= exact * (1 + 1e-9)


def test_what_double_precision_reaches_can_always_be_certified():
    """Extreme rows, regularisation and sizes: the public tolerance must never be missed."""
    rng = np.random.default_rng(0)
    for loss in LOSSES:
        for n, features, regularisation, norm in ((3, 1, 1e-7, 50.0), (900, 9, 1e-6, 0.01), (40, 60, 1e3, 5.0)):
            y = targets_for(loss, n, rng)
            x = 30 * rng.normal(size=(n, features))
            problem = prepare(x, y, loss=loss, regularisation=regularisation, data_norm=norm)
            tolerance = reachable_tolerance(problem, problem.lipschitz_near / regularisation)
            assert minimise(problem, tolerance).gradient_norm <= tolerance


def test_the_solver_says_when_it_cannot_come_so_close():
    with pytest.raises(NotConverged, match=r"gradient of norm .*1e-25"):
        minimise(problem_of(Logistic()), 1e-25)


def test_the_same_data_give_the_same_coefficients():
    first, second = (minimise(problem_of(Logistic()), 1e-10).theta for _ in range(2))
    assert np.array_equal(first, second)


def test_many_columns_are_solved_without_building_a_hessian():
    problem = problem_of(Logistic(), n=120, features=700, regularisation=0.1)
    solution = minimise(problem, 1e-9)
    assert solution.gradient_norm <= 1e-9
    assert math.isfinite(problem.objective(solution.theta))
