"""Training by a recipe: a private preparation of the features, then a linear model, in one guarantee."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from tacit import methods
from tacit.accounting.events import Event
from tacit.budget import Budget
from tacit.errors import OutOfOrder
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Block, Course
from tacit.recipes.preparing import Prepared, prepare
from tacit.recipes.recipe import Recipe
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise
from tacit.stages.sampling import Poisson
from tacit.training.charging import course_of
from tacit.training.lots import Lot
from tacit.training.plan import Plan
from tacit.training.run import PrivateRun
from tacit.training.spending import NOTHING_FITTED_BEFORE

PREPARED = (
    "Before training, the mean of the features (for whitening also second moments) was released with noise of its own, "
    "which the guarantee includes."
)
AFTERWARDS = Assumption(
    "prepared_by_release",
    "The model's first weights did not depend on the examples, nor did their features, but for the mean (for "
    "whitening also second moments) that was released first.",
)
LOSS = F.cross_entropy


@dataclass(frozen=True)
class RecipePlan:
    """Every release of a training by a recipe, fixed before the first is drawn: those that prepare, then the steps.

    The training is made from it, and so is what a ledger reserves. `preparation` is the noise of each release that
    prepares; None if none does.
    """

    recipe: Recipe
    budget: Budget
    preparation: GaussianNoise | None
    mechanism: Mechanism
    sampling: Poisson

    @staticmethod
    def of(recipe: Recipe, budget: Budget) -> RecipePlan:
        """The plan that keeps the budget."""
        preparation, multiplier = recipe.noise(budget.epsilon, budget.delta)
        plan = RecipePlan(
            recipe,
            budget,
            None if preparation is None else GaussianNoise(preparation),
            methods.dpsgd(clip_norm=recipe.clip_norm, multiplier=multiplier),
            Poisson(lot_size=recipe.lot_size, population=recipe.population),
        )
        calibrated = recipe.event(preparation, multiplier)
        if plan.event(recipe.steps) != calibrated:
            raise OutOfOrder(
                f"The noise of this recipe was found for {calibrated}, and its stages will release "
                f"{plan.event(recipe.steps)}. Nothing was drawn. Make Recipe.event say what the stages do."
            )
        return plan

    @property
    def multipliers(self) -> tuple[float | None, float]:
        """Of each release that prepares (None if none does), and of every step."""
        step = self.mechanism.noise.multiplier
        assert step is not None
        return None if self.preparation is None else self.preparation.multiplier, step

    @property
    def before(self) -> tuple[Event, ...]:
        """What each release that prepares costs."""
        return () if self.preparation is None else (self.preparation.event(1),) * self.recipe.releases

    @property
    def steps(self) -> Plan:
        """The steps. Gaussian noise costs the same in any dimension, so this is known before the features are."""
        return Plan(self.mechanism, self.sampling, self.recipe.steps, dimension=1, budget=self.budget)

    def event(self, steps: int) -> Event:
        """What the preparation and the first `steps` steps cost."""
        return reduce(add, (*self.before, self.steps.total(steps)))

    def course(self, *, is_repeatable: bool) -> Course:
        """What a ledger reserves: the releases that prepare come first, each as a step of its own."""
        prepares = tuple(Block(event, len(list(same))) for event, same in groupby(self.before))
        steps = course_of(self.steps, self.recipe.steps, is_repeatable)
        return Course((*prepares, *steps.blocks), is_repeatable)


class Trained:
    """A model with what prepares its inputs, and the guarantee of both."""

    def __init__(self, model: torch.nn.Module, prepared: Prepared, guarantee: Guarantee) -> None:
        self.model, self.prepared, self.guarantee = model, prepared, guarantee


class RecipeRun:
    """A training by a recipe, after the release that prepares it: its steps, and one guarantee for both."""

    def __init__(self, prepared: Prepared, run: PrivateRun, optimizer: torch.optim.Optimizer) -> None:
        self.prepared, self.run, self.optimizer = prepared, run, optimizer

    def step(self, lot: Lot) -> None:
        """One noisy gradient, and one step along it."""
        self.run.backward(lot)
        self.optimizer.step()

    def finished(self) -> Trained:
        """The model, after every step that is left."""
        for lot in self.run:
            self.step(lot)
        return Trained(self.run.model.eval(), self.prepared, self.guarantee())

    def guarantee(self) -> Guarantee:
        """What is proven about the preparation and all steps so far, read off the events that they emitted."""
        proven = self.run.guarantee()
        if self.prepared.event is None:
            return proven
        assumed = tuple(AFTERWARDS if each.key == NOTHING_FITTED_BEFORE.key else each for each in proven.assumptions)
        event = self.prepared.event + proven.event
        return replace(proven, event=event, claim=None, assumptions=assumed, notes=(*proven.notes, PREPARED))


def begin_by_recipe(
    plan: RecipePlan,
    x: Any,
    labels: NDArray[np.int64],
    *,
    features: Any,
    classes: int,
    seed: int | None,
    shape: tuple[int, ...] | None = None,
) -> RecipeRun:
    """Release what prepares; the steps are left to be made, and both are within the plan's budget.

    Without `features`, `x` holds them already; for images `shape` then says of what pictures.
    """
    prepared, rows = prepare(plan.recipe, x, features, plan.multipliers[0], seed, shape=shape)
    _refuse_unless_planned("The preparation", plan.before, prepared.event)
    model = prepared.model(rows.shape[1], classes)
    run = PrivateRun(
        model,
        LOSS,
        data=(prepared.of_features(rows), torch.from_numpy(labels)),
        mechanism=plan.mechanism,
        sampling=plan.sampling,
        steps=plan.recipe.steps,
        budget=plan.budget,
        seed=seed,
    )
    _refuse_unless_planned("Training", (plan.steps.total(run.steps),), run.plan.total(run.steps))
    return RecipeRun(prepared, run, optimizer_of(plan.recipe, model))


def _refuse_unless_planned(what: str, planned: tuple[Event, ...], event: Event | None) -> None:
    """Noise was found, and a ledger may have reserved, for what all of it was to cost together."""
    if event != (reduce(add, planned) if planned else None):
        raise OutOfOrder(
            f"{what} was planned to cost {' + '.join(map(str, planned)) or 'nothing'}, and its noise says {event}. "
            "Nothing was handed out. Make Noise.event return what Noise.add draws."
        )


def optimizer_of(recipe: Recipe, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Gradient steps with the momentum of the recipe."""
    return torch.optim.SGD(model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
