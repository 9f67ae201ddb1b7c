"""The three methods: proven statements and refuted claims, local and central apart, linear models and networks."""

import json
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from tacit.accounting import Adjacency, Gaussian, ShuffledReports, curve
from tacit.erm.individual import FilteredDescent
from tacit.erm.influence import InfluenceRule
from tacit.erm.losses import Huber, Logistic, Multinomial, OneVsRest, SmoothHinge, Squared
from tacit.erm.noisy_data import DataRule, Descent, InputRule, kang_2020_std, kang_2021_std, one_step_event
from tacit.erm.reports import Reporting
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee, Status
from tacit.methods.data_perturbation import data_perturbation
from tacit.methods.influence_perturbation import influence_perturbation
from tacit.methods.input_perturbation import input_perturbation

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 2)) / 2
Y = (X[:, 0] + 0.1 * RNG.normal(size=N) > 0).astype(int)
BUDGET = {"epsilon": 1.0, "delta": 1e-5, "data_norm": 1.0, "regularisation": 0.01}
LOGISTIC = {**BUDGET, "loss": Logistic()}
ON_DATA = pytest.mark.parametrize("method", [input_perturbation, data_perturbation])
EVERY = pytest.mark.parametrize("method", [input_perturbation, data_perturbation, influence_perturbation])


@ON_DATA
@pytest.mark.parametrize("features", ["gaussian", "k_norm"])
def test_rigorous_reports_keep_the_budget_centrally_and_say_what_they_are_worth_locally(method, features):
    result = method(X, Y, **LOGISTIC, reporting=Reporting(features=features), seed=1)
    guarantee = result.guarantee
    assert 0.99 < guarantee.epsilon(1e-5) <= 1.0
    assert guarantee.event == ShuffledReports(guarantee.local, N)
    assert guarantee.local_epsilon(1e-5) > guarantee.epsilon(1e-5)
    assert guarantee.adjacency is Adjacency.REPLACE_ONE
    assert guarantee.unprotected == ()
    assert guarantee.status is Status.PROVEN
    assert "Each report by itself (local privacy, against whoever sees it): epsilon" in str(guarantee)
    assert result.data.x.shape == X.shape
    assert result.coef.shape == (1, 2)


@EVERY
@pytest.mark.parametrize("mode", ["rigorous", "paper"])
def test_a_guarantee_survives_being_written_down(method, mode):
    guarantee = method(X, Y, **LOGISTIC, mode=mode, seed=1).guarantee
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
    assert guarantee.mode == mode
    local = json.loads(guarantee.to_json())["local"]
    assert (local is None) == (guarantee.local is None)


@EVERY
@pytest.mark.parametrize("mode", ["rigorous", "paper"])
def test_a_fixed_seed_reproduces_and_is_not_for_release(method, mode):
    first, second = (method(X, Y, **LOGISTIC, mode=mode, seed=7) for _ in range(2))
    assert np.array_equal(first.coef, second.coef)
    assert "NOT FOR RELEASE" in str(first.guarantee)
    fresh = method(X, Y, **LOGISTIC, mode=mode)
    assert fresh.guarantee.violations == ()
    assert not np.array_equal(fresh.coef, first.coef)


def test_unshuffled_reports_promise_the_budget_to_their_senders():
    guarantee = input_perturbation(X, Y, **LOGISTIC, reporting=Reporting(shuffled=False), seed=1).guarantee
    assert guarantee.event == guarantee.local
    assert guarantee.local_epsilon(1e-5) <= 1.0


@pytest.mark.slow
def test_public_labels_are_listed_as_unprotected():
    guarantee = input_perturbation(X, Y, **LOGISTIC, reporting=Reporting(label_share=0.0), seed=1).guarantee
    assert guarantee.unprotected == ("labels",)
    assert "replace one row of features" in str(guarantee)
    assert "Not protected: labels." in str(guarantee)


def test_pure_reports_need_no_delta():
    settings = {**LOGISTIC, "delta": None}
    guarantee = input_perturbation(X, Y, **settings, reporting=Reporting(features="k_norm"), seed=1).guarantee
    assert curve(guarantee.event).epsilon(1e-12) <= 1.0
    assert guarantee.event == guarantee.local
    with pytest.raises(InvalidArgument, match="The formulas of Kang et al"):
        input_perturbation(X, Y, **settings, mode="paper")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y", "shape"),
    [
        (SmoothHinge(), Y, (1, 2)),
        (Multinomial(3), np.arange(N) % 3, (3, 2)),
        (OneVsRest(Logistic(), 3), np.arange(N) % 3, (3, 2)),
        (Squared(1.0), X[:, 0], (1, 2)),
        (Huber(), X[:, 0], (1, 2)),
    ],
)
def test_every_loss_can_be_fitted_to_reports(loss, y, shape):
    result = input_perturbation(X, y, **BUDGET, loss=loss, reporting=Reporting(target_bound=1.0), seed=1)
    assert result.coef.shape == shape
    assert np.all(np.isfinite(result.coef))
    assert result.guarantee.epsilon(1e-5) <= 1.0


@pytest.mark.slow
def test_with_little_noise_reports_are_learnt_from():
    x = np.random.default_rng(5).normal(size=(30_000, 2)) / 2
    y = (x[:, 0] > 0).astype(int)
    settings = {**LOGISTIC, "regularisation": 1e-3}
    result = input_perturbation(x, y, **settings, seed=1)
    assert np.mean((result.scores(x)[:, 0] > 0) == y) > 0.9


def test_the_paper_of_2020_claims_one_thing_and_proves_another():
    result = input_perturbation(X, Y, **LOGISTIC, mode="paper", intercept=False, training=Descent(20), seed=1)
    guarantee = result.guarantee
    std = kang_2020_std(n=N, steps=20, epsilon=1.0, delta=1e-5, strong_convexity=0.01)
    assert guarantee.event == guarantee.local == Gaussian(std / 2, Adjacency.REPLACE_ONE)
    assert guarantee.claim.epsilon == 1.0
    assert guarantee.claim.source == "Kang et al. 2020, theorem 1 with c = 1"
    assert guarantee.status is Status.REFUTED
    assert guarantee.unprotected == ("labels",)
    assert result.data is None
    text = str(guarantee)
    assert text.startswith("Proven: epsilon")
    assert "Status of this claim: refuted; the proof leaves out labels" in text


def test_the_condition_decides_the_theorem():
    settings = {**LOGISTIC, "mode": "paper", "intercept": False, "training": Descent(5), "seed": 1}
    guarantee = input_perturbation(X, Y, **settings, rule=InputRule(4.0, "polyak_lojasiewicz")).guarantee
    assert guarantee.claim.source == "Kang et al. 2020, theorem 3 with c = 4"
    std = kang_2020_std(n=N, steps=5, epsilon=1.0, delta=1e-5, constant=4.0)
    assert guarantee.event == Gaussian(std / 2, Adjacency.REPLACE_ONE)


def test_a_network_is_not_strongly_convex_so_theorem_3_applies():
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    settings = {**LOGISTIC, "loss": Multinomial(2), "mode": "paper", "intercept": False, "seed": 1}
    guarantee = input_perturbation(X, Y, **settings, training=Descent(5), module=network).guarantee
    assert "theorem 3" in guarantee.claim.source


def test_one_step_is_accounted_for_exactly():
    result = input_perturbation(X, Y, **LOGISTIC, mode="paper", training=Descent(1), seed=1)
    std = kang_2020_std(n=N, steps=1, epsilon=1.0, delta=1e-5, strong_convexity=0.01, lipschitz=math.sqrt(2))
    assert result.guarantee.event == one_step_event(N, std, 1.0)
    assert result.guarantee.local == Gaussian(std / 2, Adjacency.REPLACE_ONE)


@ON_DATA
def test_shared_noise_proves_nothing(method):
    guarantee = method(X, Y, **LOGISTIC, mode="paper", noise="shared", seed=1).guarantee
    assert math.isinf(guarantee.epsilon(1e-5))
    assert math.isinf(guarantee.local_epsilon(1e-5))
    assert guarantee.unprotected == ("labels", "examples")
    assert guarantee.status is Status.REFUTED
    assert str(guarantee).startswith("Proven: nothing.")


def test_the_paper_of_2021_returns_its_data_with_true_labels():
    training = Descent(steps=50, lot_size=20)
    result = data_perturbation(X, Y, **LOGISTIC, mode="paper", training=training, rule=DataRule(2.0), seed=1)
    std = kang_2021_std(rate=20 / N, steps=50, epsilon=1.0, delta=1e-5, constant=2.0, lipschitz=math.sqrt(2))
    assert result.guarantee.event == Gaussian(std / 2, Adjacency.REPLACE_ONE)
    assert np.array_equal(result.data.y > 0, Y > 0)
    assert (result.data.x - X).std() == pytest.approx(std, rel=0.15)
    assert result.guarantee.unprotected == ("labels",)


def test_influence_as_published_proves_nothing_and_tells_only_the_curator_who_had_no_noise():
    rule = InfluenceRule(rounds=5, local_steps=10)
    result = influence_perturbation(X, Y, **LOGISTIC, mode="paper", rule=rule, seed=1)
    guarantee = result.guarantee
    assert math.isinf(guarantee.epsilon(1e-5))
    assert guarantee.status is Status.REFUTED
    assert guarantee.unprotected == ("labels", "examples")
    unnoised = result.curator.for_curator()
    assert np.array_equal(result.data.x[unnoised], np.clip(X, -9, 9)[unnoised] * _scale(X)[unnoised])
    assert "curator" not in repr(result)
    assert "unnoised" not in guarantee.to_json().lower()
    with pytest.raises(TypeError, match="is not saved"):
        pickle.dumps(result)


def _scale(x):
    norms = np.linalg.norm(x, axis=1)
    return np.where(norms > 1, (1 - 1e-12) / norms, 1.0)[:, None]


def test_influence_in_rigorous_form_is_a_filter():
    training = FilteredDescent(steps=40)
    result = influence_perturbation(X, Y, **LOGISTIC, training=training, seed=1)
    assert result.guarantee.epsilon(1e-5) <= 1.0 + 1e-9
    assert result.guarantee.method == "influence_perturbation"
    assert len(result.curator.for_curator()) == N
    assert str(len(result.curator)) not in str(result.guarantee)
    assert result.data is None


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))


@ON_DATA
@pytest.mark.parametrize("mode", ["rigorous", "paper"])
def test_a_network_is_trained_on_the_same_reports(method, mode):
    module = network()
    before = [one.clone() for one in module.parameters()]
    training = Descent(steps=20, lot_size=50)
    result = method(X, Y, **LOGISTIC, mode=mode, module=module, training=training, seed=1)
    linear = method(X, Y, **LOGISTIC, mode=mode, training=training if mode == "paper" else None, rule=_rule(method))
    assert result.scores(X).shape == (N, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert type(result.guarantee.event) is type(linear.guarantee.event)
    if mode == "rigorous":
        assert result.guarantee.event == linear.guarantee.event
        assert "weights that do not depend on the data" in str(result.guarantee)


def _rule(method):
    return InputRule() if method is input_perturbation else DataRule()


def test_influence_refuses_what_its_mode_does_not_use():
    for unused in ({"rule": InfluenceRule()}, {"pretraining": Descent()}):
        with pytest.raises(InvalidArgument, match=f"Nothing in mode rigorous uses {next(iter(unused))}"):
            influence_perturbation(X, Y, **LOGISTIC, **unused)
    for unused in ({"training": FilteredDescent()}, {"adjacency": Adjacency.ADD_REMOVE}, {"pretraining": Descent()}):
        with pytest.raises(InvalidArgument, match=rf"Nothing in mode paper.* uses {next(iter(unused))}"):
            influence_perturbation(X, Y, **LOGISTIC, mode="paper", **unused)


def test_influence_of_a_network_as_published():
    rule = InfluenceRule(rounds=2, local_steps=3)
    settings = {**BUDGET, "regularisation": 0.1, "loss": Multinomial(2), "rule": rule, "seed": 1}
    result = influence_perturbation(X, Y, **settings, mode="paper", module=network(2), pretraining=Descent(300, 0.5))
    assert math.isinf(result.guarantee.epsilon(1e-5))
    assert result.data.x.shape == X.shape
    with pytest.raises(InvalidArgument, match="rigorous form is for linear"):
        influence_perturbation(X, Y, **settings, module=network(2))


def test_a_network_cannot_be_de_biased():
    with pytest.raises(InvalidArgument, match="debias applies to linear"):
        input_perturbation(X, Y, **LOGISTIC, module=network(), reporting=Reporting(debias=True), seed=1)


@EVERY
def test_a_row_of_any_length_is_clipped_and_what_is_no_number_does_no_harm(method):
    x = X.copy()
    x[0], x[1] = 1e30, math.nan
    for mode in ("rigorous", "paper"):
        result = method(x, Y, **LOGISTIC, mode=mode, seed=1)
        assert np.all(np.isfinite(result.coef))


@EVERY
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"delta": 1}, "delta must be a number strictly between 0 and 1"),
        ({"data_norm": -1}, "data_norm must be a finite number above 0"),
        ({"mode": "fast"}, "mode must be 'rigorous' or 'paper'"),
    ],
)
def test_wrong_arguments_are_refused(method, change, message):
    with pytest.raises(InvalidArgument, match=message):
        method(X, Y, **{**LOGISTIC, **change})


def test_a_loss_without_a_bound_on_its_slopes_needs_a_declared_one_in_paper_form():
    settings = {**BUDGET, "loss": Squared(1.0), "mode": "paper", "seed": 1}
    with pytest.raises(InvalidArgument, match="declare a G for the formula"):
        input_perturbation(X, X[:, 0], **settings)
    assert input_perturbation(X, X[:, 0], **settings, rule=InputRule(lipschitz=1.0)).coef.shape == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["erm", "erm.noisy_training", "audit.fixtures.kang_2020", "audit.fixtures.kang_2021"]
)
def test_what_needs_no_network_loads_without_torch(module):
    program = f"import sys, tacit.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("method", [data_perturbation, influence_perturbation], ids=lambda method: method.__name__)
@pytest.mark.parametrize(
    ("loss", "classes"), [(Logistic(), 2), (SmoothHinge(), 2), (Multinomial(3), 3), (OneVsRest(SmoothHinge(), 3), 3)]
)
def test_data_as_published_come_back_with_the_labels_that_were_given(method, loss, classes):
    x, y = np.eye(4).repeat(6, axis=0), np.arange(24) % classes
    result = method(x, y, loss=loss, regularisation=0.1, epsilon=1.0, delta=1e-5, data_norm=1.0, mode="paper", seed=0)
    assert np.array_equal(result.data.y, y)


@ON_DATA
@pytest.mark.parametrize("reporting", [Reporting(), Reporting(features="k_norm")], ids=lambda one: one.features)
def test_a_budget_that_hides_nothing_leaves_hardly_any_noise(method, reporting):
    result = method(X, Y, **{**LOGISTIC, "epsilon": 1e4}, reporting=reporting, seed=1)
    assert 100 < result.guarantee.epsilon(1e-5) <= 1e4
    assert np.array_equal(np.sort(result.data.y), np.sort(Y))


@ON_DATA
def test_training_is_refused_where_it_would_not_be_used(method):
    with pytest.raises(InvalidArgument, match="training applies to networks"):
        method(X, Y, **LOGISTIC, training=Descent(5))
    for mode in ("rigorous", "paper"):
        with pytest.raises(InvalidArgument, match="training must be one such as Descent"):
            method(X, Y, **LOGISTIC, training="fast", mode=mode)


def test_nonsense_about_influence_is_refused():
    with pytest.raises(InvalidArgument, match="training must be one such as FilteredDescent"):
        influence_perturbation(X, Y, **LOGISTIC, training="fast")
    with pytest.raises(InvalidArgument, match="constant must be"):
        InfluenceRule(constant=-1)
    with pytest.raises(InvalidArgument, match="target_bound must be"):
        Reporting(target_bound=-1.0)


@pytest.mark.parametrize("seed", range(6))
def test_a_correction_that_leads_far_away_is_followed_as_far_as_numbers_go(seed):
    rng = np.random.default_rng(seed)
    x, y = 1e3 * rng.normal(size=(5, 10)), rng.integers(0, 2, 5)
    settings = {"loss": Logistic(), "regularisation": 0.01, "epsilon": 0.1, "delta": 1e-5, "data_norm": 1e4}
    local = Reporting(features="k_norm", shuffled=False, debias=True)
    assert np.isfinite(input_perturbation(x, y, **settings, reporting=local, seed=seed).coef).all()


def test_an_epsilon_whose_exponential_is_no_number_leaves_everyone_alone():
    result = influence_perturbation(X, Y, **{**LOGISTIC, "epsilon": 1e3}, mode="paper", seed=1)
    assert len(result.curator.for_curator()) == N
