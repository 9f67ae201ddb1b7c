"""PrivateRun: what a user writes, what it releases, and what it refuses."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats

import tacit
from support.small_runs import (
    CLASSES,
    FEATURES,
    INPUTS,
    TARGETS,
    N,
    assert_noisy_mean,
    gradients_in,
    small_model,
    small_run,
    train,
)
from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.guarantee import Status
from tacit.stages.bounds import Clip


def test_backward_gives_the_clipped_noisy_sum_over_the_public_lot_size():
    run = small_run()
    assert_noisy_mean(run, next(iter(run)), multiplier=1.1, lot_size=20)


def test_a_run_learns_what_there_is_to_learn():
    """Two classes that lie far apart, hardly any noise: more than nine in ten must be told apart."""
    targets = torch.arange(N) % 2
    inputs = torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(2)) + 3.0 * (2.0 * targets[:, None] - 1)
    model = small_model()
    train(small_run(model, data=(inputs, targets), steps=40))
    assert float((model(inputs).argmax(dim=1) == targets).double().mean()) > 0.9


def test_a_large_gradient_that_was_used_is_not_kept_beside_the_next_one(monkeypatch):
    monkeypatch.setattr("tacit.training.run._MANY", 0)
    release, seen = tacit.PrivateRun.release, []

    def look(run, lot):
        seen.append([parameter.grad for parameter in run.model.parameters()])
        return release(run, lot)

    monkeypatch.setattr(tacit.PrivateRun, "release", look)
    run = small_run(steps=3)
    train(run)
    assert [grad for grads in seen for grad in grads if grad is not None] == []
    assert all(parameter.grad is not None for parameter in run.model.parameters())


def test_iteration_stops_at_the_planned_step():
    run = small_run(steps=7)
    train(run)
    assert run.step == 7
    assert list(run) == []
    assert len(run) == 0


def test_one_more_backward_is_an_error():
    run = small_run(steps=1)
    lot = next(iter(run))
    run.backward(lot)
    with pytest.raises(OutOfOrder, match="All 1 planned steps are done"):
        run.backward(lot)


@pytest.mark.slow
def test_the_guarantee_counts_what_was_released_so_far():
    run = small_run()
    assert run.guarantee().epsilon(1e-5) == 0
    step = Gaussian(1.1).sampled(0.1)
    for done, lot in enumerate(run, start=1):
        run.release(lot)
        assert run.guarantee().event == step * done
        assert run.guarantee().epsilon(1e-5) == curve(step * done).epsilon(1e-5)


def test_a_failing_model_costs_nothing_and_the_lot_can_be_tried_again():
    run = small_run()
    lot = next(iter(run))
    good, run.loss = run.loss, lambda outputs, targets: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.backward(lot)
    assert run.step == 0
    run.loss = good
    run.backward(lot)
    assert run.step == 1


def test_inference_mode_is_refused_before_anything_is_spent():
    run = small_run()
    with torch.inference_mode(), pytest.raises(InvalidArgument, match="inference_mode"):
        run.backward(next(iter(run)))
    assert run.step == 0


def test_a_step_is_paid_for_even_if_the_release_breaks_off(monkeypatch):
    run = small_run()
    lot = next(iter(run))
    monkeypatch.setattr("tacit.training.run._write_gradients", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.backward(lot)
    assert run.guarantee().event == Gaussian(1.1).sampled(0.1) * 1


def test_shuffled_runs_say_that_nothing_is_amplified():
    run = small_run(sampling=tacit.Shuffled(50, N), steps=8)
    train(run)
    text = str(run.guarantee())
    assert "replace one example" in text
    assert "which no proof amplifies" in text
    assert run.guarantee().epsilon(1e-5) == pytest.approx(curve(Gaussian(0.55) * 2).epsilon(1e-5))


def test_a_fixed_seed_is_not_for_release():
    assert "NOT FOR RELEASE" in str(small_run().guarantee())
    assert "NOT FOR RELEASE" not in str(small_run(seed=None).guarantee())
    assert json.loads(small_run().guarantee().to_json())["violations"] == ["fixed_seed"]


def test_without_a_seed_no_two_runs_are_alike():
    assert not torch.equal(train(small_run(seed=None)), train(small_run(seed=None)))


def test_the_claim_stands_beside_the_proof():
    run = small_run(mechanism=methods.noisy_sgd(0.5, 1.1))
    train(run)
    guarantee = run.guarantee()
    assert guarantee.status is Status.ASYMPTOTIC
    assert guarantee.claim.epsilon == curve(guarantee.event, by="clt").epsilon(guarantee.claim.delta)
    assert small_run(mechanism=methods.dpsgd(0.5, 1.1)).guarantee().status is Status.PROVEN


def test_micro_batches_give_the_same_step():
    expected, found = small_run(steps=3), small_run(steps=3, micro_batch=4)
    torch.testing.assert_close(train(expected), train(found), atol=1e-4, rtol=0)


def test_frozen_parameters_are_left_alone_and_unused_ones_get_noise():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.used = torch.nn.Linear(FEATURES, 4), torch.nn.Linear(4, CLASSES)
            self.unused = torch.nn.Parameter(torch.zeros(3))
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(self.frozen(x))

    torch.manual_seed(0)
    run = small_run(Odd())
    run.backward(next(iter(run)))
    assert run.model.frozen.weight.grad is None
    assert run.model.unused.grad.abs().min() > 0


def test_what_stood_in_the_gradients_is_replaced():
    run = small_run()
    for parameter in run.model.parameters():
        parameter.grad = torch.full_like(parameter, 1e9)
    run.backward(next(iter(run)))
    assert all(float(value.abs().max()) < 10 for value in gradients_in(run.model).values())


def test_one_example_that_is_not_finite_spoils_nothing():
    inputs = INPUTS.clone()
    inputs[::2] = math.nan
    inputs[1::4] = math.inf
    run = small_run(data=(inputs, TARGETS))
    assert torch.isfinite(train(run)).all()


def test_a_double_precision_model_gets_double_precision_gradients():
    run = small_run(small_model().double(), data=(INPUTS.numpy(), TARGETS.numpy()))
    run.backward(next(iter(run)))
    assert all(value.dtype == torch.float64 for value in gradients_in(run.model).values())


@pytest.mark.parametrize("wrong", [{"mechanism": methods.dpsgd}, {"mechanism": Clip(1.0)}, {"sampling": 0.01}])
def test_a_part_of_the_wrong_kind_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidArgument, match=f"{name} must be one such as"):
        small_run(**wrong)


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(InvalidArgument, match="no trainable parameter"):
        small_run(small_model().requires_grad_(False))


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "normalised", "quantile"])
def test_every_clipping_trains_at_the_same_price(clipping):
    run = small_run(mechanism=methods.dpsgd(0.5, 1.1, clipping=clipping))
    assert torch.isfinite(train(run)).all()
    assert run.guarantee().event == Gaussian(1.1).sampled(0.1) * 5


def gradient_over_steps(targets, steps=60):
    """What each step puts into p.grad of a model whose gradient is its target, times the public lot size.

    With all targets +1 but one of -1, dividing by the lot that came would move the mean by 2.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    data = (torch.ones(len(targets), 1), torch.tensor(targets)[:, None])
    run = tacit.PrivateRun(
        model,
        lambda output, target: (output * target).flatten(),
        data=data,
        mechanism=methods.dpsgd(clip_norm=1.0, multiplier=1e-3),
        sampling=tacit.Poisson(lot_size=20, population=200),
        steps=steps,
        seed=0,
    )
    found = []
    for lot in run:
        found.append(float(run.release(lot)["weight"]) * 20)
    return np.array(found)


def test_one_example_moves_the_release_by_at_most_the_clip_norm():
    without = gradient_over_steps([1.0] * 200)
    with_it = gradient_over_steps([1.0] * 200 + [-1.0])
    moved = np.abs(with_it - without)
    assert moved.max() == pytest.approx(1.0, abs=1e-5)
    assert 1 <= (moved > 0.5).sum() <= 20
    assert (moved[moved < 0.5] < 1e-5).all()


def test_the_realised_denominator_would_leak_what_the_constant_one_does_not():
    """One step: delta(0.5) is 4.05e-5 when divided by the lot that came, and 1.16e-10 as accounted for."""
    rate, x = 256 / 60_000, np.linspace(-0.08, 0.05, 4001)
    others = np.arange(150, 370)
    likely = stats.binom(60_000, rate).pmf(others)
    absent = stats.norm.pdf(x[:, None], 0, 1.1 / others) @ likely
    drawn = stats.norm.pdf(x[:, None], -2 / (others + 1), 1.1 / (others + 1)) @ likely
    excess = np.maximum((1 - rate) * absent + rate * drawn - math.exp(0.5) * absent, 0)
    assert excess.sum() * (x[1] - x[0]) == pytest.approx(4.0473e-5, rel=0.01)
    assert curve(Gaussian(1.1).sampled(rate)).delta(0.5) == pytest.approx(1.16e-10, rel=0.01)
