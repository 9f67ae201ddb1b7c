"""Denoising by how little a release looks like noise (Nasr, Shokri and Houmansadr 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from tacit.accounting.densities import Density, Floats, GaussianDensity
from tacit.errors import InvalidArgument
from tacit.stages.flat import flattened
from tacit.stages.noise import BoxNoise, GaussianNoise
from tacit.types import Noise, State, Tensors

# The mean of the Kolmogorov distribution: sqrt(pi / 2) log 2.
_MEAN = 0.8687311606361592


@dataclass(frozen=True)
class KSDenoise:
    """Multiply a release by its Kolmogorov-Smirnov distance from the law of its noise, all coordinates pooled.

    A release that is little more than noise makes a small step. Only the law is looked at, which is public, and never
    the noise that was drawn; the mechanism says which law it is. Of pure noise in d dimensions the distance is about
    0.87 / sqrt(d), so steps become very short: raise the learning rate, or take the distance relative to that of
    pure noise by `is_relative`.
    """

    is_relative: bool = False
    noise: Noise | None = None

    def following(self, noise: Noise) -> KSDenoise:
        """The same for this noise; `InvalidArgument` where its law is not the same on every coordinate."""
        if not isinstance(noise, (GaussianNoise, BoxNoise)):
            raise InvalidArgument(
                f"KSDenoise compares all coordinates with one law, and {type(noise).__name__} has none that is the "
                "same for all. Use it with GaussianNoise or BoxNoise."
            )
        return replace(self, noise=noise)

    def init(self, like: Tensors) -> State:
        """Room for the size of the noise, which the mechanism fills in."""
        return {"noise_std": torch.zeros((), dtype=torch.float64)}

    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]:
        """Every coordinate times the same number: between 0 and 1, unless it is relative."""
        flat = flattened(values).double().cpu().numpy()
        if not flat.size:
            return values, state
        factor = ks_distance(flat, self._law(float(state["noise_std"])))
        if self.is_relative:
            factor *= math.sqrt(flat.size) / _MEAN
        return {name: value * factor for name, value in values.items()}, state

    def _law(self, size: float) -> Density:
        if self.noise is None or not size > 0:
            raise InvalidArgument("KSDenoise does not know its noise. Put it into a Mechanism, as one of its posts.")
        return self.noise.family.density(size) if isinstance(self.noise, BoxNoise) else GaussianDensity(size)


def ks_distance(values: Floats, law: Density) -> float:
    """The largest difference between the distribution function of the values and that of the law.

    >>> from tacit.accounting import GaussianDensity
    >>> round(ks_distance(np.array([-1.2, -0.3, 0.4, 0.9, 2.0]), GaussianDensity()), 8)
    0.25542174
    """
    ascending = np.sort(values)
    below = law.survival(-ascending)
    ranks = np.arange(ascending.size + 1) / ascending.size
    return float(max((ranks[1:] - below).max(), (below - ranks[:-1]).max()))
