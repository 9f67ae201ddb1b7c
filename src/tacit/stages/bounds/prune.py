"""Pruning before the noise: by a mask that past releases chose, or, as published, with an error fed back.

The first is proven: which coordinates are looked at is public before a lot is drawn. The second adds to every
gradient what earlier steps left out, un-noised: within one step nothing is wrong with its sensitivity, but
what it remembers is private, and one example of the past reaches every gradient of the present.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import _validate
from tacit.stages.bounds.clip import at_least_single, clip_weights, finite_only
from tacit.stages.flat import mark_largest
from tacit.stages.noise.published import RESIDUAL
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# No parameter has such a name: dots and letters only, in those.
_MASK, _MEAN = "<mask> ", "<mean> "


@dataclass(frozen=True)
class MaskedClip:
    """Clip what a mask leaves of each gradient; the mask is where past releases were largest.

    A share `keep` of the coordinates is looked at, and only these carry noise. Every `refresh`-th step, the first
    included, looks at all of them, or what was left out once would never come back. Past releases are
    averaged exponentially with `memory`.
    """

    norm: float = 1.0
    keep: float = 0.1
    refresh: int = 10
    memory: float = 0.9

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))
        object.__setattr__(self, "keep", _validate.rate("keep", self.keep))
        object.__setattr__(self, "refresh", _validate.count("refresh", self.refresh))
        object.__setattr__(self, "memory", _validate.unit("memory", self.memory))

    def init(self, like: Tensors, lot_size: float) -> State:
        """All coordinates at first."""
        return {
            "step": torch.tensor(0),
            **{_MASK + name: torch.ones_like(value) for name, value in like.items()},
            **{_MEAN + name: torch.zeros_like(value) for name, value in like.items()},
        }

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of masked and clipped gradients."""
        mask = _under(_MASK, state)
        norms = at_least_single(gradients.scaled_norms(mask))
        # An example that is not finite where nobody looks counts zero all the same.
        weights = finite_only(gradients.norms(), clip_weights(norms, self.norm))
        sums = gradients.weighted_sum(weights)
        return BoundedSum({name: value * mask[name].to(value.dtype) for name, value in sums.items()}, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Take the noise off where nothing was looked at, and choose where to look next."""
        mask, mean = _under(_MASK, state), _under(_MEAN, state)
        values = {name: value * mask[name].to(value.dtype) for name, value in noisy.items()}
        seen = {name: torch.where(mask[name] > 0, self._averaged(values[name], old), old) for name, old in mean.items()}
        step = int(state["step"]) + 1
        chosen = (
            mark_largest(seen, self.keep) if step % self.refresh else {n: torch.ones_like(m) for n, m in mask.items()}
        )
        return values, {
            "step": state["step"].new_tensor(step),
            **{_MASK + name: value for name, value in chosen.items()},
            **{_MEAN + name: value for name, value in seen.items()},
        }

    def _averaged(self, value: Tensor, old: Tensor) -> Tensor:
        return self.memory * old + (1 - self.memory) * value.to(old.dtype)


@dataclass(frozen=True)
class FeedbackClip:
    """Add to every gradient what earlier steps left out, then clip (Xiang et al. 2023, as published).

    Its state is fed by the published noise (`stages.noise.PrunedNoise`), which hands over the residual as it is.
    Nothing is proven about what comes of it.
    """

    norm: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", _validate.positive("norm", self.norm))

    def init(self, like: Tensors, lot_size: float) -> State:
        """Nothing was left out yet."""
        lot = {"lot_size": torch.tensor(lot_size, dtype=torch.float64)}
        return {**lot, **{RESIDUAL + name: torch.zeros_like(value) for name, value in like.items()}}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """The sum of clipped (gradient + residual), without forming one of them."""
        residual = _under(RESIDUAL, state)
        own = at_least_single(gradients.norms())
        length = sum(float(value.double().square().sum()) for value in residual.values())
        squares = own.square() + 2 * gradients.products(residual).to(own.dtype) + length
        weights = finite_only(own, clip_weights(squares.clamp_min(0).sqrt(), self.norm))
        sums, together = gradients.weighted_sum(weights), weights.sum()
        values = {name: value + (together * residual[name]).to(value.dtype) for name, value in sums.items()}
        return BoundedSum(values, self.norm)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """Take the residual off what came, in the units of one average gradient."""
        left = {name: value for name, value in noisy.items() if name.startswith(RESIDUAL)}
        values = {name: value for name, value in noisy.items() if not name.startswith(RESIDUAL)}
        return values, {**state, **{name: value / float(state["lot_size"]) for name, value in left.items()}}


def _under(prefix: str, state: State) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
