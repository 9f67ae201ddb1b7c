"""DP-SGD, NoisySGD and NoisyAdam: claims, paper modes, and the denominator that nothing proves."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun, methods
from tacit.accounting import Gaussian, curve, multiplier_for
from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.stages.bounds import Clip, Counted, NormalisedClip
from tacit.training.plan import Plan

POISSON = Poisson(lot_size=256, population=60_000)
SETTING = {"epsilon": 2.0, "delta": 1e-5, "rate": POISSON.rate, "steps": 3516}


def planned(mechanism, epsilon=2.0, steps=3516):
    return Plan(mechanism, POISSON, steps, 10, Budget(epsilon, 1e-5)).calibrate()


def make_guarantee(mechanism, steps=4):
    torch.manual_seed(0)
    network, x = torch.nn.Linear(3, 2), torch.randn(60, 3)
    run = PrivateRun(
        network,
        cross_entropy,
        data=(x, torch.randint(2, (60,))),
        mechanism=mechanism,
        sampling=Poisson(10, 60),
        steps=steps,
        budget=Budget(3, 1e-5),
        micro_batch=4,
    )
    for lot in run:
        run.release(lot)
    return run.guarantee()


@pytest.mark.parametrize("method", [methods.noisy_sgd, methods.noisy_adam])
def test_as_printed_by_bu_et_al_nothing_is_proven(method):
    guarantee = make_guarantee(method(mode="paper"))
    assert guarantee.status is Status.REFUTED
    assert guarantee.violations == ("random_denominator",)
    assert guarantee.epsilon(1e-5) == math.inf
    assert guarantee.claim.epsilon == pytest.approx(3, rel=1e-3)
    text = str(guarantee)
    assert text.startswith("Proven: nothing.")
    assert "central limit theorem" in text
    assert "never by the number of examples" not in text


@pytest.mark.slow
def test_as_printed_by_abadi_et_al_the_denominator_is_public_and_the_claim_holds():
    guarantee = make_guarantee(methods.dpsgd(mode="paper"))
    assert guarantee.status is Status.PROVEN
    assert guarantee.violations == ()
    assert guarantee.claim.epsilon == pytest.approx(3, rel=1e-3)
    assert guarantee.epsilon(1e-5) < 3


@pytest.mark.slow
def test_a_realised_denominator_is_refuted_whoever_accounts():
    mechanism = methods.dpsgd(mode="paper", denominator="realised")
    assert mechanism.bound == Counted(Clip(1.0))
    guarantee = make_guarantee(mechanism)
    assert (guarantee.status, guarantee.epsilon(1e-5)) == (Status.REFUTED, math.inf)


def test_a_realised_denominator_must_be_asked_for():
    with pytest.raises(InvalidArgument, match="mode='paper'"):
        methods.dpsgd(denominator="realised")
    with pytest.raises(InvalidArgument, match="'public' or 'realised'"):
        methods.dpsgd(denominator="guessed")


def test_sgd_and_adam_share_one_certificate():
    for mode in ("rigorous", "paper"):
        one, other = methods.noisy_sgd(1.0, 1.1, mode=mode), methods.noisy_adam(1.0, 1.1, mode=mode)
        assert (one.bound, one.noise, one.method.claims) == (other.bound, other.noise, other.method.claims)


@pytest.mark.slow
def test_rigorous_noise_is_certified_and_paper_noise_is_what_the_paper_counts():
    rigorous = planned(methods.noisy_sgd()).mechanism.noise.multiplier
    assert rigorous == pytest.approx(multiplier_for(**SETTING), rel=1e-3)
    limit = planned(methods.noisy_sgd(mode="paper")).mechanism.noise.multiplier
    assert limit < rigorous
    moments = planned(methods.dpsgd(mode="paper")).mechanism.noise.multiplier
    assert moments > rigorous
    assert curve(Gaussian(limit).sampled(POISSON.rate) * 3516).epsilon_bounds(1e-5)[0] > 2


@pytest.mark.parametrize(
    ("multiplier", "steps", "claimed", "certified"), [(1.06, 4688, 1.34, 1.4078), (0.638, 16_406, 8.68, 9.4767)]
)
def test_figure_4_of_bu_et_al_claims_less_than_is_true(multiplier, steps, claimed, certified):
    plan = planned(methods.noisy_sgd(1.0, multiplier), epsilon=100, steps=steps)
    event = plan.total(steps)
    assert plan.mechanism.method.claims.claim(plan.settings(), event).epsilon == pytest.approx(claimed, abs=0.02)
    lower, upper = curve(event).epsilon_bounds(1e-5)
    assert upper == pytest.approx(certified, abs=0.01)
    assert lower > claimed


def test_every_method_by_name_takes_a_clip_norm_a_multiplier_and_a_mode():
    for name, method in methods.GRADIENT_METHODS.items():
        for mode in ("rigorous", "paper"):
            mechanism = method(clip_norm=0.5, mode=mode)
            assert mechanism.method.mode == mode
            assert name in mechanism.method.name
            assert mechanism.noise.multiplier is None


@pytest.mark.parametrize(
    ("clipping", "bound"),
    [("flat", Clip(0.5)), ("per_layer", Clip(0.5, per_layer=True)), ("normalised", NormalisedClip(0.5))],
)
def test_the_choice_of_clipping_sets_the_bound(clipping, bound):
    assert methods.dpsgd(0.5, 1.0, clipping=clipping).bound == bound


def test_an_unknown_clipping_is_refused_with_all_that_are_known():
    with pytest.raises(InvalidArgument, match="'flat', 'per_layer', 'normalised', 'quantile'"):
        methods.dpsgd(0.5, 1.0, clipping="none")
