"""Rows of a table as a linear model uses them: scaled, with a 1 for the intercept, in double precision.

A small dense table is copied once. A sparse one stays sparse. A large one stays where it is, in single precision or in
a file: whenever its rows are used, they are converted piece by piece. All of them know products with `@`, `.T @`, and
rows by their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit._rows import drop_pages
from tacit._validate import Array
from tacit.errors import InvalidArgument

# A dense table with more numbers is not copied; and as many are converted at a time.
_LARGE, _PIECE = 2**24, 2**19
# An array, a scipy.sparse.csr_matrix or `StayingRows`.
Rows = Any


@final
@dataclass(frozen=True, eq=False)
class StayingRows:
    """A table that is not copied, with a factor for each row, and the entries of the intercept's column if it has one.

    A row of factor zero counts as zero, whatever it holds.
    """

    source: NDArray[Any]
    factors: Array
    ones: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.source), self.source.shape[1] + (self.ones is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    @property
    def ndim(self) -> int:
        return self.source.ndim

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, chosen: Any) -> Array:
        taken, factors = self.source[chosen], self.factors[chosen, None]
        found = np.zeros((len(taken), self.shape[1]))
        np.multiply(taken, factors, out=found[:, : taken.shape[1]], where=factors > 0)
        if self.ones is not None:
            found[:, -1] = self.ones[chosen]
        return found

    def pieces(self) -> Iterator[tuple[slice, Array]]:
        """All rows, some at a time, with their places."""
        size = max(_PIECE // self.shape[1], 1)
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield part, self[part]
            drop_pages(self.source)

    def __matmul__(self, other: Array) -> Array:
        found = np.empty((len(self), *other.shape[1:]))
        for part, rows in self.pieces():
            found[part] = rows @ other
        return found

    @property
    def T(self) -> TransposedRows:  # noqa: N802 - numpy's name
        return TransposedRows(self)


@final
@dataclass(frozen=True, eq=False)
class TransposedRows:
    """The transpose of such a table, for products."""

    rows: StayingRows

    def __matmul__(self, other: Array) -> Array:
        total = np.zeros((self.rows.shape[1], *other.shape[1:]))
        for part, rows in self.rows.pieces():
            total += rows.T @ other[part]
        return total


def hold_rows(table: Any, *, intercept: bool, may_stay: bool) -> Rows:
    """The rows of a table, with a 1 for the intercept; a copy in memory unless they may stay as they are."""
    if not may_stay:
        table = make_dense(table)
    if sparse.issparse(table):
        rows = read_sparse(table)
        return sparse.hstack([rows, np.ones((rows.shape[0], 1))], format="csr") if intercept else rows
    if isinstance(table, StayingRows):
        return replace(table, ones=np.ones(len(table))) if intercept else table
    if may_stay and table.size > _LARGE:
        return StayingRows(table, np.ones(len(table)), np.ones(len(table)) if intercept else None)
    rows = np.empty((table.shape[0], table.shape[1] + intercept))
    rows[:, : table.shape[1]] = table
    if intercept:
        rows[:, -1] = 1.0
    return rows


def read_sparse(table: Any) -> Any:
    """A copy in double precision whose rows store every entry once, as repeated ones would have the wrong norm."""
    given = table.tocsr()
    # Rebuilt from its parts: scipy's flag for "no repeated entries" may be out of date.
    parts = given.data.astype(np.float64), given.indices.copy(), given.indptr.copy()
    rows = sparse.csr_matrix(parts, shape=given.shape)
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InvalidArgument(f"X is a damaged sparse matrix: {error}. Build it again from its entries.") from error
    rows.sum_duplicates()
    return rows


def make_dense(table: Any) -> Any:
    """The table as an array, if it is sparse or stays where it is."""
    if sparse.issparse(table):
        return read_sparse(table).toarray()
    return table[:] if isinstance(table, StayingRows) else table


def measure_norms(rows: Rows) -> Array:
    """The norm of every row; not finite where an entry is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(rows, StayingRows):
            return np.concatenate([measure_norms(part) for _, part in rows.pieces()])
        if sparse.issparse(rows):
            return np.asarray(np.sqrt(rows.multiply(rows).sum(axis=1))).ravel()
        norms: Array = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def measure_table(table: Any) -> Array:
    """The norm of every row of a table that was not read yet, without a copy of a large one."""
    if sparse.issparse(table):
        return measure_norms(read_sparse(table))
    if table.size > _LARGE:
        return measure_norms(StayingRows(table, np.ones(len(table))))
    return np.asarray(np.linalg.norm(np.asarray(table, dtype=np.float64), axis=1))


def scale_rows(rows: Rows, factors: Array) -> Rows:
    """Multiply each row by its factor, in place where rows are a copy; a factor of zero makes a row of zeros."""
    if isinstance(rows, StayingRows):
        return StayingRows(rows.source, rows.factors * factors, None if rows.ones is None else rows.ones * factors)
    lost = factors == 0
    if sparse.issparse(rows):
        each = np.repeat(factors, np.diff(rows.indptr))
        rows.data *= each
        rows.data[each == 0] = 0.0
        return rows
    if np.any(lost):
        rows[lost] = 0.0
    if np.any(factors < 1):
        rows *= factors[:, None]
    return rows


def weigh_squares(rows: Rows, weights: Array) -> Array:
    """The sum over rows of weight times outer product of the row with itself: [columns, columns]."""
    if isinstance(rows, StayingRows):
        total = np.zeros((rows.shape[1], rows.shape[1]))
        for part, piece in rows.pieces():
            total += weigh_squares(piece, weights[part])
        return total
    if sparse.issparse(rows):
        return np.asarray((rows.T @ rows.multiply(weights[:, None])).toarray())
    weighted = np.sqrt(weights)[:, None] * rows
    squares: Array = weighted.T @ weighted
    return squares


def clip_rows(table: Any, norm: float) -> Any:
    """The table with rows scaled down to the norm: a copy if it is small, else as it is, with factors."""
    factors = norm / np.maximum(measure_table(table), norm)
    if sparse.issparse(table):
        return scale_rows(read_sparse(table), factors)
    if table.size > _LARGE:
        return StayingRows(table, factors)
    return np.asarray(table, dtype=np.float64) * factors[:, None]


def multiply_rows(table: Any, theta: Array) -> Array:
    """Scores in double precision, without a copy of a large table."""
    if sparse.issparse(table) or table.dtype == np.float64:
        return np.asarray(table @ theta)
    return StayingRows(table, np.ones(len(table))) @ theta


def widen_small(table: Any) -> Any:
    """A small dense table in double precision; others as they are."""
    return table if sparse.issparse(table) or table.size > _LARGE else np.asarray(table, dtype=np.float64)


def list_arrays(table: Any) -> tuple[NDArray[Any], ...]:
    """Arrays for a fingerprint of the rows."""
    if sparse.issparse(table):
        return table.data, table.indices, table.indptr, np.asarray(table.shape)
    return (table.source, table.factors) if isinstance(table, StayingRows) else (table,)
