"""`fit` by a recipe: features, a private preparation and a linear model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from tacit import _validate
from tacit.budget import Budget
from tacit.errors import InvalidArgument
from tacit.estimators.building_blocks import (
    assume_counted,
    charge_ledger,
    complete_guarantee,
    find_classes,
    read_seed,
)
from tacit.features.tables import to_sparse_rows
from tacit.guarantee import Assumption
from tacit.recipes.recipe import Recipe, RecipePlan, auto
from tacit.recipes.run import PreparedInputs, begin_by_recipe, choose_features, recognise_kind

AUTO = "auto"
# Examples that are scored at once.
_PIECE = 4096


def fit_by_recipe(estimator: Any, x: Any, y: Any) -> None:
    """Choose the recipe, prepare and train. The ledger is charged before anything is returned."""
    if estimator.module is not None:
        raise InvalidArgument("A recipe has its own linear model. Leave out module or recipe.")
    x, y = _to_rows(x), np.asarray(y)
    check_classification_targets(y)
    estimator.classes_, assumptions = find_classes(estimator.classes, y)
    numbers = np.searchsorted(estimator.classes_, y)
    recipe, features, more = _choose_recipe(estimator, x, len(y))
    begun = begin_by_recipe(
        RecipePlan.of(recipe, Budget(estimator.epsilon, estimator.delta)),
        x,
        numbers,
        features=features,
        classes=len(estimator.classes_),
        seed=read_seed(estimator.random_state),
        shape=estimator.shape,
    )
    trained = begun.finish()
    guarantee = complete_guarantee(estimator, trained.guarantee, None, (*assumptions, *more))
    charge_ledger(estimator.ledger, estimator.dataset, guarantee, *_list_arrays(x), numbers)
    estimator.module_, estimator.prepared_ = trained.model, trained.prepared
    estimator.guarantee_, estimator.recipe_ = guarantee, recipe


def _choose_recipe(estimator: Any, x: Any, count: int) -> tuple[Recipe, Any, tuple[Assumption, ...]]:
    """The recipe, its features (None for a given recipe: `x` holds features), and what is assumed."""
    if isinstance(estimator.recipe, Recipe):
        if estimator.is_handwriting or estimator.numbers is not None:
            raise InvalidArgument(
                "A Recipe is for features that were computed already. Leave out is_handwriting and numbers, or give "
                "recipe='auto'."
            )
        return estimator.recipe, None, ()
    if estimator.recipe != AUTO:
        raise InvalidArgument(f"recipe must be 'auto' or a tacit.recipes.recipe.Recipe. Got {estimator.recipe!r}.")
    kind = recognise_kind(x, estimator.shape, is_handwriting=estimator.is_handwriting)
    more = () if estimator.population is not None else (assume_counted(count),)
    population = count if estimator.population is None else _validate.count("population", estimator.population)
    columns = np.asarray(x).shape[1] if kind == "table" else 0
    numbers = columns if estimator.numbers is None else _validate.count("numbers", estimator.numbers, at_least=0)
    recipe = auto(kind, population=population, epsilon=estimator.epsilon, delta=estimator.delta, numbers=numbers)
    return recipe, choose_features(recipe, estimator.shape, numbers), more


def score_by_recipe(prepared: PreparedInputs, model: torch.nn.Module, x: Any) -> NDArray[np.float64]:
    """One score per class for every example, whose softmax is the probabilities."""
    x = _to_rows(x)
    with torch.no_grad():
        pieces = [model(prepared.tensor(x[start : start + _PIECE])) for start in range(0, _count(x), _PIECE)]
    scores: NDArray[np.float64] = prepared.sharpness * torch.cat(pieces).double().numpy()
    return scores


def _to_rows(x: Any) -> Any:
    """The examples; those of a sparse matrix of any format as rows that store every entry once."""
    return to_sparse_rows(x) if sparse.issparse(x) else x


def _list_arrays(x: Any) -> tuple[NDArray[Any], ...]:
    """Arrays for a fingerprint: equal if the examples are."""
    if sparse.issparse(x):
        return x.data, x.indices, x.indptr, np.asarray(x.shape)
    if _count(x) and isinstance(x[0], str):
        return (np.frombuffer(json.dumps(list(x)).encode(), np.uint8),)
    table = np.asarray(x)
    return (table.astype(np.float64) if table.dtype.hasobject else table,)


def _count(x: Any) -> int:
    return int(x.shape[0]) if sparse.issparse(x) else len(x)
