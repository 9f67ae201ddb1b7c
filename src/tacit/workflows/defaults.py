"""What each data set is trained with if nothing else is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tacit.datasets import Data

MODELS = ("linear", "mlp", "cnn", "embedding", "tempered")
ModeName = Literal["rigorous", "paper"]


@dataclass(frozen=True)
class Recipe:
    """A model and the numbers to train it with: constants, which no user's data have a say in.

    `views` of every image are averaged before they are clipped, and weights are averaged over steps with the decay
    `averaging`, if it is not zero.
    """

    model: str
    lot_size: float
    epochs: float
    learning_rate: float
    adam_rate: float
    clip_norm: float = 1.0
    momentum: float = 0.0
    views: int = 1
    averaging: float = 0.0


_IMAGES = Recipe("cnn", lot_size=256, epochs=15, learning_rate=0.25, adam_rate=0.002)
_COLOUR = Recipe("cnn", lot_size=1024, epochs=20, learning_rate=0.5, adam_rate=0.001)
# Large lots, few and long steps, and the mean of where they lead: found on training images of MNIST (docs/recipes.md).
_TEMPERED = Recipe(
    "tempered",
    lot_size=2_048,
    epochs=20,
    learning_rate=12.0,
    adam_rate=0.002,
    clip_norm=0.1,
    momentum=0.9,
    averaging=0.98,
)
_RATINGS = Recipe("embedding", lot_size=1_000, epochs=20, learning_rate=1.0, adam_rate=0.01)
_SMALL_TABLE = Recipe("linear", lot_size=64, epochs=30, learning_rate=1.0, adam_rate=0.05)
_TABLE = Recipe("linear", lot_size=512, epochs=20, learning_rate=1.0, adam_rate=0.02)
RECIPES = {
    "a9a": _TABLE,
    "adult": _TABLE,
    "bank": _TABLE,
    "breast-cancer": _SMALL_TABLE,
    "breast-cancer-wisconsin": _SMALL_TABLE,
    "cifar10": _COLOUR,
    "creditcard": Recipe("linear", lot_size=2_048, epochs=10, learning_rate=1.0, adam_rate=0.02),
    "diabetes": Recipe("linear", lot_size=64, epochs=30, learning_rate=0.2, adam_rate=0.02),
    "digits": Recipe("linear", lot_size=128, epochs=30, learning_rate=1.0, adam_rate=0.02),
    "fashion-mnist": _IMAGES,
    "imdb": Recipe("embedding", lot_size=512, epochs=9, learning_rate=2.0, adam_rate=0.02),
    "iris": Recipe("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1),
    "kddcup99": Recipe("linear", lot_size=2_048, epochs=5, learning_rate=1.0, adam_rate=0.02),
    "mnist": _IMAGES,
    "movielens-100k": _RATINGS,
    "movielens-1m": _RATINGS,
    "svhn": _COLOUR,
    "wine": Recipe("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1),
}


def recipe_for(data: Data, model: str | None = None) -> Recipe:
    """The recipe of a data set with a name; for a user's own table, one that follows from its public size.

    One of the models has a recipe of its own, whatever images it is for.
    """
    if model == _TEMPERED.model:
        return _TEMPERED
    if data.name in RECIPES:
        return RECIPES[data.name]
    rate = 0.2 if data.classes is None else 1.0
    lot_size = min(512.0, max(1.0, round(data.population / 8)))
    return Recipe("linear", lot_size, epochs=30, learning_rate=rate, adam_rate=0.02)
