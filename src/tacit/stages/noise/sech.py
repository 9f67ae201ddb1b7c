"""The hyperbolic secant law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.accounting.densities import Floats, SechDensity
from tacit.randomness import Stream
from tacit.stages.noise.laws import draw_signs, draw_uniform, register_family


@dataclass(frozen=True)
class Sech:
    """The hyperbolic secant law."""

    name: ClassVar[str] = "sech"
    label: ClassVar[str] = "sech"
    # 8 G / pi^2 with Catalan's constant G.
    mean_absolute: ClassVar[float] = 8 * 0.915965594177219015 / math.pi**2
    mean_square: ClassVar[float] = 1.0

    def density(self, size: float) -> SechDensity:
        return SechDensity(size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function."""
        return draw_signs(rng, -2 / math.pi * np.log(np.tan(math.pi / 4 * draw_uniform(rng, count))))


register_family(Sech())
