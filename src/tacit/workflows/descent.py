"""How a model follows what is released: by which optimizer, with views of images, and with a mean of its weights.

All of it is free of charge. Momentum and the mean are functions of what was released; views of an example are averaged
before they are clipped, so that it stays one contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from tacit.gradients import per_example_gradients
from tacit.gradients.views import Shifts, Views
from tacit.workflows.scoring import optimizer_for

if TYPE_CHECKING:
    from tacit.training.run import GradientsOf
    from tacit.workflows.settings import Settings

_PIXELS = 1
_SHORT = 10


@final
class Descent:
    """An optimizer, and the running mean of the weights if one is asked for."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self._model = model
        self.optimizer = optimizer_for(settings.method, model, settings.learning_rate, settings.momentum)
        self.mean = running_mean(model, settings.averaging) if settings.averaging else None

    def step(self) -> None:
        """Follow the gradients that were released."""
        self.optimizer.step()
        if self.mean is not None:
            self.mean.update_parameters(self._model)

    @property
    def answering(self) -> nn.Module:
        """The model that is scored and handed out: the mean, if there is one."""
        return self._model if self.mean is None else self.mean.module


def running_mean(model: nn.Module, decay: float) -> AveragedModel:
    """The mean of the weights after each step, in which older ones fade."""

    def move(means: Sequence[Tensor], values: Sequence[Tensor], count: Tensor | int) -> None:
        # At first the mean is over a few steps only, so that a short run is not told by where it began.
        done = int(count)
        for mean, value in zip(means, values, strict=True):
            mean.lerp_(value, 1 - min(decay, (1 + done) / (_SHORT + done)))

    return AveragedModel(model, multi_avg_fn=move)


def gradients_for(settings: Settings) -> GradientsOf:
    """Those of the examples, or the means of those of their views: images that are moved by a pixel at most."""
    return per_example_gradients if settings.views == 1 else Views(Shifts(_PIXELS), settings.views)
