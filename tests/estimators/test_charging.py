"""Fits in a ledger add up, and say so: in the guarantee of each, and in the error of one that does not fit."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, cross_val_score

from tacit.accounting import Adjacency
from tacit.budget import Budget
from tacit.errors import BudgetExceeded
from tacit.estimators import PrivateClassifier, PrivateLogisticRegression
from tacit.ledger import Ledger

X, Y = load_breast_cancer(return_X_y=True)
X = X / X.max(axis=0)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "patients.ledger")


def model_on(ledger, **settings):
    return PrivateLogisticRegression(
        **{"epsilon": 0.1, "data_norm": 2.0, "classes": [0, 1], "ledger": ledger, "dataset": "patients", **settings}
    )


def numbers_in(text, name):
    return [float(each) for each in re.findall(rf"{name}[ =]([\d.e-]*\d)", text)]


def test_a_search_adds_up_to_a_finite_epsilon_that_its_guarantee_tells(ledger):
    search = GridSearchCV(model_on(ledger), {"regularisation": [0.01, 0.1]}, cv=2).fit(X, Y)
    (note,) = [each for each in search.best_estimator_.guarantee_.notes if "ledger" in each]
    # Two candidates on two folds, and the chosen one on everything: five fits of (0.1, 1e-5) at most.
    assert "5 releases" in note
    epsilon, delta = numbers_in(note, "epsilon")[0], numbers_in(note, "delta")[0]
    assert 0.3 < epsilon <= 0.5
    assert delta <= 5.1e-5
    assert ledger.account("patients").epsilon(delta) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-4, 1e-5], ids=["room for delta", "no room for delta"])
def test_a_fit_that_does_not_fit_tells_what_was_spent_and_what_would_fit(ledger, delta):
    ledger.set_budget("patients", Budget(1.5, delta), adjacency=Adjacency.REPLACE_ONE)
    model = model_on(ledger, epsilon=1.0, delta=1e-5 * 0.9).fit(X, Y)
    with pytest.raises(BudgetExceeded) as refused:
        clone(model).fit(X, Y)
    said = str(refused.value)
    assert "release 2" in said
    assert "inf" not in said
    # The budget, this fit and the one before; then what would fit, which is tried.
    assert numbers_in(said, "epsilon")[:3] == [1.5, 1.0, 1.0]
    fits = {"epsilon": numbers_in(said, "epsilon")[3], "delta": 1e-5 * 0.9}
    if delta == 1e-5:
        fits["delta"] = numbers_in(said, "delta")[-1]
        assert "Deltas add up" in said
    assert 0.4 < fits["epsilon"] <= 0.5
    assert clone(model).set_params(**fits).fit(X, Y).guarantee_.epsilon(fits["delta"]) <= fits["epsilon"]


def test_a_budget_that_is_spent_allows_no_further_fit(ledger):
    ledger.set_budget("patients", Budget(1.0, 1e-5), adjacency=Adjacency.REPLACE_ONE)
    model = model_on(ledger, epsilon=1.0).fit(X, Y)
    with pytest.raises(BudgetExceeded, match="No further fit"):
        clone(model).set_params(epsilon=0.1, delta=1e-7).fit(X, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_cross_validation_beyond_the_budget_is_charged_up_to_the_last_fit_that_fits(ledger):
    ledger.set_budget("patients", Budget(0.35, 1e-3), adjacency=Adjacency.REPLACE_ONE)
    scores = cross_val_score(model_on(ledger), X, Y, cv=5)
    assert np.isfinite(scores).sum() == len(ledger.account("patients").charges) == 3
    with pytest.raises(BudgetExceeded, match=r"release 4 of 'patients'.*3 of epsilon"):
        model_on(ledger).fit(X, Y)


def test_equal_shares_of_a_budget_pay_for_as_many_fits(ledger):
    ledger.set_budget("patients", Budget(1.0, 1e-5), adjacency=Adjacency.REPLACE_ONE)
    cross_val_score(model_on(ledger, epsilon=0.25, delta=1e-5 / 4), X, Y, cv=4, error_score="raise")
    assert len(ledger.account("patients").charges) == 4


@pytest.mark.slow
def test_a_network_tells_it_too(ledger):
    ledger.set_budget("patients", Budget(1.0, 1e-5))
    settings = {"epsilon": 0.9, "steps": 3, "classes": [0, 1], "population": 569}
    model = PrivateClassifier(ledger=ledger, dataset="patients", **settings).fit(X, Y)
    assert any("1 release of 'patients'" in note for note in model.guarantee_.notes)
    with pytest.raises(BudgetExceeded, match="release 2"):
        clone(model).fit(X, Y)
