"""The Laplace law, and the law of the sum of two Laplace numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.accounting.densities import Floats, LaplaceDensity, VarianceGammaDensity
from tacit.randomness import Stream
from tacit.stages.noise.laws import draw_signs, draw_uniform, register_family


@dataclass(frozen=True)
class Laplace:
    """The two-sided exponential law."""

    name: ClassVar[str] = "laplace"
    label: ClassVar[str] = "Laplace"
    mean_absolute: ClassVar[float] = math.sqrt(0.5)
    mean_square: ClassVar[float] = 1.0

    def density(self, size: float) -> LaplaceDensity:
        return LaplaceDensity(size * math.sqrt(0.5))

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function."""
        return draw_signs(rng, -math.sqrt(0.5) * np.log(draw_uniform(rng, count)))


@dataclass(frozen=True)
class VarianceGamma:
    """The symmetric variance-gamma law of shape 2: the sum of two Laplace numbers."""

    name: ClassVar[str] = "variance_gamma"
    label: ClassVar[str] = "variance-gamma"
    mean_absolute: ClassVar[float] = 0.75
    mean_square: ClassVar[float] = 1.0

    def density(self, size: float) -> VarianceGammaDensity:
        return VarianceGammaDensity(size / 2)

    def draw(self, rng: Stream, count: int) -> Floats:
        """Two Laplace numbers of variance a half."""
        return (Laplace().draw(rng, count) + Laplace().draw(rng, count)) * math.sqrt(0.5)


register_family(Laplace())
register_family(VarianceGamma())
