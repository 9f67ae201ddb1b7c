"""The same sums for small lots on a CPU, in numpy: there a step is bound by calls, and numpy's cost half of torch's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.pieces import DensePiece, OuterPiece, Piece

# Above this many numbers in a tensor arithmetic outweighs calls.
_FEW = 100_000
_TINY = {torch.float32: np.finfo(np.float32).tiny, torch.float64: np.finfo(np.float64).tiny}


def are_small(pieces: Mapping[str, Piece]) -> bool:
    """Whether every piece is of a simple kind, small, and on a CPU."""
    for piece in pieces.values():
        if isinstance(piece, OuterPiece):
            largest = piece.inputs if piece.inputs.numel() > piece.grads.numel() else piece.grads
        elif isinstance(piece, DensePiece) and piece.values.dim() == 2:
            largest = piece.values
        else:
            return False
        if largest.numel() > _FEW or not largest.is_cpu or largest.dtype not in _TINY:
            return False
    return True


def norms(pieces: Mapping[str, Piece]) -> Tensor:
    """[B]: each example's norm over all pieces. A weight and its bias share an output gradient, and its norms."""
    known: dict[int, NDArray[np.floating]] = {}
    total: NDArray[np.floating] | None = None
    for piece in pieces.values():
        if isinstance(piece, OuterPiece):
            squares = _squares(piece.inputs, known) * _squares(piece.grads, known)
        else:
            assert isinstance(piece, DensePiece)
            squares = _squares(piece.values, known)
        total = squares if total is None else total + squares
    assert total is not None
    return torch.from_numpy(np.sqrt(total))


def _squares(values: Tensor, known: dict[int, NDArray[np.floating]]) -> NDArray[np.floating]:
    found = known.get(id(values))
    if found is None:
        rows = values.numpy()
        # Squares that vanish would show where they are multiplied by huge ones.
        least = rows.shape[1] * _TINY[values.dtype]
        found = known[id(values)] = np.maximum(np.vecdot(rows, rows), least)
    return found


def weighted_sum(piece: Piece, weights: Tensor) -> Tensor:
    """Sum over examples of weight times contribution."""
    by = weights.numpy()
    if isinstance(piece, OuterPiece):
        grads = piece.grads.numpy()
        return torch.from_numpy((grads.T * by.astype(grads.dtype, copy=False)) @ piece.inputs.numpy())
    assert isinstance(piece, DensePiece)
    values = piece.values.numpy()
    return torch.from_numpy(by.astype(values.dtype, copy=False) @ values)
