"""Gaussian noise that is correlated over some steps, so that it partly cancels in what an optimizer adds up.

In units of multiplier times sensitivity, step t gets w_t = (z_t - c_1 w_{t-1} - ... - c_{b-1} w_{t-b+1}) / c_0 with
fresh independent z_t: w = C^{-1} z for the banded Toeplitz matrix C of the coefficients c, whose columns have norm 1.
Past w are as secret as the data: whoever knew them could subtract them. They are kept in memory only, are never saved,
and a run that resumes starts a new band from w = 0 (docs/explanations/accounting.md proves that this is covered). Only
a run with a seed, which is not for release, computes them again from its first step on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.events import Gaussian
from tacit.accounting.factors import band_coefficients
from tacit.accounting.lots import Correlated
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.gaussian import find_grid, require_multiplier
from tacit.types import BoundedSum, Tensors


@dataclass(frozen=True)
class BandedNoise:
    """Gaussian noise correlated over `bands` steps; `steps` is the number of steps that it is optimised for.

    Every release has at least the noise of `GaussianNoise`; sums of releases have less. The event holds for examples
    that are in at most one of any `bands` consecutive lots, so it needs `CyclicPoisson` with at least as many groups;
    other samplings refuse it. Memory: bands - 1 times the parameters.
    """

    multiplier: float | None = None
    bands: int = field(default=8, kw_only=True)
    steps: int = field(default=4096, kw_only=True)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier", count=("bands", "steps"))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of C, of norm 1."""
        return band_coefficients(self.bands, self.steps)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise, on the same public grid as independent noise."""
        band = rng.recall("band", Band)
        return add_to_grid(
            bounded,
            require_multiplier(self) * bounded.sensitivity,
            lambda is_wide: band.draw(self.coefficients, bounded.dimension, rng, is_wide=is_wide),
        )

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release, for examples whose lots are at least `bands` steps apart."""
        return _event(require_multiplier(self), self.bands)


def add_to_grid(bounded: BoundedSum, std: float, draw: Callable[[bool], NDArray[Any]]) -> Tensors:
    """The sum plus `std` times what is drawn, rounded to the public grid of `GaussianNoise`.

    `draw` is told whether double precision is needed.
    """
    grid = find_grid(std)
    is_wide = torch.float64 in [value.dtype for value in bounded.values.values()]
    noise = draw(is_wide)
    kind = torch.float64 if is_wide else torch.float32
    noisy, start = {}, 0
    for name, value in bounded.values.items():
        piece = torch.from_numpy(noise[start : start + value.numel()]).to(value.device).view(value.shape)
        start += value.numel()
        noisy[name] = value.to(kind).div(grid).add_(piece, alpha=std / grid).round_().mul_(grid)
    return noisy


class Band:
    """The noise of the last steps, in units of multiplier times sensitivity. Secret; never outside the process."""

    def __init__(self) -> None:
        self._past: deque[NDArray[Any]] = deque()
        self._kind: tuple[object, ...] = ()
        self._next: int | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("Past noise cannot be copied or saved: whoever had it could subtract it from the releases.")

    def draw(
        self, coefficients: tuple[float, ...], dimension: int, rng: Stream, *, is_wide: bool
    ) -> NDArray[np.floating]:
        """The noise of the step of `rng`. A stream that can be drawn again has its past drawn again first."""
        kind = coefficients, dimension, is_wide
        if self._kind not in ((), kind):
            raise InvalidArgument(
                "Earlier noise of this run was correlated with other coefficients, or had another dimension. Keep the "
                "trainable parameters and the bands as they are, and start another run for other ones."
            )
        self._kind = kind
        step = rng.step
        if step is not None and step != self._next:
            self._past.clear()
            for earlier in range(step):
                stream = rng.at(earlier)
                assert stream is not None
                self._advance(coefficients, stream.normal(dimension, wide=is_wide))
        self._next = None if step is None else step + 1
        return self._advance(coefficients, rng.normal(dimension, wide=is_wide))

    def _advance(self, coefficients: tuple[float, ...], fresh: NDArray[Any]) -> NDArray[Any]:
        noise = fresh.copy()
        for coefficient, past in zip(coefficients[1:], self._past, strict=False):
            noise -= noise.dtype.type(coefficient) * past
        noise /= noise.dtype.type(coefficients[0])
        self._past.appendleft(noise)
        while len(self._past) >= max(len(coefficients), 1):
            self._past.pop()
        return noise


@lru_cache(maxsize=1024)
def _event(multiplier: float, bands: int) -> Correlated:
    """One object for every step: runs compare and count them."""
    return Correlated(Gaussian(multiplier), bands)
