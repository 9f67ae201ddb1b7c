"""Models of Hugging Face and adapters of peft, as they are: gradients equal those of passes on single examples."""

import warnings

import peft
import pytest
import torch
import torch.nn.functional as F

from support.hugging_face import MODELS, add_adapter, differentiate_alone, make_batch, make_model
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.gradients.checks import make_examples_like
from tacit.gradients.model_loss import add_decoder_inputs, find_model_loss, needs_decoder

NAMES = list(MODELS)
_FEED_FORWARD = {"gpt2": "c_proj", "llama": "down_proj", "bert": "output.dense"}


def split(model, batch):
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    labels = batch["labels"]
    return (add_decoder_inputs(model, inputs, labels) if needs_decoder(model) else inputs), labels


def gradients_of(model, batch):
    inputs, labels = split(model, batch)
    loss = find_model_loss(model, make_examples_like(inputs), make_examples_like(labels))
    # By rules only: anything that needs another backend is an error here.
    return per_example_gradients(model, loss, inputs, labels, "bookkeeping")


def _inner(model):
    return model.get_base_model() if isinstance(model, peft.PeftModel) else model


def assert_exact(model, batch):
    gradients = gradients_of(model, batch)
    is_next = "LM" in type(_inner(model)).__name__
    expected, found = differentiate_alone(model, batch, is_next=is_next), gradients.dense()
    for index, own in enumerate(expected):
        size = torch.sqrt(sum(value.square().sum() for value in own.values()))
        error = torch.sqrt(sum((found[name][index] - value).square().sum() for name, value in own.items()))
        assert error <= 1e-12 * size
        assert abs(gradients.norms()[index] - size) <= 1e-9 * size
    weights = torch.linspace(-1.0, 2.0, len(expected), dtype=torch.float64)
    for name, value in gradients.weighted_sum(weights).items():
        whole = sum(weight * own[name] for weight, own in zip(weights, expected, strict=True))
        torch.testing.assert_close(value, whole, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_a_model_are_those_of_its_own_loss_on_single_examples(name):
    assert_exact(make_model(name), make_batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_lora_are_those_of_its_own_loss_on_single_examples(name):
    assert_exact(add_adapter(name, make_model(name)), make_batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_gradients_with_eager_attention_are_exact(name):
    assert_exact(make_model(name, attn_implementation="eager"), make_batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("kind", ["dora", "ia3", "prompt"])
def test_gradients_of_other_adapters_are_exact(name, kind):
    layers = MODELS[name][2]
    task = "SEQ_CLS" if name == "bert" else "CAUSAL_LM"
    config = {
        "dora": peft.LoraConfig(r=2, target_modules=layers, use_dora=True),
        "ia3": peft.IA3Config(target_modules=[*layers, _FEED_FORWARD[name]], feedforward_modules=[_FEED_FORWARD[name]]),
        "prompt": peft.PromptTuningConfig(num_virtual_tokens=3, task_type=task),
    }[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_exact(add_adapter(name, make_model(name), config), make_batch(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_gradients_with_checkpointed_activations_are_exact(name):
    model = make_model(name).train()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
        for option in ("attention_dropout", "dropout_prob"):
            if isinstance(getattr(layer, option, None), float):
                setattr(layer, option, 0.0)
    model.activation_checkpointing_enable()
    assert_exact(model, make_batch(name))


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_gradients_with_position_ids_and_embedded_inputs_are_exact(name):
    model, batch = make_model(name), make_batch(name)
    positions = torch.arange(9).flip(0).expand(5, 9).contiguous()
    embedded = model.get_input_embeddings()(batch.pop("input_ids")).detach()
    assert_exact(model, {"inputs_embeds": embedded, "position_ids": positions, **batch})


def test_whether_one_example_is_padded_does_not_change_the_gradient_of_another_by_a_bit():
    model, batch = make_model("gpt2"), make_batch("gpt2")
    batch["attention_mask"][:] = 1
    changed = {name: value.clone() for name, value in batch.items()}
    changed["attention_mask"][4, 5:] = 0
    one, other = gradients_of(model, batch).dense(), gradients_of(model, changed).dense()
    assert all(torch.equal(one[name][:4], other[name][:4]) for name in one)
    assert not all(torch.equal(one[name][4], other[name][4]) for name in one)


def test_tied_embeddings_have_one_gradient():
    model = make_model("gpt2")
    assert model.lm_head.weight is model.transformer.wte.weight
    names = gradients_of(model, make_batch("gpt2")).parameters
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names


def test_outputs_keep_their_attributes_where_a_model_is_vectorised():
    model, (inputs, labels) = make_model("bert"), split(make_model("bert"), make_batch("bert"))
    found = per_example_gradients(model, lambda out, y: F.cross_entropy(out.logits, y), inputs, labels)
    assert found.backend.name == "bookkeeping"
    expected = differentiate_alone(model, {**inputs, "labels": labels}, is_next=False)
    torch.testing.assert_close(found.dense()["classifier.weight"][2], expected[2]["classifier.weight"])


def test_the_cache_is_on_again_after_a_pass():
    model = make_model("gpt2")
    assert model.config.use_cache
    gradients_of(model, make_batch("gpt2"))
    assert model.config.use_cache


def test_a_models_own_loss_is_the_mean_over_the_tokens_of_each_example():
    model, batch = make_model("gpt2"), make_batch("gpt2")
    found = gradients_of(model, batch).losses
    alone = [model(**{name: value[i : i + 1] for name, value in batch.items()}).loss for i in range(5)]
    # transformers computes it in single precision.
    torch.testing.assert_close(found, torch.stack(alone).detach().double(), rtol=1e-6, atol=0)


def test_the_losses_of_next_tokens_and_of_tokens_are_told_apart_with_tiny_weights():
    model = make_model("llama")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-6)
    inputs, labels = split(model, make_batch("llama"))
    loss = find_model_loss(model, make_examples_like(inputs), make_examples_like(labels))
    assert loss.__name__ == "lose_next_token"


def test_a_loss_with_other_terms_is_refused():
    class Penalised(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_model("bert")

        def forward(self, labels=None, **inputs):
            outputs = self.inner(**inputs, labels=labels)
            if labels is not None:
                outputs.loss = outputs.loss + outputs.logits.std()
            return outputs

    inputs, labels = split(Penalised(), make_batch("bert"))
    with pytest.raises(InvalidArgument, match="is not a cross-entropy or a squared error"):
        find_model_loss(Penalised(), make_examples_like(inputs), make_examples_like(labels))
