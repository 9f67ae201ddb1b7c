"""Private second moments: how far one example moves them, how much noise they get, what they cost, what they do."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from tacit.accounting import Gaussian, curve
from tacit.errors import InvalidArgument
from tacit.features import PrivateCentring, PrivateWhitening, Scattering
from tacit.features.tables import flatten_symmetric, take_power, unflatten_symmetric, zero_if_noise

RNG = np.random.default_rng(2)
# Tensors of 3 x 5 with one long direction along each axis.
ROWS = np.einsum("nij,i,j->nij", RNG.normal(size=(600, 3, 5)), [3.0, 1, 1], [5.0, 1, 1, 1, 0.2])
ROWS = (ROWS.reshape(600, 15) + 0.5).astype(np.float32)


def whitening(multiplier=1e-4, seed=0, **more):
    return PrivateWhitening(multiplier, 600, axes=(3, 5), random_state=seed, **more)


def by_hand(rows, mean):
    """Sums of second moments along both axes, example by example and entry by entry."""
    first, second = np.zeros((3, 3)), np.zeros((5, 5))
    for row in rows.astype(np.float64):
        tensor = (row - mean).reshape(3, 5)
        tensor = tensor / np.linalg.norm(tensor)
        for i in range(3):
            for j in range(3):
                first[i, j] += sum(tensor[i, k] * tensor[j, k] for k in range(5))
        for i in range(5):
            for j in range(5):
                second[i, j] += sum(tensor[k, i] * tensor[k, j] for k in range(3))
    return first, second


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=15, max_size=15), st.integers(0, 2**16))
def test_one_example_moves_the_moments_by_at_most_the_root_of_their_number(row, seed):
    """Given the mean that was released, with the same noise, over neighbours that differ in any one row."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, 15)).astype(np.float32)
    more = np.concatenate([rows, np.array(row, dtype=np.float32)[None]])
    mean = rng.normal(size=15).astype(np.float32) / 10
    sums = [[600 * moment for moment in whitening(seed=seed)._release_moments(each, mean)[0]] for each in (rows, more)]
    moved = [np.linalg.norm(after - before) for before, after in zip(*sums, strict=True)]
    assert all(move <= 1 + 1e-3 for move in moved)
    assert math.hypot(*moved) <= math.sqrt(2) + 1e-3


def test_an_example_of_rank_one_moves_them_exactly_so_far():
    lone = np.zeros((1, 15), dtype=np.float32)
    lone[0, 7] = 4
    moments, _ = whitening()._release_moments(lone, np.zeros(15, dtype=np.float32))
    assert [600 * np.linalg.norm(moment) for moment in moments] == pytest.approx([1, 1], abs=1e-3)


def test_moments_are_those_of_the_centred_rows():
    fitted = whitening()
    mean = PrivateCentring(1e-4, 600, random_state=0).fit(ROWS).mean_
    moments, _ = fitted._release_moments(ROWS, mean)
    for found, expected in zip(moments, by_hand(ROWS, mean), strict=True):
        assert np.allclose(600 * found, expected, atol=0.01)


def test_the_noise_has_the_deviation_that_the_event_says():
    """False alarm below 1e-6: 1,326 normal numbers have a deviation within 10 % of theirs."""
    nothing = np.zeros((1, 51), dtype=np.float32)
    made = PrivateWhitening(7.0, 1, axes=(51,), random_state=3)
    moments, event = made._release_moments(nothing, nothing[0])
    assert np.std(flatten_symmetric(moments[0])) == pytest.approx(7.0, rel=0.1)
    assert np.array_equal(moments[0], moments[0].T)
    assert event == Gaussian(7.0)
    two = PrivateWhitening(7.0, 1, axes=(51, 1), random_state=3)
    moments, _ = two._release_moments(nothing, nothing[0])
    assert np.std(flatten_symmetric(moments[0])) == pytest.approx(7 * 2**0.5, rel=0.1)


def test_the_mean_and_the_moments_are_both_paid_for():
    event = whitening(5.0).fit(ROWS).event_
    assert curve(event).epsilon(1e-5) == pytest.approx(curve(Gaussian(5.0 / math.sqrt(2))).epsilon(1e-5), rel=1e-3)


def test_rows_are_whitened_along_every_axis_and_have_norm_one():
    fitted = clone(whitening()).fit(ROWS)
    found = fitted.transform(ROWS)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    first, second = (each / 600 for each in by_hand(ROWS, fitted.mean_))
    tensor = (ROWS[4] - fitted.mean_).reshape(3, 5)
    expected = _power(3 * first) @ tensor @ _power(5 * second)
    assert np.allclose(found[4], expected.ravel() / np.linalg.norm(expected), atol=1e-4)
    # The long directions count less than they did, and are still the longest.
    spread = found.reshape(600, 3, 5).std((0, 2))
    assert 1.1 < spread[0] / spread[1] < 2.5
    assert np.array_equal(fitted.transform(np.full((1, 15), np.nan)), np.zeros((1, 15)))


def _power(moment):
    values, vectors = np.linalg.eigh(moment)
    return vectors @ np.diag(values**-0.25) @ vectors.T


def test_noise_alone_whitens_nothing():
    """Where noise outweighs everything, no eigenvalue stands out, so that every direction counts about the same."""
    noise = RNG.normal(size=40 * 41 // 2)
    found = take_power(unflatten_symmetric(noise), -0.25, 1.0)
    values = np.linalg.eigvalsh(found)
    assert values.max() / values.min() < 1.1


def test_a_mean_that_is_noise_for_the_most_part_is_not_taken_off():
    few = ROWS[:20] / np.linalg.norm(ROWS[:20], axis=1, keepdims=True)
    lost = PrivateWhitening(1000.0, 20, axes=(15,), random_state=0).fit(few)
    assert not lost.mean_.any()
    noise = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    assert not zero_if_noise(noise, 1.0).any()
    assert np.array_equal(zero_if_noise(2 * noise, 1.0), 2 * noise)


def test_flat_moments_keep_their_length_and_come_back():
    some = RNG.normal(size=(6, 6))
    moment = some @ some.T
    assert np.linalg.norm(flatten_symmetric(moment)) == pytest.approx(np.linalg.norm(moment))
    assert np.allclose(unflatten_symmetric(flatten_symmetric(moment)), moment)


def test_folded_features_are_unfolded_folded_again_and_no_longer():
    features = Scattering(shape=(3, 16, 16), is_mirrored=True)
    rows = features.fit_transform(RNG.uniform(size=(30, 768)).astype(np.float32))
    assert features.axes == (3, 81, 16)
    assert len(features.columns) == 3 * 81 * 16 == 2 * rows.shape[1]
    made = PrivateWhitening(1e-4, 30, axes=features.axes, columns=features.columns, random_state=0)
    tensor = made._to_tensor(rows)
    assert np.allclose(np.linalg.norm(tensor.reshape(30, -1), axis=1), 1, atol=1e-5)
    assert np.allclose(math.sqrt(2) * tensor.reshape(30, -1)[:, made._places()], rows, atol=1e-6)
    # Entry by entry, a tensor is that of the mirror image: cells the other way round, and the average among itself.
    cells = tensor.reshape(30, 3, 81, 4, 4)
    assert np.allclose(cells[:, :, 0], cells[:, :, 0, :, ::-1])
    assert made.fit(rows).transform(rows).shape == rows.shape
    assert Scattering(shape=(28, 28)).axes == Scattering(shape=(1, 28, 28)).axes == (81, 49)
    assert Scattering(shape=(28, 28)).columns is None


def test_whitening_along_one_axis_releases_its_moments_alone_and_costs_no_noise_for_others():
    one = whitening(along=(1,)).fit(ROWS)
    (found,) = one.roots_
    assert np.allclose(found, whitening().fit(ROWS).roots_[1], atol=1e-3)
    expected = (ROWS[4] - one.mean_).reshape(3, 5) @ found
    assert np.allclose(one.transform(ROWS[4:5])[0], expected.ravel() / np.linalg.norm(expected), atol=1e-5)
    moments, event = PrivateWhitening(7.0, 1, axes=(3, 51), along=(1,), random_state=3)._release_moments(
        np.zeros((1, 153), dtype=np.float32), np.zeros(153, dtype=np.float32)
    )
    assert np.std(flatten_symmetric(moments[0])) == pytest.approx(7.0, rel=0.1)
    assert event == Gaussian(7.0)


@pytest.mark.parametrize("along", [(), (2,), (0, 0), (-1,)])
def test_axes_that_there_are_not_are_refused(along):
    with pytest.raises(InvalidArgument, match="axes 0 to 1, each once"):
        whitening(along=along).fit(ROWS)


@pytest.mark.parametrize(
    "about",
    [
        {"axes": (3, 4)},
        {"axes": (0, 15)},
        {"axes": (3, 10), "columns": np.arange(15)},
        {"axes": (3, 10), "columns": np.zeros(30, dtype=int)},
        {"axes": (4, 4), "columns": np.append(np.arange(15), 0)},
    ],
)
def test_axes_that_do_not_fit_are_refused(about):
    with pytest.raises(InvalidArgument, match="axes"):
        PrivateWhitening(1.0, 600, **about).fit(ROWS)
