"""Examples with named columns, the model's own loss, and which backend a run uses."""

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import default_data_collator

import datasets
import tacit
from support.hugging_face import add_adapter, differentiate_alone, make_batch, make_model
from tacit.errors import Caution, InvalidArgument
from tacit.training.lots import examples_from

SIZE = 10


def make_run(model, loss, data, **settings):
    named = {"mechanism": tacit.methods.dpsgd(clip_norm=1.0, multiplier=1.0), "steps": 2, "seed": 1, **settings}
    return tacit.PrivateRun(model, loss, data=data, sampling=tacit.Poisson(lot_size=5, population=SIZE), **named)


def train(model, loss, data, **settings):
    run = make_run(model, loss, data, **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for lot in run:
        run.backward(lot)
        optimizer.step()
    return run


def as_dataset(batch):
    return datasets.Dataset.from_dict({name: value.tolist() for name, value in batch.items()})


def test_a_dictionary_a_data_set_and_a_collator_give_the_same_run():
    batch = make_batch("gpt2", SIZE)
    forms = [batch, as_dataset(batch), DataLoader(as_dataset(batch), collate_fn=default_data_collator)]
    trained = []
    for data in forms:
        model = make_model("gpt2", dtype=torch.float32)
        train(model, "model", data)
        trained.append(torch.cat([value.detach().flatten() for value in model.parameters()]))
    assert torch.equal(trained[0], trained[1])
    assert torch.equal(trained[0], trained[2])


PROBES = pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "roberta"])


@pytest.mark.slow
@PROBES
@pytest.mark.parametrize("adapted", [False, True], ids=["plain", "lora"])
def test_a_model_without_a_wrapper_releases_the_sum_of_its_clipped_gradients(name, adapted):
    """Each text alone through torch, with its mask and the model's own loss, beside what the run releases."""
    model, batch = make_model(name), make_batch(name, SIZE)
    model = add_adapter(name, model) if adapted else model
    run = tacit.PrivateRun(
        model, "model", data=batch, mechanism=tacit.methods.dpsgd(clip_norm=0.5, multiplier=1e-9),
        sampling=tacit.FullBatch(SIZE), steps=1, seed=0,
    )  # fmt: skip
    released = run.release(next(iter(run)))
    assert run.backend.name == "bookkeeping"
    assert not run.backend.why
    expected = {key: torch.zeros_like(value) for key, value in released.items()}
    for own in differentiate_alone(model, batch, is_next=name in ("gpt2", "llama")):
        norm = torch.sqrt(sum(value.square().sum() for value in own.values()))
        for key, value in own.items():
            expected[key] += value * min(1.0, 0.5 / float(norm)) / SIZE
    assert expected.keys() == {key for key, value in model.named_parameters() if value.requires_grad}
    off = torch.sqrt(sum((released[key] - value).square().sum() for key, value in expected.items()))
    size = torch.sqrt(sum(value.square().sum() for value in expected.values()))
    # The rest is rounding to the grid of the noise, of which there is hardly any.
    assert off <= 1e-6 * size


@pytest.mark.slow
@PROBES
@pytest.mark.parametrize("adapted", [False, True], ids=["plain", "lora"])
def test_models_as_they_are_take_one_backward_pass(name, adapted):
    model = make_model(name, dtype=torch.float32)
    model = add_adapter(name, model).train() if adapted else model.train()
    frozen = {n: value.clone() for n, value in model.named_parameters() if not value.requires_grad}
    run = train(model, "model", make_batch(name, SIZE, dtype=torch.float32))
    assert run.backend.name == "bookkeeping"
    assert all(torch.equal(value, frozen[n]) for n, value in model.named_parameters() if n in frozen)


def test_decoder_inputs_are_made_of_the_labels():
    run = train(make_model("t5", dtype=torch.float32), "model", make_batch("t5", SIZE))
    assert run.backend.name == "bookkeeping"


def test_labels_become_the_targets_of_a_loss_of_ones_own():
    examples = examples_from(make_batch("bert", SIZE), workers=0, dtype=torch.float32)
    assert list(examples.inputs) == ["input_ids", "attention_mask"]
    assert torch.equal(examples.targets, make_batch("bert", SIZE)["labels"])


def test_columns_without_labels_are_refused():
    with pytest.raises(InvalidArgument, match="none of them says what to predict"):
        examples_from({"input_ids": torch.zeros(3, 2)}, workers=0, dtype=torch.float32)


def test_a_column_of_texts_is_refused_by_its_name():
    data = datasets.Dataset.from_dict({"text": ["a"] * SIZE, "labels": [0] * SIZE})
    with pytest.raises(InvalidArgument, match="Column 'text' holds"):
        train(make_model("bert", dtype=torch.float32), lambda out, y: out.logits.sum(1), data)


def test_rows_of_different_lengths_are_refused_with_advice():
    data = datasets.Dataset.from_dict({"input_ids": [[3] * (1 + i) for i in range(SIZE)], "labels": [0] * SIZE})
    with pytest.raises(InvalidArgument, match="Pad or cut all to one public length"):
        train(make_model("bert", dtype=torch.float32), lambda out, y: out.logits.sum(1), data)


def test_the_own_loss_of_a_model_without_one_is_refused():
    data = {"x": torch.zeros(SIZE, 3), "labels": torch.zeros(SIZE, dtype=torch.long)}
    with pytest.raises(InvalidArgument, match="which it does not take"):
        make_run(torch.nn.Linear(3, 2), "model", data)


class Branching(torch.nn.Module):
    """Reads a value of the examples, as neither rules nor torch.func can."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return torch.cat([self.layer(row[None]) * (2 if row[0].item() > 0.5 else 1) for row in x])


def test_one_pass_for_each_example_is_a_caution_with_the_operation():
    data = torch.rand(SIZE, 3), torch.zeros(SIZE, dtype=torch.long)
    run = make_run(Branching(), torch.nn.functional.cross_entropy, data)
    assert run.backend is None
    with pytest.warns(Caution, match=r"_local_scalar_dense .*reads values of the examples"):
        run.backward(next(iter(run)))
    assert run.backend.name == "loop"
