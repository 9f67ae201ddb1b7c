"""ROC curves against scikit-learn, and intervals against how often they hold."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from tacit.audit.separation import find_detection_interval, roc
from tacit.errors import InvalidArgument


def some_scores(seed, shift=0.7, members=300, others=200, rounded=False):
    rng = np.random.default_rng(seed)
    both = rng.normal(shift, 1, members), rng.normal(0, 1, others)
    return tuple(np.round(side, 1) for side in both) if rounded else both


@pytest.mark.parametrize("rounded", [False, True])
def test_area_and_curve_are_those_of_scikit_learn(rounded):
    members, others = some_scores(0, rounded=rounded)
    labels = np.concatenate([np.ones(members.size), np.zeros(others.size)])
    found = roc(members, others)
    assert found.area.value == pytest.approx(roc_auc_score(labels, np.concatenate([members, others])), abs=1e-12)
    alarms, hits, _ = roc_curve(labels, np.concatenate([members, others]), drop_intermediate=False)
    np.testing.assert_allclose(found.alarms, alarms, atol=1e-12)
    np.testing.assert_allclose(found.found, hits, atol=1e-12)


def test_the_areas_interval_holds_as_often_as_it_says():
    # 400 draws at 95 %: fewer than 365 would come by chance with probability 6e-4.
    truth = stats.norm.cdf(0.7 / np.sqrt(2))
    held = [found.low <= truth <= found.high for found in (roc(*some_scores(seed)).area for seed in range(400))]
    assert sum(held) >= 365


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_the_interval_of_found_members_holds_at_least_as_often_as_it_says(rate):
    truth = stats.norm.sf(stats.norm.isf(rate) - 1.0)
    held = 0
    for seed in range(300):
        found = find_detection_interval(*some_scores(seed, shift=1.0, members=1000, others=1000), rate, 0.95)
        held += found.low <= truth <= found.high
        assert found.low <= found.value <= found.high
    assert held >= 280


def test_too_few_others_for_a_rate_leave_it_open():
    found = roc(*some_scores(1, members=50, others=20))
    assert found.found_at[0.001].low == 0


def test_perfect_separation_has_a_finite_interval():
    found = roc([1.0, 1.1, 1.2], [0.0, 0.1, 0.2])
    assert found.area.value == found.area.high == 1
    assert 0 <= found.area.low < 0.7


def test_a_roc_reads_as_a_sentence():
    assert "TPR" in str(roc(*some_scores(2)))
    assert "0.1% FPR" in str(roc(*some_scores(2)))


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(InvalidArgument, match="members"):
        roc([np.nan, 1.0], [0.0, 1.0])
    with pytest.raises(InvalidArgument, match="at least two"):
        roc([1.0], [0.0, 1.0])
