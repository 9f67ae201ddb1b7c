"""Small networks for private training, in which no layer mixes examples; and a user's own, from FILE:FUNCTION.

Bounded (tempered) units keep activations and gradients within reach of a small clip norm (Papernot et al. 2021). Group
normalisation works within one example, and weight standardisation uses no example; batch normalisation would mix
examples, and every run refuses it. The networks for words, people and films are those of Bu et al. 2019.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tacit import _validate
from tacit._files import expand_home
from tacit.errors import InvalidArgument, TacitError

_SMALLEST = 12
_MATRIX = 2
_CONSTANT = 1e-8
_UNITS = 16
_FACTORS, _MORE_FACTORS = 5, 10
_HOW = (
    "Write net.py with a function make_model(shape, classes) that returns a torch.nn.Module, and give net.py:make_model"
)


class Tempered(nn.Module):
    """scale * tanh(slope * x): Papernot et al.'s tempered unit; scale and slope are public constants."""

    def __init__(self, scale: float = 1.0, slope: float = 1.0) -> None:
        super().__init__()
        self.scale, self.slope = _validate.positive("scale", scale), _validate.positive("slope", slope)

    def forward(self, values: Tensor) -> Tensor:
        """Between -scale and scale."""
        return self.scale * torch.tanh(self.slope * values)


class _Standardise(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        rest = tuple(range(1, weight.dim()))
        centred = weight - weight.mean(rest, keepdim=True)
        # A constant filter gives zeros, not a division by zero.
        return centred / (centred.square().sum(rest, keepdim=True) + _CONSTANT).sqrt()


def standardised(layer: nn.Module) -> nn.Module:
    """The layer, with the mean of each filter subtracted and its norm set to 1 (weight standardisation, Qiao 2019).

    The trained parameter is the filter before that, so a private run releases its noisy gradient as for any parameter.
    Use it right before a normalisation: standardised filters have a fixed length.

    >>> filters = standardised(nn.Conv2d(1, 4, 3)).weight.detach().flatten(1)
    >>> torch.allclose(filters.norm(dim=1), torch.ones(4)), torch.allclose(filters.mean(1), torch.zeros(4), atol=1e-6)
    (True, True)
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.dim() < _MATRIX:
        raise InvalidArgument(f"Only a layer with a weight of two dimensions or more can be standardised. Got {layer}.")
    return parametrize.register_parametrization(layer, "weight", _Standardise())


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

    For MNIST these are the 26,010 weights of Papernot et al. 2021. With `groups`, activations are normalised in that
    many groups of channels after each convolution, and filters may be standardised. With `hidden=0`, scores are linear
    in the output of the convolutions: fewer weights, and less noise.

    >>> sum(parameter.numel() for parameter in tempered_cnn((1, 28, 28), 10).parameters())
    26010
    """
    channels, height, width = shape
    if min(height, width) < _SMALLEST:
        raise InvalidArgument(f"Images must be at least {_SMALLEST} x {_SMALLEST} pixels. Got {height} x {width}.")
    if is_standardised and not groups:
        raise InvalidArgument("Standardised filters have a fixed length, so groups must be 1 or more. Got 0.")
    layers: list[nn.Module] = []
    for before, after, kernel, padding in ((channels, 16, 8, 2), (16, 32, 4, 0)):
        filters = nn.Conv2d(before, after, kernel, stride=2, padding=padding)
        layers.append(standardised(filters) if is_standardised else filters)
        if groups:
            layers.append(nn.GroupNorm(groups, after))
        # Units are increasing, so pooling before them gives the same result with fewer units to compute.
        layers += [nn.MaxPool2d(2, stride=1), Tempered(scale, slope)]
    front = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        width_after = math.prod(front(torch.zeros(1, *shape)).shape[1:])
    hidden = _validate.count("hidden", hidden, at_least=0)
    between = (nn.Linear(width_after, hidden), Tempered(scale, slope)) if hidden else ()
    model = nn.Sequential(front, *between, nn.Linear(hidden or width_after, classes))
    # Channels last in memory: the same weights, and 1.5 times as fast on a CPU.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


class Reviews(nn.Module):
    """Words embedded in 16 units, averaged over the review, and one hidden layer of 16. Padding counts as a word."""

    def __init__(self, words: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, _UNITS)
        self.layers = nn.Sequential(nn.Linear(_UNITS, _UNITS), nn.ReLU(), nn.Linear(_UNITS, outputs))

    def forward(self, words: Tensor) -> Tensor:
        """[reviews, outputs] of [reviews, length]."""
        scores: Tensor = self.layers(self.embedding(words).mean(1))
        return scores


class Ratings(nn.Module):
    """Five factors of person times five of film, ten more of each, and one layer over all."""

    def __init__(self, people: int, films: int, outputs: int) -> None:
        super().__init__()
        self.person, self.film = nn.Embedding(people, _FACTORS), nn.Embedding(films, _FACTORS)
        self.more_person, self.more_film = nn.Embedding(people, _MORE_FACTORS), nn.Embedding(films, _MORE_FACTORS)
        self.last = nn.Linear(_FACTORS + 2 * _MORE_FACTORS, outputs)

    def forward(self, pairs: Tensor) -> Tensor:
        """[pairs, outputs] of [pairs, 2]."""
        person, film = pairs[:, 0], pairs[:, 1]
        factors = [self.person(person) * self.film(film), self.more_person(person), self.more_film(film)]
        scores: Tensor = self.last(torch.cat(factors, 1))
        return scores


def is_own_model(name: str) -> bool:
    """Whether `--model` names a file and a function, and not a model that tacit ships."""
    return ":" in name


def make_own_model(spec: str, shape: tuple[int, ...], classes: int | None) -> nn.Module:
    """Call the user's function with the shape of one input and the number of classes, or without arguments.

    `classes` is None if the target is a number. The function never gets the data.
    """
    make = _load_function(spec)
    try:
        takes_none = not inspect.signature(make).parameters
        model = make() if takes_none else make(shape, classes)
    except TacitError:
        raise
    except Exception as error:
        raise InvalidArgument(f"--model {spec} failed: {type(error).__name__}: {error}. {_HOW}.") from error
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"--model {spec} must return a torch.nn.Module. It returned {model!r}.")
    return model


def _load_function(spec: str) -> Any:
    path, _, name = spec.rpartition(":")
    file = expand_home(path)
    if not file.is_file():
        raise InvalidArgument(f"--model {spec}: there is no file {file}. {_HOW}.")
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    if module_spec is None or module_spec.loader is None:
        raise InvalidArgument(f"--model {spec}: {file} is not a Python file. {_HOW}.")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidArgument(f"--model {spec}: {file} cannot be run: {type(error).__name__}: {error}.") from error
    made = getattr(module, name, None)
    if not callable(made):
        raise InvalidArgument(f"--model {spec}: {file} has no function {name}. {_HOW}.")
    return made
