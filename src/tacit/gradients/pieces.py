"""What one use of one parameter contributes to every example's gradient, in the form that is cheapest to keep.

A piece knows three things: the norm of each example's contribution, any weighted sum of
them, and the contributions one by one. Norms and sums never need the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

# Explicit gradients are kept if they are no larger than this many times the tensors they are made of.
_LARGER = 1.5


class Piece(Protocol):
    """One use of one parameter in one lot."""

    def norms(self) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def dense(self) -> Tensor: ...
    def without(self, rows: Tensor) -> Piece: ...


@dataclass(frozen=True, eq=False)
class DensePiece:
    """Gradients one by one: [B, *shape]."""

    values: Tensor

    def norms(self) -> Tensor:
        return row_norms(self.values if self.values.dim() == 2 else self.values.flatten(1))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = self.values.flatten(1)
        return (weights.to(flat.dtype) @ flat).view(self.values.shape[1:])

    def dense(self) -> Tensor:
        return self.values

    def without(self, rows: Tensor) -> DensePiece:
        return DensePiece(_zeroed(self.values, rows))


@dataclass(frozen=True, eq=False)
class OuterPiece:
    """One outer product an example: output gradient [B, p] times input [B, d]."""

    grads: Tensor
    inputs: Tensor

    def norms(self) -> Tensor:
        return row_norms(self.inputs).mul_(row_norms(self.grads))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (self.grads.T * weights.to(self.grads.dtype)) @ self.inputs

    def dense(self) -> Tensor:
        return self.grads[:, :, None] * self.inputs[:, None, :]

    def without(self, rows: Tensor) -> OuterPiece:
        return OuterPiece(_zeroed(self.grads, rows), _zeroed(self.inputs, rows))


@dataclass(frozen=True, eq=False)
class GramPiece:
    """A sum of T outer products an example: gradients [B, T, p], inputs [B, T, d]; norms by Gram matrices."""

    grads: Tensor
    inputs: Tensor

    def norms(self) -> Tensor:
        left = torch.bmm(self.grads, self.grads.transpose(1, 2))
        right = torch.bmm(self.inputs, self.inputs.transpose(1, 2))
        return left.mul_(right).sum((1, 2)).clamp_min_(0).sqrt_()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        grads = self.grads * weights.to(self.grads.dtype)[:, None, None]
        return grads.flatten(0, 1).T @ self.inputs.flatten(0, 1)

    def dense(self) -> Tensor:
        return torch.bmm(self.grads.transpose(1, 2), self.inputs)

    def without(self, rows: Tensor) -> GramPiece:
        return GramPiece(_zeroed(self.grads, rows), _zeroed(self.inputs, rows))


def matrix_piece(grads: Tensor, inputs: Tensor) -> Piece:
    """The cheaper form for sum_t grads[b, t] inputs[b, t]^T."""
    if grads.shape[1] == 1:
        return OuterPiece(grads[:, 0], inputs[:, 0])
    times, p, d = grads.shape[1], grads.shape[2], inputs.shape[2]
    if p * d <= _LARGER * times * (p + d):
        return DensePiece(torch.bmm(grads.transpose(1, 2), inputs))
    return GramPiece(grads, inputs)


@dataclass(frozen=True, eq=False)
class EmbeddingPiece:
    """Rows of a table: each of an example's tokens adds its gradient [B, T, D] to one row. Cost follows the tokens."""

    grads: Tensor
    tokens: Tensor
    rows: int
    padding: int

    def norms(self) -> Tensor:
        size, count, _ = self.grads.shape
        if count == 0:
            return self.grads.new_zeros(size)
        if count == 1:
            norms = row_norms(self.grads[:, 0])
            return norms * (self.tokens[:, 0] != self.padding) if self.padding >= 0 else norms
        tokens, order = _grouped(self.tokens)
        order += torch.arange(size, device=order.device)[:, None] * count
        starts = torch.ones_like(tokens, dtype=torch.bool)
        torch.ne(tokens[:, 1:], tokens[:, :-1], out=starts[:, 1:])
        offsets = starts.flatten().nonzero().flatten()
        sums = _sums(self.grads, order.flatten(), offsets)
        squares = row_norms(sums).square_()
        if self.padding >= 0:
            squares.masked_fill_(tokens.flatten()[offsets] == self.padding, 0.0)
        return squares.new_zeros(size).index_add_(0, offsets // count, squares).sqrt_()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        _, count, width = self.grads.shape
        weights = weights.to(self.grads.dtype)
        result = self.grads.new_zeros(self.rows, width)
        if count <= 1:
            result.index_add_(0, self.tokens.flatten(), self.grads.flatten(0, 1) * weights[:, None])
        else:
            tokens, order = _grouped(self.tokens.reshape(1, -1))
            starts = torch.ones_like(tokens[0], dtype=torch.bool)
            torch.ne(tokens[0, 1:], tokens[0, :-1], out=starts[1:])
            offsets = starts.nonzero().flatten()
            result[tokens[0][offsets]] = _sums(self.grads, order[0], offsets, weights[order[0] // count])
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
        return EmbeddingPiece(_zeroed(self.grads, rows), self.tokens, self.rows, self.padding)


def _grouped(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Every row sorted, so that equal tokens stand together, and where each of them was."""
    count = tokens.shape[1]
    # Token and position in one number: sorting these is much faster than finding the order of the tokens.
    packed = (tokens * count).add_(torch.arange(count, device=tokens.device))
    # On a CPU numpy sorts ten times as fast as torch.
    packed = torch.from_numpy(np.sort(packed.numpy())) if packed.device.type == "cpu" else packed.sort().values
    tokens = packed.div(count, rounding_mode="floor")
    return tokens, packed.sub_(tokens * count)


def _sums(grads: Tensor, order: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """The gradients [B, T, D] of all tokens in this order, summed from each offset to the next."""
    rows = grads.reshape(-1, grads.shape[2])
    return F.embedding_bag(order, rows, offsets, mode="sum", per_sample_weights=weights)


def row_norms(values: Tensor) -> Tensor:
    """The norm of each row."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def merged(pieces: list[Piece], shape: tuple[int, ...]) -> Piece:
    """Several uses of one parameter as one piece: added up before any norm is taken."""
    if len(pieces) == 1:
        return pieces[0]
    tables = [piece for piece in pieces if isinstance(piece, EmbeddingPiece)]
    if len(tables) == len(pieces) and len({table.padding for table in tables}) == 1:
        grads, tokens = torch.cat([t.grads for t in tables], 1), torch.cat([t.tokens for t in tables], 1)
        return EmbeddingPiece(grads, tokens, tables[0].rows, tables[0].padding)
    first = pieces[0].dense()
    total = first.reshape(first.shape[0], *shape).clone()
    for piece in pieces[1:]:
        total += piece.dense().view_as(total)
    return DensePiece(total)


def _zeroed(values: Tensor, rows: Tensor) -> Tensor:
    return values.masked_fill(rows.view(-1, *[1] * (values.dim() - 1)), 0.0)
