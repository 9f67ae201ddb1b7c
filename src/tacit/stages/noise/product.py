"""Independent noise of any symmetric unimodal law on a sum that is bounded coordinate by coordinate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from tacit import _validate
from tacit.accounting.densities import Density, Floats
from tacit.accounting.events import Composed, Event, Gaussian, ProductNoise
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.flat import flatten, unflatten
from tacit.stages.noise.gaussian import Normal, require_multiplier
from tacit.stages.noise.laws import Family
from tacit.types import BoundedSum, Box, Tensors

# Released numbers are multiples of a power of two between 2^-12 and 2^-11 of the noise's size.
_GRID_BITS = 12
# An event lists at most so many different shifts; more are rounded up to these.
_MOST_SHIFTS = 24


@dataclass(frozen=True)
class BoxNoise:
    """Noise of one `family` on every coordinate, for sums whose examples stay in a `box`.

    Its size is `multiplier` times the sensitivity. A norm does not bound how far one coordinate moves, so a sum that is
    bounded by a norm alone is refused: no accountant knows what noise on it reveals, unless it is Gaussian. The release
    is rounded to a public grid, some thousand times finer than the noise.
    """

    family: Family
    box: Box
    multiplier: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier")

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with noise; all coordinates drawn at once."""
        if bounded.box != self.box:
            raise InvalidArgument(
                f"This noise is accounted for on {self.box!r}, but the sum is bounded by {bounded.box or 'a norm'}. "
                "Use the box of the bound that made the sum: BoxNoise(family, bound.box)."
            )
        values = list(bounded.values.values())
        if not values:
            return {}
        size = require_multiplier(self) * bounded.sensitivity
        grid = 2.0 ** (math.floor(math.log2(size)) - _GRID_BITS)
        # In double precision and in units of the grid, a power of two, nothing is rounded but where it should be.
        noise = torch.from_numpy(self.family.draw(rng, bounded.dimension)).mul_(size / grid).to(values[0].device)
        released = noise.add_(flatten(bounded.values).double(), alpha=1 / grid).round_().mul_(grid)
        wide = any(value.dtype == torch.float64 for value in values)
        shapes = {name: value.shape for name, value in bounded.values.items()}
        return unflatten(released if wide else released.float(), shapes)

    def event(self, dimension: int) -> Event:
        """One release in which an example moves every coordinate as far as the box allows: the worst case."""
        return _event(self.family, self.box, require_multiplier(self), dimension)


@lru_cache(maxsize=64)
def _event(family: Family, box: Box, multiplier: float, dimension: int) -> Event:
    return release_event(family, multiplier, box.corner(dimension) / box.sensitivity(dimension))


def release_event(family: Family, multiplier: float, shifts: Floats) -> Event:
    """Noise of this law on coordinates that an example moves by `shifts`, in units of the sensitivity."""
    if isinstance(family, Normal):
        # Only Gaussian noise is the same in every direction, so that the norm is all that counts.
        return Gaussian(multiplier)
    return product_event(family.density(multiplier), shifts)


def product_event(density: Density, shifts: Floats, most: int = _MOST_SHIFTS) -> Event:
    """Noise of `density` on coordinates that an example moves by `shifts`, as a short event.

    More than `most` different shifts are rounded up to that many. Coordinates with equal shifts are counted. All of
    them are one release: sampled together, never one by one.
    """
    values, counts = np.unique(round_up(np.abs(shifts), most), return_counts=True)
    releases = [(ProductNoise(density, (value,)), n) for value, n in zip(values.tolist(), counts.tolist(), strict=True)]
    parts = tuple(release if n == 1 else release * n for release, n in releases if release.shifts[0] > 0)
    if not parts:
        return ProductNoise(density, (0.0,))
    return parts[0] if len(parts) == 1 else Composed(parts)


def round_up(shifts: Floats, most: int) -> Floats:
    """Every shift rounded up to one of at most `most` values, which are dense where shifts are dense."""
    order = np.argsort(shifts)
    ascending = shifts[order]
    if np.unique(ascending).size <= most:
        return shifts
    # Rounding a shift up by w costs 2 w times the shift in its square: cells of equal cost, by the integral of sqrt.
    steps = np.sqrt(np.diff(ascending, prepend=0.0) * np.maximum(ascending, 1e-300))
    progress = np.cumsum(steps)
    cell = np.minimum((progress / progress[-1] * most).astype(int), most - 1)
    last = np.searchsorted(cell, cell, side="right") - 1
    rounded = np.empty_like(shifts)
    rounded[order] = ascending[last]
    return rounded
