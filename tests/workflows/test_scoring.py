"""The score of private rows: its interval and its noise, which whoever trained may say without any cost."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.accounting import Gaussian
from tacit.datasets import Data
from tacit.errors import OutOfOrder
from tacit.ledger import Ledger
from tacit.methods import dpsgd, encoded
from tacit.reports.scores import Score, predict_outputs
from tacit.stages.sampling import Poisson
from tacit.training.plan import Schedule
from tacit.training.run import PrivateRun
from tacit.types import Release
from tacit.workflows.defaults import network_for
from tacit.workflows.scoring import (
    _bound_terms,
    _find_terms,
    held_out_score,
    read_score,
    refuse_unless_charged,
    release_terms,
    score,
)


def data_of(rows: int, share: float, seed: int, classes: int | None = 2) -> Data:
    """Rows of which a model that answers with their first column is right about so many."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, rows)
    answers = np.where(rng.random(rows) < share, truth, 1 - truth)
    inputs = np.stack([1.0 - answers, answers], 1).astype(np.float32)
    if classes is None:
        inputs, truth = inputs[:, :1], (inputs[:, :1] + 0.3 * rng.uniform(-1, 1, (rows, 1))).astype(np.float32)
    pair = inputs, truth
    return Data("t", pair, pair, classes, rows, "", unit=50.0, is_test_private=True)


def scores(share: float, multiplier: float, classes: int | None = 2, count: int = 150) -> list[Score]:
    found = []
    for seed in range(count):
        data = data_of(80, share, seed, classes)
        model = network_for("linear", data)
        with torch.no_grad():
            model[1].weight.copy_(torch.eye(classes or 1))
            model[1].bias.zero_()
        loss = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss
        mechanism, sampling = dpsgd(multiplier=multiplier), Poisson(20, 80)
        run = PrivateRun(model, loss, data=data.train, mechanism=mechanism, sampling=sampling, steps=20)
        found.append(held_out_score(model, data, run, seed))
    return found


@pytest.mark.slow
def test_the_interval_holds_what_the_model_does_on_all_rows_of_the_kind():
    found = scores(share=0.9, multiplier=1.5)
    hits = sum(one.interval[0] <= 0.9 <= one.interval[1] for one in found)
    # 150 at 95 %: four standard deviations are 11.
    assert hits >= 131
    assert np.mean([one.interval[1] - one.interval[0] for one in found]) < 0.25
    assert all(0 < one.noise_std < 0.05 for one in found)


def test_more_noise_is_said_to_be_more_noise():
    small, large = (scores(0.9, multiplier, count=5) for multiplier in (1.0, 4.0))
    assert [one.noise_std for one in large] == pytest.approx([4 * one.noise_std for one in small], rel=0.5)


@pytest.mark.slow
def test_the_error_of_a_regression_has_an_interval_in_its_own_unit():
    found = scores(share=0.5, multiplier=0.5, classes=None)
    exact = 50 * math.sqrt(0.3**2 / 3)
    hits = sum(one.interval[0] <= exact <= one.interval[1] for one in found)
    # Errors are taken to spread as far as their bounds allow, so that it holds more often than in 95 of 100.
    assert hits >= 140
    assert all(one.interval[0] <= one.value <= one.interval[1] for one in found)


def test_public_errors_have_an_interval_by_their_spread():
    data = data_of(400, 0.5, 0, classes=None)
    model = network_for("linear", data)
    with torch.no_grad():
        model[1].weight.fill_(1.0)
        model[1].bias.zero_()
    found = score(model, data)
    squared = (data.test[0] - data.test[1]) ** 2
    half = 1.959964 * squared.std(ddof=1) / math.sqrt(400)
    assert found.value == pytest.approx(50 * math.sqrt(squared.mean()), rel=1e-5)
    expected = [50 * math.sqrt(squared.mean() - half), 50 * math.sqrt(squared.mean() + half)]
    assert found.interval == pytest.approx(expected, rel=1e-4)


def none_held_out(classes: int | None, *, is_tested: bool) -> tuple[torch.nn.Module, Data, PrivateRun]:
    whole = data_of(80, 0.9, 0, classes)
    data = replace(whole, test=tuple(part[:0] for part in whole.test), is_tested=is_tested)
    loss = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss
    model, sampling = network_for("linear", data), Poisson(20, 80)
    run = PrivateRun(model, loss, data=data.train, mechanism=dpsgd(multiplier=1.5), sampling=sampling, steps=20)
    return model, data, run


@pytest.mark.parametrize("classes", [2, None])
def test_whether_a_row_was_held_out_cannot_be_told_from_whether_there_is_a_score(classes):
    model, data, run = none_held_out(classes, is_tested=True)
    found = [held_out_score(model, data, run, seed) for seed in range(5)]
    # Nothing but noise, with all that a score has.
    assert len({one.value for one in found}) > 1
    assert all(math.isfinite(one.value) and one.interval is not None for one in found)
    model, data, run = none_held_out(classes, is_tested=False)
    assert held_out_score(model, data, run, 0) is None


def test_a_classifier_that_diverged_has_no_accuracy_and_gets_no_held_out_row_right():
    data = data_of(80, 0.9, 0)
    data = replace(data, test=(data.test[0], np.zeros(80, np.int64)))
    model = network_for("linear", data)
    with torch.no_grad():
        model[1].weight.fill_(math.nan)
    found = score(model, data)
    assert math.isnan(found.value)
    assert found.as_row() == {"accuracy": None}
    terms = _find_terms(model, data)
    # To torch the first class, here the right one, is the largest of them.
    assert terms.sum(0).tolist() == [0.0, 80.0]


@pytest.mark.parametrize("classes", [2, None])
def test_a_score_is_read_off_a_release_that_says_what_its_lots_cost(classes):
    model, data, run = none_held_out(classes, is_tested=True)
    release = release_terms(model, data, run.plan, seed=0)
    assert isinstance(release, Release)
    assert release.values["terms"].shape == (2,)
    assert release.event == Gaussian(1.5).sampled(20 / 80) * 20 == run.plan.total(20)
    found = read_score(release, data, run.plan)
    assert found == held_out_score(model, data, run, seed=0)
    assert found.event == release.event


def test_a_score_follows_the_schedule_that_training_had():
    data = data_of(80, 0.9, 0)
    model = network_for("linear", data)
    settings = {"mechanism": dpsgd(multiplier=1.5), "sampling": Poisson(20, 80), "steps": 3}
    schedule = Schedule(multiplier=[1.0, 2.0, 2.0], lot_size=[1.0, 1.0, 2.0])
    loss = torch.nn.functional.cross_entropy
    run = PrivateRun(model, loss, data=data.train, schedule=schedule, **settings)
    event = Gaussian(1.5).sampled(0.25) * 1 + Gaussian(3.0).sampled(0.25) * 1 + Gaussian(3.0).sampled(0.5) * 1
    assert release_terms(model, data, run.plan, seed=0).event == event


def test_a_ledger_that_was_charged_less_than_a_score_cost_is_noticed(tmp_path):
    data = data_of(80, 0.9, 0)
    model, sampling = network_for("linear", data), Poisson(20, 80)
    settings = {"data": data.train, "mechanism": dpsgd(multiplier=1.5), "sampling": sampling, "steps": 2}
    loss = torch.nn.functional.cross_entropy
    run = PrivateRun(model, loss, **settings, ledger=Ledger(tmp_path / "t.ledger"), dataset="t")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    found = held_out_score(model, data, run, seed=0)
    refuse_unless_charged(run.booking, found)
    refuse_unless_charged(None, found)
    with pytest.raises(OutOfOrder, match="the ledger has charged"):
        refuse_unless_charged(run.booking, replace(found, event=found.event + found.event))


@pytest.mark.parametrize(
    "one",
    [
        Score("accuracy", 0.5),
        Score("rmse", 3.0, [2.0, 4.0]),
        Score("rmse", 1.0, [0, 2], 0.1),
        Score("accuracy", 0.5, [0, 1], 0.1, Gaussian(2.0).sampled(0.1) * 5),
    ],
)
def test_a_score_is_read_as_it_was_written(one):
    assert Score.of_row(one.as_row()) == one


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(400, 3)).astype(np.float32)
    return Data(
        "t", (inputs, (inputs[:, 0] > 0).astype(np.int64)), (inputs, (inputs[:, 0] > 0).astype(np.int64)), 2, 400, ""
    )


def run_on(data, mechanism, steps=50):
    model = network_for("linear", data)
    loss = torch.nn.functional.cross_entropy if data.classes else torch.nn.functional.mse_loss
    return PrivateRun(model, loss, data=data.train, mechanism=mechanism, sampling=Poisson(100, 400), steps=steps)


def test_the_score_of_held_out_rows_is_close_to_the_exact_one(data):
    run = run_on(data, dpsgd(multiplier=0.5))
    exact = float((predict_outputs(run.model, data.test[0]).argmax(1).numpy() == data.test[1]).mean())
    # Lots and noise of 50 steps err by half a per cent; five of those.
    assert held_out_score(run.model, data, run, seed=0).value == pytest.approx(exact, abs=0.03)


def test_the_noise_of_the_score_is_that_of_the_gradients(data):
    run = run_on(data, dpsgd(multiplier=20.0), steps=4)
    exact = float((predict_outputs(run.model, data.test[0]).argmax(1).numpy() == data.test[1]).mean())
    scores = [held_out_score(run.model, data, run, seed=seed).value for seed in range(200)]
    # The sums over 4 lots of 100 expected rows get noise of 20 each: the share errs by 20 sqrt(4) |(1 - p, -p)| / 400.
    expected = 40 * np.hypot(1 - exact, exact) / 400
    assert np.std(scores) == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("classes", [2, None])
def test_no_row_adds_more_to_the_score_than_its_noise_is_for(data, classes):
    targets = data.test[1] if classes else np.full((400, 1), 1e9, np.float32)
    data = Data("t", data.train, (data.test[0], targets), classes, 400, "")
    terms = _find_terms(network_for("linear", data), data)
    assert terms.norm(dim=1).max() <= _bound_terms(data) * (1 + 1e-9)


def test_noise_of_another_law_scores_nothing(data):
    run = run_on(data, encoded(multiplier=2.0), steps=2)
    assert held_out_score(run.model, data, run, seed=0) is None
