"""Pruning: as published nothing is proven and it says so; after the noise, or by past releases, it is free."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit import Budget, Poisson, PrivateRun
from tacit.accounting import Unproven, curve
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee, Status
from tacit.methods.dpsgd import dpsgd
from tacit.methods.pruned import pruned
from tacit.stages.bounds import Clip, FeedbackClip, MaskedClip
from tacit.stages.noise import GaussianNoise, PrunedNoise
from tacit.stages.post import TopK
from tacit.training.plan import Plan

SAMPLING = Poisson(lot_size=20, population=200)


def trained(mechanism, steps=12, classes=2, **settings):
    torch.manual_seed(0)
    x = torch.randn(200, 6)
    y = (x[:, : classes - 1] > 0).sum(1)
    model = torch.nn.Linear(6, classes)
    run = PrivateRun(
        model,
        cross_entropy,
        data=(x, y),
        mechanism=mechanism,
        sampling=SAMPLING,
        steps=steps,
        **settings,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    return run, model, (x, y)


@pytest.mark.slow
@pytest.mark.parametrize("select_by", ["release", "past"])
def test_epsilon_is_the_same_with_and_without_pruning(select_by):
    plain, thin = (trained(mechanism)[0] for mechanism in (dpsgd(1.0, 1.3), pruned(1.0, 1.3, select_by=select_by)))
    assert thin.guarantee().bounds(1e-4) == plain.guarantee().bounds(1e-4)
    assert thin.guarantee().unprotected == ()


def test_rigorous_forms_are_made_of_stages_that_may_see_what_they_see():
    assert pruned(0.5, 1.0, keep=0.2).post == (TopK(keep=0.2),)
    assert pruned(0.5, 1.0).bound == Clip(0.5)
    assert pruned(0.5, 1.0, keep=0.2, select_by="past", refresh=4).bound == MaskedClip(0.5, 0.2, 4)
    assert pruned(select_by="past").noise == GaussianNoise()


def test_a_mode_that_there_is_not_is_refused():
    with pytest.raises(InvalidArgument, match="mode must be 'rigorous' or 'paper'"):
        pruned(0.5, 1.0, mode="published")


def test_only_so_many_weights_move_in_a_step():
    _, _, _ = trained(pruned(1.0, 1.0, keep=0.25), steps=1)
    run, model, _ = trained(pruned(1.0, 1.0, keep=0.25), steps=1)
    moved = sum(int((parameter.grad != 0).sum()) for parameter in model.parameters())
    assert moved == round(0.25 * 14)
    assert run.step == 1


@pytest.mark.parametrize("chosen", [{"select_by": "release"}, {"select_by": "past", "refresh": 3}])
def test_pruned_training_learns(chosen):
    _, model, (x, y) = trained(pruned(1.0, 0.05, keep=0.3, **chosen), steps=60)
    assert float((model(x).argmax(1) == y).float().mean()) > 0.9


def test_as_published_nothing_is_proven_and_it_is_never_silent():
    run, _, _ = trained(pruned(1.0, mode="paper"), budget=Budget(2.0, 1e-3))
    guarantee = run.guarantee()
    assert guarantee.epsilon(1e-3) == math.inf
    assert guarantee.status is Status.REFUTED
    assert guarantee.unprotected == ("support", "residual")
    assert guarantee.claim.epsilon == pytest.approx(2.0, rel=1e-9)
    text = str(guarantee)
    assert text.startswith("Proven: nothing.")
    assert "Not protected: support, residual." in text
    assert "refuted" in text
    assert "NOT FOR RELEASE: which coordinates were kept" in text
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_the_published_rule_gives_the_noise_of_the_same_paper_without_pruning():
    plan = Plan(pruned(mode="paper"), Poisson(512, 55_000), 6445, 61_706, Budget(1.0, 1e-5)).calibrate()
    assert plan.mechanism.noise.multiplier == pytest.approx(8.004667755640392, rel=1e-9)
    assert any(isinstance(event, Unproven) for event in plan.total(6445).walk())


def test_published_stages():
    mechanism = pruned(0.1, 1.0, keep=0.1, mode="paper")
    assert mechanism.bound == FeedbackClip(0.1)
    assert mechanism.noise == PrunedNoise(1.0, keep=0.1)


def test_the_published_residual_is_fed_back():
    run, _, _ = trained(pruned(1.0, 0.1, keep=0.2, mode="paper"), steps=3)
    residual = [value for name, value in run._state.bound.items() if name.startswith("<residual>")]
    assert sum(int((value != 0).sum()) for value in residual) == 14 - round(0.2 * 14)


def test_a_published_run_in_pieces_adds_up():
    # With two classes every coordinate has one of equal size, and rounding decides which of them is kept.
    one, other = (trained(pruned(1.0, 1.0, mode="paper"), classes=3, seed=1, micro_batch=n)[1] for n in (None, 3))
    torch.testing.assert_close(one.weight, other.weight, rtol=1e-4, atol=1e-5)


def test_a_published_run_is_saved_and_resumed(tmp_path):
    run, model, data = trained(pruned(1.0, 1.0, mode="paper"), steps=4)
    run.save(tmp_path)
    fresh = torch.nn.Linear(6, 2)
    resumed = PrivateRun.resume(tmp_path, fresh, cross_entropy, data=data)
    assert torch.equal(fresh.weight, model.weight)
    assert resumed.guarantee().status is Status.REFUTED


@pytest.mark.parametrize("mode", ["rigorous", "paper"])
@pytest.mark.parametrize("wrong", [{"select_by": "magic"}, {"refresh": 0}, {"keep": 2}])
def test_other_selections_are_refused(mode, wrong):
    """Also where the form has no use for them."""
    with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))} must be"):
        pruned(mode=mode, **wrong)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"mode": "paper", "select_by": "past"}, "private data decide"),
        ({"mode": "paper", "refresh": 5}, "private data decide"),
        ({"refresh": 5}, "refresh applies to select_by='past'"),
    ],
)
def test_a_choice_that_would_change_nothing_is_refused(chosen, words):
    with pytest.raises(InvalidArgument, match=words):
        pruned(**chosen)


def test_certified_epsilon_of_the_rigorous_form_is_finite():
    assert curve(pruned(1.0, 1.1).noise.event(10).sampled(0.01) * 100).epsilon(1e-5) < 1
