"""Gaussian noise on a bounded sum, drawn in one go; and the Gaussian law."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import _validate
from tacit.accounting.densities import Floats, GaussianDensity
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.laws import register_family
from tacit.stages.noise.on_device import draw_normal
from tacit.types import BoundedSum, Noise, Release, Tensors

# Released numbers are multiples of a power of two between 2^-7 and 2^-6 of the noise's standard deviation. A finer grid
# would show that numbers in single precision are not evenly spread: at 2^-12, how likely a cell is would err by 0.1 %,
# which over millions of coordinates adds up to more than the noise is meant to hide. Rounding adds 0.002 % of variance.
_GRID_BITS = 6
# Single precision holds noise of these standard deviations, and the grid under it.
_LEAST, _MOST = 1e-30, 1e30
_NOTHING = np.empty(0)


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise with a standard deviation of `multiplier` times the sensitivity.

    Without a multiplier, calibration derives it from the budget. The release is rounded to a public grid, about a
    hundred times finer than the noise, so that no low-order bits of the private sum show. Rounding comes after the
    noise and costs nothing.
    """

    multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier")

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with noise; all coordinates drawn at once."""
        copies = {name: value.clone() for name, value in bounded.values.items()}
        return self.mean_in_place(replace(bounded, values=copies), rng, 1.0)

    def release(self, bounded: BoundedSum, rng: Stream) -> Release:
        """The sum with noise, and the event that pays for it."""
        return Release(self.add(bounded, rng), self.event(bounded.dimension))

    def mean_in_place(self, bounded: BoundedSum, rng: Stream, lot_size: float) -> Tensors:
        """The sum with noise over the public lot size. Overwrites the sum, because large models are bound by memory."""
        std = require_multiplier(self) * bounded.sensitivity
        grid = find_grid(std)
        values = bounded.values
        if not values:
            return {}
        # The grid is a power of two, so values in units of it are rounded only by `rint` below.
        is_wide = torch.float64 in [value.dtype for value in values.values()]
        kind = torch.float64 if is_wide else torch.float32
        noisy = {name: _plain(value, kind) for name, value in values.items()}
        if next(iter(values.values())).is_cpu:
            real = np.float64 if is_wide else np.float32
            pieces = rng.normal_pieces(bounded.dimension, real, std / grid)
            _add(noisy.values(), pieces, real(1 / grid), real(grid / lot_size))
        else:
            device = next(iter(values.values())).device
            flat = draw_normal(rng, bounded.dimension, device, kind, std / grid)
            _add_on_device(list(noisy.values()), flat, 1 / grid, grid / lot_size)
        return noisy

    def event(self, dimension: int) -> Gaussian:
        """One Gaussian release, for every dimension."""
        return _event(require_multiplier(self))


def require_multiplier(noise: Noise) -> float:
    """The multiplier, which must have been given or found."""
    if noise.multiplier is None:
        raise InvalidArgument(
            "This noise has no multiplier yet. Give one, or give PrivateRun a budget to derive it from."
        )
    return noise.multiplier


def find_grid(std: float) -> float:
    """The unit of the public grid for noise of this standard deviation, which must be in the range of `_LEAST`."""
    if not _LEAST < std < _MOST:
        raise InvalidArgument(
            f"The noise would have a standard deviation of {std:g}, out of the range of single precision. Choose a "
            "clip norm nearer to 1, and scale the learning rate accordingly."
        )
    return 2.0 ** (math.floor(math.log2(std)) - _GRID_BITS)


def _plain(value: Tensor, kind: torch.dtype) -> Tensor:
    """The same numbers, contiguous and in this precision; without a copy if possible."""
    return value if value.dtype is kind and value.is_contiguous() else value.to(kind).contiguous()


def _add(values: Iterable[Tensor], noise: Iterator[NDArray[Any]], unit: np.floating, back: np.floating) -> None:
    """Add noise to the values in units of the grid, round, and scale back: in pieces that stay in the cache.

    In numpy, because small models are bound by the cost of calls.
    """
    rows = [value.numpy().reshape(-1) for value in values]
    drawn = next(noise, _NOTHING)
    if sum(map(len, rows)) == len(drawn):
        # One piece is enough for all: they are made one row, to need fewer calls.
        together = np.concatenate(rows)
        _add_piece(together, drawn, unit, back)
        start = 0
        for row in rows:
            row[:] = together[start : start + len(row)]
            start += len(row)
        return
    for row in rows:
        while len(row):
            if not len(drawn):
                drawn = next(noise)
            count = min(len(row), len(drawn))
            _add_piece(row[:count], drawn[:count], unit, back)
            row, drawn = row[count:], drawn[count:]


def _add_piece(some: NDArray[Any], drawn: NDArray[Any], unit: np.floating, back: np.floating) -> None:
    np.multiply(some, unit, out=some)
    np.add(some, drawn, out=some)
    np.rint(some, out=some)
    np.multiply(some, back, out=some)


def _add_on_device(values: list[Tensor], noise: Tensor, unit: float, back: float) -> None:
    """The same on another device, which is never waited for."""
    pieces = noise.split_with_sizes([value.numel() for value in values])
    torch._foreach_mul_(values, unit)
    torch._foreach_add_(values, [piece.view(value.shape) for piece, value in zip(pieces, values, strict=True)])
    torch._foreach_round_(values)
    torch._foreach_mul_(values, back)


@dataclass(frozen=True)
class Normal:
    """The Gaussian law."""

    name: ClassVar[str] = "gaussian"
    label: ClassVar[str] = "Gaussian"
    mean_absolute: ClassVar[float] = math.sqrt(2 / math.pi)
    mean_square: ClassVar[float] = 1.0

    def density(self, size: float) -> GaussianDensity:
        return GaussianDensity(size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """By Box and Muller's method."""
        return rng.normal(count, wide=True)


register_family(Normal())


@lru_cache(maxsize=1024)
def _event(multiplier: float) -> Gaussian:
    """One object for every step: runs compare and count them."""
    return Gaussian(multiplier)
