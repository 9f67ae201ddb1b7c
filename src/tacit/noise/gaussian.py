"""Gaussian noise on a bounded sum, drawn in one go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tacit import arguments
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.types import BoundedSum, Tensors

# Released numbers are multiples of a power of two between 2^-12 and 2^-11 of the noise's standard deviation.
_GRID_BITS = 12


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise with a standard deviation of `multiplier` times the sensitivity.

    Without a multiplier it stands for "as much as the budget demands": calibration fills it in. What is released
    is rounded to a public grid, some thousand times finer than the noise, so that no low-order bits of
    the private sum show through those of the noise. Rounding comes after the noise and costs nothing.
    """

    multiplier: float | None = None

    def __post_init__(self) -> None:
        if self.multiplier is not None:
            object.__setattr__(self, "multiplier", arguments.positive("multiplier", self.multiplier))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with noise; all coordinates drawn at once."""
        std = self._known() * bounded.sensitivity
        wide = any(value.dtype == torch.float64 for value in bounded.values.values())
        values = list(bounded.values.values())
        # In units of the grid, a power of two, nothing is rounded but where it should be.
        grid = 2.0 ** (math.floor(math.log2(std)) - _GRID_BITS)
        flat = torch.from_numpy(rng.normal(bounded.dimension, wide=wide)).mul_(std / grid)
        if not values:
            return {}
        flat = flat.to(values[0].device)
        pieces = flat.split_with_sizes([value.numel() for value in values])
        noisy = [piece.view(value.shape) for piece, value in zip(pieces, values, strict=True)]
        torch._foreach_add_(noisy, values, alpha=1 / grid)
        flat.round_().mul_(grid)
        return dict(zip(bounded.values, noisy, strict=True))

    def event(self, dimension: int) -> Gaussian:
        """One Gaussian release, whatever its dimension."""
        return Gaussian(self._known())

    def _known(self) -> float:
        if self.multiplier is None:
            raise InvalidArgument(
                "This noise has no multiplier yet. Give one, or give PrivateRun a budget to find it from."
            )
        return self.multiplier
