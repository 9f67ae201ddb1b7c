"""Ramps and hats over knots: broken lines, weights, rows by themselves."""

import numpy as np
import pytest
from sklearn.base import clone

from tacit.errors import InvalidArgument
from tacit.features import Knots

ROWS = np.random.default_rng(0).uniform(-1, 1, (50, 3))


def test_hats_are_those_of_linear_interpolation():
    raw = Knots(numbers=1, knots=5, form="hats").fit_transform(ROWS[:, :1])
    shares = raw / raw.sum(1, keepdims=True)
    knots = np.linspace(-1, 1, 5)
    assert np.allclose(shares @ knots, ROWS[:, 0], atol=1e-6)
    bent = np.array([0.3, -2.0, 1.0, 5.0, 0.0])
    assert np.allclose(shares @ bent, np.interp(ROWS[:, 0], knots, bent), atol=1e-5)


def test_ramps_and_a_constant_are_broken_lines_too():
    """Column 1 is a constant, so that dividing by it takes the norm off again."""
    raw = Knots(numbers=1, knots=5).fit_transform(np.column_stack([ROWS[:, 0], np.ones(50)]))
    ramps = raw[:, :4] / raw[:, 4:]
    knots, bent = np.linspace(-1, 1, 5), np.array([0.3, -2.0, 1.0, 5.0, 0.0])
    rises = np.diff(bent) / 2 * 2 / 3.0
    middle = (bent[0] + bent[-1]) / 2
    assert np.allclose(middle + ramps @ rises, np.interp(ROWS[:, 0], knots, bent), atol=1e-5)


def test_the_numbers_of_a_row_have_their_weight():
    at_a_knot = np.array([[0.5, 1.0], [-1.0, 1.0]])
    for form in ("ramps", "hats"):
        found = Knots(numbers=1, knots=5, weight=2.0, form=form).fit_transform(at_a_knot)
        assert np.allclose(np.linalg.norm(found[:, :-1], axis=1), 2 * found[:, -1], rtol=1e-6)


def test_neighbours_share_more_ramps_than_far_ones():
    found = Knots(numbers=1, knots=10).fit_transform([[-0.9], [-0.6], [0.9]])
    assert found[0] @ found[1] > 0.5 > -0.5 > found[0] @ found[2]


def test_rows_have_norm_one_and_depend_on_no_other():
    whole = clone(Knots(numbers=2, knots=4)).fit_transform(ROWS)
    assert whole.shape == (50, 7)
    assert np.allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-6)
    assert np.array_equal(whole[7:8], Knots(numbers=2, knots=4).fit_transform(ROWS[7:8]))


OUTSIDE = np.array([[-7.0, 0], [9.0, 0], [np.nan, 1], [np.inf, np.nan]])


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("hats", [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]),
        ("ramps", [[-(0.5**0.5), -(0.5**0.5), 0], [0.5**0.5, 0.5**0.5, 0], [0, 0, 1], [0, 0, 0]]),
    ],
)
def test_what_lies_outside_counts_as_the_nearer_end_and_what_is_not_finite_as_nothing(form, expected):
    found = Knots(numbers=1, knots=3, form=form).fit_transform(OUTSIDE)
    assert np.allclose(found, expected, atol=1e-7)


def test_tables_with_fewer_columns_than_numbers_are_refused():
    with pytest.raises(InvalidArgument, match="first 4 columns are numbers"):
        Knots(numbers=4).fit(ROWS)
    with pytest.raises(InvalidArgument, match="knots"):
        Knots(numbers=1, knots=1).fit(ROWS)
    with pytest.raises(InvalidArgument, match="weight"):
        Knots(numbers=1, weight=0.0).fit(ROWS)
    with pytest.raises(InvalidArgument, match="'ramps' or 'hats'"):
        Knots(numbers=1, form="steps").fit(ROWS)
