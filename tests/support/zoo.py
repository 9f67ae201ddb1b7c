"""Models as people write them, each with a lot to run on: every rule, layout and oddity for a backend to get right."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.models.networks import standardised

SIZE = 5


class Mean(nn.Module):
    def __init__(self, dims: int | tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(self.dims)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool, **settings: object) -> None:
        super().__init__()
        self.cell = kind(3, 4, batch_first=batch_first, **settings)
        self.head = nn.Linear((settings.get("proj_size") or 4) * (2 if settings.get("bidirectional") else 1), 2)

    def forward(self, x: Tensor) -> Tensor:
        if not self.cell.batch_first:
            x = x.transpose(0, 1)
        states, _ = self.cell(x)
        return self.head(states[:, -1] if self.cell.batch_first else states[-1])


class Cells(nn.Module):
    """A recurrence as a loop over cells; the first state may be learnt."""

    def __init__(self, kind: type[nn.RNNCellBase], *, is_learnt: bool = False, **settings: object) -> None:
        super().__init__()
        self.cell, self.head = kind(3, 4, **settings), nn.Linear(4, 2)
        self.first = nn.Parameter(torch.randn(1, 4)) if is_learnt else None

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 4) if self.first is None else self.first.expand(len(x), -1)
        full = (state, state) if isinstance(self.cell, nn.LSTMCell) else state
        for step in x.unbind(1):
            full = self.cell(step, full)
        return self.head(full[0] if isinstance(full, tuple) else full)


class Learnt(nn.Module):
    """An LSTM whose first state and cell are parameters, and of which only the last ones are used."""

    def __init__(self, **settings: object) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(3, 4, num_layers=2, batch_first=True, **settings), nn.Linear(8, 2)
        self.state, self.cell = nn.Parameter(torch.randn(2, 1, 4)), nn.Parameter(torch.randn(2, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        first = self.state.expand(-1, len(x), -1), self.cell.expand(-1, len(x), -1)
        _, (state, cell) = self.layer(x, first)
        return self.head(torch.cat([state[-1], cell[0]], 1))


class Bare(nn.Module):
    """Bare parameters: scaled, added, expanded to one token an example, transposed and multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(3))
        self.weight = nn.Parameter(torch.randn(3, 2))
        self.token = nn.Parameter(torch.randn(1, 1, 3))
        self.unused = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x.unsqueeze(1)], 1)
        return ((x * self.scale + self.scale.exp()).tanh() @ self.weight + x @ (self.weight.t().t() * 2)).sum(1)


class Tied(nn.Module):
    """An embedding that is also the output layer, and a linear map that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5, padding_idx=0)
        self.twice = nn.Linear(5, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.relu(self.twice(self.table(tokens)), inplace=True)
        return F.linear(self.twice(x).mean(1), self.table.weight)


class TwoLookups(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens[:, :3]).mean(1) * self.table(tokens[:, 3:]).mean(1))


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool, need_weights: bool = True, cross: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.head = nn.Linear(8, 2)
        self.need_weights, self.cross = need_weights, cross

    def forward(self, x: Tensor) -> Tensor:
        if not self.attention.batch_first:
            x = x.transpose(0, 1)
        other = x.tanh() if self.cross else x
        mixed, _ = self.attention(x, other, other, need_weights=self.need_weights)
        return self.head(mixed.mean(1 if self.attention.batch_first else 0))


class Masked(nn.Module):
    """A Transformer layer with a causal mask and padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 8, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.layer(self.table(tokens), src_mask=causal, src_key_padding_mask=tokens == 0)
        return self.head(x[:, 0])


class Flattened(nn.Module):
    """Examples and positions in one dimension, in either order."""

    def __init__(self, *, time_first: bool) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
        self.time_first = time_first

    def forward(self, x: Tensor) -> Tensor:
        size, length, _ = x.shape
        if self.time_first:
            x = x.transpose(0, 1)
        x = self.norm(self.first(x.reshape(size * length, 3)).relu())
        return self.head(x.view(length, size, 4).mean(0) if self.time_first else x.view(size, length, 4).mean(1))


class PartlyFrozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.unused = nn.Linear(3, 3)
        self.frozen.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.frozen(self.first(x).relu()))


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(self.first(x))
        y = self.second(x)
        y += x
        return self.head(F.relu_(y).mean((2, 3)))


class Overwritten(nn.Module):
    """The input of an operation is changed after it was used: torch itself does not need it any more, a rule does."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.head = nn.Parameter(torch.randn(3)), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        y = x + self.offset
        x.zero_()
        return self.head(y)


def weight_normed() -> nn.Module:
    first = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    return nn.Sequential(first, nn.ReLU(), nn.Linear(4, 2))


def _flat(*layers: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 3))


def _image(*layers: nn.Module) -> nn.Module:
    body = nn.Sequential(*layers)
    return _flat(body, width=body(torch.zeros(1, 4, 9, 9)).numel())


def _layer(**settings: object) -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **settings)


class Bags(nn.Module):
    """Tokens in bags that are told by where they start, or each with a weight that depends on the example."""

    def __init__(self, by_offsets: bool) -> None:
        super().__init__()
        self.by_offsets = by_offsets
        self.bags, self.head = nn.EmbeddingBag(9, 4, mode="mean" if by_offsets else "sum"), nn.Linear(4, 2)
        self.shares = nn.Embedding(9, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        if self.by_offsets:
            starts = torch.arange(0, tokens.numel(), tokens.shape[1])
            return self.head(self.bags(tokens.reshape(-1), starts))
        return self.head(self.bags(tokens, per_sample_weights=self.shares(tokens).squeeze(2).sigmoid()))


class TiedWide(nn.Module):
    """A table that words go in and come out by, larger than all that goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.gain = nn.Embedding(30, 40, padding_idx=2), nn.Parameter(torch.ones(40))

    def forward(self, tokens: Tensor) -> Tensor:
        states = torch.tanh(self.table(tokens).mean(1) + self.table(tokens[:, :2]).sum(1)) * self.gain
        return F.linear(states, self.table.weight)


class Thrice(nn.Module):
    """A layer that is used again and again, wider than all that goes through it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(9, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.table(tokens).mean(1)
        for _ in range(3):
            states = torch.tanh(self.layer(states))
        return self.head(states)


MODELS = {
    "group norm of rows": lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(3, 6), nn.Linear(6, 2)),
    "linear": lambda: nn.Linear(3, 3),
    "mlp on the vector": lambda: nn.Sequential(nn.Linear(3, 6), nn.ReLU(inplace=True), nn.Linear(6, 2, bias=False)),
    "weight norm": weight_normed,
    "bare parameters": Bare,
    "partly frozen": PartlyFrozen,
    "overwritten": Overwritten,
    "linear on four dimensions": lambda: nn.Sequential(
        nn.Linear(9, 6), nn.ReLU(inplace=True), nn.Linear(6, 2), Mean((1, 2))
    ),
    "conv2d": lambda: _image(nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), nn.ReLU(inplace=True)),
    "conv2d reflect": lambda: _image(nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect")),
    "conv2d circular": lambda: _image(nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="circular", bias=False)),
    "conv2d same": lambda: _image(nn.Conv2d(4, 6, (4, 3), padding="same")),
    "conv2d valid": lambda: _image(nn.Conv2d(4, 6, (4, 3), padding="valid", stride=(1, 2))),
    "conv2d by Gram": lambda: _image(nn.Conv2d(4, 6, 3), nn.Conv2d(6, 64, 7)),
    "conv2d by Gram, strided groups": lambda: _image(
        nn.Conv2d(4, 8, 4), nn.Conv2d(8, 256, 3, stride=2, padding=1, dilation=2, groups=2)
    ),
    "conv2d one by one": lambda: _image(nn.Conv2d(4, 140, 1), nn.Conv2d(140, 8, 3, groups=2)),
    "conv transpose 2d": lambda: _image(nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)),
    "group norm": lambda: _image(nn.Conv2d(4, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(inplace=True)),
    "standardised weights": lambda: _image(
        standardised(nn.Conv2d(4, 6, 3, stride=2)), nn.GroupNorm(2, 6), nn.Tanh(), standardised(nn.Conv2d(6, 5, 2))
    ),
    "instance norm": lambda: _image(nn.Conv2d(4, 6, 3, bias=False), nn.InstanceNorm2d(6, affine=True)),
    "prelu": lambda: _image(nn.Conv2d(4, 6, 3), nn.PReLU(6)),
    "in place": InPlace,
    "conv1d": lambda: _flat(nn.Conv1d(6, 4, 2, stride=2, padding=1), width=8),
    "conv transpose 1d": lambda: _flat(nn.ConvTranspose1d(6, 5, 3), width=25),
    "layer norm over two": lambda: _flat(nn.LayerNorm((6, 3)), width=18),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2), Mean(1)),
    "rms norm": lambda: nn.Sequential(nn.RMSNorm(3), nn.Linear(3, 2), Mean(1)),
    "flattened": lambda: Flattened(time_first=False),
    "flattened, time first": lambda: Flattened(time_first=True),
    "lstm": lambda: Recurrent(nn.LSTM, batch_first=True),
    "lstm, time first": lambda: Recurrent(nn.LSTM, batch_first=False),
    "lstm, two layers, both ways": lambda: Recurrent(nn.LSTM, batch_first=True, num_layers=2, bidirectional=True),
    "gru": lambda: Recurrent(nn.GRU, batch_first=True),
    "rnn, time first": lambda: Recurrent(nn.RNN, batch_first=False),
    "gru, three layers, no bias": lambda: Recurrent(nn.GRU, batch_first=True, num_layers=3, bias=False),
    "rnn, relu, both ways": lambda: Recurrent(
        nn.RNN, batch_first=True, nonlinearity="relu", num_layers=2, bidirectional=True
    ),
    "lstm, learnt first states": Learnt,
    "lstm, projected": lambda: Recurrent(nn.LSTM, batch_first=True, proj_size=2),
    "lstm cells": lambda: Cells(nn.LSTMCell),
    "gru cells, learnt first state": lambda: Cells(nn.GRUCell, is_learnt=True),
    "rnn cells": lambda: Cells(nn.RNNCell, bias=False),
    "rnn cells, relu": lambda: Cells(nn.RNNCell, nonlinearity="relu"),
    "conv3d": lambda: _flat(nn.Conv3d(2, 4, 2, groups=2, padding=1), width=480),
    "attention": lambda: Attention(batch_first=True),
    "attention, time first": lambda: Attention(batch_first=False, need_weights=False),
    "cross attention": lambda: Attention(batch_first=True, cross=True),
    "transformer": lambda: nn.Sequential(
        nn.TransformerEncoder(_layer(), 2, enable_nested_tensor=False), Mean(1), nn.Linear(8, 2)
    ),
    "transformer, norm first": lambda: nn.Sequential(_layer(norm_first=True), Mean(1), nn.Linear(8, 2)),
    "embedding": lambda: nn.Sequential(nn.Embedding(9, 4, padding_idx=1), Mean(1), nn.Linear(4, 2)),
    "embedding bag": lambda: nn.Sequential(nn.EmbeddingBag(9, 4, mode="mean"), nn.Linear(4, 2)),
    "masked transformer": Masked,
    "tied": Tied,
    "two lookups": TwoLookups,
    "embedding bag, padded sum": lambda: nn.Sequential(
        nn.EmbeddingBag(9, 4, mode="sum", padding_idx=2), nn.Linear(4, 2)
    ),
    "embedding bag, padded mean": lambda: nn.Sequential(
        nn.EmbeddingBag(9, 4, mode="mean", padding_idx=2), nn.Linear(4, 2)
    ),
    "embedding bag, largest": lambda: nn.Sequential(nn.EmbeddingBag(9, 4, mode="max"), nn.Linear(4, 2)),
    "embedding bag, offsets": lambda: Bags(by_offsets=True),
    "embedding bag, weights": lambda: Bags(by_offsets=False),
    "tied, wide": TiedWide,
    "one layer three times": Thrice,
}

_SHAPES = {
    "vector": (3,), "image": (4, 9, 9), "sequence": (6, 3), "volume": (2, 4, 5, 3), "wide sequence": (SIZE, 8),
}  # fmt: skip
_KINDS = (
    ("vector", 7), ("image", 15), ("sequence", 20), ("volume", 1), ("wide sequence", 5), ("tokens", 99),
)  # fmt: skip


def lot_for(name: str, size: int = SIZE, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs of the shape that the model takes, and targets, in double precision."""
    kinds = [kind for kind, count in _KINDS for _ in range(count)]
    kind = kinds[list(MODELS).index(name)]
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (size,), generator=generator)
    if kind == "tokens":
        most = 7 if name in ("tied", "two lookups") else 9
        tokens = torch.randint(most, (size, 6), generator=generator)
        tokens[:, 0] = 2
        return tokens, targets
    return torch.randn(size, *_SHAPES[kind], generator=generator, dtype=torch.float64), targets


def build(name: str) -> nn.Module:
    torch.manual_seed(1)
    return MODELS[name]().double()


def one_by_one(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The independent answer: a backward pass for every example alone."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    for index in range(targets.shape[0]):
        value = F.cross_entropy(model(inputs[index : index + 1]), targets[index : index + 1])
        grads = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        for (name, parameter), grad in zip(parameters.items(), grads, strict=True):
            rows[name].append(torch.zeros_like(parameter) if grad is None else grad)
    return {name: torch.stack(values) for name, values in rows.items()}
