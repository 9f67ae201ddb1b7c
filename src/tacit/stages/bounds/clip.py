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
# The norm stays within this factor of its start: gradients that are all zero would shrink it to zero.
_MOST_FACTOR = 2.0**40
# Shorter gradients count as this long, because their squares vanish in single precision.
_LEAST = 1e-18
# A larger clip norm does not fit into single precision, and clips nothing either.
_MOST = torch.finfo(torch.float32).max


class _Stateless:
    """A bound that learns nothing from releases."""

    def init(self, like: Tensors, lot_size: float) -> State:
        return {}

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        return noisy, state


@dataclass(frozen=True)
class Clip(_Stateless):
    """Scale each gradient down to `norm` where it is longer (Abadi et al. 2016).

    With `per_layer`, every layer is clipped at norm / sqrt(number of layers), so that all together stay within `norm`.
    A layer is all parameters of one module. An example whose gradient is not finite counts zero.
    """

    norm: float = 1.0
    per_layer: bool = False

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="norm")

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped gradients; `norm` bounds what adding or removing one example changes."""
        if not self.per_layer:
            return BoundedSum(gradients.weighted_sum(clip_weights(gradients.norms(), self.norm)), self.norm)
        norms = gradients.layer_norms()
        squares: dict[str, Tensor] = {}
        for name, norm in norms.items():
            squares[_module(name)] = squares.get(_module(name), 0.0) + norm**2
        roots = {module: square.sqrt() for module, square in squares.items()}
        each = self.norm / math.sqrt(len(roots))
        # An example that is not finite in one layer counts zero in all.
        whole = torch.stack(list(roots.values())).sum(dim=0)
        shared = {module: finite_only(whole, clip_weights(root, each)) for module, root in roots.items()}
        weights = {name: shared[_module(name)] for name in norms}
        return BoundedSum(gradients.weighted_sum_by_layer(weights), self.norm)


@dataclass(frozen=True)
class NormalisedClip(_Stateless):
    """Scale every gradient, short or long, to about `norm`: norm * g / (|g| + gamma).

    This is the automatic clipping of Bu, Wang, Zha, Karypis 2023. It needs no tuned clip norm, because the learning
    rate can absorb `norm`. `gamma` limits how much gradients that are nearly zero are enlarged.
    """

    norm: float = 1.0
    gamma: float = 0.01

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("norm", "gamma"))

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of normalised gradients, each shorter than `norm`."""
        norms = at_least_single(gradients.norms())
        weights = finite_only(norms, self.norm / (norms.clamp_min(_LEAST) + self.gamma))
        return BoundedSum(gradients.weighted_sum(weights), self.norm)


@dataclass(frozen=True)
class QuantileClip:
    """Clip at a norm that follows a quantile of the gradient norms (Andrew et al. 2021).

    The number of examples below the norm is released as one more coordinate of the sum, with `share` of the squared
    sensitivity, so one Gaussian event covers both. Every example counts +1 or -1, depending on its side of the norm, so
    that its part of the sensitivity is 1 and not 2.
    """

    start: float = 1.0
    quantile: float = 0.5
    share: float = 0.01
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("start", "learning_rate"), unit="quantile", open_unit="share")

    def init(self, like: Tensors, lot_size: float) -> State:
        """The first norm, and the public lot size, which turns the count into a share."""
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
        """Remove the noisy count from the release, and update the norm by it."""
        norm = float(state["norm"])
        difference = float(noisy[COUNT]) / self._weight(norm) / float(state["lot_size"])
        below = min(max((1 + difference) / 2, 0.0), 1.0)
        following = norm * math.exp(-self.learning_rate * (below - self.quantile))
        following = min(max(following, self.start / _MOST_FACTOR), self.start * _MOST_FACTOR)
        values = {name: value for name, value in noisy.items() if name != COUNT}
        return values, {**state, "norm": torch.tensor(following, dtype=torch.float64)}

    def _weight(self, norm: float) -> float:
        """What one example adds to the count's coordinate: `share` of the squared sensitivity."""
        return norm * math.sqrt(self.share / (1 - self.share))


@dataclass(frozen=True)
class Counted:
    """The sum of `inside`, and the realised lot size over the expected one.

    That number is private, and the sensitivity does not cover it: only a noise without a proof may use it.
    """

    inside: Bound

    def init(self, like: Tensors, lot_size: float) -> State:
        return {**self.inside.init(like, lot_size), "lot_size": torch.tensor(lot_size, dtype=torch.float64)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        bounded = self.inside.sum(gradients, state)
        share = torch.tensor([len(gradients) / float(state["lot_size"])], dtype=torch.float64)
        return BoundedSum({**bounded.values, SHARE: share}, bounded.sensitivity)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        return self.inside.receive(noisy, state)


def clip_weights(norms: Tensor, norm: float) -> Tensor:
    """The factors that scale gradients of these norms down to at most `norm`."""
    # An infinite norm gives 0 by itself; NaN is replaced.
    if norms.is_cpu and norms.dtype in (torch.float32, torch.float64):
        # Numpy's calls cost half of torch's, which matters for few numbers. Shorter gradients give norm / norm.
        norm = min(norm, _MOST)
        weights = norm / np.maximum(norms.numpy(), max(norm, _LEAST))
        if math.isnan(weights.dot(weights)):
            weights[np.isnan(weights)] = 0.0
        return torch.from_numpy(weights)
    return at_least_single(norms).clamp_min(_LEAST).reciprocal_().mul_(norm).clamp_(max=1.0).nan_to_num_(nan=0.0)


def at_least_single(norms: Tensor) -> Tensor:
    """Half-precision norms in single precision: their rounding errors would enter the sensitivity."""
    return norms.float() if norms.dtype in (torch.float16, torch.bfloat16) else norms


def finite_only(norms: Tensor, weights: Tensor) -> Tensor:
    """Zero where a norm is NaN or infinite: nothing bounds the effect of such an example on the sum."""
    return torch.where(torch.isfinite(norms), weights, torch.zeros_like(weights))


def _module(name: str) -> str:
    return name.rpartition(".")[0]
