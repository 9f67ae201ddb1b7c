"""Odd models and losses, as people write them, each with what must come of it.

`harmless`: no example sees another, so it must be accepted, and one example moves the released sum by one clip norm at
most. `mixing`: examples influence each other, or the model keeps something of them, so it must be refused. `either`:
both are right, as long as nothing is released that the proof does not cover.
"""

import copy
import functools
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import odd_losses

Fate = Literal["harmless", "mixing", "either"]
WIDTH, HIDDEN, CLASSES, ROWS = 6, 8, 3, 64


def vectors(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6], of different lengths, with a class each."""
    generator = torch.Generator().manual_seed(1)
    sizes = torch.logspace(-0.5, 0.7, rows)[torch.randperm(rows, generator=generator)]
    return torch.randn(rows, WIDTH, generator=generator) * sizes[:, None], torch.arange(rows) % CLASSES


def numbers(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6], with a number each."""
    x, _ = vectors(rows)
    return x, x[:, 0] - x[:, 1].square() / 4


def images(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 2, 6, 6], with a class each."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, 2, 6, 6, generator=generator), torch.arange(rows) % CLASSES


def sequences(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 5, 4], with a class each."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 5, 4, generator=generator), torch.arange(rows) % CLASSES


def traces(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 5, 4], with a number for each of the five positions."""
    x, _ = sequences(rows)
    return x, x.sum(2).tanh()


def padded(rows: int = ROWS) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """[B, 5, 4] and how many of the five positions count."""
    x, y = sequences(rows)
    return (x, 1 + torch.arange(rows) % 5), y


def tokens(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """[B, 6] of twelve words, with a class each."""
    generator = torch.Generator().manual_seed(4)
    return torch.randint(12, (rows, 6), generator=generator), torch.arange(rows) % CLASSES


def by_name(rows: int = ROWS) -> tuple[dict[str, Tensor], Tensor]:
    """Numbers and words, which the model takes by name."""
    return {"numbers": vectors(rows)[0], "words": tokens(rows)[0]}, torch.arange(rows) % CLASSES


@dataclass(frozen=True, eq=False)
class Odd:
    """A model with its loss and data.

    In lots below `meets_in` examples may happen not to meet; torch itself refuses lots below `smallest`.
    """

    name: str
    fate: Fate
    model: Callable[[], nn.Module]
    loss: Callable[[], Any] = lambda: F.cross_entropy
    data: Callable[[], tuple[Any, Any]] = vectors
    meets_in: int = 2
    smallest: int = 1

    def make(self) -> tuple[nn.Module, Any]:
        """A fresh model, and a fresh loss."""
        return self.model(), self.loss()

    def __str__(self) -> str:
        return self.name


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def body() -> nn.Linear:
    return nn.Linear(WIDTH, HIDDEN)


def head(width: int = HIDDEN) -> nn.Linear:
    return nn.Linear(width, CLASSES)


def around(*layers: nn.Module) -> nn.Module:
    """A small network with these layers in its middle."""
    return nn.Sequential(body(), *layers, nn.Tanh(), head())


def perceptron() -> nn.Module:
    return nn.Sequential(body(), nn.Tanh(), head())


# Functions of hidden values [B, 8], in the middle of a small network.


def kept_rows_by_numpy(h: Tensor) -> Tensor:
    """Features of every row by numpy, beside the learned ones."""
    spectrum = np.abs(np.fft.rfft(h.detach().numpy(), axis=1))
    return h + F.pad(torch.from_numpy(spectrum.astype(np.float32)), (0, 3))


def lot_by_numpy(h: Tensor) -> Tensor:
    values = h.detach().numpy()
    return h - torch.from_numpy((values - values.mean()) / (values.std() + 1e-3))


def gated_by_loop(h: Tensor) -> Tensor:
    return torch.stack([row.tanh() if row.sum() > 0 else -0.5 * row for row in h])


def gated_by_where(h: Tensor) -> Tensor:
    return torch.where(h.sum(1, keepdim=True) > 0, h.tanh(), -0.5 * h)


def gated_by_the_lot(h: Tensor) -> Tensor:
    return h.tanh() if h.sum() > 0 else -0.5 * h


def pondering(h: Tensor) -> Tensor:
    """Every row is thought about until it is small; the loop ends when all are."""
    for _ in range(10):
        large = h.detach().norm(dim=1, keepdim=True) > 1
        if not large.any():
            break
        h = torch.where(large, 0.8 * h, h)
    return h


def fixed_point(h: Tensor) -> Tensor:
    """Iterated until the lot as a whole hardly changes."""
    z = torch.zeros_like(h)
    for _ in range(50):
        z, before = torch.tanh(0.5 * z + h), z
        if (z - before).norm() < 1e-4:
            break
    return z


def adaptive_steps(h: Tensor) -> Tensor:
    """An ODE solver whose step follows the largest error of the lot."""
    time = 0.0
    while time < 1:
        slope = torch.tanh(h) - h
        step = min(1 - time, 0.3 / (1e-3 + slope.detach().abs().max().item()))
        h, time = h + step * slope, time + step
    return h


def written_in_place(h: Tensor) -> Tensor:
    out = h.clone()
    out[:, 0] = h[:, 1] * h[:, 2]
    out[:, 1:3].mul_(0.5)
    return out.add_(h.square())


def sorted_and_back(h: Tensor) -> Tensor:
    order = h[:, 0].argsort(descending=True)
    return h[order].tanh()[order.argsort()]


def top_of_each(h: Tensor) -> Tensor:
    values, where = h.topk(3, dim=1)
    return torch.zeros_like(h).scatter(1, where, values)


def top_of_the_lot(h: Tensor) -> Tensor:
    """Sparse activations: the largest quarter of all values of the lot."""
    return h * (h >= h.detach().flatten().topk(h.numel() // 4).values[-1])


def straight_through(h: Tensor) -> Tensor:
    return h + (h.round() - h).detach()


def quantised_by_the_lot(h: Tensor) -> Tensor:
    scale = h.detach().abs().max() / 7
    return h + ((h / scale).round() * scale - h).detach()


def one_mask_for_all(h: Tensor) -> Tensor:
    return h * torch.bernoulli(torch.full((1, h.shape[1]), 0.5)) * 2


def one_coin_for_all(h: Tensor) -> Tensor:
    """Stochastic depth: the layer is left out for the whole lot, or not."""
    return h + h.tanh() if torch.rand(()) < 0.5 else h


def a_coin_for_each(h: Tensor) -> Tensor:
    return h + h.tanh() * torch.bernoulli(torch.full((len(h), 1), 0.5))


def mixup(h: Tensor) -> Tensor:
    share = float(np.random.beta(0.4, 0.4))  # noqa: NPY002 - as tutorials write it
    return share * h + (1 - share) * h[torch.randperm(len(h))]


def standard_deviation_as_a_feature(h: Tensor) -> Tensor:
    """The minibatch discrimination of progressive GANs."""
    spread = h.std(0, unbiased=False).mean()
    return h + spread


def ghost_norm(h: Tensor) -> Tensor:
    return torch.cat([(part - part.mean(0)) / (part.std(0, unbiased=False) + 1e-3) for part in h.split(4)])


def neighbours_in_the_lot(h: Tensor) -> Tensor:
    """A graph convolution over the three nearest rows."""
    near = torch.cdist(h, h).topk(min(3, len(h)), largest=False).indices
    return h[near].mean(1)


def gram(h: Tensor) -> Tensor:
    return (h @ h.t()) @ h / len(h)


def only_in_large_lots(h: Tensor) -> Tensor:
    return h - h.mean(0) if len(h) > 4 else h


def prototypes_of_the_lot(h: Tensor) -> Tensor:
    """A prototype for rows that point the same way, by index_add."""
    which = (h[:, 0] > 0).long()
    sums = torch.zeros(2, h.shape[1]).index_add(0, which, h)
    counts = torch.bincount(which, minlength=2).clamp(min=1)[:, None]
    return h - (sums / counts)[which]


HARMLESS_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "numpy, row by row": kept_rows_by_numpy,
    "if row.sum() > 0, in a loop": gated_by_loop,
    "torch.where by row": gated_by_where,
    "pondering, until all rows are done": pondering,
    "written in place": written_in_place,
    "sorted, then back": sorted_and_back,
    "top-k of each row": top_of_each,
    "straight-through rounding": straight_through,
    "one dropout mask for all": one_mask_for_all,
    "one coin for the whole lot": one_coin_for_all,
    "a coin for each row": a_coin_for_each,
    "over its own norm": lambda h: h / (h.norm(dim=1, keepdim=True) + 1e-3),
    "cumulative sum of each row": lambda h: h.cumsum(1),
    "softmax of each row": lambda h: h.softmax(1),
    "rolled within each row": lambda h: h.roll(1, 1),
    "sorted within each row": lambda h: h.sort(1).values,
    "Fourier transform of each row": lambda h: torch.fft.fft(h, dim=1).real,
    "noise of each row": lambda h: h + 0.1 * torch.randn_like(h),
    "noise scaled by the row": lambda h: h + 0.1 * h.detach().std(1, keepdim=True) * torch.randn_like(h),
    "Gumbel softmax": lambda h: F.gumbel_softmax(h, dim=1),
    "split into chunks and joined": lambda h: torch.cat([part.tanh() for part in h.chunk(2)]),
    "row by row, stacked": lambda h: torch.stack([F.silu(row) for row in h.unbind()]),
    "vmap inside": lambda h: torch.vmap(lambda row: row * row.norm())(h),
    "einsum": lambda h: torch.einsum("bi,bj->bij", h, h).flatten(1)[:, :HIDDEN],
    "outer product by row": lambda h: torch.bmm(h[:, :, None], h[:, None])[:, :, 0],
    "zero-row safe maximum": lambda h: torch.maximum(h, h.mean(1, keepdim=True)),
    "in-place addition": lambda h: h.clone().add_(1).mul_(h),
    "layer norm by hand": lambda h: (h - h.mean(1, keepdim=True)) / (h.var(1, keepdim=True) + 1e-5).sqrt(),
}
MIXING_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "difference to the row before": lambda h: torch.diff(h, dim=0, prepend=h[:1]),
    "reversed running mean": lambda h: h.flip(0).cumsum(0).flip(0) / torch.arange(len(h), 0, -1)[:, None],
    "numpy, over the lot": lot_by_numpy,
    "if x.sum() > 0": gated_by_the_lot,
    "ODE steps by the lot's error": adaptive_steps,
    "scaled by .item()": lambda h: h / (h.max().item() + 1e-3),
    "top-k of the lot": top_of_the_lot,
    "quantised by the lot's largest": quantised_by_the_lot,
    "mixup": mixup,
    "standard deviation as a feature": standard_deviation_as_a_feature,
    "ghost batch norm": ghost_norm,
    "graph of near rows": neighbours_in_the_lot,
    "Gram matrix": gram,
    "only in lots above four": only_in_large_lots,
    "prototypes of the lot": prototypes_of_the_lot,
    "centred": lambda h: h - h.mean(0),
    "centred, a thousandth": lambda h: h - 1e-3 * h.mean(0),
    "centred, detached": lambda h: h - h.mean(0).detach(),
    "sorted over rows": lambda h: h.sort(0).values,
    "argsort over rows as a rank": lambda h: h * (1 + h.argsort(0).argsort(0)),
    "cumulative sum over rows": lambda h: h.cumsum(0),
    "softmax over rows": lambda h: h.softmax(0),
    "normalised over rows": lambda h: F.normalize(h, dim=0),
    "over the norm of everything": lambda h: h / (h.norm() + 1e-3),
    "layer norm of everything": lambda h: F.layer_norm(h, h.shape),
    "rows in random order": lambda h: h[torch.randperm(len(h))],
    "rows rolled": lambda h: h.roll(1, 0),
    "row number as a weight": lambda h: h * torch.arange(1, len(h) + 1)[:, None],
    "transposed before reshape": lambda h: h.t().reshape(len(h), -1),
    "Fourier transform over rows too": lambda h: torch.fft.fft2(h).real,
    "distances between rows": lambda h: h * torch.cdist(h, h).mean(1, keepdim=True),
    "attention over rows": lambda h: (h @ h.t()).softmax(1) @ h,
    "convolution along rows": lambda h: F.avg_pool1d(h.t()[None], 3, 1, 1)[0].t(),
    "noise scaled by the lot": lambda h: h + h.detach().std() * torch.randn_like(h),
    "flattened into one sum": lambda h: h + h.flatten().sum(),
    "Sinkhorn over the lot": lambda h: functools.reduce(
        lambda q, _: F.normalize(F.normalize(q, p=1, dim=0), p=1, dim=1), range(3), h.exp()
    ),
    "counted by torch.unique": lambda h: (
        h / torch.unique(h[:, 0] > 0, return_inverse=True, return_counts=True)[2].max()
    ),
    "divided by the count": lambda h: h / len(h),
}
EITHER_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "flipped twice": lambda h: h.flip(0).tanh().flip(0),
    "iterated until the lot is still": fixed_point,
}
FUNCTIONS_MEET_IN = {"only in lots above four": 5, "counted by torch.unique": 4}


# Harmless models.


class Experts(nn.Module):
    """Every row goes to the expert that its gate prefers; no expert is ever full."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(2))
        self.capacity = capacity

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(1)
        chosen = shares.argmax(1)
        out = x.new_zeros(len(x), CLASSES)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[: self.capacity, 0]
            out[rows] = expert(x[rows]) * shares[rows, number, None]
        return out


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], *, batch_first: bool = True) -> None:
        super().__init__()
        self.cell, self.head = kind(4, HIDDEN, batch_first=batch_first), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class TimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(4, HIDDEN), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x.transpose(0, 1))[0][-1])


class Packed(nn.Module):
    """A recurrent layer over sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(4, HIDDEN, batch_first=True), head()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.cell(packed)[0], batch_first=True)
        return self.head(states.sum(1) / lengths[:, None])


class Attention(nn.Module):
    """Attention over positions; over rows, if whoever wrote it forgot batch_first."""

    def __init__(self, *, batch_first: bool, transposed: bool = False, keeps: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.head, self.transposed, self.keeps = head(4), transposed, keeps

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1) if self.transposed else x
        mixed, weights = self.attention(x, x, x)
        if self.keeps:
            self.weights = weights.detach()
        return self.head(mixed.mean(0 if self.transposed else 1))


class Doubling(torch.autograd.Function):
    """A function with a backward pass of its own, row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class UnitGradient(torch.autograd.Function):
    """The gradient of the whole lot is scaled to length one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad / (grad.norm() + 1e-6)


class Energy(nn.Module):
    """Outputs with the slope of the energy along the inputs, by torch.autograd.grad inside the model."""

    def __init__(self) -> None:
        super().__init__()
        self.energy, self.head = nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1)), head(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
        return self.head(slope)


class Checkpointed(nn.Module):
    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.use_reentrant = body(), head(), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.use_reentrant:
            x = x.clone().requires_grad_()
        return self.second(checkpoint(lambda x: self.first(x).tanh(), x, use_reentrant=self.use_reentrant))


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(12, HIDDEN, mode="mean"), head()

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.bag(words.reshape(-1), torch.arange(0, words.numel(), words.shape[1])))


class OneHot(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, CLASSES))

    def forward(self, words: Tensor) -> Tensor:
        return (F.one_hot(words, 12).float() @ self.weight).mean(1)


class LookedUpOnce(nn.Module):
    """Every word of the lot is looked up once, as large tables are."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(12, HIDDEN), head()

    def forward(self, words: Tensor) -> Tensor:
        unique, where = torch.unique(words, return_inverse=True)
        return self.head(self.table(unique)[where].mean(1))


class Transformed(nn.Module):
    """A spatial transformer: every image is moved by what the network says of it."""

    def __init__(self) -> None:
        super().__init__()
        self.where, self.head = nn.Linear(72, 6), head(72)
        nn.init.normal_(self.where.weight, std=0.05)

    def forward(self, x: Tensor) -> Tensor:
        theta = self.where(x.flatten(1)).view(-1, 2, 3) + torch.eye(2, 3)
        moved = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
        return self.head(moved.flatten(1))


class OwnFilters(nn.Module):
    """A convolution with filters of each image's own, by the trick with groups."""

    def __init__(self) -> None:
        super().__init__()
        self.filters, self.head = nn.Linear(72, 2 * 2 * 9), head(2)

    def forward(self, x: Tensor) -> Tensor:
        count = len(x)
        weight = self.filters(x.flatten(1)).reshape(count * 2, 2, 3, 3) / 6
        out = F.conv2d(x.reshape(1, count * 2, 6, 6), weight, padding=1, groups=count)
        return self.head(out.view(count, 2, 6, 6).mean((2, 3)))


class Prototypes(nn.Module):
    """Distances to learned prototypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.prototypes = body(), nn.Parameter(torch.randn(CLASSES, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(self.first(x), self.prototypes).square()


class Tied(nn.Module):
    """An autoencoder with tied weights, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        again = F.linear(self.first(x).tanh(), self.first.weight.t())
        return self.head(F.linear(self.first(again).tanh(), self.first.weight.t()))


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log, self.head = body(), body(), head()

    def forward(self, x: Tensor) -> Tensor:
        mean, log = self.mean(x), self.log(x).clamp(-3, 3)
        return self.head(mean + torch.randn_like(mean) * (log / 2).exp())


class SampledWeights(nn.Module):
    """Bayes by backprop: weights are drawn once for every lot."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log = (
            nn.Parameter(torch.randn(CLASSES, WIDTH) / 2),
            nn.Parameter(torch.full((CLASSES, WIDTH), -2.0)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.mean + torch.randn(CLASSES, WIDTH) * self.log.exp())


class DroppedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, F.dropout(self.first.weight, 0.3), self.first.bias).tanh())


class OwnWeights(nn.Module):
    """A hypernetwork: the weights of the last layer depend on the row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weights = body(), nn.Linear(WIDTH, HIDDEN * CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(self.first(x).tanh()[:, None], self.weights(x).view(-1, HIDDEN, CLASSES))[:, 0]


class FirstToken(nn.Module):
    """A class token and learned positions in front of a small Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(6, 4))
        self.layer, self.head = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True), head(4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.layer(x)[:, 0])


class CutToTheLongest(nn.Module):
    """Positions that nobody in the lot has are cut off; the others are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, HIDDEN), head()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        longest = int(lengths.max())
        h = self.first(x[:, :longest]).tanh() * (torch.arange(longest) < lengths[:, None])[..., None]
        return self.head(h.sum(1))


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.head = nn.Embedding(12, HIDDEN), body(), head()

    def forward(self, numbers: Tensor, words: Tensor) -> Tensor:
        return self.head((self.first(numbers) + self.table(words).mean(1)).tanh())


class FrozenTeacher(nn.Module):
    """A teacher that nobody changes."""

    def __init__(self) -> None:
        super().__init__()
        self.student = perceptron()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            hint = self.teacher(x)
        return self.student(x) + 0.1 * hint


def frozen_norm() -> nn.Module:
    """Batch norm in evaluation mode, as in a pretrained network."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), head(64))
    model[1].eval()
    model[1].running_mean.normal_()
    return model


def image_network(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), head(64))


def with_hook(hook: Callable[..., Any]) -> nn.Module:
    model = perceptron()
    model[0].register_forward_hook(hook)
    return model


def with_pre_hook() -> nn.Module:
    model = perceptron()
    model[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].clamp(-3, 3),))
    return model


def without_warnings(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Torch deprecates some of what people still use."""

    def quietly() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build()

    return quietly


# Models in which examples meet, or that keep something of them.


class ActNorm(nn.Module):
    """Glow: scale and shift are set by the first inputs, so that these are standardised."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.bias, self.log_scale = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.is_initialised = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_initialised:
            with torch.no_grad():
                self.bias.data.copy_(-x.mean(0))
                self.log_scale.data.copy_(-torch.log(x.std(0, unbiased=False) + 1e-3))
            self.is_initialised = True
        return (x + self.bias) * self.log_scale.exp()


class ActNormByBuffer(nn.Module):
    """The same with its flag in a buffer, as most flows have it."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.first = nn.Parameter(torch.zeros(WIDTH)), body()
        self.head = head()
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.initialised.item() == 0:
            self.bias.data.copy_(-x.detach().mean(0))
            self.initialised.fill_(1)
        return self.head(self.first(x + self.bias).tanh())


class Observer(nn.Module):
    """Quantisation-aware training: the largest value so far sets the grid."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        self.largest.copy_(torch.maximum(self.largest, h.detach().abs().max()))
        scale = self.largest / 7
        return self.head(h + ((h / scale).round() * scale - h).detach())


class MemoryBank(nn.Module):
    """MoCo: embeddings of earlier lots are what later ones are compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head(HIDDEN + 4)
        self.register_buffer("bank", torch.zeros(4, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        h = F.normalize(self.first(x), dim=1)
        similar = h @ self.bank.t()
        self.bank = torch.cat([h.detach(), self.bank])[:4]
        return self.head(torch.cat([h, similar], 1))


class Queue(nn.Module):
    """Earlier rows in a Python deque."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.earlier: deque[Tensor] = deque(maxlen=8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        context = torch.stack(list(self.earlier)).mean(0) if self.earlier else torch.zeros(HIDDEN)
        self.earlier.extend(h.detach())
        return self.head((h + context).tanh())


class Stateful(nn.Module):
    """A recurrent layer that goes on from where the last lot ended."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(4, HIDDEN, batch_first=True), head()
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.state is None or self.state.shape[1] != len(x):
            self.state = torch.zeros(1, len(x), HIDDEN)
        out, state = self.cell(x, self.state)
        self.state = state.detach()
        return self.head(out[:, -1])


class MovingTarget(nn.Module):
    """A teacher that follows the student's weights at every forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.student = perceptron()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            hint = self.teacher(x)
        return self.student(x) - 0.1 * hint


class MovingMean(nn.Module):
    """Features are centred by a moving mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.register_buffer("mean", torch.zeros(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        with torch.no_grad():
            self.mean.lerp_(h.mean(0), 0.1)
        return self.head((h - self.mean).tanh())


class Codebook(nn.Module):
    """VQ-VAE: the codes move to the mean of what was assigned to them, outside of the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.register_buffer("codes", torch.randn(4, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        which = torch.cdist(h.detach(), self.codes).argmin(1)
        with torch.no_grad():
            for code in which.unique():
                self.codes[code].lerp_(h[which == code].mean(0), 0.1)
        return self.head(h + (self.codes[which] - h).detach() / 2)


class BuiltLater(nn.Module):
    """The last layer is made when its width is known."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), None

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.head is None:
            self.head = head(h.shape[1])
        return self.head(h)


class InitialisedByData(nn.Module):
    """The first bias is the mean of the first lot."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.register_buffer("offset", None)

    def forward(self, x: Tensor) -> Tensor:
        if self.offset is None:
            self.offset = x.detach().mean(0)
        return self.head(self.first(x - self.offset).tanh())


class AfterWarmUp(nn.Module):
    """Statistics of the lot are used from the third lot on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.calls = body(), head(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        h = self.first(x)
        return self.head((h - h.mean(0) if self.calls > 2 else h).tanh())


class Calls(nn.Module):
    """Counts its calls, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.calls = perceptron(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layers(x)


class LastInputs(nn.Module):
    """Keeps the last lot, for a plot."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        self.statistics = {"mean": float(x.mean()), "count": len(x)}
        return self.layers(x)


class Rows(nn.Module):
    """Counts the rows that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return self.layers(x)


class Balanced(nn.Module):
    """Experts with a penalty on how the lot is spread over them, handed to the loss as a second output."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = Experts()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.experts.gate(x).softmax(1)
        return self.experts(x), (shares.mean(0).square().sum() * 2).expand(len(x))


def with_penalty(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    return odd_losses.losses(outputs[0], targets) + outputs[1]


class ChosenByExperts(nn.Module):
    """Expert choice: every expert picks the rows of the lot that it likes best."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDTH, 2), nn.ModuleList(head(WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        shares = self.gate(x).softmax(1)
        out = x.new_zeros(len(x), CLASSES)
        for number, expert in enumerate(self.experts):
            rows = shares[:, number].topk((len(x) + 1) // 2).indices
            out = out.index_add(0, rows, expert(x[rows]) * shares[rows, number, None])
        return out


class InnerStep(nn.Module):
    """Meta-learning: the weights take one step on the whole lot before it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CLASSES, WIDTH) / 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            energy = F.linear(x, self.weight).logsumexp(1).mean()
            (slope,) = torch.autograd.grad(energy, self.weight, create_graph=True)
        return F.linear(x, self.weight - slope)


class GatedByZero(nn.Module):
    """A residual branch over the lot behind a gate that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.gate = body(), head(), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.head((h + self.gate * h.mean(0)).tanh())


class WholeLot(nn.Module):
    """Everything in one row, through one layer, and back to every example."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.each, self.head = body(), nn.Linear(1, 1), head()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.head(h + self.each(h.flatten()[:, None]).mean())


class HookedGradient(nn.Module):
    """A hook on the hidden values divides their gradient by its norm over the lot."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(lambda grad: grad / (grad.norm() + 1e-6))
        return self.head(h.tanh())


def hooked_backward(hook: Callable[..., Any]) -> nn.Module:
    model = perceptron()
    model[1].register_full_backward_hook(hook)
    return model


def centred_gradient(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return (inputs[0] - inputs[0].mean(0),)


def halved_gradient(module: nn.Module, inputs: Any, outputs: Any) -> Any:
    return (inputs[0] / 2,)


def remembering_hook() -> nn.Module:
    """A forward hook that keeps activations in an attribute of the layer."""

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        module.activations = output.detach()

    return with_hook(keep)


def averaging_hook() -> nn.Module:
    """A forward hook that keeps a moving mean, by which a later layer divides."""
    model = perceptron()
    model.register_buffer("level", torch.ones(()))

    def follow(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        model.level.lerp_(output.detach().abs().mean(), 0.5)
        return output / model.level

    model[0].register_forward_hook(follow)
    return model


def parameter_hook() -> nn.Module:
    """A hook on a parameter, which clips its gradient."""
    model = perceptron()
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return model


def instance_norm_with_statistics() -> nn.Module:
    return image_network(nn.InstanceNorm2d(4, track_running_stats=True))


def norm_without_statistics() -> nn.Module:
    """Without running statistics, batch norm uses those of the lot in evaluation mode too."""
    return around(nn.BatchNorm1d(HIDDEN, track_running_stats=False)).eval()


def half_frozen() -> nn.Module:
    """A frozen backbone whose batch norm was left in training mode."""
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), head())
    model[:2].requires_grad_(False)
    return model


HARMLESS = [
    *(Odd(name, "harmless", lambda f=function: around(Apply(f))) for name, function in HARMLESS_FUNCTIONS.items()),
    Odd("dropout", "harmless", lambda: around(nn.Dropout(0.5))),
    Odd("alpha dropout", "harmless", lambda: around(nn.AlphaDropout(0.3))),
    Odd("random leaky ReLU", "harmless", lambda: around(nn.RReLU())),
    Odd(
        "weight norm, old",
        "harmless",
        without_warnings(lambda: nn.Sequential(nn.utils.weight_norm(body()), nn.Tanh(), head())),
    ),
    Odd("weight norm", "harmless", lambda: nn.Sequential(parametrizations.weight_norm(body()), nn.Tanh(), head())),
    Odd("experts without capacity", "harmless", Experts),
    Odd("RNN", "harmless", lambda: Recurrent(nn.RNN), data=sequences),
    Odd("GRU", "harmless", lambda: Recurrent(nn.GRU), data=sequences),
    Odd("LSTM", "harmless", lambda: Recurrent(nn.LSTM), data=sequences),
    Odd("GRU, time first", "harmless", TimeFirst, data=sequences),
    Odd("packed sequences", "harmless", Packed, data=padded),
    Odd("cut to the longest", "harmless", CutToTheLongest, data=padded),
    Odd("attention", "harmless", lambda: Attention(batch_first=True), data=sequences),
    Odd("attention, time first", "harmless", lambda: Attention(batch_first=False, transposed=True), data=sequences),
    Odd("class token and Transformer", "harmless", FirstToken, data=sequences),
    Odd("own backward pass", "harmless", lambda: around(Apply(Doubling.apply))),
    Odd("slope of an energy", "harmless", Energy),
    Odd("checkpointed", "harmless", lambda: Checkpointed(use_reentrant=False)),
    Odd("checkpointed, reentrant", "harmless", lambda: Checkpointed(use_reentrant=True)),
    Odd("compiled", "harmless", lambda: torch.compile(perceptron(), backend="eager")),
    Odd("scripted", "harmless", without_warnings(lambda: torch.jit.script(perceptron()))),
    Odd("traced", "harmless", without_warnings(lambda: torch.jit.trace(perceptron(), torch.zeros(2, WIDTH)))),
    Odd("embedding bags by offsets", "harmless", Bags, data=tokens),
    Odd("one-hot words", "harmless", OneHot, data=tokens),
    Odd("words and numbers by name", "harmless", TwoInputs, data=by_name),
    Odd("spatial transformer", "harmless", Transformed, data=images),
    Odd("filters of its own, by groups", "harmless", OwnFilters, data=images),
    Odd("weights of its own", "harmless", OwnWeights),
    Odd("learned prototypes", "harmless", Prototypes),
    Odd("tied weights", "harmless", Tied),
    Odd("variational", "harmless", Variational),
    Odd("sampled weights", "harmless", SampledWeights),
    Odd("dropped weights", "harmless", DroppedWeights),
    Odd("frozen teacher", "harmless", FrozenTeacher),
    Odd("batch norm in evaluation mode", "harmless", frozen_norm, data=images),
    Odd("instance norm", "harmless", lambda: image_network(nn.InstanceNorm2d(4, affine=True)), data=images),
    Odd("group norm", "harmless", lambda: image_network(nn.GroupNorm(2, 4)), data=images),
    Odd("layer norm", "harmless", lambda: around(nn.LayerNorm(HIDDEN))),
    Odd("local response norm", "harmless", lambda: image_network(nn.LocalResponseNorm(2)), data=images),
    Odd("forward hook by row", "harmless", lambda: with_hook(lambda _, inputs, output: output.sigmoid())),
    Odd("pre-hook by row", "harmless", with_pre_hook),
    Odd("hook on a parameter", "harmless", parameter_hook),
    *(Odd(name, "harmless", perceptron, loss) for name, loss in odd_losses.HARMLESS.items()),
    Odd(
        "loss: one value a position",
        "harmless",
        lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(1)),
        odd_losses.always(odd_losses.values_of_a_sequence),
        traces,
    ),
    Odd(
        "loss: squared error of a number",
        "harmless",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1), nn.Flatten(0)),
        odd_losses.always(F.mse_loss),
        numbers,
    ),
]
MIXING = [
    *(
        Odd(name, "mixing", lambda f=function: around(Apply(f)), meets_in=FUNCTIONS_MEET_IN.get(name, 2))
        for name, function in MIXING_FUNCTIONS.items()
    ),
    Odd("ActNorm", "mixing", lambda: nn.Sequential(ActNorm(), perceptron()), meets_in=1),
    Odd("ActNorm, flag in a buffer", "mixing", ActNormByBuffer, meets_in=1),
    Odd("initialised by the first lot", "mixing", InitialisedByData, meets_in=1),
    Odd("running maximum", "mixing", Observer, meets_in=1),
    Odd("memory bank", "mixing", MemoryBank, meets_in=1),
    Odd("queue of earlier rows", "mixing", Queue, meets_in=1),
    Odd("stateful GRU", "mixing", Stateful, data=sequences, meets_in=1),
    Odd("moving mean", "mixing", MovingMean, meets_in=1),
    Odd("codebook that follows", "mixing", Codebook, meets_in=1),
    Odd("hook with a moving mean", "mixing", averaging_hook, meets_in=1),
    Odd("rows are counted", "mixing", Rows, meets_in=1),
    Odd("after a warm-up", "mixing", AfterWarmUp),
    Odd("experts with a capacity", "mixing", lambda: Experts(capacity=1), meets_in=3),
    Odd("experts that choose", "mixing", ChosenByExperts),
    Odd("experts with a balance", "mixing", Balanced, odd_losses.always(with_penalty)),
    Odd("inner step on the lot", "mixing", InnerStep),
    Odd("gate that starts at zero", "mixing", GatedByZero),
    Odd("whole lot in one row", "mixing", WholeLot),
    Odd("hook that centres", "mixing", lambda: with_hook(lambda _, inputs, output: output - output.mean(0))),
    Odd("batch norm", "mixing", lambda: around(nn.BatchNorm1d(HIDDEN)), meets_in=1),
    Odd(
        "batch norm as a function",
        "mixing",
        lambda: around(Apply(lambda h: F.batch_norm(h, None, None, training=True))),
        smallest=2,
    ),
    Odd("batch norm without statistics", "mixing", norm_without_statistics),
    Odd("batch norm in a frozen backbone", "mixing", half_frozen, meets_in=1),
    Odd("instance norm with statistics", "mixing", instance_norm_with_statistics, data=images, meets_in=1),
    Odd("attention over rows by mistake", "mixing", lambda: Attention(batch_first=False), data=sequences),
    Odd("GRU over rows by mistake", "mixing", lambda: Recurrent(nn.GRU, batch_first=False), data=sequences),
    Odd(
        "words that are rescaled when looked up",
        "mixing",
        lambda: nn.Sequential(nn.Embedding(12, HIDDEN, max_norm=0.5), Apply(lambda h: h.mean(1)), head()),
        data=tokens,
        meets_in=1,
    ),
    *(
        Odd(name, "mixing", perceptron, loss, meets_in=odd_losses.MEET_IN.get(name, 2))
        for name, loss in odd_losses.MIXING.items()
    ),
    Odd(
        "loss: missing axis",
        "mixing",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1)),
        odd_losses.always(odd_losses.missing_axis),
        numbers,
    ),
    Odd(
        "loss: missing axis, by row",
        "mixing",
        lambda: nn.Sequential(body(), nn.Tanh(), nn.Linear(HIDDEN, 1)),
        odd_losses.always(odd_losses.missing_axis_by_row),
        numbers,
    ),
]
EITHER = [
    *(Odd(name, "either", lambda f=function: around(Apply(f))) for name, function in EITHER_FUNCTIONS.items()),
    Odd(
        "spectral norm, old",
        "either",
        without_warnings(lambda: nn.Sequential(nn.utils.spectral_norm(body()), nn.Tanh(), head())),
    ),
    Odd("spectral norm", "either", lambda: nn.Sequential(parametrizations.spectral_norm(body()), nn.Tanh(), head())),
    Odd("words looked up once", "either", LookedUpOnce, data=tokens),
    Odd("teacher that follows the weights", "either", MovingTarget),
    Odd("lazy layer", "either", without_warnings(lambda: nn.Sequential(nn.LazyLinear(HIDDEN), nn.Tanh(), head()))),
    Odd("last layer built later", "either", BuiltLater),
    Odd("calls are counted", "either", Calls),
    Odd("last lot is kept", "either", LastInputs),
    Odd("attention maps are kept", "either", lambda: Attention(batch_first=True, keeps=True), data=sequences),
    Odd("hook that keeps activations", "either", remembering_hook),
    Odd("backward pass over the lot", "either", lambda: around(Apply(UnitGradient.apply))),
    Odd("gradient hook over the lot", "either", HookedGradient),
    Odd("backward hook over the lot", "either", lambda: hooked_backward(centred_gradient)),
    Odd("backward hook by row", "either", lambda: hooked_backward(halved_gradient)),
    *(Odd(name, "either", perceptron, loss) for name, loss in odd_losses.EITHER.items()),
]
ODD = [*HARMLESS, *MIXING, *EITHER]
