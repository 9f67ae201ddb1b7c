"""Student's t, and the Cauchy law, which is Student's t with one degree of freedom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import _validate
from tacit.accounting.densities import Floats, StudentTDensity
from tacit.randomness import Stream
from tacit.stages.noise.laws import draw_signs, draw_uniform, register_family


@dataclass(frozen=True)
class StudentT:
    """Student's t with `dof` degrees of freedom; Nasr et al. 2020 use nine.

    Its size is its standard deviation. With two degrees or fewer it has none, and its size is its scale.
    """

    dof: float = 9.0
    name: ClassVar[str] = "student_t"

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="dof")

    @property
    def label(self) -> str:
        return f"Student-t, {self.dof:g} dof"

    @property
    def mean_absolute(self) -> float:
        """Infinite with one degree of freedom or fewer."""
        if self.dof <= 1:
            return math.inf
        ratio = math.exp(math.lgamma((self.dof + 1) / 2) - math.lgamma(self.dof / 2))
        return self._scale * 2 * math.sqrt(self.dof / math.pi) * ratio / (self.dof - 1)

    @property
    def mean_square(self) -> float:
        return 1.0 if self.dof > 2 else math.inf

    @property
    def _scale(self) -> float:
        return math.sqrt((self.dof - 2) / self.dof) if self.dof > 2 else 1.0

    def density(self, size: float) -> StudentTDensity:
        return StudentTDensity(self.dof, self._scale * size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """By Bailey's polar method: sqrt(dof (u^{-2/dof} - 1)) cos(2 pi v) has the law for uniform u and v."""
        radius = np.sqrt(self.dof * np.expm1(-2 / self.dof * np.log(draw_uniform(rng, count))))
        return np.asarray(self._scale * radius * np.cos(2 * math.pi * draw_uniform(rng, count)))


@dataclass(frozen=True)
class Cauchy:
    """The Cauchy law. It has no standard deviation; its size is its scale, the half width at half height."""

    name: ClassVar[str] = "cauchy"
    label: ClassVar[str] = "Cauchy"
    mean_absolute: ClassVar[float] = math.inf
    mean_square: ClassVar[float] = math.inf

    def density(self, size: float) -> StudentTDensity:
        return StudentTDensity(1.0, size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function, on which the far tail is as accurate as the middle."""
        return draw_signs(rng, 1 / np.tan(math.pi / 2 * draw_uniform(rng, count)))


register_family(StudentT())
register_family(Cauchy())
