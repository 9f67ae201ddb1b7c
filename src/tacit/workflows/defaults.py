"""The training settings of a run in which the user gives none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tacit.datasets import TrainingDefaults

if TYPE_CHECKING:
    from tacit.datasets import Data

MODELS = ("linear", "mlp", "cnn", "embedding", "tempered")
ModeName = Literal["rigorous", "paper"]
# Large lots, few and long steps, averaged weights: found on training images of MNIST (docs/explanations/recipes.md).
_TEMPERED = TrainingDefaults(
    "tempered",
    lot_size=2_048,
    epochs=20,
    learning_rate=12.0,
    adam_rate=0.002,
    clip_norm=0.1,
    momentum=0.9,
    averaging=0.98,
)


def defaults_for(data: Data, model: str | None = None) -> TrainingDefaults:
    """The defaults of the tempered model, or else of the data set; without any, those for its public size."""
    if model == _TEMPERED.model:
        return _TEMPERED
    if data.defaults is not None:
        return data.defaults
    rate = 0.2 if data.classes is None else 1.0
    lot_size = min(512.0, max(1.0, round(data.population / 8)))
    return TrainingDefaults("linear", lot_size, epochs=30, learning_rate=rate, adam_rate=0.02)
