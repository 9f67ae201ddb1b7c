"""Correlated noise for long runs without amplification, in which the steps of an example overlap: three ways.

In units of scale times multiplier times sensitivity, step t gets w = C^{-1} z with independent z. An example's first j
steps, at least `apart` apart, cost j Gaussian releases without sampling, for every j; `scale` makes up for the overlap.
C has few buffers (BLT, McMahan et al. 2024), an inverse with few bands (BISR, Kalinin et al. 2025), or is a tree, the
older way. Past noise is as secret as the data: it is kept in memory only, and drawn again where a seed allows it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.accounting.factors import (
    Buffers,
    find_scale,
    inverse_square_root_coefficients,
    invert_coefficients,
    optimise_buffers,
)
from tacit.accounting.lots import Correlated
from tacit.randomness import Stream
from tacit.stages.noise.banded import add_to_grid, make_event
from tacit.stages.noise.gaussian import require_multiplier
from tacit.types import BoundedSum, Tensors


@dataclass(frozen=True)
class OverlappingNoise(ABC):
    """Gaussian noise that cancels over a run of at most `steps` steps, for examples `apart` steps apart.

    It needs `CyclicPoisson` with at least `apart` groups, and nothing is gained from the secrecy of lots.
    """

    multiplier: float | None = None
    steps: int = field(kw_only=True)
    apart: int = field(kw_only=True)

    def __post_init__(self) -> None:
        counts = tuple(one.name for one in fields(self) if one.name != "multiplier")
        _validate.check_fields(self, positive="multiplier", count=counts)

    @property
    @abstractmethod
    def scale(self) -> float:
        """At least the largest root of an example's squared sensitivity per step, over its first steps."""

    @abstractmethod
    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step; `past` is what earlier steps left in memory, and is updated."""

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors:
        """The sum with correlated noise; refuses more steps than the scale is for."""
        std = require_multiplier(self) * bounded.sensitivity * self.scale
        return add_to_grid(self, bounded, std, rng, kind=self, most=self.steps)

    def event(self, dimension: int) -> Correlated:
        """One Gaussian release for each of an example's steps, if these are at least `apart` apart; no sampling."""
        return make_event(require_multiplier(self), self.apart, is_amplified=False)


@final
@dataclass(frozen=True)
class BufferedNoise(OverlappingNoise):
    """C is Toeplitz with c_j = sum_i weights_i decays_i^(j-1), optimised for `steps` and `apart`.

    So w needs only as many buffers as there are decays. Memory: `buffers` times the parameters.
    """

    buffers: int = field(default=2, kw_only=True)

    @property
    def strategy(self) -> Buffers:
        """The decays and weights of C, before it is divided by `scale`."""
        return optimise_buffers(self.buffers, self.steps, self.apart)

    @cached_property
    def scale(self) -> float:
        return _scale_buffers(self.buffers, self.steps, self.apart)

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


@final
@dataclass(frozen=True)
class InverseBandedNoise(OverlappingNoise):
    """w_t = d_0 z_t + d_1 z_{t-1} + ... with the first coefficients d of the inverse square root of prefix sums.

    In all settings that we tried, `BandedNoise` on such lots had less noise; `tacit plan` compares. Memory: bands - 1
    times the parameters.
    """

    bands: int = field(default=8, kw_only=True)

    @cached_property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of D = C^{-1}."""
        return tuple(inverse_square_root_coefficients(self.bands).tolist())

    @cached_property
    def scale(self) -> float:
        return _scale_inverse(self.bands, self.steps, self.apart)

    def advance(self, past: list[NDArray[Any]], fresh: NDArray[Any], step: int) -> NDArray[Any]:
        """The noise of a step; `past` holds the last draws, newest first."""
        past.insert(0, fresh.copy())
        noise = np.zeros_like(fresh)
        for coefficient, drawn in zip(self.coefficients, past, strict=False):
            noise += noise.dtype.type(coefficient) * drawn
        del past[self.bands - 1 :]
        return noise


@final
@dataclass(frozen=True)
class TreeNoise(OverlappingNoise):
    """Tree aggregation (Dwork et al. 2010; Kairouz et al. 2021), the older way for long runs.

    Every node of a binary tree over the steps has noise of its own, and the sum of the first t steps has that of the
    nodes that make up t: as many as t has binary digits of one. `BufferedNoise` has less noise; this is there to
    compare with. Memory: up to log2(steps) + 1 times the parameters.
    """

    @cached_property
    def scale(self) -> float:
        """An upper bound of the root of an example's squared sensitivity per step.

        A node over s steps holds at most k = ceil(s / apart) of an example's steps, and all nodes of a level together
        hold at most j of them: the squares of their numbers add up to at most k j.
        """
        most = -(-self.steps // self.apart)
        levels = range(self.steps.bit_length())
        return math.sqrt(sum(min(-(-(2**level) // self.apart), most) for level in levels)) * (1 + 1e-12)

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


@lru_cache(maxsize=256)
def _scale_buffers(buffers: int, steps: int, apart: int) -> float:
    return find_scale(optimise_buffers(buffers, steps, apart).coefficients(steps), apart)


@lru_cache(maxsize=256)
def _scale_inverse(bands: int, steps: int, apart: int) -> float:
    return find_scale(invert_coefficients(inverse_square_root_coefficients(bands), steps), apart)
