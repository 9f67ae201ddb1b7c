"""Tables: numbers between declared bounds become hats over evenly spaced knots, and every row gets norm 1.

A linear model over hats is a broken line in each number, so that it can rise and fall. Knots are spread over declared
bounds, never over what the rows contain, and each row is treated by itself: no privacy is spent.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from tacit import arguments
from tacit.errors import InvalidArgument


class Knots(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Rows whose first `numbers` columns lie in [-1, 1]: each becomes `knots` hats, the other columns stay.

    A number between two knots lies in the hats of both, in shares that add up to 1; beyond [-1, 1] it counts as the
    nearer end. Rows are then scaled to norm 1. What is not finite counts zero, and a row of zeros stays one.

    >>> Knots(numbers=1, knots=3).fit_transform([[-0.5, 0.0], [1.0, 1.0]]).round(2)
    array([[0.71, 0.71, 0.  , 0.  ],
           [0.  , 0.  , 0.71, 0.71]], dtype=float32)
    """

    def __init__(self, numbers: int, *, knots: int = 10):
        self.numbers = numbers
        self.knots = knots

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Nothing to learn; the settings are checked."""
        arguments.count("numbers", self.numbers, at_least=0)
        arguments.count("knots", self.knots, at_least=2)
        self.n_features_in_ = _rows(X, self.numbers).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """One row of hats and other columns for every row."""
        rows = _rows(X, self.numbers)
        parts = [_hats(rows[:, column], self.knots) for column in range(self.numbers)]
        others = rows[:, self.numbers :]
        whole = np.concatenate([*parts, np.where(np.isfinite(others), others, 0)], axis=1)
        norms = np.sqrt(np.einsum("ij,ij->i", whole, whole, dtype=np.float64))
        scaled: NDArray[np.float32] = (whole / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)
        return scaled


def _rows(x: Any, numbers: int) -> NDArray[np.float32]:
    rows = np.asarray(x, dtype=np.float32)
    if rows.ndim != 2 or rows.shape[1] < numbers:
        raise InvalidArgument(f"X must be a table whose first {numbers} columns are numbers. Got shape {rows.shape}.")
    return rows


def _hats(values: NDArray[np.float32], knots: int) -> NDArray[np.float32]:
    """[rows, knots]: what share of each value falls to each knot."""
    known = np.isfinite(values)
    places = (np.clip(np.where(known, values, 0), -1, 1) + 1) / 2 * (knots - 1)
    below = np.minimum(places.astype(np.int64), knots - 2)
    hats = np.zeros((len(values), knots), dtype=np.float32)
    every = np.arange(len(values))
    hats[every, below] = (below + 1 - places) * known
    hats[every, below + 1] = (places - below) * known
    return hats
