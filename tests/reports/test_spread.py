"""Intervals over few seeds and few test examples: right where either is all there is, and never out of bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.reports.intervals import of_root_mean, wilson
from tacit.reports.spread import interval_in_words, interval_of_errors, interval_of_shares, is_better, scored_words


def test_one_seed_has_the_interval_of_the_test_examples():
    assert interval_of_shares([0.9], 100) == pytest.approx(wilson(0.9, 100), abs=1e-6)
    assert interval_of_shares([0.9, 0.9, 0.9], 100) == pytest.approx(wilson(0.9, 100), abs=1e-6)


def test_countless_test_examples_leave_the_spread_over_seeds():
    values = [0.50, 0.52, 0.49, 0.51, 0.50, 0.48]
    # Student's t: 2.5706 is its 97.5 % point with five degrees of freedom.
    half = 2.5706 * np.std(values, ddof=1) / math.sqrt(6)
    assert interval_of_shares(values, 10**9) == pytest.approx([0.5 - half, 0.5 + half], abs=2e-4)
    assert interval_of_errors(values, [[0.5, 0.5]] * 6) == pytest.approx([0.5 - half, 0.5 + half], rel=1e-4)


@given(st.lists(st.integers(0, 115), min_size=1, max_size=5))
def test_a_share_stays_a_share_and_within_its_interval(right):
    values = [one / 115 for one in right]
    low, high = interval_of_shares(values, 115)
    assert 0 <= low <= np.mean(values) + 1e-12
    assert np.mean(values) - 1e-12 <= high <= 1
    assert high - low > 0.03


def test_two_seeds_that_disagree_say_next_to_nothing():
    low, high = interval_of_shares([0.2, 0.9], 100)
    assert low < 0.05
    assert high > 0.95


def test_other_test_examples_widen_what_seeds_agree_on():
    seen = interval_of_errors([50.0, 50.0], [[45.0, 55.0], [45.0, 55.0]])
    assert seen == pytest.approx([45.0, 55.0], abs=1e-6)


def test_one_seed_of_errors_has_an_interval_and_no_plus_minus_zero():
    squared = np.random.default_rng(0).chisquare(1, 88)
    own = of_root_mean(squared)
    mean = math.sqrt(squared.mean())
    low, high = interval_of_errors([mean], [own])
    assert high - low == pytest.approx(own[1] - own[0])
    assert interval_of_errors([mean], [None]) is None
    assert scored_words({"measure": "rmse", "mean": 102.4, "interval": None}) == "102.4"


def test_errors_are_at_least_nothing():
    assert interval_of_errors([10.0, 120.0], [None, None])[0] == 0


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ((0.9, (0.88, 0.92)), (0.8, (0.78, 0.82)), True),
        # The intervals overlap a little, and the difference is still sure: 0.05 > hypot(0.03, 0.03).
        ((0.90, (0.87, 0.93)), (0.85, (0.82, 0.88)), True),
        ((0.90, (0.87, 0.93)), (0.87, (0.84, 0.90)), False),
        ((0.90, (0.2, 0.99)), (0.5, (0.1, 0.9)), False),
        ((0.90, None), (0.5, (0.4, 0.6)), False),
    ],
)
def test_who_is_better_is_told_by_both_intervals(one, other, told):
    rows = [{"measure": "accuracy", "mean": mean, "interval": ends} for mean, ends in (one, other)]
    assert is_better(*rows) is told
    errors = [
        {"measure": "rmse", "mean": 2 - mean, "interval": ends and (2 - ends[1], 2 - ends[0])}
        for mean, ends in (one, other)
    ]
    assert is_better(*errors) is told
    assert not is_better(*reversed(rows))


def test_what_the_brackets_are_is_said():
    assert "One seed says nothing about other seeds" in interval_in_words([1])
    assert "other seeds and other test examples together" in interval_in_words([3])
