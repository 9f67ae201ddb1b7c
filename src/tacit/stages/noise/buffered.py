"""Correlated noise for long runs with a few buffers (BLT, McMahan et al. 2024), and trees, the older way.

Both are without amplification, like `InverseBandedNoise`, and need little memory: step t gets w = C^{-1} z in units of
scale times multiplier times sensitivity. The steps of an example overlap, and `scale` makes up for it. Past noise is as
secret as the data: it is kept in memory only, and drawn again where a seed allows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.factors import Buffers, find_scale, optimise_buffers
from tacit.accounting.lots import Correlated
from tacit.errors import InvalidArgument
from tacit.randomness import Stream
from tacit.stages.noise.banded import add_to_grid
from tacit.stages.noise.inverse_banded import overlapping_event
from tacit.types import BoundedSum, Tensors


@dataclass(frozen=True)
class BufferedNoise:
    """Gaussian noise that cancels over a run of at most `steps` steps, for examples `apart` steps apart.

    C is Toeplitz with c_j = sum_i weights_i decays_i^(j-1), optimised for `steps` and `apart`, so w needs only as many
    buffers as there are decays. It needs `CyclicPoisson` with at least `apart` groups, and nothing is gained from the
    secrecy of lots. Memory: `buffers` times the parameters.
    """

    multiplier: float | None = None
    buffers: int = field(default=2, kw_only=True)
    steps: int = field(kw_only=True)
    apart: int = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier")
        for name in ("buffers", "steps", "apart"):
            object.__setattr__(self, name, _validate.count(name, getattr(self, name)))

    @property
    def strategy(self) -> Buffers:
        """The decays and weights of C, before it is divided by `scale`."""
        return optimise_buffers(self.buffers, self.steps, self.apart)

    @cached_property
    def scale(self) -> float:
        """The largest root of an example's squared sensitivity per step, over its first steps."""
        return _scale_buffers(self.buffers, self.steps, self.apart)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise; refuses more steps than the scale is for."""
        memory = rng.recall("buffers", _Past)
        std = require_multiplier(self.multiplier) * bounded.sensitivity
        return add_to_grid(
            bounded, std * self.scale, lambda is_wide: memory.draw(self, bounded.dimension, rng, is_wide)
        )

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release for each of an example's steps, if these are at least `apart` apart; no sampling."""
        return overlapping_event(require_multiplier(self.multiplier), self.apart)

    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step; `past` holds the buffers, and is updated."""
        kind = fresh.dtype.type
        noise = fresh.copy()
        if not past:
            past.extend(np.zeros_like(fresh) for _ in range(self.buffers))
        for weight, buffer in zip(self.strategy.weights, past, strict=True):
            noise -= kind(weight) * buffer
        for decay, buffer in zip(self.strategy.decays, past, strict=True):
            buffer *= kind(decay)
            buffer += noise
        return noise


@dataclass(frozen=True)
class TreeNoise:
    """Gaussian noise by tree aggregation (Dwork et al. 2010; Kairouz et al. 2021), the older way for long runs.

    Every node of a binary tree over the steps has noise of its own, and the sum of the first t steps has that of the
    nodes that make up t: as many as t has binary digits of one. It needs `CyclicPoisson` with at least `apart` groups.
    `BufferedNoise` has less noise; this is there to compare with. Memory: up to log2(steps) + 1 times the parameters.
    """

    multiplier: float | None = None
    steps: int = field(kw_only=True)
    apart: int = field(kw_only=True)

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="multiplier")
        for name in ("steps", "apart"):
            object.__setattr__(self, name, _validate.count(name, getattr(self, name)))

    @cached_property
    def scale(self) -> float:
        """An upper bound of the root of an example's squared sensitivity per step.

        A node over s steps holds at most k = ceil(s / apart) of an example's steps, and all nodes of a level together
        hold at most j of them: the squares of their numbers add up to at most k j.
        """
        most = -(-self.steps // self.apart)
        levels = range(self.steps.bit_length())
        return math.sqrt(sum(min(-(-(2**level) // self.apart), most) for level in levels)) * (1 + 1e-12)

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise; refuses more steps than the scale is for."""
        memory = rng.recall("tree", _Past)
        std = require_multiplier(self.multiplier) * bounded.sensitivity
        return add_to_grid(
            bounded, std * self.scale, lambda is_wide: memory.draw(self, bounded.dimension, rng, is_wide)
        )

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release for each of an example's steps, if these are at least `apart` apart; no sampling."""
        return overlapping_event(require_multiplier(self.multiplier), self.apart)

    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step: that of the node which it completes, less that of the nodes within.

        `past` holds the noise of the nodes that make up the steps so far, largest first.
        """
        noise = fresh.copy()
        closed = ((step + 1) & ~step).bit_length() - 1
        for _ in range(closed):
            noise -= past.pop()
        past.append(fresh.copy())
        return noise


def require_multiplier(multiplier: float | None) -> float:
    """The multiplier, which must have been given or found."""
    if multiplier is None:
        raise InvalidArgument(
            "This noise has no multiplier yet. Give one, or give PrivateRun a budget to derive it from."
        )
    return multiplier


class _Past:
    """What later noise needs of earlier noise. Secret; never outside the process."""

    def __init__(self) -> None:
        self._past: list[NDArray[Any]] = []
        self._kind: tuple[object, ...] = ()
        self._next = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("Past noise cannot be copied or saved: whoever had it could subtract it from the releases.")

    def draw(self, noise: BufferedNoise | TreeNoise, dimension: int, rng: Stream, is_wide: bool) -> NDArray[Any]:
        """The noise of the step of `rng`. A stream that can be drawn again has its past drawn again first."""
        kind = noise, dimension, is_wide
        step = rng.step if rng.step is not None else self._next
        if self._kind not in ((), kind) or step >= noise.steps:
            raise InvalidArgument(
                f"This noise is for at most {noise.steps} steps of one run with the same parameters, and its scale "
                "holds for no others. Make `steps` the number of steps of the run."
            )
        if step != self._next:
            self._past.clear()
            for earlier in range(step):
                stream = rng.at(earlier)
                assert stream is not None
                noise.advance(self._past, stream.normal(dimension, wide=is_wide), earlier)
        self._kind, self._next = kind, step + 1
        return noise.advance(self._past, rng.normal(dimension, wide=is_wide), step)


@lru_cache(maxsize=256)
def _scale_buffers(buffers: int, steps: int, apart: int) -> float:
    return find_scale(optimise_buffers(buffers, steps, apart).coefficients(steps), apart)
