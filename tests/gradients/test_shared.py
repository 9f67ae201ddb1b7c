"""Weights that are used several times, or looked up: what is kept of a lot follows what goes through them."""

from dataclasses import fields, is_dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support.slow_gradients import slow_gradients
from tacit.errors import InvalidArgument
from tacit.gradients import per_example_gradients
from tacit.stages.bounds import Clip

SIZE, WIDTH, TOKENS = 8, 16, 5


def held(piece: object) -> int:
    """How many numbers a piece holds."""
    values = [getattr(piece, field.name) for field in fields(piece)]
    return sum(value.numel() if isinstance(value, Tensor) else held(value) for value in values if is_kept(value))


def is_kept(value: object) -> bool:
    return isinstance(value, Tensor) or is_dataclass(value)


def kept(model: nn.Module, inputs: Tensor, name: str, classes: int = 2) -> int:
    targets = torch.randint(classes, (len(inputs),))
    return held(per_example_gradients(model, F.cross_entropy, inputs, targets).contributions[name])


class Offsets(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(words, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.bag(tokens.reshape(-1), torch.arange(0, tokens.numel(), tokens.shape[1])))


class TiedHead(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.table(tokens).sum(1)), self.table.weight)


class Again(nn.Module):
    """One layer, four times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.tanh(self.layer(x))
        return x


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_tokens_cost_what_their_tokens_do(mode):
    for words in (50, 5_000):
        tokens = torch.randint(words, (SIZE, TOKENS))
        model = nn.Sequential(nn.EmbeddingBag(words, WIDTH, mode=mode), nn.Linear(WIDTH, 2))
        assert kept(model, tokens, "0.weight") == SIZE * TOKENS * (WIDTH + 1)
        assert kept(Offsets(words), tokens, "bag.weight") == SIZE * TOKENS * (WIDTH + 1)


def test_a_tied_table_is_not_copied_for_every_example():
    words = 2_000
    tokens = torch.randint(words, (SIZE, TOKENS))
    assert kept(TiedHead(words), tokens, "table.weight", words) == SIZE * (TOKENS * (WIDTH + 1) + words + WIDTH)


def test_a_layer_that_is_used_again_is_not_copied_for_every_example():
    width = 64
    assert kept(Again(width), torch.randn(SIZE, width), "layer.weight", width) == SIZE * 4 * 2 * width


def test_uses_of_a_tied_table_that_cancel_are_not_clipped_too_little():
    """What a row gets as an input and as an output is huge, and nearly nothing together."""

    class Cancelling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(40, 30)

        def forward(self, token: Tensor, direction: Tensor, weights: Tensor) -> Tensor:
            looked_up = (self.table(token).squeeze(1) * direction).sum(1)
            multiplied = F.linear(direction, self.table.weight)[:, 3]
            return looked_up * weights[:, 0] + multiplied * weights[:, 1]

    token, direction, weights = torch.full((6, 1), 3), torch.randn(6, 30), torch.ones(6, 2)
    direction[0], weights[0] = torch.randn(30) * 1e6, torch.tensor([1.0, -1.0 + 2e-4])

    def bounded(rows: list[int]) -> Tensor:
        inputs = (token[rows], direction[rows], weights[rows])
        gradients = per_example_gradients(model, lambda output, target: output - target, inputs, torch.zeros(len(rows)))
        return Clip(1.0).sum(gradients, {}).values["table.weight"]

    model = Cancelling()
    assert float((bounded([0, 1, 2, 3, 4, 5]) - bounded([1, 2, 3, 4, 5])).double().norm()) < 1.001


X, Y = torch.randn(SIZE, 6), torch.randint(3, (SIZE,))


def assert_agrees(model: nn.Module) -> None:
    found, expected = per_example_gradients(model, F.cross_entropy, X, Y), slow_gradients(model, F.cross_entropy, X, Y)
    torch.testing.assert_close(found.norms(), expected.norms(), rtol=1e-4, atol=1e-6)
    for name, rows in expected.dense().items():
        torch.testing.assert_close(found.dense()[name], rows, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("is_late", [False, True], ids=["from the start", "later"])
def test_hooks_on_parameters_change_every_gradient_by_itself(is_late):
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    if is_late:
        per_example_gradients(model, F.cross_entropy, X, Y)
    model[0].weight.register_hook(lambda grad: grad / (1 + grad.norm()))
    assert_agrees(model)
    with pytest.raises(InvalidArgument, match="hooks on parameters"):
        per_example_gradients(model, F.cross_entropy, X, Y, backend="bookkeeping")


def test_a_weight_that_was_made_from_another_before_counts_for_it():
    first, second, head = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(6, 3)
    del second.weight
    second.weight = first.weight.t()
    model = nn.Sequential(first, nn.Tanh(), second, head)
    assert_agrees(model)
    with pytest.raises(InvalidArgument, match="'vmap' cannot follow"):
        per_example_gradients(model, F.cross_entropy, X, Y, backend="vmap")


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_hooks_before_every_backward_pass_of_a_module_are_not_left_out():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    hook = nn.modules.module.register_module_full_backward_pre_hook(
        lambda module, grads: (2 * grads[0],) if type(module) is nn.Linear else None
    )
    try:
        assert_agrees(model)
    finally:
        hook.remove()


@pytest.mark.parametrize("model", [nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 3), nn.Softplus())], ids=["a", "b"])
def test_huge_gradients_make_no_noise_on_the_console(model):
    gradients = per_example_gradients(model, F.cross_entropy, X.sign() * 4e18, Y)
    assert bool(Clip(1.0).sum(gradients, {}).values[next(iter(gradients.parameters))].isfinite().all())
