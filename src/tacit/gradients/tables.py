"""Gradients of tables that are looked up by token: their cost follows the tokens, not the table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.pieces import (
    LEFT,
    LEFT_BY_GRAM,
    DensePiece,
    GramPiece,
    in_turn,
    not_below,
    row_norms,
    zeroed,
)

try:
    # Not promised by scipy, though it is what its matrices have used for many years. Without it torch does the same.
    from scipy.sparse._sparsetools import csc_matvecs
except ImportError:
    csc_matvecs = None

# How many numbers of token gradients are added up at a time: few enough to stay in the cache and to weigh nothing.
_ADDED = 250_000


@dataclass(frozen=True, eq=False)
class EmbeddingPiece:
    """Rows of a table: each of an example's tokens adds its gradient [B, T, D] to one row. Cost follows the tokens."""

    grads: Tensor
    tokens: Tensor
    rows: int
    padding: int

    @property
    def is_one_row(self) -> bool:
        """Whether every example adds to one row, whatever its token is."""
        return self.grads.shape[1] == 1 and self.padding < 0

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        return self._squares(None)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        return self._squares(scale.view(self.rows, -1)).sqrt_()

    def products(self, vector: Tensor) -> Tensor:
        each = torch.einsum("btd,btd->bt", self.grads, vector.view(self.rows, -1).to(self.grads.dtype)[self.tokens])
        return (each * (self.tokens != self.padding) if self.padding >= 0 else each).sum(1)

    def _squares(self, scale: Tensor | None) -> Tensor:
        """No smaller than some share of the squares of all tokens' gradients: those of equal tokens can cancel."""
        size, count, width = self.grads.shape
        if size == 0 or count == 0:
            return self.grads.new_zeros(size)
        if count == 1 and scale is None:
            squares = row_norms(self.grads[:, 0]).square_()
            return squares if self.is_one_row else squares * (self.tokens[:, 0] != self.padding)
        at_a_time = max(1, _ADDED // (count * width))
        return torch.cat([self._several_squares(slice(i, i + at_a_time), scale) for i in range(0, size, at_a_time)])

    def _several_squares(self, part: slice, scale: Tensor | None) -> Tensor:
        """The squared norms of some examples: the gradients of equal tokens of an example are added up first."""
        tokens, order = _grouped(self.tokens[part])
        size, count = tokens.shape
        order += torch.arange(size, device=order.device)[:, None] * count
        starts = torch.ones_like(tokens, dtype=torch.bool)
        torch.ne(tokens[:, 1:], tokens[:, :-1], out=starts[:, 1:])
        offsets = starts.flatten().nonzero().flatten()
        grads = self.grads[part].reshape(size, -1)
        sums = _sums(grads.reshape(-1, self.grads.shape[2]), order.flatten(), offsets)
        squares = row_norms(sums if scale is None else sums * scale[tokens.flatten()[offsets]]).square_()
        if self.padding >= 0:
            squares.masked_fill_(tokens.flatten()[offsets] == self.padding, 0.0)
        least = row_norms(grads).square_() * (LEFT**2 if scale is None else (LEFT * scale.abs().max()).square())
        return torch.maximum(squares.new_zeros(size).index_add_(0, offsets // count, squares), least)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        _, count, width = self.grads.shape
        if csc_matvecs is not None and self.grads.is_cpu and self.grads.dtype in (torch.float32, torch.float64):
            result = _scattered(self.grads, self.tokens, weights, self.rows)
        else:
            weights = weights.to(self.grads.dtype).repeat_interleave(count)
            grads, tokens = self.grads.reshape(-1, width), self.tokens.flatten()
            result = grads.new_zeros(self.rows, width).index_add_(0, tokens, grads * weights[:, None])
        if self.padding >= 0:
            result[self.padding] = 0.0
        return result

    def dense(self) -> Tensor:
        size, _, width = self.grads.shape
        grads = self.grads
        if self.padding >= 0:
            grads = grads * (self.tokens != self.padding)[:, :, None]
        result = grads.new_zeros(size, self.rows, width)
        return result.scatter_add_(1, self.tokens[:, :, None].expand(-1, -1, width), grads)

    def without(self, rows: Tensor) -> EmbeddingPiece:
        return EmbeddingPiece(zeroed(self.grads, rows), self.tokens, self.rows, self.padding)


@dataclass(frozen=True, eq=False)
class TiedPiece:
    """A table that is looked up and also multiplied by, as where words go in and come out: no gradient is formed."""

    table: EmbeddingPiece
    product: GramPiece

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        looked_up, multiplied = self.table.squares(known), self.product.squares(known)
        # Where a token's row meets the row of an output: how long both are there, and how far they agree.
        tokens, grads = self.table.tokens, self.product.grads
        at_tokens = grads.gather(2, tokens.long()[:, None, :].expand(-1, grads.shape[1], -1))
        if self.table.padding >= 0:
            at_tokens = at_tokens * (tokens != self.table.padding)[:, None, :]
        both = torch.bmm(self.product.inputs, self.table.grads.transpose(1, 2)).mul_(at_tokens).sum((1, 2))
        reach = looked_up.sqrt() + multiplied.sqrt()
        return torch.maximum(looked_up + multiplied + 2 * both, reach.mul_(LEFT_BY_GRAM).square_())

    def scaled_norms(self, scale: Tensor) -> Tensor:
        table, product = self.table, self.product
        found = []
        for part in in_turn(torch.arange(len(table.grads), device=table.grads.device)):
            looked_up = EmbeddingPiece(table.grads[part], table.tokens[part], table.rows, table.padding)
            formed = TiedPiece(looked_up, GramPiece(product.grads[part], product.inputs[part])).dense()
            found.append(DensePiece(formed).scaled_norms(scale))
        multiplied = product.grads.norm(dim=2) * product.inputs.norm(dim=2)
        return not_below(torch.cat(found), table.grads.norm(dim=2).sum(1) + multiplied.sum(1), scale)

    def products(self, vector: Tensor) -> Tensor:
        return self.table.products(vector) + self.product.products(vector)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.table.weighted_sum(weights) + self.product.weighted_sum(weights)

    def dense(self) -> Tensor:
        return self.table.dense() + self.product.dense()

    def without(self, rows: Tensor) -> TiedPiece:
        return TiedPiece(self.table.without(rows), self.product.without(rows))


def _grouped(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Every row sorted, so that equal tokens stand together, and where each of them was."""
    count = tokens.shape[1]
    # Token and position in one number: sorting these is much faster than finding the order of the tokens.
    packed = (tokens.long() * count).add_(torch.arange(count, device=tokens.device))
    # On a CPU numpy sorts ten times as fast as torch.
    packed = torch.from_numpy(np.sort(packed.numpy())) if packed.device.type == "cpu" else packed.sort().values
    tokens = packed.div(count, rounding_mode="floor")
    return tokens, packed.sub_(tokens * count)


def _sums(grads: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """The gradients [B T, D] of all tokens in this order, summed from each offset to the next."""
    return F.embedding_bag(order, grads, offsets, mode="sum")


def _scattered(grads: Tensor, tokens: Tensor, weights: Tensor, rows: int) -> Tensor:
    """Weight times gradient of every token, added to its row: a product with a matrix that has one entry a column.

    Eight times as fast as torch's own way, which also needs a copy of the gradients for the weights; scipy's matrices
    would spend twice the time of the product on checking it.
    """
    which, numbers = tokens.numpy().reshape(-1), grads.numpy().reshape(-1, grads.shape[2])
    by = weights.numpy().astype(numbers.dtype, copy=False)
    by = by if grads.shape[1] == 1 else np.repeat(by, grads.shape[1])
    result = np.zeros((rows, numbers.shape[1]), dtype=numbers.dtype)
    ends = _counted(len(which) + 1, which.dtype)
    csc_matvecs(rows, len(which), numbers.shape[1], ends, which, by, numbers.reshape(-1), result.reshape(-1))
    return torch.from_numpy(result)


@lru_cache(maxsize=32)
def _counted(count: int, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.arange(count, dtype=kind)
