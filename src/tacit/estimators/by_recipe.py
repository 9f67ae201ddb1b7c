"""`fit` by a recipe: features, a private preparation and a linear model; and such a model in one file.

Unless its seed was fixed, the file contains nothing private and may be published. It is all that is needed to predict
from inputs that are scaled as in training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from tacit import _validate
from tacit.accounting.events import from_json
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
from tacit.guarantee import Assumption, Guarantee
from tacit.recipes.recipe import Recipe, auto
from tacit.recipes.run import (
    PreparedInputs,
    RecipePlan,
    begin_by_recipe,
    choose_features,
    list_released,
    recognise_kind,
    restore_prepared,
)

AUTO = "auto"
# Examples that are scored at once.
_PIECE = 4096
_MODEL = "model.safetensors"
# Names of weights end in this; the other tensors belong to the preparation.
_WEIGHTS = "weight"
# The cost of the preparation, as it was emitted.
_COST = "preparation_event"


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
    recipe = auto(kind, population=population, epsilon=estimator.epsilon, delta=estimator.delta)
    columns = np.asarray(x).shape[1] if kind == "table" else 0
    numbers = columns if estimator.numbers is None else _validate.count("numbers", estimator.numbers, at_least=0)
    return recipe, choose_features(kind, estimator.shape, numbers), more


def score_by_recipe(prepared: PreparedInputs, model: torch.nn.Module, x: Any) -> NDArray[np.float64]:
    """One score per class for every example."""
    x = _to_rows(x)
    with torch.no_grad():
        pieces = [model(prepared.tensor(x[start : start + _PIECE])) for start in range(0, _count(x), _PIECE)]
    scores: NDArray[np.float64] = torch.cat(pieces).double().numpy()
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


@dataclass(frozen=True)
class ExampleForm:
    """What a recipe must know about examples: the `shape` of images, or how many columns are `numbers`."""

    shape: tuple[int, ...] | None = None
    numbers: int = 0


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A model by a recipe, as `read_model` rebuilds it."""

    recipe: Recipe
    examples: ExampleForm
    prepared: PreparedInputs
    model: nn.Module
    guarantee: Guarantee

    @property
    def outputs(self) -> int:
        """The number of classes."""
        (matrix,) = self.model.parameters()
        return int(matrix.shape[0] if isinstance(self.model, nn.Linear) else matrix.shape[1])


def save_model(
    path: Path,
    model: nn.Module,
    prepared: PreparedInputs,
    recipe: Recipe,
    examples: ExampleForm,
    guarantee: Guarantee,
    *,
    multiplier: float | None,
    about: Mapping[str, str],
) -> None:
    """Write the file that `load` reads. `multiplier` is that of each preparation release; `about` is added to it."""
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    tensors |= list_released(prepared.preparation)
    facts = {"recipe": asdict(recipe), "examples": asdict(examples), "multiplier": multiplier}
    texts = {name: json.dumps(value) for name, value in facts.items()}
    if prepared.event is not None:
        texts[_COST] = prepared.event.to_json()
    save_file(tensors, path, metadata={**about, **texts, "guarantee": guarantee.to_json()})


def read_model(path: str | Path) -> SavedModel:
    """Read the model that `save_model` wrote: from the folder of a run, or from its model.safetensors."""
    file = Path(path) / _MODEL if Path(path).is_dir() else Path(path)
    about, tensors = _read_file(file)
    try:
        return _rebuild(about, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{file} is damaged, or was written by another version of tacit ({type(error).__name__}: {error}). Load it "
            "with the version that wrote it, or train again."
        ) from error


def _rebuild(about: dict[str, str], tensors: dict[str, Tensor]) -> SavedModel:
    recipe, examples = Recipe(**json.loads(about["recipe"])), ExampleForm(**json.loads(about["examples"]))
    shape = None if examples.shape is None else tuple(examples.shape)
    guarantee = Guarantee.from_json(about["guarantee"])
    weights = {name: value for name, value in tensors.items() if name.endswith(_WEIGHTS)}
    arrays = {name: value.numpy() for name, value in tensors.items() if name not in weights}
    features = choose_features(recipe.kind, shape, examples.numbers)
    cost = from_json(about[_COST]) if _COST in about else None
    prepared = restore_prepared(recipe, features, json.loads(about["multiplier"]), arrays, cost)
    return SavedModel(recipe, ExampleForm(shape, examples.numbers), prepared, _make_model(prepared, weights), guarantee)


def _read_file(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dict
    except FileNotFoundError:
        raise InvalidArgument(f"There is no {file}. Give the folder of a run, or its {_MODEL}.") from None
    except (SafetensorError, OSError) as error:
        raise InvalidArgument(f"{file} cannot be read as a model: {error}.") from None
    if about.get("recipe", "auto") == "auto":
        raise InvalidArgument(
            f"{file} does not say how inputs become features, so it was not trained by a recipe. Load its weights into "
            "the model that you trained: model.load_state_dict(safetensors.torch.load_file(...))."
        )
    return about, tensors


def _make_model(prepared: PreparedInputs, weights: dict[str, Tensor]) -> nn.Module:
    """The linear model with these weights."""
    (matrix,) = weights.values()
    is_text = prepared.kind == "text"
    columns, outputs = (matrix.shape[0] - 2, matrix.shape[1]) if is_text else (matrix.shape[1] - 1, matrix.shape[0])
    model = prepared.model(columns, outputs)
    model.load_state_dict(weights)
    return model.eval()
