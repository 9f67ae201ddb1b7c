"""The comparison of ERM methods: who takes part, and that models are judged by what they are said to be judged by."""

from pathlib import Path

import numpy as np
import pytest
from experiments.erm import contenders, fitting, tables
from experiments.library.targets import find_target
from sklearn.linear_model import LogisticRegression

from tacit.methods.registry import list_methods

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def iris():
    return tables.read(find_target(FOLDER, "erm").order("quick"), "Iris")


def test_every_method_for_linear_models_takes_part_as_published_and_with_a_proof():
    named = {(each.fit.__name__, each.is_published) for each in contenders.CONTENDERS if hasattr(each.fit, "__name__")}
    # The filter is what influence perturbation is with a proof, and reports are what data perturbation is.
    named |= {("influence_perturbation", False)} if ("individual_descent", False) in named else set()
    named |= {("data_perturbation", False)} if ("input_perturbation", False) in named else set()
    for method in list_methods():
        if method.kind == "linear":
            assert {(method.name, True), (method.name, False)} <= named


@pytest.mark.parametrize("paper", ["input_perturbation", "data_perturbation"])
def test_pairs_are_a_published_form_and_one_with_a_proof(paper):
    order = find_target(FOLDER, paper).order("full")
    for pair in order.settings["pairs"]:
        assert contenders.BY_NAME[pair["claimed"]].is_published
        assert not contenders.BY_NAME[pair["certified"]].is_published
    labels = {pair["label"] for pair in order.settings["pairs"]}
    for statement in order.expected["statements"]:
        assert {statement["first"], statement["second"]} <= labels


def test_no_row_is_longer_than_one(iris):
    for x, _ in (iris.train, iris.test):
        assert np.linalg.norm(x, axis=1).max() <= 1


def test_the_model_without_noise_is_that_of_scikit_learn(iris):
    x, y = iris.train
    strength = 1 / (len(x) * iris.regularisation)
    # Their intercept is not regularised and ours is: a column of ones takes its place.
    theirs = LogisticRegression(C=strength, fit_intercept=False, tol=1e-8, max_iter=10_000)
    theirs.fit(np.column_stack([x, np.ones(len(x))]), y)
    accuracy = theirs.score(np.column_stack([iris.test[0], np.ones(len(iris.test[0]))]), iris.test[1])
    assert fitting.without_noise(iris, "logistic")["accuracy"] == [pytest.approx(accuracy, abs=1e-5)]
    scores = np.column_stack([x, np.ones(len(x))]) @ theirs.coef_.T
    likely = scores[np.arange(len(y)), y] - np.log(np.exp(scores).sum(axis=1))
    objective = -likely.mean() + 0.5 * iris.regularisation * np.square(theirs.coef_).sum()
    assert fitting.least(iris, "logistic") == pytest.approx(objective, rel=1e-6)


def test_a_fit_at_a_large_epsilon_has_almost_no_gap_and_says_what_is_proven(iris):
    found = fitting.fit_over_seeds(contenders.BY_NAME["output, minimiser"], iris, "logistic", 1e5, 1e-5, 2)
    assert len(found["accuracy"]) == len(found["gap"]) == 2
    assert all(0 <= gap < 1e-3 for gap in found["gap"])
    assert found["certified"] <= 1e5
    assert found["adjacency"] == "replace_one"


def test_a_refusal_is_kept_with_its_reason(iris):
    found = fitting.fit_over_seeds(
        contenders.BY_NAME["objective, Kifer 2012 (add/remove)"], iris, "logistic", 1, 1e-5, 1
    )
    assert list(found) == ["refused"]
    assert "class" in found["refused"] or "Multinomial" in found["refused"]
