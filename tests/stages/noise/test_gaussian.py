"""Gaussian noise in single precision: the grid under it, and what it cannot be drawn for."""

import math

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.noise import GaussianNoise
from tacit.stages.noise.gaussian import _add_on_device
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


VALUES = {
    "several pieces": {"w": torch.randn(300, 250), "b": torch.randn(70)},
    "a number": {"a": torch.randn(()), "w": torch.randn(3, 0), "b": torch.randn(5)},
    "not in a row": {"w": torch.randn(200, 300).T, "b": torch.randn(9)},
    "mixed precision": {"w": torch.randn(40_000).double(), "h": torch.randn(7).bfloat16(), "b": torch.randn(3)},
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_mean_in_place_is_that_of_the_noisy_sum(values):
    """The same noise for every number, wherever pieces of noise and parameters begin and end."""
    noisy = GaussianNoise(2.0).add(BoundedSum(values, 0.5), SeededSource(1).stream(Purpose.NOISE, 0))
    copies = {name: value.clone(memory_format=torch.preserve_format) for name, value in values.items()}
    stream = SeededSource(1).stream(Purpose.NOISE, 0)
    mean = GaussianNoise(2.0).mean_in_place(BoundedSum(copies, 0.5), stream, lot_size=10.0)
    wide = any(value.dtype == torch.float64 for value in values.values())
    drawn = SeededSource(1).stream(Purpose.NOISE, 0).normal(sum(v.numel() for v in values.values()), wide=wide)
    start = 0
    for name, value in values.items():
        torch.testing.assert_close(mean[name], noisy[name] / 10, rtol=1e-6, atol=1e-9)
        noise = torch.from_numpy(drawn[start : start + value.numel()]).view(value.shape)
        # Half a cell of the grid, and what the addition rounds.
        assert ((noisy[name] - value - noise).abs() <= 2**-7 + 1e-5).all()
        start += value.numel()


def test_the_sum_is_left_alone_unless_it_may_be_overwritten():
    values = {"w": torch.randn(100)}
    before = values["w"].clone()
    GaussianNoise(1.0).add(BoundedSum(values, 1.0), SeededSource(0).stream(Purpose.NOISE, 0))
    assert torch.equal(values["w"], before)
    mean = GaussianNoise(1.0).mean_in_place(BoundedSum(values, 1.0), SeededSource(0).stream(Purpose.NOISE, 0), 1.0)
    assert mean["w"] is values["w"]


def test_noise_on_another_device_is_that_of_the_cpu_under_the_same_grid():
    values = {"w": torch.full((3, 4), 0.3), "b": torch.full((5,), -0.2)}
    rng = SeededSource(0).stream(Purpose.NOISE, 0)
    noise, unit = rng.normal(17, wide=False, scale=64.0), 64.0
    found = [value.clone() for value in values.values()]
    _add_on_device(found, torch.from_numpy(noise), unit, 1 / unit)
    expected = np.rint(np.concatenate([value.numpy().ravel() for value in values.values()]) * np.float32(unit) + noise)
    assert np.array_equal(torch.cat([value.flatten() for value in found]).numpy(), expected / np.float32(unit))
