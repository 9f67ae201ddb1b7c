"""Networks: the torch losses are the numpy ones, and influence of a linear network is that of a linear model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tacit.erm.influence import InfluenceRule, LinearModel, contributions, invert_leading, selective_descent
from tacit.erm.losses import Huber, Logistic, Multinomial, OneVsRest, SmoothHinge, Squared
from tacit.erm.noisy_data import Descent, draw_lot, with_rows
from tacit.erm.noisy_networks import NetworkModel, descend, example_losses, flat_parameters
from tacit.erm.problem import prepare
from tacit.erm.result import PerturbedData
from tacit.errors import InvalidArgument, NotConverged
from tacit.methods import influence_perturbation
from tacit.randomness import Purpose, SeededSource

LOSSES = [
    (Logistic(), np.arange(20) % 2),
    (SmoothHinge(0.3), np.arange(20) % 2),
    (Squared(2.0), np.linspace(-2, 2, 20)),
    (Huber(0.7), np.linspace(-2, 2, 20)),
    (Multinomial(4), np.arange(20) % 4),
    (OneVsRest(Logistic(), 4), np.arange(20) % 4),
]
X = np.random.default_rng(0).normal(size=(20, 3)) / 3


def problem_of(loss, y, regularisation=0.1):
    return prepare(X, y, loss=loss, regularisation=regularisation, data_norm=1.0, intercept=False)


@pytest.mark.parametrize(("loss", "y"), LOSSES, ids=[repr(loss) for loss, _ in LOSSES])
def test_a_loss_is_the_same_in_torch(loss, y):
    scores = 3 * np.random.default_rng(1).normal(size=(20, loss.outputs))
    targets = loss.encode(y)
    values, slopes = loss.evaluate(scores, targets)
    leaf = torch.tensor(scores, requires_grad=True)
    found = example_losses(loss, leaf, torch.tensor(targets))
    assert found.detach().numpy() == pytest.approx(values, rel=1e-12)
    found.sum().backward()
    assert leaf.grad.numpy() == pytest.approx(slopes, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("lot_size", [None, 6])
def test_steps_of_a_linear_network_are_those_of_a_linear_model(lot_size):
    problem = problem_of(Logistic(), np.arange(20) % 2)
    network = nn.Linear(3, 1).double()
    nn.init.zeros_(network.weight)
    nn.init.zeros_(network.bias)
    descent = Descent(steps=9, step_size=0.3, lot_size=lot_size)
    data = PerturbedData(problem.rows, problem.targets[:, 0])
    trained = descend(network, problem, data, problem.targets, descent, SeededSource(2))
    expected = descent.fit(with_rows(problem, problem.rows, intercept=True), SeededSource(2))
    assert flat_parameters(trained) == pytest.approx(expected.ravel(), rel=1e-10)
    assert not network.weight.any()


@pytest.fixture
def linear_pair():
    """The same logistic regression twice: as a linear model, and as a network with one layer."""
    problem = problem_of(Logistic(), np.arange(20) % 2)
    return LinearModel(problem, True), NetworkModel(nn.Linear(3, 1), problem, Descent(400, 1.0), SeededSource(0))


def test_a_linear_network_has_the_gradients_and_the_hessian_of_a_linear_model(linear_pair):
    model, network = linear_pair
    theta = model.pretrain()
    assert network.pretrain() == pytest.approx(theta, abs=1e-8)
    assert contributions(network, theta) == pytest.approx(contributions(model, theta), abs=1e-10)
    for index in range(3):
        assert network.mixed_norm(index, theta) == pytest.approx(model.mixed_norm(index, theta), rel=1e-9)


def test_algorithm_2_is_the_same_for_a_linear_network(linear_pair):
    rule = InfluenceRule(rounds=4, local_steps=3, step_size=0.2)
    runs = [
        selective_descent(model, rule, epsilon=0.5, delta=1e-5, lipschitz=1.0, source=SeededSource(4))
        for model in linear_pair
    ]
    assert runs[0].theta == pytest.approx(runs[1].theta, abs=1e-6)
    assert runs[0].data.x == pytest.approx(runs[1].data.x, abs=1e-6)


def test_influence_of_a_network_by_conjugate_gradients_is_that_by_its_whole_hessian(monkeypatch):
    torch.manual_seed(0)
    problem = problem_of(Multinomial(4), np.arange(20) % 4, regularisation=0.3)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    model = NetworkModel(network, problem, Descent(300, 0.5), SeededSource(0))
    theta = model.pretrain()
    whole = contributions(model, theta)
    monkeypatch.setattr("tacit.erm.influence._BUILT", 0)
    monkeypatch.setattr("tacit.erm.noisy_networks._PIECE", 7)
    assert contributions(model, theta) == pytest.approx(whole, rel=1e-6, abs=1e-10)
    assert next(network.parameters()).dtype == torch.float32


def test_parameters_go_back_where_they_came_from():
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
    model = NetworkModel(network, problem_of(Logistic(), np.arange(20) % 2), Descent(1), SeededSource(0))
    theta = np.random.default_rng(3).normal(size=flat_parameters(network).size)
    assert np.array_equal(flat_parameters(model.with_parameters(theta)), theta)


def test_damping_is_added_to_the_hessian_and_makes_influence_of_any_network_possible(linear_pair):
    vector = np.random.default_rng(1).normal(size=4)
    for model in linear_pair:
        theta = linear_pair[0].pretrain()
        damped = model.inverse_hessian(theta, 0.7)(vector)
        # (H + d) u = v says that H u = v - d u.
        assert model.inverse_hessian(theta)(vector - 0.7 * damped) == pytest.approx(damped, rel=1e-7)
    torch.manual_seed(0)
    bent = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    problem = problem_of(Logistic(), np.arange(20) % 2, regularisation=1e-6)
    model = NetworkModel(bent, problem, Descent(1), SeededSource(0))
    settings = {"epsilon": 0.5, "delta": 1e-5, "lipschitz": 1.0}
    with pytest.raises(NotConverged, match=r"InfluenceRule\(damping=...\)"):
        selective_descent(model, InfluenceRule(), **settings, source=SeededSource(4))
    run = selective_descent(model, InfluenceRule(damping=1.0), **settings, source=SeededSource(4))
    assert np.isfinite(run.theta).all()


def test_a_hessian_factored_by_its_leading_eigenvectors_is_the_whole_one():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    # Some curvature is negative, as for networks; the rest is that of the regulariser.
    matrix = basis @ np.diag([5.0, 2.0, -0.5, 1.0] + [0.01] * 36) @ basis.T
    inverse = invert_leading(lambda v: matrix @ v.ravel(), 40, directions=4, damping=1.0, rest=0.01)
    vector = rng.normal(size=40)
    assert inverse(vector) == pytest.approx(np.linalg.solve(matrix + np.eye(40), vector), rel=1e-3, abs=1e-5)
    with pytest.raises(NotConverged, match="not positive definite"):
        invert_leading(lambda v: matrix @ v.ravel(), 40, directions=4, damping=0.4, rest=0.01)


def test_algorithm_2_of_a_network_is_the_same_with_its_damped_hessian_factored_once():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(60, 4)) / 3, np.arange(60) % 2
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    about = {"loss": Logistic(), "regularisation": 0.05, "epsilon": 0.7, "delta": 1e-5, "data_norm": 1.0, "seed": 0}
    rules = [InfluenceRule(rounds=2, local_steps=3, damping=1.0, directions=directions) for directions in (None, 25)]
    results = [
        influence_perturbation(x, y, **about, mode="paper", module=network, rule=rule, pretraining=Descent(50))
        for rule in rules
    ]
    assert flat_parameters(results[1].module) == pytest.approx(flat_parameters(results[0].module), rel=1e-5, abs=1e-7)
    assert np.array_equal(results[1].curator.for_curator(), results[0].curator.for_curator())


def test_a_linear_model_has_no_use_for_leading_eigenvectors():
    x, y = np.eye(4), np.arange(4) % 2
    about = {"loss": Logistic(), "regularisation": 0.05, "epsilon": 1.0, "delta": 1e-5, "data_norm": 1.0, "seed": 0}
    with pytest.raises(InvalidArgument, match="directions and rows apply to networks"):
        influence_perturbation(x, y, **about, mode="paper", rule=InfluenceRule(directions=3))


def test_curvature_on_some_rows_is_that_of_those_rows():
    problem = problem_of(Logistic(), np.arange(20) % 2)
    torch.manual_seed(1)
    model = NetworkModel(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), problem, Descent(5), SeededSource(0)
    )
    some = draw_lot(20, 8, SeededSource(0).stream(Purpose.LOT, 2**40))
    theta = model.pretrain()
    part = replace(problem, rows=problem.rows[some], targets=problem.targets[some])
    vector = np.random.default_rng(5).normal(size=theta.size)
    expected = NetworkModel(model.module, part, Descent(5), SeededSource(0)).inverse_hessian(theta, 1.0)(vector)
    assert model.inverse_hessian(theta, 1.0, rows=8)(vector) == pytest.approx(expected, rel=1e-9)
