"""Claims: the paper's own formula, beside what is proven and never in its place."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun
from tacit.accounting import Gaussian, Unproven, curve, multiplier_for
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.guarantee import Claim, Guarantee, Status
from tacit.stages.bounds import Clip
from tacit.stages.mechanism import ByAccountant, Mechanism, Method
from tacit.stages.noise import GaussianNoise
from tacit.training.plan import FixedSchedule, Plan

POISSON = Poisson(lot_size=256, population=60_000)
BUDGET = Budget(epsilon=3, delta=1e-5)
CLT = ByAccountant("clt", "Bu et al. 2019, central limit theorem", nominal=True)
NO_PROOF = Unproven("(3, 1e-5)-DP", "nobody has proven it")


def plan(method=None, multiplier=1.1, steps=14_062, budget=BUDGET, **settings):
    mechanism = Mechanism(Clip(1.0), GaussianNoise(multiplier), method=method or Method())
    return Plan(mechanism, POISSON, steps, 10, budget, **settings)


def test_a_claim_is_the_published_number():
    """MNIST, second row of Bu et al. 2019."""
    claim = CLT.claim(plan().settings(), NO_PROOF)
    assert claim == Claim(pytest.approx(2.3243, abs=1e-3), 1e-5, CLT.source)


def test_a_claim_covers_the_steps_so_far_and_those_that_were_lost():
    settings = plan().settings(done=100, lost=[3, 4])
    assert settings.nominal == Gaussian(1.1).sampled(POISSON.rate) * 100 + Gaussian(1.1).sampled(POISSON.rate) * 2
    assert settings.steps == 102


@pytest.mark.slow
def test_a_claim_follows_the_schedule():
    settings = plan(steps=3, schedule=FixedSchedule(multiplier=(1.0, 2.0, 2.0))).settings()
    expected = [Gaussian(z).sampled(POISSON.rate) for z in (1.1, 2.2, 2.2)]
    assert curve(settings.nominal).epsilon(1e-5) == curve(sum(expected[1:], expected[0])).epsilon(1e-5)


def test_a_claim_about_what_was_released_needs_a_proof():
    settings = plan().settings()
    proven = Gaussian(1.1).sampled(0.01) * 10
    moments = ByAccountant("moments", "Abadi et al. 2016")
    assert moments.claim(settings, NO_PROOF) is None
    assert moments.claim(settings, proven).epsilon == curve(proven, by="moments").epsilon(1e-5)


@pytest.mark.slow
def test_paper_mode_takes_its_noise_from_the_papers_own_rule():
    """By the central limit theorem less noise seems to be enough than is."""
    found = plan(Method(mode="paper", claims=CLT), multiplier=None).calibrate().mechanism.noise.multiplier
    setting = {"epsilon": 3, "delta": 1e-5, "rate": POISSON.rate, "steps": 14_062}
    assert found == pytest.approx(multiplier_for(**setting, by="clt", allow_asymptotic=True), rel=1e-3)
    assert found < multiplier_for(**setting)


@pytest.mark.slow
def test_paper_mode_refuses_a_multiplier_that_by_the_papers_own_rule_is_too_small():
    method = Method(mode="paper", claims=CLT)
    assert plan(method, multiplier=1.1).calibrate().mechanism.noise.multiplier == 1.1
    with pytest.raises(BudgetExceeded, match="By its own paper, 14062 steps"):
        plan(method, multiplier=0.9).calibrate()


def test_paper_mode_without_a_rule_asks_for_a_multiplier():
    with pytest.raises(InvalidArgument, match="no rule for the noise"):
        plan(Method("someones", mode="paper"), multiplier=None).calibrate()


def test_a_mode_is_one_of_two():
    with pytest.raises(InvalidArgument, match="'rigorous' or 'paper'"):
        Method(mode="published")


def test_a_refuted_claim_comes_second_with_its_reason_and_where_to_read_more():
    claim = Claim(3.0, 1e-5, "Someone 2020")
    text = str(Guarantee(NO_PROOF, 1e-5, status=Status.REFUTED, claim=claim, because="One example can do this."))
    assert text.startswith("Proven: nothing.")
    assert (
        "refuted; there is no proven number to compare it with. One example can do this. The argument is in docs/"
        in text
    )


def test_a_method_that_is_not_proven_says_so_without_a_claim():
    assert "own claim: unproven. Too bad." in str(Guarantee(NO_PROOF, 1e-5, status=Status.UNPROVEN, because="Too bad."))


@pytest.mark.slow
def test_a_run_in_paper_mode_never_shows_its_claim_as_proven():
    torch.manual_seed(0)
    method = Method("late", mode="paper", claims=CLT, status=Status.REFUTED, because="So it is.", notes=("Noted.",))
    run = PrivateRun(
        torch.nn.Linear(3, 2),
        cross_entropy,
        data=(torch.randn(50, 3), torch.randint(2, (50,))),
        mechanism=Mechanism(Clip(1.0), _Hopeful(), method=method),
        sampling=Poisson(lot_size=10, population=50),
        steps=3,
        budget=BUDGET,
    )
    for lot in run:
        run.release(lot)
    guarantee = run.guarantee()
    assert guarantee.epsilon(1e-5) == math.inf
    assert guarantee.claim.epsilon == pytest.approx(3, rel=1e-3)
    assert guarantee.because == "So it is."
    assert "Noted." in guarantee.notes
    # Three steps of ten out of fifty, each of which happened to have half the noise.
    realised = curve(Gaussian(run.multiplier / 2).sampled(0.2) * 3)
    assert realised.epsilon(1e-5) < guarantee.odometer < 1.2 * realised.epsilon(1e-5)


@dataclass(frozen=True)
class _Hopeful:
    """A noise without a proof, which says what its releases came to."""

    multiplier: float | None = None

    def add(self, bounded, rng):
        return GaussianNoise(self.multiplier).add(bounded, rng)

    def event(self, dimension):
        return NO_PROOF

    def meter(self, bounded):
        return Gaussian(self.multiplier / 2)
