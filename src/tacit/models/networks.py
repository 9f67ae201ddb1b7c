"""Small networks that take noise well: bounded units, tempered; no layer that mixes examples.

Units that are bounded keep activations and gradients within reach of a small clip norm (Papernot et al. 2021). Group
normalisation works within one example, and standardising weights looks at no example; batch normalisation would mix
examples, and is refused by every run.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tacit import _validate
from tacit.errors import InvalidArgument

_SMALLEST = 12
_MATRIX = 2
_CONSTANT = 1e-8


class Tempered(nn.Module):
    """scale * tanh(slope * x): Papernot et al.'s tempered unit; scale and slope are public constants."""

    def __init__(self, scale: float = 1.0, slope: float = 1.0) -> None:
        super().__init__()
        self.scale, self.slope = _validate.positive("scale", scale), _validate.positive("slope", slope)

    def forward(self, values: Tensor) -> Tensor:
        """Between -scale and scale."""
        return self.scale * torch.tanh(self.slope * values)


class _Standardised(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        rest = tuple(range(1, weight.dim()))
        centred = weight - weight.mean(rest, keepdim=True)
        # Noise never makes a filter constant; a constant one gives zeros and not a division by zero.
        return centred / (centred.square().sum(rest, keepdim=True) + _CONSTANT).sqrt()


def standardised(layer: nn.Module) -> nn.Module:
    """The layer, with each of its filters used less its mean and at norm 1 (weight standardisation, Qiao et al. 2019).

    What is trained is the filter before that, so a private run releases noisy gradients of it like of any parameter.
    Right before a normalisation: standardised filters have no length of their own.

    >>> filters = standardised(nn.Conv2d(1, 4, 3)).weight.detach().flatten(1)
    >>> torch.allclose(filters.norm(dim=1), torch.ones(4)), torch.allclose(filters.mean(1), torch.zeros(4), atol=1e-6)
    (True, True)
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.dim() < _MATRIX:
        raise InvalidArgument(f"Only a layer with a weight of two dimensions or more can be standardised. Got {layer}.")
    return parametrize.register_parametrization(layer, "weight", _Standardised())


def tempered_cnn(
    shape: tuple[int, int, int],
    classes: int,
    *,
    scale: float = 1.0,
    slope: float = 1.0,
    groups: int = 0,
    is_standardised: bool = False,
    hidden: int = 32,
) -> nn.Module:
    """Two convolutions and two layers with tempered units, for images of shape (channels, height, width).

    For MNIST these are the 26,010 weights of Papernot et al. 2021. With `groups`, activations are normalised in so
    many groups of channels after each convolution; filters can be standardised then, too. Without a `hidden` layer,
    scores are linear in what the convolutions see: fewer weights, and less noise.

    >>> sum(parameter.numel() for parameter in tempered_cnn((1, 28, 28), 10).parameters())
    26010
    """
    channels, height, width = shape
    if min(height, width) < _SMALLEST:
        raise InvalidArgument(f"Images must be at least {_SMALLEST} x {_SMALLEST} pixels. Got {height} x {width}.")
    if is_standardised and not groups:
        raise InvalidArgument("Standardised filters have no length of their own, so groups must be 1 or more. Got 0.")
    layers: list[nn.Module] = []
    for before, after, kernel, padding in ((channels, 16, 8, 2), (16, 32, 4, 0)):
        filters = nn.Conv2d(before, after, kernel, stride=2, padding=padding)
        layers.append(standardised(filters) if is_standardised else filters)
        if groups:
            layers.append(nn.GroupNorm(groups, after))
        # The largest of several before a unit is the largest behind it, as units are increasing: fewer to compute.
        layers += [nn.MaxPool2d(2, stride=1), Tempered(scale, slope)]
    front = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        width_after = math.prod(front(torch.zeros(1, *shape)).shape[1:])
    hidden = _validate.count("hidden", hidden, at_least=0)
    between = (nn.Linear(width_after, hidden), Tempered(scale, slope)) if hidden else ()
    model = nn.Sequential(front, *between, nn.Linear(hidden or width_after, classes))
    # Channels side by side in memory: the same weights, and on a processor half as fast again.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
