"""Whitened clipping: gradients are clipped in coordinates that earlier releases have stretched.

One example contributes at most `norm` in those coordinates, whatever the stretching, and the noise there is the same in
every direction; stretching back comes after the noise and costs nothing. So a step costs what an ordinary clipped step
costs, while in the original coordinates the noise is smaller where gradients are small or matter more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.stages.bounds.clip import Clip, at_least_single, clip_weights
from tacit.stages.noise.published import noise_shape
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# What stands for a shape of exactly zero: noise of that relative size vanishes in rounding, as no noise would.
_NOTHING = 1e-12
Objective = Literal["l1", "l2"]
Grain = Literal["coordinate", "parameter"]


@dataclass(frozen=True)
class Whiten:
    """Clip gradient / scale at `norm`, with a scale made from earlier releases: at first 1, which is ordinary clipping.

    The scale makes the noise matter least while a typical gradient keeps its whitened length of `norm`. "l1"
    weighs the noise's absolute value (the objective of Xiang et al. 2023), "l2" its square, each by how far the loss
    moves with a coordinate. What is typical and what matters are averages over about 1 / (1 - memory)
    releases, without the part of them that is known to be noise. Only proportions are taken from them: how long
    a typical gradient is, `norm` says. "parameter" gives one scale to all coordinates of a parameter:
    coarser, hardly blurred by noise, and as cheap as ordinary clipping. No size counts as smaller than `floor` times
    the root mean square.
    """

    norm: float = 1.0
    objective: Objective = "l1"
    grain: Grain = "coordinate"
    memory: float = 0.99
    floor: float = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))
        object.__setattr__(self, "memory", _validate.open_unit("memory", self.memory))
        object.__setattr__(self, "floor", _validate.positive("floor", self.floor))
        for name, value, allowed in (
            ("objective", self.objective, ("l1", "l2")),
            ("grain", self.grain, ("coordinate", "parameter")),
        ):
            if value not in allowed:
                raise InvalidArgument(f"{name} must be {' or '.join(map(repr, allowed))}. Got {value!r}.")

    def init(self, like: Tensors, lot_size: float) -> State:
        """Every coordinate is as large as any other, and none is known to matter."""
        dimension = sum(value.numel() for value in like.values())
        zeros = blank(like)
        pooled = {name: self._pooled(zero) for name, zero in zeros.items()}
        return {
            **put("scale", {name: torch.ones_like(zero) for name, zero in pooled.items()}),
            **put("average", zeros),
            **put("doubt", {name: torch.zeros_like(zero) for name, zero in pooled.items()}),
            **put("square", {name: zero + self.norm**2 / dimension for name, zero in pooled.items()}),
            **known_to_mechanism(lot_size),
        }

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped gradients in whitened coordinates, where an example counts at most `norm`."""
        scale = taken("scale", state)
        inverse = {name: value.reciprocal() for name, value in scale.items()}
        weights = clip_weights(at_least_single(gradients.scaled_norms(inverse)), self.norm)
        values = {name: value * inverse[name] for name, value in gradients.weighted_sum(weights).items()}
        return BoundedSum(values, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release in the original coordinates, and the scale that follows from it."""
        scale, lot_size, new = taken("scale", state), float(state["lot_size"]), 1 - self.memory
        values = {name: value * scale[name] for name, value in noisy.items()}
        after = dict(state)
        for name, value in values.items():
            mean = value.to(scale[name].dtype) / lot_size
            noise = (scale[name] * float(state["noise_std"]) / lot_size).square()
            average, doubt, square = (state[f"{kind}/{name}"] for kind in ("average", "doubt", "square"))
            after[f"average/{name}"] = average.lerp(mean, new)
            after[f"doubt/{name}"] = doubt * self.memory**2 + noise * new**2
            after[f"square/{name}"] = square.lerp(self._pooled(mean.square()) - noise, new)
        return values, {**after, **put("scale", self._scale(after))}

    def _scale(self, state: State) -> dict[str, Tensor]:
        """From what gradients and their averages amount to beyond the noise in them."""
        averages, doubts, squares = (taken(kind, state) for kind in ("average", "doubt", "square"))
        counts = {name: averages[name].numel() / value.numel() for name, value in squares.items()}
        means = {name: self._pooled(value.square()) - doubts[name] for name, value in averages.items()}
        sizes, matters = (floored(roots(part), counts, self.floor) for part in (squares, means))
        length = total({name: value.square() for name, value in sizes.items()}, counts).sqrt()
        sizes = {name: value * (self.norm / length) for name, value in sizes.items()}
        return whitening_scale(sizes, matters, counts, norm=self.norm, objective=self.objective)

    def _pooled(self, value: Tensor) -> Tensor:
        return value.mean() if self.grain == "parameter" else value


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


def whitening_scale(
    sizes: Tensors, matters: Tensors, counts: dict[str, float], *, norm: float, objective: Objective
) -> dict[str, Tensor]:
    """The scale with the least weighted noise under which gradients of these sizes have a whitened length of `norm`.

    With sizes m and weights w, both positive, the noise is the sum of w s ("l1") or of (w s)^2 ("l2"), and the length
    is that of m / s. `counts` says how many coordinates each entry of a tensor stands for.
    """
    products = {name: value * matters[name] for name, value in sizes.items()}
    if objective == "l1":
        whole = total({name: value.pow(2 / 3) for name, value in products.items()}, counts).sqrt() / norm
        return {name: value.pow(2 / 3) * matters[name].pow(-1 / 3) * whole for name, value in sizes.items()}
    whole = total(products, counts)
    return {name: (value / matters[name] * whole).sqrt() / norm for name, value in sizes.items()}


def floored(values: Tensors, counts: dict[str, float], floor: float) -> dict[str, Tensor]:
    """No value below `floor` times the root mean square; ones where all are zero."""
    mean = total({name: value.square() for name, value in values.items()}, counts) / sum(
        value.numel() * counts[name] for name, value in values.items()
    )
    if not float(mean) > 0:
        return {name: torch.ones_like(value) for name, value in values.items()}
    return {name: value.clamp_min(floor * mean.sqrt()) for name, value in values.items()}


def roots(values: Tensors) -> dict[str, Tensor]:
    """Square roots; 0 for what noise has made negative."""
    return {name: value.clamp_min(0).sqrt() for name, value in values.items()}


def total(values: Tensors, counts: dict[str, float]) -> Tensor:
    """The sum over all coordinates."""
    return torch.stack([value.sum() * counts[name] for name, value in values.items()]).sum()


def blank(like: Tensors) -> dict[str, Tensor]:
    """Zeros of these shapes, in single precision at least: state is too fine for less."""
    return {
        name: torch.zeros_like(value, dtype=value.dtype if value.dtype == torch.float64 else torch.float32)
        for name, value in like.items()
    }


def put(kind: str, values: Tensors) -> dict[str, Tensor]:
    """Tensors by parameter, as part of a state."""
    return {f"{kind}/{name}": value for name, value in values.items()}


def taken(kind: str, state: State) -> dict[str, Tensor]:
    """What `put` put there."""
    start = f"{kind}/"
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def known_to_mechanism(lot_size: float) -> dict[str, Tensor]:
    """The two public numbers that a mechanism keeps up to date in a state that has them."""
    return {
        "lot_size": torch.tensor(lot_size, dtype=torch.float64),
        "noise_std": torch.tensor(0.0, dtype=torch.float64),
    }
