"""What the proof of DP-SGD rests on: removing one example moves what is released by at most one clip norm.

Every odd model is either refused, with a reason, or one example moves its released sum by one clip norm at most and
leaves nothing in it. There is no third outcome. A new model gets these tests by being listed in odd_models.py.
"""

import math
import os
import signal
import time
import warnings
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tacit
from support.odd_models import ODD as ENTRIES
from support.odd_models import ActNorm, Apply, around, vectors
from support.slow_gradients import SlowGradients
from tacit.audit.neighbours import measure_movement, neighbour_test
from tacit.errors import InvalidArgument, MixesExamples, OutOfOrder

Refusal = (MixesExamples, InvalidArgument, OutOfOrder)
LOTS, FEW_LOTS = (1, 2, 5), (1, 5)
EXAMPLES = 2
CLIP_NORM = 0.3


# Models off the list go through one example at a time, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Every example goes through the model alone:tacit.errors.Caution")


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other would take most of the time of such small models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcomes(odd, lots=LOTS):
    """By lot size, what came of the entry."""
    about = {"clip_norm": CLIP_NORM, "examples": EXAMPLES}
    sizes = sorted({size for size in (*lots, odd.largest) if size >= odd.smallest})
    return {size: measure_movement(odd.make, odd.data(), lot=size, **about) for size in sizes}


@pytest.mark.slow
@pytest.mark.parametrize("odd", [odd for odd in ENTRIES if odd.fate == "harmless"], ids=str)
def test_a_model_whose_examples_never_meet_is_accepted_and_bounded(odd):
    for size, test in outcomes(odd, FEW_LOTS).items():
        assert test.passed, f"lot of {size}: {test}"
        assert test.tried


@pytest.mark.slow
@pytest.mark.parametrize("odd", [odd for odd in ENTRIES if odd.fate == "mixing"], ids=str)
def test_a_model_whose_examples_meet_is_refused(odd):
    for size, test in outcomes(odd).items():
        assert test.is_bounded, f"lot of {size}: {test}"
        if size >= odd.meets_in:
            assert test.refusal, f"lot of {size}: {test}"
            assert not test.is_uneven, f"lot of {size}: {test}"


@pytest.mark.slow
@pytest.mark.parametrize("odd", [odd for odd in ENTRIES if odd.fate == "either"], ids=str)
def test_any_other_model_is_refused_or_bounded(odd):
    for size, test in outcomes(odd).items():
        assert test.is_bounded, f"lot of {size}: {test}"


def test_there_are_many_odd_models_and_no_name_comes_twice():
    assert len({odd.name for odd in ENTRIES}) == len(ENTRIES) > 180


# The harness itself, with gradients that look at the whole lot and refuse nothing.


def taken_from_the_lot(model, loss, inputs, targets):
    """Each example's loss is differentiated, whatever else went into it."""
    parameters = dict(model.named_parameters())
    rows = {name: torch.zeros(len(targets), *value.shape) for name, value in parameters.items()}
    for number, value in enumerate(loss(model(inputs), targets, reduction="none")):
        gradients = torch.autograd.grad(value, list(parameters.values()), retain_graph=True, allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            rows[name][number] = 0 if gradient is None else gradient
    return SlowGradients(rows)


def measured(model, **settings):
    return measure_movement(
        lambda: (model(), F.cross_entropy), vectors(), gradients=taken_from_the_lot, **{"lot": 5, **settings}
    )


def test_the_movement_of_a_linear_model_is_that_of_its_largest_gradient():
    """Unclipped, removing an example moves the sum by the length of its gradient, which has a closed form."""
    x, y = vectors(8)
    model = nn.Linear(6, 3, bias=False)
    test = neighbour_test(model, F.cross_entropy, (x, y), clip_norm=100.0, lots=(8,), seeds=(0,), examples=8)
    lengths = (model(x).softmax(1) - F.one_hot(y, 3)).norm(dim=1) * x.norm(dim=1)
    assert test.movement == pytest.approx(float(lengths.detach().max()) / 100, rel=1e-4)
    assert test.tried == 16


def test_rows_that_are_centred_move_the_sum_by_more_than_one_clip_norm():
    test = measured(lambda: around(Apply(lambda h: h - h.mean(0))), lot=8, clip_norm=0.3)
    assert test.movement > 1.5
    assert test.worst is not None
    assert not test.passed
    assert "does not apply" in str(test)


@pytest.mark.slow
def test_what_stays_in_the_model_is_named(monkeypatch):
    backward = tacit.PrivateRun.backward

    def kept(run, lot):
        backward(run, lot)
        run.model.last = {"mean": float(lot.inputs.mean())}

    monkeypatch.setattr(tacit.PrivateRun, "backward", kept)
    test = neighbour_test(nn.Linear(6, 3), F.cross_entropy, vectors(), lots=(5,))
    assert test.kept == ("last",)
    assert test.movement <= 1.001
    assert not test.passed
    assert "Removing one example changes 'last'" in str(test)


@pytest.mark.slow
def test_a_model_that_draws_random_numbers_is_not_taken_for_one_that_mixes():
    """Removing an example would give all later ones other random numbers; made NaN, it leaves them theirs."""
    test = neighbour_test(around(nn.Dropout(0.5)), F.cross_entropy, vectors(), clip_norm=0.3, lots=(5,))
    assert test.passed
    assert test.worst is not None
    assert test.worst.kind == "made NaN"


def test_random_models_of_words_are_compared_with_an_example_replaced():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3))
    data = torch.randint(9, (20, 2)), torch.randint(3, (20,))
    test = neighbour_test(model, F.cross_entropy, data, clip_norm=0.01, lots=(5,))
    assert test.passed
    assert test.worst is not None
    assert test.worst.kind == "replaced"


def test_arrays_and_data_sets_are_tested_too():
    x, y = vectors()
    for data in ((x.numpy(), y.numpy()), torch.utils.data.TensorDataset(x, y)):
        assert neighbour_test(nn.Linear(6, 3), F.cross_entropy, data, lots=(3,), seeds=(0,)).passed


def test_a_test_leaves_model_and_random_numbers_as_they_were():
    model, state = nn.Sequential(nn.Linear(6, 3), nn.Dropout()), torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    neighbour_test(model, F.cross_entropy, vectors(), lots=(3,))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# Defects that were found once, each by its own name.


def run_on(model, data=None, **settings):
    """A run of four steps on 64 rows."""
    return tacit.PrivateRun(
        model,
        F.cross_entropy,
        **{
            "data": data or vectors(),
            "mechanism": tacit.methods.dpsgd(clip_norm=1.0, multiplier=1.0),
            "sampling": tacit.Poisson(lot_size=16, population=64),
            "steps": 4,
            **settings,
        },
    )


def train(run, optimizer):
    for lot in run:
        run.backward(lot)
        optimizer.step()


def test_the_first_lot_does_not_become_a_weight():
    """ActNorm copies minus the mean of the first lot into its bias, where a budget of 0.1 did not keep it."""
    x, y = vectors()
    layer = ActNorm()
    model = nn.Sequential(layer, nn.Linear(6, 3))
    run = tacit.PrivateRun(
        model,
        F.cross_entropy,
        data=(x, y),
        mechanism=tacit.methods.dpsgd(clip_norm=1.0),
        sampling=tacit.FullBatch(population=64),
        steps=4,
        budget=tacit.Budget(epsilon=0.1, delta=1e-3),
    )
    with suppress(*Refusal):
        train(run, torch.optim.SGD(model.parameters(), lr=0.0))
    assert not torch.allclose(layer.bias.detach(), -x.mean(0), atol=1e-3)
    assert not layer.is_initialised


def plain_step_before(run, optimizer, lot):
    optimizer.zero_grad()
    F.cross_entropy(run.model(lot.inputs), lot.targets).backward()
    optimizer.step()
    run.backward(lot)
    optimizer.step()


def plain_step_after(run, optimizer, lot):
    run.backward(lot)
    optimizer.step()
    optimizer.zero_grad()
    F.cross_entropy(run.model(lot.inputs), lot.targets).backward()
    optimizer.step()


def added_to_the_release(run, optimizer, lot):
    run.backward(lot)
    F.cross_entropy(run.model(lot.inputs), lot.targets).backward()
    optimizer.step()


def instead_of_the_release(run, optimizer, lot):
    run.backward(lot)
    optimizer.zero_grad()
    F.cross_entropy(run.model(lot.inputs), lot.targets).backward()
    optimizer.step()


def without_a_release(run, optimizer, lot):
    optimizer.zero_grad()
    F.cross_entropy(run.model(lot.inputs), lot.targets).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "step",
    [without_a_release, plain_step_before, plain_step_after, added_to_the_release, instead_of_the_release],
    ids=lambda s: s.__name__,
)
def test_an_ordinary_backward_pass_left_in_the_loop_is_refused(step):
    model = nn.Linear(6, 3)
    run, optimizer = run_on(model), torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        for lot in run:
            step(run, optimizer, lot)
        return run.guarantee()

    with pytest.raises((OutOfOrder, InvalidArgument), match=r".{20}"):
        loop()


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("is_named", [True, False])
def test_an_optimizer_with_a_closure_over_the_data_is_refused(kind, is_named):
    x, y = vectors()
    model = nn.Linear(6, 3)
    run, optimizer = run_on(model, (x, y)), kind(model.parameters(), lr=0.1)
    before = torch.cat([each.detach().flatten() for each in model.parameters()])

    def closure():
        optimizer.zero_grad()
        value = F.cross_entropy(model(x), y)
        value.backward()
        return value

    def loop():
        for lot in run:
            run.backward(lot)
            optimizer.step(closure=closure) if is_named else optimizer.step(closure)

    with pytest.raises(OutOfOrder, match="closure"):
        loop()
    assert torch.equal(torch.cat([each.detach().flatten() for each in model.parameters()]), before)


def test_accumulating_gradients_over_lots_is_refused_and_micro_batch_is_named():
    """Every call replaces the gradient of the last, so four calls to a step would pay for four lots and use one."""
    model = nn.Linear(6, 3)
    run, optimizer = run_on(model), torch.optim.SGD(model.parameters(), lr=0.1)

    def loop():
        for lot in run:
            run.backward(lot)
            if lot.step % 4 == 3:
                optimizer.step()

    with pytest.raises((OutOfOrder, InvalidArgument), match="micro_batch"):
        loop()


def test_a_forked_process_cannot_go_on_with_a_run():
    """Parent and child would both release the remaining steps, and the guarantee of each would count one of them."""
    model = nn.Linear(6, 3)
    run, optimizer = run_on(model), torch.optim.SGD(model.parameters(), lr=0.1)
    lots = iter(run)
    run.backward(next(lots))
    optimizer.step()
    with warnings.catch_warnings():
        # Newer interpreters warn of threads, of which the child uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            run.backward(next(lots))
        except (OutOfOrder, InvalidArgument):
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process did not end")
    assert os.waitstatus_to_exitcode(status) == 0
    run.backward(next(lots))


@pytest.mark.slow
def test_a_sum_over_many_pieces_does_not_lose_small_terms():
    """Values of 0.2 to 0.9 that add up to 2,200 and then go back to almost nothing. The errors of a running sum in
    single precision would add up to about 0.006 clip norms, as each is uniform over steps of 0.00024."""
    count = 8_000
    values = 0.2 + 0.7 * torch.rand(count, 1, generator=torch.Generator().manual_seed(0))
    values[count // 2 :] *= -1
    model = nn.Linear(1, 1, bias=False)
    run = tacit.PrivateRun(
        model,
        lambda output, target: output[:, 0],
        data=(values, torch.zeros(count)),
        mechanism=tacit.methods.dpsgd(clip_norm=1.0, multiplier=1e-9),
        sampling=tacit.FullBatch(population=count),
        steps=1,
        micro_batch=1,
        seed=0,
    )
    for lot in run:
        run.backward(lot)
    assert model.weight.grad is not None
    released = float(model.weight.grad.detach().double()) * count
    assert released == pytest.approx(math.fsum(values[:, 0].tolist()), abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "mix",
    [lambda h: h - h.mean(0), lambda h: h / (h.norm() + 1e-3), lambda h: h.cumsum(0)],
    ids=["centre", "norm", "sum"],
)
def test_mixing_is_refused_before_the_first_release_even_if_lots_have_one_example(mix, seed):
    """Alone in its lot an example meets nobody, so the first lots that show it would be too late."""
    model = around(Apply(mix))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(MixesExamples):
        train(run_on(model, sampling=tacit.Poisson(lot_size=1, population=64), steps=50, seed=seed), optimizer)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))
