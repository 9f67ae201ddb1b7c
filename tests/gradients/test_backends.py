"""Every backend on every kind of model agrees with a loop of single-example backward passes."""

from functools import lru_cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support import zoo
from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients import LotGradients, per_example_gradients, replace_batch_norm

# torch creates the first state of a recurrent cell inside the model, where torch.func cannot see the examples.
NOT_BY_VMAP = {name for name in zoo.MODELS if "lstm" in name or "gru" in name or "rnn" in name}
BY_BACKEND = [(by, name) for name in zoo.MODELS for by in ("auto", "vmap") if by == "auto" or name not in NOT_BY_VMAP]
OF_NUMBERS = [name for name in zoo.MODELS if zoo.lot_for(name)[0].is_floating_point()]

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def largest_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    scale = max(float(values.abs().max()) for values in expected.values())
    return max(float((found[name] - values).abs().max()) for name, values in expected.items()) / scale


@pytest.fixture(params=list(zoo.MODELS), ids=lambda name: name.replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> tuple[str, nn.Module, Tensor, Tensor]:
    return (request.param, zoo.build(request.param), *zoo.lot_for(request.param))


@lru_cache(maxsize=1)
def single_passes(name: str) -> dict[str, Tensor]:
    return zoo.one_by_one(zoo.build(name), *zoo.lot_for(name))


# Of the module, so that all tests of one backend and model use the same gradients.
@pytest.fixture(scope="module", params=BY_BACKEND, ids=lambda pair: "-".join(pair).replace(" ", "-"))
def both(request: pytest.FixtureRequest) -> tuple[LotGradients, dict[str, Tensor]]:
    """The gradients of a lot by one of the backends, and those of single passes."""
    backend, name = request.param
    torch.manual_seed(0)
    found = per_example_gradients(zoo.build(name), F.cross_entropy, *zoo.lot_for(name), backend=backend)
    return found, single_passes(name)


@pytest.mark.slow
def test_norms_sums_and_gradients_agree_with_single_passes(both):
    gradients, expected = both
    weights = torch.linspace(0.1, 1, zoo.SIZE, dtype=torch.float64)
    norms = torch.stack([values.flatten(1).norm(dim=1) for values in expected.values()]).norm(dim=0)
    assert largest_error(gradients.dense(), expected) < 1e-11
    torch.testing.assert_close(gradients.norms(), norms, rtol=1e-10, atol=1e-13)
    sums = {key: torch.einsum("b,b...->...", weights, values) for key, values in expected.items()}
    assert largest_error(gradients.weighted_sum(weights), sums) < 1e-11


@pytest.mark.slow
def test_scaled_norms_and_products_agree_with_single_passes(both):
    gradients, expected = both
    generator = torch.Generator().manual_seed(0)
    vectors = {
        key: torch.randn(rows.shape[1:], generator=generator, dtype=rows.dtype) for key, rows in expected.items()
    }
    # Every third parameter has a single number for all of its coordinates.
    scale = {key: v.flatten()[0] if i % 3 == 0 else v for i, (key, v) in enumerate(vectors.items())}
    scaled = [(rows * scale[key]).flatten(1).norm(dim=1) for key, rows in expected.items()]
    torch.testing.assert_close(gradients.scaled_norms(scale), torch.stack(scaled).norm(dim=0), rtol=1e-10, atol=1e-13)
    products = sum((rows * vectors[key]).flatten(1).sum(1) for key, rows in expected.items())
    torch.testing.assert_close(gradients.products(vectors), products, rtol=1e-9, atol=1e-12)


def test_the_model_is_left_as_it_was(case):
    _, model, inputs, targets = case
    before = {name: (p.clone(), p.requires_grad, p.grad) for name, p in model.named_parameters()}
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    per_example_gradients(model, F.cross_entropy, inputs, targets)
    for name, parameter in model.named_parameters():
        value, requires_grad, grad = before[name]
        assert torch.equal(parameter, value)
        assert parameter.requires_grad == requires_grad
        assert parameter.grad is grad
    after = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    assert hooks == after


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_nan_example_contributes_zero_at_weight_zero(name):
    model, (inputs, targets) = zoo.build(name), zoo.lot_for(name)
    expected = zoo.one_by_one(model, inputs, targets)
    broken = inputs.clone()
    broken[2] = float("nan")
    gradients = per_example_gradients(model, F.cross_entropy, broken, targets)
    assert not bool(gradients.norms()[2].isfinite())
    assert bool(gradients.norms()[[0, 1, 3, 4]].isfinite().all())
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    sums = {key: torch.einsum("b,b...->...", weights, values) for key, values in expected.items()}
    assert largest_error(gradients.weighted_sum(weights), sums) < 1e-10


def test_a_lot_of_one_and_an_empty_lot_are_ordinary_lots(case):
    _, model, inputs, targets = case
    expected = zoo.one_by_one(model, inputs[:1], targets[:1])
    alone = per_example_gradients(model, F.cross_entropy, inputs[:1], targets[:1])
    assert largest_error(alone.dense(), expected) < 1e-11
    empty = per_example_gradients(model, F.cross_entropy, inputs[:0], targets[:0])
    assert len(empty) == 0
    assert empty.norms().shape == (0,)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert torch.equal(empty.weighted_sum(torch.zeros(0))[name], torch.zeros_like(parameter))
            assert empty.dense()[name].shape == (0, *parameter.shape)
    ones = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    assert empty.scaled_norms(ones).shape == empty.products(ones).shape == (0,)


def test_pieces_of_a_lot_add_up_to_the_whole(case):
    _, model, inputs, targets = case
    ones = torch.ones(zoo.SIZE, dtype=torch.float64)
    whole = per_example_gradients(model, F.cross_entropy, inputs, targets).weighted_sum(ones)
    first = per_example_gradients(model, F.cross_entropy, inputs[:2], targets[:2]).weighted_sum(ones[:2])
    second = per_example_gradients(model, F.cross_entropy, inputs[2:], targets[2:]).weighted_sum(ones[2:])
    assert largest_error({name: first[name] + second[name] for name in whole}, whole) < 1e-11


def test_layer_norms_make_up_the_norm(case):
    _, model, inputs, targets = case
    gradients = per_example_gradients(model, F.cross_entropy, inputs, targets)
    joined = torch.stack(list(gradients.layer_norms().values())).norm(dim=0)
    torch.testing.assert_close(joined, gradients.norms(), rtol=1e-10, atol=1e-13)


def test_many_tokens_of_32_bits_are_told_apart():
    """More rows times tokens than 32 bits can count."""
    model = nn.Sequential(nn.Embedding(70_000, 1), nn.Flatten(), nn.Linear(200, 2))
    tokens = torch.randint(70_000, (200, 200), generator=torch.Generator().manual_seed(0))
    targets, ones = torch.zeros(200, dtype=torch.int64), torch.ones(200)
    found = per_example_gradients(model, F.cross_entropy, tokens.int(), targets).weighted_sum(ones)["0.weight"]
    F.cross_entropy(model(tokens), targets, reduction="sum").backward()
    torch.testing.assert_close(found, model[0].weight.grad)


@pytest.mark.parametrize("length", [0, 1])
def test_a_lot_of_hardly_any_tokens_is_an_ordinary_lot(length):
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(7, 3, padding_idx=2), nn.Linear(3, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.table(tokens).sum(1))

    model = Bag().double()
    tokens, targets = torch.tensor([2, 2, 5, 0, 5])[:, None][:, :length], torch.tensor([0, 1, 0, 1, 1])
    expected = zoo.one_by_one(model, tokens, targets)
    gradients = per_example_gradients(model, F.cross_entropy, tokens, targets)
    sums = {key: values.sum(0) for key, values in expected.items()}
    norms = torch.stack([values.flatten(1).norm(dim=1) for values in expected.values()]).norm(dim=0)
    torch.testing.assert_close(gradients.norms(), norms)
    assert largest_error(gradients.weighted_sum(torch.ones(5, dtype=torch.float64)), sums) < 1e-11


def test_batch_norm_is_refused_with_every_layer_named():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)))
    with pytest.raises(MixesExamples, match=r"BatchNorm2d at '1', BatchNorm2d at '2\.1'.*replace_batch_norm"):
        per_example_gradients(model, F.cross_entropy, torch.randn(2, 4, 9, 9), torch.tensor([0, 1]))


def test_replaced_batch_norm_trains():
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(294, 2)).double()
    inputs, targets = zoo.lot_for("conv2d")
    fixed = replace_batch_norm(model)
    expected = zoo.one_by_one(fixed, inputs, targets)
    assert largest_error(per_example_gradients(fixed, F.cross_entropy, inputs, targets).dense(), expected) < 1e-11
    assert isinstance(model[1], nn.BatchNorm2d)


class Centred(nn.Module):
    """Batch statistics by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


def test_statistics_over_the_lot_by_hand_are_refused():
    with pytest.raises(MixesExamples, match="mean combines different examples"):
        per_example_gradients(Centred(), F.cross_entropy, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(reduction="sum"),
        lambda output, target: F.cross_entropy(output, target),
        lambda output, target: F.cross_entropy(output, target, reduction="sum"),
        lambda output, target: F.cross_entropy(output, target, reduction="none"),
    ],
    ids=["functional", "module", "summing-module", "averaging", "summing", "per-example"],
)
def test_no_loss_is_scaled_by_the_lot(loss):
    model = zoo.build("linear")
    inputs, targets = zoo.lot_for("linear")
    expected = zoo.one_by_one(model, inputs, targets)
    assert largest_error(per_example_gradients(model, loss, inputs, targets).dense(), expected) < 1e-11


def test_a_loss_that_compares_examples_is_refused():
    def spread(output: Tensor, target: Tensor) -> Tensor:
        return (output[:, 0] - output[:, 0].mean()).pow(2).sum() + 1

    inputs, targets = zoo.lot_for("linear")
    with pytest.raises(MixesExamples, match="neither the mean nor the sum"):
        per_example_gradients(zoo.build("linear"), spread, inputs, targets)


def test_a_loss_of_the_wrong_length_is_refused():
    inputs, targets = zoo.lot_for("linear")
    with pytest.raises(InvalidArgument, match="one value per example"):
        per_example_gradients(zoo.build("linear"), lambda output, target: output[:2, 0], inputs, targets)


def test_a_model_without_trainable_parameters_is_refused():
    model = zoo.build("linear").requires_grad_(False)
    with pytest.raises(InvalidArgument, match="no trainable parameter"):
        per_example_gradients(model, F.cross_entropy, *zoo.lot_for("linear"))


def test_an_unknown_backend_is_refused():
    with pytest.raises(InvalidArgument, match="'auto', 'bookkeeping' or 'vmap'"):
        per_example_gradients(zoo.build("linear"), F.cross_entropy, *zoo.lot_for("linear"), backend="jax")


def test_bfloat16_autocast_stays_close_to_full_precision():
    model = zoo.build("conv2d").float()
    inputs, targets = zoo.lot_for("conv2d")
    expected = per_example_gradients(model, F.cross_entropy, inputs.float(), targets).norms()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = per_example_gradients(model, F.cross_entropy, inputs.float(), targets)
    torch.testing.assert_close(found.norms(), expected, rtol=0.05, atol=0.01)
    assert found.weighted_sum(torch.ones(zoo.SIZE))["0.0.weight"].dtype == torch.float32


def test_several_inputs_reach_the_model_as_its_arguments():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.left(a) * self.right(b)

    model, a, b = Two(), torch.randn(5, 3), torch.randn(5, 4)
    targets = torch.tensor([0, 1, 0, 1, 1])
    gradients = per_example_gradients(model, F.cross_entropy, (a, b), targets).dense()
    by_name = per_example_gradients(model, F.cross_entropy, {"a": a, "b": b}, targets, backend="vmap").dense()
    for name, values in gradients.items():
        torch.testing.assert_close(values, by_name[name])


def test_dropout_draws_anew_in_every_forward_pass():
    model = nn.Sequential(nn.Linear(3, 50), nn.Dropout(0.5), nn.Linear(50, 2))
    inputs, targets = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    torch.manual_seed(0)
    first = per_example_gradients(model, F.cross_entropy, inputs, targets).norms()
    second = per_example_gradients(model, F.cross_entropy, inputs, targets).norms()
    assert not torch.equal(first, second)
