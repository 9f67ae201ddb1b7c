"""Lots: where they come from, in which order they are used, and what is refused."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    DataLoader,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import tacit
from support.small_runs import (
    CLASSES,
    FEATURES,
    INPUTS,
    TARGETS,
    N,
    gradients_in,
    noise_of,
    small_model,
    small_run,
    train,
)
from tacit.accounting import Gaussian
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.gradients import per_example_gradients
from tacit.randomness import Purpose, SeededSource


def test_lots_are_those_that_the_sampling_draws():
    run = small_run()
    for step, lot in enumerate(run):
        expected = run.sampling.lot(N, SeededSource(0).stream(Purpose.LOT, step), step)
        assert torch.equal(lot.inputs, INPUTS[expected])
        assert torch.equal(lot.targets, TARGETS[expected])
        run.release(lot)


def test_a_lot_does_not_show_how_many_examples_it_holds():
    assert repr(next(iter(small_run()))) == "Lot(step=0)"


def test_a_lot_is_used_once():
    run = small_run()
    lot = next(iter(run))
    run.backward(lot)
    with pytest.raises(OutOfOrder, match="step 0 was used already"):
        run.release(lot)


def test_a_lot_that_several_threads_give_is_used_once():
    together = Barrier(4)

    def meet(*given):
        together.wait()
        return per_example_gradients(*given)

    run = small_run(gradients=meet)
    lot = next(iter(run))
    with ThreadPoolExecutor(4) as pool:
        failed = [attempt.exception() for attempt in [pool.submit(run.backward, lot) for _ in range(4)]]
    assert run.step == 1
    assert [type(error) for error in failed if error is not None] == [OutOfOrder] * 3


def test_a_lot_of_another_run_is_refused():
    run = small_run()
    next(iter(run))
    with pytest.raises(OutOfOrder, match="just gave"):
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
    run.release(next(slow))
    run.release(next(fast))
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


class Endless(torch.utils.data.IterableDataset):
    def __len__(self):
        return N

    def __iter__(self):
        return iter(Pairs())


@pytest.mark.parametrize("data", [iter([(INPUTS[0], 1)]), Endless()], ids=["iterator", "iterable data set"])
def test_a_stream_of_examples_is_refused(data):
    with pytest.raises(InvalidArgument, match="drawn by index"):
        small_run(data=data)


class Noisy(torch.utils.data.Dataset):
    """Every example is drawn anew each time, with numbers from every generator that transforms share."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        moved = INPUTS[index] + torch.randn(FEATURES) + np.random.normal() + random.gauss(0, 1)  # noqa: NPY002
        return moved, int(TARGETS[index])


class NoisyTogether(Noisy):
    """The same for data sets that fetch several examples at once."""

    def __getitems__(self, indices):
        assert indices
        return [self[index] for index in indices]


def forgetful_model():
    """Its dropout draws from torch's global generator, as the transforms do."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, CLASSES))


def seed_all(seed):
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)  # noqa: NPY002


@pytest.mark.slow
@pytest.mark.parametrize("data", [Noisy(), NoisyTogether()], ids=["one by one", "together"])
def test_random_transforms_are_drawn_again_however_many_workers_fetch(tmp_path, data):
    settings = {"data": data, "sampling": tacit.Poisson(3, N), "steps": 7}
    expected = train(small_run(forgetful_model(), **settings))
    first = small_run(forgetful_model(), **settings, workers=1)
    train(first, steps=3)
    first.save(tmp_path)
    train(first, steps=5)
    seed_all(1)
    second = tacit.PrivateRun.resume(tmp_path, forgetful_model(), cross_entropy, data=data, workers=2)
    assert second.step == 3
    assert torch.equal(train(second), expected)
    assert not torch.equal(train(small_run(forgetful_model(), **settings | {"seed": 1})), expected)


def test_seeded_transforms_leave_the_generators_of_others_alone():
    def draws():
        return torch.rand(1).item(), np.random.random(), random.random()  # noqa: NPY002

    run = small_run(data=Noisy())
    seed_all(3)
    next(iter(run))
    found = draws()
    seed_all(3)
    assert found == draws()


def test_without_a_seed_transforms_draw_as_ever():
    runs = [small_run(data=Noisy(), seed=None, sampling=tacit.FullBatch(N)) for _ in range(3)]
    seed_all(3)
    one, other = (next(iter(run)).inputs for run in runs[:2])
    assert not torch.equal(one, other)
    seed_all(3)
    assert torch.equal(next(iter(runs[2])).inputs, one)


def to_pair(examples):
    """A collate_fn of the user's: inputs in a dict, targets as they are."""
    return {"x": torch.stack([x for x, _ in examples])}, torch.tensor([y for _, y in examples])


class OfDict(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = small_model()

    def forward(self, x):
        return self.inside(x)


def loader(dataset=None, **settings):
    return DataLoader(Pairs() if dataset is None else dataset, **{"batch_size": 7, "shuffle": True, **settings})


def keys(run):
    return [one.key for one in run.guarantee().assumptions]


@pytest.mark.parametrize("dataset", [Pairs(), TensorDataset(INPUTS, TARGETS)], ids=["data set", "tensors"])
def test_a_loader_is_taken_for_its_data_set_and_that_is_said_once(dataset):
    run = small_run(data=loader(dataset, drop_last=True))
    assert torch.equal(train(run), train(small_run()))
    assert keys(run).count("loader_replaced") == 1
    assert "loader_replaced" not in keys(small_run())


def test_a_loader_is_taken_for_its_collate_fn_and_its_workers():
    data = loader(collate_fn=to_pair, num_workers=1)
    run = small_run(OfDict(), data=data, sampling=tacit.Poisson(2, N), steps=3)
    assert run._examples.workers == 1
    assert torch.equal(train(run), train(small_run(sampling=tacit.Poisson(2, N), steps=3)))


def test_a_resumed_run_takes_a_loader_too(tmp_path):
    run = small_run(data=loader())
    train(run, steps=2)
    run.save(tmp_path)
    model = small_model()
    again = tacit.PrivateRun.resume(tmp_path, model, cross_entropy, data=loader())
    assert torch.equal(train(again), train(small_run()))
    assert "loader_replaced" in keys(again)


def centre(examples):
    """Mixes examples: every row depends on all others in its lot."""
    inputs, targets = default_collate(examples)
    return inputs - inputs.mean(0), targets


@pytest.mark.parametrize("workers", [0, 2])
def test_one_example_moves_a_release_by_at_most_the_clip_norm_whatever_collate_fn_does(workers):
    everyone = {"sampling": tacit.Poisson(N, N), "steps": 1}
    wild = [(100 * x, y) for x, y in Pairs()]
    loaders = [loader(some, collate_fn=centre, num_workers=workers) for some in (wild[1:], wild)]
    runs = [small_run(data=each, **everyone) for each in loaders]
    sums = []
    for run in runs:
        lot = next(iter(run))
        assert len(lot) == len(run._examples)
        sums.append(torch.cat([value.flatten() for value in run.release(lot).values()]) * N)
    # The seeds are the same, so that the noise cancels, up to the grid to which sums are rounded.
    assert 0 < (sums[0] - sums[1]).norm() <= 0.5 * 1.05


def twice(examples):
    inputs, targets = default_collate(examples)
    return torch.cat([inputs, inputs]), torch.cat([targets, targets])


def pad(examples):
    longest = max(int(y) + 1 for _, y in examples)
    return torch.zeros(len(examples), longest), torch.tensor([y for _, y in examples])


LOADERS = {
    "several rows for an example": (loader(collate_fn=twice), "one row for each example"),
    "padded to the longest": (loader(collate_fn=pad), "different shapes"),
    "no pair": (loader(collate_fn=lambda examples: torch.zeros(1, 2)), "pair"),
}


@pytest.mark.parametrize(("data", "said"), LOADERS.values(), ids=LOADERS)
def test_a_collate_fn_that_would_let_one_example_count_for_others_is_refused(data, said):
    with pytest.raises(InvalidArgument, match=said):
        train(small_run(data=data))


CHOOSING = {
    "weights": loader(shuffle=False, sampler=WeightedRandomSampler([1.0] * N, N)),
    "a part": loader(shuffle=False, sampler=SubsetRandomSampler(range(50))),
    "lots of its own": DataLoader(Pairs(), batch_sampler=[[0, 1], [2, 3]]),
    "no batches": DataLoader(Pairs(), batch_size=None),
    "a stream": DataLoader(Endless()),
}


@pytest.mark.parametrize("data", CHOOSING.values(), ids=CHOOSING)
def test_a_loader_that_chooses_among_its_examples_is_refused(data):
    with pytest.raises(InvalidArgument):
        small_run(data=data)
