"""Recurrent layers and cells, in every form: as exact as single passes, without a copy of the weights per example."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tacit.gradients.rules.recurrences as recurrences
from support.slow_gradients import slow_gradients
from tacit.errors import MixesExamples
from tacit.gradients import LotGradients, per_example_gradients
from tacit.gradients.contributions import OuterProductSum
from tacit.stages.bounds import Clip

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
USES = ("all states", "last output", "last states", "first times")


class Reader(nn.Module):
    """Words, one recurrent layer or two in turn, and scores from what is used of their states."""

    def __init__(self, layer: nn.RNNBase, used: str = "last output", *, is_given: bool = False) -> None:
        super().__init__()
        self.table, self.layer, self.used = nn.Embedding(11, layer.input_size), layer, used
        self.scores, self.start = nn.LazyLinear(3), nn.LazyLinear(layer.hidden_size) if is_given else None

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        first = None
        if self.start is not None:
            # First states that depend on the example, and on parameters.
            state = self.start(x.mean(1)).tanh().expand(self.layer.num_layers * (1 + self.layer.bidirectional), -1, -1)
            first = (state, state * 2) if isinstance(self.layer, nn.LSTM) else state
        states, last = self.layer(x if self.layer.batch_first else x.transpose(0, 1), first)
        states = states if self.layer.batch_first else states.transpose(0, 1)
        if self.used == "all states":
            return self.scores(states).mean(1)
        if self.used == "last states":
            return self.scores(torch.cat([*last] if isinstance(last, tuple) else [last], 2).movedim(1, 0).flatten(1))
        return self.scores(states[:, -1] if self.used == "last output" else states[:, :2].flatten(1))


def lot(size: int = 5, times: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    return torch.randint(11, (size, times), generator=generator), torch.randint(3, (size,), generator=generator)


def reader(layer: nn.RNNBase, used: str = "last output", **settings: bool) -> Reader:
    model = Reader(layer, used, **settings).double()
    model(lot()[0])
    return model


def assert_exact(model: nn.Module, inputs: Tensor, targets: Tensor) -> LotGradients:
    """By the rules, that is: not by vmap over the whole model, nor one by one."""
    found = per_example_gradients(model, F.cross_entropy, inputs, targets, backend="bookkeeping")
    expected = slow_gradients(model, F.cross_entropy, inputs, targets)
    torch.testing.assert_close(found.norms(), expected.norms(), rtol=1e-9, atol=1e-12)
    weights = torch.linspace(-1, 2, len(targets), dtype=torch.float64)
    for name, rows in expected.dense().items():
        torch.testing.assert_close(found.dense()[name], rows, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.weighted_sum(weights)[name], torch.tensordot(weights, rows, 1))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_any_form_of_a_recurrent_layer_agrees_with_single_passes(seed, monkeypatch):
    drawn = random.Random(seed)
    kind, used, width = drawn.choice(KINDS), drawn.choice(USES), drawn.randint(1, 9)
    settings = {
        "num_layers": drawn.randint(1, 3), "bias": drawn.random() < 0.7, "batch_first": drawn.random() < 0.5,
        "bidirectional": drawn.random() < 0.5, "dropout": drawn.choice([0.0, 0.0, 1.0]),
    }  # fmt: skip
    if kind is nn.RNN:
        settings["nonlinearity"] = drawn.choice(["tanh", "relu"])
    if settings["num_layers"] == 1:
        settings["dropout"] = 0.0
    # Few times together, so that there are several parts.
    monkeypatch.setattr(recurrences, "_TOGETHER", drawn.choice([1, 100, 10_000]))
    torch.manual_seed(seed)
    model = reader(kind(drawn.randint(1, 5), width, **settings), used, is_given=drawn.random() < 0.5)
    for parameter in model.layer.parameters():
        parameter.requires_grad_(drawn.random() < 0.8)
    assert_exact(model, *lot(drawn.randint(1, 6), drawn.randint(2, 9)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "times"), [(1, 1), (1, 7), (4, 1)])
def test_single_examples_and_single_times_are_ordinary(kind, size, times):
    assert_exact(reader(kind(4, 3, batch_first=True)), *lot(size, times))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_lot_gives_zeros(kind):
    model = reader(kind(4, 3))
    gradients = per_example_gradients(model, F.cross_entropy, *(each[:0] for each in lot()))
    assert all(not bool(value.any()) for value in gradients.weighted_sum(torch.zeros(0)).values())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_not_copied_for_every_example(kind):
    """Few times and wide states: what is kept is what goes in and out, and its Gram matrices are shared."""
    model = Reader(kind(32, 40, batch_first=True)).double()
    model(lot()[0])
    pieces = assert_exact(model, *lot(times=3)).contributions
    assert isinstance(pieces["layer.weight_hh_l0"], OuterProductSum)
    assert isinstance(pieces["layer.weight_ih_l0"], OuterProductSum)
    assert (pieces["layer.weight_hh_l0"].grads is pieces["layer.weight_ih_l0"].grads) == (kind is not nn.GRU)


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_that_is_not_finite_counts_nothing(kind):
    class Numbers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scores = kind(4, 3, batch_first=True), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.scores(self.layer(x)[0][:, -1])

    model, x, y = Numbers(), torch.randn(6, 5, 4), torch.randint(3, (6,))
    model_sum = {}
    for kept in ([0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 5]):
        lot = x.clone()
        lot[2, 1, 1] = torch.nan
        model_sum[len(kept)] = Clip(0.1).sum(per_example_gradients(model, F.cross_entropy, lot[kept], y[kept]), {})
    for name, value in model_sum[5].values.items():
        torch.testing.assert_close(model_sum[6].values[name], value)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_draws_what_torch_draws(kind):
    """Every entry is dropped for one example and time by itself; the sum of all gradients tells."""
    model = reader(kind(4, 5, num_layers=3, dropout=0.5, bidirectional=True))
    tokens, targets = lot()
    per_example_gradients(model, F.cross_entropy, *lot(64))
    torch.manual_seed(3)
    found = per_example_gradients(model, F.cross_entropy, tokens, targets).weighted_sum(torch.ones(5))
    torch.manual_seed(3)
    F.cross_entropy(model(tokens), targets, reduction="sum").backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
    model.eval()
    assert_exact(model, tokens, targets)


class Twice(nn.Module):
    """One layer on a sequence and on what it made of it, and another with the same recurrent weight."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.one, self.other, self.scores = kind(4, 4), kind(4, 4), nn.Linear(4, 3)
        self.other.weight_hh_l0 = self.one.weight_hh_l0
        self.other.bias_ih_l0 = self.other.bias_hh_l0

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.one(x.transpose(0, 1))
        again, _ = self.one(states.relu_())
        return self.scores(self.other(again)[0][-1])


@pytest.mark.parametrize("kind", KINDS)
def test_tied_weights_repeated_calls_and_results_overwritten_in_place(kind):
    model = Twice(kind).double()
    assert_exact(model, torch.randn(5, 6, 4, dtype=torch.float64), lot()[1])


def test_one_weight_for_inputs_and_states():
    layer = nn.RNN(4, 4)
    layer.weight_hh_l0 = layer.weight_ih_l0
    assert_exact(reader(layer), *lot())


def test_weights_that_are_made_of_others():
    layer = nn.LSTM(4, 3, batch_first=True)
    torch.nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    assert_exact(reader(layer), *lot())


class Packed(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.table, self.layer, self.scores = nn.Embedding(11, 4), kind(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = (tokens > 2).sum(1).clamp_min(1)
        packed = nn.utils.rnn.pack_padded_sequence(self.table(tokens), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=6)
        return self.scores(states.sum(1))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_are_exact_one_by_one(kind):
    model, (tokens, targets) = Packed(kind).double(), lot()
    found = per_example_gradients(model, F.cross_entropy, tokens, targets)
    expected = slow_gradients(model, F.cross_entropy, tokens, targets)
    for name, rows in expected.dense().items():
        torch.testing.assert_close(found.dense()[name], rows)


def test_lengths_that_grow_with_the_lot_by_chance_are_told_from_those_that_must():
    tokens = torch.zeros(4, 6, dtype=torch.int64)
    for row, length in zip(tokens, (1, 5, 3, 2), strict=True):
        row[:length] = 5
    model, targets = Packed(nn.LSTM).double(), torch.tensor([0, 1, 2, 0])
    found = per_example_gradients(model, F.cross_entropy, tokens, targets).dense()
    for name, rows in slow_gradients(model, F.cross_entropy, tokens, targets).dense().items():
        torch.testing.assert_close(found[name], rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recurrence_over_the_examples_is_refused(kind):
    """What happens to whoever forgets `batch_first`."""
    model = nn.Sequential(nn.Embedding(11, 4), Wrong(kind(4, 3)))
    with pytest.raises(MixesExamples):
        per_example_gradients(model, F.cross_entropy, *lot())


class Wrong(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class Loop(nn.Module):
    """A cell in a loop, as people write it."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.table, self.cell, self.scores = nn.Embedding(11, 20), cell, nn.Linear(24, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        state, total = None, torch.zeros(())
        for x in self.table(tokens).unbind(1):
            state = self.cell(x, state)
            total = total + (state[0] if isinstance(state, tuple) else state)
        return self.scores(total)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_that_is_called_again_and_again_is_one_piece(kind):
    pieces = assert_exact(Loop(kind(20, 24)).double(), *lot()).contributions
    assert isinstance(pieces["cell.weight_hh"], OuterProductSum)
    assert pieces["cell.weight_hh"].grads.shape[1] == 6


@pytest.mark.parametrize("layer", [nn.LSTM(4, 5), nn.GRU(4, 5), nn.RNN(4, 5), nn.LSTMCell(20, 24), nn.GRUCell(20, 24)])
def test_half_precision_stays_close(layer):
    model = (Loop(layer) if isinstance(layer, nn.RNNCellBase) else reader(layer)).float()
    tokens, targets = lot()
    expected = per_example_gradients(model, F.cross_entropy, tokens, targets).norms()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = per_example_gradients(model, F.cross_entropy, tokens, targets)
    in_half = per_example_gradients(model.bfloat16(), F.cross_entropy, tokens, targets)
    for found in (under_autocast, in_half):
        torch.testing.assert_close(found.norms(), expected, rtol=0.1, atol=0.02)
        assert {value.dtype for value in found.weighted_sum(torch.ones(5)).values()} == {torch.float32}
