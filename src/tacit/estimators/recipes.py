"""Fitting by a recipe: features, a private preparation and a linear model, in one guarantee."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from torch.nn import functional as F

from tacit import arguments, methods
from tacit.accounting.events import Event
from tacit.charging import course_of
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.estimators.declared import charge, classes_of, completed, counted, seed_of
from tacit.estimators.prepared import Prepared, features_for, kind_of, prepare
from tacit.features.rows import sparse_rows
from tacit.guarantee import Assumption, Guarantee
from tacit.ledger import Block, Budget, Course
from tacit.lots import Lot
from tacit.mechanism import Mechanism
from tacit.noise import GaussianNoise
from tacit.plan import Plan
from tacit.recipe import Recipe, auto
from tacit.run import PrivateRun
from tacit.sampling import Poisson
from tacit.spending import NOTHING_FITTED_BEFORE

AUTO = "auto"
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
# Examples that are scored at once.
_PIECE = 4096


def fit_by_recipe(estimator: Any, x: Any, y: Any) -> None:
    """Choose, prepare, train; the ledger is charged before anything is handed out."""
    if estimator.module is not None:
        raise InvalidArgument("A recipe brings its own linear model. Leave module out, or recipe.")
    x, y = _indexable(x), np.asarray(y)
    check_classification_targets(y)
    estimator.classes_, assumptions = classes_of(estimator.classes, y)
    numbers = np.searchsorted(estimator.classes_, y)
    recipe, features, more = _chosen(estimator, x, len(y))
    begun = begin_by_recipe(
        RecipePlan.of(recipe, Budget(estimator.epsilon, estimator.delta)),
        x,
        numbers,
        features=features,
        classes=len(estimator.classes_),
        seed=seed_of(estimator.random_state),
        shape=estimator.shape,
    )
    trained = begun.finished()
    guarantee = completed(estimator, trained.guarantee, None, (*assumptions, *more))
    charge(estimator.ledger, estimator.dataset, guarantee, *_arrays(x), numbers)
    estimator.module_, estimator.prepared_ = trained.model, trained.prepared
    estimator.guarantee_, estimator.recipe_ = guarantee, recipe


def _chosen(estimator: Any, x: Any, count: int) -> tuple[Recipe, Any, tuple[Assumption, ...]]:
    """The recipe, the features it starts from (None for a recipe that was given: `x` are features), what is assumed."""
    if isinstance(estimator.recipe, Recipe):
        if estimator.is_handwriting or estimator.numbers is not None:
            raise InvalidArgument(
                "A Recipe is for features that are there already, and its kind says of what. Leave out is_handwriting "
                "and numbers, or give recipe='auto'."
            )
        return estimator.recipe, None, ()
    if estimator.recipe != AUTO:
        raise InvalidArgument(f"recipe must be 'auto' or a tacit.recipe.Recipe. Got {estimator.recipe!r}.")
    kind = kind_of(x, estimator.shape, is_handwriting=estimator.is_handwriting)
    more = () if estimator.population is not None else (counted(count),)
    population = count if estimator.population is None else arguments.count("population", estimator.population)
    recipe = auto(kind, population=population, epsilon=estimator.epsilon, delta=estimator.delta)
    columns = np.asarray(x).shape[1] if kind == "table" else 0
    numbers = columns if estimator.numbers is None else arguments.count("numbers", estimator.numbers, at_least=0)
    return recipe, features_for(kind, estimator.shape, numbers), more


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


def scores_by_recipe(prepared: Prepared, model: torch.nn.Module, x: Any) -> NDArray[np.float64]:
    """One score per class for every example."""
    x = _indexable(x)
    with torch.no_grad():
        pieces = [model(prepared.tensor(x[start : start + _PIECE])) for start in range(0, _length(x), _PIECE)]
    scores: NDArray[np.float64] = torch.cat(pieces).double().numpy()
    return scores


def _indexable(x: Any) -> Any:
    """The examples; those of a sparse matrix, of whatever format, as rows that store every entry once."""
    return sparse_rows(x) if sparse.issparse(x) else x


def _arrays(x: Any) -> tuple[NDArray[Any], ...]:
    """Arrays that are equal if the examples are, for a fingerprint of them."""
    if sparse.issparse(x):
        return x.data, x.indices, x.indptr, np.asarray(x.shape)
    if _length(x) and isinstance(x[0], str):
        return (np.frombuffer(json.dumps(list(x)).encode(), np.uint8),)
    table = np.asarray(x)
    return (table.astype(np.float64) if table.dtype.hasobject else table,)


def _length(x: Any) -> int:
    return int(x.shape[0]) if sparse.issparse(x) else len(x)
