"""Networks on noisy data as estimators: the function's own guarantee, and nothing passed over in silence."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris

from tacit import methods
from tacit.accounting import Adjacency
from tacit.budget import Budget
from tacit.erm import Descent, InfluenceRule, InputRule, Multinomial, Reporting, Squared
from tacit.errors import BudgetExceeded, InvalidArgument, NotProven
from tacit.estimators import PrivateClassifier, PrivateRegressor
from tacit.guarantee import FIXED_SEED, Status
from tacit.ledger import Ledger

X, Y = load_breast_cancer(return_X_y=True)
X = X / X.max(axis=0)
FUNCTIONS = {"input": methods.input_perturbation, "data": methods.data_perturbation}
every_method = pytest.mark.parametrize("method", FUNCTIONS)
every_mode = pytest.mark.parametrize("mode", ["rigorous", "paper"])


def classifier(**settings):
    return PrivateClassifier(**{"method": "input", "data_norm": 2.0, "classes": [0, 1], "steps": 20, **settings})


@every_method
@every_mode
def test_the_guarantee_and_the_network_are_those_of_the_function(method, mode):
    network = torch.nn.Linear(X.shape[1], 2)
    model = classifier(module=network, method=method, mode=mode, regularisation=0.01, random_state=3).fit(X, Y)
    expected = FUNCTIONS[method](
        X,
        Y,
        loss=Multinomial(2),
        regularisation=0.01,
        epsilon=1.0,
        delta=1e-5,
        data_norm=2.0,
        mode=mode,
        module=network,
        training=Descent(20, 0.5, 256),
        seed=3,
    )
    guarantee = model.guarantee_
    assert guarantee.event == expected.guarantee.event
    assert guarantee.local == expected.guarantee.local
    assert guarantee.claim == expected.guarantee.claim
    assert guarantee.unprotected == expected.guarantee.unprotected
    keys = [{one.key for one in each.assumptions} for each in (expected.guarantee, guarantee)]
    assert keys[0] <= keys[1]
    assert model.predict_proba(X)[:, 1] - model.predict_proba(X)[:, 0] == pytest.approx(
        np.tanh((expected.scores(X)[:, 1] - expected.scores(X)[:, 0]) / 2), abs=1e-5
    )


@every_method
def test_the_budget_is_kept_for_examples_replaced(method):
    guarantee = classifier(method=method).fit(X, Y).guarantee_
    assert 0.9 < guarantee.epsilon(1e-5) <= 1.0 < guarantee.local_epsilon(1e-5)
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    assert guarantee.unprotected == guarantee.violations == ()


@every_method
def test_without_a_delta_it_is_pure(method):
    assert 0 < classifier(method=method, delta=None).fit(X, Y).guarantee_.epsilon(1e-12) <= 1.0


@every_method
def test_as_published_it_is_refuted_and_says_what_is_open(method):
    guarantee = classifier(method=method, mode="paper").fit(X, Y).guarantee_
    assert guarantee.status is Status.REFUTED
    assert guarantee.unprotected == ("labels",)
    assert guarantee.epsilon(1e-5) > 1.0


@pytest.mark.slow
def test_with_a_large_budget_three_classes_are_told_apart():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = PrivateClassifier(method="data", epsilon=1e3, data_norm=10.0, steps=400, learning_rate=0.1, random_state=0)
    assert model.fit(x, names).score(x, names) > 0.8


@pytest.mark.slow
@every_mode
def test_numbers_are_learnt_within_their_declared_bound(mode):
    target = 3.0 * X[:, 0] - 1.0
    model = PrivateRegressor(
        method="input", mode=mode, epsilon=1e3, data_norm=5.0, target_bound=3.0, random_state=0
    ).fit(X, target)
    assert model.score(X, target) > 0.5
    expected = methods.input_perturbation(
        X,
        target / 3.0,
        loss=Squared(1.0),
        regularisation=0.0,
        epsilon=1e3,
        delta=1e-5,
        data_norm=5.0,
        mode=mode,
        module=torch.nn.Linear(X.shape[1], 1),
        training=Descent(200, 0.1, 256),
    )
    assert model.guarantee_.event == expected.guarantee.event


def test_influence_is_to_be_had_as_published_only():
    rule = InfluenceRule(rounds=2, local_steps=2, damping=1.0)
    settings = {"method": "influence", "module": torch.nn.Linear(X.shape[1], 2), "options": {"rule": rule}}
    guarantee = classifier(**settings, mode="paper", random_state=0).fit(X, Y).guarantee_
    assert guarantee.status is Status.REFUTED
    assert guarantee.unprotected == ("labels", "examples")
    with pytest.raises(InvalidArgument, match=r"for linear models\. Train networks with"):
        classifier(**settings).fit(X, Y)


def test_a_fixed_seed_repeats_and_is_not_for_release():
    network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    one, other = (classifier(module=network, learning_rate=0.01, random_state=7).fit(X, Y) for _ in range(2))
    assert (one.predict_proba(X) == other.predict_proba(X)).all()
    assert 0.0 < one.predict_proba(X).min() < 0.5
    assert FIXED_SEED in one.guarantee_.violations
    fresh = [classifier(module=network, learning_rate=0.01).fit(X, Y).predict_proba(X) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()


def test_the_network_that_was_given_stays_as_it_was():
    network = torch.nn.Linear(X.shape[1], 2)
    before = network.weight.detach().clone()
    classifier(module=network).fit(X, Y)
    assert torch.equal(network.weight, before)


@pytest.mark.slow
def test_a_missing_norm_is_explained_and_an_estimated_one_is_paid_for():
    with pytest.raises(InvalidArgument, match=r"data_norm is missing\. .*'estimate'"):
        classifier(data_norm=None).fit(X, Y)
    with pytest.raises(InvalidArgument, match="target_bound is missing"):
        PrivateRegressor(method="data", data_norm=1.0).fit(X, Y)
    estimated = classifier(data_norm="estimate", random_state=0).fit(X, Y)
    lengths = np.linalg.norm(X, axis=1)
    assert np.quantile(lengths, 0.5) <= estimated.data_norm_ <= 2 * lengths.max()
    declared = classifier(epsilon=0.9, random_state=0).fit(X, Y).guarantee_.epsilon(1e-5)
    assert declared < estimated.guarantee_.epsilon(1e-5) <= 1.0


def test_features_are_brought_within_their_bound_before_rows_are():
    one = classifier(feature_bound=0.5, random_state=0).fit(X, Y)
    other = classifier(random_state=0).fit(np.clip(2 * X, -1, 1), Y)
    assert (one.predict_proba(X) == other.predict_proba(np.clip(2 * X, -1, 1))).all()


@pytest.mark.slow
def test_a_ledger_is_charged_and_without_room_keeps_the_network_back(tmp_path):
    ledger = Ledger(tmp_path / "patients.ledger")
    ledger.set_budget("patients", Budget(epsilon=1.2, delta=1e-5), adjacency=Adjacency.REPLACE_ONE)
    model = classifier(ledger=ledger, dataset="patients").fit(X, Y)
    assert [charge.event for charge in ledger.account("patients").charges] == [model.guarantee_.event]
    refused = classifier(ledger=ledger, dataset="patients")
    with pytest.raises(BudgetExceeded):
        refused.fit(X, Y)
    assert not hasattr(refused, "module_")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "paper"},
        {"mode": "paper", "options": {"noise": "shared"}},
        {"options": {"reporting": Reporting(label_share=0)}},
    ],
    ids=str,
)
def test_a_ledger_adds_up_nothing_that_leaves_labels_open(settings, tmp_path):
    ledger = Ledger(tmp_path / "patients.ledger")
    classifier(**settings, ledger=ledger, dataset="anyone").fit(X, Y)
    assert ledger.account("anyone").epsilon(1e-5) == math.inf
    ledger.set_budget("patients", Budget(epsilon=1e6, delta=1e-4), adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(NotProven, match=r"labels|same noise"):
        classifier(**settings, ledger=ledger, dataset="patients").fit(X[1:], Y[1:])


def test_options_are_the_arguments_of_the_function():
    local = classifier(options={"reporting": Reporting(shuffled=False)}).fit(X, Y).guarantee_
    assert local.local_epsilon(1e-5) <= 1.0
    constant = classifier(mode="paper", options={"rule": InputRule(constant=4.0)}).fit(X, Y).guarantee_
    assert "c = 4" in constant.claim.source
    with pytest.raises(InvalidArgument, match="input_perturbation takes noise, training, rule, reporting"):
        classifier(options={"seed": 1}).fit(X, Y)
    with pytest.raises(InvalidArgument, match="directional takes variant, objective, grain, rule"):
        PrivateClassifier(method="directional", options={"multiplier": 0.1}).fit(X, Y)
    isotropic = PrivateClassifier(method="directional", options={"variant": "w1"}, mode="paper", steps=2).fit(X, Y)
    assert isotropic.guarantee_.status is Status.REFUTED


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"momentum": 0.9}, "momentum must be 0"),
        ({"population": 600}, "population is for lots"),
        ({"method": "dpsgd"}, "data_norm is for noise on the data"),
        ({"method": "dpsgd", "data_norm": None, "regularisation": 0.1}, "regularisation is for noise on the data"),
        ({"method": "output"}, "is for linear models, as in PrivateLogisticRegression"),
        ({"mode": "brisk"}, "mode must be"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"data_norm": "guess"}, "data_norm must be a positive number or 'estimate'"),
        ({"options": {"reporting": Reporting(debias=True)}}, "debias applies to linear models"),
    ],
    ids=str,
)
def test_what_would_be_passed_over_is_refused(settings, said):
    with pytest.raises(InvalidArgument, match=said):
        classifier(**settings).fit(X, Y)
