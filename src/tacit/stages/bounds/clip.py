"""Clipping: every example's gradient is scaled to a norm of at most `norm`, then they are summed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import _validate
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# Shorter gradients than this count as this long: their squares, of which a norm is made, vanish in single precision.
_LEAST = 1e-18


@dataclass(frozen=True)
class Clip:
    """Scale each gradient down to `norm` where it is longer (Abadi et al. 2016).

    With `per_layer`, every layer is clipped on its own, at norm / sqrt(number of layers): together they stay
    within `norm`. A layer is all parameters of one module. An example whose gradient is not finite counts zero.
    """

    norm: float = 1.0
    per_layer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))

    def init(self, like: Tensors, lot_size: float) -> State:
        """Nothing to remember."""
        return {}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped gradients; `norm` bounds what adding or removing one example changes."""
        if not self.per_layer:
            return BoundedSum(gradients.weighted_sum(clip_weights(gradients.norms(), self.norm)), self.norm)
        norms = gradients.layer_norms()
        roots = _module_norms(norms)
        each = self.norm / math.sqrt(len(roots))
        # An example that is not finite in one layer counts zero in all.
        whole = torch.stack(list(roots.values())).sum(dim=0)
        shared = {module: finite_only(whole, clip_weights(root, each)) for module, root in roots.items()}
        weights = {name: shared[_module(name)] for name in norms}
        return BoundedSum(gradients.weighted_sum_by_layer(weights), self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release as it is."""
        return noisy, state


@dataclass(frozen=True)
class NormalisedClip:
    """Scale every gradient, short or long, to about `norm`: norm * g / (|g| + gamma).

    This is the automatic clipping of Bu, Wang, Zha, Karypis 2023.
    No clip norm has to be found: `norm` can be absorbed by the learning rate. `gamma` keeps
    gradients that are nearly zero from being blown up.
    """

    norm: float = 1.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))
        object.__setattr__(self, "gamma", _validate.positive("gamma", self.gamma))

    def init(self, like: Tensors, lot_size: float) -> State:
        """Nothing to remember."""
        return {}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of normalised gradients, each shorter than `norm`."""
        norms = at_least_single(gradients.norms())
        weights = finite_only(norms, self.norm / (norms.clamp_min(_LEAST) + self.gamma))
        return BoundedSum(gradients.weighted_sum(weights), self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release as it is."""
        return noisy, state


def clip_weights(norms: Tensor, norm: float) -> Tensor:
    """By how much to scale gradients of these norms so that none is longer than `norm`."""
    # An infinite norm gives 0 by itself, one that is not a number has to be told.
    if norms.is_cpu and norms.dtype in (torch.float32, torch.float64):
        # In numpy, whose calls cost half of torch's: these are a handful of numbers. Shorter ones give norm / norm.
        weights = norm / np.maximum(norms.numpy(), max(norm, _LEAST))
        if math.isnan(np.dot(weights, weights)):
            weights[np.isnan(weights)] = 0.0
        return torch.from_numpy(weights)
    return at_least_single(norms).clamp_min(_LEAST).reciprocal_().mul_(norm).clamp_(max=1.0).nan_to_num_(nan=0.0)


def at_least_single(norms: Tensor) -> Tensor:
    """Half-precision norms as single-precision ones: their rounding errors would end up in the sensitivity."""
    return norms.float() if norms.dtype in (torch.float16, torch.bfloat16) else norms


def finite_only(norms: Tensor, weights: Tensor) -> Tensor:
    """Zero where a norm is NaN or infinite: nothing bounds what such an example would do to the sum."""
    return torch.where(torch.isfinite(norms), weights, torch.zeros_like(weights))


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _module_norms(norms: dict[str, Tensor]) -> dict[str, Tensor]:
    """The norm over all parameters of a module, by module."""
    squares: dict[str, Tensor] = {}
    for name, norm in norms.items():
        squares[_module(name)] = squares.get(_module(name), 0.0) + norm**2
    return {module: square.sqrt() for module, square in squares.items()}
