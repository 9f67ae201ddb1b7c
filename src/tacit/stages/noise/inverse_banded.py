"""Correlated noise for long runs, without amplification: the inverse of C has few bands (BISR, Kalinin et al. 2025).

In units of scale times multiplier times sensitivity, step t gets w_t = z_t + d_1 z_{t-1} + ... with the first
coefficients of the inverse square root of prefix sums. C = D^{-1} is then no longer banded: the steps of an example
overlap, and are accounted for together. `scale` makes up for it, so that an example's first j steps, at least `apart`
apart, cost j Gaussian releases without sampling, for every j. Only the last z are needed; they are kept in memory, are
as secret as the noise, and are drawn again where a seed allows it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.events import Gaussian
from tacit.accounting.factors import find_scale, inverse_square_root_coefficients, invert_coefficients
from tacit.accounting.lots import Correlated
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.banded import add_to_grid
from tacit.types import BoundedSum, Tensors


@dataclass(frozen=True)
class InverseBandedNoise:
    """Gaussian noise that cancels over a whole run of at most `steps` steps, for examples `apart` steps apart.

    It needs `CyclicPoisson` with at least `apart` groups, and nothing is gained from the secrecy of lots. In all
    settings that we tried, `BandedNoise` on such lots had less noise; `tacit plan` compares. Memory: bands - 1 times
    the parameters.
    """

    multiplier: float | None = None
    bands: int = field(default=8, kw_only=True)
    steps: int = field(kw_only=True)
    apart: int = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier")
        for name in ("bands", "steps", "apart"):
            object.__setattr__(self, name, _validate.count(name, getattr(self, name)))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of D."""
        return tuple(inverse_square_root_coefficients(self.bands).tolist())

    @cached_property
    def scale(self) -> float:
        """The largest root of an example's squared sensitivity per step, over its first steps."""
        return _find_scale(self.bands, self.steps, self.apart)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise; refuses more steps than the scale is for."""
        memory = rng.recall("inverse band", _Fresh)
        return add_to_grid(
            bounded,
            self._require_multiplier() * bounded.sensitivity,
            lambda is_wide: memory.draw(self, bounded.dimension, rng, is_wide=is_wide),
        )

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release for each of an example's steps, if these are at least `apart` apart; no sampling."""
        return overlapping_event(self._require_multiplier(), self.apart)

    def _require_multiplier(self) -> float:
        if self.multiplier is None:
            raise InvalidArgument(
                "This noise has no multiplier yet. Give one, or give PrivateRun a budget to derive it from."
            )
        return self.multiplier


class _Fresh:
    """The last independent draws z, newest first. Secret; never outside the process."""

    def __init__(self) -> None:
        self._past: deque[NDArray[Any]] = deque()
        self._kind: tuple[object, ...] = ()
        self._drawn = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("Past noise cannot be copied or saved: whoever had it could subtract it from the releases.")

    def draw(self, noise: InverseBandedNoise, dimension: int, rng: Stream, *, is_wide: bool) -> NDArray[Any]:
        """The noise of the step of `rng`."""
        kind = noise.bands, noise.steps, noise.apart, dimension, is_wide
        step = rng.step if rng.step is not None else self._drawn
        if self._kind not in ((), kind) or step >= noise.steps:
            raise InvalidArgument(
                f"This noise is for at most {noise.steps} steps of one run with the same parameters, and its scale "
                "holds for no others. Make `steps` the number of steps of the run."
            )
        if rng.step is not None and rng.step != self._drawn:
            self._past.clear()
            for earlier in range(max(rng.step - noise.bands + 1, 0), rng.step):
                stream = rng.at(earlier)
                assert stream is not None
                self._past.appendleft(stream.normal(dimension, wide=is_wide))
        self._kind, self._drawn = kind, step + 1
        self._past.appendleft(rng.normal(dimension, wide=is_wide).copy())
        while len(self._past) > noise.bands:
            self._past.pop()
        total = np.zeros_like(self._past[0])
        for coefficient, fresh in zip(noise.coefficients, self._past, strict=False):
            total += total.dtype.type(noise.scale * coefficient) * fresh
        return total


@lru_cache(maxsize=256)
def _find_scale(bands: int, steps: int, apart: int) -> float:
    return find_scale(invert_coefficients(inverse_square_root_coefficients(bands), steps), apart)


@lru_cache(maxsize=1024)
def overlapping_event(multiplier: float, apart: int) -> Correlated:
    """One object for every step: runs compare and count them."""
    return Correlated(Gaussian(multiplier), apart, is_amplified=False)
