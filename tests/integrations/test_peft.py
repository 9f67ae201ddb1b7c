"""Adapters of peft in a private run: noise and clipping cannot be skipped, whatever the kind of adapter."""

import math

import peft
import pytest
import torch

import tacit
from support.hugging_face import add_adapter, make_batch, make_model
from tacit.errors import InvalidArgument, OutOfOrder

pytestmark = [
    # Of names that transformers will drop, which it and peft still use themselves.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Of settings that peft corrects by itself.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SIZE, CLIP = 8, 1e-3
ADAPTERS = {
    "lora": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"]),
    "dora": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], use_dora=True),
    "ia3": lambda: peft.IA3Config(target_modules=["c_attn", "c_proj"], feedforward_modules=["c_proj"]),
    "prompt": lambda: peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    "head beside it": lambda: peft.LoraConfig(r=2, target_modules=["c_attn"], modules_to_save=["ln_f"]),
}


def make_adapted(kind="lora"):
    return add_adapter("gpt2", make_model("gpt2", dtype=torch.float32), ADAPTERS[kind]())


def make_texts(ignored=None):
    """Eight texts. An `ignored` one has no token to predict, so that its gradient is zero."""
    batch = make_batch("gpt2", SIZE)
    if ignored is not None:
        batch["labels"][ignored] = -100
    return batch


def make_run(model, *, data=None, multiplier=1.0, steps=1, seed=1):
    return tacit.PrivateRun(
        model,
        "model",
        data=make_texts() if data is None else data,
        mechanism=tacit.methods.dpsgd(clip_norm=CLIP, multiplier=multiplier),
        sampling=tacit.FullBatch(SIZE),
        steps=steps,
        seed=seed,
    )


def train(kind, **settings):
    """How far each parameter moved, frozen ones included, by an optimizer that was given all of them."""
    model = make_adapted(kind)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    run, optimizer = make_run(model, **settings), torch.optim.SGD(model.parameters(), lr=1.0)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    moved = {name: (value.detach() - before[name]).double() for name, value in model.named_parameters()}
    frozen = [name for name, value in model.named_parameters() if not value.requires_grad]
    assert not any(moved.pop(name).any() for name in frozen)
    return moved


@pytest.mark.parametrize("kind", ADAPTERS)
def test_one_text_moves_an_adapter_by_at_most_the_clip_norm_over_the_lot_size(kind):
    with_it, without_it = train(kind, multiplier=1e-9), train(kind, multiplier=1e-9, data=make_texts(ignored=5))
    distance = math.sqrt(sum(float((with_it[name] - without_it[name]).square().sum()) for name in with_it))
    # The gradient of every text is longer than the clip norm, so the bound is reached.
    assert distance == pytest.approx(CLIP / SIZE, rel=1e-2)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_number_of_an_adapter_gets_noise_of_the_announced_scale(kind):
    one, other = train(kind, multiplier=3.0), train(kind, multiplier=3.0, seed=2)
    drawn = {name: one[name] - other[name] for name in one}
    assert all(bool((value != 0).all()) for value in drawn.values())
    numbers = torch.cat([value.flatten() for value in drawn.values()])
    # At least 48 numbers: the seeds are fixed, and other ones would fail less than once in 1,000.
    assert float(numbers.std()) == pytest.approx(math.sqrt(2) * 3.0 * CLIP / SIZE, rel=0.35)


def test_an_adapter_that_starts_at_zero_gets_noise_in_both_of_its_matrices():
    # peft sets the second matrix to zero, so that the first one has no gradient.
    model = peft.get_peft_model(make_model("gpt2", dtype=torch.float32), ADAPTERS["lora"]())
    run = make_run(model)
    run.backward(next(iter(run)))
    assert all(bool((value.grad != 0).all()) for value in model.parameters() if value.requires_grad)


def test_a_gradient_of_the_base_model_is_not_released():
    model = make_adapted()
    run, optimizer = make_run(model, steps=2), torch.optim.SGD(model.parameters(), lr=1.0)
    lot = next(iter(run))
    run.backward(lot)
    base = model.get_base_model()
    with model.disable_adapter():
        for parameter in base.parameters():
            parameter.requires_grad_(True)
        base(**lot.inputs, labels=lot.targets).loss.backward()
    with pytest.raises(OutOfOrder, match="did not write"):
        optimizer.step()


def test_a_backward_pass_of_ones_own_through_the_adapter_is_stopped():
    model = make_adapted()
    run = make_run(model)
    lot = next(iter(run))
    with pytest.raises(OutOfOrder, match="gradients without noise"):
        model(**lot.inputs, labels=lot.targets).loss.backward()


def test_an_adapter_that_was_added_after_the_run_began_is_not_trained():
    model = make_adapted()
    run = make_run(model)
    model.add_adapter("other", ADAPTERS["lora"]())
    model.set_adapter("other")
    with pytest.raises((InvalidArgument, OutOfOrder), match=r"frozen after the run began|changed"):
        run.backward(next(iter(run)))


def test_an_adapter_that_is_written_to_while_a_lot_is_out_ends_the_run():
    model = make_adapted()
    run = make_run(model)
    lot = next(iter(run))
    with torch.no_grad():
        next(value for value in model.parameters() if value.requires_grad).add_(lot.inputs["input_ids"].sum())
    with pytest.raises(OutOfOrder, match="weights changed"):
        run.backward(lot)
