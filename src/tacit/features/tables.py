"""Tables: rows in one form, and numbers as ramps between evenly spaced knots.

A linear model over ramps is piecewise linear in each number, so it can rise and fall. Knots are spread over declared
bounds, not over the values in the rows, and each row is transformed by itself: no privacy is spent.

Hats over the knots give the same piecewise linear functions, but every hat is learnt by itself. Close values share most
ramps, so ramps generalise from one value to its neighbours. With little budget that gives better accuracy.

A sparse matrix may store a column of a row several times; the entry is then the sum. Code that reads the stored numbers
would bound the norm of another row than the one that is used. So every sparse matrix goes through `to_sparse_rows`.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin

from tacit import _validate
from tacit.errors import InvalidArgument

Form = Literal["ramps", "hats"]

# The length of a number's ramps; a category has length 1.
WEIGHT = 3.0


@dataclass(eq=False, repr=False)
class Knots(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns each of the first `numbers` columns, which are in [-1, 1], into ramps or hats; other columns stay.

    A ramp between two neighbouring `knots` is -1 below them and 1 above. Together the ramps of a number have length
    `weight` at every knot. As "hats" there is one column per knot, and a number between two has shares of `weight` in
    both. Numbers outside [-1, 1] are moved to the nearer end. Rows are then scaled to norm 1. Entries that are not
    finite count as zero, and a row of zeros stays one.

    >>> Knots(numbers=1, knots=3, weight=1).fit_transform([[-0.5, 0.0], [1.0, 1.0]]).round(2)
    array([[ 0.  , -1.  ,  0.  ],
           [ 0.5 ,  0.5 ,  0.71]], dtype=float32)
    """

    numbers: int
    _: KW_ONLY
    knots: int = 10
    weight: float = WEIGHT
    form: Form = "ramps"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        _validate.count("numbers", self.numbers, at_least=0)
        _validate.count("knots", self.knots, at_least=2)
        _validate.positive("weight", self.weight)
        if self.form not in ("ramps", "hats"):
            raise InvalidArgument(f"form must be 'ramps' or 'hats'. Got {self.form!r}.")
        self.n_features_in_ = _rows(X, self.numbers).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of ramps or hats, and other columns, for every row."""
        rows = _rows(X, self.numbers)
        make = _make_ramps if self.form == "ramps" else _make_hats
        parts = [np.float32(self.weight) * make(rows[:, column], self.knots) for column in range(self.numbers)]
        others = rows[:, self.numbers :]
        whole = np.concatenate([*parts, np.where(np.isfinite(others), others, 0)], axis=1)
        norms = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
        scaled: NDArray[np.float32] = (whole / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
        return scaled


def _rows(x: Any, numbers: int) -> NDArray[np.float32]:
    rows = to_table(x)
    if rows.shape[1] < numbers:
        raise InvalidArgument(f"X must be a table whose first {numbers} columns are numbers. Got shape {rows.shape}.")
    return rows


def _locate(values: NDArray[np.float32], knots: int) -> NDArray[np.float64]:
    """The position of each value, in knots from the first one."""
    places: NDArray[np.float64] = (np.clip(np.nan_to_num(values.astype(np.float64)), -1, 1) + 1) / 2 * (knots - 1)
    return places


def _make_ramps(values: NDArray[np.float32], knots: int) -> NDArray[np.float32]:
    """[rows, knots - 1]: from -1 to 1 between two neighbours, divided by sqrt(knots - 1)."""
    along = np.clip(_locate(values, knots)[:, None] - np.arange(knots - 1), 0, 1)
    ramps: NDArray[np.float32] = ((2 * along - 1) / math.sqrt(knots - 1) * np.isfinite(values)[:, None]).astype(
        np.float32
    )
    return ramps


def _make_hats(values: NDArray[np.float32], knots: int) -> NDArray[np.float32]:
    """[rows, knots]: the share of each value at each knot."""
    shares = np.maximum(1 - np.abs(_locate(values, knots)[:, None] - np.arange(knots)), 0)
    hats: NDArray[np.float32] = (shares * np.isfinite(values)[:, None]).astype(np.float32)
    return hats


def to_table(x: Any) -> NDArray[np.float32]:
    """Dense rows of numbers, also from a sparse matrix; `InvalidArgument` unless `x` is a table."""
    if sparse.issparse(x):
        dense: NDArray[np.float32] = to_sparse_rows(x).toarray()
        return dense
    rows = np.asarray(x, dtype=np.float32)
    if rows.ndim != 2:
        raise InvalidArgument(f"X must be a table, one row per example. Got shape {rows.shape}.")
    return rows


def to_sparse_rows(x: Any) -> sparse.csr_matrix:
    """Sparse rows that store each entry once, in the order of columns, and no zeros. The argument is not changed.

    Repeated entries are added up, as scipy's `toarray` does. NaN and infinite entries stay: code that sums rows leaves
    those rows out.

    >>> twice = sparse.csr_matrix(([3.0, 4.0], [1, 1], [0, 2]), shape=(1, 3))
    >>> to_sparse_rows(twice).data
    array([7.], dtype=float32)
    """
    if not sparse.issparse(x):
        return sparse.csr_matrix(to_table(x))
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise InvalidArgument(
            f"X must be a table of real numbers, one row per example. Got a sparse one of shape {x.shape} and type "
            f"{x.dtype}."
        )
    given = x.tocsr()
    # Rebuilt from its parts: scipy's flag for "no repeated entries" may be out of date.
    rows = sparse.csr_matrix((given.data.copy(), given.indices.copy(), given.indptr.copy()), shape=given.shape)
    try:
        rows.check_format(full_check=True)
    except ValueError as error:
        raise InvalidArgument(f"X is a damaged sparse matrix: {error}. Build it again from its entries.") from error
    rows.sum_duplicates()
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32)
    rows.eliminate_zeros()
    return rows
