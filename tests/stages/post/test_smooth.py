"""Laplacian smoothing against the matrix that it inverts."""

import math

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.stages.post import LaplacianSmoothing


def matrix(dimension, strength):
    ring = np.roll(np.eye(dimension), 1, axis=0)
    return np.eye(dimension) + strength * (2 * np.eye(dimension) - ring - ring.T)


def smooth(row, strength):
    return LaplacianSmoothing(strength).apply({"w": torch.as_tensor(row, dtype=torch.float64)}, {})[0]["w"].numpy()


def test_the_worked_example():
    found = smooth(np.eye(8)[0], 1.0)
    expected = [0.4476190476190476, 0.17142857142857143, 0.06666666666666668, 0.02857142857142858,
                0.019047619047619035, 0.02857142857142858, 0.06666666666666668, 0.17142857142857143]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found.sum() == pytest.approx(1, rel=1e-12)
    assert float((found**2).sum()) == pytest.approx(0.2700226757369614, rel=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("strength", [0.0, 0.3, 5.0])
def test_it_solves_the_linear_system(dimension, strength):
    row = np.random.default_rng(0).standard_normal(dimension)
    np.testing.assert_allclose(smooth(row, strength), np.linalg.solve(matrix(dimension, strength), row), rtol=1e-10)


def test_parameters_are_laid_out_on_one_ring():
    row = torch.arange(10.0, dtype=torch.float64)
    parts = LaplacianSmoothing().apply({"a": row[:4].reshape(2, 2), "b": row[4:]}, {})[0]
    whole = np.concatenate([parts["a"].numpy().ravel(), parts["b"].numpy()])
    np.testing.assert_allclose(whole, smooth(row.numpy(), 1.0), rtol=1e-12)


@pytest.mark.parametrize("strength", [0.5, 1.0, 3.0])
def test_in_high_dimensions_noise_shrinks_by_the_known_share(strength):
    found = smooth(np.eye(2000)[0], strength)
    expected = (1 + 2 * strength) / (1 + 4 * strength) ** 1.5
    assert float((found**2).sum()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "much"])
def test_strength_is_a_number_of_at_least_zero(wrong):
    with pytest.raises(InvalidArgument, match="strength must be"):
        LaplacianSmoothing(wrong)
