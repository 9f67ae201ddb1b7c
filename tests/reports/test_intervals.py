"""Intervals: as wide as they must be, and made of nothing but what was released or is public."""

import math

import numpy as np
import pytest

from tacit.reports.intervals import NoisyShare, of_root_mean, wilson


@pytest.mark.parametrize(("right", "count"), [(0, 30), (27, 30), (30, 30), (450, 500)])
def test_the_interval_holds_the_share_and_is_that_of_wilson(right, count):
    low, high = wilson(right / count, count)
    assert 0 <= low <= right / count <= high <= 1
    # Its ends are the shares from which what was seen is 1.96 standard deviations away.
    for end in (low, high):
        if 0 < end < 1:
            assert abs(right / count - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / count), rel=1e-6)


def test_the_error_of_a_regression_has_an_interval_that_holds_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1_000):
        low, high = of_root_mean(rng.normal(scale=3.0, size=200) ** 2)
        hits += low <= 3.0 <= high
    # 95 % of a thousand, less a little for so skewed a law; seven standard deviations below, chance is under 1e-11.
    assert 900 < hits < 985


def test_one_error_alone_has_no_spread():
    assert of_root_mean([2.0]) is None


def noisy(rng, share, rows, lots, rate, std) -> NoisyShare:
    """The counts of right and wrong answers in so many lots, with noise, as they are released."""
    right = rng.random(rows) < share
    times = rng.binomial(lots, rate, rows)
    first, second = (times * right).sum(), (times * ~right).sum()
    first, second = (each + math.sqrt(lots) * std * rng.normal() for each in (first, second))
    variance = lots * std**2
    return NoisyShare(first, first + second, (variance, -2 * variance, 2 * variance), lots, rate)


@pytest.mark.parametrize(
    ("share", "rows", "lots", "rate", "std"),
    [(0.95, 114, 240, 0.125, 2.5), (0.5, 400, 4, 0.25, 20.0), (0.99, 100, 10, 0.1, 5.0), (0.7, 1000, 100, 0.05, 1.0)],
)
def test_the_interval_of_a_noisy_share_holds_the_true_one_in_95_of_100(share, rows, lots, rate, std):
    rng = np.random.default_rng(1)
    found = [noisy(rng, share, rows, lots, rate, std) for _ in range(1_000)]
    assert all(one.interval[0] <= one.value <= one.interval[1] for one in found)
    hits = sum(one.interval[0] <= share <= one.interval[1] for one in found)
    # Five standard deviations of chance below 95 %; where the share can be no larger than 1 it holds more often.
    assert hits > 915


def test_the_noise_alone_has_the_standard_deviation_that_is_said():
    rng, variance = np.random.default_rng(2), 40.0**2
    values = []
    for _ in range(2_000):
        first, second = 300 + 40 * rng.normal(), 100 + 40 * rng.normal()
        values.append(NoisyShare(first, first + second, (variance, -2 * variance, 2 * variance), 4, 0.25).value)
    exact = NoisyShare(300, 400, (variance, -2 * variance, 2 * variance), 4, 0.25)
    assert exact.noise_std == pytest.approx(40 * math.hypot(0.25, 0.75) / 400)
    assert np.std(values) == pytest.approx(exact.noise_std, rel=0.1)


@pytest.mark.parametrize("whole", [-5.0, 0.0, 3.0])
def test_where_noise_has_left_nothing_nothing_is_known(whole):
    drowned = NoisyShare(1.0, whole, (1e4, 0.0, 1e4), 10, 0.1)
    assert drowned.interval == [0.0, 1.0]
    assert 0 <= drowned.value <= 1
    assert (drowned.noise_std is None) == (whole <= 0)
