"""The model without privacy: as good as the well-regularised optimum, whatever the private run did, and never tested
before it is done."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegressionCV, RidgeCV

import tacit.workflows.baseline
from support.report_folders import run_command
from tacit.datasets import load
from tacit.workflows.baseline import HOW, Plain, baseline

pytestmark = pytest.mark.usefixtures("one_thread")


def flat(part):
    return part[0].reshape(len(part[0]), -1), part[1]


def best_linear_accuracy(data) -> float:
    """By scikit-learn: the penalty is found by cross validation on training examples."""
    found = LogisticRegressionCV(
        Cs=10, cv=5, scoring="neg_log_loss", max_iter=2_000, l1_ratios=(0,), use_legacy_attributes=False
    )
    return float(found.fit(*flat(data.train)).score(*flat(data.test)))


def best_linear_error(data) -> float:
    (inputs, targets), (test, truth) = flat(data.train), flat(data.test)
    found = RidgeCV(np.logspace(-4, 3, 20)).fit(inputs, targets[:, 0])
    return data.unit * float(np.sqrt(np.mean((found.predict(test) - truth[:, 0]) ** 2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iris", "wine", "breast-cancer"])
def test_it_is_as_good_as_the_best_linear_model(name):
    data = load(name)
    found = baseline(data, "linear", seed=0)
    # Two test examples more or less are chance.
    assert found["final"] >= best_linear_accuracy(data) - 2 / len(data.test[1]) - 1e-9
    assert found["interval"][0] < found["final"] < found["interval"][1]


@pytest.mark.slow
def test_it_is_as_good_as_the_best_linear_regression():
    data = load("diabetes")
    exact = best_linear_error(data)
    assert [baseline(data, "linear", seed)["final"] for seed in (0, 1)] == pytest.approx([exact, exact], rel=0.05)


@pytest.mark.slow
def test_a_private_run_of_few_steps_does_not_beat_it(tmp_path):
    for data, better in (("breast-cancer", 1), ("diabetes", -1)):
        folder = tmp_path / data
        run_command(f"train {data} --epsilon 3 --steps 30 --out {folder}")
        run_command(f"report {folder}")
        utility = json.loads((folder / "report.json").read_text())["utility"]
        assert better * utility["non_private"]["final"] > better * utility["final"]
        assert utility["non_private"]["how"] == HOW


@pytest.mark.slow
def test_examples_that_it_is_tested_on_have_no_say_in_it(monkeypatch):
    data = load("iris")
    few = replace(data, train=(data.train[0][:30], data.train[1][:30]))
    wrong = replace(few, test=(few.test[0], (few.test[1] + 1) % 3))
    weights, scores = [], []
    score = tacit.workflows.baseline.score
    monkeypatch.setattr(
        "tacit.workflows.baseline.score",
        lambda model, data: (weights.append(model.state_dict()), score(model, data))[1],
    )
    for one in (few, wrong):
        scores.append(baseline(one, "linear", 0)["final"])
    assert len(weights) == 2
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert scores[0] != scores[1]


@pytest.mark.slow
def test_it_stops_where_examples_that_were_left_out_are_told_best():
    """Labels that are chance: whoever goes on learns them by heart, and is soon worse on the others."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(60, 40), torch.randint(2, (60,))
    assert plain(inputs, labels).find_epochs() <= 3
    assert plain(inputs[:, :2], (inputs[:, 0] > 0).long()).find_epochs() > 20


@pytest.mark.parametrize("count", [0, 1, 3])
def test_hardly_any_examples_are_no_error(count):
    model = plain(torch.ones(count, 2), torch.ones(count).long()).fit()
    assert all(torch.isfinite(one).all() for one in model.parameters())


def plain(inputs, labels) -> Plain:
    return Plain(torch.nn.Linear(inputs.shape[1], 2), torch.nn.functional.cross_entropy, (inputs, labels), 0.05)
