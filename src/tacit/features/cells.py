"""Numbers of a table by cell: beside ramps, one-hot columns on grids over the declared bounds, with private counts.

Ramps between ten knots cannot say that a capital gain of exactly 7,688 means a high income. One-hot columns on fine
grids can. Most cells are nearly empty, and a few hold most rows. So the counts of all cells are released once, with
noise. A cell of frequency f is multiplied by f^(-1/2), as whitening would do for independent cells, and the frequency
is subtracted. A row has one cell per number and grid, so its cells are sparse, and centring subtracts the same vector
from all rows: rows hold the numbers of their cells and one length, and nothing of the size of the grids.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import _validate
from tacit._rows import make_rows, walk_pieces
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.features.tables import Knots, PrivateWhitening, Row, to_table
from tacit.randomness import Purpose, source_for
from tacit.stages.noise import GaussianNoise
from tacit.types import BoundedSum

GRIDS = (32, 256, 1024)
# The share of a row's squared length for the cells; the other columns have the rest.
SHARE = 0.3
# A stream that no step of a run, and neither mean nor moments, draws from.
_COUNTS_STREAM = 2**32 + 2
# Frequencies below this, or below two standard deviations of their noise, count as this.
_LEAST, _DEVIATIONS = 1e-3, 2.0


@dataclass(eq=False, repr=False)
class KnotsAndCells(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The columns of `Knots`, then the number of the cell of each of the first `numbers` columns on each grid.

    A number in [-1, 1] falls into one of `grids` equal cells, for each grid; numbers outside fall into the nearest
    cell. Cells of all columns and grids are numbered from 0, grid by grid within each column. A number that is not
    finite is in no cell; its place holds the number of all cells. Each row is transformed by itself, so no privacy is
    spent.

    >>> KnotsAndCells(numbers=1, grids=(4, 8)).fit_transform([[-0.9], [0.3]])[:, -2:]
    array([[0., 4.],
           [2., 9.]], dtype=float32)
    """

    numbers: int
    _: KW_ONLY
    grids: tuple[int, ...] = GRIDS

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        _validate.count("numbers", self.numbers)
        for cells in self.grids:
            _validate.count("grids", cells, at_least=2)
        self.n_features_in_ = Knots(self.numbers).fit(X).n_features_in_
        return self

    def transform(self, X: Any) -> Row:  # noqa: N803
        """One row of ramps, other columns and cells for every row."""
        rows = to_table(X)
        found, start = [Knots(self.numbers).transform(rows)], 0
        for column in range(self.numbers):
            values = rows[:, column].astype(np.float64)
            along = (np.clip(np.nan_to_num(values), -1, 1) + 1) / 2
            for cells in self.grids:
                place = start + np.minimum(np.floor(along * cells), cells - 1)
                found.append(np.where(np.isfinite(values), place, self.cells)[:, None].astype(np.float32))
                start += cells
        return np.concatenate(found, axis=1)

    @property
    def cells(self) -> int:
        """The number of all cells."""
        return self.numbers * sum(self.grids)

    @property
    def per_row(self) -> int:
        """The number of cells that a row is in."""
        return self.numbers * len(self.grids)


@dataclass(eq=False, repr=False)
class PrivateCells(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Whitens ramps and other columns as `PrivateWhitening` does, and weighs cells by their private frequencies.

    Rows are those of `KnotsAndCells`: the last `per_row` columns hold numbers of cells below `cells`. `fit` makes three
    releases, each with noise of `multiplier` times its sensitivity: mean and second moments of the other columns, then
    the counts of all cells. One example added or removed moves `per_row` counts by 1 each, so the counts by at most
    sqrt(per_row). `event_` is the cost of all three. Counts over the `population` are frequencies f. A cell is
    multiplied by max(f, 2 s, 1/1000)^(-1/2), where s is the standard deviation of the noise in f, and f is subtracted
    where it exceeds 2 s. Cells of a row then get `SHARE` of its squared length.

    `transform` returns the numbers of a row's cells, their common factor, and the other columns; `TableScores` of
    `tacit.gradients.cells` computes scores from these. Transforming is free.
    """

    multiplier: float
    population: int
    _: KW_ONLY
    cells: int
    per_row: int
    random_state: int | None = None

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Release mean, moments and counts; scales and centre follow from them."""
        rows = self._to_rows(X)
        others = rows[:, : -self.per_row]
        whitening = self._whitening(others.shape[1]).fit(others)
        noise = GaussianNoise(_validate.positive("multiplier", self.multiplier))
        counts = np.zeros(self.cells + 1)
        for part in walk_pieces(rows):
            counts += np.bincount(self._places(rows[part]).ravel(), minlength=self.cells + 1)
        # The last count is of numbers that are in no cell, and is not released.
        counts = counts[: self.cells]
        rng = source_for(self.random_state).stream(Purpose.NOISE, _COUNTS_STREAM)
        release = noise.release(BoundedSum({"counts": torch.from_numpy(counts)}, math.sqrt(self.per_row)), rng)
        frequency = release.values["counts"].numpy() / self.population
        floor = _DEVIATIONS * self.multiplier * math.sqrt(self.per_row) / self.population
        scale = np.maximum(frequency, max(floor, _LEAST)) ** -0.5
        centre = np.where(frequency > floor, frequency * scale, 0)
        self.scale_: Row = np.append(scale, 0).astype(np.float32)
        self.centre_: Row = np.append(centre, 0).astype(np.float32)
        self.mean_, self.roots_ = whitening.mean_, whitening.roots_
        self.event_: Event = whitening.event_ + release.event
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, X: Any) -> Row:  # noqa: N803
        """Transform each row by itself."""
        check_is_fitted(self)
        rows = self._to_rows(X)
        whitening = self._whitening(len(self.mean_))
        whitening.mean_, whitening.roots_ = self.mean_, self.roots_
        found = make_rows((len(rows), rows.shape[1] + 1), rows)
        for part in walk_pieces(rows, found):
            piece = rows[part]
            places = self._places(piece)
            found[part, : self.per_row] = places
            found[part, self.per_row] = self._factors(places)
            white = whitening.transform(piece[:, : -self.per_row])
            np.multiply(white, np.float32(math.sqrt(1 - SHARE)), out=found[part, self.per_row + 1 :])
        return found

    def _factors(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The common factor of the cells of each row, from their numbers."""
        scale, centre = self.scale_.astype(np.float64), self.centre_.astype(np.float64)
        each = scale * (scale - 2 * centre)
        squares = each[places].sum(axis=1) + centre @ centre
        # A row in the middle of all rows has no direction, and its cells count nothing.
        is_apart = squares > 1e-9 * (centre @ centre)
        return np.where(is_apart, math.sqrt(SHARE) / np.sqrt(np.where(is_apart, squares, 1)), 0)

    def _whitening(self, columns: int) -> PrivateWhitening:
        return PrivateWhitening(self.multiplier, self.population, axes=(columns,), random_state=self.random_state)

    def _to_rows(self, x: Any) -> Row:
        rows = to_table(x)
        if rows.shape[1] <= self.per_row:
            raise InvalidArgument(
                f"X must have more than {self.per_row} columns, the last ones cells. Got {rows.shape}."
            )
        return rows

    def _places(self, rows: Row) -> NDArray[np.int64]:
        """The numbers of the cells of each row."""
        places = np.nan_to_num(rows[:, -self.per_row :], nan=self.cells, posinf=self.cells, neginf=self.cells)
        return np.clip(places, 0, self.cells).astype(np.int64)
