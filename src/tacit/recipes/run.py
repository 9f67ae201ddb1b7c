"""Training by a recipe: a private preparation of the features, then a linear model, in one guarantee and one file.

Unless its seed was fixed, the file contains nothing private and may be published. It is all that is needed to predict
from inputs that are scaled as in training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from tacit._rows import count_rows_at_once, is_stored, make_rows, walk_pieces
from tacit.accounting.events import Event, from_json
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.features import (
    HashedWords,
    Knots,
    KnotsAndCells,
    Patches,
    PrivateCells,
    PrivateCentring,
    PrivateWhitening,
    PrivateWordWeights,
    Scattering,
)
from tacit.features.cells import GRIDS
from tacit.features.encoders import EncodedImages, public_encoder
from tacit.features.tables import EXPONENT, Shares, to_table
from tacit.features.text import pad_words
from tacit.gradients.cells import MICRO_BATCH, TableScores, differentiate_table
from tacit.guarantee import Assumption, Guarantee
from tacit.recipes.recipe import CONSTANT, ENCODERS, Kind, Recipe, RecipePlan
from tacit.training.fit import fit
from tacit.training.lots import StoredExamples
from tacit.training.people import Owners
from tacit.training.plan import NOTHING_FITTED_BEFORE
from tacit.training.run import GRADIENTS_GIVEN, PrivateRun

# The power of an eigenvalue for patches, whose directions differ more in length than those of scattering.
PATCH_EXPONENT = -0.75
# The number of distinct words of a text that are used, those of largest weight first.
WORDS = 400

Preparation = PrivateCells | PrivateCentring | PrivateWhitening | PrivateWordWeights

PREPARED = (
    "Before training, statistics of the features were released with noise: the mean, for whitening also second "
    "moments, for cells also counts. The guarantee includes this release."
)
AFTERWARDS = Assumption(
    "prepared_by_release",
    "The model's first weights and its features depended on the examples through released statistics only: the mean, "
    "for whitening also second moments, for cells also counts.",
)
LOSS = F.cross_entropy
_MODEL = "model.safetensors"
# Names of weights end in this; the other tensors belong to the preparation.
_WEIGHTS = "weight"
# The cost of the preparation, as it was emitted.
_COST = "preparation_event"


@dataclass(frozen=True, eq=False)
class PreparedInputs:
    """Public features and the released preparation: together a function of one example at a time.

    `sharpness` is the factor of scores before they become probabilities. `encoder` names the network, trained on public
    images, that made the features; None if there is none.
    """

    kind: Kind
    features: Any
    preparation: Preparation | None
    sharpness: float = 1.0
    encoder: str | None = None

    @staticmethod
    def of(recipe: Recipe, features: Any, preparation: Preparation | None) -> PreparedInputs:
        """The features and preparation of a recipe."""
        encoder: str | None = recipe.layout if recipe.layout in ENCODERS else None
        encoder = features.name if isinstance(features, EncodedImages) else encoder
        return PreparedInputs(recipe.kind, features, preparation, recipe.sharpness, encoder)

    @property
    def event(self) -> Event | None:
        """The cost of the preparation; None if nothing was released."""
        return None if self.preparation is None else self.preparation.event_

    def tensor(self, x: Any) -> Tensor:
        """[examples, columns] with the constant last; for texts [examples, 2, words], columns and weights."""
        return self.of_features(x if self.features is None else self.features.transform(x))

    def of_features(self, rows: Any) -> Tensor:
        """The same, from features. If they are stored in a file, so is the result."""
        if is_stored(rows):
            found = make_rows((len(rows), self.of_features(np.array(rows[:1])).shape[1]), rows)
            for part in walk_pieces(rows, found):
                found[part] = self.of_features(np.array(rows[part])).numpy()
            return torch.from_numpy(found)
        if self.preparation is not None:
            rows = self.preparation.transform(rows)
        if self.kind == "text":
            words = pad_words(rows, WORDS)
            constant = np.broadcast_to(np.array([[rows.shape[1] + 1], [CONSTANT]], np.float32), (len(words), 2, 1))
            return torch.from_numpy(np.concatenate([words, constant], axis=2))
        table = to_table(rows)
        constant = np.full((len(table), 1), CONSTANT, dtype=np.float32)
        return torch.from_numpy(np.concatenate([table, constant], axis=1))

    def model(self, columns: int, outputs: int) -> nn.Module:
        """A linear model of rows with this many features, for so many classes, with weights of zero."""
        if isinstance(self.preparation, PrivateCells):
            made = self.preparation
            about: dict[str, Any] = {"per_row": made.per_row, "scale": made.scale_, "centre": made.centre_}
            return TableScores(columns - made.per_row + 1, outputs, **about)
        if self.kind == "text":
            return WordScores(columns + 2, outputs)
        linear = nn.Linear(columns + 1, outputs, bias=False)
        nn.init.zeros_(linear.weight)
        return linear

    def examples(self, rows: Any, labels: NDArray[np.int64]) -> tuple[Any, dict[str, Any]]:
        """The data of a `PrivateRun` on these features, and its arguments about gradients of such a model."""
        has_cells = isinstance(self.preparation, PrivateCells)
        how: dict[str, Any] = {"gradients": differentiate_table, "micro_batch": MICRO_BATCH} if has_cells else {}
        inputs, targets = self.of_features(rows), torch.from_numpy(labels)
        if not is_stored(rows):
            return (inputs, targets), how
        how["micro_batch"] = count_rows_at_once(inputs.shape[1], how.get("micro_batch"))
        return StoredExamples(inputs.numpy(), targets), how


class WordScores(nn.Module):
    """A linear model of words, by an embedding: the same as one over sparse rows, which torch cannot sample."""

    def __init__(self, places: int, outputs: int) -> None:
        super().__init__()
        self.scores = nn.Embedding(places, outputs)
        nn.init.zeros_(self.scores.weight)

    def forward(self, words: Tensor) -> Tensor:
        """[texts, outputs] of [texts, 2, words]."""
        return cast(Tensor, (self.scores(words[:, 0].long()) * words[:, 1, :, None]).sum(1))


def prepare(
    recipe: Recipe,
    x: Any,
    features: Any,
    multiplier: float | None,
    seed: int | None,
    *,
    shape: tuple[int, ...] | None = None,
    shares: Shares = None,
) -> tuple[PreparedInputs, Any]:
    """Release the preparation of the recipe; return it and the features of `x`. With `shares` it protects people.

    Without `features`, `x` holds them already: for images, those of images of this `shape`.
    """
    rows = x if features is None else features.fit(x).transform(x)
    made: Preparation | None = None
    if multiplier is not None:
        unfitted = _make_preparation(recipe, rows.shape[1], features, multiplier, seed, shape)
        if isinstance(unfitted, PrivateCells):
            if shares is not None:
                raise InvalidArgument("Counts of cells are not bounded for a person. Use a recipe without cells.")
            made = unfitted.fit(rows)
        else:
            made = unfitted.fit(rows, shares=shares)
    return PreparedInputs.of(recipe, features, made), rows


def list_released(preparation: Preparation | None) -> dict[str, Tensor]:
    """The tensors that a preparation released, or that follow from them, by name: enough for `restore_prepared`."""
    found: dict[str, Tensor] = {}
    for name, value in ({} if preparation is None else vars(preparation)).items():
        if name.endswith("_") and isinstance(value, np.ndarray):
            found[name[:-1]] = torch.from_numpy(value)
        elif name.endswith("_") and isinstance(value, list):
            found |= {f"{name[:-1]} {place}": torch.from_numpy(each) for place, each in enumerate(value)}
    return found


def restore_prepared(
    recipe: Recipe,
    features: Any,
    multiplier: float | None,
    arrays: Mapping[str, NDArray[np.float32]],
    event: Event | None = None,
) -> PreparedInputs:
    """Rebuild what `prepare` made from what it released. Nothing is released again.

    `event` is the cost that was emitted then. Files of earlier versions do not hold it; the recipe's is used for them.
    """
    if multiplier is None:
        return PreparedInputs.of(recipe, features, None)
    made: Any = _make_preparation(recipe, len(arrays["mean"]), features, multiplier, None, None)
    for name in sorted(arrays, key=lambda each: (len(each), each)):
        several, _, place = name.partition(" ")
        setattr(made, f"{several}_", [*getattr(made, f"{several}_", []), arrays[name]] if place else arrays[name])
    made.n_features_in_ = len(arrays["mean"]) + (made.per_row if isinstance(made, PrivateCells) else 0)
    made.event_ = recipe.preparation_event(multiplier) if event is None else event
    return PreparedInputs.of(recipe, features, made)


def _make_preparation(
    recipe: Recipe, columns: int, features: Any, multiplier: float, seed: int | None, shape: tuple[int, ...] | None
) -> Preparation:
    """Tables are whitened along their columns, images along channels: along colours and cells it did not help.

    `columns` counts the features, or for cells the columns that are whitened.
    """
    settings: dict[str, Any] = {"multiplier": multiplier, "population": recipe.population, "random_state": seed}
    if recipe.preparation == "word weights":
        return PrivateWordWeights(**settings)
    if recipe.preparation == "centring":
        return PrivateCentring(**settings)
    if recipe.preparation == "whitening and counts":
        return PrivateCells(**settings, cells=recipe.numbers * sum(GRIDS), per_row=recipe.numbers * len(GRIDS))
    if recipe.kind == "table":
        return PrivateWhitening(**settings, axes=(columns,))
    layout = choose_features(recipe, shape, 0) if features is None else features
    along, exponent = (len(layout.axes) - 2,), PATCH_EXPONENT if recipe.layout == "patches" else EXPONENT
    return PrivateWhitening(**settings, axes=layout.axes, along=along, columns=layout.columns, exponent=exponent)


def choose_features(recipe: Recipe, shape: tuple[int, ...] | None, numbers: int) -> Any:
    """Public features: patches or scattering of images, ramps and cells of numbers in tables, hashed words of texts.

    Colour images are scenes, where left and right do not matter. Handwriting is set upright.
    """
    match recipe.layout:
        case "words":
            return HashedWords()
        case "knots":
            return Knots(numbers)
        case "cells":
            return KnotsAndCells(recipe.numbers)
    if recipe.layout == "encoder":
        raise InvalidArgument("This recipe uses features of your own network. Compute them with that network.")
    if shape is None:
        raise InvalidArgument("Images need their shape, such as shape=(28, 28) or shape=(3, 32, 32).")
    is_scene = recipe.kind == "image" and len(shape) == 3 and shape[0] == 3
    if recipe.layout in ENCODERS:
        return encode_images(recipe.layout, shape)
    if recipe.layout == "patches":
        return Patches(tuple(shape), is_mirrored=is_scene)
    return Scattering(tuple(shape), is_mirrored=is_scene, is_upright=recipe.kind == "handwriting")


def encode_images(network: Any, shape: tuple[int, ...]) -> EncodedImages:
    """Features by a network, of images that are scaled as `tacit.datasets` does: colours from -1, grey from 0 to 1."""
    return EncodedImages(network, shape=tuple(shape), black=-1.0 if len(shape) == 3 and shape[0] == 3 else 0.0)


def recognise_kind(x: Any, shape: tuple[int, ...] | None, *, is_handwriting: bool = False) -> Kind:
    """The kind of examples: images have a declared shape, texts are strings or sparse rows, the rest is a table."""
    if shape is not None:
        return "handwriting" if is_handwriting else "image"
    if is_handwriting:
        raise InvalidArgument("is_handwriting is for images, which need their shape, such as shape=(28, 28).")
    if sparse.issparse(x):
        return "text"
    first = x[0] if len(x) else None
    return "text" if isinstance(first, str) else "table"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model, the preparation of its inputs, and the guarantee of both."""

    model: nn.Module
    prepared: PreparedInputs
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """A training run by a recipe whose preparation was released: its steps, and one guarantee for both."""

    prepared: PreparedInputs
    run: PrivateRun
    optimizer: torch.optim.Optimizer

    def finish(self) -> TrainedModel:
        """Make the remaining steps, and return the model."""
        fit(self.run, self.optimizer)
        return TrainedModel(self.run.model.eval(), self.prepared, self.guarantee())

    def guarantee(self) -> Guarantee:
        """The guarantee of the preparation and all steps so far, from the events that they emitted."""
        proven = self.run.guarantee()
        if self.prepared.encoder is not None:
            said = (*proven.assumptions, public_encoder(self.prepared.encoder))
            proven = replace(proven, assumptions=said)
        if self.prepared.event is None:
            return proven
        assumed = tuple(
            AFTERWARDS if each.key == NOTHING_FITTED_BEFORE.key else each
            for each in proven.assumptions
            # The function that takes gradients of tables is ours, not one that a user gave.
            if each.key != GRADIENTS_GIVEN.key
        )
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
    unit: Any = None,
    rows_per_unit: int | None = None,
) -> RecipeRun:
    """Release the preparation, and return the run that makes the steps. Both are within the plan's budget.

    Without `features`, `x` holds them already; for images, `shape` is then the shape of the images. `unit` and
    `rows_per_unit` are those of `PrivateRun`: then the preparation protects people too.
    """
    shares = None if unit is None else Owners.of(unit, len(labels)).shares
    prepared, rows = prepare(plan.recipe, x, features, plan.multipliers[0], seed, shape=shape, shares=shares)
    _refuse_unless_planned("The preparation", plan.before, prepared.event)
    model = prepared.model(rows.shape[1], classes)
    data, how = prepared.examples(rows, labels)
    run = PrivateRun(
        model,
        LOSS,
        data=data,
        mechanism=plan.mechanism,
        sampling=plan.sampling,
        steps=plan.recipe.steps,
        budget=plan.budget,
        seed=seed,
        unit=unit,
        rows_per_unit=rows_per_unit,
        **how,
    )
    _refuse_unless_planned("Training", (plan.steps.total(run.steps),), run.plan.total(run.steps))
    return RecipeRun(prepared, run, make_optimizer(plan.recipe, model))


def _refuse_unless_planned(what: str, planned: tuple[Event, ...], event: Event | None) -> None:
    """Raise unless the emitted cost is the one that noise was calibrated for and that a ledger may have reserved."""
    if event != (reduce(add, planned) if planned else None):
        raise OutOfOrder(
            f"{what} was planned to cost {' + '.join(map(str, planned)) or 'nothing'}, but its noise reports {event}. "
            "Nothing was returned. Make Noise.event match what Noise.add draws."
        )


def make_optimizer(recipe: Recipe, model: torch.nn.Module) -> torch.optim.Optimizer:
    """SGD with the learning rate and momentum of the recipe."""
    return torch.optim.SGD(model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)


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
        if isinstance(self.model, TableScores):
            return self.model.classes
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
    features = choose_features(recipe, shape, examples.numbers)
    cost = from_json(about[_COST]) if _COST in about else None
    prepared = restore_prepared(recipe, features, json.loads(about["multiplier"]), arrays, cost)
    return SavedModel(recipe, ExampleForm(shape, examples.numbers), prepared, _make_model(prepared, weights), guarantee)


def read_weights(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What a model file says about itself, and its arrays."""
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            return about, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no dict
    except FileNotFoundError:
        raise InvalidArgument(f"There is no {file}. Give the folder of a run, or its {_MODEL}.") from None
    except SafetensorError:
        reason = "it is not a safetensors file, or it is damaged"
        raise InvalidArgument(
            f"{file} cannot be read as a model: {reason}. Give the folder of a run, or its {_MODEL}."
        ) from None
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read as a model: {error.strerror or error}.") from None


def _read_file(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    about, tensors = read_weights(file)
    if about.get("recipe", "auto") == "auto":
        raise InvalidArgument(
            f"{file} does not say how inputs become features, so it was not trained by a recipe. Load its weights into "
            "the model that you trained: model.load_state_dict(safetensors.torch.load_file(...))."
        )
    return about, tensors


def _make_model(prepared: PreparedInputs, weights: dict[str, Tensor]) -> nn.Module:
    """The linear model with these weights."""
    if isinstance(prepared.preparation, PrivateCells):
        columns, width = prepared.preparation.n_features_in_, weights["dense.weight"].shape[0]
        outputs = 2 if width == 1 else width
    else:
        (matrix,) = weights.values()
        is_text = prepared.kind == "text"
        columns, outputs = (matrix.shape[0] - 2, matrix.shape[1]) if is_text else (matrix.shape[1] - 1, matrix.shape[0])
    model = prepared.model(columns, outputs)
    model.load_state_dict(weights)
    return model.eval()
