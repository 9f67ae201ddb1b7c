"""What every Noise promises. A new noise gets these tests by being listed."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.accounting import Correlated, Event, Gaussian, ProductNoise, Unproven, curve
from tacit.errors import InvalidArgument, NotProven
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.bounds import Encode
from tacit.stages.noise import (
    BandedNoise,
    BoxNoise,
    BufferedNoise,
    Cauchy,
    DirectionalNoise,
    GaussianNoise,
    InverseBandedNoise,
    Laplace,
    Normal,
    PrunedNoise,
    RealisedMeanNoise,
    Sech,
    StudentT,
    TreeNoise,
    VarianceGamma,
    list_families,
)
from tacit.types import BoundedSum

BOX = Encode().box
NOISES = [
    GaussianNoise(0.3),
    GaussianNoise(1.1),
    GaussianNoise(20.0),
    BoxNoise(Normal(), BOX, 1.1),
    BoxNoise(StudentT(9), BOX, 1.1),
    BoxNoise(StudentT(1.5), BOX, 0.3),
    BoxNoise(Laplace(), BOX, 3.0),
    BoxNoise(Cauchy(), BOX, 1.1),
    BoxNoise(VarianceGamma(), BOX, 20.0),
    BoxNoise(Sech(), BOX, 0.3),
    *(BoxNoise(family, BOX, 1.7) for family in list_families().values()),
]
# Noise whose steps hang together. What it is once that is undone, tests/stages/noise shows for each kind.
CORRELATED = [
    BandedNoise(1.1, bands=3, steps=64),
    BufferedNoise(1.1, steps=64, apart=8),
    InverseBandedNoise(1.1, bands=3, steps=64, apart=8),
    TreeNoise(1.1, steps=64, apart=8),
]
# The laws of noise of size one, as scipy has them.
LAWS = {
    Normal(): stats.norm(),
    StudentT(9): stats.t(9, scale=math.sqrt(7 / 9)),
    StudentT(1.5): stats.t(1.5),
    Laplace(): stats.laplace(scale=math.sqrt(1 / 2)),
    Cauchy(): stats.cauchy(),
    Sech(): stats.hypsecant(scale=2 / math.pi),
}
# Noises as published that nothing proves anything about.
UNPROVEN = [DirectionalNoise(2.5, 1.1), RealisedMeanNoise(1.1), PrunedNoise(1.1)]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=str)
also_correlated = pytest.mark.parametrize("noise", [*NOISES, *CORRELATED], ids=str)
# Every statistical test here raises a false alarm with probability 1e-6, and its seed is fixed.
FALSE_ALARM = 1e-6


def zeros(sensitivity=2.5, size=100_000, dtype=torch.float32):
    values = {"weight": torch.zeros(size // 2, 2, dtype=dtype), "bias": torch.zeros(7, dtype=dtype)}
    return BoundedSum(values, sensitivity, BOX)


def law_of(noise):
    """The distribution function of noise of size one."""
    family = noise.family if isinstance(noise, BoxNoise) else Normal()
    if isinstance(family, VarianceGamma):
        # (1 + |x|/b) e^{-|x|/b} / (4 b) with b = 1/2, integrated by hand.
        return lambda x: np.where(x < 0, (1 - x) * np.exp(2 * x) / 2, 1 - (1 + x) * np.exp(-2 * x) / 2)
    if family in LAWS:
        return LAWS[family].cdf
    density = family.density(1.0)
    return lambda x: density.survival(-x)


def flat(values):
    return torch.cat([value.flatten().double() for value in values.values()])


def stream(step=0, seed=0):
    return SeededSource(seed).stream(Purpose.NOISE, step)


@every_noise
@pytest.mark.parametrize("sensitivity", [1e-4, 1.0, 2.5])
def test_its_scale_is_the_multiplier_times_the_sensitivity(noise, sensitivity):
    drawn = flat(noise.add(zeros(sensitivity), stream())).numpy() / (noise.multiplier * sensitivity)
    assert stats.kstest(drawn, law_of(noise)).pvalue > FALSE_ALARM


@also_correlated
def test_it_is_added_to_the_sum(noise):
    bounded = BoundedSum({"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([100.0])}, 1.0, BOX)
    empty = BoundedSum({name: torch.zeros_like(value) for name, value in bounded.values.items()}, 1.0, BOX)
    grid = noise.multiplier / 2**5
    with_sum, without = noise.add(bounded, stream()), noise.add(empty, stream())
    for name, value in bounded.values.items():
        assert with_sum[name].shape == value.shape
        torch.testing.assert_close(with_sum[name] - without[name], value, atol=grid, rtol=0)


@also_correlated
def test_the_sum_is_left_as_it_was(noise):
    bounded = zeros()
    noise.add(bounded, stream())
    assert all(not value.any() for value in bounded.values.values())


@also_correlated
def test_its_event_carries_its_multiplier(noise):
    event = noise.event(100)
    assert isinstance(event, Event)
    if noise in CORRELATED:
        assert isinstance(event, Correlated)
        assert event.inside == Gaussian(noise.multiplier)
    elif isinstance(noise, GaussianNoise) or noise.family == Normal():
        assert event == Gaussian(noise.multiplier)
    else:
        densities = {part.density for part in event.walk() if isinstance(part, ProductNoise)}
        assert densities == {noise.family.density(noise.multiplier)}


@also_correlated
def test_no_draw_comes_twice_from_a_secure_source(noise):
    source = SecureSource()
    draws = torch.stack([flat(noise.add(zeros(size=100), source.stream(Purpose.NOISE, 0))) for _ in range(50)])
    assert len({tuple(row.tolist()) for row in draws}) == 50


@every_noise
def test_two_steps_are_independent(noise):
    one, other = flat(noise.add(zeros(), stream(0))), flat(noise.add(zeros(), stream(1)))
    # Of ranks, as heavy tails have no correlation.
    correlation = float(stats.spearmanr(one, other).statistic) * math.sqrt(len(one))
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2)


@also_correlated
def test_an_empty_release_is_allowed(noise):
    assert noise.add(BoundedSum({}, 1.0, BOX), stream()) == {}


@also_correlated
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_precision_is_released_in_at_least_single_precision(noise, dtype):
    found = noise.add(zeros(dtype=dtype, size=10), stream())["weight"].dtype
    assert found == (torch.float64 if dtype == torch.float64 else torch.float32)


@also_correlated
def test_released_numbers_lie_on_a_grid_that_the_sum_does_not_choose(noise):
    bounded = BoundedSum({"weight": torch.rand(10_000) * 1e-3}, 1.0, BOX)
    drawn = noise.add(bounded, stream())["weight"].double()
    grid = 2.0 ** (math.floor(math.log2(noise.multiplier)) - 12)
    assert torch.equal(drawn / grid, (drawn / grid).round())


def test_gaussian_noise_is_normal():
    drawn = flat(GaussianNoise(1.1).add(zeros(2.0), stream()))
    assert stats.kstest(drawn.numpy(), stats.norm(scale=2.2).cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "noise", [GaussianNoise(), BoxNoise(StudentT(), BOX), BandedNoise(), TreeNoise(steps=4, apart=2)], ids=str
)
def test_noise_without_a_multiplier_draws_nothing(noise):
    with pytest.raises(InvalidArgument, match="no multiplier yet"):
        noise.add(zeros(), stream())
    with pytest.raises(InvalidArgument, match="no multiplier yet"):
        noise.event(3)


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf, "much"])
def test_a_multiplier_is_a_positive_number(wrong):
    with pytest.raises(InvalidArgument, match="multiplier must be"):
        GaussianNoise(wrong)


@pytest.mark.parametrize("noise", UNPROVEN, ids=str)
def test_a_noise_without_a_proof_is_refused_by_every_accountant_however_it_is_sampled_or_composed(noise):
    event = noise.event(10)
    assert isinstance(event, Unproven)
    assert event.reason
    for by in ("pld", "rdp", "moments", "clt"):
        with pytest.raises(NotProven, match=event.reason[:20]):
            curve(event.sampled(0.01) * 10 + Gaussian(1.0), by=by).epsilon(1e-5)
