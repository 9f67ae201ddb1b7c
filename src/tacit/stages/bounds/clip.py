"""Clipping: every example's gradient is scaled to a norm of at most `norm`, then they are summed.

`Counted` adds the realised lot size to the sum of any bound, for a published method that divides by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import _validate
from tacit.stages.noise.published import SHARE
from tacit.types import Bound, BoundedSum, PerExampleGradients, State, Tensors

# No parameter has this name: dots and letters only, in those.
COUNT = "<count of unclipped examples>"
# How far the norm may go from where it started: gradients that are all zero would take it below what numbers can hold.
_FARTHEST = 2.0**40
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


@dataclass(frozen=True)
class QuantileClip:
    """Clip at a norm that follows a quantile of the gradient norms (Andrew et al. 2021).

    The count below the norm rides along as one more coordinate of the released sum, taking
    `share` of the squared sensitivity; one Gaussian event therefore covers both. Every example counts
    +1 or -1, by which side of the norm it is on, so that its part of the sensitivity is 1 and not 2.
    """

    start: float = 1.0
    quantile: float = 0.5
    share: float = 0.01
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", _validate.positive("start", self.start))
        object.__setattr__(self, "quantile", _validate.unit("quantile", self.quantile))
        object.__setattr__(self, "share", _validate.open_unit("share", self.share))
        object.__setattr__(self, "learning_rate", _validate.positive("learning_rate", self.learning_rate))

    def init(self, like: Tensors, lot_size: float) -> State:
        """The norm to start with, and the public number that turns the count into a share."""
        return {
            "norm": torch.tensor(self.start, dtype=torch.float64),
            "lot_size": torch.tensor(lot_size, dtype=torch.float64),
        }

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped gradients, and the count in its units."""
        norm = float(state["norm"])
        norms = at_least_single(gradients.norms())
        weights = clip_weights(norms, norm)
        sides = finite_only(norms, torch.where(norms <= norm, 1.0, -1.0).to(norms.dtype))
        values = dict(gradients.weighted_sum(weights))
        values[COUNT] = sides.sum(dtype=torch.float64).mul(self._weight(norm)).reshape(1).to(norms.dtype)
        # norm^2 / (1 - share) = norm^2 + weight^2
        return BoundedSum(values, norm / math.sqrt(1 - self.share))

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Take the noisy count off the release, and move the norm by it."""
        norm = float(state["norm"])
        difference = float(noisy[COUNT]) / self._weight(norm) / float(state["lot_size"])
        below = min(max((1 + difference) / 2, 0.0), 1.0)
        following = norm * math.exp(-self.learning_rate * (below - self.quantile))
        following = min(max(following, self.start / _FARTHEST), self.start * _FARTHEST)
        values = {name: value for name, value in noisy.items() if name != COUNT}
        return values, {**state, "norm": torch.tensor(following, dtype=torch.float64)}

    def _weight(self, norm: float) -> float:
        """What one example adds to the count's coordinate: `share` of the squared sensitivity."""
        return norm * math.sqrt(self.share / (1 - self.share))


@dataclass(frozen=True)
class Counted:
    """The sum of `inside`, and how many examples came over how many were expected.

    The count is private, and the sensitivity does not cover it: only a noise that claims no proof may take it.
    """

    inside: Bound

    def init(self, like: Tensors, lot_size: float) -> State:
        """What is inside remembers, and the public lot size."""
        return {**self.inside.init(like, lot_size), "lot_size": torch.tensor(lot_size, dtype=torch.float64)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum, with the count beside it."""
        bounded = self.inside.sum(gradients, state)
        share = torch.tensor([len(gradients) / float(state["lot_size"])], dtype=torch.float64)
        return BoundedSum({**bounded.values, SHARE: share}, bounded.sensitivity)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """As inside."""
        return self.inside.receive(noisy, state)


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
