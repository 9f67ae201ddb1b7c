"""Linear scores over cells: the same as over dense rows, for scores, gradients and whole runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tacit.accounting import Gaussian, curve
from tacit.budget import Budget
from tacit.errors import InvalidArgument
from tacit.estimators import PrivateClassifier, load
from tacit.gradients.cells import differentiate_table
from tacit.recipes.recipe import RecipePlan, auto
from tacit.recipes.run import ExampleForm, PreparedInputs, choose_features, prepare, save_model

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(-1, 1, 300), RNG.choice([-1.0, 0.25, 0.5], 300), RNG.integers(0, 2, 300)])
RECIPE = auto("table", population=300_000, epsilon=1.0, delta=1e-5, numbers=2)


def made(classes):
    prepared, rows = prepare(RECIPE, X, choose_features(RECIPE, None, 2), 1e-6, 0)
    inputs, targets = prepared.of_features(rows), torch.from_numpy(RNG.integers(classes, size=300))
    model = prepared.model(rows.shape[1], classes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(np.random.default_rng(1).normal(size=parameter.shape)))
    return prepared, model, inputs, targets


@pytest.mark.parametrize("classes", [2, 4])
def test_gradients_are_those_of_single_backward_passes(classes):
    _, model, inputs, targets = made(classes)
    found = differentiate_table(model, F.cross_entropy, inputs, targets)
    dense, norms = found.dense(), found.norms()
    for example in range(5):
        model.zero_grad()
        F.cross_entropy(model(inputs[example : example + 1]), targets[example : example + 1]).backward()
        for name, parameter in model.named_parameters():
            assert torch.allclose(dense[name][example], parameter.grad, atol=1e-6)
        true = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))
        assert float(norms[example]) == pytest.approx(true, rel=1e-4)
    weights = torch.rand(300)
    sums = found.weighted_sum(weights)
    for name, parts in dense.items():
        assert torch.allclose(sums[name], torch.einsum("b,b...->...", weights, parts), atol=1e-4)


def test_another_loss_is_refused():
    _, model, inputs, targets = made(2)
    with pytest.raises(InvalidArgument, match="cross_entropy"):
        differentiate_table(model, F.nll_loss, inputs, targets)


@pytest.mark.parametrize(("population", "epsilon", "features"), [(32_561, 0.1, "knots"), (32_561, 0.5, "cells")])
def test_cells_need_a_budget_that_outweighs_their_noise(population, epsilon, features):
    assert auto("table", population=population, epsilon=epsilon, delta=1e-5, numbers=5).features == features


def test_without_numbers_there_are_no_cells():
    assert auto("table", population=10**6, epsilon=3.0, delta=1e-5).features == "knots"


def test_the_cost_is_three_releases_and_full_batches_without_amplification():
    plan = RecipePlan.of(RECIPE, Budget(1.0, 1e-5))
    preparation, step = plan.multipliers
    written = Gaussian(preparation) * 3 + Gaussian(step) * RECIPE.steps
    assert curve(plan.event(RECIPE.steps)).epsilon(1e-5) == pytest.approx(curve(written).epsilon(1e-5), rel=1e-9)
    assert 0.999 < curve(written).epsilon(1e-5) <= 1.0
    assert "sampled" not in plan.event(RECIPE.steps).to_json()


def spiky(count):
    """A class that depends on single values of a number, which ramps between ten knots cannot tell."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 200, count)
    return (values / 100 - 1)[:, None], (values % 2).astype(int)


@pytest.mark.slow
def test_single_values_can_be_learnt_and_the_guarantee_holds_all_releases():
    x, y = spiky(30_000)
    model = PrivateClassifier(recipe="auto", epsilon=3.0, delta=1e-5, classes=[0, 1], random_state=0).fit(x, y)
    assert model.recipe_.features == "cells"
    assert model.score(x, y) > 0.95
    assert 2.99 < model.guarantee_.epsilon(1e-5) <= 3
    assert "gradients_given" not in {each.key for each in model.guarantee_.assumptions}


@pytest.mark.slow
def test_a_saved_model_with_cells_predicts_the_same(tmp_path):
    x, y = spiky(3_000)
    model = PrivateClassifier(recipe="auto", epsilon=30.0, delta=1e-5, classes=[0, 1], random_state=0).fit(x, y)
    plan = RecipePlan.of(model.recipe_, Budget(30.0, 1e-5))
    save_model(
        tmp_path / "model.safetensors",
        model.module_,
        model.prepared_,
        model.recipe_,
        ExampleForm(None, 1),
        model.guarantee_,
        multiplier=plan.multipliers[0],
        about={},
    )
    again = load(tmp_path)
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


@pytest.mark.slow
def test_probabilities_of_a_table_are_near_the_frequencies():
    """Labels are drawn with known probabilities; the mean distance to them is far below that of sure answers."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (20_000, 2))
    true = 1 / (1 + np.exp(-3 * x[:, 0]))
    model = PrivateClassifier(recipe="auto", epsilon=3.0, delta=1e-5, classes=[0, 1], random_state=0)
    found = model.fit(x, (rng.uniform(size=len(x)) < true).astype(int)).predict_proba(x)[:, 1]
    assert np.abs(found - true).mean() < 0.1


def test_scores_of_earlier_files_stay_as_they_are():
    """Recipes that name no features were written before scores of tables were halved."""
    assert replace(RECIPE, features=None).sharpness == 1.0
    assert PreparedInputs("table", None, None).sharpness == 1.0
