"""Several views of one example, such as shifted or mirrored images: averaged first, clipped then (De et al. 2022).

An example contributes the mean of its views' gradients, and that is what is clipped: however many views there are, it
is one contribution, and the sensitivity is what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tacit import arguments
from tacit.errors import InvalidArgument
from tacit.gradients.backends import lot_size_of
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients
from tacit.gradients.models import trainable
from tacit.gradients.pieces import DensePiece, Piece

Augment = Callable[[Any], Any]


@dataclass(frozen=True)
class Views:
    """Gradients for `PrivateRun(gradients=...)`: of each example, the mean over `count` views that `augment` makes.

    `augment` is given the inputs of some examples and returns as many, each made of one example alone, and a new draw
    at every call. Every gradient is held at once, so give `micro_batch` to a run with a large model.

    >>> import torch
    >>> views = Views(lambda images: images + torch.randn_like(images), count=4)
    >>> lot = torch.randn(3, 5), torch.tensor([0, 1, 1])
    >>> len(views(torch.nn.Linear(5, 2), torch.nn.functional.cross_entropy, *lot))
    3
    """

    augment: Augment
    count: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", arguments.count("count", self.count))

    def __call__(self, model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> LotGradients:
        """The gradients of one lot, or of a piece of it."""
        from tacit.gradients import per_example_gradients

        parameters = trainable(model)
        size = lot_size_of(inputs)
        total: dict[str, Tensor] = {}
        losses: Tensor | None = None
        for _ in range(self.count):
            found = per_example_gradients(model, loss, self._view(inputs, size), targets, parameters=parameters)
            for name, value in found.dense().items():
                total[name] = value / self.count + total.get(name, 0.0)
            losses = found.losses / self.count + (0.0 if losses is None else losses)
        assert losses is not None
        pieces: dict[str, list[Piece]] = {name: [DensePiece(value)] for name, value in total.items()}
        return LotGradients.of(parameters, pieces, losses)

    def _view(self, inputs: Any, size: int) -> Any:
        """A view of every example; as many as there were."""
        view = self.augment(inputs)
        if lot_size_of(view) != size:
            raise InvalidArgument(
                "augment must return one view for each example that it is given. It changed how many there are."
            )
        return view
