"""Encoding: every gradient is clamped, coordinate by coordinate, to a vector that was chosen in advance.

Then one example moves every coordinate by at most a known amount, and noise of any law can be accounted for (Nasr,
Shokri and Houmansadr 2020). The coordinates of a gradient are ranked by size, and the one of rank t is clamped to plus
or minus the t-th number of the vector with the smallest angle. The vectors are public and must not depend on the data:
fitting them to private gradients would be a release that nobody pays for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from tacit import _validate
from tacit.accounting.densities import Floats
from tacit.errors import InvalidArgument
from tacit.randomness import bound_stream
from tacit.stages.bounds.clip import at_least_single
from tacit.stages.flat import unflatten
from tacit.types import BoundedSum, PerExampleGradients, State, Tensors

# Nasr et al. 2020 replace smaller numbers by zero.
_LEAST = 1e-5
# Numbers that are ranked at a time, in whole examples and at least so many: each needs some copies of the model, which
# should stay in the cache.
_NUMBERS, _EXAMPLES = 2**16, 8
# Many coordinates are not ranked one by one if their vector has few levels.
_FEW_LEVELS, _MANY_COORDINATES = 33, 4096
# Most sizes of an example are of one kind, and incrementing one counter in a row is slow: several counters take turns.
_TURNS = 4
# A size in single precision without its last bits: exponent and six more, so within 1.6 per cent.
_DROPPED_BITS = 17


@runtime_checkable
class Vectors(Hashable, Protocol):
    """Vectors of norm 1, each with numbers of at least 0 in ascending order."""

    def rows(self, dimension: int) -> NDArray[Any]:
        """One vector a row, for gradients with so many coordinates."""


@dataclass(frozen=True)
class Profile:
    """One vector: the expected sorted sizes of normal numbers, in at most `levels` steps.

    In high dimensions all vectors that Nasr et al. draw look like this one. Its accounting is exact and fast, because
    it has few different numbers, most of which occur a power of two times.
    """

    levels: int = 8

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="levels")

    def rows(self, dimension: int) -> Floats:
        return _profile(dimension, self.levels)[None]


@dataclass(frozen=True)
class DrawnVectors:
    """`count` vectors drawn with a public `seed`, as in Nasr et al. 2020: sorted sizes of normal numbers."""

    count: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="count")
        object.__setattr__(self, "seed", _validate.count("seed", self.seed, at_least=0))

    def rows(self, dimension: int) -> NDArray[np.float32]:
        """In single precision, because there are many rows."""
        return _draw_directions(self.count, self.seed, dimension)


@dataclass(frozen=True)
class GivenVectors:
    """Given vectors, for gradients of their length only. They are sorted and scaled to norm 1."""

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
    """The number of coordinates on each level, from the lowest up: cells of equal width, rounded to powers of two."""
    cell = np.minimum((expected / expected[-1] * levels).astype(int), levels - 1)
    sizes = np.bincount(cell, minlength=levels)
    upper = [2 ** round(math.log2(size)) for size in sizes[1:] if size]
    while sum(upper) >= expected.size:
        upper.pop(int(np.argmax(upper)))
    return [expected.size - sum(upper), *upper]


@lru_cache(maxsize=2)
def _draw_directions(count: int, seed: int, dimension: int) -> NDArray[np.float32]:
    rows = np.abs(np.random.default_rng(seed).standard_normal((count, dimension), dtype=np.float32))
    rows[rows < _LEAST] = 0
    rows.sort(axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@dataclass(frozen=True)
class EncodingBox:
    """How far one example moves a sum of encoded gradients: by one of the `vectors`, scaled to `norm`.

    The corner is the largest number of each rank over all vectors. With `is_doubled` a bucket of several examples is
    encoded, and one of them can reverse its encoding: among any 2j - 1 coordinates of such a move one has both ranks at
    or below the j-th largest, which bounds the m-th largest coordinate of the move for every m.
    """

    vectors: Vectors
    norm: float = 1.0
    is_doubled: bool = False

    @property
    def adds_up(self) -> bool:
        """False with buckets, which need the whole lot before they are encoded."""
        return not self.is_doubled

    def corner(self, dimension: int) -> Floats:
        """In ascending order."""
        return self.norm * _corner(self.vectors, dimension, self.is_doubled)

    def sensitivity(self, dimension: int) -> float:
        """The norm of the longest vector, or twice that."""
        return self.norm * _longest(self.vectors, dimension) * (2 if self.is_doubled else 1)


@lru_cache(maxsize=16)
def _corner(vectors: Vectors, dimension: int, is_doubled: bool) -> Floats:
    most = vectors.rows(dimension).max(axis=0).astype(np.float64)
    return double_corner(most) if is_doubled else most


@lru_cache(maxsize=16)
def _longest(vectors: Vectors, dimension: int) -> float:
    # One, up to the rounding of single precision.
    return float(max(np.linalg.norm(row.astype(np.float64)) for row in vectors.rows(dimension)))


def double_corner(ascending: Floats) -> Floats:
    """The corner of the box of all differences of two encodings by `ascending` numbers, in ascending order."""
    falling = np.append(ascending[::-1], 0.0)
    corner = np.empty(ascending.size)
    corner[0::2] = 2 * falling[: (ascending.size + 1) // 2]
    corner[1::2] = (falling[:-1] + falling[1:])[: ascending.size // 2]
    return corner[::-1]


@dataclass(frozen=True)
class Encode:
    """Clamp each gradient to the nearest of the `vectors`, by angle, and sum (Nasr et al. 2020, algorithm 2).

    Every encoding is within a box whose corner is the vector, of norm `norm`. An example whose gradient is not finite
    counts zero. With `buckets`, examples are dealt at random into so many buckets, and the mean gradient of each bucket
    is encoded, an empty one as zero: one example then changes one bucket and moves the sum twice as far. Consecutive
    chunks of several examples are not offered: without its first example a lot is cut elsewhere throughout, and the sum
    can move by any multiple of the vector.
    """

    vectors: Vectors = Profile()
    norm: float = 1.0
    buckets: int | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="norm", count="buckets")
        if isinstance(self.vectors, type) or not isinstance(self.vectors, Vectors):
            raise InvalidArgument(
                f"vectors must be Profile(), DrawnVectors() or GivenVectors(((0.6, 0.8),)). Got {self.vectors!r}."
            )

    @property
    def box(self) -> EncodingBox:
        """Contains the contribution of one example."""
        return EncodingBox(self.vectors, self.norm, self.buckets is not None)

    def init(self, like: Tensors, lot_size: float) -> State:
        """The number of coordinates, including those that a lot does not use."""
        return {"dimension": torch.tensor(sum(value.numel() for value in like.values()))}

    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum:
        dimension, dense = int(state["dimension"]), gradients.dense()
        pieces: Iterable[Tensor] = dense_rows(dense, max(_EXAMPLES, _NUMBERS // dimension))
        if self.buckets is not None:
            pieces = [bucket_means(torch.cat(list(pieces)), _draw_buckets(len(gradients), self.buckets), self.buckets)]
        total = reduce(operator.add, (self.encode(rows, dimension).sum(0) for rows in pieces))
        shapes = {name: rows.shape[1:] for name, rows in dense.items()}
        return BoundedSum(unflatten(total, shapes), self.box.sensitivity(dimension), self.box)

    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]:
        """The release unchanged; `InvalidArgument` if coordinates are missing, because the box would be another one."""
        numbers, dimension = sum(value.numel() for value in noisy.values()), int(state["dimension"])
        if numbers != dimension:
            raise InvalidArgument(
                f"{numbers} numbers would be released, but gradients were encoded for {dimension}: parameters were "
                "frozen since the run began. The box of fewer numbers is not part of the larger one, so the release "
                "could cost more than was accounted for. Freeze parameters before PrivateRun is made."
            )
        return noisy, state

    def encode(self, rows: Tensor, dimension: int | None = None) -> Tensor:
        """Each row, clamped. Missing coordinates count as zeros, and take the lowest ranks."""
        table = self.vectors.rows(dimension or rows.shape[1])[:, -rows.shape[1] :]
        starts = _starts(self.vectors, dimension or rows.shape[1], rows.shape[1])
        return _clamp(rows, table, starts, self.norm) if len(rows) else rows


@lru_cache(maxsize=16)
def _starts(vectors: Vectors, dimension: int, numbers: int) -> NDArray[np.intp]:
    """The ranks at which the levels of a single vector begin, above its lowest."""
    table = vectors.rows(dimension)
    return np.flatnonzero(np.diff(table[0, -numbers:])) + 1


def _clamp(rows: Tensor, table: NDArray[Any], starts: NDArray[np.intp], norm: float) -> Tensor:
    """Each row, clamped to the nearest vector."""
    sizes = rows.abs()
    if len(table) == 1 and starts.size < _FEW_LEVELS:
        is_long = rows.shape[1] >= _MANY_COORDINATES
        limits = _stepwise(sizes, table[0], starts, norm) if is_long else _by_order(sizes, table[0], starts)
    else:
        order = sizes.argsort(dim=1, stable=True)
        vectors = torch.from_numpy(table).to(sizes)
        cosines = sizes.gather(1, order) @ vectors.T / torch.linalg.vector_norm(vectors, dim=1)
        # The vector with the smallest angle to each row; the first for a row of zeros.
        nearest = cosines.argmax(dim=1)
        limits = torch.empty_like(sizes).scatter_(1, order, vectors[nearest])
    return torch.minimum(sizes, limits.mul_(norm)).copysign_(rows)


def _by_order(sizes: Tensor, row: NDArray[Any], starts: NDArray[np.intp]) -> Tensor:
    """The limit of each coordinate by its rank, for one vector of few levels. Equal sizes have their lowest rank.

    So at most as many coordinates as the vector has on a level and above are larger than the last one below it. Sorting
    sizes alone is faster than sorting their places.
    """
    ascending = torch.from_numpy(np.sort(sizes.cpu().numpy(), axis=1)).to(sizes)
    levels = torch.from_numpy(row).to(sizes)
    limits = levels[0].expand_as(sizes)
    for start in starts.tolist():
        limits = torch.where(sizes > ascending[:, start - 1 : start], levels[start], limits)
    return limits.clone() if not starts.size else limits


def _stepwise(sizes: Tensor, row: NDArray[Any], starts: NDArray[np.intp], norm: float) -> Tensor:
    """The limit of each coordinate by its rank, by counting sizes: sorting takes many times as long.

    Sizes that agree in exponent and first bits count as equal, and equal sizes all have the lowest rank among them. So
    no level is given to more coordinates than the vector has there, and the encoding stays in its box. Sizes below the
    lowest level are not changed at any rank, and count as equal too.
    """
    first = max(_kind(norm * row[0]) - 1, 0)
    just_below = float(np.int32(((first + 1) << _DROPPED_BITS) - 1).view(np.float32))
    kinds = sizes.float().clamp(min=just_below).view(torch.int32) >> _DROPPED_BITS
    # One kind more than there are, to which no size belongs.
    number = int(kinds.max()) - first + 2
    kinds += torch.arange(len(sizes), dtype=torch.int32, device=sizes.device).mul_(_TURNS * number)[:, None] - first
    kinds += _turns(sizes.shape[1]).to(sizes.device) * number
    tables = (len(sizes), _TURNS, number)
    counts = torch.bincount(kinds.view(-1), minlength=math.prod(tables)).view(tables).sum(1)
    smaller = counts.cumsum(1) - counts
    places = torch.from_numpy(starts).to(sizes.device).expand(len(sizes), -1).contiguous()
    # The first kind that has as many smaller coordinates as come before a level is the first on that level.
    firsts = torch.searchsorted(smaller, places)
    levels = torch.zeros_like(counts).scatter_add_(1, firsts.clamp_(max=number - 1), torch.ones_like(firsts))
    numbers = torch.from_numpy(row[np.append(0, starts)]).to(sizes)
    limits = numbers[levels.cumsum(1)][:, None].expand(tables).reshape(-1)
    return limits.index_select(0, kinds.view(-1)).view_as(sizes)


@lru_cache(maxsize=4)
def _turns(places: int) -> Tensor:
    return torch.arange(places, dtype=torch.int32) % _TURNS


def _kind(size: float) -> int:
    return int(np.float32(size).view(np.int32)) >> _DROPPED_BITS


def bucket_means(rows: Tensor, assignment: Tensor, buckets: int) -> Tensor:
    """The mean of the rows in each bucket; zeros for an empty one."""
    totals = rows.new_zeros(buckets, rows.shape[1]).index_add_(0, assignment, rows)
    sizes = torch.bincount(assignment, minlength=buckets).clamp_(min=1)
    return totals / sizes.to(rows)[:, None]


def _draw_buckets(examples: int, buckets: int) -> Tensor:
    """An independent, secret bucket for each example; the same again with a run's seed.

    The proof needs both: other examples must keep their buckets when one leaves, and no bucket may be predictable.
    """
    bits = np.empty(examples, dtype=np.uint64)
    bound_stream().fill(bits)
    return torch.from_numpy((bits % np.uint64(buckets)).astype(np.int64))


def dense_rows(dense: Mapping[str, Tensor], examples: int) -> Iterator[Tensor]:
    """Gradients as rows over all parameters, so many `examples` at a time; at least one piece, which may be empty.

    `dense` comes from PerExampleGradients.dense. Rows are in at least single precision, and zero for an example that is
    not finite.
    """
    count = max((len(rows) for rows in dense.values()), default=0)
    for start in range(0, max(count, 1), examples):
        parts = [rows[start : start + examples] for rows in dense.values()]
        whole = torch.cat([part.reshape(len(part), math.prod(part.shape[1:])) for part in parts], dim=1)
        whole = at_least_single(whole)
        # A sum of finite numbers can overflow, so an infinite sum is checked row by row.
        if not bool(torch.isfinite(whole.sum())):
            whole = whole.masked_fill(~torch.isfinite(whole).all(dim=1, keepdim=True), 0.0)
        yield whole
