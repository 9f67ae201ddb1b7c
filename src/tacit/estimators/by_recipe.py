"""`fit` by a recipe: features, a private preparation and a linear model."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from tacit import _validate
from tacit._validate import Array
from tacit.budget import Budget
from tacit.errors import InvalidArgument
from tacit.estimators.building_blocks import assume_counted, close_fit, find_classes, find_owners, read_seed
from tacit.estimators.encoding import count_kinds
from tacit.features.encoders import LITE, EncodedImages
from tacit.features.tables import to_sparse_rows
from tacit.guarantee import Assumption
from tacit.recipes.recipe import Features, Recipe, RecipePlan, auto
from tacit.recipes.regression import train_regression
from tacit.recipes.run import (
    PreparedInputs,
    RecipeRun,
    begin_by_recipe,
    choose_features,
    encode_images,
    recognise_kind,
)

AUTO = "auto"
# Examples that are scored at once.
_PIECE = 4096


def fit_by_recipe(estimator: Any, x: Any, y: Any, unit: Any = None) -> None:
    """Choose the recipe, prepare and train. The ledger is charged before anything is returned."""
    if estimator.module is not None:
        raise InvalidArgument("A recipe has its own linear model. Leave out module or recipe.")
    x, y = _to_rows(x), np.asarray(y)
    check_classification_targets(y)
    estimator.classes_, assumptions = find_classes(estimator.classes, y)
    numbers = np.searchsorted(estimator.classes_, y)
    owners = find_owners(estimator, unit, len(y))
    count = len(y) if owners is None else len(owners.sizes)
    recipe, features, more = _choose_recipe(estimator, x, count, of_people=owners is not None)
    begun = begin_by_recipe(
        RecipePlan.of(recipe, Budget(estimator.epsilon, estimator.delta)),
        x,
        numbers,
        features=features,
        classes=len(estimator.classes_),
        seed=read_seed(estimator.random_state),
        shape=estimator.shape,
        unit=unit,
        rows_per_unit=estimator.rows_per_unit,
    )
    whose = () if owners is None else (owners.person,)
    _finish(estimator, begun, recipe, (*assumptions, *more), *_list_arrays(x), numbers, *whose)


def _finish(
    estimator: Any, begun: RecipeRun, recipe: Recipe, assumptions: tuple[Assumption, ...], *examples: Any
) -> None:
    """Make the steps, charge the ledger, and only then set what was fitted."""
    trained = begun.finish()
    estimator.guarantee_ = close_fit(estimator, trained.guarantee, None, assumptions, *examples)
    estimator.module_, estimator.prepared_, estimator.recipe_ = trained.model, trained.prepared, recipe


def _choose_recipe(
    estimator: Any, x: Any, count: int, *, of_people: bool
) -> tuple[Recipe, Any, tuple[Assumption, ...]]:
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
    budget = {"epsilon": estimator.epsilon, "delta": estimator.delta}
    public: dict[str, Any] = {"population": population, "numbers": numbers, "of_people": of_people, **budget}
    if estimator.features is not None and estimator.shape is not None:
        given = estimator.features
        encoder = given if isinstance(given, EncodedImages) else encode_images(given, estimator.shape)
        named: Features = "efficientnet_lite0" if encoder.network == LITE else "encoder"
        return auto(kind, shape=estimator.shape, features=named, **public), encoder, more
    if estimator.features is not None:
        raise InvalidArgument("features are for images, which need their shape, such as shape=(3, 32, 32).")
    recipe = auto(kind, shape=estimator.shape, **public)
    return recipe, choose_features(recipe, estimator.shape, numbers), more


def fit_linear(estimator: Any, x: Any, y: NDArray[Any], assumptions: tuple[Assumption, ...]) -> None:
    """`fit` of a linear classifier by the recipe of tables, on rows that were scaled and encoded by declared bounds."""
    numbers, _ = count_kinds(estimator.bounds_)
    recipe = auto("table", population=len(y), epsilon=estimator.epsilon, delta=estimator.delta, numbers=numbers)
    begun = begin_by_recipe(
        RecipePlan.of(recipe, Budget(estimator.epsilon, estimator.delta)),
        x,
        y.astype(np.int64),
        features=choose_features(recipe, None, numbers),
        classes=len(estimator.classes_),
        seed=read_seed(estimator.random_state),
    )
    _finish(estimator, begun, recipe, (*assumptions, assume_counted(len(y))), x, y)


def fit_regression(estimator: Any, x: Any, y: NDArray[np.float64], assumptions: tuple[Assumption, ...]) -> None:
    """`fit` of a linear regression by recipe, on scaled rows, and targets in units of the declared bound."""
    trained = train_regression(
        x,
        y,
        numbers=count_kinds(estimator.bounds_)[0],
        budget=Budget(estimator.epsilon, estimator.delta),
        seed=read_seed(estimator.random_state),
    )
    assumptions = (*assumptions, assume_counted(len(y)))
    estimator.guarantee_ = close_fit(estimator, trained.guarantee, None, assumptions, x, y)
    estimator.regression_ = trained


def score_linear(estimator: Any, rows: Any) -> Array:
    """One score per class for every row; for two classes, the score of the second; of a regression, the prediction."""
    if hasattr(estimator, "regression_"):
        return cast(Array, estimator.regression_.predict(rows))
    scores = score_by_recipe(estimator.prepared_, estimator.module_, rows)
    return scores[:, 1:] - scores[:, :1] if scores.shape[1] == 2 else scores


def score_by_recipe(prepared: PreparedInputs, model: torch.nn.Module, x: Any) -> Array:
    """One score per class for every example, whose softmax is the probabilities."""
    x = _to_rows(x)
    with torch.no_grad():
        pieces = [model(prepared.tensor(x[start : start + _PIECE])) for start in range(0, _count(x), _PIECE)]
    return prepared.sharpness * torch.cat(pieces).double().numpy()


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
