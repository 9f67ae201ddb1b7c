"""Noise as published without a proof: its events are `Unproven`, and every accountant refuses them.

`RealisedMeanNoise` divides by the realised lot size (Bu et al. 2019). `PrunedNoise` adds noise to the largest
coordinates only, and `DirectionalNoise` shapes the noise by a direction w (both Xiang et al. 2023). `NoisyMean` is the
exception: it releases w, and what that costs is proven.

In directional noise, coordinate i gets a standard deviation sigma_i that makes the sum of |w_i| sigma_i small while
one example stays hidden, which can move the sum by the clip norm in any direction. The printed solution fails at the
second half: it allows for one direction only, the one along w.
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
from tacit.stages.flat import mark_largest, put, unflatten
from tacit.stages.noise.gaussian import GaussianNoise, require_multiplier
from tacit.types import BoundedSum, Tensors

# Under these names a sum or a release carries more than parameters, whose names have only dots, letters and digits.
# The realised lot size over the expected one:
SHARE = "<examples that came, over the lot size>"
# What pruning left out of the parameter whose name follows:
RESIDUAL = "<residual> "

# The texts of events never change: ledgers hold them.
_REALISED = (
    "as private as a sum with this noise",
    "it was divided by the number of examples that came, which moves all others: the mean moves by up to twice what "
    "the noise is for",
)
_DIRECTIONAL = (
    "(epsilon, delta)-DP by Theorem 1 of Xiang et al. 2023",
    "the noise is smallest where w is, one example can put its whole clip norm there, and how small that is "
    "follows from what was released before",
)
_PRUNED = (
    "which coordinates are kept is a deterministic function of private data, and what is left out goes without noise "
    "into every later gradient"
)
# Realised multipliers are rounded down to powers of this, so that thousands of steps have few different ones.
_STEP = 1.02


@dataclass(frozen=True)
class RealisedMeanNoise:
    """Noise for the sum, then the mean over the realised lot size instead of the expected one.

    One more example moves that mean by up to 2 * clip_norm / (number of examples), twice what the noise is for: when
    all others point one way and it points the other. Nothing is proven. An empty lot is not divided.
    """

    multiplier: float | None = None

    def __post_init__(self) -> None:
        GaussianNoise(self.multiplier)  # refuses a wrong multiplier at once

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The noisy sum, scaled so that dividing by the expected lot size gives the mean over the realised one."""
        if SHARE not in bounded.values:
            raise InvalidArgument(
                "This noise divides by the number of examples: wrap the bound, as in Counted(Clip())."
            )
        share = float(bounded.values[SHARE])
        values = {name: value for name, value in bounded.values.items() if name != SHARE}
        noisy = GaussianNoise(self.multiplier).add(BoundedSum(values, bounded.sensitivity), rng)
        return {name: value / share for name, value in noisy.items()} if share else noisy

    def event(self, dimension: int) -> Event:
        return Unproven(*_REALISED)


@dataclass(frozen=True)
class PrunedNoise:
    """Keep the share `keep` of the largest coordinates of the sum, and add Gaussian noise to those (Xiang et al. 2023).

    The rest is returned without noise, to be added to the next gradients (`stages.bounds.FeedbackClip`). So support and
    residual are released without noise, and nothing is proven.
    """

    multiplier: float | None = None
    keep: float = 0.1

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier", rate="keep")

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """Noise where the sum is large, zeros elsewhere; and the residual, without noise."""
        mask = mark_largest(bounded.values, self.keep)
        noisy = GaussianNoise(self.multiplier).add(bounded, rng)
        values = {name: value * mask[name].to(value.dtype) for name, value in noisy.items()}
        return {**values, **put(RESIDUAL, {name: value * (1 - mask[name]) for name, value in bounded.values.items()})}

    def event(self, dimension: int) -> Unproven:
        nominal = GaussianNoise(self.multiplier).event(dimension).multiplier
        return Unproven(f"as private as Gaussian noise of multiplier {nominal:g}", _PRUNED)


@dataclass(frozen=True)
class DirectionalNoise:
    """Noise of standard deviation `multiplier` times `clip_norm` on a sum whose coordinates a shape has stretched.

    The true sensitivity of the stretched sum is larger than the clip norm, by the inverse of the shape's smallest
    entry, and the noise does not grow with it. Nothing is proven; `meter` says what one release came to:
    mu = clip_norm / (smallest sigma).
    """

    clip_norm: float
    multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("clip_norm", "multiplier"))

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The stretched sum with noise for the clip norm, not for its sensitivity."""
        return GaussianNoise(self.multiplier).add(BoundedSum(bounded.values, self.clip_norm), rng)

    def event(self, dimension: int) -> Event:
        return Unproven(*_DIRECTIONAL)

    def meter(self, bounded: BoundedSum) -> Event:
        """The Gaussian release that this one amounts to, rounded upwards in cost; delta 1 if there was no noise."""
        nominal = GaussianNoise(self.multiplier).event(bounded.dimension).multiplier
        ratio = nominal * self.clip_norm / bounded.sensitivity
        if not ratio > 0:
            return EpsilonDelta(0.0, 1.0)
        return Gaussian(_STEP ** math.floor(math.log(ratio, _STEP) + 1e-9))


@dataclass(frozen=True)
class NoisyMean:
    """The mean gradient of all the data, clipped as a whole to `clip_norm`, with noise: the w of Xiang et al. 2023.

    The paper assumes that one example moves it by the clip norm. But the mean is clipped only after the examples were
    averaged, and one unbounded example can turn it round: by twice the clip norm, which is what the event states. The
    values are not rounded to a grid, which would make some of them exactly zero.
    """

    clip_norm: float
    multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="clip_norm")

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """Clip the mean, which nothing bounds, and add the noise."""
        wide = any(value.dtype == torch.float64 for value in bounded.values.values())
        length = math.sqrt(sum(float(value.double().square().sum()) for value in bounded.values.values()))
        factor = 1 / max(1.0, length / self.clip_norm)
        std = require_multiplier(self) * self.clip_norm
        flat = torch.from_numpy(rng.normal(bounded.dimension, wide=wide)).mul_(std)
        noise = unflatten(flat, {name: value.shape for name, value in bounded.values.items()})
        return {name: noise[name].to(value.device).add_(value, alpha=factor) for name, value in bounded.values.items()}

    def event(self, dimension: int) -> Gaussian:
        """A Gaussian release of half the multiplier, because the sensitivity is twice the clip norm."""
        return Gaussian(require_multiplier(self) / 2)


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
    """The same equations with the direction that is the hardest to hide: the noise is isotropic for every w.

    That direction is clip_norm * sqrt(|w_i| / |w|_1), where the paper has clip_norm * w_i / |w|_2 (its equation 13).

    A w of zeros gives the same noise.

    >>> minimax_sigmas(torch.tensor([1.0, 8.0, 0.0]), tau=0.04, clip_norm=1.0)
    tensor([5., 5., 5.])
    """
    sizes = weights.abs() if weights.any() else torch.ones_like(weights)
    total = sizes.sum()
    hardest = clip_norm * (sizes / total).sqrt()
    multiplier = 0.5 * float((hardest * sizes).pow(2 / 3).sum() / tau) ** 1.5
    # hardest² / |w_i| is the same for every i, and stays so as w_i goes to zero.
    return torch.full_like(sizes, (2 * multiplier * clip_norm**2 / float(total)) ** (1 / 3))
