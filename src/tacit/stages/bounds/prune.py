"""Pruning before the noise: by a mask from past releases, or, as published, with error feedback.

The first is proven: the mask is public before a lot is drawn. The second adds to every gradient what earlier steps left
out, without noise. Within one step its sensitivity is right, but its state is private, and one example of a past lot
affects every later gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tacit import _validate
from tacit.stages.bounds.clip import at_least_single, clip_weights, finite_only
from tacit.stages.flat import mark_largest, put, select
from tacit.stages.noise.published import RESIDUAL
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# No parameter has such a name: dots and letters only, in those.
_MASK, _MEAN = "<mask> ", "<mean> "


@dataclass(frozen=True)
class MaskedClip:
    """Clip the coordinates of each gradient in which past releases were largest, and drop the others.

    A share `keep` of the coordinates is used, and only these carry noise. Every `refresh`-th step, the first included,
    uses all of them; otherwise a coordinate that was left out once would never return. `memory` is that of the
    exponential average of past releases.
    """

    norm: float = 1.0
    keep: float = 0.1
    refresh: int = 10
    memory: float = 0.9

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="norm", rate="keep", count="refresh", unit="memory")

    def init(self, like: Tensors, lot_size: float) -> State:
        return {
            "step": torch.tensor(0),
            **put(_MASK, {name: torch.ones_like(value) for name, value in like.items()}),
            **put(_MEAN, {name: torch.zeros_like(value) for name, value in like.items()}),
        }

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        mask = select(_MASK, state)
        norms = at_least_single(gradients.scaled_norms(mask))
        # An example that is not finite outside the mask counts zero too.
        weights = finite_only(gradients.norms(), clip_weights(norms, self.norm))
        sums = gradients.weighted_sum(weights)
        return BoundedSum({name: value * mask[name].to(value.dtype) for name, value in sums.items()}, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Remove the noise outside the mask, and choose the next mask."""
        mask, mean = select(_MASK, state), select(_MEAN, state)
        values = {name: value * mask[name].to(value.dtype) for name, value in noisy.items()}
        seen = {}
        for name, old in mean.items():
            average = self.memory * old + (1 - self.memory) * values[name].to(old.dtype)
            seen[name] = torch.where(mask[name] > 0, average, old)
        step = int(state["step"]) + 1
        chosen = (
            mark_largest(seen, self.keep) if step % self.refresh else {n: torch.ones_like(m) for n, m in mask.items()}
        )
        return values, {"step": state["step"].new_tensor(step), **put(_MASK, chosen), **put(_MEAN, seen)}


@dataclass(frozen=True)
class FeedbackClip:
    """Add to every gradient what earlier steps left out, then clip (Xiang et al. 2023, as published).

    `stages.noise.PrunedNoise` returns the residual without noise, and it becomes the state. Nothing is proven.
    """

    norm: float = 1.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="norm")

    def init(self, like: Tensors, lot_size: float) -> State:
        lot = {"lot_size": torch.tensor(lot_size, dtype=torch.float64)}
        return {**lot, **put(RESIDUAL, {name: torch.zeros_like(value) for name, value in like.items()})}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped (gradient + residual), computed without the individual gradients."""
        residual = select(RESIDUAL, state)
        own = at_least_single(gradients.norms())
        length = sum(float(value.double().square().sum()) for value in residual.values())
        squares = own.square() + 2 * gradients.products(residual).to(own.dtype) + length
        weights = finite_only(own, clip_weights(squares.clamp_min(0).sqrt(), self.norm))
        sums, together = gradients.weighted_sum(weights), weights.sum()
        values = {name: value + (together * residual[name]).to(value.dtype) for name, value in sums.items()}
        return BoundedSum(values, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Remove the residual from the release, in units of one average gradient."""
        left = {name: value for name, value in noisy.items() if name.startswith(RESIDUAL)}
        values = {name: value for name, value in noisy.items() if not name.startswith(RESIDUAL)}
        return values, {**state, **{name: value / float(state["lot_size"]) for name, value in left.items()}}
