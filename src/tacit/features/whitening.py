"""Private pre-processing: second moments of the features along axes of theirs, and rows that are whitened by them.

A row of scattering coefficients is a tensor, channels x cells. Most of its length lies in a few directions that most
images share, and in which classes hardly differ; dividing every direction by the square root of its deviation leaves
more of a row's length, and so of the clip norm, to the others. A covariance of all 3,969 coefficients would drown in
noise. One of 81 channels does not, nor one of 49 cells; both together stand for it as a Kronecker product.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.features.centring import centred, private_mean
from tacit.features.rows import table_of
from tacit.randomness import Purpose, source_for
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

Matrix = NDArray[np.float64]
Row = NDArray[np.float32]

# The power of an eigenvalue: -1/2 would make all directions equally long.
EXPONENT = -0.25
# A stream of its own: the mean draws from the one before.
_STREAM = 2**32 + 1
# Rows that are summed, or transformed, at a time: few enough to stay in the processor's own memory.
_PIECE = 256
# By how much rows of norm 1 in single precision, and what is made of them, may be longer than that.
_ROUNDED = 1 + 1e-5
# Where next to no noise was added: no direction counts for more than if it held this share of an even one's length.
_LEAST = 1e-3


class PrivateWhitening(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows less their private mean, whitened in part along axes of their tensor, and scaled to norm 1.

    `axes` is the shape of the tensor that a row holds, such as (81, 49), and `along` the axes that are whitened,
    counted from 0: all of them by default. Where a column stands for several entries of the tensor (folded features),
    `columns` says for every entry which column that is; all columns must occur equally often.

    `fit` makes two releases, each with noise of `multiplier` times its sensitivity: the mean, as `PrivateCentring`
    does; then the second moments of the centred rows along these axes, together. A centred row has norm 1 or is zero,
    so its second moments along an axis are a positive matrix of trace at most 1, and of Frobenius norm at most 1: one
    example added or removed moves the moments along k axes by at most sqrt(k). `event_` is the cost of both.
    Eigenvalues below the largest that the noise alone would have are raised to that, and a mean that is noise for the
    most part is not taken off: few examples are better left as they are. Transforming is free. A row that
    is not finite counts zero, and becomes zero.

    >>> rows = np.random.default_rng(0).normal(size=(500, 12))
    >>> PrivateWhitening(50.0, 500, axes=(3, 4)).fit(rows).transform(rows).shape
    (500, 12)
    """

    def __init__(
        self,
        multiplier: float,
        population: int,
        *,
        axes: tuple[int, ...],
        along: tuple[int, ...] | None = None,
        columns: NDArray[np.int64] | None = None,
        exponent: float = EXPONENT,
        random_state: int | None = None,
    ):
        self.multiplier = multiplier
        self.population = population
        self.axes = axes
        self.along = along
        self.columns = columns
        self.exponent = exponent
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release the mean, then the moments; the roots follow from these."""
        rows = table_of(X)
        self._refuse_other_axes(rows.shape[1])
        released, first = private_mean(
            rows, multiplier=self.multiplier, population=self.population, seed=self.random_state
        )
        mean = known(released, self.multiplier / self.population)
        moments, second = self._released_moments(rows, mean)
        self.mean_, self.n_features_in_ = mean, rows.shape[1]
        noise = self.multiplier * math.sqrt(len(self._along())) / self.population
        self.roots_: list[Row] = [root(moment, self.exponent, noise) for moment in moments]
        self.event_: Event = first + second
        return self

    def transform(self, X: Any) -> Row:  # noqa: N803
        """Every row by itself."""
        check_is_fitted(self)
        rows = table_of(X)
        found, places = np.empty(rows.shape, dtype=np.float32), self._places()
        for start in range(0, len(rows), _PIECE):
            tensor = self._tensor(centred(rows[start : start + _PIECE], self.mean_))
            for axis, matrix in zip(self._along(), self.roots_, strict=True):
                tensor = _multiplied(matrix, tensor, axis + 1)
            found[start : start + _PIECE] = tensor.reshape(len(tensor), -1)[:, places]
        norms = np.sqrt(np.einsum("ij,ij->i", found, found))
        found /= np.where(norms > 0, norms, 1)[:, None]
        return found

    def _released_moments(self, rows: Row, mean: Row) -> tuple[list[Matrix], Event]:
        """Second moments along the axes, with noise, over the population; and their cost."""
        totals = {axis: np.zeros((self.axes[axis], self.axes[axis])) for axis in self._along()}
        for start in range(0, len(rows), _PIECE):
            tensor = self._tensor(centred(rows[start : start + _PIECE], mean))
            for axis, total in totals.items():
                flat = np.moveaxis(tensor, axis + 1, 0).reshape(len(total), -1)
                total += flat @ flat.T
        noise = GaussianNoise(_validate.positive("multiplier", self.multiplier))
        rng = source_for(self.random_state).stream(Purpose.NOISE, _STREAM)
        sums = {str(axis): torch.from_numpy(flattened(total)) for axis, total in totals.items()}
        release = noise.release(BoundedSum(sums, sensitivity=math.sqrt(len(totals)) * _ROUNDED), rng)
        found = [unflattened(release.values[str(axis)].numpy()) / self.population for axis in totals]
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

    def _tensor(self, rows: Row) -> Row:
        """Rows as tensors of the same norm."""
        if self.columns is None:
            return rows.reshape(len(rows), *self.axes)
        often = math.prod(self.axes) / rows.shape[1]
        return (rows[:, np.asarray(self.columns)] / np.float32(math.sqrt(often))).reshape(len(rows), *self.axes)

    def _places(self) -> NDArray[np.int64] | slice:
        """The first entry of the tensor that every column stands for."""
        if self.columns is None:
            return slice(None)
        places: NDArray[np.int64] = np.unique(np.asarray(self.columns), return_index=True)[1]
        return places


def known(mean: Row, noise: float) -> Row:
    """A mean whose entries bear noise of this deviation; zero if half its squared length, or more, is noise."""
    is_known = float(mean.astype(np.float64) @ mean) > 2 * len(mean) * noise**2
    return mean if is_known else np.zeros_like(mean)


def flattened(symmetric: Matrix) -> Matrix:
    """The diagonal, then what is above it times sqrt(2): a vector as long as the Frobenius norm of the matrix."""
    above = np.triu_indices(len(symmetric), 1)
    return np.concatenate([np.diag(symmetric), math.sqrt(2) * symmetric[above]])


def unflattened(values: Matrix) -> Matrix:
    """The symmetric matrix of such a vector."""
    size = (math.isqrt(8 * len(values) + 1) - 1) // 2
    found = np.zeros((size, size))
    found[np.triu_indices(size, 1)] = values[size:] / math.sqrt(2)
    found += found.T
    return found + np.diag(values[:size])


def root(moment: Matrix, exponent: float, noise: float) -> Row:
    """The power of a moment whose flattened entries bear noise of this deviation; 1 for what an even spread would have.

    Noise alone would have eigenvalues up to about noise * sqrt(2 size) (Wigner's semicircle): below that, nothing is
    known.
    """
    size = len(moment)
    values, vectors = np.linalg.eigh(moment)
    raised = np.maximum(values, max(noise * math.sqrt(2 * size), _LEAST / size))
    found: Row = ((vectors * (size * raised) ** exponent) @ vectors.T).astype(np.float32)
    return found


def _multiplied(matrix: Row, tensor: Row, axis: int) -> Row:
    """A symmetric matrix times the tensor along an axis: rows of a matrix of what comes before and after the axis."""
    size = tensor.shape[axis]
    product: Row = matrix @ tensor.reshape(math.prod(tensor.shape[:axis]), size, -1)
    return product.reshape(tensor.shape)
