"""Noise laws on one coordinate, by name.

One file adds a law. It defines a frozen dataclass with the members of `Family` and calls `register_family` on one of
its objects. A density that accounting does not have yet is defined there too, and passed to
`tacit.accounting.densities.register_density`, so that events with it can be saved. The file is found

- in this folder, by listing the folder;
- in an installed package, by an entry point of the group `tacit.stages.noise` whose value is the module;
- anywhere else, once it has been imported.

The accounting holds for every law that is symmetric about zero and falls off on both sides
(docs/reference/methods/encoded.md).
Draws are exact up to the rounding of double precision: each inverts its distribution function, or is a function of
uniform numbers that has the law by construction. A uniform number has 64 random bits, so tails reach to 2^-64.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Hashable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.densities import (
    Density,
    Floats,
    LaplaceDensity,
    SechDensity,
    StudentTDensity,
    VarianceGammaDensity,
)
from tacit.errors import InvalidArgument
from tacit.randomness import Stream

GROUP = "tacit.stages.noise"
_families: dict[str, Family] = {}


@runtime_checkable
class Family(Hashable, Protocol):
    """A law up to its `size`: its standard deviation, or its scale if it has no standard deviation.

    `name` is what users type, `label` what tables and plots show. `mean_absolute` and `mean_square` are those of size
    1, or infinite. `density` is for the accountant. `draw` returns `count` numbers of size 1 from random bits.
    """

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def mean_absolute(self) -> float: ...
    @property
    def mean_square(self) -> float: ...
    def density(self, size: float) -> Density: ...
    def draw(self, rng: Stream, count: int) -> Floats: ...


def register_family(family: Family) -> None:
    """List the law under its name, with these parameters."""
    if isinstance(family, type) or not isinstance(family, Family):
        raise InvalidArgument(f"A noise law needs all members of tacit.stages.noise.Family. Got {family!r}.")
    known = _families.setdefault(family.name, family)
    if (type(known).__module__, known) != (type(family).__module__, family):
        raise InvalidArgument(f"There is already a noise law {family.name!r}: {known!r}. Choose another name.")


def list_families() -> dict[str, Family]:
    """Every law by its name, Gaussian first."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        import_module(f"{__package__}.{module.name}")
    for point in entry_points(group=GROUP):
        import_module(point.module)
    return {name: _families[name] for name in ("gaussian", *(name for name in _families if name != "gaussian"))}


def find_family(name: str | Family) -> Family:
    """The law of that name, or `name` itself if it is a law."""
    if isinstance(name, str):
        # Looking through installed packages takes milliseconds, and plots ask often.
        families = _families if name in _families else list_families()
        if name not in families:
            raise InvalidArgument(f"noise must be one of {', '.join(map(repr, families))}. Got {name!r}.")
        return families[name]
    if isinstance(name, type) or not isinstance(name, Family):
        raise InvalidArgument(f"noise must be a name or a law such as StudentT(dof=5). Got {name!r}.")
    return name


def draw_uniform(rng: Stream, count: int) -> Floats:
    """(k + 1/2) / 2^64 for random k: evenly in (0, 1]."""
    bits: NDArray[Any] = np.empty(count, dtype=np.uint64)
    rng.fill(bits)
    numbers = bits.astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-64
    return numbers


def draw_signs(rng: Stream, magnitudes: Floats) -> Floats:
    """Each magnitude with a random sign."""
    bits: NDArray[Any] = np.empty(magnitudes.size, dtype=np.uint8)
    rng.fill(bits)
    return np.where(bits & 1, magnitudes, -magnitudes)


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


for _family in (Laplace(), VarianceGamma(), Sech(), StudentT(), Cauchy()):
    register_family(_family)
