"""From what a user has (pixels, columns, texts) to the rows that a recipe's linear model takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.features import HashedWords, Knots, PrivateCentring, PrivateWhitening, PrivateWordWeights, Scattering
from tacit.features.rows import table_of
from tacit.features.text import padded
from tacit.recipes.recipe import CONSTANT, Kind, Recipe

# Different words of a text that take part, the heaviest first.
WORDS = 400

Preparation = PrivateCentring | PrivateWhitening | PrivateWordWeights


@dataclass(frozen=True, eq=False)
class Prepared:
    """Public features, then what was released about them: a function of one example at a time."""

    kind: Kind
    features: Any
    preparation: Preparation | None

    @property
    def event(self) -> Event | None:
        """What the preparation cost; None if nothing was released."""
        return None if self.preparation is None else self.preparation.event_

    def tensor(self, x: Any) -> Tensor:
        """[examples, columns] with the constant last; for texts [examples, 2, words], columns and weights."""
        return self.of_features(x if self.features is None else self.features.transform(x))

    def of_features(self, rows: Any) -> Tensor:
        """The same from features that were computed already."""
        if self.preparation is not None:
            rows = self.preparation.transform(rows)
        if self.kind == "text":
            return torch.from_numpy(_with_constant_word(padded(rows, WORDS), rows.shape[1] + 1))
        table = table_of(rows)
        constant = np.full((len(table), 1), CONSTANT, dtype=np.float32)
        return torch.from_numpy(np.concatenate([table, constant], axis=1))

    def model(self, columns: int, outputs: int) -> nn.Module:
        """A linear model that starts from zero, for so many features."""
        return WordScores(columns + 2, outputs) if self.kind == "text" else _linear(columns + 1, outputs)


def _linear(columns: int, outputs: int) -> nn.Module:
    model = nn.Linear(columns, outputs, bias=False)
    nn.init.zeros_(model.weight)
    return model


class WordScores(nn.Module):
    """A linear model of words that are looked up: the same as one over sparse rows, which torch cannot sample."""

    def __init__(self, places: int, outputs: int) -> None:
        super().__init__()
        self.scores = nn.Embedding(places, outputs)
        nn.init.zeros_(self.scores.weight)

    def forward(self, words: Tensor) -> Tensor:
        """[texts, outputs] of [texts, 2, words]."""
        found: Tensor = (self.scores(words[:, 0].long()) * words[:, 1, :, None]).sum(1)
        return found


def prepare(
    recipe: Recipe,
    x: Any,
    features: Any,
    multiplier: float | None,
    seed: int | None,
    *,
    shape: tuple[int, ...] | None = None,
) -> tuple[Prepared, Any]:
    """What turns examples into rows, after releasing what the recipe says; and the features of `x` themselves.

    Without `features`, `x` holds them already: for images, those of pictures of this `shape`.
    """
    rows = x if features is None else features.fit(x).transform(x)
    made: Preparation | None = None
    if multiplier is not None:
        made = _preparation(recipe, rows.shape[1], features, multiplier, seed, shape).fit(rows)
    return Prepared(recipe.kind, features, made), rows


def released(preparation: Preparation | None) -> dict[str, Tensor]:
    """What was released by a preparation, or follows from that, by name: enough for `restored`."""
    found: dict[str, Tensor] = {}
    for name, value in ({} if preparation is None else vars(preparation)).items():
        if name.endswith("_") and isinstance(value, np.ndarray):
            found[name[:-1]] = torch.from_numpy(value)
        elif name.endswith("_") and isinstance(value, list):
            found |= {f"{name[:-1]} {place}": torch.from_numpy(each) for place, each in enumerate(value)}
    return found


def restored(
    recipe: Recipe,
    features: Any,
    multiplier: float | None,
    arrays: Mapping[str, NDArray[np.float32]],
    event: Event | None = None,
) -> Prepared:
    """What `prepare` made, from what it released: nothing is released again.

    `event` is what that cost, as it was emitted then. Files of earlier versions do not hold it; it is then that of the
    recipe.
    """
    if multiplier is None:
        return Prepared(recipe.kind, features, None)
    made: Any = _preparation(recipe, len(arrays["mean"]), features, multiplier, None, None)
    for name in sorted(arrays, key=lambda each: (len(each), each)):
        several, _, place = name.partition(" ")
        setattr(made, f"{several}_", [*getattr(made, f"{several}_", []), arrays[name]] if place else arrays[name])
    made.n_features_in_ = len(arrays["mean"])
    made.event_ = recipe.preparation_event(multiplier) if event is None else event
    return Prepared(recipe.kind, features, made)


def _preparation(
    recipe: Recipe, columns: int, features: Any, multiplier: float, seed: int | None, shape: tuple[int, ...] | None
) -> Preparation:
    """Tables are whitened along their columns; images along channels, as along colours and cells it did not help."""
    if recipe.preparation == "word weights":
        return PrivateWordWeights(multiplier, recipe.population, random_state=seed)
    if recipe.preparation == "centring":
        return PrivateCentring(multiplier, recipe.population, random_state=seed)
    if recipe.kind == "table":
        return PrivateWhitening(multiplier, recipe.population, axes=(columns,), random_state=seed)
    layout = features_for(recipe.kind, shape, 0) if features is None else features
    along = (len(layout.axes) - 2,)
    return PrivateWhitening(
        multiplier, recipe.population, axes=layout.axes, along=along, columns=layout.columns, random_state=seed
    )


def features_for(kind: Kind, shape: tuple[int, ...] | None, numbers: int) -> Any:
    """Public features: scattering for images, ramps for the numbers of a table, hashed words for texts.

    Colour images show scenes, of which left and right say nothing. Handwriting is set upright.
    """
    if kind == "text":
        return HashedWords()
    if kind == "table":
        return Knots(numbers)
    if shape is None:
        raise InvalidArgument("Images need their shape, such as shape=(28, 28) or shape=(3, 32, 32).")
    is_scene = kind == "image" and len(shape) == 3 and shape[0] == 3
    return Scattering(tuple(shape), is_mirrored=is_scene, is_upright=kind == "handwriting")


def kind_of(x: Any, shape: tuple[int, ...] | None, *, is_handwriting: bool = False) -> Kind:
    """Texts are recognised as such; images are declared by their shape; everything else is a table."""
    if shape is not None:
        return "handwriting" if is_handwriting else "image"
    if is_handwriting:
        raise InvalidArgument("Handwriting is images, which need their shape, such as shape=(28, 28).")
    if sparse.issparse(x):
        return "text"
    first = x[0] if len(x) else None
    return "text" if isinstance(first, str) else "table"


def _with_constant_word(words: NDArray[np.float32], place: int) -> NDArray[np.float32]:
    """Every text with one more word, of the constant's weight."""
    constant = np.empty((len(words), 2, 1), dtype=np.float32)
    constant[:, 0], constant[:, 1] = place, CONSTANT
    return np.concatenate([words, constant], axis=2)
