"""AdaClip: clipping in coordinates that are centred and whitened by earlier releases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import _validate
from tacit.stages.bounds.clip import at_least_single, clip_weights
from tacit.stages.bounds.whiten import blank, known_to_mechanism, put, taken
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors


@dataclass(frozen=True)
class AdaClip:
    """Clip (gradient - mean) / width at 1, with mean and width made from earlier releases (Pichapati et al. 2019).

    The mean is added again to the release as a constant, for absent examples too, so one example counts at most 1 in
    the whitened coordinates. At first the mean is 0 and the width `norm` everywhere: ordinary clipping.
    `gamma` is the expected squared whitened length, so at most that share of gradients is clipped, if the estimates are
    right. `least` and `most` bound what a coordinate's variance is taken for.
    """

    norm: float = 1.0
    gamma: float = 1.0
    mean_memory: float = 0.99
    spread_memory: float = 0.9
    least: float = 1e-12
    most: float = 1.0

    def __post_init__(self) -> None:
        for name in ("norm", "gamma", "least", "most"):
            object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))
        for name in ("mean_memory", "spread_memory"):
            object.__setattr__(self, name, _validate.open_unit(name, getattr(self, name)))

    def init(self, like: Tensors, lot_size: float) -> State:
        """Mean 0, and the spread whose width is `norm`."""
        dimension = sum(value.numel() for value in like.values())
        zeros = blank(like)
        variance = {name: zero + self.norm**2 * self.gamma / dimension for name, zero in zeros.items()}
        return {**put("mean", zeros), **put("variance", variance), **known_to_mechanism(lot_size)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped, whitened differences from the mean."""
        mean = taken("mean", state)
        inverse = {name: value.reciprocal() for name, value in self.widths(state).items()}
        weights = self._weights(gradients, mean, inverse)
        sums, used = gradients.weighted_sum(weights), weights.sum()
        return BoundedSum({name: (value - mean[name] * used) * inverse[name] for name, value in sums.items()}, 1.0)

    def _weights(self, gradients: PerExampleGradients, mean: Tensors, inverse: Tensors) -> Tensor:
        """By how much to scale whitened differences from the mean, so that none is longer than 1.

        Their norms come from |g|^2 - 2 g a + |a|^2, which needs no gradient by itself; what rounding may have taken off
        is added, so that no norm is too small.
        """
        whitened = {name: value * inverse[name] for name, value in mean.items()}
        offset = torch.stack([value.square().sum() for value in whitened.values()]).sum()
        lengths = at_least_single(gradients.scaled_norms(inverse))
        products = gradients.products({name: value * inverse[name] for name, value in whitened.items()})
        dimension = sum(value.numel() for value in mean.values())
        rounding = 8 * math.sqrt(dimension) * torch.finfo(lengths.dtype).eps
        lost = (lengths + offset.sqrt()).square().mul_(rounding if float(offset) else 0.0)
        return clip_weights((lengths.square() - 2 * products + offset + lost).clamp_min(0).sqrt(), 1.0)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release around its mean, in the original coordinates; then mean and spread move towards it."""
        mean, variance, width = taken("mean", state), taken("variance", state), self.widths(state)
        lot_size = float(state["lot_size"])
        values, means, variances = {}, dict(mean), dict(variance)
        for name, value in noisy.items():
            per_example = width[name] / lot_size
            released = mean[name] + value * per_example
            values[name] = released * lot_size
            noise = (per_example * float(state["noise_std"])).square()
            seen = ((released - mean[name]).square() - noise).clamp(self.least, self.most)
            means[name] = mean[name].lerp(released, 1 - self.mean_memory)
            variances[name] = variance[name].lerp(seen, 1 - self.spread_memory)
        return values, {**state, **put("mean", means), **put("variance", variances)}

    def widths(self, state: State) -> dict[str, Tensor]:
        """sqrt(s_i * sum of s / gamma): the widths with the least noise for spreads s."""
        spread = {name: value.sqrt() for name, value in taken("variance", state).items()}
        whole = torch.stack([value.sum() for value in spread.values()]).sum() / self.gamma
        return {name: (value * whole).sqrt() for name, value in spread.items()}
