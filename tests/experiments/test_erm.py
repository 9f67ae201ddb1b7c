"""The comparison of ERM methods: who takes part, how rows are split and settings chosen, and the papers' bounds."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from experiments.erm import bounds, contenders, descent, fitting, local, tables
from experiments.library.targets import find_target
from sklearn.linear_model import LogisticRegression

from tacit.accounting import gdp
from tacit.datasets._columns import Category, Number
from tacit.erm import Logistic
from tacit.methods.registry import list_methods

FOLDER = Path(__file__).parents[2] / "experiments"
PAPERS = pytest.mark.parametrize("paper", ["input_perturbation", "data_perturbation"])


@pytest.fixture(scope="module")
def iris():
    return tables.read(find_target(FOLDER, "input_perturbation").order("quick"), "Iris")


def test_every_method_for_linear_models_takes_part_as_published_and_with_a_proof():
    named = {(each.fit.__name__, each.is_published) for each in contenders.CONTENDERS if hasattr(each.fit, "__name__")}
    # The filter is what influence perturbation is with a proof, and reports are what data perturbation is.
    named |= {("influence_perturbation", False)} if ("individual_descent", False) in named else set()
    named |= {("data_perturbation", False)} if ("input_perturbation", False) in named else set()
    for method in list_methods():
        if method.kind == "linear":
            assert {(method.name, True), (method.name, False)} <= named


def test_every_method_is_tuned_over_four_settings():
    for each in contenders.CONTENDERS:
        assert each.models
        assert all(len(settings) == contenders.CANDIDATES == 4 for settings in each.candidates.values())


@PAPERS
def test_pairs_are_a_published_form_and_one_with_a_proof(paper):
    order = find_target(FOLDER, paper).order("full")
    for pair in order.settings["pairs"]:
        assert contenders.BY_NAME[pair["claimed"]].is_published
        assert "certified" not in pair or not contenders.BY_NAME[pair["certified"]].is_published
    labels = {pair["label"] for pair in order.settings["pairs"]}
    for statement in order.expected["statements"]:
        assert {statement["first"], statement["second"]} <= labels


@PAPERS
def test_every_table_has_its_published_number_of_rows_and_the_paper_its_range(paper):
    settings = find_target(FOLDER, paper).order("full").settings
    assert settings["tables"]["KDDCup99"]["rows"] == 70_000
    assert settings["tables"]["KDDCup99"]["distinct"]
    assert settings["tables"]["Adult"]["complete"]
    assert settings["seeds"] >= 3
    least, most = {"input_perturbation": (0.01, 0.25), "data_perturbation": (0.01, 7.0)}[paper]
    assert (settings["epsilons"][0], settings["epsilons"][-1]) == (least, most)


@pytest.mark.slow
def test_adult_has_the_45222_rows_without_missing_values():
    rows = tables.read(find_target(FOLDER, "input_perturbation").order("full"), "Adult")
    assert len(rows.y) == 45_222
    assert np.bincount(rows.y).tolist() == [34_014, 11_208]


def test_rows_without_a_category_are_left_out():
    book = {"colour": Category.of("red blue"), "size": Number(0, 1), "shape": Category.of("round square")}
    x = np.array([[0.5, 1, 0, 0, 1], [0.5, 0, 0, 0, 1], [0.0, 0, 1, 1, 0], [0.1, 0, 1, 0, 0]])
    assert tables.is_complete(x, book).tolist() == [True, False, True, False]


def test_equal_rows_are_taken_once():
    x = np.array([[1.0, 2], [1, 2], [2, 1], [1, 2], [0, 0]])
    assert tables.first_of_each(x).tolist() == [0, 2, 4]


def test_splits_are_random_fifths_that_never_test_on_tuning_rows():
    x = np.arange(1000.0)[:, None]
    rows = tables.Rows("made", x, np.arange(1000) % 2, 2, 0.1)
    tuning, splits = rows.tuning(), [rows.split(seed) for seed in range(3)]
    scored = set(tuning.test[0].ravel())
    assert len(scored) == 120
    for split in splits:
        trained, tested = set(split.train[0].ravel()), set(split.test[0].ravel())
        assert len(tested) == 200
        assert trained | tested == set(range(1000))
        assert not trained & tested
        assert scored <= trained
    assert all(set(one.test[0].ravel()) != set(other.test[0].ravel()) for one, other in pairwise(splits))
    assert set(tuning.train[0].ravel()) == set(splits[0].train[0].ravel()) - scored


def test_no_row_is_longer_than_one(iris):
    assert np.linalg.norm(iris.x, axis=1).max() <= 1


def test_the_model_without_noise_is_that_of_scikit_learn(iris):
    table = iris.split(0)
    x, y = table.train
    strength = 1 / (len(x) * table.regularisation)
    # Their intercept is not regularised and ours is: a column of ones takes its place.
    theirs = LogisticRegression(C=strength, fit_intercept=False, tol=1e-8, max_iter=10_000)
    theirs.fit(np.column_stack([x, np.ones(len(x))]), y)
    accuracy = theirs.score(np.column_stack([table.test[0], np.ones(len(table.test[0]))]), table.test[1])
    assert fitting.without_noise(iris, "logistic", 1)["accuracy"] == [pytest.approx(accuracy, abs=1e-5)]
    scores = np.column_stack([x, np.ones(len(x))]) @ theirs.coef_.T
    likely = scores[np.arange(len(y)), y] - np.log(np.exp(scores).sum(axis=1))
    objective = -likely.mean() + 0.5 * table.regularisation * np.square(theirs.coef_).sum()
    assert fitting.least(table, "logistic") == pytest.approx(objective, rel=1e-6)


def test_a_fit_at_a_large_epsilon_has_almost_no_gap_and_says_what_is_proven(iris):
    found = fitting.fit_over_seeds(contenders.BY_NAME["output, minimiser"], iris, "logistic", 1e5, 1e-5, 2)
    assert len(found["accuracy"]) == len(found["gap"]) == 2
    assert found["certified"] <= 1e5
    # Tuning scores rows, so it may prefer more regularisation than the objective that the gap is about.
    assert found["chosen"] > 0 or all(0 <= gap < 1e-3 for gap in found["gap"])


def test_a_refusal_is_kept_with_its_reason(iris):
    found = fitting.fit_over_seeds(contenders.BY_NAME["objective, Kifer 2012"], iris, "logistic", 1, 1e-5, 1)
    assert list(found) == ["refused"]
    assert "class" in found["refused"] or "Multinomial" in found["refused"]


def test_two_hops_are_what_group_privacy_says():
    """One Gaussian step on all examples: removing and adding one together shift it twice as far."""
    multiplier, delta = 8.0, 1e-5
    found = descent.replaced_epsilon(multiplier, 1.0, 1, delta)
    hop = gdp.epsilon(delta / (1 + math.exp(found / 2)), 1 / multiplier)
    assert 2 * hop == pytest.approx(found, rel=2e-3)
    assert found >= gdp.epsilon(delta, 2 / multiplier)


@pytest.mark.parametrize("epsilon", [0.005, 0.5])
def test_the_moments_accountant_reaches_every_epsilon_of_the_papers(epsilon):
    multiplier = descent.moments_multiplier(epsilon, 5e-6, 0.014, 100)
    # By hand for whole orders: the log moment of a sampled Gaussian as a binomial sum, plus the classical conversion.
    spent = min(
        (100 * _log_moment(order, 0.014, multiplier) - math.log(5e-6)) / (order - 1) for order in descent.ORDERS[:63]
    )
    if epsilon == 0.5:
        assert spent == pytest.approx(epsilon, rel=2e-2)
    else:
        assert spent > 10 * epsilon


def _log_moment(order, rate, multiplier):
    terms = [
        math.lgamma(order + 1)
        - math.lgamma(k + 1)
        - math.lgamma(order - k + 1)
        + k * math.log(rate)
        + (order - k) * math.log1p(-rate)
        + k * (k - 1) / (2 * multiplier**2)
        for k in range(int(order) + 1)
    ]
    return float(np.logaddexp.reduce(terms))


def test_reports_of_duchi_et_al_are_right_on_average_and_differ_by_exactly_epsilon():
    """Of 40,000 reports each mean is within 5 standard errors: a false alarm of 1 in 500,000 for three coordinates."""
    rng, n, epsilon = np.random.default_rng(0), 40_000, 1.0
    vector = np.array([0.3, -0.4, 0.1])
    reports = local.duchi_reports(np.tile(vector, (n, 1)), 1.0, epsilon, rng)
    length = local.duchi_length(3, 1.0, epsilon)
    assert np.linalg.norm(reports, axis=1) == pytest.approx(np.full(n, length))
    assert np.abs(reports.mean(axis=0) - vector).max() < 5 * length / math.sqrt(3 * n)
    # On a sphere in three dimensions a coordinate is uniform, so its mean on a half sphere is 1/2.
    assert length == pytest.approx(2 * (math.e + 1) / (math.e - 1))
    # The longest vectors: a report is on their side with the odds e^epsilon, to 5 standard errors.
    side = (local.duchi_reports(np.tile([0.0, 0, 1], (n, 1)), 1.0, epsilon, rng)[:, 2] > 0).mean()
    assert side == pytest.approx(math.e / (1 + math.e), abs=5 * 0.5 / math.sqrt(n))


def test_no_two_reports_of_quadratic_terms_are_further_apart_than_their_sensitivity():
    rng, norm = np.random.default_rng(1), math.sqrt(2)
    x = rng.normal(size=(400, 3))
    x *= norm / np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    terms = np.concatenate([y[:, None] * x / 2, np.einsum("ni,nj->nij", x, x).reshape(400, -1) / 8], axis=1)
    apart = np.linalg.norm(terms[:200, None] - terms[None, 200:], axis=2).max()
    assert 0.85 * local.report_sensitivity(norm) < apart <= local.report_sensitivity(norm)


def test_quadratic_terms_without_noise_are_a_newton_step_from_zero():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(500, 3)) / 3, rng.integers(0, 2, 500)
    about = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 100.0, "delta": 1e-5, "seed": 0}
    found = local.fukuchi_2017(x, y, **about, epsilon=1e9)
    rows, signs = np.column_stack([x, np.ones(500)]), np.where(y == 1, 1.0, -1.0)
    hessian = rows.T @ rows / 4 / 500 + 0.1 * np.eye(4)
    theta = np.linalg.solve(hessian, rows.T @ signs / 2 / 500)
    assert np.append(found.coef, found.intercept) == pytest.approx(theta, abs=1e-4)
    private = local.fukuchi_2017(x, y, **about, epsilon=1.0, mode="rigorous")
    assert private.guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    assert private.guarantee.local_epsilon(1e-5) > 20


def test_theorem_2_of_2020_fails_for_small_steps():
    """Its bound is proportional to the step size; a model that has not moved has the excess risk of its start."""
    (first, gap), (second, later) = bounds.small_steps(1e-2), bounds.small_steps(1e-4)
    assert first == pytest.approx(100 * second)
    # From zero to the optimum of log(1 + exp(-t)) + 0.005 t^2, by bisection of its slope.
    low, high = 0.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.01 * middle < 1 / (1 + math.exp(middle)) else (low, middle)
    start = math.log(2) - math.log1p(math.exp(-low)) - 0.005 * low**2
    assert later == pytest.approx(start, rel=0.02)
    assert gap > 1e5 * first
    assert later > 1e7 * second


def test_theorem_3_of_2021_fails_for_single_examples():
    """A step of 1 / smoothness from the optimum 0 ends at +-(1/2) / 0.26, at every n."""
    theta = 0.5 / 0.26
    expected = 0.5 * (math.log1p(math.exp(theta)) + math.log1p(math.exp(-theta))) + 0.005 * theta**2 - math.log(2)
    for n in (1_000, 10_000):
        bound, found = bounds.lone_example(n)
        assert found == pytest.approx(expected, rel=0.05)
        assert bound < 1e-4 * found
    assert bounds.lone_example(10_000)[0] == pytest.approx(bounds.lone_example(1_000)[0] / 100)
    # The same with the number of steps of the theorem.
    bound, found = bounds.lone_example(1_000, 12)
    assert found > 100 * bound


def test_bounds_are_the_printed_formulas():
    c = bounds.Constants(1000, 5, 4, 20, 0.1, 1.0, 0.25, 0.01, 2.0, 0.25, 1e-5)
    log = math.log(1e5)
    # sigma of theorem 1 of a worked example: 0.19203708.
    assert bounds._kang_2020(c) == pytest.approx(0.19203708**2, rel=1e-6)
    theorem = 0.1 * (2 * 0.25 * 2 + 1) * 4 * math.log(1000) ** 2 * log / (1000 * 999 * 0.1 * 0.0625)
    assert bounds.theorem_2(c) == pytest.approx(theorem)
    assert bounds.theorem_2(c, strong=1.0) == pytest.approx(theorem / 10)
    assert bounds.theorem_2_proof(c) == pytest.approx(
        1.0 * 0.1 * 20 + 0.125 * 4 + 0.1 * 2 * 4 * 0.19203708**2 * 20, rel=1e-6
    )
    assert bounds.theorem_3(c, 0.5) == pytest.approx(0.96**20 * 0.5 + 5 * 20 * log / (0.5 * 62_500))
    for row in (*bounds.TABLE_2020, *bounds.TABLE_2021):
        assert row.excess is None or row.excess(c) > 0
        assert row.variance is None or row.variance(c) > 0
