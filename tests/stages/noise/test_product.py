"""Noise on a box: what it accepts, and the event that it emits."""

import math

import numpy as np
import pytest
import torch

from tacit.accounting import Composed, Gaussian, LaplaceDensity, ProductNoise, StudentT, StudentTDensity, curve
from tacit.accounting.steps import boil_down
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import DrawnVectors, Encode, GivenVectors, Profile
from tacit.stages.noise import BoxNoise, Laplace, Normal
from tacit.stages.noise import StudentT as StudentNoise
from tacit.stages.noise.product import product_event, round_up
from tacit.types import BoundedSum

PAIR = Encode(GivenVectors(((0.6, 0.8),)))
UNIT = math.sqrt(7 / 9)


def shifts_of(event):
    found = []
    for part, times in boil_down(event).counts:
        found += [shift for shift in part.shifts for _ in range(times)]
    return np.sort(found)


def stream():
    return SeededSource(0).stream(Purpose.NOISE, 0)


def test_a_sum_bounded_by_a_norm_alone_is_refused():
    noise = BoxNoise(StudentNoise(), PAIR.box, 1.0)
    with pytest.raises(InvalidArgument, match="bounded by a norm"):
        noise.add(BoundedSum({"w": torch.zeros(2)}, 1.0), stream())
    with pytest.raises(InvalidArgument, match="accounted for on"):
        noise.add(BoundedSum({"w": torch.zeros(2)}, 1.0, Encode().box), stream())


@pytest.mark.slow
def test_the_event_is_the_corner_of_the_box():
    event = BoxNoise(StudentNoise(9), PAIR.box, 1.0).event(2)
    np.testing.assert_allclose(shifts_of(event), [0.6, 0.8], rtol=1e-12)
    bounds = curve(event).epsilon_bounds(1e-5)
    assert bounds == pytest.approx(curve(StudentT(9, UNIT, (0.6, 0.8))).epsilon_bounds(1e-5), rel=1e-4)
    # Near exact, of an independent computation on a grid.
    assert bounds[0] < 2.608524404381166 * (1 + 1e-5)
    assert 2.6085 < bounds[1] < 2.6087


@pytest.mark.slow
def test_coordinates_of_one_release_are_sampled_together():
    """Remove and add directions at rate 0.01 over 1000 steps, near exact by an independent computation."""
    event = BoxNoise(StudentNoise(9), PAIR.box, 1.0).event(2).sampled(0.01) * 1000
    lower, upper = curve(event).epsilon_bounds(1e-5)
    assert lower < 1.6649975381227722 < upper
    assert upper < 1.67


def test_only_the_ratio_of_noise_and_norm_is_accounted_for():
    one, other = (BoxNoise(Laplace(), Encode(norm=norm).box, 1.3).event(40) for norm in (1.0, 0.01))
    np.testing.assert_allclose(shifts_of(one), shifts_of(other), rtol=1e-12)


def test_gaussian_noise_on_a_box_costs_what_it_costs_on_a_norm():
    assert BoxNoise(Normal(), Encode(DrawnVectors(10)).box, 1.1).event(100) == Gaussian(1.1)


def test_equal_shifts_are_counted_and_zeros_left_out():
    event = product_event(LaplaceDensity(1.0), np.array([0.5, 0.0, 0.5, 0.25]))
    assert event == Composed(
        (ProductNoise(LaplaceDensity(1.0), (0.25,)), ProductNoise(LaplaceDensity(1.0), (0.5,)) * 2)
    )


@pytest.mark.slow
def test_no_shift_at_all_costs_nothing():
    assert curve(product_event(LaplaceDensity(1.0), np.zeros(3)).sampled(0.1) * 10).epsilon(1e-5) == 0


@pytest.mark.parametrize("dimension", [30, 1000])
def test_many_different_shifts_are_rounded_up_to_few(dimension):
    shifts = np.random.default_rng(0).permutation(DrawnVectors(1).rows(dimension)[0].astype(float))
    rounded = round_up(shifts, 24)
    assert np.all(rounded >= shifts)
    assert np.unique(rounded).size <= 24
    assert np.linalg.norm(rounded) < 1.05 * np.linalg.norm(shifts)


def test_few_different_shifts_stay_as_they_are():
    shifts = Profile(8).rows(500)[0]
    np.testing.assert_array_equal(round_up(shifts, 24), shifts)


@pytest.mark.slow
def test_the_epsilon_of_rounded_shifts_is_an_upper_bound_and_close():
    shifts = DrawnVectors(1).rows(40)[0].astype(float)
    density = StudentTDensity(9.0, UNIT)
    rounded = curve(product_event(density, shifts)).epsilon(1e-5)
    exact = curve(ProductNoise(density, tuple(shifts.tolist()))).epsilon_bounds(1e-5)
    assert exact[0] <= rounded <= 1.06 * exact[1]
