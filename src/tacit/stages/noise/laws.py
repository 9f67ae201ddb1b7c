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

import pkgutil
from collections.abc import Hashable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.densities import Density, Floats
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
