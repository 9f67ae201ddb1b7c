"""scikit-learn's own checks, and what its users do with an estimator."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from tacit.estimators import (
    PrivateClassifier,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRegressor,
)

# So little noise that only the contract is left to judge.
HARDLY = {"epsilon": 1e4}
LINEAR = {**HARDLY, "data_norm": 10.0, "regularisation": 1e-3}
NEURAL = {**HARDLY, "lot_size": 1e9, "feature_bound": 10.0}
REPORTS = {**HARDLY, "method": "input", "data_norm": 10.0, "lot_size": 1e9}
SCALED = {"scale": "bounds", "bounds": (-10.0, 10.0)}
FORBIDDEN = {
    "check_class_weight_classifiers": "weights let one example count for many, and balanced ones count private labels"
}
ESTIMATORS = [
    PrivateLogisticRegression(**LINEAR),
    PrivateLinearSVC(**LINEAR),
    PrivateLinearRegression(**LINEAR, target_bound=200.0),
    PrivateClassifier(**NEURAL, steps=20, learning_rate=2.0),
    PrivateRegressor(**NEURAL, steps=60, learning_rate=0.5, clip_norm=10.0, target_bound=4.0),
    PrivateClassifier(**REPORTS, steps=40),
    PrivateRegressor(**REPORTS, steps=300, target_bound=4.0),
    PrivateLogisticRegression(**LINEAR, **SCALED),
    PrivateClassifier(**HARDLY, lot_size=1e9, **SCALED, steps=60, learning_rate=1.0),
]


def forbidden(estimator):
    return FORBIDDEN if hasattr(estimator, "class_weight") else {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=forbidden)
def test_scikit_learn_is_content(estimator, check, monkeypatch):
    # Else it passes over the arrays of other libraries.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


@pytest.fixture(scope="module")
def cancer():
    data = load_breast_cancer(as_frame=True)
    return data.data / data.data.max(), data.target


def unit(rows):
    return np.asarray(rows) / 2.0


def test_a_frame_goes_through_a_pipeline_a_clone_a_pickle_and_a_cross_validation(cancer):
    x, y = cancer
    assert isinstance(x, pd.DataFrame)
    model = PrivateLogisticRegression(epsilon=3.0, data_norm=2.0, classes=[0, 1], random_state=0)
    pipeline = make_pipeline(FunctionTransformer(unit), clone(model)).fit(x, y)
    assert pipeline.score(x, y) > 0.8
    back = pickle.loads(pickle.dumps(pipeline))
    assert (back.predict(x) == pipeline.predict(x)).all()
    assert cross_val_score(model, x, y, cv=3).mean() > 0.8
    assert list(model.fit(x, y).feature_names_in_) == list(x.columns)


@pytest.mark.parametrize("estimator", [PrivateLogisticRegression, PrivateLinearSVC])
def test_more_than_two_classes_are_told_apart(estimator):
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = estimator(epsilon=50.0, data_norm=10.0, classes=np.unique(names), random_state=1).fit(x, names)
    assert model.score(x, names) > 0.8
    assert set(model.predict(x)) <= set(names)


def test_a_number_is_predicted_in_its_own_unit():
    x, y = load_diabetes(return_X_y=True)
    model = PrivateLinearRegression(epsilon=50.0, data_norm=1.5, target_bound=350.0, random_state=1).fit(10 * x, y)
    assert model.score(10 * x, y) > 0.2


def test_every_candidate_of_a_search_is_charged_to_its_ledger(cancer, tmp_path):
    from tacit.ledger import Ledger

    x, y = cancer
    path = tmp_path / "patients.ledger"
    model = PrivateLogisticRegression(epsilon=0.1, data_norm=2.0, classes=[0, 1], ledger=str(path), dataset="patients")
    GridSearchCV(model, {"regularisation": [0.01, 0.1]}, cv=2).fit(x, y)
    ledger = Ledger(path)
    assert len(ledger.account("patients").charges) == 5
    # Two folds, which both candidates see, and the whole: the same people under one name.
    assert [entry.kind for entry in ledger.entries()].count("data") == 3
