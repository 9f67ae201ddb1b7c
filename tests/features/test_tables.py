"""Hats over knots: shares that add up, broken lines, rows by themselves."""

import numpy as np
import pytest
from sklearn.base import clone

from tacit.errors import InvalidArgument
from tacit.features import Knots

ROWS = np.random.default_rng(0).uniform(-1, 1, (50, 3))


def test_hats_are_those_of_linear_interpolation():
    raw = Knots(numbers=1, knots=5).fit_transform(ROWS[:, :1])
    shares = raw / raw.sum(1, keepdims=True)
    knots = np.linspace(-1, 1, 5)
    assert np.allclose(shares @ knots, ROWS[:, 0], atol=1e-6)
    bent = np.array([0.3, -2.0, 1.0, 5.0, 0.0])
    assert np.allclose(shares @ bent, np.interp(ROWS[:, 0], knots, bent), atol=1e-5)


def test_rows_have_norm_one_and_depend_on_no_other():
    whole = clone(Knots(numbers=2, knots=4)).fit_transform(ROWS)
    assert whole.shape == (50, 9)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-6)
    assert np.array_equal(whole[7:8], Knots(numbers=2, knots=4).fit_transform(ROWS[7:8]))


def test_what_lies_outside_counts_as_the_nearer_end_and_what_is_not_finite_as_nothing():
    found = Knots(numbers=1, knots=3).fit_transform([[-7.0, 0], [9.0, 0], [np.nan, 1], [np.inf, np.nan]])
    assert np.array_equal(found, np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], np.float32))


def test_tables_with_fewer_columns_than_numbers_are_refused():
    with pytest.raises(InvalidArgument, match="first 4 columns are numbers"):
        Knots(numbers=4).fit(ROWS)
    with pytest.raises(InvalidArgument, match="knots"):
        Knots(numbers=1, knots=1).fit(ROWS)
