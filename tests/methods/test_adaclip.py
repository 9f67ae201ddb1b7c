"""AdaClip: private as published, and accounted for like DP-SGD."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun
from tacit.accounting import Gaussian, curve
from tacit.guarantee import Status
from tacit.methods import adaclip
from tacit.stages.bounds import AdaClip


def run_of(mechanism, steps=20):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(400, 6, generator=generator)
    torch.manual_seed(0)
    network = torch.nn.Linear(6, 2)
    run = PrivateRun(
        network,
        cross_entropy,
        data=(x, (x[:, 0] > 0).long()),
        mechanism=mechanism,
        sampling=Poisson(40, 400),
        steps=steps,
        budget=Budget(3, 1e-5),
        seed=0,
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    return run


@pytest.mark.slow
def test_it_keeps_its_budget_and_costs_what_dpsgd_costs():
    run = run_of(adaclip(0.5, gamma=0.5))
    assert run.mechanism.bound == AdaClip(0.5, 0.5)
    guarantee = run.guarantee()
    assert guarantee.event == Gaussian(run.multiplier).sampled(0.1) * 20
    assert 2.99 < guarantee.epsilon(1e-5) <= 3
    assert guarantee.status is Status.PROVEN


def test_its_claim_is_the_moments_accountant_which_is_on_the_safe_side():
    guarantee = run_of(adaclip()).guarantee()
    assert guarantee.claim.epsilon == curve(guarantee.event, by="moments").epsilon(1e-5)
    assert guarantee.claim.epsilon > guarantee.epsilon(1e-5)


@pytest.mark.slow
def test_in_paper_mode_the_moments_accountant_says_how_much_noise():
    run = run_of(adaclip(mode="paper"))
    assert run.guarantee().claim.epsilon == pytest.approx(3, rel=1e-3)
    assert run.guarantee().epsilon(1e-5) < 2.9


def test_mean_and_width_move_with_the_releases():
    run = run_of(adaclip())
    assert float(run._state.bound["mean/weight"].abs().sum()) > 0
    assert float(run._state.bound["variance/weight"].std()) > 0
