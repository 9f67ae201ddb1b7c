"""Several views of one example, such as shifted or mirrored images: averaged first, clipped then (De et al. 2022).

An example contributes the mean of its views' gradients, and that is what is clipped: however many views there are, it
is one contribution, and the sensitivity is what it was.
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
from tacit.gradients.backends import lot_size_of
from tacit.gradients.layout import refuse_mixing_function
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients
from tacit.gradients.merging import merged
from tacit.gradients.models import trainable
from tacit.gradients.pieces import DensePiece, GramPiece, OuterPiece, Piece
from tacit.gradients.tables import EmbeddingPiece, TiedPiece

Augment = Callable[[Any], Any]

# Functions whose views were seen to be made of one example alone.
_EXAMINED: weakref.WeakSet[Augment] = weakref.WeakSet()


@dataclass(frozen=True)
class Shifts:
    """Views of images [B, channels, height, width]: each moved by up to so many pixels along both axes, at random.

    What moves out is lost, and zeros move in. Draws come from torch's generator, and hide nothing: whoever knows them
    is still faced with the noise on the sum.

    >>> Shifts(2)(torch.ones(5, 1, 28, 28)).shape
    torch.Size([5, 1, 28, 28])
    """

    pixels: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", _validate.count("pixels", self.pixels))

    def __call__(self, images: Tensor) -> Tensor:
        """A new draw for each of the images."""
        size, channels, height, width = images.shape
        by = self.pixels
        padded = functional.pad(images, (by, by, by, by))
        down, right = torch.randint(2 * by + 1, (2, size, 1), device=images.device)
        rows, columns = (start + torch.arange(n, device=images.device) for start, n in ((down, height), (right, width)))
        each, channel = (torch.arange(n, device=images.device) for n in (size, channels))
        return padded[each[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]]


@dataclass(frozen=True)
class Views:
    """Gradients for `PrivateRun(gradients=...)`: of each example, the mean over `count` views that `augment` makes.

    `augment` is given the inputs of some examples and returns as many, each made of one example alone, and a new draw
    at every call. Give `micro_batch` to the run: all views of so many examples are held at once.

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
        """The gradients of one lot, or of a piece of it."""
        from tacit.gradients import per_example_gradients

        parameters = trainable(model)
        size = lot_size_of(inputs)
        each = [
            per_example_gradients(model, loss, self._view(inputs, size), targets, parameters=parameters)
            for _ in range(self.count)
        ]
        # An example uses its parameters once for every view: several uses are added up, and not all of them formed.
        pieces: dict[str, list[Piece]] = {
            name: [_scaled(merged(uses, parameter.shape), 1 / self.count)]
            for name, parameter in parameters.items()
            if (uses := [found.pieces[name] for found in each if name in found.pieces])
        }
        losses = torch.stack([found.losses for found in each]).mean(0)
        return LotGradients.of(parameters, pieces, losses)

    def _view(self, inputs: Any, size: int) -> Any:
        """A view of every example; as many as there were."""
        if self.augment not in _EXAMINED:
            refuse_mixing_function(self.augment, inputs)
            _EXAMINED.add(self.augment)
        view = self.augment(inputs)
        if lot_size_of(view) != size:
            raise InvalidArgument(
                "augment must return one view for each example that it is given. It changed how many there are."
            )
        return view


def _scaled(piece: Piece, factor: float) -> Piece:
    """The same contributions times a number."""
    match piece:
        case OuterPiece() | GramPiece() | EmbeddingPiece():
            return replace(piece, grads=piece.grads * factor)
        case TiedPiece():
            table = replace(piece.table, grads=piece.table.grads * factor)
            return TiedPiece(table, replace(piece.product, grads=piece.product.grads * factor))
    return DensePiece(piece.dense() * factor)
