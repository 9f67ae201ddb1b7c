"""Membership inference: scores against their definitions, and models that memorise against such that do not."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from tacit.audit import Runs, Shadows, infer_membership, roc, train_shadows
from tacit.audit.membership import score_all
from tacit.errors import InvalidArgument


def some_data(n, seed):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(n, 12)).astype(np.float32)
    # Half of the labels are noise: whoever knows them has seen them.
    targets = np.where(rng.random(n) < 0.5, inputs[:, 0] > 0, rng.random(n) < 0.5).astype(np.int64)
    return inputs, targets


def fitted(data):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(12, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    inputs, targets = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def model():
    return fitted(some_data(200, 0))


def test_scores_are_what_they_are_called(model):
    inputs, targets = some_data(7, 1)
    with torch.no_grad():
        shares = torch.softmax(model(torch.from_numpy(inputs)).double(), dim=1).numpy()
    right = shares[np.arange(7), targets]
    data = (inputs, targets)
    np.testing.assert_allclose(score_all(model, F.cross_entropy, data, "loss"), np.log(right), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        score_all(model, F.cross_entropy, data, "entropy"), -stats.entropy(shares, axis=1), atol=1e-6
    )
    np.testing.assert_allclose(
        score_all(model, F.cross_entropy, data, "confidence"), np.log(right / (1 - right)), rtol=1e-4, atol=1e-6
    )
    lengths = []
    for row, target in zip(torch.from_numpy(inputs), torch.from_numpy(targets), strict=True):
        loss = F.cross_entropy(model(row[None]), target[None])
        lengths.append(
            math.sqrt(sum(float(g.square().sum()) for g in torch.autograd.grad(loss, list(model.parameters()))))
        )
    np.testing.assert_allclose(score_all(model, F.cross_entropy, data, "gradient norm"), -np.array(lengths), rtol=1e-4)


def test_a_model_that_memorises_is_seen_to_by_every_score(model):
    found = infer_membership(model, F.cross_entropy, members=some_data(200, 0), others=some_data(200, 2))
    assert set(found) == {"loss", "entropy", "confidence", "gradient norm"}
    assert found["loss"].area.low > 0.6
    assert found["gradient norm"].area.low > 0.6
    assert all(one.found_at[0.01].low <= one.found_at[0.01].value for one in found.values())


def test_a_model_that_has_seen_neither_shows_nothing(model):
    found = infer_membership(model, F.cross_entropy, members=some_data(300, 3), others=some_data(300, 4))
    assert all(one.area.low < 0.5 < one.area.high for one in found.values())


def test_a_regression_has_two_scores():
    model = torch.nn.Sequential(torch.nn.Linear(12, 1), torch.nn.Flatten(0))
    data = some_data(20, 5)
    found = infer_membership(
        model, F.mse_loss, members=(data[0], data[1].astype(np.float32)), others=(data[0], data[1].astype(np.float32))
    )
    assert set(found) == {"loss", "gradient norm"}


def test_unknown_scores_are_refused(model):
    with pytest.raises(InvalidArgument, match="A score is one of"):
        score_all(model, F.cross_entropy, some_data(3, 0), "luck")


def simulated_shadows(count, hardness, shift, seed):
    """Scores that differ between examples more than membership does; and the target model's own."""
    rng = np.random.default_rng(seed)
    inside = rng.random((count + 1, hardness.size)) < 0.5
    values = hardness + shift * inside + rng.normal(size=inside.shape)
    return Shadows(values[:-1], inside[:-1]), values[-1], inside[-1]


@pytest.mark.parametrize("count", [16, 128])
def test_calibration_by_shadows_finds_what_differences_between_examples_hide(count):
    hardness = np.random.default_rng(0).normal(0, 5, 2000)
    shadows, target, inside = simulated_shadows(count, hardness, 1.5, 1)
    calibrated = shadows.ratio(target)
    plain = roc(target[inside], target[~inside]).area.value
    found = roc(calibrated[inside], calibrated[~inside]).area
    assert plain < 0.62
    # With the means known the best possible area is that of a shift of 1.5.
    assert stats.norm.cdf(1.5 / math.sqrt(2)) - 0.05 < found.value < stats.norm.cdf(1.5 / math.sqrt(2)) + 0.02


def test_an_example_that_is_never_out_gets_no_score():
    shadows = Shadows(np.zeros((4, 2)) + np.arange(4)[:, None], np.array([[True, True], [True, False]] * 2))
    assert shadows.ratio([0.0, 0.0])[0] == 0


def test_shadow_models_are_kept_with_their_coins(tmp_path):
    data = some_data(60, 6)
    runs = Runs(tmp_path, seed=0)
    shadows = train_shadows(fitted, F.cross_entropy, data, count=4, runs=runs)
    assert shadows.scores.shape == (4, 60)
    np.testing.assert_array_equal(shadows.inside.sum(axis=0), 2)
    # Seen examples fit better, on average over all models.
    assert shadows.scores[shadows.inside].mean() > shadows.scores[~shadows.inside].mean() + 0.5

    def never(given):
        raise AssertionError

    again = train_shadows(never, F.cross_entropy, data, count=4, runs=runs)
    np.testing.assert_array_equal(again.scores, shadows.scores)
    with pytest.raises(InvalidArgument, match="another audit"):
        train_shadows(never, F.cross_entropy, some_data(50, 6), count=4, runs=runs)


def test_losses_of_examples_that_are_surely_right_are_told_apart():
    model = torch.nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    inputs = torch.tensor([[10.0], [11.0], [12.0], [13.0]])
    found = score_all(model, F.cross_entropy, (inputs, torch.zeros(4, dtype=torch.long)), "loss")
    assert found == pytest.approx(-np.log1p(np.exp(-2.0 * inputs.numpy().ravel())), rel=1e-6)


def test_shadows_of_another_shape_than_their_coins_are_refused():
    with pytest.raises(InvalidArgument, match="the same shape"):
        Shadows(np.zeros((3, 4)), np.zeros((4, 3), dtype=bool))


def test_the_score_of_a_person_is_the_mean_over_their_rows(model):
    data, unit = some_data(6, 0), np.array(["b", "a", "b", "c", "a", "b"])
    rows, people = score_all(model, F.cross_entropy, data), score_all(model, F.cross_entropy, data, unit=unit)
    np.testing.assert_allclose(people, [rows[unit == name].mean() for name in "abc"])


def test_shadow_models_are_trained_on_whole_people(tmp_path):
    seen, unit = [], np.repeat(np.arange(10), 3)

    def train(examples):
        inputs, targets, whose = examples
        seen.append(whose)
        assert len(inputs) == len(targets) == len(whose)
        return fitted((inputs, targets))

    shadows = train_shadows(train, F.cross_entropy, some_data(30, 0), count=2, runs=Runs(tmp_path, seed=0), unit=unit)
    assert shadows.scores.shape == (2, 10)
    for whose, inside in zip(seen, shadows.inside, strict=True):
        assert whose.tolist() == np.repeat(np.flatnonzero(inside), 3).tolist()
