"""Rows of numbers: tables as ramps between knots, which cost no privacy; private centring and whitening, which do.

A linear model over ramps is piecewise linear in each number, so it can rise and fall. Knots are spread over declared
bounds, not over the values in the rows. Hats over the knots give the same functions, but every hat is learnt by itself.
Close values share most ramps, so ramps generalise from one value to its neighbours, which helps with little budget.

Features such as scattering coefficients have much in common: their mean is as long as the differences between classes.
After subtracting it, the same clip norm and noise leave more of those differences. Whitening goes further. A row of
scattering coefficients is a tensor, channels x cells. Most of its length is in a few directions that most images share
and in which classes hardly differ. Dividing each direction by the square root of its standard deviation leaves more of
the clip norm to the others. The covariance of all 3,969 coefficients would be mostly noise; that of 81 channels is not,
nor that of 49 cells. Their Kronecker product stands for the whole.

A sparse matrix may store a column of a row several times; the entry is then the sum. Code that reads the stored numbers
would bound the norm of another row than the one that is used. So every sparse matrix goes through `to_sparse_rows`.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit._rows import make_rows, walk_pieces
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, source_for
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

Matrix = NDArray[np.float64]
Row = NDArray[np.float32]
# What each row counts in a sum; None if every row counts 1.
Shares = NDArray[np.float64] | None

# The power of an eigenvalue: -1/2 would make all directions equally long.
EXPONENT = -0.25
# Streams that no step of a run draws from (runs count their steps from 0): of the mean, and of the moments.
_MEAN_STREAM, _MOMENTS_STREAM = 2**32, 2**32 + 1
# Rows that are summed or transformed at a time, so that they fit into the processor's cache.
_PIECE = 256
# By how much rows of norm 1 may be longer through rounding to single precision.
_ROUNDED = 1 + 1e-5
# With next to no noise, no direction counts for more than if it held this share of an even one's length.
_LEAST = 1e-3
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
        self.n_features_in_ = _take_rows(X, self.numbers).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of ramps or hats, and other columns, for every row."""
        rows = _take_rows(X, self.numbers)
        parts = [np.float32(self.weight) * self._expand(rows[:, column]) for column in range(self.numbers)]
        others = rows[:, self.numbers :]
        whole = np.concatenate([*parts, np.where(np.isfinite(others), others, 0)], axis=1)
        norms = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
        return np.asarray(whole / np.where(norms > 0, norms, 1)[:, None], dtype=np.float32)

    def _expand(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """[rows, knots]: the share of each value at each knot. There is one ramp less, each 1 / sqrt(ramps) long."""
        places = (np.clip(np.nan_to_num(values.astype(np.float64)), -1, 1) + 1) / 2 * (self.knots - 1)
        if self.form == "hats":
            found = np.maximum(1 - np.abs(places[:, None] - np.arange(self.knots)), 0)
        else:
            along = np.clip(places[:, None] - np.arange(self.knots - 1), 0, 1)
            found = (2 * along - 1) / math.sqrt(self.knots - 1)
        return np.asarray(found * np.isfinite(values)[:, None], dtype=np.float32)


def _take_rows(x: Any, numbers: int) -> NDArray[np.float32]:
    rows = to_table(x)
    if rows.shape[1] < numbers:
        raise InvalidArgument(f"X must be a table whose first {numbers} columns are numbers. Got shape {rows.shape}.")
    return rows


def to_table(x: Any) -> NDArray[np.float32]:
    """Dense rows of numbers, also from a sparse matrix; `InvalidArgument` unless `x` is a table."""
    if sparse.issparse(x):
        return np.asarray(to_sparse_rows(x).toarray())
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


@dataclass(eq=False, repr=False)
class PrivateCentring(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtracts a private mean from every row, and scales rows to norm 1.

    `fit` releases the mean. Rows longer than 1 are scaled down to norm 1, so one example added or removed moves the sum
    by at most 1; the noise has standard deviation `multiplier`; the sum is divided by the declared `population`.
    `event_` is the cost, to be added to the other releases from the same examples. Transforming is then free. A row
    that is not finite counts as zero, and becomes zero.

    >>> centring = PrivateCentring(multiplier=50.0, population=1000).fit(np.ones((1000, 4)) / 2)
    >>> centring.event_
    Gaussian(multiplier=50.0, adjacency=<Adjacency.ADD_REMOVE: 'add_remove'>)
    """

    multiplier: float
    population: int
    _: KW_ONLY
    random_state: int | None = None

    def fit(self, X: Any, y: Any = None, *, shares: Shares = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean. With `shares`, which add up to 1 for each person, a person moves it as an example does."""
        self.mean_, self.event_ = release_mean(
            X, multiplier=self.multiplier, population=self.population, seed=self.random_state, shares=shares
        )
        self.n_features_in_ = len(self.mean_)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Transform each row by itself."""
        check_is_fitted(self)
        return centre_rows(to_table(X), self.mean_)


@dataclass(eq=False, repr=False)
class PrivateWhitening(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Subtracts a private mean, partly whitens rows along axes of their tensor, and scales rows to norm 1.

    `axes` is the shape of the tensor that a row holds, such as (81, 49), and `along` the axes that are whitened,
    counted from 0: all of them by default. If a column stands for several entries of the tensor (folded features),
    `columns` gives the column of every entry; all columns must occur equally often.

    `fit` makes two releases, each with noise of `multiplier` times its sensitivity: the mean, as `PrivateCentring`
    does; then the second moments of the centred rows along these axes, together. A centred row has norm 1 or is zero,
    so its second moments along an axis are a positive matrix of trace at most 1, and of Frobenius norm at most 1: one
    example added or removed moves the moments along k axes by at most sqrt(k). `event_` is the cost of both.
    Eigenvalues below the largest that noise alone would have are raised to that, and a mean that is mostly noise is not
    subtracted: with few examples, rows stay nearly as they are. Transforming is free. A row that is not finite counts
    as zero, and becomes zero.

    >>> rows = np.random.default_rng(0).normal(size=(500, 12))
    >>> PrivateWhitening(50.0, 500, axes=(3, 4)).fit(rows).transform(rows).shape
    (500, 12)
    """

    multiplier: float
    population: int
    _: KW_ONLY
    axes: tuple[int, ...]
    along: tuple[int, ...] | None = None
    columns: NDArray[np.int64] | None = None
    exponent: float = EXPONENT
    random_state: int | None = None

    def fit(self, X: Any, y: Any = None, *, shares: Shares = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean, then the moments; the matrices in `roots_` follow from them.

        With `shares`, which add up to 1 for each person, a person moves both as an example does: norms are convex.
        """
        rows = to_table(X)
        self._refuse_other_axes(rows.shape[1])
        released, first = release_mean(
            rows, multiplier=self.multiplier, population=self.population, seed=self.random_state, shares=shares
        )
        mean = zero_if_noise(released, self.multiplier / self.population)
        moments, second = self._release_moments(rows, mean, shares)
        self.mean_, self.n_features_in_ = mean, rows.shape[1]
        noise = self.multiplier * math.sqrt(len(self._along())) / self.population
        self.roots_: list[Row] = [take_power(moment, self.exponent, noise) for moment in moments]
        self.event_: Event = first + second
        return self

    def transform(self, X: Any) -> Row:  # noqa: N803
        """Transform each row by itself."""
        check_is_fitted(self)
        rows = to_table(X)
        found = make_rows(rows.shape, rows)
        for part in walk_pieces(rows, found):
            self._whiten(rows[part], found[part])
        return found

    def _whiten(self, rows: Row, found: Row) -> None:
        places = self._places()
        for start in range(0, len(rows), _PIECE):
            tensor = self._to_tensor(centre_rows(rows[start : start + _PIECE], self.mean_))
            for axis, matrix in zip(self._along(), self.roots_, strict=True):
                folded = tensor.reshape(math.prod(tensor.shape[: axis + 1]), tensor.shape[axis + 1], -1)
                tensor = (matrix @ folded).reshape(tensor.shape)
            found[start : start + _PIECE] = tensor.reshape(len(tensor), -1)[:, places]
        norms = np.sqrt(np.einsum("ij,ij->i", found, found))
        found /= np.where(norms > 0, norms, 1)[:, None]

    def _release_moments(self, rows: Row, mean: Row, shares: Shares = None) -> tuple[list[Matrix], Event]:
        """Second moments along the axes, with noise, over the population; and their cost."""
        totals = {axis: np.zeros((self.axes[axis], self.axes[axis])) for axis in self._along()}
        for part in walk_pieces(rows):
            for start in range(part.start, min(part.stop, len(rows)), _PIECE):
                centred = centre_rows(rows[start : start + _PIECE], mean)
                if shares is not None:
                    centred *= np.sqrt(shares[start : start + _PIECE, None]).astype(np.float32)
                tensor = self._to_tensor(centred)
                for axis, total in totals.items():
                    flat = np.moveaxis(tensor, axis + 1, 0).reshape(len(total), -1)
                    total += flat @ flat.T
        noise = GaussianNoise(_validate.positive("multiplier", self.multiplier))
        rng = source_for(self.random_state).stream(Purpose.NOISE, _MOMENTS_STREAM)
        sums = {str(axis): torch.from_numpy(flatten_symmetric(total)) for axis, total in totals.items()}
        release = noise.release(BoundedSum(sums, sensitivity=math.sqrt(len(totals)) * _ROUNDED), rng)
        found = [unflatten_symmetric(release.values[str(axis)].numpy()) / self.population for axis in totals]
        return found, release.event

    def _refuse_other_axes(self, width: int) -> None:
        entries = math.prod(_validate.count("axes", size) for size in self.axes)
        if self.columns is None:
            fits = entries == width
        else:
            counts = np.bincount(np.asarray(self.columns), minlength=width)
            fits = len(self.columns) == entries and len(counts) == width and bool(np.all(counts == counts[0]))
        along = self._along()
        if not along or len(set(along)) < len(along) or not set(along) <= set(range(len(self.axes))):
            raise InvalidArgument(
                f"along must name some of the axes 0 to {len(self.axes) - 1}, each once. Got {along!r}."
            )
        if not fits:
            raise InvalidArgument(
                f"axes={self.axes!r} must be the shape of what a row of {width} columns holds; with columns=..., all "
                "columns must occur in it, and equally often."
            )

    def _along(self) -> tuple[int, ...]:
        return tuple(range(len(self.axes))) if self.along is None else self.along

    def _to_tensor(self, rows: Row) -> Row:
        """Rows as tensors of the same norm."""
        if self.columns is None:
            return rows.reshape(len(rows), *self.axes)
        often = math.prod(self.axes) / rows.shape[1]
        return (rows[:, np.asarray(self.columns)] / np.float32(math.sqrt(often))).reshape(len(rows), *self.axes)

    def _places(self) -> NDArray[np.int64] | slice:
        """For every column, the first entry of the tensor that it stands for."""
        if self.columns is None:
            return slice(None)
        return np.unique(np.asarray(self.columns), return_index=True)[1]


def release_mean(
    x: Any, *, multiplier: float, population: int, seed: int | None = None, shares: Shares = None
) -> tuple[Row, Event]:
    """Release the sum of rows, each clipped to norm 1, over the population; return the mean and its cost.

    Each row is multiplied by its share, if there are `shares`.
    """
    population = _validate.count("population", population)
    noise = GaussianNoise(_validate.positive("multiplier", multiplier))
    rows = to_sparse_rows(x) if sparse.issparse(x) else to_table(x)
    total = np.zeros(rows.shape[1])
    for part in walk_pieces(rows):
        for start in range(part.start, min(part.stop, rows.shape[0]), _PIECE):
            piece = rows[start : start + _PIECE]
            by = np.ones(piece.shape[0]) if shares is None else shares[start : start + _PIECE]
            total += by @ _clip_to_one(piece) if isinstance(piece, np.ndarray) else _sum_sparse(piece, by)
    rng = source_for(seed).stream(Purpose.NOISE, _MEAN_STREAM)
    release = noise.release(BoundedSum({"sum": torch.from_numpy(total)}, sensitivity=1.0), rng)
    return (release.values["sum"].numpy() / population).astype(np.float32), release.event


def centre_rows(rows: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Subtract a public mean from rows and scale them to norm 1; rows that are not finite become zero."""
    if rows.shape[1] != len(mean):
        raise InvalidArgument(f"X must have {len(mean)} columns, as in fit. Got {rows.shape[1]}.")
    found = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _PIECE):
        piece = np.asarray(rows[start : start + _PIECE] - mean)
        norms = np.sqrt(np.einsum("ij,ij->i", piece, piece))
        usable = np.isfinite(norms) & (norms > 0)
        piece[~usable] = 0
        np.divide(piece, np.where(usable, norms, 1)[:, None], out=found[start : start + _PIECE])
    return found


def _clip_to_one(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scale rows longer than 1 to norm 1; rows that are not finite become zero."""
    wide = rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide[~np.isfinite(norms)] = 0
    return wide / np.maximum(np.where(np.isfinite(norms), norms, 1), 1)[:, None]


def _sum_sparse(rows: sparse.csr_matrix, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of shares of sparse rows, each clipped to norm 1, without those that are not finite."""
    squares = square_norms(rows.astype(np.float64))
    usable = np.flatnonzero(np.isfinite(squares))
    scales = shares[usable] / np.maximum(np.sqrt(squares[usable]), 1)
    return np.asarray(rows[usable].T.astype(np.float64) @ scales)


def square_norms(rows: sparse.csr_matrix) -> NDArray[Any]:
    """The squared norm of every row, in the precision of the rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()


def zero_if_noise(mean: Row, noise: float) -> Row:
    """The mean, whose entries have noise of this deviation; zero if at least half its squared length is noise."""
    is_known = float(mean.astype(np.float64) @ mean) > 2 * len(mean) * noise**2
    return mean if is_known else np.zeros_like(mean)


def flatten_symmetric(symmetric: Matrix) -> Matrix:
    """The diagonal, then the entries above it times sqrt(2): its norm is the Frobenius norm of the matrix."""
    above = np.triu_indices(len(symmetric), 1)
    return np.concatenate([np.diag(symmetric), math.sqrt(2) * symmetric[above]])


def unflatten_symmetric(values: Matrix) -> Matrix:
    """The symmetric matrix of such a vector: the inverse of `flatten_symmetric`."""
    size = (math.isqrt(8 * len(values) + 1) - 1) // 2
    found = np.zeros((size, size))
    found[np.triu_indices(size, 1)] = values[size:] / math.sqrt(2)
    found += found.T
    return found + np.diag(values[:size])


def take_power(moment: Matrix, exponent: float, noise: float) -> Row:
    """The power of a moment matrix whose flattened entries have noise of this deviation; 1 for evenly spread rows.

    Noise alone has eigenvalues up to about noise * sqrt(2 size) (Wigner's semicircle), so smaller ones are raised.
    """
    size = len(moment)
    values, vectors = np.linalg.eigh(moment)
    raised = np.maximum(values, max(noise * math.sqrt(2 * size), _LEAST / size))
    return np.asarray((vectors * (size * raised) ** exponent) @ vectors.T, dtype=np.float32)
