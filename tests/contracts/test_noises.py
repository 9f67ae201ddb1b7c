"""What every Noise promises. A new noise gets these tests by being listed."""

import math

import pytest
import torch
from scipy import stats

from tacit.accounting import Event, Gaussian
from tacit.errors import InvalidArgument
from tacit.noise import GaussianNoise
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.types import BoundedSum

NOISES = [GaussianNoise(0.3), GaussianNoise(1.1), GaussianNoise(20.0)]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=str)
# Every statistical test here raises a false alarm with probability 1e-6, and its seed is fixed.
FALSE_ALARM = 1e-6


def zeros(sensitivity=2.5, size=100_000, dtype=torch.float32):
    return BoundedSum(
        {"weight": torch.zeros(size // 2, 2, dtype=dtype), "bias": torch.zeros(7, dtype=dtype)}, sensitivity
    )


def flat(values):
    return torch.cat([value.flatten().double() for value in values.values()])


def stream(step=0, seed=0):
    return SeededSource(seed).stream(Purpose.NOISE, step)


@every_noise
@pytest.mark.parametrize("sensitivity", [1e-4, 1.0, 2.5])
def test_its_scale_is_the_multiplier_times_the_sensitivity(noise, sensitivity):
    drawn = flat(noise.add(zeros(sensitivity), stream()))
    chi = float((drawn / (noise.multiplier * sensitivity)).square().sum())
    assert FALSE_ALARM / 2 < stats.chi2(len(drawn)).cdf(chi) < 1 - FALSE_ALARM / 2


@every_noise
def test_it_is_added_to_the_sum(noise):
    bounded = BoundedSum({"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([100.0])}, 1.0)
    empty = BoundedSum({name: torch.zeros_like(value) for name, value in bounded.values.items()}, 1.0)
    grid = noise.multiplier / 2**11
    with_sum, without = noise.add(bounded, stream()), noise.add(empty, stream())
    for name, value in bounded.values.items():
        assert with_sum[name].shape == value.shape
        torch.testing.assert_close(with_sum[name] - without[name], value, atol=grid, rtol=0)


@every_noise
def test_the_sum_is_left_as_it_was(noise):
    bounded = zeros()
    noise.add(bounded, stream())
    assert all(not value.any() for value in bounded.values.values())


@every_noise
def test_its_event_carries_its_multiplier(noise):
    event = noise.event(100)
    assert isinstance(event, Event)
    assert event == Gaussian(noise.multiplier)


@every_noise
def test_no_draw_comes_twice_from_a_secure_source(noise):
    source = SecureSource()
    draws = torch.stack([flat(noise.add(zeros(size=100), source.stream(Purpose.NOISE, 0))) for _ in range(50)])
    assert len({tuple(row.tolist()) for row in draws}) == 50


@every_noise
def test_two_steps_are_independent(noise):
    one, other = flat(noise.add(zeros(), stream(0))), flat(noise.add(zeros(), stream(1)))
    correlation = float(torch.corrcoef(torch.stack([one, other]))[0, 1]) * math.sqrt(len(one))
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2)


@every_noise
def test_an_empty_release_is_allowed(noise):
    assert noise.add(BoundedSum({}, 1.0), stream()) == {}


@every_noise
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_precision_is_released_in_at_least_single_precision(noise, dtype):
    found = noise.add(zeros(dtype=dtype, size=10), stream())["weight"].dtype
    assert found == (torch.float64 if dtype == torch.float64 else torch.float32)


@every_noise
def test_released_numbers_lie_on_a_grid_that_the_sum_does_not_choose(noise):
    bounded = BoundedSum({"weight": torch.rand(10_000) * 1e-3}, 1.0)
    drawn = noise.add(bounded, stream())["weight"].double()
    grid = 2.0 ** (math.floor(math.log2(noise.multiplier)) - 12)
    assert torch.equal(drawn / grid, (drawn / grid).round())


def test_gaussian_noise_is_normal():
    drawn = flat(GaussianNoise(1.1).add(zeros(2.0), stream()))
    assert stats.kstest(drawn.numpy(), stats.norm(scale=2.2).cdf).pvalue > FALSE_ALARM


def test_noise_without_a_multiplier_draws_nothing():
    with pytest.raises(InvalidArgument, match="no multiplier yet"):
        GaussianNoise().add(zeros(), stream())
    with pytest.raises(InvalidArgument, match="no multiplier yet"):
        GaussianNoise().event(3)


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf, "much"])
def test_a_multiplier_is_a_positive_number(wrong):
    with pytest.raises(InvalidArgument, match="multiplier must be"):
        GaussianNoise(wrong)
