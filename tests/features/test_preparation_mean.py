"""The private mean: how far one example moves it, how much noise it gets, what it costs."""

import numpy as np
import pytest

from tacit.accounting import Gaussian, curve
from tacit.errors import InvalidArgument
from tacit.features import PrivateCentring

ROWS = np.random.default_rng(1).normal(size=(400, 30)).astype(np.float32) + 1


def mean_of(rows, multiplier=1e-3, seed=0):
    return PrivateCentring(multiplier, population=400, random_state=seed).fit(rows).mean_


@pytest.mark.parametrize("row", [5 * np.ones(30), -100 * np.ones(30), np.full(30, np.inf), np.full(30, np.nan)])
def test_one_example_moves_the_sum_by_at_most_one(row):
    """With the same noise, up to the rounding of a grid of a hundredth of it."""
    more = np.concatenate([ROWS, row[None].astype(np.float32)])
    assert 400 * np.linalg.norm(mean_of(more) - mean_of(ROWS)) <= 1 + 1e-3


def test_the_noise_has_the_deviation_that_the_event_says():
    """False alarm below 1e-6: 1,000 normal numbers have a deviation within 12 % of theirs."""
    wide = np.zeros((1, 1000), dtype=np.float32)
    centring = PrivateCentring(multiplier=7.0, population=1, random_state=3).fit(wide)
    assert np.std(centring.mean_) == pytest.approx(7.0, rel=0.12)
    assert centring.event_ == Gaussian(7.0)
    assert curve(centring.event_).epsilon(1e-5) == pytest.approx(curve(Gaussian(7.0)).epsilon(1e-5))


def test_rows_are_centred_by_the_released_mean_and_have_norm_one():
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    centring = PrivateCentring(multiplier=0.01, population=400, random_state=0).fit(unit)
    assert np.allclose(centring.mean_, unit.mean(0), atol=2e-4)
    found = centring.transform(unit)
    expected = unit - centring.mean_
    assert np.allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    assert np.array_equal(centring.transform(np.full((1, 30), np.nan)), np.zeros((1, 30)))


def test_secure_noise_differs_from_fit_to_fit():
    assert not np.array_equal(mean_of(ROWS, 1.0, None), mean_of(ROWS, 1.0, None))


def test_what_does_not_fit_is_refused():
    centring = PrivateCentring(multiplier=1.0, population=400).fit(ROWS)
    with pytest.raises(InvalidArgument, match="must have 30 columns"):
        centring.transform(ROWS[:, :3])
    with pytest.raises(InvalidArgument, match="population"):
        PrivateCentring(multiplier=1.0, population=0).fit(ROWS)
    with pytest.raises(InvalidArgument, match="must be a table"):
        PrivateCentring(multiplier=1.0, population=4).fit(np.zeros(4))
