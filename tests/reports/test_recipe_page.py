"""The page of a run by the automatic recipe: as whole as that of any other, with what prepared it beside the steps."""

import json

import pytest
from safetensors.numpy import load_file

from support.report_folders import Outline
from tacit.accounting import Gaussian, curve
from tacit.recipes.recipe import auto

RECIPE = auto("table", population=119, epsilon=3.0, delta=1e-5)


@pytest.fixture(scope="module")
def folder(recipe_folder):
    return recipe_folder


@pytest.mark.slow
def test_the_guarantee_is_about_preparation_and_steps_together(twin):
    preparation, step = RECIPE.noise(3.0, 1e-5)
    whole = curve(Gaussian(preparation) * 2 + Gaussian(step).sampled(RECIPE.rate) * RECIPE.steps)
    assert twin["guarantee"]["epsilon"]["upper"] == pytest.approx(whole.epsilon(1e-5), rel=1e-6)
    assert twin["preparation"]["multiplier"] == pytest.approx(preparation)
    assert twin["preparation"]["releases"] == 2


@pytest.mark.slow
def test_epsilon_is_followed_from_the_first_release_that_prepares(twin):
    over = twin["epsilon_over_steps"]
    assert over["steps"][0] == 1
    assert over["steps"][-1] == 2 + RECIPE.steps
    alone = curve(Gaussian(RECIPE.preparation_multiplier(3.0, 1e-5))).epsilon(1e-5)
    assert over["upper"][0] == pytest.approx(alone, rel=1e-4)


@pytest.mark.slow
def test_every_part_of_the_page_is_there(folder, twin, html):
    page = Outline(html)
    assert twin["title"] == "dpsgd by recipe on iris"
    assert twin["command"] == "tacit train iris --recipe auto --epsilon 3 --delta 1e-05"
    steps = [step for step, _ in twin["utility"]["by_step"]]
    assert steps[-1] == RECIPE.steps
    assert len(steps) >= 20
    assert twin["utility"]["non_private"]["final"] > 0.8
    assert [one["name"] for one in twin["mechanism"]["stages"]] == ["Clip", "GaussianNoise"]
    weights = load_file(folder / "model.safetensors")["weight"]
    assert twin["mechanism"]["numbers_released_per_step"] == weights.size
    assert twin["data"]["fingerprint"]
    for words in (
        twin["command"],
        "released the mean and then the second moments of the features",
        f"after 2 preparing releases and {RECIPE.steps:,} steps it is at most 3.0000",
        f"for table data: whitening first, at {100 * RECIPE.share:g} % of the squared budget",
        f"Momentum {RECIPE.momentum:g}",
        "The preparation of the features, once, before the first step.",
    ):
        assert words in page.text


@pytest.mark.slow
def test_nothing_private_is_in_the_twin(folder, twin):
    kept = json.loads((folder / "settings.json").read_text())
    assert kept["salt"] not in json.dumps(twin)
    assert "salt" not in twin["settings"]
