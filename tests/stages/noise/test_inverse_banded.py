"""Noise whose inverse has few bands: its law, its scale, and what it refuses."""

import numpy as np
import pytest
import torch
from scipy import linalg, stats

from tacit.accounting import Correlated, Gaussian
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise import InverseBandedNoise
from tacit.types import BoundedSum

NOISE = InverseBandedNoise(1.5, bands=3, steps=12, apart=4)
SIZE = 20_000
FALSE_ALARM = 1e-6


def releases(steps, *, first=0, size=SIZE):
    source = SeededSource(5)
    zeros = BoundedSum({"w": torch.zeros(size)}, 2.0)
    return np.stack(
        [NOISE.add(zeros, source.stream(Purpose.NOISE, step))["w"].numpy() for step in range(first, first + steps)]
    )


def strategy():
    """C over the scale: the inverse of what the noise multiplies z with."""
    column = np.zeros(12)
    column[:3] = NOISE.coefficients
    return np.linalg.inv(NOISE.scale * linalg.toeplitz(column, np.zeros(12)))


def test_undone_it_is_independent_noise_of_the_multiplier():
    z = strategy() @ releases(12) / 3.0
    limit = stats.norm.isf(FALSE_ALARM / (2 * 144)) / np.sqrt(SIZE)
    assert np.abs(np.cov(z) - np.eye(12)).max() < 2 * limit


@pytest.mark.parametrize("first", range(4))
def test_an_example_costs_at_most_one_release_for_each_of_its_steps(first):
    taken = list(range(first, 12, 4))
    for count in range(1, len(taken) + 1):
        assert np.linalg.norm(strategy()[:, taken[:count]].sum(axis=1)) ** 2 <= count * (1 + 1e-9)


def test_some_example_costs_as_much_as_it_is_charged():
    found = [np.linalg.norm(strategy()[:, 0 : 4 * count : 4].sum(axis=1)) ** 2 / count for count in (1, 2, 3)]
    assert max(found) == pytest.approx(1, rel=1e-9)


def test_nothing_is_gained_from_the_secrecy_of_lots():
    event = CyclicPoisson(1, 100, groups=4).amplify(NOISE.event(3))
    assert NOISE.event(3) == Correlated(Gaussian(1.5), 4, is_amplified=False)
    assert event == Gaussian(1.5)


def test_more_steps_than_its_scale_is_for_are_refused():
    with pytest.raises(InvalidArgument, match="at most 12 steps"):
        releases(13, size=2)


def test_a_seeded_run_draws_its_past_again():
    assert np.array_equal(releases(12, size=50)[7:], releases(5, first=7, size=50))
