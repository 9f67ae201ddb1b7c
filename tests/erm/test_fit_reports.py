"""Fitting reports: de-biasing is right on average, and refused where it is not known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from tacit.erm.losses import Logistic, Multinomial, SmoothHinge, Squared
from tacit.erm.noisy_data import with_rows
from tacit.erm.problem import prepare
from tacit.erm.reports import Labels, Randomizer, fit_reports, keep_probability, label_correction, project_on_trace
from tacit.erm.result import PerturbedData
from tacit.erm.solver import minimise
from tacit.errors import InvalidArgument
from tacit.randomness import SeededSource

RNG = np.random.default_rng(3)
X = RNG.normal(size=(400, 3)) / 3


def problem_of(loss, y, regularisation=0.05, x=X):
    return prepare(x, y, loss=loss, regularisation=regularisation, data_norm=1.0, intercept=False)


@pytest.mark.parametrize(("loss", "choices"), [(Logistic(), 2), (Multinomial(2), 2), (Multinomial(4), 4)])
def test_the_corrected_objective_is_on_average_the_one_without_flips(loss, choices):
    y = RNG.integers(0, choices, 400).astype(float)
    theta = RNG.normal(size=(4, loss.outputs))
    problem = problem_of(loss, y)
    clean = with_rows(problem, problem.rows, intercept=True).objective(theta)
    epsilon = 0.8
    randomizer = Randomizer(1.0, Labels(choices=choices), multiplier=1.0, label_epsilon=epsilon)
    kept = keep_probability(epsilon, choices)
    total = 0.0
    for answer in range(choices):
        given = np.full(400, float(answer))
        noisy = with_rows(replace(problem, targets=loss.encode(given)), problem.rows, intercept=True)
        values = loss.evaluate(noisy.scores(theta), noisy.targets)[0]
        likely = np.where(y == answer, kept, (1 - kept) / (choices - 1))
        total += float(np.mean(likely * (values + corrections(noisy, answer, randomizer, theta))))
    assert total + 0.025 * float(np.sum(theta**2)) == pytest.approx(clean, rel=1e-10)


def corrections(noisy, answer, randomizer, theta):
    """What the linear term adds for each example by itself."""
    found = []
    for row in noisy.rows:
        one = replace(noisy, rows=row[None], targets=noisy.targets[:1])
        found.append(float(np.sum(label_correction(one, np.array([float(answer)]), randomizer) * theta)))
    return np.array(found)


def test_without_noise_reports_give_the_minimiser():
    y = (X[:, 0] + 0.2 * RNG.normal(size=400) > 0).astype(float)
    problem = problem_of(Logistic(), y, regularisation=1e-4)
    data = PerturbedData(problem.rows, y)
    quiet = Randomizer(1.0, Labels(choices=2), multiplier=1e-12, label_epsilon=50.0)
    exact = minimise(with_rows(problem, problem.rows, intercept=True), 1e-10).theta
    for debias in (False, True):
        found = fit_reports(problem, data, quiet, intercept=True, debias=debias)
        assert found == pytest.approx(exact, rel=1e-3, abs=1e-3)


def test_flipped_labels_shrink_a_logistic_fit_and_de_biasing_takes_that_back():
    x = RNG.normal(size=(60_000, 2)) / 3
    y = (RNG.random(60_000) < 1 / (1 + np.exp(-6 * x[:, 0]))).astype(float)
    problem = problem_of(Logistic(), y, 1e-3, x)
    exact = minimise(with_rows(problem, problem.rows, intercept=False), 1e-9).theta
    noisy = Randomizer(1.0, Labels(choices=2), multiplier=1e-9, label_epsilon=1.0)
    data, _ = noisy.draw_reports(problem, SeededSource(2), shuffled=True)
    plain = fit_reports(problem, data, noisy, intercept=False, debias=False)
    corrected = fit_reports(problem, data, noisy, intercept=False, debias=True)
    assert plain[0, 0] < 0.6 * exact[0, 0]
    assert corrected == pytest.approx(exact, abs=0.15)


@pytest.mark.parametrize("settings", [{"multiplier": 0.2}, {"feature_epsilon": 20.0}])
def test_noisy_features_shrink_a_squared_fit_and_de_biasing_takes_that_back(settings):
    x = RNG.normal(size=(60_000, 2)) / 3
    y = np.clip(x @ [0.8, -0.5] + 0.1, -1, 1)
    problem = problem_of(Squared(1.0), y, 1e-4, x)
    exact = minimise(with_rows(problem, problem.rows, intercept=True), 1e-9).theta
    noisy = Randomizer(1.0, Labels(bound=1.0), label_epsilon=4.0, **settings)
    data, _ = noisy.draw_reports(problem, SeededSource(4), shuffled=True)
    plain = fit_reports(problem, data, noisy, intercept=True, debias=False)
    corrected = fit_reports(problem, data, noisy, intercept=True, debias=True)
    assert np.abs(plain - exact).max() > 0.15
    assert corrected == pytest.approx(exact, abs=0.06)


def test_a_loss_without_a_correction_is_refused():
    y = (X[:, 0] > 0).astype(float)
    problem = problem_of(SmoothHinge(), y)
    noisy = Randomizer(1.0, Labels(choices=2), multiplier=1.0, label_epsilon=1.0)
    data, _ = noisy.draw_reports(problem, SeededSource(0), shuffled=True)
    with pytest.raises(InvalidArgument, match="cannot be de-biased: the label does not enter it linearly"):
        fit_reports(problem, data, noisy, intercept=True, debias=True)
    assert fit_reports(problem, data, noisy, intercept=True, debias=False).shape == (4, 1)


def test_de_biased_moments_need_regularisation():
    problem = problem_of(Squared(1.0), X[:, 0], 0.0)
    noisy = Randomizer(1.0, Labels(bound=1.0), multiplier=5.0, label_epsilon=1.0)
    data, _ = noisy.draw_reports(problem, SeededSource(0), shuffled=True)
    with pytest.raises(InvalidArgument, match="needs a regularisation above 0"):
        fit_reports(problem, data, noisy, intercept=True, debias=True)


def test_noisy_features_shrink_a_logistic_fit_and_de_biasing_takes_most_of_that_back():
    x = RNG.normal(size=(60_000, 2)) / 4 + [0.2, 0.0]
    y = (RNG.random(60_000) < 1 / (1 + np.exp(-3 * x[:, 0] + 0.6))).astype(float)
    problem = problem_of(Logistic(), y, 1e-4, x)
    exact = minimise(with_rows(problem, problem.rows, intercept=True), 1e-9).theta
    noisy = Randomizer(1.0, Labels(choices=2), multiplier=0.2, label_epsilon=2.0)
    data, _ = noisy.draw_reports(problem, SeededSource(2), shuffled=True)
    plain = fit_reports(problem, data, noisy, intercept=True, debias=False)
    corrected = fit_reports(problem, data, noisy, intercept=True, debias=True)
    assert plain[0, 0] < 0.3 * exact[0, 0]
    # Regression calibration is right to first order: a tenth is left.
    assert corrected == pytest.approx(exact, abs=0.45)


@pytest.mark.parametrize("values", [(3.0, 1.0, -2.0, 0.5), (0.2, 0.1, -0.3), (2.0, 2.0)])
def test_numbers_within_a_trace_are_the_nearest_ones(values):
    values = np.array(values)
    found = project_on_trace(values, 1.5)
    limits = {"type": "ineq", "fun": lambda z: 1.5 - z.sum()}
    start = np.full(values.size, 0.1)
    slow = minimize(lambda z: np.sum((z - values) ** 2), start, bounds=[(0, None)] * values.size, constraints=limits)
    assert found == pytest.approx(slow.x, abs=1e-5)


def test_labels_without_noise_need_no_correction():
    problem = problem_of(Logistic(), RNG.integers(0, 2, 400))
    randomizer = Randomizer(1.0, Labels(choices=2), multiplier=1.0)
    assert not label_correction(problem, problem.numbers, randomizer).any()
