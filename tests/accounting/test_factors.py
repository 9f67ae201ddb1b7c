"""Matrix factors of correlated noise: against dense matrices, and the values in JAX-privacy's tests."""

import numpy as np
import pytest
from scipy import linalg

from tacit.accounting.factors import (
    band_coefficients,
    best_band,
    compare_bands,
    inverse_square_root_coefficients,
    invert_coefficients,
    prefix_variances,
    square_root_coefficients,
    squared_sensitivity,
    weighted_variances,
)
from tacit.errors import InvalidArgument


def matrix(coefficients, steps):
    column = np.zeros(steps)
    column[: min(len(coefficients), steps)] = np.asarray(coefficients)[:steps]
    return linalg.toeplitz(column, np.zeros(steps))


@pytest.mark.parametrize("steps", [1, 2, 10, 100])
def test_the_square_root_squares_to_prefix_sums(steps):
    root = matrix(square_root_coefficients(steps), steps)
    assert root @ root == pytest.approx(np.tri(steps), abs=1e-12)


def test_the_inverse_square_root_has_the_published_coefficients():
    # JAX-privacy, toeplitz_test.py: 1, -1/2, -1/8, -1/16, -5/128.
    assert inverse_square_root_coefficients(5).tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]


@pytest.mark.parametrize("coefficients", [[7.3], [1, 0.5, 0.2], [1, 0.7, 2.0], [1, 0, -0.2]])
def test_an_inverse_inverts(coefficients):
    inverse = matrix(invert_coefficients(np.array(coefficients), 9), 9)
    assert inverse @ matrix(coefficients, 9) == pytest.approx(np.eye(9), abs=1e-9)


@pytest.mark.parametrize("coefficients", [[1.0], [1, 0.5, 0.2], np.linspace(1, 0.1, 16)])
def test_prefix_variances_are_those_of_the_dense_matrix(coefficients):
    noise = np.tri(20) @ np.linalg.inv(matrix(coefficients, 20))
    assert prefix_variances(np.array(coefficients), 20) == pytest.approx((noise**2).sum(axis=1), rel=1e-9)


@pytest.mark.parametrize("steps", [1, 3, 11])
@pytest.mark.parametrize("times", [1, 4, 11])
def test_the_sensitivity_of_independent_noise_counts_steps(steps, times):
    # JAX-privacy, toeplitz_test.py, test_sensitivity_squared_identity.
    assert squared_sensitivity(np.ones(1), steps=steps, apart=1, times=times) == min(steps, times)


@pytest.mark.parametrize("times", [1, 4, 11])
def test_the_sensitivity_of_prefix_sums_is_that_of_the_first_columns(times):
    # JAX-privacy, toeplitz_test.py, test_sensitivity_squared_tri.
    found = squared_sensitivity(np.ones(11), steps=11, apart=1, times=times)
    assert found == (np.tri(11)[:, :times].sum(axis=1) ** 2).sum()


@pytest.mark.parametrize(("steps", "apart", "most"), [(5, 1, 5), (5, 2, 3), (5, 3, 2), (5, 5, 1), (4, 3, 2), (4, 4, 1)])
def test_the_number_of_steps_of_one_example_is_as_published(steps, apart, most):
    # JAX-privacy, sensitivity_test.py, minsep_true_max_participations.
    assert squared_sensitivity(np.ones(1), steps=steps, apart=apart) == most


def test_steps_as_far_apart_as_the_bands_add_up_without_overlap():
    coefficients = np.array(band_coefficients(4, 64))
    assert squared_sensitivity(coefficients, steps=16, apart=4) == pytest.approx(4, rel=1e-12)
    assert squared_sensitivity(coefficients, steps=16, apart=3) > 5


def test_coefficients_that_increase_are_refused():
    with pytest.raises(InvalidArgument, match="nor increasing"):
        squared_sensitivity(np.array([1.0, 0.5, 0.8]), steps=6, apart=1)


@pytest.mark.parametrize("bands", [1, 2, 8, 32])
def test_columns_have_norm_one(bands):
    norm = np.linalg.norm(band_coefficients(bands, 512))
    assert 1 - 1e-12 < norm <= 1


@pytest.mark.parametrize("bands", [2, 8, 32])
def test_optimised_coefficients_are_better_than_square_roots_and_than_fewer_bands(bands):
    def error(coefficients):
        return prefix_variances(np.array(coefficients), 512).mean()

    root = square_root_coefficients(bands)
    assert error(band_coefficients(bands, 512)) < error(root / np.linalg.norm(root))
    assert error(band_coefficients(bands, 512)) < error(band_coefficients(bands // 2, 512))


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "prototype"), [(1, 0.96), (3, 0.70), (8, 0.48)])
def test_small_lots_gain_at_least_what_square_root_bands_do(epsilon, prototype):
    plans = compare_bands(lot_size=256, population=60_000, steps=3072, epsilon=epsilon, delta=1e-5)
    assert 0.8 * prototype < best_band(plans).relative_error < prototype


@pytest.mark.parametrize("epsilon", [1, 3])
def test_large_lots_gain_nothing(epsilon):
    plans = compare_bands(lot_size=4096, population=60_000, steps=3072, epsilon=epsilon, delta=1e-5)
    assert best_band(plans).bands == 1


def slow_weighted_variances(coefficients, rates):
    """By dense matrices: weights times the inverse of C."""
    steps = len(rates)
    column = np.zeros(steps)
    column[: len(coefficients)] = coefficients
    inverse = np.linalg.inv(linalg.toeplitz(column, np.zeros(steps)))
    return np.square(np.tril(np.ones((steps, steps))) * rates @ inverse).sum(axis=1)


def test_weighted_variances_are_those_of_the_dense_matrices():
    rates = np.linspace(1.0, 0.1, 9)
    for coefficients in ([1.0], [1, 0.5, 0.2]):
        found = weighted_variances(np.array(coefficients), rates)
        np.testing.assert_allclose(found, slow_weighted_variances(coefficients, rates))
    np.testing.assert_allclose(weighted_variances(np.array([1, 0.5]), np.ones(9)), prefix_variances([1, 0.5], 9))


def test_coefficients_for_falling_rates_are_better_for_them_and_keep_the_norm():
    steps = 64
    rates = tuple((0.01 + 0.99 * np.cos(np.linspace(0, np.pi / 2, steps))).tolist())
    plain, fitted = (np.array(band_coefficients(8, steps, given)) for given in ((), rates))
    errors = [slow_weighted_variances(each, np.array(rates)).mean() for each in (plain, fitted)]
    # The gain is small: half a per cent here.
    assert errors[1] < 0.997 * errors[0]
    assert 1 - 1e-9 < fitted @ fitted <= 1
    assert band_coefficients(8, steps, (0.3,) * steps) == tuple(plain)


def test_a_rate_for_every_step_is_needed():
    with pytest.raises(InvalidArgument, match="one learning rate per step"):
        band_coefficients(4, 10, (1.0, 0.5))
