"""How far a score may lie from what the model does on other examples: 95 % intervals, none of which costs privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

_Z = 1.959964


def wilson(share: float, count: float, z: float = _Z) -> list[float]:
    """An interval for a share that was seen among so many (Wilson 1927); 95 % for the usual `z`.

    >>> [round(end, 4) for end in wilson(0.9, 100)]
    [0.8256, 0.9448]
    """
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def of_root_mean(squared: Any) -> list[float] | None:
    """A 95 % interval for the root of the mean of such squared errors, by how far they spread. None for a single one.

    It tells about the errors one by one, so it is for public test examples only.

    >>> of_root_mean([1.0, 4.0, 9.0, 2.0])
    [0.715..., 2.736...]
    """
    values = np.asarray(squared, dtype=np.float64)
    if values.size < 2:
        return None
    mean, half = values.mean(), _Z * values.std(ddof=1) / math.sqrt(values.size)
    return [math.sqrt(max(0.0, mean - half)), math.sqrt(mean + half)]


@dataclass(frozen=True)
class NoisyShare:
    """`part` of `whole`, both of them sums over so many `lots`, drawn at a `rate`, that were released with noise.

    `noise_variance` (a, b, c) is the variance a + b p + c p^2 of the noise on part - p whole. Everything here is a
    function of what was released and of public numbers, so whatever is made of it costs nothing.
    """

    part: float
    whole: float
    noise_variance: tuple[float, float, float]
    lots: int
    rate: float

    @property
    def value(self) -> float:
        """The share; noise may leave less than nothing of either."""
        return min(max(self.part, 0.0) / self.whole, 1.0) if self.whole > 0 else 0.0

    @property
    def noise_std(self) -> float | None:
        """The standard deviation that the noise gives the share; None where the noise has left nothing of it."""
        if self.whole <= 0:
            return None
        constant, linear, square = self.noise_variance
        return math.sqrt(constant + linear * self.value + square * self.value**2) / self.whole

    @property
    def interval(self) -> list[float]:
        """A 95 % interval for the share among all examples of the kind (Fieller 1954).

        It holds the noise, that lots were drawn, and that rows are few: how many there are is estimated from the
        whole. What a row adds lies in [0, 1] and so has a variance of at most p (1 - p), which is exact for counts.
        """
        if self.whole <= 0:
            return [0.0, 1.0]
        # A row is in lots x rate of the lots, give or take; were it in every one once, this would be 1 / rows.
        few = (self.lots * self.rate + 1 - self.rate) / self.whole
        part, whole = self.value * self.whole, self.whole
        constant, linear, square = (_Z**2 * one for one in self.noise_variance)
        # The shares p for which (part - p whole)^2 <= z^2 (noise + few whole^2 p (1 - p)).
        a = whole**2 * (1 + _Z**2 * few) - square
        half_b = -(part * whole + (_Z**2 * few * whole**2 + linear) / 2)
        c = part**2 - constant
        if a <= 0 or half_b**2 <= a * c:
            return [0.0, 1.0]
        root = math.sqrt(half_b**2 - a * c)
        return [max(0.0, (-half_b - root) / a), min(1.0, (-half_b + root) / a)]
