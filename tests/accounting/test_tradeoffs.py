"""Any trade-off function, sampled and symmetrised: against closed forms, polygons and a numerical double conjugate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import gdp
from tacit.errors import InvalidArgument

ordinary_mus = st.floats(1e-3, 60)
rates = st.floats(-6, 0).map(lambda exponent: 10.0**exponent)
GRID = np.linspace(0, 1, 401)


def test_subsampled_tradeoff_has_the_worked_value():
    sampled = gdp.subsampled_tradeoff(lambda alpha: gdp.tradeoff(alpha, 1.0), 0.01)
    assert sampled(0.05) == pytest.approx(0.9479048897715856, rel=1e-14)


@given(ordinary_mus, rates)
def test_symmetrized_agrees_with_the_closed_form_of_the_sampled_gaussian(mu, rate):
    sampled = gdp.subsampled_tradeoff(lambda alpha: gdp.tradeoff(alpha, mu), rate)
    # At alpha = 0 a curve that underflows looks like one that is zero from there on.
    inside = GRID[1:]
    expected = gdp.subsampled_gaussian_tradeoff(inside, mu, rate)
    assert gdp.symmetrized(sampled)(inside) == pytest.approx(expected, abs=1e-14)


def lower_hull(points):
    """Corners of the largest convex function below the points, left to right (Andrew's monotone chain)."""
    hull = []
    for x, y in sorted(points):
        while len(hull) > 1 and (hull[-1][0] - hull[-2][0]) * (y - hull[-2][1]) <= (hull[-1][1] - hull[-2][1]) * (
            x - hull[-2][0]
        ):
            hull.pop()
        if not hull or x > hull[-1][0]:
            hull.append((x, y))
    return hull


thousandths = st.integers(0, 1000).map(lambda count: count / 1000)
below_guessing = st.tuples(thousandths, thousandths).filter(lambda point: sum(point) <= 1)


@given(thousandths, st.lists(below_guessing, max_size=6))
def test_symmetrized_is_the_convex_hull_of_a_polygon_and_its_mirror_image(height, points):
    corners = lower_hull([(0.0, height), *((x, y) for x, y in points if x > 0), (1.0, 0.0)])
    x, y = np.array(corners).T
    mirrored = lower_hull([*corners, *((y, x) for x, y in corners), (0.0, 1.0), (1.0, 0.0)])
    curve = gdp.symmetrized(lambda alpha: np.interp(alpha, x, y))
    assert curve(GRID) == pytest.approx(np.interp(GRID, *np.array(mirrored).T), abs=1e-11)


def test_symmetrized_agrees_with_a_numerical_double_conjugate():
    sampled = gdp.subsampled_tradeoff(lambda alpha: gdp.tradeoff(alpha, 2.0), 0.5)
    fine = np.linspace(0, 1, 20_001)
    points = np.concatenate([fine, sampled(fine)]), np.concatenate([sampled(fine), fine])
    slopes = np.concatenate([np.linspace(0, 3, 1201), np.geomspace(3, 1e4, 1200)])
    # The lowest line of each slope that still touches the points, then the highest of these lines.
    heights = np.array([np.min(points[1] + slope * points[0]) for slope in slopes])
    hull = np.max(heights - slopes * GRID[:, None], axis=1)
    assert gdp.symmetrized(sampled)(GRID) == pytest.approx(hull, abs=5e-6)


def test_symmetrized_leaves_symmetric_curves_alone():
    for curve in (
        lambda alpha: gdp.tradeoff(alpha, 1.3),
        lambda alpha: gdp.epsilon_delta_tradeoff(alpha, 1.0, 1e-3),
        lambda alpha: gdp.epsilon_delta_tradeoff(alpha, 0.0, 0.2),
        lambda alpha: 1 - alpha,
    ):
        assert gdp.symmetrized(curve)(GRID) == pytest.approx(curve(GRID), abs=1e-12)


def test_symmetrized_is_the_same_from_either_direction():
    sampled = gdp.subsampled_tradeoff(lambda alpha: gdp.tradeoff(alpha, 2.0), 0.5)
    x = np.linspace(0, 1, 100_001)
    y = sampled(x)
    mirrored = gdp.symmetrized(lambda alpha: np.interp(alpha, y[::-1], x[::-1]))
    assert mirrored(GRID) == pytest.approx(gdp.symmetrized(sampled)(GRID), abs=2e-6)


@pytest.mark.parametrize(
    "curve",
    [
        lambda alpha: 1 - alpha**2,
        lambda alpha: 0.6 - 0.2 * alpha,
        lambda alpha: -alpha,
        lambda alpha: np.full_like(alpha, math.nan),
    ],
    ids=["concave", "above_guessing", "negative", "nan"],
)
def test_what_is_no_tradeoff_function_is_not_symmetrized(curve):
    with pytest.raises(InvalidArgument, match="f must be a trade-off function: convex, falling"):
        gdp.symmetrized(curve)
