"""Private pre-processing: the mean of the features, released once with noise of its own, and taken off every row.

Features such as scattering coefficients have much in common: their mean is as long as what sets them apart. Off with
it, the same clip norm and the same noise leave more of what tells classes apart.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.features.rows import sparse_rows, table_of
from tacit.randomness import Purpose, source_for
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

Row = NDArray[np.float32]

# The stream of a source that no step of a run draws from: runs count their steps from 0.
_STREAM = 2**32
# Rows that are summed, or transformed, at a time: few enough to stay in the processor's own memory.
_PIECE = 256


class PrivateCentring(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows less their private mean, and scaled to norm 1.

    `fit` is the release: every row is scaled down to norm 1 where it is longer, so one example added or removed moves
    the sum by at most 1; the noise has a standard deviation of `multiplier`; the sum is divided by the declared
    `population`. `event_` is what that costs, to be added to whatever else is released from the same examples.
    Transforming is then free. A row that is not finite counts zero, and is centred to zero.

    >>> centring = PrivateCentring(multiplier=50.0, population=1000).fit(np.ones((1000, 4)) / 2)
    >>> centring.event_
    Gaussian(multiplier=50.0, adjacency=<Adjacency.ADD_REMOVE: 'add_remove'>)
    """

    def __init__(self, multiplier: float, population: int, *, random_state: int | None = None):
        self.multiplier = multiplier
        self.population = population
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean."""
        self.mean_, self.event_ = private_mean(
            X, multiplier=self.multiplier, population=self.population, seed=self.random_state
        )
        self.n_features_in_ = len(self.mean_)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """Every row by itself."""
        check_is_fitted(self)
        return centred(table_of(X), self.mean_)


class PrivateWordWeights(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sparse rows of words, in which words that are frequent count less, and norm 1 again.

    `fit` releases the mean row as `PrivateCentring` does. A word of mean m above a floor counts sqrt(floor / m) of
    what it did; the floor is `floor`, or four standard deviations of the noise if that is more, so that noise alone
    lets next to no word count less. A row that is not finite counts zero, and becomes zero.
    """

    def __init__(self, multiplier: float, population: int, *, floor: float = 0.003, random_state: int | None = None):
        self.multiplier = multiplier
        self.population = population
        self.floor = floor
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean, and weights that follow from it."""
        floor = max(_validate.positive("floor", self.floor), 4 * self.multiplier / self.population)
        self.mean_, self.event_ = private_mean(
            X, multiplier=self.multiplier, population=self.population, seed=self.random_state
        )
        self.weights_: Row = np.sqrt(floor / np.maximum(self.mean_, floor)).astype(np.float32)
        self.n_features_in_ = len(self.mean_)
        return self

    def transform(self, X: Any) -> sparse.csr_matrix:  # noqa: N803
        """Every row by itself."""
        check_is_fitted(self)
        rows = sparse_rows(X)
        if rows.shape[1] != len(self.weights_):
            raise InvalidArgument(f"X must have {len(self.weights_)} columns, as in fit. Got {rows.shape[1]}.")
        weighed = sparse.csr_matrix(rows.multiply(self.weights_[None, :]))
        norms = np.sqrt(_squares(weighed))
        usable = np.isfinite(norms) & (norms > 0)
        # A product with zero would leave what is not finite as it is.
        weighed.data[np.repeat(~usable, np.diff(weighed.indptr))] = 0
        scales = sparse.diags(1 / np.where(usable, norms, 1))
        return sparse_rows(scales @ weighed)


def private_mean(x: Any, *, multiplier: float, population: int, seed: int | None = None) -> tuple[Row, Event]:
    """The sum of rows of norm at most 1 (longer ones are scaled down) with noise, over the population; and its cost."""
    population = _validate.count("population", population)
    noise = GaussianNoise(_validate.positive("multiplier", multiplier))
    rows = sparse_rows(x) if sparse.issparse(x) else table_of(x)
    total = np.zeros(rows.shape[1])
    for start in range(0, rows.shape[0], _PIECE):
        piece = rows[start : start + _PIECE]
        total += _within_one(piece).sum(axis=0) if isinstance(piece, np.ndarray) else _sparse_sum(piece)
    rng = source_for(seed).stream(Purpose.NOISE, _STREAM)
    release = noise.release(BoundedSum({"sum": torch.from_numpy(total)}, sensitivity=1.0), rng)
    return (release.values["sum"].numpy() / population).astype(np.float32), release.event


def centred(rows: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows less a public mean, scaled to norm 1; those that are not finite become zero."""
    if rows.shape[1] != len(mean):
        raise InvalidArgument(f"X must have {len(mean)} columns, as in fit. Got {rows.shape[1]}.")
    found = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _PIECE):
        piece = rows[start : start + _PIECE] - mean
        norms = np.sqrt(np.einsum("ij,ij->i", piece, piece))
        usable = np.isfinite(norms) & (norms > 0)
        piece[~usable] = 0
        np.divide(piece, np.where(usable, norms, 1)[:, None], out=found[start : start + _PIECE])
    return found


def _within_one(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows scaled down to norm 1 where they are longer; zero where they are not finite."""
    wide = rows.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide[~np.isfinite(norms)] = 0
    scaled: NDArray[np.float64] = wide / np.maximum(np.where(np.isfinite(norms), norms, 1), 1)[:, None]
    return scaled


def _sparse_sum(rows: sparse.csr_matrix) -> NDArray[np.float64]:
    """The sum of sparse rows, scaled down to norm 1 where they are longer; none that is not finite."""
    squares = _squares(rows.astype(np.float64))
    usable = np.flatnonzero(np.isfinite(squares))
    scales = 1 / np.maximum(np.sqrt(squares[usable]), 1)
    total: NDArray[np.float64] = rows[usable].T.astype(np.float64) @ scales
    return total


def _squares(rows: sparse.csr_matrix) -> NDArray[Any]:
    """The squared norm of every row, in the precision of the rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: NDArray[Any] = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return squares
