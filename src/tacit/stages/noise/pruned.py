"""Noise on the largest coordinates only, as Xiang et al. 2023 publish it. Which they are is not hidden."""

from __future__ import annotations

from dataclasses import dataclass

from tacit import _validate
from tacit.accounting.events import Unproven
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.bounds.prune import residual_name
from tacit.stages.flat import largest
from tacit.stages.noise.gaussian import GaussianNoise
from tacit.types import BoundedSum, Tensors

LEAKS = (
    "which coordinates are kept is a deterministic function of private data, and what is left out goes without noise "
    "into every later gradient"
)


@dataclass(frozen=True)
class PrunedNoise:
    """Keep the share `keep` of the largest coordinates of the sum, and put Gaussian noise on those.

    The rest is handed on as it is, to be added to the next gradients (`stages.bounds.FeedbackClip`): support and
    residual are released without noise, and that is what this stage does in plain sight. Its event is unproven.
    """

    multiplier: float | None = None
    keep: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", _validate.rate("keep", self.keep))
        if self.multiplier is not None:
            object.__setattr__(self, "multiplier", _validate.positive("multiplier", self.multiplier))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """Noise where the sum is large, zeros elsewhere; and the residual, un-noised."""
        mask = largest(bounded.values, self.keep)
        noisy = GaussianNoise(self.multiplier).add(bounded, rng)
        values = {name: value * mask[name].to(value.dtype) for name, value in noisy.items()}
        left = {residual_name(name): value * (1 - mask[name]) for name, value in bounded.values.items()}
        return {**values, **left}

    def event(self, dimension: int) -> Unproven:
        """A release that no accountant will sum up."""
        if self.multiplier is None:
            raise InvalidArgument("This noise has no multiplier yet. Give one, or give PrivateRun a budget.")
        return Unproven(f"as private as Gaussian noise of multiplier {self.multiplier:g}", LEAKS)
