"""Algorithm 1 of Xiang et al. 2023 without its pass over all data before every step, which changes next to nothing.

Their w is a mean gradient of length at most the clip norm, under noise of many times that length in every coordinate.
Leaving the mean out moves what a whole run releases by `distance` at most, in total variation. The noise is shaped by
the proportions of w alone, so noise of deviation 1 stands for theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import torch

from tacit import methods
from tacit.methods.directional import TauRule, tau
from tacit.randomness import Stream
from tacit.stages.bounds import FeedbackClip, ShapedClip
from tacit.stages.flat import mark_largest
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import DirectionalNoise, GaussianNoise, PrunedNoise
from tacit.stages.noise.published import RESIDUAL, noise_shape
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# The share of the budget that w takes, unless another is asked for: an eighth.
SHARE = TauRule().share
_APART = 1_000_000_007
_NOTE = "w was drawn by chance, not released: see experiments/directional."


@dataclass(frozen=True)
class ShapedByChance:
    """Clipping whose noise is shaped by a w that is drawn anew for every release, and by nothing else."""

    norm: float
    seed: int

    def init(self, like: Tensors, lot_size: float) -> State:
        """The w of the first release."""
        return self._after(torch.tensor(-1), like)

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        """As published."""
        return self._shaped.sum(gradients, state)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release as published, and another w for the next."""
        return self._shaped.receive(noisy, state)[0], self._after(state["number"], noisy)

    @property
    def _shaped(self) -> ShapedClip:
        return ShapedClip(self.norm, floored=False)

    def _after(self, number: torch.Tensor, like: Tensors) -> State:
        number = number + 1
        # Not the numbers that the first weights were drawn from.
        generator = torch.Generator().manual_seed(_APART * (self.seed + 1) + int(number))
        drawn = {name: torch.randn(value.shape, generator=generator) for name, value in like.items()}
        return self._shaped.steer(drawn, {"number": number})


@dataclass(frozen=True)
class PrunedByChance(PrunedNoise):
    """The published noise on the largest coordinates, shaped by a w that is drawn anew for every release."""

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """Shaped noise where the sum is large, zeros elsewhere; and the residual, un-noised."""
        sizes = [value.numel() for value in bounded.values.values()]
        pieces = torch.from_numpy(rng.normal(sum(sizes), wide=False)).split(sizes)
        drawn = zip(bounded.values.items(), pieces, strict=True)
        shape = noise_shape({name: piece.view(value.shape) for (name, value), piece in drawn})
        mask = mark_largest(bounded.values, self.keep)
        nothing = {name: torch.zeros_like(value) for name, value in bounded.values.items()}
        noise = GaussianNoise(self.multiplier).add(BoundedSum(nothing, bounded.sensitivity), rng)
        values = {name: mask[name] * (value + shape[name] * noise[name]) for name, value in bounded.values.items()}
        left = {RESIDUAL + name: value * (1 - mask[name]) for name, value in bounded.values.items()}
        return {**values, **left}


def full_method(
    clip_norm: float, rate: float, steps: int, epsilon: float, delta: float, seed: int, share: float = SHARE
) -> Mechanism:
    """Algorithm 1 with the noise of its own rule for a claimed epsilon, and w drawn by chance."""
    # Its rule would count w's share of the budget to the rest, and what is said of w is not about this one.
    method = replace(methods.directional(clip_norm, mode="paper").method, claims=None, notes=(_NOTE,))
    noise = DirectionalNoise(clip_norm, _multiplier(rate, steps, epsilon, delta, share))
    return Mechanism(ShapedByChance(clip_norm, seed), noise, method=method)


def pruned_full_method(
    clip_norm: float, rate: float, steps: int, epsilon: float, delta: float, keep: float, share: float = SHARE
) -> Mechanism:
    """The same on the largest coordinates, with what is left out fed back, as the paper has it for large networks."""
    method = replace(methods.pruned(clip_norm, mode="paper").method, claims=None, notes=(_NOTE,))
    noise = PrunedByChance(_multiplier(rate, steps, epsilon, delta, share), keep)
    return Mechanism(FeedbackClip(clip_norm), noise, method=method)


def _multiplier(rate: float, steps: int, epsilon: float, delta: float, share: float) -> float:
    kept = 1 - share
    return 1 / math.sqrt(tau(kept * epsilon / rate, kept * delta / rate, steps))


def noise_on_w(steps: int, epsilon: float, delta: float) -> float:
    """The standard deviation of the published noise on w, over the clip norm: w itself is no longer than that."""
    share = TauRule().share
    return 1 / math.sqrt(tau(share * epsilon, share * delta, steps))


def distance(steps: int, epsilon: float, delta: float) -> float:
    """How far the releases of such a run are, in total variation, from those of Algorithm 1.

    Together the steps are one Gaussian release of a difference of sqrt(steps * tau) standard deviations.
    """
    return 2 * NormalDist().cdf(math.sqrt(steps) / noise_on_w(steps, epsilon, delta) / 2) - 1
