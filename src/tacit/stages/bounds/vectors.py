"""Which gradients an encoding knows: sorted vectors that were chosen before any example was seen.

Vectors are public, and must not depend on the data: they decide how far an example can move the sum. Vectors
fitted to private gradients would be a release of their own, and an unpaid one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit import _validate
from tacit.accounting.densities import Floats
from tacit.errors import InvalidArgument

# Nasr et al. 2020 replace smaller numbers by zero.
_LEAST = 1e-5


@runtime_checkable
class Vectors(Hashable, Protocol):
    """Vectors of norm 1, each with numbers of at least 0 in ascending order."""

    def rows(self, dimension: int) -> NDArray[Any]:
        """One vector a row, for gradients with so many coordinates."""


@dataclass(frozen=True)
class Profile:
    """One vector: how sorted sizes of normal numbers are expected to rise, in at most `levels` steps.

    In high dimensions all vectors that Nasr et al. draw look like this one. That there are few different
    numbers makes its accounting exact and fast; that most occur a power of two times, faster still.
    """

    levels: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _validate.count("levels", self.levels))

    def rows(self, dimension: int) -> Floats:
        """A single row."""
        row = _profile(dimension, self.levels)
        return row[None]


@dataclass(frozen=True)
class DrawnVectors:
    """`count` vectors drawn with a public `seed`, as Nasr et al. 2020 have it: sizes of normal numbers, sorted."""

    count: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _validate.count("count", self.count))
        object.__setattr__(self, "seed", _validate.count("seed", self.seed, at_least=0))

    def rows(self, dimension: int) -> NDArray[np.float32]:
        """`count` rows, in single precision: there are many."""
        return _drawn(self.count, self.seed, dimension)


@dataclass(frozen=True)
class GivenVectors:
    """Vectors that were written down, for gradients of their length only. They are sorted and scaled to norm 1."""

    vectors: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        kept = tuple(tuple(_validate.non_negatives("vectors", row).tolist()) for row in self.vectors)
        if not kept or len({len(row) for row in kept}) != 1 or not all(any(row) for row in kept):
            raise InvalidArgument("vectors must hold at least one vector, all of the same length and none of zeros.")
        object.__setattr__(self, "vectors", kept)

    def rows(self, dimension: int) -> Floats:
        """`InvalidArgument` for gradients of another length."""
        table = np.sort(np.array(self.vectors), axis=1)
        if table.shape[1] != dimension:
            raise InvalidArgument(
                f"These vectors have {table.shape[1]} numbers, but the gradients have {dimension}. "
                "Give vectors as long as the model has weights, or use Profile()."
            )
        return np.asarray(table / np.linalg.norm(table, axis=1, keepdims=True))


@lru_cache(maxsize=8)
def _profile(dimension: int, levels: int) -> Floats:
    ranks = (np.arange(dimension) + 0.5) / dimension
    expected = math.sqrt(2) * special.erfinv(ranks)
    row = np.empty(dimension)
    start = 0
    for count in _counts(expected, levels):
        part = slice(start, start + count)
        row[part] = math.sqrt(float(np.mean(expected[part] ** 2)))
        start += count
    return np.asarray(row / np.linalg.norm(row))


def _counts(expected: Floats, levels: int) -> list[int]:
    """How many numbers are on each level, from the lowest up: cells of equal width, rounded to powers of two."""
    cell = np.minimum((expected / expected[-1] * levels).astype(int), levels - 1)
    sizes = np.bincount(cell, minlength=levels)
    upper = [2 ** round(math.log2(size)) for size in sizes[1:] if size]
    while sum(upper) >= expected.size:
        upper.pop(int(np.argmax(upper)))
    return [expected.size - sum(upper), *upper]


@lru_cache(maxsize=2)
def _drawn(count: int, seed: int, dimension: int) -> NDArray[np.float32]:
    rows = np.abs(np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32))
    rows[rows < _LEAST] = 0
    rows.sort(axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
