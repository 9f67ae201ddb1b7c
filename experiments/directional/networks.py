"""The networks of Xiang et al.: LeNet, an AlexNet of small kernels, and ResNet-18 with groups in place of batches."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn


def network(name: str, outputs: int, width: float = 1.0) -> nn.Module:
    """A fresh one: LeNet with Glorot's first weights, the deep ones with He's. Torch's own start slowly under noise.

    `width` is the share of the paper's feature maps that the deep ones have.
    """
    made = lenet(outputs) if name == "lenet" else {"alexnet": alexnet, "resnet18": resnet18}[name](outputs, width)
    draw = nn.init.xavier_uniform_ if name == "lenet" else partial(nn.init.kaiming_normal_, nonlinearity="relu")
    for part in made.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            draw(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return made


def lenet(outputs: int) -> nn.Module:
    """Two convolutions and three layers, 61,706 weights for ten classes."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, outputs),
    )


def alexnet(outputs: int, width: float = 1.0) -> nn.Module:
    """Five convolutions of size 3 for images of 32 x 32."""
    layers: list[nn.Module] = []
    maps, halved = [round(width * each) for each in (64, 192, 384, 256, 256)], (True, True, False, False, True)
    widths, hidden = (3, *maps), round(width * 512)
    for before, after, is_halved in zip(widths, widths[1:], halved, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if is_halved else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(maps[-1] * 16, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.GroupNorm(16, after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.GroupNorm(16, after),
        )
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, values: Tensor) -> Tensor:
        return torch.relu(self.path(values) + self.shortcut(values))


def resnet18(outputs: int, width: float = 1.0) -> nn.Module:
    """Batch normalisation mixes examples, so that none has a gradient of its own; group normalisation does not."""
    before, *others = (round(width * each) for each in (64, 64, 128, 256, 512))
    layers: list[nn.Module] = [nn.Conv2d(3, before, 3, padding=1, bias=False), nn.GroupNorm(16, before), nn.ReLU()]
    for after, stride in zip(others, (1, 2, 2, 2), strict=True):
        layers += [_Block(before, after, stride), _Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs))


class Tiny(nn.Module):
    """Figure 1: two inputs, two hidden units, nine weights."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, values: Tensor) -> Tensor:
        """One score."""
        return self.output(torch.sigmoid(self.hidden(values)))[:, 0]
