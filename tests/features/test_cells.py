"""Cells of numbers: which cell a number is in, what counts cost, and how rows are weighed and centred."""

import math

import numpy as np
import pytest

from tacit.accounting import Gaussian
from tacit.errors import InvalidArgument
from tacit.features import Knots, KnotsAndCells, PrivateCells, PrivateWhitening
from tacit.features.cells import SHARE

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.uniform(-1, 1, 400), RNG.choice([-1.0, 0.25], 400), RNG.integers(0, 2, 400)])
FEATURES = KnotsAndCells(2, grids=(4, 16))
ROWS = FEATURES.fit_transform(X)


def fitted(rows=ROWS, multiplier=1e-9, **more):
    settings = {"cells": FEATURES.cells, "per_row": FEATURES.per_row, "random_state": 0, **more}
    return PrivateCells(multiplier, len(rows), **settings).fit(rows)


def one_hots(rows):
    found = np.zeros((len(rows), FEATURES.cells))
    for row, places in zip(found, rows[:, -4:].astype(int), strict=True):
        row[places] = 1
    return found


def test_cells_are_those_of_a_histogram_of_equal_bins():
    places = ROWS[:, Knots(2).fit_transform(X).shape[1] :].astype(int)
    counts = np.bincount(places.ravel(), minlength=FEATURES.cells)
    expected = [np.histogram(X[:, c], bins=g, range=(-1, 1))[0] for c in (0, 1) for g in (4, 16)]
    assert np.array_equal(counts, np.concatenate(expected))


def test_numbers_outside_the_bounds_are_in_the_last_cells_and_missing_ones_in_none():
    found = KnotsAndCells(1, grids=(4,)).fit_transform([[-9.0], [9.0], [np.nan], [np.inf], [1.0]])
    assert found[:, -1].tolist() == [0, 3, 4, 4, 3]


def test_the_cost_is_three_releases_of_the_multiplier():
    assert fitted(multiplier=7.0).event_ == Gaussian(7.0) + Gaussian(7.0) + Gaussian(7.0)


def test_a_row_more_moves_the_counts_by_the_root_of_its_cells(monkeypatch):
    """The sums that are handed to the noise, with a row and without it."""
    from tacit.stages.noise import GaussianNoise

    seen, release = [], GaussianNoise.release
    monkeypatch.setattr(
        GaussianNoise, "release", lambda noise, bounded, rng: seen.append(bounded) or release(noise, bounded, rng)
    )
    fitted(ROWS, random_state=0)
    fitted(ROWS[1:], random_state=0)
    (whole, without) = (each for each in seen if "counts" in each.values)
    moved = (whole.values["counts"] - without.values["counts"]).norm().item()
    assert moved == pytest.approx(math.sqrt(FEATURES.per_row))
    assert whole.sensitivity == pytest.approx(moved)


def test_rows_stand_for_scaled_and_centred_one_hots():
    """A slow form of the same, from exact counts: one-hots times f^(-1/2), less their mean, with the share's length."""
    found = fitted().transform(ROWS)
    ones = one_hots(ROWS)
    frequency = ones.mean(0)
    scale = np.maximum(frequency, 1e-3) ** -0.5
    slow = (ones - frequency) * scale
    slow *= math.sqrt(SHARE) / np.linalg.norm(slow, axis=1, keepdims=True)
    made = found[:, 4:5] * (ones * fitted().scale_[:-1] - fitted().centre_[:-1])
    assert np.allclose(made, slow, atol=1e-5)


def test_other_columns_are_whitened_as_without_cells():
    dense = ROWS[:, :-4]
    white = PrivateWhitening(1e-9, len(X), axes=(dense.shape[1],), random_state=0).fit(dense).transform(dense)
    assert np.allclose(fitted().transform(ROWS)[:, 5:], math.sqrt(1 - SHARE) * white, atol=1e-6)


def test_counts_that_are_noise_are_neither_subtracted_nor_enlarged_by_much():
    made = fitted(multiplier=1e4)
    floor = 2 * 1e4 * math.sqrt(FEATURES.per_row) / len(ROWS)
    assert made.scale_.max() <= floor**-0.5 * (1 + 1e-6)
    assert (made.centre_[:-1] == 0).mean() > 0.8


def test_rows_that_are_not_finite_stay_finite():
    broken = ROWS[:3].copy()
    broken[0, 0], broken[1, -1], broken[2] = np.nan, np.nan, np.inf
    assert np.isfinite(fitted().transform(broken)).all()
    assert np.isfinite(fitted(np.concatenate([ROWS, broken])).scale_).all()


def test_too_few_columns_are_refused():
    with pytest.raises(InvalidArgument, match="more than 4 columns"):
        fitted(ROWS[:, -3:])
