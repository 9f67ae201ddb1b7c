"""Noise on a sum that is divided by the number of examples that came: as published, and without a proof."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from support.slow_gradients import SlowGradients
from tacit.accounting import Gaussian, Unproven, curve
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SeededSource
from tacit.stages.bounds import Clip, Counted
from tacit.stages.bounds.clip import SHARE
from tacit.stages.noise import GaussianNoise, RealisedMeanNoise
from tacit.types import BoundedSum

LIKE = {"w": torch.zeros(2, dtype=torch.float64)}
# MNIST, second row of Bu et al. 2019.
MULTIPLIER, RATE, STEPS = 1.1, 256 / 60_000, 14_062


def lot(others, with_record):
    """Everyone else points one way; the record, if it is there, the other way."""
    rows = [[5.0, 0.0]] * others + [[-5.0, 0.0]] * with_record
    return SlowGradients({"w": torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)})


def released(others, with_record, noise, step=0):
    bound = Counted(Clip(1.0))
    bounded = bound.sum(lot(others, with_record), bound.init(LIKE, 10.0))
    return noise.add(bounded, SeededSource(0).stream(Purpose.NOISE, step))["w"] / 10.0


@pytest.mark.parametrize("others", [1, 7, 10, 300])
def test_one_example_moves_the_mean_by_twice_what_the_noise_is_for(others):
    """The counterexample: the mean moves by 2 R / (m + 1), while its noise is for R / m."""
    noise = RealisedMeanNoise(1e-9)
    moved = released(others, 1, noise) - released(others, 0, noise)
    assert float(moved[0]) == pytest.approx(-2 / (others + 1), abs=1e-6)


def test_the_noise_on_the_mean_is_that_of_the_sum_over_the_examples_that_came():
    zero = torch.zeros(1, dtype=torch.float64)
    many = [
        RealisedMeanNoise(1.1).add(BoundedSum({"w": zero, SHARE: zero + 0.5}, 2.0), _stream(step))["w"]
        for step in range(2000)
    ]
    # 2000 draws: the standard deviation is right to 8 %, with a false alarm below 1e-6.
    assert float(torch.cat(many).std()) == pytest.approx(1.1 * 2.0 / 0.5, rel=0.08)


@pytest.mark.slow
def test_the_counterexample_in_numbers():
    """One step: delta 4.05e-5 at epsilon 0.5, not 1.16e-10; all steps: epsilon above 12.9 against a claim of 2.32."""
    present, absent = mean_flip()
    assert np.maximum(present - math.exp(0.5) * absent, 0).sum() == pytest.approx(4.0473e-5, rel=0.01)
    claimed = Gaussian(MULTIPLIER).sampled(RATE)
    assert curve(claimed).delta_bounds(0.5)[0] == pytest.approx(1.1624e-10, rel=1e-3)
    assert delta_from_below(present, absent, 12.9) > 1e-5
    assert curve(claimed * STEPS).epsilon(1e-5) < 2.3817


def mean_flip():
    """What the attacker sees along the others' direction, in cells: with the record in the data, and without.

    The size of the lot is not seen: it is binomial. With m others the mean less 1 is N(0, (z/m)^2), and with the
    record among them N(-2/(m+1), (z/(m+1))^2).
    """
    sizes = np.arange(140, 380)
    chances = stats.binom(60_000 - 1, RATE).pmf(sizes)
    edges = np.linspace(-0.06, 0.05, 6001)
    without, among = np.zeros(6000), np.zeros(6000)
    for size, chance in zip(sizes, chances, strict=True):
        without += chance * np.diff(stats.norm(0, MULTIPLIER / size).cdf(edges))
        among += chance * np.diff(stats.norm(-2 / (size + 1), MULTIPLIER / (size + 1)).cdf(edges))
    return (1 - RATE) * without + RATE * among, without


def delta_from_below(present, absent, epsilon):
    """delta of all steps together: losses rounded down to a grid, and their sum by a Fourier transform.

    Cells merge outcomes, which hides something; rounding down hides more; what falls off the grid is left out.
    """
    kept = (present > 1e-25) & (absent > 1e-25)
    grid, size, start = 4e-6, 2**23, 13.0
    places = np.floor(np.log(present[kept] / absent[kept]) / grid).astype(np.int64)
    step = np.bincount(places % size, weights=present[kept], minlength=size)
    total = np.fft.irfft(np.fft.rfft(step) ** STEPS, size)
    # The grid is a circle: it stands for losses from -start on.
    losses = (np.arange(size) + math.floor(start / grid)) % size * grid - start
    return float((total * np.maximum(-np.expm1(epsilon - losses), 0)).sum())


def test_with_the_public_lot_size_the_same_records_move_the_sum_by_what_the_noise_is_for():
    bound = Clip(1.0)
    moved = bound.sum(lot(7, 1), {}).values["w"] - bound.sum(lot(7, 0), {}).values["w"]
    assert float(moved.norm()) == pytest.approx(bound.sum(lot(7, 0), {}).sensitivity)


def test_an_empty_lot_is_noise_alone():
    noise = released(0, 0, RealisedMeanNoise(1.0))
    assert torch.isfinite(noise).all()
    assert torch.equal(noise, GaussianNoise(1.0).add(BoundedSum({"w": LIKE["w"]}, 1.0), _stream(0))["w"] / 10)


def test_pieces_of_a_lot_count_together():
    bound = Counted(Clip(1.0))
    state = bound.init(LIKE, 10.0)
    whole = bound.sum(lot(4, 0), state) + bound.sum(lot(3, 1), state)
    assert float(whole.values[SHARE]) == pytest.approx(0.8)
    assert whole.sensitivity == 1.0


def test_a_count_that_is_missing_is_refused():
    with pytest.raises(InvalidArgument, match="Counted"):
        RealisedMeanNoise(1.0).add(BoundedSum({"w": LIKE["w"]}, 1.0), _stream(0))


def test_its_event_is_unproven_and_its_multiplier_checked():
    assert isinstance(RealisedMeanNoise(1.0).event(3), Unproven)
    with pytest.raises(InvalidArgument, match="multiplier must be"):
        RealisedMeanNoise(math.nan)


def _stream(step):
    return SeededSource(0).stream(Purpose.NOISE, step)
