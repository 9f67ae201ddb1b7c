"""Recipes: features, lots, steps and learning rates that follow from public facts about a data set.

A recipe is a linear model over features of norm 1, trained by clipped noisy gradients with momentum. The rule: spread
the budget over many steps, with a learning rate for which the noise that accumulates in a weight has a standard
deviation of about 1 (docs/explanations/recipes.md says where the numbers come from). A recipe uses no example, so it
costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import Literal

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.calibrate import Budget, calibrate
from tacit.accounting.events import Event, Gaussian
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.ledger import Block, Course
from tacit.methods.dpsgd import dpsgd
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.stages.sampling import FullBatch, Poisson
from tacit.training.charging import make_course
from tacit.training.plan import Plan

Kind = Literal["handwriting", "image", "table", "text"]
Features = Literal["cells", "efficientnet_lite0", "encoder", "knots", "patches", "scattering", "words"]
# Features by networks that were trained on public images: one that is known by name, or one that is given.
ENCODERS: tuple[Features, ...] = ("efficientnet_lite0", "encoder")
Preparation = Literal["none", "centring", "whitening", "whitening and counts", "word weights"]

# The standard deviation of the noise that has accumulated in a weight by the end, for features of norm 1.
GATHERED: dict[Kind, float] = {"handwriting": 1.5, "image": 1.5, "table": 1.5, "text": 0.85}
CLIP_NORMS: dict[Kind, float] = {"handwriting": 0.05, "image": 0.1, "table": 0.3, "text": 0.1}
# Tables with enough budget for cells: two classes share one score.
CELLS_GATHERED, CELLS_CLIP_NORM, _CELLS_STEPS, _CELLS_SHARE = 2.1, 0.198, 200, 0.09
# Up to this population every step takes all rows; beyond, lots save most of the time and cost little noise.
_CELLS_IN_FULL = 500_000
# Below this product of mu and population, the noise on single cells outweighs what they tell.
_CELLS_FROM = 2_200.0
_TABLE_SHARPNESS = 0.5
MOMENTUM = 0.9
# The constant feature of every row: small, so that it takes little of the clip norm.
CONSTANT = 0.3
# More steps cost time and no privacy. Lots are at least so large that the noise multiplier is _MULTIPLIER: below that,
# sampling amplifies less.
_STEPS = 500
# For tables with a small budget, fewer and longer steps gave better accuracy: steps per unit of mu, and the least.
_STEPS_OF_MU = 3_600
_LEAST_STEPS = 100
_MULTIPLIER = 2.0
_LEAST_LOT = 1024.0
# The share of the squared budget (in mu) for the preparation, and its number of releases, all with the same noise: a
# mean, and for whitening second moments.
_SHARES: dict[Kind, float] = {"handwriting": 0.04, "image": 0.04, "table": 0.06, "text": 0.05}
_FEATURES: dict[Kind, Features] = {
    "handwriting": "scattering",
    "image": "scattering",
    "table": "knots",
    "text": "words",
}
_RELEASES = {"none": 0, "centring": 1, "whitening": 2, "whitening and counts": 3, "word weights": 1}


@dataclass(frozen=True)
class Recipe:
    """The settings for data of one kind. `share` of the squared budget (as mu of Gaussian DP) pays for the preparation:
    a mean that is released once, for whitening also second moments, and for the cells of a table their counts.

    `features` are those of the kind in recipes that earlier versions wrote, which do not name them. `numbers` is how
    many columns of a table, the first ones, are split into cells.
    """

    kind: Kind
    preparation: Preparation
    share: float
    steps: int
    lot_size: float
    population: int
    clip_norm: float
    learning_rate: float
    momentum: float
    features: Features | None = None
    numbers: int = 0

    @property
    def layout(self) -> Features:
        """The name of the features."""
        return _FEATURES[self.kind] if self.features is None else self.features

    @property
    def sampling(self) -> Poisson | FullBatch:
        """How lots are drawn. With cells, every example takes part in every step, if they are not very many."""
        if self.layout == "cells" and self.lot_size >= self.population:
            return FullBatch(self.population)
        return Poisson(lot_size=self.lot_size, population=self.population)

    @property
    def sharpness(self) -> float:
        """The factor of scores before they become probabilities; classes stay the same.

        Clipping limits the pull of examples on the wrong side, so the scores of tables are about twice too large: on
        held-out rows of Adult and Bank, at epsilon 0.1 to 3, half of them gave the best likelihood in every cell.
        """
        return _TABLE_SHARPNESS if self.kind == "table" and self.features is not None else 1.0

    @property
    def rate(self) -> float:
        """The probability with which an example enters a lot."""
        return self.lot_size / self.population

    @property
    def releases(self) -> int:
        """The number of releases in the preparation, all with the same noise."""
        return _RELEASES[self.preparation]

    def noise(self, epsilon: float, delta: float) -> tuple[float | None, float]:
        """The multipliers of each preparation release (None if there is none) and of every step, within the budget."""
        first = self.preparation_multiplier(epsilon, delta)
        guess = self.rate * math.sqrt(self.steps) / float(gdp.mu(epsilon, delta)) + 0.5
        return first, calibrate(partial(self.event, first), epsilon=epsilon, delta=delta, guess=guess)

    def preparation_multiplier(self, epsilon: float, delta: float) -> float | None:
        """The noise on each release of the preparation; None if there is none."""
        if self.preparation == "none":
            return None
        return math.sqrt(self.releases / self.share) / float(gdp.mu(epsilon, delta))

    def with_steps(self, steps: int, epsilon: float, delta: float) -> Recipe:
        """The recipe with another number of steps, by the same rule."""
        steps = _validate.count("steps", steps)
        mu = float(gdp.mu(epsilon, delta))
        return replace(_make_recipe(self.kind, self.population, mu, steps, features=self.layout), numbers=self.numbers)

    def event(self, preparation: float | None, step: float) -> Event:
        """The total cost with these multipliers."""
        training = self.sampling.amplify(Gaussian(step)) * self.steps
        return training if preparation is None else self.preparation_event(preparation) + training

    def preparation_event(self, multiplier: float) -> Event:
        """The cost of the preparation: one event per release."""
        return reduce(add, [Gaussian(multiplier)] * self.releases)


def auto(
    kind: Kind,
    *,
    population: int,
    epsilon: float,
    delta: float,
    numbers: int = 0,
    shape: tuple[int, ...] | None = None,
    of_people: bool = False,
    features: Features | None = None,
) -> Recipe:
    """The recipe for this kind of data, population and budget.

    `features` may name a network that was trained on public images; other features follow from the kind.

    `of_people` says that the population counts people with several rows, whose cells cannot be counted.

    `numbers` is how many columns of a table, the first ones, are numbers; without any there are no cells. `shape` is
    that of an image: those in three colours get patches, others scattering coefficients.

    >>> auto("image", population=60_000, epsilon=1.0, delta=1e-5).steps
    500
    """
    if kind not in GATHERED:
        raise InvalidArgument(f"kind must be one of {', '.join(map(repr, GATHERED))}. Got {kind!r}.")
    population = _validate.count("population", population)
    mu = float(gdp.mu(_validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)))
    numbers = _validate.count("numbers", numbers, at_least=0)
    has_cells = kind == "table" and numbers > 0 and not of_people and mu * population >= _CELLS_FROM
    is_scene = kind == "image" and shape is not None and len(shape) == 3 and shape[0] == 3
    if features is not None and (features not in ENCODERS or kind not in ("image", "handwriting")):
        raise InvalidArgument(
            f"features must be one of {', '.join(map(repr, ENCODERS))}, for images. Got {features!r} for {kind} data."
        )
    chosen: Features = features or ("cells" if has_cells else "patches" if is_scene else _FEATURES[kind])
    steps = _CELLS_STEPS if has_cells else _STEPS
    if chosen == "knots":
        steps = max(_LEAST_STEPS, min(_STEPS, round(_STEPS_OF_MU * mu)))
    made = _make_recipe(kind, population, mu, steps, features=chosen)
    return replace(made, numbers=numbers if has_cells else 0)


def _make_recipe(kind: Kind, population: int, mu: float, steps: int, *, features: Features) -> Recipe:
    has_cells = features == "cells"
    usual: Preparation = "centring" if features in ENCODERS else "word weights" if kind == "text" else "whitening"
    clip_norm, gathered = (CELLS_CLIP_NORM, CELLS_GATHERED) if has_cells else (CLIP_NORMS[kind], GATHERED[kind])
    wanted = max(_MULTIPLIER * mu * population / math.sqrt(steps), _LEAST_LOT)
    if has_cells and population <= _CELLS_IN_FULL:
        wanted = population
    return Recipe(
        kind=kind,
        preparation="whitening and counts" if has_cells else usual,
        share=_CELLS_SHARE if has_cells else _SHARES[kind],
        steps=steps,
        lot_size=min(float(round(wanted)), float(population)),
        population=population,
        clip_norm=clip_norm,
        learning_rate=gathered * mu * population * (1 - MOMENTUM) / (clip_norm * steps),
        momentum=MOMENTUM,
        features=features,
    )


@dataclass(frozen=True)
class RecipePlan:
    """All releases of a training run by a recipe, fixed before the first is drawn: the preparation, then the steps.

    The run and the ledger's reservation both follow from it. `preparation` is the noise of each preparation release;
    None if there is none.
    """

    recipe: Recipe
    budget: Budget
    preparation: GaussianNoise | None
    mechanism: Mechanism
    sampling: Poisson | FullBatch

    @staticmethod
    def of(recipe: Recipe, budget: Budget) -> RecipePlan:
        """The plan within the budget."""
        preparation, multiplier = recipe.noise(budget.epsilon, budget.delta)
        mechanism = dpsgd(clip_norm=recipe.clip_norm, multiplier=multiplier)
        if preparation is not None:
            # The published claim is about the steps alone, and the preparation costs too.
            mechanism = replace(mechanism, method=replace(mechanism.method, claims=None))
        noise = None if preparation is None else GaussianNoise(preparation)
        plan = RecipePlan(recipe, budget, noise, mechanism, recipe.sampling)
        calibrated = recipe.event(preparation, multiplier)
        if plan.event(recipe.steps) != calibrated:
            raise OutOfOrder(
                f"The noise of this recipe was calibrated for {calibrated}, but its stages would release "
                f"{plan.event(recipe.steps)}. Nothing was drawn. Make Recipe.event match the stages."
            )
        return plan

    @property
    def multipliers(self) -> tuple[float | None, float]:
        """The multipliers of each preparation release (None if there is none) and of every step."""
        step = self.mechanism.noise.multiplier
        assert step is not None
        return None if self.preparation is None else self.preparation.multiplier, step

    @property
    def before(self) -> tuple[Event, ...]:
        """The cost of each preparation release."""
        return () if self.preparation is None else (self.preparation.event(1),) * self.recipe.releases

    @property
    def steps(self) -> Plan:
        """The plan of the steps. Gaussian noise costs the same in any dimension, so no features are needed."""
        return Plan(self.mechanism, self.sampling, self.recipe.steps, dimension=1, budget=self.budget)

    def event(self, steps: int) -> Event:
        """The cost of the preparation and the first `steps` steps."""
        return reduce(add, (*self.before, self.steps.total(steps)))

    def course(self, *, is_repeatable: bool) -> Course:
        """What a ledger reserves: first the preparation releases, each as a step of its own."""
        prepares = tuple(Block(event, len(list(same))) for event, same in groupby(self.before))
        steps = make_course(self.steps, self.recipe.steps, is_repeatable)
        return Course((*prepares, *steps.blocks), is_repeatable)
