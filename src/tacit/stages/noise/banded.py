"""Gaussian noise that is correlated over some steps, so that it partly cancels in what an optimizer adds up.

In units of multiplier times sensitivity, step t gets w_t = (z_t - c_1 w_{t-1} - ... - c_{b-1} w_{t-b+1}) / c_0 with
fresh independent z_t: w = C^{-1} z for the banded Toeplitz matrix C of the coefficients c, whose columns have norm 1.
Past w are as secret as the data: whoever knew them could subtract them. They are kept in memory only, are never saved,
and a run that resumes starts a new band from w = 0 (docs/explanations/accounting.md proves that this is covered). Only
a run with a seed, which is not for release, computes them again from its first step on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, Protocol

import torch
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.events import Gaussian
from tacit.accounting.factors import band_coefficients
from tacit.accounting.lots import Correlated
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.flat import unflatten
from tacit.stages.noise.gaussian import find_grid, require_multiplier
from tacit.types import BoundedSum, Tensors


@dataclass(frozen=True)
class BandedNoise:
    """Gaussian noise correlated over `bands` steps; `steps` is the number of steps that it is optimised for.

    With `rates`, one learning rate for each step, it is optimised for what they sum up to. They must be public.
    Every release has at least the noise of `GaussianNoise`; sums of releases have less. The event holds for examples
    that are in at most one of any `bands` consecutive lots, so it needs `CyclicPoisson` with at least as many groups;
    other samplings refuse it. Memory: bands - 1 times the parameters.
    """

    multiplier: float | None = None
    bands: int = field(default=8, kw_only=True)
    steps: int = field(default=4096, kw_only=True)
    rates: tuple[float, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier", count=("bands", "steps"))
        object.__setattr__(self, "rates", tuple(float(rate) for rate in self.rates))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of C, of norm 1."""
        return band_coefficients(self.bands, self.steps, self.rates)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise, on the same public grid as independent noise."""
        return add_to_grid(self, bounded, require_multiplier(self) * bounded.sensitivity, rng, self.coefficients)

    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step; `past` holds that of the last steps, newest first."""
        noise, kind = fresh.copy(), fresh.dtype.type
        for coefficient, before in zip(self.coefficients[1:], past, strict=False):
            noise -= kind(coefficient) * before
        noise /= kind(self.coefficients[0])
        past.insert(0, noise)
        del past[len(self.coefficients) - 1 :]
        return noise

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release, for examples whose lots are at least `bands` steps apart."""
        return make_event(require_multiplier(self), self.bands)


class RememberingNoise(Protocol):
    """Noise whose steps need what earlier ones have drawn."""

    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step; `past` is what earlier steps left in memory, and is updated."""


def add_to_grid(
    noise: RememberingNoise, bounded: BoundedSum, std: float, rng: Stream, kind: object, most: float = math.inf
) -> Tensors:
    """The sum plus `std` times correlated noise, rounded to the public grid of `GaussianNoise`.

    In a run `kind` must not change, and there may be at most `most` steps.
    """
    grid = find_grid(std)
    is_wide = torch.float64 in [value.dtype for value in bounded.values.values()]
    drawn = rng.recall("past noise", PastNoise).draw(noise, bounded.dimension, rng, is_wide, kind, most)
    dtype = torch.float64 if is_wide else torch.float32
    pieces = unflatten(torch.from_numpy(drawn), {name: value.shape for name, value in bounded.values.items()})
    return {
        name: value.to(dtype).div(grid).add_(pieces[name].to(value.device), alpha=std / grid).round_().mul_(grid)
        for name, value in bounded.values.items()
    }


class PastNoise:
    """What later noise needs of earlier noise, in units of its standard deviation. Secret; stays in the process."""

    def __init__(self) -> None:
        self._past: list[NDArray[Any]] = []
        self._kind: tuple[object, ...] = ()
        self._next = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("Past noise cannot be copied or saved: whoever had it could subtract it from the releases.")

    def draw(
        self, noise: RememberingNoise, dimension: int, rng: Stream, is_wide: bool, kind: object, most: float
    ) -> NDArray[Any]:
        """The noise of the step of `rng`. A stream that can be drawn again has its past drawn again first."""
        step = self._next if rng.step is None else rng.step
        if self._kind not in ((), (kind, dimension, is_wide)) or step >= most:
            limit = f" It is for at most {most} steps, for which its scale holds." if math.isfinite(most) else ""
            raise InvalidArgument(
                "Earlier noise of this run was correlated with other coefficients, or had another dimension, or there "
                f"are too many steps.{limit} Keep the trainable parameters and the noise of a run as they are. "
                "To change them, start a new run."
            )
        if step != self._next:
            self._past.clear()
            for earlier in range(step):
                stream = rng.at(earlier)
                assert stream is not None
                noise.advance(self._past, stream.normal(dimension, wide=is_wide), earlier)
        self._kind, self._next = (kind, dimension, is_wide), step + 1
        return noise.advance(self._past, rng.normal(dimension, wide=is_wide), step)


@lru_cache(maxsize=1024)
def make_event(multiplier: float, bands: int, is_amplified: bool = True) -> Correlated:
    """One object for every step: runs compare and count them."""
    return Correlated(Gaussian(multiplier), bands, is_amplified)
