"""Clipping in coordinates, or with noise, that earlier releases have scaled: Whiten, AdaClip, ShapedClip.

In the scaled coordinates one example contributes at most the clip norm, and the noise is the same in every direction.
Scaling back comes after the noise and costs nothing. So a whitened step costs as much as an ordinary clipped step, but
in the original coordinates the noise is smaller where gradients are small or matter more.
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
from tacit.stages.flat import put, select
from tacit.stages.noise.published import noise_shape
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# Replaces a shape of exactly zero: noise of that relative size vanishes in rounding, like no noise.
_NOTHING = 1e-12
Objective = Literal["l1", "l2"]
Grain = Literal["coordinate", "parameter"]


@dataclass(frozen=True)
class Whiten:
    """Clip gradient / scale at `norm`, with a scale made from earlier releases: at first 1, which is ordinary clipping.

    The scale minimises the effect of the noise on the loss, while a typical gradient has a whitened length of `norm`.
    The `objective` "l1" weighs the noise's absolute value (Xiang et al. 2023), "l2" its square, each by how much the
    loss changes with a coordinate. Typical sizes and weights are averages over about 1 / (1 - memory) releases, minus
    the known variance of their noise. Only their proportions are used. `grain` "parameter" gives all coordinates of a
    parameter one scale: coarser, less noisy, and as cheap as ordinary clipping. Sizes below `floor` times the root mean
    square are raised to that.
    """

    norm: float = 1.0
    objective: Objective = "l1"
    grain: Grain = "coordinate"
    memory: float = 0.99
    floor: float = 1e-3

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("norm", "floor"), open_unit="memory")
        for name, value, allowed in (
            ("objective", self.objective, ("l1", "l2")),
            ("grain", self.grain, ("coordinate", "parameter")),
        ):
            if value not in allowed:
                raise InvalidArgument(f"{name} must be {' or '.join(map(repr, allowed))}. Got {value!r}.")

    def init(self, like: Tensors, lot_size: float) -> State:
        dimension = sum(value.numel() for value in like.values())
        zeros = blank(like)
        pooled = {name: self._pool(zero) for name, zero in zeros.items()}
        return {
            **put("scale/", {name: torch.ones_like(zero) for name, zero in pooled.items()}),
            **put("average/", zeros),
            **put("doubt/", {name: torch.zeros_like(zero) for name, zero in pooled.items()}),
            **put("square/", {name: zero + self.norm**2 / dimension for name, zero in pooled.items()}),
            **mechanism_numbers(lot_size),
        }

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped gradients in whitened coordinates, where an example counts at most `norm`."""
        scale = select("scale/", state)
        inverse = {name: value.reciprocal() for name, value in scale.items()}
        weights = clip_weights(at_least_single(gradients.scaled_norms(inverse)), self.norm)
        values = {name: value * inverse[name] for name, value in gradients.weighted_sum(weights).items()}
        return BoundedSum(values, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release in the original coordinates, and the next scale."""
        scale, lot_size, new = select("scale/", state), float(state["lot_size"]), 1 - self.memory
        values = {name: value * scale[name] for name, value in noisy.items()}
        after = dict(state)
        for name, value in values.items():
            mean = value.to(scale[name].dtype) / lot_size
            noise = (scale[name] * float(state["noise_std"]) / lot_size).square()
            average, doubt, square = (state[f"{kind}/{name}"] for kind in ("average", "doubt", "square"))
            after[f"average/{name}"] = average.lerp(mean, new)
            after[f"doubt/{name}"] = doubt * self.memory**2 + noise * new**2
            after[f"square/{name}"] = square.lerp(self._pool(mean.square()) - noise, new)
        return values, {**after, **put("scale/", self._scale(after))}

    def _scale(self, state: State) -> dict[str, Tensor]:
        """From gradients and their averages, minus the variance of their noise."""
        averages, doubts, squares = (select(f"{kind}/", state) for kind in ("average", "doubt", "square"))
        counts = {name: averages[name].numel() / value.numel() for name, value in squares.items()}
        means = {name: self._pool(value.square()) - doubts[name] for name, value in averages.items()}
        sizes, matters = (raise_to_floor(roots(part), counts, self.floor) for part in (squares, means))
        length = total({name: value.square() for name, value in sizes.items()}, counts).sqrt()
        sizes = {name: value * (self.norm / length) for name, value in sizes.items()}
        return whitening_scale(sizes, matters, counts, norm=self.norm, objective=self.objective)

    def _pool(self, value: Tensor) -> Tensor:
        return value.mean() if self.grain == "parameter" else value


@dataclass(frozen=True)
class AdaClip:
    """Clip (gradient - mean) / width at 1, with mean and width made from earlier releases (Pichapati et al. 2019).

    The mean is added to the release again as a constant, also for absent examples, so one example counts at most 1 in
    the whitened coordinates. At first the mean is 0 and every width is `norm`: ordinary clipping. `gamma` is the
    expected squared whitened length, so at most that share of gradients is clipped, if the estimates are right. `least`
    and `most` bound the estimated variance of a coordinate.
    """

    norm: float = 1.0
    gamma: float = 1.0
    mean_memory: float = 0.99
    spread_memory: float = 0.9
    least: float = 1e-12
    most: float = 1.0

    def __post_init__(self) -> None:
        sizes, memories = ("norm", "gamma", "least", "most"), ("mean_memory", "spread_memory")
        _validate.check_fields(self, positive=sizes, open_unit=memories)

    def init(self, like: Tensors, lot_size: float) -> State:
        """Mean 0, and the spread whose width is `norm`."""
        dimension = sum(value.numel() for value in like.values())
        zeros = blank(like)
        variance = {name: zero + self.norm**2 * self.gamma / dimension for name, zero in zeros.items()}
        return {**put("mean/", zeros), **put("variance/", variance), **mechanism_numbers(lot_size)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        mean = select("mean/", state)
        inverse = {name: value.reciprocal() for name, value in self.widths(state).items()}
        weights = self._weights(gradients, mean, inverse)
        sums, used = gradients.weighted_sum(weights), weights.sum()
        return BoundedSum({name: (value - mean[name] * used) * inverse[name] for name, value in sums.items()}, 1.0)

    def _weights(self, gradients: PerExampleGradients, mean: Tensors, inverse: Tensors) -> Tensor:
        """The factors that scale whitened differences from the mean to a length of at most 1.

        Their norms come from |g|^2 - 2 g a + |a|^2, which needs no individual gradient. A bound on the rounding error
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
        """The release plus its mean, in the original coordinates; and the next mean and variance."""
        mean, variance, width = select("mean/", state), select("variance/", state), self.widths(state)
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
        return values, {**state, **put("mean/", means), **put("variance/", variances)}

    def widths(self, state: State) -> dict[str, Tensor]:
        """sqrt(s_i * sum of s / gamma): the widths with the least noise for spreads s."""
        spread = {name: value.sqrt() for name, value in select("variance/", state).items()}
        whole = torch.stack([value.sum() for value in spread.values()]).sum() / self.gamma
        return {name: (value * whole).sqrt() for name, value in spread.items()}


@dataclass(frozen=True)
class ShapedClip:
    """Clip at `norm`, then divide by the shape of the noise; the release is multiplied by it again (Xiang et al. 2023).

    The shape grows with |w_i|^(1/3), as published. Its smallest entry may be tiny, and then the sensitivity, `norm`
    over that entry, is large. With `floored`, no entry is below 1: the sensitivity is `norm`, and there is more noise
    than with isotropic clipping. Then w is the average of about 1 / (1 - memory) earlier releases; otherwise it is the
    last argument of `steer`.
    """

    norm: float = 1.0
    floored: bool = True
    memory: float = 0.99

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="norm", open_unit="memory")

    def init(self, like: Tensors, lot_size: float) -> State:
        return self.steer(blank(like), {})

    def steer(self, direction: Tensors, state: State) -> State:
        """The state with another w, which must be public, and its shape."""
        shape = noise_shape(direction)
        if self.floored:
            shape = {name: value.clamp_min(1.0) for name, value in shape.items()}
        return {**state, **put("direction/", direction), **put("shape/", shape)}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The clipped sum over the shape; infinite sensitivity if a coordinate gets no noise."""
        shape = select("shape/", state)
        sums = Clip(self.norm).sum(gradients, {}).values
        values = {name: value / shape[name].clamp_min(_NOTHING) for name, value in sums.items()}
        return BoundedSum(values, self._sensitivity(shape))

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        shape = select("shape/", state)
        values = {name: value * shape[name].clamp_min(_NOTHING) for name, value in noisy.items()}
        if not self.floored:
            return values, state
        before = select("direction/", state)
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
    """The scale with the least weighted noise, given that gradients of these sizes have a whitened length of `norm`.

    With sizes m and weights w, both positive, the noise is the sum of w s ("l1") or of (w s)^2 ("l2"), and the length
    is that of m / s. Each entry of a tensor stands for `counts` coordinates.
    """
    products = {name: value * matters[name] for name, value in sizes.items()}
    if objective == "l1":
        whole = total({name: value.pow(2 / 3) for name, value in products.items()}, counts).sqrt() / norm
        return {name: value.pow(2 / 3) * matters[name].pow(-1 / 3) * whole for name, value in sizes.items()}
    whole = total(products, counts)
    return {name: (value / matters[name] * whole).sqrt() / norm for name, value in sizes.items()}


def raise_to_floor(values: Tensors, counts: dict[str, float], floor: float) -> dict[str, Tensor]:
    """No value below `floor` times the root mean square; ones where all are zero."""
    mean = total({name: value.square() for name, value in values.items()}, counts) / sum(
        value.numel() * counts[name] for name, value in values.items()
    )
    if not float(mean) > 0:
        return {name: torch.ones_like(value) for name, value in values.items()}
    return {name: value.clamp_min(floor * mean.sqrt()) for name, value in values.items()}


def roots(values: Tensors) -> dict[str, Tensor]:
    """Square roots; 0 where noise made a value negative."""
    return {name: value.clamp_min(0).sqrt() for name, value in values.items()}


def total(values: Tensors, counts: dict[str, float]) -> Tensor:
    """The sum over all coordinates."""
    return torch.stack([value.sum() * counts[name] for name, value in values.items()]).sum()


def blank(like: Tensors) -> dict[str, Tensor]:
    """Zeros of these shapes, in at least single precision."""
    return {
        name: torch.zeros_like(value, dtype=value.dtype if value.dtype == torch.float64 else torch.float32)
        for name, value in like.items()
    }


def mechanism_numbers(lot_size: float) -> dict[str, Tensor]:
    """The two public numbers that a mechanism keeps up to date in a state that has them."""
    return {
        "lot_size": torch.tensor(lot_size, dtype=torch.float64),
        "noise_std": torch.tensor(0.0, dtype=torch.float64),
    }
