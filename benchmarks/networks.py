"""The networks whose training is measured, each with a lot of made-up examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mean(nn.Module):
    """The mean over some dimensions."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        """Without them."""
        return x.mean(self.dims)


class Residual(nn.Module):
    """Two convolutions with GroupNorm, and a way around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.GroupNorm(32, outside), nn.GroupNorm(32, outside)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.around = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(32, outside))

    def forward(self, x: Tensor) -> Tensor:
        """As in He et al. 2016."""
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.around(x))


class MovieLens(nn.Module):
    """Bu et al. 2019: users times films with 5 factors beside both with 10, then one layer for the stars."""

    def __init__(self, users: int = 6040, films: int = 3706) -> None:
        super().__init__()
        self.user_factors, self.film_factors = nn.Embedding(users, 5), nn.Embedding(films, 5)
        self.user, self.film = nn.Embedding(users, 10), nn.Embedding(films, 10)
        self.stars = nn.Linear(25, 5)

    def forward(self, pairs: Tensor) -> Tensor:
        """One row (user, film) an example."""
        user, film = pairs[:, 0], pairs[:, 1]
        product = self.user_factors(user) * self.film_factors(film)
        return self.stars(torch.cat([product, self.user(user), self.film(film)], 1))


class Recurrent(nn.Module):
    """Words, a recurrent layer of 128 over them, and one of scores on its last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.table, self.layer, self.scores = nn.Embedding(1000, 64), kind(64, 128, batch_first=True), nn.Linear(128, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """As people write it."""
        states, _ = self.layer(self.table(tokens))
        return self.scores(states[:, -1])


def _lstm() -> nn.Module:
    return Recurrent(nn.LSTM)


def _gru() -> nn.Module:
    return Recurrent(nn.GRU)


def _logistic() -> nn.Module:
    return nn.Linear(123, 2)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(123, 16), nn.ReLU(), nn.Linear(16, 2))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def _imdb() -> nn.Module:
    return nn.Sequential(nn.Embedding(10_000, 16), Mean(1), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))


def _resnet() -> nn.Module:
    stages = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [Residual(*stage) for stage in [*stages, (512, 512, 1)]]
    first = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    return nn.Sequential(first, nn.GroupNorm(32, 64), nn.ReLU(), *blocks, Mean(2, 3), nn.Linear(512, 10))


def _transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(1000, 128), body, Mean(1), nn.Linear(128, 2))


def _numbers(*shape: int) -> Callable[[int], Tensor]:
    return lambda size: torch.randn(size, *shape)


def _tokens(vocabulary: int, length: int) -> Callable[[int], Tensor]:
    return lambda size: torch.randint(vocabulary, (size, length))


def _pairs(size: int) -> Tensor:
    return torch.stack([torch.randint(6040, (size,)), torch.randint(3706, (size,))], 1)


@dataclass(frozen=True)
class Network:
    """A network, its lot, and what is expected of a private step: the ratio to an ordinary one at most."""

    name: str
    what: str
    lot: int
    expected: float
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    classes: int = 2

    def prepared(self) -> tuple[nn.Module, Tensor, Tensor]:
        """The model and its lot: the same numbers every time."""
        torch.manual_seed(0)
        return self.build(), self.inputs(self.lot), torch.randint(self.classes, (self.lot,))


NETWORKS = {
    network.name: network
    for network in (
        Network("logistic", "123 to 2", 256, 1.3, _logistic, _numbers(123)),
        Network("MLP", "123 to 16 to 2", 256, 1.4, _mlp, _numbers(123)),
        Network("MNIST CNN", "Bu et al. 2019", 256, 1.6, _cnn, _numbers(1, 28, 28), 10),
        Network("IMDb", "10,000 words, 256 tokens, mean, 16, 2", 512, 2.2, _imdb, _tokens(10_000, 256)),
        Network("MovieLens", "Bu et al. 2019", 1024, 2.0, MovieLens, _pairs, 5),
        Network("ResNet-18", "GroupNorm, 32x32", 64, 1.35, _resnet, _numbers(3, 32, 32), 10),
        Network("Transformer", "2 layers of 128, 128 tokens", 32, 1.35, _transformer, _tokens(1000, 128)),
        # Torch fuses the gates of an LSTM, which hides them from whoever watches: what is expected is hard to keep.
        Network("LSTM", "1,000 words of 64, 64 tokens, 128, 2", 64, 1.35, _lstm, _tokens(1000, 64)),
        Network("GRU", "1,000 words of 64, 64 tokens, 128, 2", 64, 1.35, _gru, _tokens(1000, 64)),
    )
}


def named(name: str) -> Network:
    """A network by its name; "MNIST CNN @ 64" is the same with lots of 64."""
    base, _, lot = name.partition(" @ ")
    return replace(NETWORKS[base], name=name, lot=int(lot)) if lot else NETWORKS[base]
