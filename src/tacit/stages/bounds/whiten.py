"""Whitened clipping: gradients are clipped in coordinates that earlier releases have stretched.

One example contributes at most `norm` in those coordinates, whatever the stretching, and the noise there is the same in
every direction; stretching back comes after the noise and costs nothing. So a step costs what an ordinary clipped step
costs, while in the original coordinates the noise is smaller where gradients are small or matter more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.stages.bounds.clip import at_least_single, clip_weights
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

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
