"""Clipping at a norm that finds its own level, privately."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tacit import _validate
from tacit.stages.bounds.clip import at_least_single, clip_weights, finite_only
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# No parameter has this name: dots and letters only, in those.
COUNT = "<count of unclipped examples>"
# How far the norm may go from where it started: gradients that are all zero would take it below what numbers can hold.
_FARTHEST = 2.0**40


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
