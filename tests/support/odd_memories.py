"""Models as people write them, in which examples meet, or of which something stays in the model."""

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from support import odd_losses
from support.odd_layers import CLASSES, HIDDEN, WIDTH, Experts, around, body, head, image_network, perceptron, with_hook


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


EARLIER: list[Tensor] = []


class GlobalList(nn.Module):
    """Earlier lots in a list of the module that it is written in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        EARLIER.clear()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        context = torch.stack(EARLIER).mean(0) if EARLIER else torch.zeros(HIDDEN)
        EARLIER.append(h.detach().mean(0))
        return self.head((h + context).tanh())


class Level(nn.Module):
    """The mean of the last lot in a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.level = body(), head(), 0.0

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) - self.level
        self.level = h.mean().item()
        return self.head(h.tanh())


class ClassLevel(nn.Module):
    """The same in an attribute of the class."""

    level = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        ClassLevel.level = 0.0

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x) - ClassLevel.level
        ClassLevel.level = h.mean().item()
        return self.head(h.tanh())


class Tracker:
    """A helper that is no module."""

    def __init__(self) -> None:
        self.values = np.zeros(HIDDEN, dtype=np.float32)

    def follow(self, h: Tensor) -> Tensor:
        self.values = 0.5 * self.values + 0.5 * h.detach().numpy().mean(0)
        return h - torch.from_numpy(self.values)


class Tracked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.tracker = body(), head(), Tracker()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.tracker.follow(self.first(x)).tanh())


class FrozenParameter(nn.Module):
    """A moving mean in a parameter that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = body(), head()
        self.mean = nn.Parameter(torch.zeros(HIDDEN), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        self.mean.data = 0.9 * self.mean.data + 0.1 * h.detach().mean(0)
        return self.head((h - self.mean).tanh())


class ExpandedToken(nn.Module):
    """A learned token, one for every row, that is added up over the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.token = body(), head(), nn.Parameter(torch.ones(1, HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.token.expand(len(x), -1)
        return self.head((self.first(x) * tokens.sum(0)).tanh())


class CentredLayer(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h - h.mean(0)


class CentredCheckpoint(nn.Module):
    """Examples meet in what is computed again in the backward pass."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.head, self.use_reentrant = body(), head(), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        if self.use_reentrant:
            x = x.clone().requires_grad_()
        centred = CentredLayer()
        return self.head(checkpoint(lambda x: centred(self.first(x)), x, use_reentrant=self.use_reentrant))


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
