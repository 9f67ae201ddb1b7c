"""Scores of runs and their intervals: right in limiting cases, within bounds, and never more certain than known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn.metrics import roc_auc_score

from tacit.accounting import Gaussian, gdp
from tacit.reports.scores import (
    auc_of,
    describe_mean,
    explain_intervals,
    interval_of_errors,
    interval_of_rmse,
    interval_of_shares,
    is_better,
    read_utility,
    wilson_interval,
)
from tacit.reports.wording import up
from tacit.workflows.scoring import NoisyShare

OTHER = {"final": 0.9, "interval": None, "how": "somehow"}


def said(value: float, measure: str = "accuracy", other=None, **about) -> str:
    row = {"step": 5, measure: value, **about}
    found = read_utility({"test": [row], "test_examples": 30}, other, is_held_out=False)
    return " ".join(found["sentences"])


def test_a_private_model_that_does_better_is_no_privacy_for_free():
    assert "Noise is not the reason" in said(0.95, other=OTHER)
    assert "the difference is within the confidence interval" in said(0.95, other=OTHER)
    assert "within the confidence interval" not in said(0.95, other=OTHER, interval=[0.94, 0.96])


@pytest.mark.parametrize(("value", "measure"), [(0.9, "accuracy"), (0.85, "accuracy"), (0.95, "rmse")])
def test_one_that_does_not_is_nothing_to_remark(value, measure):
    assert "Noise is not the reason" not in said(value, measure, OTHER)


def test_of_errors_the_smaller_one_is_better():
    assert "Noise is not the reason" in said(0.8, "rmse", OTHER)


def test_what_was_scored_before_there_were_intervals_gets_one_where_the_count_is_known():
    assert said(0.9) == "Test accuracy 90.00 % on 30 public examples (95 % confidence interval 74.38 % to 96.54 %)."


def test_a_score_that_was_chosen_by_is_said_to_flatter():
    found = read_utility({"test": [{"step": 5, "accuracy": 0.9}], "tuning": "yes"}, None, is_held_out=False)
    assert found["sentences"][-1].startswith("This is the best of several trials")


def test_nothing_measured_is_nothing_said():
    found = read_utility({"test": []}, None, is_held_out=True)
    assert found["final"] is None
    assert found["sentences"] == ["The model was not tested."]


def test_training_that_diverged_is_said_to_and_is_no_number():
    rows = [{"step": 5, "rmse": 60.0}, {"step": 9, "rmse": 70.0}, {"step": 12, "rmse": None}]
    found = read_utility({"test": rows, "test_examples": 30}, {**OTHER, "final": 50.0}, is_held_out=False)
    assert found["final"] is None
    assert found["by_step"] == [[5, 60.0], [9, 70.0]]
    assert found["sentences"] == [
        "No finite test score, because training diverged (use a smaller learning rate), on 30 public examples."
    ]


def test_what_the_score_of_private_rows_cost_them_is_read_off_its_event():
    event = Gaussian(2.0)
    row = {"step": 5, "accuracy": 0.9, "interval": [0.8, 1.0], "noise_std": 0.05, "event": json.loads(event.to_json())}
    found = read_utility({"test": [row]}, None, is_held_out=True, delta=1e-5)
    # A single Gaussian release has a closed form.
    exact = gdp.epsilon(1e-5, 1 / 2.0)
    assert found["cost"]["epsilon"] == pytest.approx(exact, rel=1e-6)
    assert (found["measure"], found["cost"]["delta"]) == ("accuracy", 1e-5)
    said = f"The score costs the held-out rows epsilon {up(found['cost']['epsilon'])} at delta 1e-05."
    assert any(sentence.startswith(said) for sentence in found["sentences"])
    # That of the best of several trials is part of what the whole search cost.
    assert read_utility({"test": [row], "tuning": "yes"}, None, is_held_out=True, delta=1e-5)["cost"] is None


def test_a_run_of_a_version_that_wrote_no_event_is_reported_all_the_same():
    row = {"step": 5, "accuracy": 0.9, "interval": [0.8, 1.0], "noise_std": 0.05}
    found = read_utility({"test": [row]}, None, is_held_out=True, delta=1e-5)
    assert found["cost"] is None
    assert not any("cost the rows" in sentence for sentence in found["sentences"])


@pytest.mark.parametrize(("right", "count"), [(0, 30), (27, 30), (30, 30), (450, 500)])
def test_the_interval_holds_the_share_and_is_that_of_wilson(right, count):
    low, high = wilson_interval(right / count, count)
    assert 0 <= low <= right / count <= high <= 1
    # Its ends are the shares from which what was seen is 1.96 standard deviations away.
    for end in (low, high):
        if 0 < end < 1:
            assert abs(right / count - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / count), rel=1e-6)


def test_the_error_of_a_regression_has_an_interval_that_holds_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1_000):
        low, high = interval_of_rmse(rng.normal(scale=3.0, size=200) ** 2)
        hits += low <= 3.0 <= high
    # 95 % of a thousand, less a little for so skewed a law; seven standard deviations below, chance is under 1e-11.
    assert 900 < hits < 985


def test_one_error_alone_has_no_spread():
    assert interval_of_rmse([2.0]) is None


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


def test_one_seed_has_the_interval_of_the_test_examples():
    assert interval_of_shares([0.9], 100) == pytest.approx(wilson_interval(0.9, 100), abs=1e-6)
    assert interval_of_shares([0.9, 0.9, 0.9], 100) == pytest.approx(wilson_interval(0.9, 100), abs=1e-6)


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
    own = interval_of_rmse(squared)
    mean = math.sqrt(squared.mean())
    low, high = interval_of_errors([mean], [own])
    assert high - low == pytest.approx(own[1] - own[0])
    assert interval_of_errors([mean], [None]) is None
    assert describe_mean({"measure": "rmse", "mean": 102.4, "interval": None}) == "102.4"


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
    assert "They do not cover other seeds" in explain_intervals([1])
    assert "over seeds and test examples" in explain_intervals([3])


@pytest.mark.parametrize("classes", [2, 4])
def test_the_area_under_the_curve_is_that_of_scikit_learn(classes):
    draw = np.random.default_rng(0)
    labels = draw.integers(classes, size=300)
    # Quarters, so that some scores are equal, and exactly so.
    outputs = (4 * draw.normal(size=(300, classes)) + 4 * np.eye(classes)[labels]).round() / 4
    scores = outputs[:, 1] - outputs[:, 0] if classes == 2 else special.softmax(outputs, axis=1)
    expected = roc_auc_score(labels, scores, multi_class="ovr")
    assert auc_of(outputs, labels) == pytest.approx(expected)


def test_classes_that_do_not_occur_are_left_out_of_the_area():
    outputs, labels = np.eye(3)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    assert auc_of(outputs, labels) == 1.0
    assert auc_of(outputs[:2], labels[:2]) is None


def test_an_output_that_is_not_finite_has_no_area():
    assert auc_of(np.array([[0.0, np.inf], [0.0, 1.0]]), np.array([0, 1])) is None
