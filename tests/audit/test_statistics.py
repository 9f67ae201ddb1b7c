"""Bounds from counts: against scipy's intervals, closed forms, and scores whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from tacit.accounting import Gaussian, curve, gdp
from tacit.audit.evidence import Kind, LowerBound, Verdict, judge
from tacit.audit.statistics import (
    Discriminant,
    Rates,
    choose,
    distinguish,
    least_share,
    list_error_points,
    log_ratio,
    most_share,
)
from tacit.errors import InvalidArgument


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (526, 45_000), (44_990, 45_000)])
def test_shares_are_clopper_and_pearsons(hits, trials):
    interval = stats.binomtest(hits, trials).proportion_ci(0.99, "exact")
    assert float(least_share(hits, trials, 0.995)) == pytest.approx(interval.low, rel=1e-9, abs=1e-12)
    assert float(most_share(hits, trials, 0.995)) == pytest.approx(interval.high, rel=1e-9)


@pytest.mark.parametrize(
    ("found", "alarms", "trials", "epsilon"),
    # Worked examples of the harness: three simulated attacks on Kang et al. 2020.
    [
        (535, 0, 15_000, 4.5025266),
        (318, 1, 15_000, 3.6084966),
        (231, 45, 15_000, 1.0879711),
        (1172, 526, 45_000, 0.6144663),
    ],
)
def test_epsilon_from_rates_is_that_of_the_worked_examples(found, alarms, trials, epsilon):
    assert Rates(found, trials, alarms, trials).epsilon(1e-5, 0.99) == pytest.approx(epsilon, abs=1e-6)


def test_rates_that_say_nothing_give_zero():
    assert Rates(5, 100, 5, 100).epsilon(1e-5, 0.99) == 0
    assert Rates(5, 100, 5, 100).mu(0.99) == 0


# Of 60,000 scores a side a quarter went into fitting, which plain shifts do not need. The ranges are those that five
# seeds spanned when the harness was specified; means over seeds must lie in them, and no bound may exceed the truth
# (each could, with probability 1 %; with these seeds none does).
@pytest.mark.parametrize(("mu", "low", "high"), [(0.3, 0.29, 0.55), (1.0, 2.0, 2.4), (3.0, 6.2, 6.6)])
def test_known_shifts_are_found_and_never_exceeded(mu, low, high):
    truth = gdp.epsilon(1e-5, mu)
    proven = curve(Gaussian(1 / mu))
    bounds = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        members, others = rng.normal(mu, 1, 45_000), rng.normal(0, 1, 45_000)
        found = distinguish(members, others, delta=1e-5, proven=proven)
        assert found.bound.epsilon < truth
        assert found.gaussian.epsilon < truth
        assert not found.contradicts
        bounds.append(found.bound.epsilon)
        assert found.gaussian.epsilon > 0.7 * truth
    assert low < np.mean(bounds) < high


def test_a_shift_twice_as_large_as_proven_is_a_contradiction():
    rng = np.random.default_rng(0)
    found = distinguish(rng.normal(2, 1, 600), rng.normal(0, 1, 600), delta=1e-5, proven=curve(Gaussian(1.0)))
    assert found.contradicts
    # No assumption-free epsilon could show it with so few runs.
    assert found.bound.epsilon < gdp.epsilon(1e-5, 1.0)


def test_no_difference_shows_nothing():
    rng = np.random.default_rng(1)
    found = distinguish(rng.normal(size=3000), rng.normal(size=3000), delta=1e-5)
    assert found.bound.epsilon < 0.05
    assert found.gaussian.epsilon < 0.2


def test_a_smaller_spread_is_found_as_well_as_a_shift():
    rng = np.random.default_rng(2)
    found = distinguish(rng.normal(0, 1, 6000), rng.normal(0, 3, 6000), delta=1e-5)
    assert found.bound.epsilon > 0.9


def test_both_ways_round_are_tried():
    # With the example a score never exceeds 0.9; without it, it does: only the swapped test sees it.
    rng = np.random.default_rng(3)
    members, others = rng.uniform(0, 0.9, 3000), rng.uniform(0, 1, 3000)
    assert choose(members[:, None], others[:, None], log_ratio(1e-5), 0.99).swapped
    assert distinguish(members, others, delta=1e-5).bound.epsilon > 2


@pytest.mark.slow
def test_a_bound_at_99_percent_is_exceeded_by_the_truth_that_often():
    # 300 audits of a shift of 0.5; more than 10 wrong ones would come by chance with probability 2e-4.
    truth, wrong = gdp.epsilon(1e-5, 0.5), 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        found = distinguish(rng.normal(0.5, 1, 300), rng.normal(0, 1, 300), delta=1e-5)
        wrong += max(found.bound.epsilon, found.gaussian.epsilon) > truth
    assert wrong <= 10


def test_of_several_scores_the_one_that_tells_most_is_judged():
    rng = np.random.default_rng(7)
    nothing, something = rng.normal(size=(2, 3000)), np.stack([rng.normal(2, 1, 3000), rng.normal(0, 1, 3000)])
    both = [np.stack([nothing[side], something[side]], axis=1) for side in (0, 1)]
    found = distinguish(*both, delta=1e-5)
    assert found.column == 1
    assert found.gaussian.epsilon > 0.7 * gdp.epsilon(1e-5, 2.0)


def test_too_few_scores_are_refused():
    with pytest.raises(InvalidArgument, match="at least 6 runs"):
        distinguish([1.0] * 5, [0.0] * 100, delta=1e-5)


@pytest.mark.parametrize("size", [3, 200])
def test_the_discriminant_recovers_the_shift(size):
    rng = np.random.default_rng(4)
    shift = np.zeros(size)
    shift[1] = 3.0
    score = Discriminant.fit(iter(rng.normal(size=(400, size)) + shift), iter(rng.normal(size=(400, size))))
    fresh = rng.normal(size=(2000, size))
    apart = np.mean([score(row + shift) for row in fresh], axis=0) - np.mean([score(row) for row in fresh], axis=0)
    both = apart / np.std([score(row) for row in fresh], axis=0)
    assert both[0] > 2.4
    # Without the coordinates that say nothing, next to nothing of the shift is lost.
    assert both[1] > 2.9


def test_the_discriminant_uses_correlations():
    rng = np.random.default_rng(5)

    def rows(shift):
        common = rng.normal(size=(1000, 1))
        return np.hstack([common + shift, common]) + 0.01 * rng.normal(size=(1000, 2))

    score = Discriminant.fit(iter(rows(0.1)), iter(rows(0.0)))
    members, others = [score(row) for row in rows(0.1)], [score(row) for row in rows(0.0)]
    apart = np.mean(members, axis=0) - np.mean(others, axis=0)
    assert apart[0] / np.std(others, axis=0)[0] > 5


def test_a_discriminant_copes_with_no_spread_at_all():
    score = Discriminant.fit(iter(np.ones((5, 3))), iter(np.zeros((5, 3))))
    assert np.all(score(np.ones(3)) > score(np.zeros(3)))


def test_error_points_run_from_one_corner_to_the_other():
    rng = np.random.default_rng(6)
    points = np.array(list_error_points(rng.normal(1, 1, 500), rng.normal(0, 1, 500)))
    assert len(points) <= 200
    assert np.all((points >= 0) & (points <= 1))
    assert points[:, 0].min() == 0
    assert points[:, 1].min() <= 1 / 500
    # On average no error sum is far from that of the best attack.
    assert (points.sum(axis=1).min()) == pytest.approx(gdp.smallest_error_sum(1.0), abs=0.06)


def test_evidence_says_what_it_rests_on():
    assert "no finite epsilon" in str(LowerBound.of_gap(1.0, 1e-5))
    assert LowerBound.of_gap(1e-6, 1e-5).epsilon == 0
    assert LowerBound.of_shift(2.0, 1e-5).epsilon == pytest.approx(9.9972561, abs=1e-6)
    measured = LowerBound(1.0, 1e-5, 0.99, Kind.SIMULATED, assuming="luck")
    assert not measured.is_certain
    assert str(measured).endswith("(simulated, confidence 99 %, assuming luck)")


@pytest.mark.parametrize(
    ("epsilon", "claimed", "proven", "verdict"),
    [
        (3.0, 0.25, math.inf, Verdict.BROKEN),
        (3.0, 0.25, 2.0, Verdict.CONFLICT),
        (1.0, 2.0, 3.0, Verdict.STANDS),
        (1.0, None, math.inf, Verdict.STANDS),
    ],
)
def test_verdicts(epsilon, claimed, proven, verdict):
    assert judge(LowerBound(epsilon, 1e-5), claimed, proven) is verdict


def test_a_discriminant_needs_two_runs_on_each_side():
    with pytest.raises(InvalidArgument, match="at least two runs"):
        Discriminant.fit([np.zeros(2)], [np.zeros(2), np.ones(2)])
