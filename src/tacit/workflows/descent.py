"""Optimizer settings that cost no privacy: the optimizer itself, views of images, a running mean of the weights.

Momentum and the mean are functions of what was released; the views of an example are averaged before clipping, so that
an example still contributes once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from tacit.gradients import per_example_gradients
from tacit.gradients.views import Shifts, Views
from tacit.methods.noisy_adam import PrintedAdam
from tacit.training.run import GradientsOf
from tacit.workflows.settings import Settings

_PIXELS = 1
_WARM_UP = 10


@final
class Descent:
    """An optimizer and, if the settings ask for it, the running mean of the weights."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self._model = model
        self.optimizer = make_method_optimizer(model, settings)
        self.mean = average_weights(model, settings.averaging) if settings.averaging else None

    def step(self) -> None:
        """One step along the released gradients."""
        self.optimizer.step()
        if self.mean is not None:
            self.mean.update_parameters(self._model)

    @property
    def averaged_model(self) -> nn.Module:
        """The model that is scored and handed out: the running mean, if there is one."""
        return self._model if self.mean is None else self.mean.module


def make_method_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Adam for noisy_adam, in paper mode as printed; stochastic gradient descent for every other method."""
    if settings.method == "noisy_adam":
        kind = PrintedAdam if settings.mode == "paper" else torch.optim.Adam
        return kind(model.parameters(), lr=settings.learning_rate)
    return torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=settings.momentum)


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential running mean of the weights."""

    def update(means: Sequence[Tensor], values: Sequence[Tensor], count: Tensor | int) -> None:
        share = weigh_step(decay, int(count))
        for mean, value in zip(means, values, strict=True):
            mean.lerp_(value, share)

    return AveragedModel(model, multi_avg_fn=update)


def weigh_step(decay: float, done: int) -> float:
    """The share of the newest weights in their running mean, after `done` steps.

    The mean of the first steps is over few of them, so that a short run does not remember its first weights.
    """
    return 1 - min(decay, (1 + done) / (_WARM_UP + done))


def choose_gradients(settings: Settings) -> GradientsOf:
    """Per-example gradients, or their means over views of each image that are shifted by a pixel."""
    return per_example_gradients if settings.views == 1 else Views(Shifts(_PIXELS), settings.views)


def describe_descent(settings: Settings) -> str:
    """Momentum, views and averaging, as far as they differ from none."""
    texts = [
        f"momentum {settings.momentum:g}" if settings.momentum else "",
        f"{settings.views} views of every image" if settings.views > 1 else "",
        f"running mean of the weights with decay {settings.averaging:g}" if settings.averaging else "",
    ]
    return "".join(f", {text}" for text in texts if text)
