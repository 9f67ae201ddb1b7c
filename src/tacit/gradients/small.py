"""The same sums for small lots on a CPU, in numpy: there a step is bound by calls, and numpy's cost half of torch's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.pieces import DensePiece, OuterPiece, Piece
from tacit.gradients.tables import EmbeddingPiece

Reals = NDArray[np.floating]

# Above this many numbers in a tensor arithmetic outweighs calls.
FEW = 100_000
_KINDS = (np.dtype(np.float32), np.dtype(np.float64))
# The least number that is not rounded off, which takes a while to ask for.
_TINY = {kind: np.finfo(kind).tiny for kind in _KINDS}
# Rows no longer than this are squared all at once, and summed by a product with ones.
_SHORT = 128
_ONES = {kind: np.ones(_SHORT, dtype=kind) for kind in _KINDS}


def is_small(piece: Piece) -> bool:
    """Whether a piece is of a simple kind, small, and on a CPU."""
    if isinstance(piece, OuterPiece):
        largest = piece.inputs if piece.inputs.numel() > piece.grads.numel() else piece.grads
    elif isinstance(piece, DensePiece) and piece.values.dim() == 2:
        largest = piece.values
    elif isinstance(piece, EmbeddingPiece) and piece.is_one_row:
        largest = piece.grads
    else:
        return False
    return largest.numel() <= FEW and largest.is_cpu and largest.dtype in (torch.float32, torch.float64)


def norms(pieces: Mapping[str, Piece]) -> Tensor:
    """[B]: each example's norm over all pieces. A weight and its bias share an output gradient, and its norms."""
    known: dict[int, Reals] = {}
    total: Reals | None = None
    with np.errstate(all="ignore"):
        for piece in pieces.values():
            if isinstance(piece, OuterPiece):
                squares: Reals = _squares(piece.inputs, known) * _squares(piece.grads, known)
            elif isinstance(piece, EmbeddingPiece):
                squares = _row_squares(piece.grads.numpy()[:, 0])
            else:
                assert isinstance(piece, DensePiece)
                squares = _squares(piece.values, known)
            total = squares if total is None else total + squares
        assert total is not None
        return torch.from_numpy(np.sqrt(total))


def _squares(values: Tensor, known: dict[int, Reals]) -> Reals:
    found = known.get(id(values))
    if found is None:
        rows = values.numpy()
        # Squares that vanish would show where they are multiplied by huge ones.
        least = rows.shape[1] * _TINY[rows.dtype]
        found = known[id(values)] = np.maximum(_row_squares(rows), least)
    return found


def _row_squares(rows: Reals) -> Reals:
    """The squared norm of each row."""
    width = rows.shape[1]
    squares: Reals
    if width > _SHORT:
        squares = np.vecdot(rows, rows)
    elif rows.flags.forc:
        squares = (rows * rows) @ _ONES[rows.dtype][:width]
    else:
        # Rows that are part of longer ones, as after a concatenation, are not copied.
        squares = np.einsum("ij,ij->i", rows, rows)
    return squares


def weighted_sum(piece: Piece, weights: Tensor) -> Tensor:
    """Sum over examples of weight times contribution."""
    if isinstance(piece, EmbeddingPiece):
        return piece.weighted_sum(weights)
    by = weights.numpy()
    with np.errstate(all="ignore"):
        if isinstance(piece, OuterPiece):
            grads = piece.grads.numpy()
            return torch.from_numpy((grads.T * by.astype(grads.dtype, copy=False)) @ piece.inputs.numpy())
        assert isinstance(piece, DensePiece)
        values = piece.values.numpy()
        return torch.from_numpy(by.astype(values.dtype, copy=False) @ values)


@dataclass(frozen=True, eq=False)
class Layer:
    """A Linear in numpy: the names of those of its parameters that are trained, its inputs [B, d] and the gradients
    of its outputs, a column per example [p, B]."""

    weight: str | None
    bias: str | None
    inputs: Reals
    grads: Reals

    def pieces(self) -> dict[str, Piece]:
        """The same in torch."""
        grads = torch.from_numpy(self.grads.T)
        found: dict[str, Piece] = {}
        if self.weight is not None:
            found[self.weight] = OuterPiece(grads, torch.from_numpy(self.inputs))
        if self.bias is not None:
            found[self.bias] = DensePiece(grads)
        return found

    def squares(self) -> Reals:
        """[B]: each example's squared norm over weight and bias, a little more where squares vanish."""
        tiny, columns = _TINY[self.grads.dtype], self.grads.T
        bias = np.maximum(_row_squares(columns), columns.shape[1] * tiny)
        if self.weight is None:
            return bias if self.bias is not None else np.zeros_like(bias)
        inputs = _row_squares(self.inputs)
        if self.bias is not None:
            inputs += 1
        else:
            np.maximum(inputs, self.inputs.shape[1] * tiny, out=inputs)
        inputs *= bias
        return inputs

    def without(self, rows: NDArray[np.bool_]) -> Layer:
        """Zeros for some examples, whatever stood there."""
        inputs = np.where(rows[:, None], 0, self.inputs).astype(self.inputs.dtype)
        return replace(self, inputs=inputs, grads=np.where(rows, 0, self.grads).astype(self.grads.dtype))

    def add_to(self, sums: dict[str, Tensor], weights: Reals) -> None:
        """Put the sum over examples of weight times contribution where its names are."""
        grads = self.grads * weights
        if self.weight is not None:
            sums[self.weight] = torch.from_numpy(grads @ self.inputs)
        if self.bias is not None:
            sums[self.bias] = torch.from_numpy(np.add.reduce(grads, axis=1))


def layer_norms(layers: tuple[Layer, ...]) -> Tensor:
    """[B]: each example's norm over all layers. Whoever calls keeps numpy from warning of what is not finite."""
    total = layers[0].squares()
    for layer in layers[1:]:
        total += layer.squares()
    return torch.from_numpy(np.sqrt(total, out=total))


def layer_sums(layers: tuple[Layer, ...], norms: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Sum over examples of weight times gradient. At weight zero an example adds zero, even if not finite."""
    lengths, sums = norms.numpy(), dict[str, Tensor]()
    by = weights.numpy().astype(layers[0].grads.dtype, copy=False)
    with np.errstate(all="ignore"):
        # A dot product is numpy's fastest sum, and finite only if all norms are.
        if not math.isfinite(np.dot(lengths, lengths)):
            rows = (by == 0) & ~np.isfinite(lengths)
            layers = tuple(layer.without(rows) for layer in layers)
        for layer in layers:
            layer.add_to(sums, by)
    return sums
