"""Several views of one example, such as shifted or mirrored images, averaged before clipping (De et al. 2022).

An example contributes the mean of its views' gradients, and that mean is clipped. So the sensitivity does not depend on
the number of views.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.checks import refuse_mixing_function
from tacit.gradients.contributions import (
    Contribution,
    DenseContribution,
    LotGradients,
    OuterProduct,
    OuterProductSum,
    merge_uses,
)
from tacit.gradients.losses import Loss
from tacit.gradients.models import trainable
from tacit.gradients.rules.embedding import TableContribution, TiedContribution
from tacit.gradients.trace import count_examples

Augment = Callable[[Any], Any]

# Functions that were seen to make each view from one example alone.
_EXAMINED: weakref.WeakSet[Augment] = weakref.WeakSet()


@dataclass(frozen=True)
class Shifts:
    """Views of images [B, channels, height, width]: each shifted at random by up to `pixels` along both axes.

    Pixels that move out are lost, and zeros move in. Draws come from torch's generator and need not be secret: privacy
    comes from the noise on the sum.

    >>> Shifts(2)(torch.ones(5, 1, 28, 28)).shape
    torch.Size([5, 1, 28, 28])
    """

    pixels: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", _validate.count("pixels", self.pixels))

    def __call__(self, images: Tensor) -> Tensor:
        """Shift each image by a new draw."""
        size, channels, height, width = images.shape
        by = self.pixels
        padded = functional.pad(images, (by, by, by, by))
        down, right = torch.randint(2 * by + 1, (2, size, 1), device=images.device)
        rows, columns = (start + torch.arange(n, device=images.device) for start, n in ((down, height), (right, width)))
        each, channel = (torch.arange(n, device=images.device) for n in (size, channels))
        return padded[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]]


@dataclass(frozen=True)
class Views:
    """Gradients for `PrivateRun(gradients=...)`: for each example, the mean over `count` views that `augment` makes.

    `augment` takes the inputs of some examples and returns as many, each made of one example alone, with a new draw at
    every call. Set `micro_batch` of the run: all views of such a part of the lot are held at once.

    >>> import torch
    >>> views = Views(lambda images: images + torch.randn_like(images), count=4)
    >>> lot = torch.randn(3, 5), torch.tensor([0, 1, 1])
    >>> len(views(torch.nn.Linear(5, 2), torch.nn.functional.cross_entropy, *lot))
    3
    """

    augment: Augment
    count: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _validate.count("count", self.count))

    def __call__(self, model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> LotGradients:
        """The gradients of one lot, or of a part of it."""
        parameters = trainable(model)
        size = count_examples(inputs)
        if self.augment not in _EXAMINED:
            refuse_mixing_function(self.augment, inputs)
            _EXAMINED.add(self.augment)
        each = []
        for _ in range(self.count):
            view = self.augment(inputs)
            if count_examples(view) != size:
                raise InvalidArgument(
                    "augment must return one view for each example. It returned another number of them."
                )
            each.append(per_example_gradients(model, loss, view, targets, parameters=parameters))
        # Each view is one more use of the parameters, so contributions are merged without forming gradients.
        contributions = {
            name: _scale(merge_uses(uses, parameter.shape), 1 / self.count)
            for name, parameter in parameters.items()
            if (uses := [found.contributions[name] for found in each if name in found.contributions])
        }
        return LotGradients(parameters, contributions, torch.stack([found.losses for found in each]).mean(0))


def _scale(use: Contribution, factor: float) -> Contribution:
    """The contribution times a number."""
    match use:
        case OuterProduct() | OuterProductSum() | TableContribution():
            return replace(use, grads=use.grads * factor)
        case TiedContribution():
            table = replace(use.table, grads=use.table.grads * factor)
            return TiedContribution(table, replace(use.product, grads=use.product.grads * factor))
    return DenseContribution(use.dense() * factor)
