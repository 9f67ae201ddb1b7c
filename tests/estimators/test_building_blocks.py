"""What an estimator must be told, and what its guarantee says of the rest."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from tacit.accounting import Adjacency
from tacit.budget import Budget
from tacit.erm import FullDescent, InfluenceRule, NoisyLots, NoisySnapshots, PermutedDescent
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.estimators import PrivateClassifier, PrivateLinearRegression, PrivateLogisticRegression, PrivateRegressor
from tacit.estimators.building_blocks import estimate_norm
from tacit.guarantee import FIXED_SEED, Status
from tacit.ledger import Ledger

X, Y = load_breast_cancer(return_X_y=True)
X = X / X.max(axis=0)


def keys(model):
    return {one.key for one in model.guarantee_.assumptions}


def logistic(**settings):
    return PrivateLogisticRegression(**{"data_norm": 2.0, "classes": [0, 1], **settings})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["objective", "output", "gradient", "input", "data", "influence"])
def test_every_method_keeps_its_budget(method):
    model = logistic(epsilon=1.0, method=method, random_state=0).fit(X, Y)
    assert 0 < model.guarantee_.epsilon(1e-5) <= 1.0
    assert model.guarantee_.adjacency is Adjacency.REPLACE_ONE
    assert model.coef_.shape == (1, X.shape[1])


def test_a_refuted_method_as_published_says_so():
    guarantee = logistic(method="input", mode="paper").fit(X, Y).guarantee_
    assert guarantee.status is Status.REFUTED
    assert "labels" in guarantee.unprotected
    assert guarantee.epsilon(1e-5) > 1.0


@pytest.mark.parametrize("method", ["objective", "output", "gradient", "input", "data"])
def test_pure_privacy_needs_no_delta(method):
    assert 0 < logistic(delta=None, method=method).fit(X, Y).guarantee_.epsilon(1e-12) <= 1.0


def test_a_probability_too_small_to_be_written_has_a_logarithm():
    model = logistic(epsilon=100.0, random_state=0).fit(X, Y)
    logs = model.predict_log_proba(1e6 * X[:5])
    assert np.all(np.isfinite(logs))
    assert logs.min() < -1e4
    assert model.predict_log_proba(X) == pytest.approx(np.log(model.predict_proba(X)), abs=1e-9)


def test_a_missing_norm_is_explained():
    with pytest.raises(InvalidArgument, match=r"data_norm is missing\. .*'estimate'"):
        PrivateLogisticRegression().fit(X, Y)
    with pytest.raises(InvalidArgument, match="target_bound is missing"):
        PrivateLinearRegression(data_norm=1.0).fit(X, Y)
    with pytest.raises(InvalidArgument, match="target_bound is missing"):
        PrivateRegressor().fit(X, Y)


def test_an_estimated_norm_is_paid_for():
    model = logistic(data_norm="estimate", random_state=0).fit(X, Y)
    lengths = np.linalg.norm(X, axis=1)
    assert np.quantile(lengths, 0.5) <= model.data_norm_ <= 2 * lengths.max()
    assert model.guarantee_.epsilon(1e-5) <= 1.0
    declared = logistic(epsilon=0.9, random_state=0).fit(X, Y)
    assert model.guarantee_.epsilon(1e-5) > declared.guarantee_.epsilon(1e-5)


@pytest.mark.slow
def test_estimates_of_neighbours_keep_their_epsilon():
    # 40 rows, one of which is long in one world: how often the estimate comes out above 1.
    short, long = np.full((40, 1), 0.5), np.full((40, 1), 0.5)
    long[0] = 100.0
    epsilon, runs = 1.0, 4000
    counts = [sum(estimate_norm(rows, epsilon, seed)[0] > 1 for seed in range(runs)) for rows in (short, long)]
    worst = abs(math.log((counts[1] + 1) / (counts[0] + 1)))
    assert worst < epsilon + 4 / math.sqrt(min(counts) + 1)


def test_classes_that_were_not_declared_are_assumed_to_be_public():
    assert "public_classes" in keys(logistic(classes=None).fit(X, Y))
    assert "public_classes" not in keys(logistic().fit(X, Y))
    with pytest.raises(InvalidArgument, match="not declared"):
        logistic(classes=[0, 2]).fit(X, Y)


def test_weights_are_refused_with_a_reason():
    with pytest.raises(InvalidArgument, match="counts private labels"):
        logistic(class_weight="balanced").fit(X, Y)
    with pytest.raises(InvalidArgument, match="count for many"):
        logistic().fit(X, Y, sample_weight=np.ones(len(Y)))
    with pytest.raises(InvalidArgument, match="Got also colour"):
        logistic().fit(X, Y, colour="red")


def test_a_fixed_seed_repeats_and_is_not_for_release():
    one, other = (logistic(random_state=7).fit(X, Y) for _ in range(2))
    assert (one.coef_ == other.coef_).all()
    assert FIXED_SEED in one.guarantee_.violations
    fresh = logistic().fit(X, Y)
    assert (fresh.coef_ != logistic().fit(X, Y).coef_).all()
    assert FIXED_SEED not in fresh.guarantee_.violations


def test_a_ledger_without_room_keeps_the_model_back(tmp_path):
    ledger = Ledger(tmp_path / "patients.ledger")
    ledger.set_budget("patients", Budget(epsilon=1.5, delta=1e-4), adjacency=Adjacency.REPLACE_ONE)
    logistic(ledger=ledger, dataset="patients").fit(X, Y)
    refused = logistic(ledger=ledger, dataset="patients")
    with pytest.raises(BudgetExceeded):
        refused.fit(X, Y)
    assert not hasattr(refused, "coef_")
    with pytest.raises(InvalidArgument, match="by name"):
        logistic(ledger=ledger).fit(X, Y)


@pytest.mark.parametrize("random_state", [np.random.default_rng(0), "seven", 7.5], ids=str)
def test_a_random_state_of_another_kind_is_explained(random_state):
    with pytest.raises(InvalidArgument, match=r"random_state must be None .* int\(rng\.integers\(2\*\*31\)\)"):
        logistic(random_state=random_state).fit(X, Y)


def test_a_random_state_of_numpy_is_drawn_from():
    one, other = (logistic(random_state=np.random.RandomState(5)).fit(X, Y) for _ in range(2))
    assert (one.coef_ == other.coef_).all()


@pytest.mark.parametrize("ledger", [3, {"patients": 1.0}, b"patients"], ids=str)
def test_a_ledger_of_another_kind_is_explained(ledger):
    with pytest.raises(InvalidArgument, match=r"ledger must be a tacit\.ledger\.Ledger or the path of its file\. Got"):
        logistic(ledger=ledger, dataset="patients").fit(X, Y)


@pytest.mark.slow
def test_a_network_says_what_it_counted():
    settings = {"steps": 20, "lot_size": 64, "random_state": 0}
    model = PrivateClassifier(**settings).fit(X, Y)
    assert model.guarantee_.epsilon(1e-5) <= 1.0
    assert "counted_examples" in keys(model)
    declared = PrivateClassifier(**settings, population=600, classes=[0, 1]).fit(X, Y)
    assert "counted_examples" not in keys(declared)


def test_nonsense_is_refused_by_name():
    with pytest.raises(InvalidArgument, match="method must be one of 'objective'"):
        logistic(method="magic").fit(X, Y)
    with pytest.raises(InvalidArgument, match="method must be one of"):
        PrivateClassifier(method="magic").fit(X, Y)
    with pytest.raises(InvalidArgument, match="module must be a torch module"):
        PrivateClassifier(module=lambda features, outputs: "net").fit(X, Y)
    with pytest.raises(InvalidArgument, match="epsilon"):
        logistic(epsilon=-1).fit(X, Y)
    with pytest.raises(InvalidArgument, match="intercept must be True or False"):
        logistic(fit_intercept="no").fit(X, Y)


@pytest.mark.parametrize(
    ("method", "option"),
    [
        ("input", "rule"),
        ("input", "reporting"),
        ("data", "rule"),
        ("data", "reporting"),
        ("data", "training"),
        ("influence", "rule"),
        ("influence", "pretraining"),
    ],
)
@pytest.mark.parametrize("mode", ["rigorous", "paper"])
def test_an_option_of_another_kind_is_refused_by_name(method, option, mode):
    with pytest.raises(InvalidArgument, match=f"{option} must be"):
        logistic(method=method, mode=mode, options={option: 3}).fit(X, Y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"module": "linear"}, "module must be a torch module"),
        ({"module": torch.nn.Identity()}, "module must be a torch module with weights"),
        ({"module": torch.nn.Linear(X.shape[1], 3)}, r"module must give 2 numbers .* Got \(2, 3\)"),
        ({"method": ["dpsgd"]}, "method must be one of"),
        ({"learning_rate": math.nan}, "learning_rate must be"),
        ({"momentum": -0.5}, "momentum must be"),
        ({"momentum": 2}, "momentum must be a number from 0 to 1"),
        ({"module": torch.nn.Linear(7, 2)}, f"module must take rows of {X.shape[1]} features"),
        pytest.param({"module": lambda: None}, "module must be a function of two numbers", id="a function of nothing"),
        ({"shape": (2, 2)}, "shape, is_handwriting, numbers and features tell a recipe what a row is"),
    ],
    ids=str,
)
def test_nonsense_about_a_network_is_refused_by_name(settings, said):
    with pytest.raises(InvalidArgument, match=said):
        PrivateClassifier(steps=2, **settings).fit(X, Y)


def test_a_network_for_numbers_has_one_output():
    with pytest.raises(InvalidArgument, match="module must give 1 numbers"):
        PrivateRegressor(torch.nn.Linear(X.shape[1], 2), steps=2, target_bound=1.0).fit(X, Y)


PUBLISHED = {
    "Wu": ("output", {"training": PermutedDescent(passes=2)}),
    "Zhang": ("output", {"training": FullDescent(20)}),
    "Bassily": ("gradient", {"training": NoisyLots(steps=200, lot_size=1)}),
    "DP-SVRG": ("gradient", {"training": NoisySnapshots(2, 3)}),
    "Kang et al. 2020": ("input", {"noise": "shared"}),
    "Kang et al. 2021": ("influence", {"rule": InfluenceRule(normalise=True)}),
}


@pytest.mark.parametrize("paper", PUBLISHED)
def test_every_published_method_is_within_reach(paper):
    method, options = PUBLISHED[paper]
    model = logistic(method=method, mode="paper", options=options, regularisation=0.01, random_state=0).fit(X, Y)
    assert paper in model.guarantee_.method
    assert model.predict(X).shape == Y.shape


@pytest.mark.parametrize("options", [{"seed": 1}, {"colour": 1}, {"epsilon": 9.0}, ["training"], 3])
def test_options_that_a_method_does_not_have_are_refused(options):
    with pytest.raises(InvalidArgument, match=r"objective_perturbation takes adjacency, solver_share\."):
        logistic(options=options).fit(X, Y)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["input", "data"])
@pytest.mark.parametrize("delta", [1e-5, None])
def test_numbers_are_reported_within_their_declared_bound(method, delta):
    model = PrivateLinearRegression(method=method, delta=delta, data_norm=2.0, target_bound=3.0).fit(X, 1.0 * Y)
    assert 0 < model.guarantee_.epsilon(1e-5) <= 1.0
    assert model.guarantee_.unprotected == ()


def test_a_fit_says_that_choosing_by_scores_is_not_covered():
    assert "nor a choice based on them" in str(logistic().fit(X, Y).guarantee_)


def test_a_method_for_linear_models_is_refused_for_a_network():
    with pytest.raises(InvalidArgument, match="is for linear models, as in PrivateLogisticRegression"):
        PrivateClassifier(method="objective", steps=2).fit(X, Y)
