"""What one use of one parameter contributes to every example's gradient, in the form that is cheapest to keep.

A piece knows three things: the squared norm of each example's contribution, any weighted sum of
them, and the contributions one by one. Norms and sums never need the last. Norms can be taken of contributions
whose coordinates were multiplied by a `scale` each, and products with one vector, as whitened clipping needs.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csc_array
from torch import Tensor

# Explicit gradients are kept if they are no larger than this many times the tensors they are made of.
_LARGER = 1.5
# How many numbers of token gradients are added up at a time: few enough to stay in the cache and to weigh nothing.
_ADDED = 400_000
# Where scaled norms do need the contributions one by one, they are formed for this many examples at a time.
_FORMED = 32
# Terms that cancel leave rounding errors as large as theirs, in the sum and in the norm. So a contribution is taken for
# no shorter than this share of what its terms would add up to: it may be clipped too much, never too little. Gram
# matrices, which square the terms, need the larger share.
_LEFT, _LEFT_BY_GRAM = 2.0**-10, 2.0**-6


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
        return DensePiece(_zeroed(self.values, rows))


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
        return OuterPiece(_zeroed(self.grads, rows), _zeroed(self.inputs, rows))


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
        return GramPiece(_zeroed(self.grads, rows), _zeroed(self.inputs, rows))


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
        least = row_norms(grads).square_() * (_LEFT**2 if scale is None else (_LEFT * scale.abs().max()).square())
        return torch.maximum(squares.new_zeros(size).index_add_(0, offsets // count, squares), least)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        _, count, width = self.grads.shape
        if self.grads.is_cpu and self.grads.dtype in (torch.float32, torch.float64):
            # In numpy, whose calls cost half of torch's.
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
        return EmbeddingPiece(_zeroed(self.grads, rows), self.tokens, self.rows, self.padding)


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
        return torch.maximum(looked_up + multiplied + 2 * both, reach.mul_(_LEFT_BY_GRAM).square_())

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


def _in_turns(piece: OuterPiece | GramPiece) -> GramPiece:
    """One outer product an example as a sum of one."""
    return piece if isinstance(piece, GramPiece) else GramPiece(piece.grads[:, None], piece.inputs[:, None])


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

    Six times as fast as torch's own way, which also needs a copy of the gradients for the weights.
    """
    which, numbers = tokens.numpy().reshape(-1), grads.numpy().reshape(-1, grads.shape[2])
    by = weights.numpy().astype(numbers.dtype, copy=False)
    matrix = copy(_selector(rows, len(which), which.dtype))
    matrix.data, matrix.indices = by if grads.shape[1] == 1 else np.repeat(by, grads.shape[1]), which
    return torch.from_numpy(matrix @ numbers)


@lru_cache(maxsize=32)
def _selector(rows: int, columns: int, index: np.dtype[Any]) -> csc_array:
    """A matrix with one entry a column, all in the first row: making one takes longer than multiplying by it."""
    empty = csc_array((rows, columns), dtype=np.float32)
    empty.indptr = np.arange(columns + 1, dtype=index)
    return empty


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
    least = torch.maximum(reach.mul_(_LEFT_BY_GRAM).square_(), vanished)
    return torch.maximum(left.mul_(right).sum((1, 2)), least)


def not_below(norms: Tensor, reach: Tensor, scale: Tensor) -> Tensor:
    """Scaled norms of sums whose terms, unscaled, would reach so far if they did not cancel."""
    return torch.maximum(norms, reach * (_LEFT * scale.abs().max()))


def merged(pieces: list[Piece], shape: tuple[int, ...]) -> Piece:
    """Several uses of one parameter as one piece: added up before any norm is taken."""
    if len(pieces) == 1:
        return pieces[0]
    tables = [piece for piece in pieces if isinstance(piece, EmbeddingPiece)]
    if len(tables) == len(pieces) and len({table.padding for table in tables}) == 1:
        grads, tokens = torch.cat([t.grads for t in tables], 1), torch.cat([t.tokens for t in tables], 1)
        return EmbeddingPiece(grads, tokens, tables[0].rows, tables[0].padding)
    products = [_in_turns(piece) for piece in pieces if isinstance(piece, (OuterPiece, GramPiece))]
    if products and len(tables) + len(products) == len(pieces):
        product = matrix_piece(torch.cat([p.grads for p in products], 1), torch.cat([p.inputs for p in products], 1))
        if not tables:
            return product
        table = merged([*tables], shape)
        if isinstance(table, EmbeddingPiece) and isinstance(product, (OuterPiece, GramPiece)):
            return TiedPiece(table, _in_turns(product))
    first = pieces[0].dense()
    total = first.reshape(first.shape[0], *shape).clone()
    for piece in pieces[1:]:
        total += piece.dense().view_as(total)
    return DensePiece(total)


def _bilinear(grads: Tensor, matrix: Tensor, inputs: Tensor) -> Tensor:
    """The terms of grads^T matrix inputs, still to be summed."""
    return (grads @ matrix.to(grads.dtype).reshape(grads.shape[-1], inputs.shape[-1])).mul_(inputs)


def _zeroed(values: Tensor, rows: Tensor) -> Tensor:
    return values.masked_fill(rows.view(-1, *[1] * (values.dim() - 1)), 0.0)
