"""Tables: numbers between declared bounds become ramps between evenly spaced knots, and every row gets norm 1.

A linear model over ramps is a broken line in each number, so that it can rise and fall. Knots are spread over declared
bounds, never over what the rows contain, and each row is treated by itself: no privacy is spent.

Hats over the knots give the same broken lines, but every hat has to be learnt by itself. Values that are near to each
other have most ramps in common, so that what is learnt of one holds for its neighbours as well: with little budget
that is worth more.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from tacit import _validate
from tacit.errors import InvalidArgument
from tacit.features.rows import table_of

Form = Literal["ramps", "hats"]

# How long the ramps of a number are where a category has length 1.
WEIGHT = 3.0


class Knots(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows whose first `numbers` columns lie in [-1, 1]: each becomes ramps or hats, the other columns stay.

    A ramp lies between two neighbours of the `knots`: it is -1 for what is below and 1 for what is above. Together the
    ramps of a number have length `weight` at every knot. As "hats" there is one column a knot, and a number between two
    has shares of `weight` in both. Beyond [-1, 1] it counts as the nearer end. Rows are then scaled to norm 1. What is
    not finite counts zero, and a row of zeros stays one.

    >>> Knots(numbers=1, knots=3, weight=1).fit_transform([[-0.5, 0.0], [1.0, 1.0]]).round(2)
    array([[ 0.  , -1.  ,  0.  ],
           [ 0.5 ,  0.5 ,  0.71]], dtype=float32)
    """

    def __init__(self, numbers: int, *, knots: int = 10, weight: float = WEIGHT, form: Form = "ramps"):
        self.numbers = numbers
        self.knots = knots
        self.weight = weight
        self.form = form

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
        made = _ramps if self.form == "ramps" else _hats
        parts = [np.float32(self.weight) * made(rows[:, column], self.knots) for column in range(self.numbers)]
        others = rows[:, self.numbers :]
        whole = np.concatenate([*parts, np.where(np.isfinite(others), others, 0)], axis=1)
        norms = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
        scaled: NDArray[np.float32] = (whole / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
        return scaled


def _rows(x: Any, numbers: int) -> NDArray[np.float32]:
    rows = table_of(x)
    if rows.shape[1] < numbers:
        raise InvalidArgument(f"X must be a table whose first {numbers} columns are numbers. Got shape {rows.shape}.")
    return rows


def _places(values: NDArray[np.float32], knots: int) -> NDArray[np.float64]:
    """Where each value lies, counted in knots from the first one."""
    places: NDArray[np.float64] = (np.clip(np.nan_to_num(values.astype(np.float64)), -1, 1) + 1) / 2 * (knots - 1)
    return places


def _ramps(values: NDArray[np.float32], knots: int) -> NDArray[np.float32]:
    """[rows, knots - 1]: from -1 to 1 between two neighbours, over the root of how many there are."""
    along = np.clip(_places(values, knots)[:, None] - np.arange(knots - 1), 0, 1)
    ramps: NDArray[np.float32] = ((2 * along - 1) / math.sqrt(knots - 1) * np.isfinite(values)[:, None]).astype(
        np.float32
    )
    return ramps


def _hats(values: NDArray[np.float32], knots: int) -> NDArray[np.float32]:
    """[rows, knots]: what share of each value falls to each knot."""
    shares = np.maximum(1 - np.abs(_places(values, knots)[:, None] - np.arange(knots)), 0)
    hats: NDArray[np.float32] = (shares * np.isfinite(values)[:, None]).astype(np.float32)
    return hats
