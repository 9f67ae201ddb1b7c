"""The rule for recipes: what it reads, what it keeps, and that its steps gather the noise that it says."""

import inspect
import math

import pytest

from tacit.accounting import Gaussian, curve
from tacit.errors import InvalidArgument
from tacit.recipes.recipe import GATHERED, Recipe, auto

KINDS = ["handwriting", "image", "table", "text"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_preparation_and_steps_together_keep_the_budget(kind, epsilon):
    recipe = auto(kind, population=20_000, epsilon=epsilon, delta=1e-5)
    preparation, step = recipe.noise(epsilon, 1e-5)
    whole = Gaussian(step).sampled(recipe.lot_size / 20_000) * recipe.steps
    if preparation is not None:
        # For whitening, second moments are released beside the mean.
        whole = Gaussian(preparation) * (1 if kind == "text" else 2) + whole
    assert 0.999 * epsilon < curve(whole).epsilon(1e-5) <= epsilon


def test_a_recipe_is_a_function_of_public_facts():
    public = ["kind", "population", "epsilon", "delta", "numbers", "shape", "of_people", "features"]
    assert list(inspect.signature(auto).parameters) == public


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_that_gathers_in_a_weight_is_as_large_as_the_rule_says(kind):
    """Momentum m lets every draw count 1 / (1 - m) times; large lots make the accounting that of Gaussian DP."""
    recipe = auto(kind, population=100_000, epsilon=1.0, delta=1e-5)
    _, multiplier = recipe.noise(1.0, 1e-5)
    each = recipe.learning_rate * multiplier * recipe.clip_norm / recipe.lot_size
    gathered = each * math.sqrt(recipe.steps) / (1 - recipe.momentum)
    assert gathered == pytest.approx(GATHERED[kind], rel=0.2)


def test_lots_grow_with_the_budget_and_never_beyond_the_population():
    sizes = [auto("image", population=60_000, epsilon=epsilon, delta=1e-5).lot_size for epsilon in (0.5, 1, 2, 3, 8)]
    assert sizes == sorted(sizes)
    assert 1024 <= sizes[0] < sizes[-1] < 60_000
    few = auto("table", population=300, epsilon=1.0, delta=1e-5)
    assert few.lot_size == few.population == 300
    assert few.rate == 1


@pytest.mark.parametrize(("epsilon", "steps"), [(0.01, 100), (0.1, 117), (0.5, 500), (8.0, 500)])
def test_tables_take_fewer_steps_where_the_budget_is_small(epsilon, steps):
    assert auto("table", population=30_000, epsilon=epsilon, delta=1e-5).steps == steps
    assert auto("image", population=30_000, epsilon=epsilon, delta=1e-5).steps == 500
    assert auto("text", population=30_000, epsilon=epsilon, delta=1e-5).steps == 500


def test_what_means_nothing_is_refused():
    with pytest.raises(InvalidArgument, match="'image', 'table', 'text'"):
        auto("sound", population=10, epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidArgument, match="population"):
        auto("table", population=0, epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidArgument, match="epsilon"):
        auto("table", population=10, epsilon=-1.0, delta=1e-5)


def test_recipes_are_values():
    assert auto("text", population=500, epsilon=1.0, delta=1e-5) == auto(
        "text", population=500, epsilon=1.0, delta=1e-5
    )
    assert isinstance(auto("text", population=500, epsilon=1.0, delta=1e-5), Recipe)


def test_images_in_three_colours_get_patches_and_grey_ones_scattering():
    facts = {"population": 50_000, "epsilon": 1.0, "delta": 1e-5}
    assert auto("image", shape=(3, 32, 32), **facts).features == "patches"
    assert auto("image", shape=(28, 28), **facts).features == "scattering"
    assert auto("handwriting", shape=(3, 32, 32), **facts).features == "scattering"
