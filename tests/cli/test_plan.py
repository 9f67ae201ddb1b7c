"""`tacit plan`: what it says is what the accountant and the recipe say."""

import json
import math

import pytest
from typer.testing import CliRunner

from tacit.accounting import Gaussian, curve
from tacit.cli import app
from tacit.recipes.recipe import auto


def plan(*words):
    return CliRunner().invoke(app, ["plan", *words])


@pytest.mark.slow
def test_every_row_keeps_the_budget_and_the_star_is_the_recipe():
    told = json.loads(plan("--population", "60000", "--epsilon", "1", "--kind", "table", "--json").stdout)
    recipe = auto("table", population=60_000, epsilon=1.0, delta=told["delta"])
    (star,) = [row for row in told["plans"] if row["is_recipe"]]
    assert (star["steps"], star["lot_size"]) == (recipe.steps, recipe.lot_size)
    preparing = recipe.preparation_multiplier(1.0, told["delta"])
    for row in told["plans"]:
        # A mean and second moments are released before, and the budget is that of everything together.
        event = Gaussian(row["multiplier"]).sampled(row["lot_size"] / 60_000) * row["steps"] + Gaussian(preparing) * 2
        assert 0.999 < curve(event).epsilon(told["delta"]) <= 1
        signal = row["lot_size"] / (row["multiplier"] * math.sqrt(3969 * 10))
        assert row["signal"] == pytest.approx(signal)
        assert row["seconds"] > 0
    steps = [row["steps"] for row in told["plans"]]
    assert steps == sorted(steps)


@pytest.mark.slow
def test_the_page_names_budget_and_meaning():
    said = plan("--population", "60000", "--epsilon", "1").output
    assert "epsilon 1 at delta 1.66667e-06 out of 60,000 examples" in said
    assert "500*" in said
    assert "* marks the recipe" in said


def test_what_means_nothing_is_refused():
    ran = plan("--population", "0", "--epsilon", "1")
    assert ran.exit_code != 0
    assert "population" in str(ran.exception)
