"""Noise densities on the line: symmetric about zero, unimodal, positive everywhere.

For every such density a larger shift is easier to detect (docs/reference/methods/encoded.md has the proof), so the
largest
shift that one example can cause covers all smaller ones. A density is frozen data, so that events can hold it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit import _validate
from tacit.errors import InvalidArgument

Floats = NDArray[np.float64]


@runtime_checkable
class Density(Hashable, Protocol):
    """What an accountant needs to know about noise: continuous, positive, even, non-increasing in |x|.

    `survival` is P(noise > x), accurate relative to itself for large x. `loss` is
    log z(x - shift) - log z(x), accurate for small shifts. `loss_turns` lists the points where it
    is not smooth or stops rising or falling; none where z is smooth and log-concave. `loss_limit`
    is its value as x goes to +infinity: infinite for Gaussian tails.
    `typical_scale` only sets the resolution of a grid.
    """

    @property
    def typical_scale(self) -> float: ...
    def log_density(self, x: Floats) -> Floats: ...
    def survival(self, x: Floats) -> Floats: ...
    def loss(self, x: Floats, shift: float) -> Floats: ...
    def loss_turns(self, shift: float) -> tuple[float, ...]: ...
    def loss_limit(self, shift: float) -> float: ...


@dataclass(frozen=True)
class _Scaled:
    """A density with no parameter but its scale."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="scale")

    @property
    def typical_scale(self) -> float:
        return self.scale


@dataclass(frozen=True)
class _Smooth(_Scaled):
    """Smooth and log-concave."""

    def loss_turns(self, shift: float) -> tuple[float, ...]:
        return ()


@dataclass(frozen=True)
class _Exponential(_Scaled):
    """With tails like e^{-|x| / scale} and a kink at zero."""

    def loss_turns(self, shift: float) -> tuple[float, ...]:
        return (0.0, shift)

    def loss_limit(self, shift: float) -> float:
        return shift / self.scale


@dataclass(frozen=True)
class GaussianDensity(_Smooth):
    """Normal with standard deviation `scale`."""

    def log_density(self, x: Floats) -> Floats:
        return -0.5 * (x / self.scale) ** 2 - math.log(self.scale * math.sqrt(2 * math.pi))

    def survival(self, x: Floats) -> Floats:
        return np.asarray(special.ndtr(-x / self.scale))

    def loss(self, x: Floats, shift: float) -> Floats:
        return shift * (x - shift / 2) / self.scale**2

    def loss_limit(self, shift: float) -> float:
        return math.inf


@dataclass(frozen=True)
class LaplaceDensity(_Exponential):
    """exp(-|x| / scale) / (2 scale); variance 2 scale^2."""

    def log_density(self, x: Floats) -> Floats:
        return -np.abs(x) / self.scale - math.log(2 * self.scale)

    def survival(self, x: Floats) -> Floats:
        tail = 0.5 * np.exp(-np.abs(x) / self.scale)
        return np.where(x > 0, tail, 1 - tail)

    def loss(self, x: Floats, shift: float) -> Floats:
        return np.clip(2 * x - shift, -shift, shift) / self.scale


@dataclass(frozen=True)
class StudentTDensity:
    """Student's t with `dof` degrees of freedom, stretched by `scale`. One degree is the Cauchy law."""

    dof: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("dof", "scale"))

    @property
    def typical_scale(self) -> float:
        return self.scale

    def log_density(self, x: Floats) -> Floats:
        nu = self.dof
        constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
        return constant - math.log(self.scale) - (nu + 1) / 2 * np.log1p((x / self.scale) ** 2 / nu)

    def survival(self, x: Floats) -> Floats:
        return np.asarray(special.stdtr(self.dof, -x / self.scale))

    def loss(self, x: Floats, shift: float) -> Floats:
        ratio = shift * (2 * x - shift) / (self.dof * self.scale**2 + (x - shift) ** 2)
        return np.asarray((self.dof + 1) / 2 * np.log1p(ratio))

    def loss_turns(self, shift: float) -> tuple[float, ...]:
        # Where x / (nu s^2 + x^2) takes the same value at x and x - shift: x^2 - shift x = nu s^2.
        root = math.sqrt(shift**2 + 4 * self.dof * self.scale**2)
        return ((shift - root) / 2, (shift + root) / 2)

    def loss_limit(self, shift: float) -> float:
        return 0.0


@dataclass(frozen=True)
class SechDensity(_Smooth):
    """sech(pi x / (2 scale)) / (2 scale); variance scale^2."""

    def log_density(self, x: Floats) -> Floats:
        a = np.abs(x) * (math.pi / (2 * self.scale))
        return -a - np.log1p(np.exp(-2 * a)) - math.log(self.scale)

    def survival(self, x: Floats) -> Floats:
        return np.asarray(2 / math.pi * np.arctan(np.exp(-np.clip(x / self.scale, -400, 400) * math.pi / 2)))

    def loss(self, x: Floats, shift: float) -> Floats:
        rate = math.pi / self.scale
        straight = np.clip(2 * x - shift, -shift, shift) * rate / 2
        bends = np.log1p(np.exp(-np.abs(x) * rate)) - np.log1p(np.exp(-np.abs(x - shift) * rate))
        return np.asarray(straight + bends)

    def loss_limit(self, shift: float) -> float:
        return math.pi * shift / (2 * self.scale)


@dataclass(frozen=True)
class VarianceGammaDensity(_Exponential):
    """Symmetric variance-gamma with shape 2: (1 + |x|/scale) exp(-|x|/scale) / (4 scale); variance 4 scale^2."""

    def log_density(self, x: Floats) -> Floats:
        a = np.abs(x) / self.scale
        return np.log1p(a) - a - math.log(4 * self.scale)

    def survival(self, x: Floats) -> Floats:
        a = np.abs(x) / self.scale
        tail = (2 + a) * np.exp(-a) / 4
        return np.where(x > 0, tail, 1 - tail)

    def loss(self, x: Floats, shift: float) -> Floats:
        straight = np.clip(2 * x - shift, -shift, shift) / self.scale
        bends = np.log1p(np.abs(x - shift) / self.scale) - np.log1p(np.abs(x) / self.scale)
        return np.asarray(straight + bends)


DENSITIES: dict[str, type[Any]] = {
    "gaussian": GaussianDensity,
    "laplace": LaplaceDensity,
    "student_t": StudentTDensity,
    "sech": SechDensity,
    "variance_gamma": VarianceGammaDensity,
}


def cauchy(scale: float = 1.0) -> StudentTDensity:
    """The Cauchy density 1 / (pi scale (1 + (x/scale)^2)): Student's t with one degree of freedom."""
    return StudentTDensity(dof=1.0, scale=scale)


def register_density(name: str, family: type[Any]) -> None:
    """Let events carry a density of your own: they are saved under `name`, and read where this has been called.

    `family` is a frozen dataclass that satisfies `Density`; its fields are saved with the event. A name stands for one
    density for ever, because stored events must keep their meaning.
    """
    taken = DENSITIES.setdefault(name, family)
    if taken is not family:
        raise InvalidArgument(
            f"The density name {name!r} already stands for {taken.__name__}, and stored events refer to it. Register "
            "yours by another name."
        )


def read_density(settings: dict[str, Any]) -> Density:
    """The density that `describe_density` wrote."""
    name = settings["family"]
    if name not in DENSITIES:
        raise InvalidArgument(
            f"This event has noise of density {name!r}, which is not registered here. Import the module that calls "
            f"register_density({name!r}, ...) first. Registered: {', '.join(DENSITIES)}."
        )
    density: Density = DENSITIES[name](**{key: value for key, value in settings.items() if key != "family"})
    return density


def describe_density(density: Density) -> dict[str, Any]:
    """What JSON keeps of a density: its registered name and its fields."""
    name = next((name for name, family in DENSITIES.items() if family is type(density)), None)
    if name is None:
        raise InvalidArgument(
            f"The density {type(density).__name__} has no name under which it could be read back. "
            "Call tacit.accounting.register_density(name, family) first."
        )
    return {"family": name, **asdict(density)}  # type: ignore[call-overload]
