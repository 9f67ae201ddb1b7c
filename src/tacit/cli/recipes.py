"""What each data set is trained with if nothing else is typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ModelName = Literal["linear", "mlp", "cnn"]
ModeName = Literal["rigorous", "paper"]


@dataclass(frozen=True)
class Recipe:
    """A model and the numbers to train it with: constants, which no user's data have a say in."""

    model: ModelName
    lot_size: float
    epochs: float
    learning_rate: float
    adam_rate: float


_IMAGES = Recipe("cnn", lot_size=256, epochs=15, learning_rate=0.25, adam_rate=0.002)
RECIPES = {
    "adult": Recipe("linear", lot_size=512, epochs=20, learning_rate=1.0, adam_rate=0.02),
    "breast-cancer": Recipe("linear", lot_size=64, epochs=30, learning_rate=1.0, adam_rate=0.05),
    "diabetes": Recipe("linear", lot_size=64, epochs=30, learning_rate=0.2, adam_rate=0.02),
    "digits": Recipe("linear", lot_size=128, epochs=30, learning_rate=1.0, adam_rate=0.02),
    "fashion-mnist": _IMAGES,
    "iris": Recipe("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1),
    "mnist": _IMAGES,
    "wine": Recipe("linear", lot_size=32, epochs=40, learning_rate=1.0, adam_rate=0.1),
}
