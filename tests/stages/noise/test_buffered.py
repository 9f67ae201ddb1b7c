"""Noise with few buffers, and tree noise: their laws, their scales, and what they refuse."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import linalg, stats

from tacit.accounting import Correlated, Gaussian
from tacit.accounting.factors import Buffers, find_scale, optimise_buffers, prefix_variances, square_root_coefficients
from tacit.errors import InvalidArgument, NotAccountable
from tacit.randomness import Purpose, SecureSource, SeededSource
from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise import BufferedNoise, InverseBandedNoise, TreeNoise
from tacit.types import BoundedSum

BUFFERED, TREE = BufferedNoise(1.5, steps=12, apart=4), TreeNoise(1.5, steps=12, apart=4)
SIZE = 20_000
FALSE_ALARM = 1e-6


def releases(noise, steps, *, first=0, size=SIZE, source=None):
    source = source or SeededSource(5)
    zeros = BoundedSum({"w": torch.zeros(size)}, 2.0)
    return np.stack(
        [noise.add(zeros, source.stream(Purpose.NOISE, step))["w"].numpy() for step in range(first, first + steps)]
    )


def strategy(noise):
    """C over the scale, as a dense matrix: what releases are multiplied with to get independent noise."""
    if isinstance(noise, BufferedNoise):
        return linalg.toeplitz(noise.strategy.coefficients(noise.steps), np.zeros(noise.steps)) / noise.scale
    nodes = [
        (start, start + 2**level)
        for level in range(noise.steps.bit_length())
        for start in range(0, noise.steps - 2**level + 1, 2**level)
    ]
    return np.array([[low <= step < high for step in range(noise.steps)] for low, high in nodes]) / noise.scale


def test_undone_buffered_noise_is_independent_noise_of_the_multiplier():
    z = strategy(BUFFERED) @ releases(BUFFERED, 12) / 3.0
    limit = stats.norm.isf(FALSE_ALARM / (2 * 144)) / math.sqrt(SIZE)
    assert np.abs(np.cov(z) - np.eye(12)).max() < 2 * limit


def test_prefix_sums_of_tree_noise_have_one_independent_draw_for_every_node():
    """The covariance of two prefix sums counts the nodes that both are made of."""

    def nodes(steps):
        found, start = set(), 0
        for level in reversed(range(steps.bit_length())):
            if steps >> level & 1:
                found.add((start, start + 2**level))
                start += 2**level
        return found

    sums = np.cumsum(releases(TREE, 12), axis=0) / (3.0 * TREE.scale)
    expected = np.array([[len(nodes(s) & nodes(t)) for t in range(1, 13)] for s in range(1, 13)])
    limit = 5 * stats.norm.isf(FALSE_ALARM / (2 * 144)) / math.sqrt(SIZE)
    assert np.abs(np.cov(sums) - expected).max() < limit


@pytest.mark.parametrize("noise", [BUFFERED, TREE, BufferedNoise(1.5, buffers=3, steps=9, apart=2)], ids=repr)
def test_an_example_costs_at_most_one_release_for_each_of_its_steps(noise):
    """Every set of steps that are far enough apart, by brute force."""
    dense = strategy(noise)
    for count in range(1, 4):
        for taken in itertools.combinations(range(noise.steps), count):
            if all(b - a >= noise.apart for a, b in itertools.pairwise(taken)):
                assert np.linalg.norm(dense[:, list(taken)].sum(axis=1)) ** 2 <= count * (1 + 1e-9)


def test_some_example_costs_as_much_as_it_is_charged():
    found = [np.linalg.norm(strategy(BUFFERED)[:, 0 : 4 * count : 4].sum(axis=1)) ** 2 / count for count in (1, 2, 3)]
    assert max(found) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("noise", [BUFFERED, TREE], ids=repr)
def test_nothing_is_gained_from_the_secrecy_of_lots(noise):
    assert noise.event(3) == Correlated(Gaussian(1.5), 4, is_amplified=False)
    assert CyclicPoisson(1, 100, groups=4).amplify(noise.event(3)) == Gaussian(1.5)
    with pytest.raises(NotAccountable):
        CyclicPoisson(1, 100, groups=3).amplify(noise.event(3))


@pytest.mark.parametrize("noise", [BUFFERED, TREE], ids=repr)
def test_more_steps_than_the_scale_is_for_are_refused(noise):
    with pytest.raises(InvalidArgument, match="at most 12 steps"):
        releases(noise, 13, size=2)
    with pytest.raises(InvalidArgument, match="at most 12 steps"):
        releases(noise, 13, size=2, source=SecureSource())


@pytest.mark.parametrize("noise", [BUFFERED, TREE], ids=repr)
def test_a_seeded_run_draws_its_past_again(noise):
    assert np.array_equal(releases(noise, 12, size=50)[7:], releases(noise, 5, first=7, size=50))


def test_buffers_are_ahead_of_the_banded_inverse_and_of_trees():
    buffered = BufferedNoise(1.0, steps=500, apart=100)
    inverse = InverseBandedNoise(1.0, bands=32, steps=500, apart=100)
    undone = buffered.strategy.prefix_variances(500).mean() * buffered.scale**2
    column = np.zeros(500)
    column[:32] = inverse.coefficients
    assert undone < (np.cumsum(np.cumsum(column) ** 2)).mean() * inverse.scale**2
    tree = np.mean([step.bit_count() for step in range(1, 501)]) * TreeNoise(1.0, steps=500, apart=100).scale ** 2
    assert undone < tree / 2


def test_our_buffers_are_ahead_of_published_ones_and_of_square_roots():
    """JAX-privacy, buffered_toeplitz_test.py: two buffers that were optimised for 1,000 steps."""
    published = Buffers((0.993433070819512, 0.6342644427247973), (0.07538320617916519, 0.5144060910151949))

    def error(coefficients):
        return prefix_variances(coefficients, 1000).mean() * find_scale(coefficients, 500) ** 2

    ours = error(optimise_buffers(2, 1000, 500).coefficients(1000))
    assert ours < error(published.coefficients(1000))
    assert ours < error(square_root_coefficients(1000))


def test_published_buffers_have_the_published_error():
    """JAX-privacy, buffered_toeplitz_test.py: the largest error is at most 1.16 (1 + log(n) / pi) for n = 100,000."""
    steps = 100_000
    published = Buffers((0.9999528892, 0.9857068667), (0.0122853238, 0.1878393665))
    strategy = published.coefficients(steps)
    largest = math.sqrt(published.prefix_variances(steps).max() * (strategy @ strategy))
    assert published.prefix_variances(40) == pytest.approx(prefix_variances(published.coefficients(40), 40), rel=1e-9)
    assert 1 < largest / (1 + math.log(steps) / math.pi) < 1.16
