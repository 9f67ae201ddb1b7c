"""Clipping in the original coordinates, with noise that is shaped by a direction (Xiang et al. 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tacit import _validate
from tacit.stages.bounds.clip import Clip
from tacit.stages.bounds.whiten import blank, put, taken
from tacit.stages.noise.directional import noise_shape
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# What stands for a shape of exactly zero: noise of that relative size vanishes in rounding, as no noise would.
_NOTHING = 1e-12


@dataclass(frozen=True)
class ShapedClip:
    """Clip at `norm`, then divide by the shape that the noise is to have; the release is multiplied by it again.

    The shape grows with |w_i|^(1/3), as published. Its smallest entry may be tiny, and the sensitivity, `norm` over
    that entry, as large. With `floored`, no entry is below 1: the sensitivity is `norm`, every step is dominated by the
    same pair, and there is more noise than isotropic clipping would need. Then w is the average of about
    1 / (1 - memory) earlier releases; otherwise it is what `steer` was last given.
    """

    norm: float = 1.0
    floored: bool = True
    memory: float = 0.99

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))
        object.__setattr__(self, "memory", _validate.open_unit("memory", self.memory))

    def init(self, like: Tensors, lot_size: float) -> State:
        """No direction yet: the noise is isotropic."""
        return self.steer(blank(like), {})

    def steer(self, direction: Tensors, state: State) -> State:
        """The state with another w, which must be public, and the shape that it gives."""
        shape = noise_shape(direction)
        if self.floored:
            shape = {name: value.clamp_min(1.0) for name, value in shape.items()}
        return {**state, **put("direction", direction), **put("shape", shape)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The clipped sum over the shape; infinite sensitivity where a coordinate is to get no noise."""
        shape = taken("shape", state)
        sums = Clip(self.norm).sum(gradients, {}).values
        values = {name: value / shape[name].clamp_min(_NOTHING) for name, value in sums.items()}
        return BoundedSum(values, self._sensitivity(shape))

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release in the original coordinates."""
        shape = taken("shape", state)
        values = {name: value * shape[name].clamp_min(_NOTHING) for name, value in noisy.items()}
        if not self.floored:
            return values, state
        before = taken("direction", state)
        after = {name: old.lerp(values[name].to(old.dtype), 1 - self.memory) for name, old in before.items()}
        return values, self.steer(after, state)

    def _sensitivity(self, shape: Tensors) -> float:
        if self.floored:
            return self.norm
        least = min(float(torch.min(value)) for value in shape.values() if value.numel())
        return self.norm / least if least > 0 else math.inf
