"""Gaussian noise on a bounded sum, drawn in one go."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import arguments
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.types import BoundedSum, Tensors

# Released numbers are multiples of a power of two between 2^-7 and 2^-6 of the noise's standard deviation. A finer grid
# would show that numbers in single precision are not evenly spread: at 2^-12, how likely a cell is would err by 0.1 %,
# which over millions of coordinates adds up to more than the noise is meant to hide. Rounding adds 0.002 % of variance.
_GRID_BITS = 6
_NUMPY = (torch.float32, torch.float64)
# Single precision holds noise of these standard deviations, and the grid under it.
_LEAST, _MOST = 1e-30, 1e30


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise with a standard deviation of `multiplier` times the sensitivity.

    Without a multiplier it stands for "as much as the budget demands": calibration fills it in. What is released
    is rounded to a public grid, some hundred times finer than the noise, so that no low-order bits of
    the private sum show through those of the noise. Rounding comes after the noise and costs nothing.
    """

    multiplier: float | None = None

    def __post_init__(self) -> None:
        if self.multiplier is not None:
            object.__setattr__(self, "multiplier", arguments.positive("multiplier", self.multiplier))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with noise; all coordinates drawn at once."""
        std = self._known() * bounded.sensitivity
        if not _LEAST < std < _MOST:
            raise InvalidArgument(
                f"The noise would have a standard deviation of {std:g}, which single precision does not hold. Choose a "
                "clip norm nearer to 1; the learning rate makes up for it."
            )
        values = list(bounded.values.values())
        if not values:
            return {}
        # In units of the grid, a power of two, nothing is rounded but where it should be.
        grid = 2.0 ** (math.floor(math.log2(std)) - _GRID_BITS)
        wide = any(value.dtype == torch.float64 for value in values)
        flat = rng.normal(bounded.dimension, wide=wide, scale=std / grid)
        add = _added if values[0].is_cpu else _added_there
        return add(flat, bounded.values, grid)

    def event(self, dimension: int) -> Gaussian:
        """One Gaussian release, whatever its dimension."""
        return _event(self._known())

    def _known(self) -> float:
        if self.multiplier is None:
            raise InvalidArgument(
                "This noise has no multiplier yet. Give one, or give PrivateRun a budget to find it from."
            )
        return self.multiplier


def _added(flat: NDArray[Any], values: Tensors, grid: float) -> Tensors:
    """Noise and values, in units of the grid and rounded to it. In numpy, as small models are bound by calls."""
    real, start = flat.dtype.type, 0
    noisy: dict[str, Tensor] = {}
    for name, value in values.items():
        size = value.numel()
        piece = flat[start : start + size].reshape(tuple(value.shape))
        piece += (value if value.dtype in _NUMPY else value.float()).numpy() * real(1 / grid)
        noisy[name] = torch.from_numpy(piece)
        start += size
    np.rint(flat, out=flat)
    np.multiply(flat, real(grid), out=flat)
    return noisy


def _added_there(flat: NDArray[Any], values: Tensors, grid: float) -> Tensors:
    """The same where the values are, on another device."""
    noise = torch.from_numpy(flat).to(next(iter(values.values())).device)
    pieces = noise.split_with_sizes([value.numel() for value in values.values()])
    noisy = [piece.view(value.shape) for piece, value in zip(pieces, values.values(), strict=True)]
    torch._foreach_add_(noisy, list(values.values()), alpha=1 / grid)
    noise.round_().mul_(grid)
    return dict(zip(values, noisy, strict=True))


@lru_cache(maxsize=1024)
def _event(multiplier: float) -> Gaussian:
    """One object for every step: runs compare and count them."""
    return Gaussian(multiplier)
