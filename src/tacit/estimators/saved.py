"""A classifier by a recipe in one file: its weights, what was released to prepare its inputs, and its guarantee.

Unless its seed was fixed, nothing in the file is private and it may be handed on. It is all that it takes to predict
from inputs that are scaled as they were in training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tacit.accounting.events import from_json
from tacit.errors import InvalidArgument
from tacit.estimators.neural import PrivateClassifier
from tacit.guarantee import Guarantee
from tacit.recipes.recipe import Recipe
from tacit.recipes.run import Prepared, features_for, list_released, restore_prepared

_MODEL = "model.safetensors"
# Weights are told by this from what was released to prepare.
_WEIGHTS = "weight"
# What the preparation cost, as it was emitted.
_COST = "preparation_event"


@dataclass(frozen=True)
class Examples:
    """What examples are, as a recipe has to know: pictures of a `shape`, or rows of which so many are `numbers`."""

    shape: tuple[int, ...] | None = None
    numbers: int = 0


def save_model(
    path: Path,
    model: nn.Module,
    prepared: Prepared,
    recipe: Recipe,
    examples: Examples,
    guarantee: Guarantee,
    *,
    multiplier: float | None,
    about: Mapping[str, str],
) -> None:
    """Write what `load` reads. `multiplier` is that of each release of the preparation; `about` is added as it is."""
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    tensors |= list_released(prepared.preparation)
    facts = {"recipe": asdict(recipe), "examples": asdict(examples), "multiplier": multiplier}
    told = {name: json.dumps(value) for name, value in facts.items()}
    if prepared.event is not None:
        told[_COST] = prepared.event.to_json()
    save_file(tensors, path, metadata={**about, **told, "guarantee": guarantee.to_json()})


def load(path: str | Path) -> PrivateClassifier:
    """The classifier that `tacit train` has made by a recipe: from its folder, or from its model.safetensors alone.

    It predicts from pixels as `tacit.datasets` scales them, from rows of a table as it scales those, and from texts as
    they are written. `guarantee_` is what was proven of it. Classes are numbered in their declared order.
    """
    file = Path(path) / _MODEL if Path(path).is_dir() else Path(path)
    about, tensors = _read(file)
    try:
        return _made(about, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{file} is damaged, or was written by another version of tacit ({type(error).__name__}: {error}). Load it "
            "with the version that wrote it, or train again."
        ) from error


def _made(about: dict[str, str], tensors: dict[str, Tensor]) -> PrivateClassifier:
    recipe, examples = Recipe(**json.loads(about["recipe"])), Examples(**json.loads(about["examples"]))
    shape = None if examples.shape is None else tuple(examples.shape)
    guarantee = Guarantee.from_json(about["guarantee"])
    weights = {name: value for name, value in tensors.items() if name.endswith(_WEIGHTS)}
    arrays = {name: value.numpy() for name, value in tensors.items() if name not in weights}
    features = features_for(recipe.kind, shape, examples.numbers)
    cost = from_json(about[_COST]) if _COST in about else None
    prepared = restore_prepared(recipe, features, json.loads(about["multiplier"]), arrays, cost)
    model = _model(prepared, weights)
    classes = np.arange(_outputs(model))
    made = PrivateClassifier(
        recipe="auto",
        epsilon=guarantee.epsilon(guarantee.delta),
        delta=guarantee.delta,
        shape=shape,
        is_handwriting=recipe.kind == "handwriting",
        numbers=examples.numbers if recipe.kind == "table" else None,
        population=recipe.population,
        classes=classes,
    )
    made.module_, made.prepared_, made.recipe_, made.guarantee_ = model, prepared, recipe, guarantee
    made.classes_ = classes
    return made


def _read(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
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
            f"{file} does not say how inputs become features, as files of runs by a recipe do. Give its weights to the "
            "model that you trained: model.load_state_dict(safetensors.torch.load_file(...))."
        )
    return about, tensors


def _model(prepared: Prepared, weights: dict[str, Tensor]) -> nn.Module:
    """The linear model of these weights."""
    (matrix,) = weights.values()
    is_text = prepared.kind == "text"
    columns, outputs = (matrix.shape[0] - 2, matrix.shape[1]) if is_text else (matrix.shape[1] - 1, matrix.shape[0])
    model = prepared.model(columns, outputs)
    model.load_state_dict(weights)
    return model.eval()


def _outputs(model: nn.Module) -> int:
    (matrix,) = model.parameters()
    return int(matrix.shape[0] if isinstance(model, nn.Linear) else matrix.shape[1])
