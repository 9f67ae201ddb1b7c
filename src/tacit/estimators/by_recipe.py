"""`fit` by a recipe: features, a private preparation and a linear model behind scikit-learn's interface."""

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
from tacit.estimators.declared import charge, classes_of, completed, counted, seed_of
from tacit.features.tables import to_sparse_rows
from tacit.guarantee import Assumption
from tacit.recipes.recipe import Recipe, auto
from tacit.recipes.run import Prepared, RecipePlan, begin_by_recipe, features_for, recognise_kind

AUTO = "auto"
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
    trained = begun.finish()
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
        raise InvalidArgument(f"recipe must be 'auto' or a tacit.recipes.recipe.Recipe. Got {estimator.recipe!r}.")
    kind = recognise_kind(x, estimator.shape, is_handwriting=estimator.is_handwriting)
    more = () if estimator.population is not None else (counted(count),)
    population = count if estimator.population is None else _validate.count("population", estimator.population)
    recipe = auto(kind, population=population, epsilon=estimator.epsilon, delta=estimator.delta)
    columns = np.asarray(x).shape[1] if kind == "table" else 0
    numbers = columns if estimator.numbers is None else _validate.count("numbers", estimator.numbers, at_least=0)
    return recipe, features_for(kind, estimator.shape, numbers), more


def scores_by_recipe(prepared: Prepared, model: torch.nn.Module, x: Any) -> NDArray[np.float64]:
    """One score per class for every example."""
    x = _indexable(x)
    with torch.no_grad():
        pieces = [model(prepared.tensor(x[start : start + _PIECE])) for start in range(0, _length(x), _PIECE)]
    scores: NDArray[np.float64] = torch.cat(pieces).double().numpy()
    return scores


def _indexable(x: Any) -> Any:
    """The examples; those of a sparse matrix, of whatever format, as rows that store every entry once."""
    return to_sparse_rows(x) if sparse.issparse(x) else x


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
