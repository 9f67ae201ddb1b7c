"""What one use of one parameter contributes to every example's gradient, in the form that is cheapest to keep.

A piece knows three things: the squared norm of each example's contribution, any weighted sum of
them, and the contributions one by one. Norms and sums never need the last. Norms can be taken of contributions
whose coordinates were multiplied by a `scale` each, and products with one vector, as whitened clipping needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# Explicit gradients are kept if they are no larger than this many times the tensors they are made of.
_LARGER = 1.5
# Where scaled norms do need the contributions one by one, they are formed for this many examples at a time.
_FORMED = 32
# Terms that cancel leave rounding errors as large as theirs, in the sum and in the norm. So a contribution is taken for
# no shorter than this share of what its terms would add up to: it may be clipped too much, never too little. Gram
# matrices, which square the terms, need the larger share.
LEFT, LEFT_BY_GRAM = 2.0**-10, 2.0**-6


class Piece(Protocol):
    """One use of one parameter in one lot."""

    def squares(self, known: dict[int, Tensor]) -> Tensor: ...
    def scaled_norms(self, scale: Tensor) -> Tensor: ...
    def products(self, vector: Tensor) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    def dense(self) -> Tensor: ...
    def without(self, rows: Tensor) -> Piece: ...


@dataclass(frozen=True, eq=False)
class DensePiece:
    """Gradients one by one: [B, *shape]."""

    values: Tensor

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        return row_squares(self.values, known)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        flat = in_rows(self.values)
        scale = scale.reshape(-1)
        return torch.cat([row_norms(rows * scale) for rows in in_turn(flat)]) if len(flat) else row_norms(flat)

    def products(self, vector: Tensor) -> Tensor:
        return in_rows(self.values) @ vector.reshape(-1).to(self.values.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = in_rows(self.values)
        return (weights.to(flat.dtype) @ flat).view(self.values.shape[1:])

    def dense(self) -> Tensor:
        return self.values

    def without(self, rows: Tensor) -> DensePiece:
        return DensePiece(zeroed(self.values, rows))


@dataclass(frozen=True, eq=False)
class OuterPiece:
    """One outer product an example: output gradient [B, p] times input [B, d]."""

    grads: Tensor
    inputs: Tensor

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        return row_squares(self.inputs, known) * row_squares(self.grads, known)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        # sum_ij (s_ij g_i x_j)^2 is a bilinear form of the squares.
        squares = scale.to(self.grads.dtype).reshape(self.grads.shape[1], self.inputs.shape[1]).square()
        return (self.grads.square() @ squares).mul_(self.inputs.square()).sum(1).sqrt_()

    def products(self, vector: Tensor) -> Tensor:
        return _bilinear(self.grads, vector, self.inputs).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return (self.grads.T * weights.to(self.grads.dtype)) @ self.inputs

    def dense(self) -> Tensor:
        return self.grads[:, :, None] * self.inputs[:, None, :]

    def without(self, rows: Tensor) -> OuterPiece:
        return OuterPiece(zeroed(self.grads, rows), zeroed(self.inputs, rows))


@dataclass(frozen=True, eq=False)
class GramPiece:
    """A sum of T outer products an example: gradients [B, T, p], inputs [B, T, d]; norms by Gram matrices.

    `is_shared` says that another piece has the same gradients, so that their Gram matrices are kept for it.
    """

    grads: Tensor
    inputs: Tensor
    is_shared: bool = False

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        left = known.pop(id(self.grads), None)
        if left is None:
            left = torch.bmm(self.grads, self.grads.transpose(1, 2))
            if self.is_shared:
                known[id(self.grads)] = left.clone()
        right = torch.bmm(self.inputs, self.inputs.transpose(1, 2))
        return squares_by_gram(left, right, (self.grads.shape[2], self.inputs.shape[2]))

    def scaled_norms(self, scale: Tensor) -> Tensor:
        pairs = zip(in_turn(self.grads), in_turn(self.inputs), strict=True)
        formed = (DensePiece(GramPiece(grads, inputs).dense()) for grads, inputs in pairs)
        reach = (self.grads.norm(dim=2) * self.inputs.norm(dim=2)).sum(1)
        return not_below(torch.cat([piece.scaled_norms(scale) for piece in formed]), reach, scale)

    def products(self, vector: Tensor) -> Tensor:
        return _bilinear(self.grads, vector, self.inputs).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        grads, inputs, by = self.grads, self.inputs, weights.to(self.grads.dtype)[:, None, None]
        grads, inputs = (grads * by, inputs) if grads.shape[2] <= inputs.shape[2] else (grads, inputs * by)
        if grads.stride(0) < grads.stride(1):
            # Times come before examples in memory: summed in that order, nothing is copied.
            grads, inputs = grads.transpose(0, 1), inputs.transpose(0, 1)
        return grads.flatten(0, 1).T @ inputs.flatten(0, 1)

    def dense(self) -> Tensor:
        return torch.bmm(self.grads.transpose(1, 2), self.inputs)

    def without(self, rows: Tensor) -> GramPiece:
        return GramPiece(zeroed(self.grads, rows), zeroed(self.inputs, rows))


def matrix_piece(grads: Tensor, inputs: Tensor) -> Piece:
    """The cheaper form for sum_t grads[b, t] inputs[b, t]^T."""
    return matrix_pieces(grads, [inputs])[0]


def matrix_pieces(grads: Tensor, inputs: list[Tensor]) -> list[Piece]:
    """The same for several inputs with the same gradients, whose Gram matrices then serve all."""
    if grads.shape[1] == 1:
        row = grads[:, 0]
        return [OuterPiece(row, each[:, 0]) for each in inputs]
    times, p, d = grads.shape[1], grads.shape[2], sum(each.shape[2] for each in inputs)
    if p * d <= _LARGER * times * (p + d):
        return [DensePiece(torch.bmm(grads.transpose(1, 2), each)) for each in inputs]
    return [GramPiece(grads, each, is_shared=len(inputs) > 1) for each in inputs]


def in_turn(values: Tensor) -> tuple[Tensor, ...]:
    """The rows of a lot, a bounded number of examples at a time."""
    pieces: tuple[Tensor, ...] = torch.split(values, _FORMED)
    return pieces


def in_rows(values: Tensor) -> Tensor:
    """Each example's part [B, ...] as one row; a single number is a row too."""
    return values if values.dim() == 2 else values.reshape(values.shape[0], values[0].numel())


def row_norms(values: Tensor) -> Tensor:
    """The norm of each row."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def row_squares(values: Tensor, known: dict[int, Tensor]) -> Tensor:
    """The squared norm of each example's part [B, ...], unless it is `known` by the identity of the tensor.

    At least what so many numbers can have whose squares vanish: multiplied by a huge other factor, they would show.
    """
    found = known.get(id(values))
    if found is None:
        rows = in_rows(values)
        found = row_norms(rows).square_().clamp_min_(rows.shape[1] * torch.finfo(rows.dtype).tiny)
        known[id(values)] = found
    return found


def squares_by_gram(left: Tensor, right: Tensor, widths: tuple[int, int]) -> Tensor:
    """[N]: the squared norms of sums of T outer products, from the Gram matrices [N, T, T] of the factors.

    `widths` are the lengths of the factors; `left` is overwritten. Where terms cancel, or squares vanish, the result is
    above the true value.
    """
    times = left.shape[1]
    if times == 0:
        return left.new_zeros(left.shape[0])
    lefts, rights = left.diagonal(dim1=1, dim2=2), right.diagonal(dim1=1, dim2=2)
    reach = (lefts.sqrt() * rights.sqrt()).sum(1)
    vanished = (widths[0] * rights.amax(1) + widths[1] * lefts.amax(1)) * (times**2 * torch.finfo(left.dtype).tiny)
    least = torch.maximum(reach.mul_(LEFT_BY_GRAM).square_(), vanished)
    return torch.maximum(left.mul_(right).sum((1, 2)), least)


def not_below(norms: Tensor, reach: Tensor, scale: Tensor) -> Tensor:
    """Scaled norms of sums whose terms, unscaled, would reach so far if they did not cancel."""
    return torch.maximum(norms, reach * (LEFT * scale.abs().max()))


def _bilinear(grads: Tensor, matrix: Tensor, inputs: Tensor) -> Tensor:
    """The terms of grads^T matrix inputs, still to be summed."""
    return (grads @ matrix.to(grads.dtype).reshape(grads.shape[-1], inputs.shape[-1])).mul_(inputs)


def zeroed(values: Tensor, rows: Tensor) -> Tensor:
    """The values with these examples' set to zero."""
    return values.masked_fill(rows.view(-1, *[1] * (values.dim() - 1)), 0.0)
