"""PrivateRun: what a user writes, what it releases, and what it refuses."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

import tacit
from slow_gradients import slow_gradients
from tacit import methods
from tacit.accounting import Gaussian, curve
from tacit.bounds import Clip
from tacit.errors import BudgetExceeded, InvalidArgument, OutOfOrder
from tacit.guarantee import Status
from tacit.noise import GaussianNoise
from tacit.randomness import Purpose, SeededSource
from tacit.types import BoundedSum

N, FEATURES, CLASSES = 200, 5, 3
INPUTS = torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(CLASSES, (N,), generator=torch.Generator().manual_seed(1))


def small_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 4), torch.nn.Tanh(), torch.nn.Linear(4, CLASSES))


def small_run(model=None, **changes):
    settings = {
        "data": (INPUTS, TARGETS),
        "mechanism": methods.dpsgd(clip_norm=0.5, multiplier=1.1),
        "sampling": tacit.Poisson(lot_size=20, population=N),
        "steps": 5,
        "seed": 0,
    }
    return tacit.PrivateRun(model or small_model(), cross_entropy, **settings | changes)


def train(run, steps=None, lr=0.5):
    optimizer = torch.optim.SGD(run.model.parameters(), lr=lr)
    for lot in run:
        run.backward(lot)
        optimizer.step()
        if steps is not None and run.step >= steps:
            break
    return weights(run.model)


def weights(model):
    return torch.cat([p.detach().flatten().double() for p in model.parameters()])


def gradients_in(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def noise_of(step, like, multiplier, clip_norm, seed=0):
    """The noise that a seeded run draws at a step, from the stage itself."""
    empty = BoundedSum({name: torch.zeros_like(value) for name, value in like.items()}, clip_norm)
    return GaussianNoise(multiplier).add(empty, SeededSource(seed).stream(Purpose.NOISE, step))


def test_backward_gives_the_clipped_noisy_sum_over_the_public_lot_size():
    run = small_run()
    lot = next(iter(run))
    expected = Clip(0.5).sum(slow_gradients(run.model, cross_entropy, lot.inputs, lot.targets), {})
    noise, grid = noise_of(0, expected.values, 1.1, 0.5), 1.1 * 0.5 / 2**5
    run.backward(lot)
    for name, value in gradients_in(run.model).items():
        torch.testing.assert_close(value, (expected.values[name] + noise[name]) / 20, atol=grid / 20, rtol=1e-5)


def test_a_run_learns_what_there_is_to_learn():
    """Two classes that lie far apart, hardly any noise: more than nine in ten must be told apart."""
    targets = torch.arange(N) % 2
    inputs = torch.randn(N, FEATURES, generator=torch.Generator().manual_seed(2)) + 3.0 * (2.0 * targets[:, None] - 1)
    model = small_model()
    train(small_run(model, data=(inputs, targets), steps=40))
    assert float((model(inputs).argmax(dim=1) == targets).double().mean()) > 0.9


def test_lots_are_those_that_the_sampling_draws():
    run = small_run()
    for step, lot in enumerate(run):
        expected = run.sampling.lot(N, SeededSource(0).stream(Purpose.LOT, step), step)
        assert torch.equal(lot.inputs, INPUTS[expected])
        assert torch.equal(lot.targets, TARGETS[expected])
        run.backward(lot)


def test_a_lot_does_not_show_how_many_examples_it_holds():
    assert repr(next(iter(small_run()))) == "Lot(step=0)"


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


def test_a_lot_is_used_once():
    run = small_run()
    lot = next(iter(run))
    run.backward(lot)
    with pytest.raises(OutOfOrder, match="step 0 was used already"):
        run.backward(lot)


def test_a_lot_of_another_run_is_refused():
    run = small_run()
    next(iter(run))
    with pytest.raises(OutOfOrder, match="has just given"):
        run.backward(next(iter(small_run())))


def test_a_lot_that_is_left_out_is_an_error():
    lots = iter(small_run())
    next(lots)
    with pytest.raises(OutOfOrder, match=r"step 0 was not given to run\.backward"):
        next(lots)


def test_a_loop_can_be_left_and_entered_again():
    whole, broken = small_run(), small_run()
    expected = train(whole)
    train(broken, steps=2)
    waiting = next(iter(broken))
    assert next(iter(broken)) is waiting
    assert torch.equal(train(broken), expected)


def test_a_loop_that_another_one_overtook_is_refused():
    run = small_run()
    slow, fast = iter(run), iter(run)
    run.backward(next(slow))
    run.backward(next(fast))
    with pytest.raises(OutOfOrder, match="Another loop"):
        next(slow)


def test_an_empty_lot_is_a_step_of_noise_alone():
    run = small_run(sampling=tacit.Poisson(lot_size=1e-6, population=N))
    lot = next(iter(run))
    assert len(lot) == 0
    run.backward(lot)
    noise = noise_of(0, gradients_in(run.model), 1.1, 0.5)
    for name, value in gradients_in(run.model).items():
        torch.testing.assert_close(value, noise[name] / 1e-6)
    assert run.guarantee().event == Gaussian(1.1).sampled(1e-6 / N) * 1


def test_the_guarantee_counts_what_was_released_so_far():
    run = small_run()
    assert run.guarantee().epsilon(1e-5) == 0
    step = Gaussian(1.1).sampled(0.1)
    for done, lot in enumerate(run, start=1):
        run.backward(lot)
        assert run.guarantee().event == step * done
        assert run.guarantee().epsilon(1e-5) == curve(step * done).epsilon(1e-5)


def test_a_failing_model_costs_nothing_and_the_lot_can_be_tried_again():
    run = small_run()
    lot = next(iter(run))
    good, run.loss = run.loss, None
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the gradients make of no loss
        run.backward(lot)
    assert run.step == 0
    run.loss = good
    run.backward(lot)
    assert run.step == 1


def test_a_step_is_paid_for_even_if_the_release_breaks_off(monkeypatch):
    run = small_run()
    lot = next(iter(run))
    monkeypatch.setattr("tacit.run._write_gradients", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.backward(lot)
    assert run.guarantee().event == Gaussian(1.1).sampled(0.1) * 1


def test_the_multiplier_is_found_from_the_budget():
    run = small_run(mechanism=methods.dpsgd(clip_norm=0.5), budget=tacit.Budget(epsilon=2, delta=1e-4), steps=30)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.parametrize("sampling", [tacit.FullBatch(N), tacit.Shuffled(20, N)], ids=str)
def test_the_budget_is_kept_by_every_sampling(sampling):
    run = small_run(mechanism=methods.dpsgd(0.5), sampling=sampling, budget=tacit.Budget(2, 1e-4), steps=15)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


def test_a_multiplier_that_breaks_the_budget_is_refused_with_one_that_keeps_it():
    with pytest.raises(BudgetExceeded, match=r"Raise the multiplier to 1\.38"):
        small_run(budget=tacit.Budget(epsilon=0.9, delta=1e-4), steps=5)


def test_neither_budget_nor_multiplier_is_an_error():
    with pytest.raises(InvalidArgument, match="How much noise"):
        small_run(mechanism=methods.dpsgd(0.5))


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


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return INPUTS[index], int(TARGETS[index])


@pytest.mark.parametrize(
    "data",
    [
        (INPUTS.numpy(), TARGETS.numpy()),
        (INPUTS.double().numpy(), TARGETS.numpy()),
        (np.frombuffer(INPUTS.numpy().tobytes(), dtype=np.float32).reshape(N, FEATURES), TARGETS),
        torch.utils.data.TensorDataset(INPUTS, TARGETS),
        Pairs(),
    ],
    ids=["arrays", "double arrays", "read-only arrays", "tensor data set", "data set"],
)
def test_every_form_of_data_gives_the_same_training(data):
    assert torch.equal(train(small_run(data=data)), train(small_run()))


def test_workers_fetch_the_same_lots():
    expected = train(small_run(sampling=tacit.Poisson(2, N), steps=4))
    assert torch.equal(train(small_run(sampling=tacit.Poisson(2, N), steps=4, data=Pairs(), workers=1)), expected)


def test_data_of_different_lengths_is_refused():
    with pytest.raises(InvalidArgument, match="199 and 200 rows"):
        small_run(data=(INPUTS[:-1], TARGETS))


def test_a_stream_of_examples_is_refused():
    with pytest.raises(InvalidArgument, match="drawn by index"):
        small_run(data=iter([(INPUTS[0], 1)]))


@pytest.mark.parametrize("wrong", [{"mechanism": methods.dpsgd}, {"mechanism": Clip(1.0)}, {"sampling": 0.01}])
def test_a_part_of_the_wrong_kind_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(InvalidArgument, match=f"{name} must be one such as"):
        small_run(**wrong)


def test_a_lot_size_beyond_the_population_is_refused_before_the_first_step():
    with pytest.raises(InvalidArgument, match="at most the population"):
        small_run(schedule=tacit.Schedule(lot_size=[1, 1, 1, 1, 11]))


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(InvalidArgument, match="no trainable parameter"):
        small_run(small_model().requires_grad_(False))


def test_a_schedule_is_fixed_in_advance_and_every_step_has_its_own_event():
    asked = []

    def factor(step):
        asked.append(step)
        return 1.0 if step < 3 else 2.0

    run = small_run(schedule=tacit.Schedule(multiplier=factor, lot_size=[1, 1, 1, 1, 2]))
    assert asked == [0, 1, 2, 3, 4]
    train(run)
    expected = Gaussian(1.1).sampled(0.1) * 3 + Gaussian(2.2).sampled(0.1) + Gaussian(2.2).sampled(0.2)
    assert run.guarantee().epsilon(1e-5) == pytest.approx(curve(expected).epsilon(1e-5), rel=1e-6)


def test_a_scheduled_step_has_its_own_noise_and_normaliser():
    run = small_run(schedule=tacit.Schedule(multiplier=[3.0] * 5, lot_size=[2.0] * 5))
    lot = next(iter(run))
    expected = Clip(0.5).sum(slow_gradients(run.model, cross_entropy, lot.inputs, lot.targets), {})
    noise, grid = noise_of(0, expected.values, 3.3, 0.5), 3.3 * 0.5 / 2**5
    run.backward(lot)
    for name, value in gradients_in(run.model).items():
        torch.testing.assert_close(value, (expected.values[name] + noise[name]) / 40, atol=grid / 40, rtol=1e-5)


def test_the_budget_is_kept_by_a_schedule():
    schedule = tacit.Schedule(multiplier=lambda step: 1.0 if step < 10 else 0.7)
    run = small_run(mechanism=methods.dpsgd(0.5), schedule=schedule, budget=tacit.Budget(2, 1e-4), steps=20)
    train(run)
    assert 1.999 < run.guarantee().epsilon(1e-4) <= 2


@pytest.mark.parametrize("factors", [[1.0] * 4, [1, 1, 0, 1, 1], lambda step: -1.0])
def test_a_schedule_that_means_nothing_is_refused(factors):
    with pytest.raises(InvalidArgument, match="schedule"):
        small_run(schedule=tacit.Schedule(multiplier=factors))


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "normalised", "quantile"])
def test_every_clipping_trains_at_the_same_price(clipping):
    run = small_run(mechanism=methods.dpsgd(0.5, 1.1, clipping=clipping))
    assert torch.isfinite(train(run)).all()
    assert run.guarantee().event == Gaussian(1.1).sampled(0.1) * 5


def gradient_over_steps(targets, steps=60):
    """What each step puts into p.grad of a model whose gradient is its target, times the public lot size.

    With all targets +1 but one of -1, dividing by the lot that came would move the mean by 2 (METHODS.md 5.3).
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
        run.backward(lot)
        found.append(float(model.weight.grad) * 20)
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
