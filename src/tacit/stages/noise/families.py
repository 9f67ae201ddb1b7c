"""Noise laws on one coordinate, and how a number of each is drawn from random bits.

Every law is symmetric about zero and falls off on both sides: that is all that its accounting needs. Draws are
exact up to the rounding of double precision: each inverts its distribution function, or is a function of
uniform numbers that has the law by construction. A uniform number comes from 64 bits, so tails reach to 2^-64.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.densities import (
    Density,
    GaussianDensity,
    LaplaceDensity,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
)
from tacit.errors import InvalidArgument
from tacit.randomness import Stream

Floats = NDArray[np.float64]


@runtime_checkable
class Family(Hashable, Protocol):
    """A law up to its `size`: the standard deviation, or where there is none, its scale.

    `mean_absolute` and `mean_square` are those of size 1; infinite where they do not exist.
    """

    @property
    def mean_absolute(self) -> float: ...
    @property
    def mean_square(self) -> float: ...
    def density(self, size: float) -> Density: ...
    def draw(self, rng: Stream, count: int) -> Floats: ...


@dataclass(frozen=True)
class Normal:
    """The Gaussian law."""

    mean_absolute = math.sqrt(2 / math.pi)
    mean_square = 1.0

    def density(self, size: float) -> GaussianDensity:
        """With standard deviation `size`."""
        return GaussianDensity(size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """By Box and Muller's method."""
        return rng.normal(count, wide=True)


@dataclass(frozen=True)
class StudentT:
    """Student's t with `dof` degrees of freedom; Nasr et al. 2020 use nine.

    Its size is its standard deviation. With two degrees or fewer it has none, and its size is its scale.
    """

    dof: float = 9.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dof", _validate.positive("dof", self.dof))

    @property
    def mean_absolute(self) -> float:
        """Infinite with one degree of freedom or fewer."""
        if self.dof <= 1:
            return math.inf
        ratio = math.exp(math.lgamma((self.dof + 1) / 2) - math.lgamma(self.dof / 2))
        return self._scale * 2 * math.sqrt(self.dof / math.pi) * ratio / (self.dof - 1)

    @property
    def mean_square(self) -> float:
        """One, where there is a standard deviation."""
        return 1.0 if self.dof > 2 else math.inf

    @property
    def _scale(self) -> float:
        return math.sqrt((self.dof - 2) / self.dof) if self.dof > 2 else 1.0

    def density(self, size: float) -> StudentTDensity:
        """With standard deviation, or else scale, `size`."""
        return StudentTDensity(self.dof, self._scale * size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """By Bailey's polar method: sqrt(dof (u^{-2/dof} - 1)) cos(2 pi v) has the law for uniform u and v."""
        radius = np.sqrt(self.dof * np.expm1(-2 / self.dof * np.log(uniform(rng, count))))
        return np.asarray(self._scale * radius * np.cos(2 * math.pi * uniform(rng, count)))


@dataclass(frozen=True)
class Cauchy:
    """The Cauchy law. It has no standard deviation; its size is its scale, the half width at half height."""

    mean_absolute = math.inf
    mean_square = math.inf

    def density(self, size: float) -> StudentTDensity:
        """Student's t with one degree of freedom."""
        return StudentTDensity(1.0, size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function, on which the far tail is as accurate as the middle."""
        return signed(rng, 1 / np.tan(math.pi / 2 * uniform(rng, count)))


@dataclass(frozen=True)
class Laplace:
    """The two-sided exponential law."""

    mean_absolute = math.sqrt(0.5)
    mean_square = 1.0

    def density(self, size: float) -> LaplaceDensity:
        """With standard deviation `size`."""
        return LaplaceDensity(size * math.sqrt(0.5))

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function."""
        return signed(rng, -math.sqrt(0.5) * np.log(uniform(rng, count)))


@dataclass(frozen=True)
class VarianceGamma:
    """The symmetric variance-gamma law of shape 2: the sum of two Laplace numbers."""

    mean_absolute = 0.75
    mean_square = 1.0

    def density(self, size: float) -> VarianceGammaDensity:
        """With standard deviation `size`."""
        return VarianceGammaDensity(size / 2)

    def draw(self, rng: Stream, count: int) -> Floats:
        """Two Laplace numbers of variance a half."""
        return (Laplace().draw(rng, count) + Laplace().draw(rng, count)) * math.sqrt(0.5)


@dataclass(frozen=True)
class Sech:
    """The hyperbolic secant law."""

    # 8 G / pi^2 with Catalan's constant G.
    mean_absolute = 8 * 0.915965594177219015 / math.pi**2
    mean_square = 1.0

    def density(self, size: float) -> SechDensity:
        """With standard deviation `size`."""
        return SechDensity(size)

    def draw(self, rng: Stream, count: int) -> Floats:
        """The inverse of the survival function."""
        return signed(rng, -2 / math.pi * np.log(np.tan(math.pi / 4 * uniform(rng, count))))


FAMILIES: dict[str, Family] = {
    "gaussian": Normal(),
    "student_t": StudentT(),
    "laplace": Laplace(),
    "cauchy": Cauchy(),
    "variance_gamma": VarianceGamma(),
    "sech": Sech(),
}


def family_named(name: str | Family) -> Family:
    """A family by its name, or as it is given."""
    if isinstance(name, str):
        if name not in FAMILIES:
            raise InvalidArgument(f"noise must be one of {', '.join(map(repr, FAMILIES))}. Got {name!r}.")
        return FAMILIES[name]
    if isinstance(name, type) or not isinstance(name, Family):
        raise InvalidArgument(f"noise must be a name or a family such as StudentT(dof=5). Got {name!r}.")
    return name


def uniform(rng: Stream, count: int) -> Floats:
    """(k + 1/2) / 2^64 for random k: evenly in (0, 1]."""
    bits: NDArray[Any] = np.empty(count, dtype=np.uint64)
    rng.fill(bits)
    numbers = bits.astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-64
    return numbers


def signed(rng: Stream, magnitudes: Floats) -> Floats:
    """Each magnitude with a random sign."""
    bits: NDArray[Any] = np.empty(magnitudes.size, dtype=np.uint8)
    rng.fill(bits)
    return np.where(bits & 1, magnitudes, -magnitudes)
