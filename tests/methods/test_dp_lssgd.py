"""DP-LSSGD: smoothing is free, and the paper's formula beside the certified epsilon."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from tacit import Budget, Poisson
from tacit.accounting import Gaussian, curve, multiplier_for
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee, Status
from tacit.methods.dp_lssgd import VarianceRule, conditions_hold, dp_lssgd
from tacit.stages.post import LaplacianSmoothing
from tacit.training.plan import Plan, ReleasedSteps, make_guarantee

POISSON = Poisson(lot_size=128, population=50_000)
STEPS = 2000


def published_multiplier(share, epsilon, delta, steps, lot, population):
    """nu^2 = 20 T a G^2 / (share n^2 epsilon) on the mean gradient, in units of G / lot on the sum."""
    order = math.log(1 / delta) / ((1 - share) * epsilon) + 1
    variance = 20 * steps * order / (share * population**2 * epsilon)
    return math.sqrt(variance) * lot


def plan(mechanism, budget=None, steps=STEPS):
    return Plan(mechanism, POISSON, steps, 10, budget)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_in_paper_mode_the_noise_is_the_published_variance(share, epsilon):
    mechanism = dp_lssgd(mode="paper", rule=VarianceRule(share=share))
    found = plan(mechanism, Budget(epsilon, 1e-5)).calibrate().mechanism.noise.multiplier
    assert found == pytest.approx(published_multiplier(share, epsilon, 1e-5, STEPS, 128, 50_000), rel=1e-12)


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_claim_is_the_formula_read_backwards(share, epsilon):
    rule = VarianceRule(share=share)
    settled = plan(dp_lssgd(mode="paper", rule=rule), Budget(epsilon, 1e-5)).calibrate()
    claim = rule.claim(settled.settings(), Gaussian(1.0))
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-6)


def test_without_a_share_the_best_is_taken():
    budget = Budget(1.0, 1e-5)
    best = VarianceRule().multiplier(budget, 0.01, 100)
    assert all(best <= VarianceRule(share=share).multiplier(budget, 0.01, 100) for share in (0.1, 0.3, 0.5, 0.7, 0.9))


@pytest.mark.slow
def test_the_published_noise_is_several_times_what_is_needed():
    for epsilon in (0.5, 2.0):
        settled = plan(dp_lssgd(mode="paper"), Budget(epsilon, 1e-5)).calibrate()
        needed = multiplier_for(epsilon=epsilon, delta=1e-5, rate=POISSON.rate, steps=STEPS)
        assert settled.mechanism.noise.multiplier > 2 * needed
        assert curve(settled.total(STEPS)).epsilon(1e-5) < epsilon / 2


def test_a_claim_outside_the_theorems_conditions_says_so():
    claim = VarianceRule().claim(plan(dp_lssgd(multiplier=1.0)).settings(), Gaussian(1.0))
    assert "conditions" in claim.doubt
    wide = VarianceRule(share=0.5).claim(plan(dp_lssgd(multiplier=2.6), steps=200_000).settings(), Gaussian(1.0))
    assert (wide.source, wide.doubt) == ("Wang et al. 2019, Theorem 1", "")


@pytest.mark.parametrize(
    ("multiplier", "rate", "order", "holds"),
    [(2.0, 1e-4, 2.0, False), (2.5, 1e-4, 2.0, True), (2.5, 1e-4, 8.2, True), (2.5, 1e-4, 8.3, False)],
)
def test_the_conditions_of_the_theorem(multiplier, rate, order, holds):
    """Noise of at least sqrt(6) clip norms, and order <= log(1 / (rate (1 + multiplier^2 / 4)))."""
    assert conditions_hold(multiplier, rate, order) is holds


def test_smoothing_costs_nothing():
    mechanism = dp_lssgd(0.5, 1.1, strength=3.0)
    assert mechanism.noise.event(1000) == Gaussian(1.1)
    assert mechanism.post == (LaplacianSmoothing(3.0),)
    assert mechanism.method.status is Status.PROVEN


def test_in_rigorous_mode_the_budget_is_certified():
    settled = plan(dp_lssgd(), Budget(1.0, 1e-5)).calibrate()
    assert settled.mechanism.noise.multiplier == pytest.approx(
        multiplier_for(epsilon=1.0, delta=1e-5, rate=POISSON.rate, steps=STEPS), rel=1e-4
    )


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.2])
def test_a_share_lies_between_zero_and_one(wrong):
    with pytest.raises(InvalidArgument, match="share must be"):
        VarianceRule(share=wrong)


def test_a_claim_outside_the_theorems_conditions_is_not_called_proven():
    made = Plan(dp_lssgd(multiplier=0.2), Poisson(lot_size=1, population=100), 1, 10, None)
    guarantee = replace(make_guarantee(made, ReleasedSteps([made.event_at(0)], [], Counter())), delta=1e-5)
    assert guarantee.claim.epsilon < 2 < 10 < guarantee.bounds(1e-5)[0]
    assert guarantee.status is Status.UNPROVEN
    assert "which do not hold here" in guarantee.because
    assert guarantee.verdict == "here it is too small"
    assert Guarantee.from_json(guarantee.to_json()) == guarantee
