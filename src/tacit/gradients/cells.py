"""Linear scores of table rows with cells, and their gradients, example by example, without forming them.

A row of `PrivateCells` stands for the vector t (D e - c) of all cells: e has a one in each of the row's cells, D
multiplies each cell by its scale, c is the common centre, and t the row's own factor. The vector is never formed: a
score needs the row's cells and one product with c, and so do norms and sums of gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import InvalidArgument
from tacit.gradients.contributions import (
    LEAST_SHARE_BY_GRAM,
    Contribution,
    LotGradients,
    OuterProduct,
    square_rows,
    take_norms,
)
from tacit.gradients.models import trainable

# Examples whose gradients are taken at a time.
MICRO_BATCH = 2**15


class TableScores(nn.Module):
    """A linear model of rows that `tacit.features.PrivateCells` made, with the constant as their last column.

    Two classes share one score s, and get the scores 0 and s. `columns` counts the columns beside the cells, the
    constant included.
    """

    def __init__(
        self, columns: int, classes: int, *, per_row: int, scale: NDArray[np.float32], centre: NDArray[np.float32]
    ) -> None:
        super().__init__()
        self.classes, self.per_row, self.width = classes, per_row, 1 if classes == 2 else classes
        self.dense, self.cells = nn.Linear(columns, self.width, bias=False), nn.Embedding(len(scale), self.width)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("scale", torch.from_numpy(scale), persistent=False)
        self.register_buffer("centre", torch.from_numpy(centre), persistent=False)

    def rows(self, inputs: Tensor) -> CentredCells:
        """The cells of the inputs."""
        scale, centre = self.get_buffer("scale"), self.get_buffer("centre")
        return CentredCells(inputs[:, : self.per_row].long(), inputs[:, self.per_row], scale, centre)

    def forward(self, inputs: Tensor) -> Tensor:
        """[examples, classes]."""
        rows = self.rows(inputs)
        looked_up = self.cells(rows.places) * rows.scale[rows.places][:, :, None]
        centred = (looked_up.sum(1) - rows.centre @ self.cells.weight) * rows.factor[:, None]
        scores: Tensor = self.dense(inputs[:, self.per_row + 1 :]) + centred
        return torch.cat([torch.zeros_like(scores), scores], dim=1) if self.width < self.classes else scores


@dataclass(frozen=True, eq=False)
class CentredCells:
    """Sparse rows t (D e - c): cells [B, K], factors t [B], and scales and centre of all cells."""

    places: Tensor
    factor: Tensor
    scale: Tensor
    centre: Tensor

    def square_norms(self) -> Tensor:
        """[B]: the squared norms, in double precision. Where terms cancel, no less than the true value."""
        scale, centre = self.scale.double(), self.centre.double()
        apart, common = (scale * scale)[self.places].sum(1), centre @ centre
        squares = apart - 2 * (scale * centre)[self.places].sum(1) + common
        least = (apart.sqrt() + common.sqrt()).mul_(LEAST_SHARE_BY_GRAM**4).square_()
        return torch.maximum(squares, least) * self.factor.double().square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """[cells, width]: the sum of rows times their weights [B, width]."""
        by = weights.double() * self.factor.double()[:, None]
        places = self.places.numpy().ravel()
        times = self.places.shape[1]
        counts = [np.bincount(places, np.repeat(column.numpy(), times), minlength=len(self.scale)) for column in by.T]
        total = torch.from_numpy(np.stack(counts, axis=1)) * self.scale.double()[:, None]
        return total - self.centre.double()[:, None] * by.sum(0)

    def dense(self) -> Tensor:
        """[B, cells]: the rows themselves."""
        ones = torch.zeros(len(self.places), len(self.scale)).scatter_add_(
            1, self.places, torch.ones_like(self.places, dtype=torch.float32)
        )
        return (ones * self.scale - self.centre) * self.factor[:, None]


@dataclass(frozen=True, eq=False)
class CellContribution(Contribution):
    """The outer product of output gradients [B, width] and sparse centred rows."""

    grads: Tensor
    rows: CentredCells

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        return (self.rows.square_norms() * square_rows(self.grads.double())).to(self.grads.dtype)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        return take_norms((self.dense() * scale).flatten(1))

    def products(self, vector: Tensor) -> Tensor:
        return (self.dense() * vector).flatten(1).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.rows.weighted_sum(self.grads * weights.to(self.grads.dtype)[:, None]).to(self.grads.dtype)

    def dense(self) -> Tensor:
        return self.rows.dense()[:, :, None] * self.grads[:, None, :]

    def without(self, rows: Tensor) -> CellContribution:
        return CellContribution(self.grads.masked_fill(rows[:, None], 0.0), self.rows)


def differentiate_table(model: nn.Module, loss: Any, inputs: Tensor, targets: Tensor) -> LotGradients:
    """The gradients of cross entropy for `TableScores`, example by example: (softmax - one-hot) times the row."""
    if not isinstance(model, TableScores) or loss is not F.cross_entropy:
        raise InvalidArgument("These gradients are those of TableScores with torch.nn.functional.cross_entropy.")
    with torch.no_grad():
        scores = model(inputs)
        losses = F.cross_entropy(scores, targets, reduction="none")
        grads = torch.softmax(scores, dim=1)
        grads[torch.arange(len(targets)), targets] -= 1
        grads = grads[:, -model.width :].contiguous()
        dense = OuterProduct(grads, inputs[:, model.per_row + 1 :])
        cells = CellContribution(grads, model.rows(inputs))
    return LotGradients(trainable(model), {"dense.weight": dense, "cells.weight": cells}, losses)
