"""Models as people write them, in which no example sees another."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

WIDTH, HIDDEN, CLASSES = 6, 8, 3


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


class InputInPlace(nn.Module):
    """The inputs are scaled where they are, which spares a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.sub_(0.5).div_(2))


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
