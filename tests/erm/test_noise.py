"""Noise on coefficients: the stated distribution, the stated event, never twice the same. Seeds are fixed."""

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Adjacency, EpsilonDelta, Gaussian
from tacit.erm.noise import add_gaussian, add_k_norm, k_norm
from tacit.errors import InvalidArgument
from tacit.randomness import Purpose, SecureSource, SeededSource

# Each test below fails by chance, for a fresh seed, with this probability at most.
FALSE_ALARM = 1e-6


def stream(seed=0):
    return SeededSource(seed).stream(Purpose.NOISE, 0)


@pytest.mark.parametrize("dimension", [1, 2, 7])
def test_k_norm_lengths_follow_a_gamma_distribution(dimension):
    lengths = np.linalg.norm(k_norm(stream(), dimension, scale=0.3, count=20_000), axis=1)
    assert stats.kstest(lengths, stats.gamma(dimension, scale=0.3).cdf).pvalue > FALSE_ALARM


def test_k_norm_directions_are_uniform():
    vectors = k_norm(stream(), 2, scale=1.0, count=20_000)
    angles = np.arctan2(vectors[:, 1], vectors[:, 0])
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > FALSE_ALARM


def test_in_one_dimension_k_norm_noise_is_laplace_noise():
    drawn = k_norm(stream(), 1, scale=2.0, count=20_000)[:, 0]
    assert stats.kstest(drawn, stats.laplace(scale=2.0).cdf).pvalue > FALSE_ALARM


def test_k_norm_length_and_direction_are_independent():
    vectors = k_norm(stream(), 3, scale=1.0, count=20_000)
    lengths = np.linalg.norm(vectors, axis=1)
    correlation = stats.spearmanr(lengths, vectors[:, 0] / lengths)
    assert correlation.pvalue > FALSE_ALARM


def test_normal_noise_has_the_multiplier_times_the_sensitivity():
    noisy = add_gaussian(
        np.full((100, 100), 5.0), sensitivity=0.25, multiplier=3.0, adjacency=Adjacency.REPLACE_ONE, rng=stream()
    )
    assert stats.kstest(noisy.values.ravel(), stats.norm(5.0, 0.75).cdf).pvalue > FALSE_ALARM
    assert noisy.event == Gaussian(3.0, Adjacency.REPLACE_ONE)


def test_pure_noise_has_the_sensitivity_over_epsilon():
    values = np.zeros((20_000, 1))
    drawn = [
        add_k_norm(np.zeros(3), sensitivity=0.2, epsilon=0.5, adjacency=Adjacency.REPLACE_ONE, rng=stream(seed)).values
        for seed in range(3000)
    ]
    lengths = np.linalg.norm(drawn, axis=1)
    assert stats.kstest(lengths, stats.gamma(3, scale=0.4).cdf).pvalue > FALSE_ALARM
    noisy = add_k_norm(values, sensitivity=1.0, epsilon=0.5, adjacency=Adjacency.REPLACE_ONE, rng=stream())
    assert noisy.event == EpsilonDelta(0.5, 0.0, Adjacency.REPLACE_ONE)


def test_low_order_bits_of_the_private_values_do_not_show():
    """What is released lies on a grid that the noise alone decides."""
    noisy = add_gaussian(
        np.full(1000, 1 / 3), sensitivity=1.0, multiplier=1.0, adjacency=Adjacency.ADD_REMOVE, rng=stream()
    )
    assert np.all(noisy.values * 2**12 == np.round(noisy.values * 2**12))


def test_no_noise_comes_twice():
    source = SecureSource()
    drawn = {k_norm(source.stream(Purpose.NOISE, 0), 2, 1.0).tobytes() for _ in range(50)}
    assert len(drawn) == 50


def test_bad_scales_are_refused():
    with pytest.raises(InvalidArgument, match="scale must be a finite number above 0"):
        k_norm(stream(), 2, 0.0)
