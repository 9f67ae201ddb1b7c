"""Directional noise as Xiang et al. 2023 publish it, and what its equations give when they are solved correctly.

Given how much each coordinate matters (w), the noise of coordinate i is to have a standard deviation sigma_i that makes
the sum of |w_i| sigma_i small while one example, moving the sum by at most the clip norm in any direction, stays
hidden. The second half of that is where the printed solution fails: it allows for one direction only, the one along w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import _validate
from tacit.accounting.events import EpsilonDelta, Event, Gaussian, Unproven
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.gaussian import GaussianNoise
from tacit.types import BoundedSum, Tensors

_CLAIM = "(epsilon, delta)-DP by Theorem 1 of Xiang et al. 2023"
_REASON = (
    "the noise is smallest where w is, one example can put its whole clip norm there, and how small that is "
    "follows from what was released before"
)
# Realised multipliers are rounded down to powers of this, so that thousands of steps have few different ones.
_STEP = 1.02


def noise_shape(weights: Tensors) -> dict[str, Tensor]:
    """sigma_i over the isotropic sigma, by equations 11 to 13 as printed: it grows with |w_i|^(1/3).

    Equal weights give ones, and so does a w that is zero everywhere. A single w_i of zero gets no noise at all.
    """
    sizes = {name: value.abs() for name, value in weights.items()}
    largest = max((float(value.max()) for value in sizes.values() if value.numel()), default=0.0)
    if not largest > 0:
        return {name: torch.ones_like(value) for name, value in sizes.items()}
    # Only proportions matter, and powers of tiny numbers would vanish.
    sizes = {name: value / largest for name, value in sizes.items()}
    powers = sum(float(value.double().pow(4 / 3).sum()) for value in sizes.values())
    squares = sum(float(value.double().square().sum()) for value in sizes.values())
    return {name: value.pow(1 / 3) * math.sqrt(powers / squares) for name, value in sizes.items()}


def printed_sigmas(weights: Tensor, tau: float, clip_norm: float) -> Tensor:
    """The standard deviations of Xiang et al. 2023 for a bound `tau` on the squared signal-to-noise ratio.

    >>> printed_sigmas(torch.tensor([1.0, 8.0, 27.0]), tau=0.04, clip_norm=1.0)
    tensor([1.7566, 3.5132, 5.2698])
    """
    return noise_shape({"": weights})[""] * (clip_norm / math.sqrt(tau))


def minimax_sigmas(weights: Tensor, tau: float, clip_norm: float) -> Tensor:
    """The same equations with the direction that is the hardest to hide: the noise is isotropic, whatever w.

    That direction is clip_norm * sqrt(|w_i| / |w|_1), where the paper has clip_norm * w_i / |w|_2 (its equation 13).

    >>> minimax_sigmas(torch.tensor([1.0, 8.0, 27.0]), tau=0.04, clip_norm=1.0)
    tensor([5., 5., 5.])
    """
    sizes = weights.abs()
    hardest = clip_norm * (sizes / sizes.sum()).sqrt()
    multiplier = 0.5 * float((hardest * sizes).pow(2 / 3).sum() / tau) ** 1.5
    sigmas: Tensor = (2 * multiplier * hardest.square() / sizes).pow(1 / 3)
    return sigmas


@dataclass(frozen=True)
class DirectionalNoise:
    """Noise of standard deviation `multiplier` times `clip_norm` on a sum whose coordinates a shape has stretched.

    As published: the true sensitivity of the stretched sum is larger than the clip norm, by the inverse of the
    shape's smallest entry, and the noise does not grow with it. Nothing is proven of it, and `realised` says what a
    release came to: mu = clip_norm / (smallest sigma).
    """

    clip_norm: float
    multiplier: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", _validate.positive("clip_norm", self.clip_norm))
        if self.multiplier is not None:
            object.__setattr__(self, "multiplier", _validate.positive("multiplier", self.multiplier))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The stretched sum with noise for the clip norm, not for its sensitivity."""
        return GaussianNoise(self.multiplier).add(BoundedSum(bounded.values, self.clip_norm), rng)

    def event(self, dimension: int) -> Event:
        """A release that no accountant will sum up."""
        return Unproven(_CLAIM, _REASON)

    def realised(self, bounded: BoundedSum) -> Event:
        """The Gaussian release that this one happened to be, rounded to the worse; delta 1 where there was no noise."""
        nominal = GaussianNoise(self.multiplier).event(bounded.dimension).multiplier
        ratio = nominal * self.clip_norm / bounded.sensitivity
        if not ratio > 0:
            return EpsilonDelta(0.0, 1.0)
        return Gaussian(_STEP ** math.floor(math.log(ratio, _STEP) + 1e-9))


@dataclass(frozen=True)
class NoisyMean:
    """The mean gradient of all the data, clipped as a whole to `clip_norm`, with noise: the w of Xiang et al. 2023.

    The paper counts on one example moving it by the clip norm. But the mean is clipped only after the examples were
    averaged, and one example, unbounded as it is, can turn it round: by twice the clip norm, which is what the
    event says. The values are not rounded to a grid, for that would make some of them exactly zero.
    """

    clip_norm: float
    multiplier: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", _validate.positive("clip_norm", self.clip_norm))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """Clip the mean, which nothing bounds, and add the noise."""
        wide = any(value.dtype == torch.float64 for value in bounded.values.values())
        length = math.sqrt(sum(float(value.double().square().sum()) for value in bounded.values.values()))
        factor = 1 / max(1.0, length / self.clip_norm)
        flat = torch.from_numpy(rng.normal(bounded.dimension, wide=wide)).mul_(self._known() * self.clip_norm)
        noisy, start = {}, 0
        for name, value in bounded.values.items():
            piece = flat[start : start + value.numel()].view(value.shape).to(value.device)
            noisy[name] = piece.add_(value, alpha=factor)
            start += value.numel()
        return noisy

    def event(self, dimension: int) -> Gaussian:
        """A Gaussian release of half the multiplier, for the sensitivity is twice the clip norm."""
        return Gaussian(self._known() / 2)

    def _known(self) -> float:
        if self.multiplier is None:
            raise InvalidArgument(
                "The noise of w has no multiplier yet. The paper's rule needs a budget to find it from: "
                "PrivateRun(..., budget=Budget(epsilon=1, delta=1e-5))."
            )
        return self.multiplier
