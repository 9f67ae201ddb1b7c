"""Gaussian noise in single precision: the grid under it, and what it cannot be drawn for."""

import math

import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.noise import GaussianNoise
from tacit.randomness import Purpose, SeededSource
from tacit.types import BoundedSum


@pytest.mark.parametrize("std", [0.7, 1.0, 1.9, 1e-12, 1e12])
def test_the_grid_is_so_coarse_that_single_precision_is_even_under_it(std):
    """Where cells are 2^-12 wide, how likely they are errs by 0.1 %; errors shrink as cells grow."""
    stream = SeededSource(0).stream(Purpose.NOISE, 0)
    released = GaussianNoise(1.0).add(BoundedSum({"w": torch.full((1000,), 0.3 * std)}, std), stream)["w"].double()
    grid = 2.0 ** (math.floor(math.log2(std)) - 6)
    assert std / 128 <= grid <= std / 64
    assert torch.equal((released / grid).round() * grid, released)


@pytest.mark.parametrize("sensitivity", [1e-36, 1e36])
def test_noise_that_single_precision_does_not_hold_is_refused(sensitivity):
    """Out there numbers turn into zeros, infinities and NaN, and these tell of the sum without any noise."""
    stream = SeededSource(0).stream(Purpose.NOISE, 0)
    with pytest.raises(InvalidArgument, match="single precision"):
        GaussianNoise(1.0).add(BoundedSum({"w": torch.zeros(3)}, sensitivity), stream)
