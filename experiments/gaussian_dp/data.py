"""The data and networks of tables 2 to 4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tacit.datasets import Array, Data, imdb, read_from
from tacit.workflows.defaults import network_for


def adult(data: Data, share: float, seed: int) -> Data:
    """The examples of a9a with a random part of them to test on, as in the paper; a9a.t is not used."""
    inputs, targets = data.train
    order = np.random.default_rng(seed).permutation(len(inputs))
    held_out, kept = np.split(order, [round(share * len(inputs))])
    return replace(data, train=(inputs[kept], targets[kept]), test=(inputs[held_out], targets[held_out]))


def last_words(data: Data) -> Data:
    """Reviews without the words that are not used, and the last of what is left.

    The paper discards rare words; that it keeps the ends of long reviews is what its framework does unless told.
    """
    found = read_from(data.name, None, imdb.read_numbers)
    train, test = ((_ends(numbers), labels) for numbers, labels in found)
    return replace(data, train=train, test=test)


def _ends(numbered: list[Array]) -> Array:
    """[reviews, 256] numbers of words that are used, with zeros after the end."""
    words = np.zeros((len(numbered), imdb.LENGTH), dtype=np.int64)
    for row, review in zip(words, numbered, strict=True):
        end = review[(review >= 2) & (review < imdb.WORDS)][-imdb.LENGTH :]
        row[: len(end)] = end
    return words


def classified(data: Data) -> Data:
    """Ratings as classes 0 to 4 for one to five stars, as in the paper."""
    train, test = ((inputs, _stars(targets, data.unit) - 1) for inputs, targets in (data.train, data.test))
    return replace(data, train=train, test=test, classes=5, unit=1.0)


def _stars(targets: Array, unit: float) -> Array:
    return np.clip(np.rint(targets[:, 0] * unit), 1, 5).astype(np.int64)


def expected_star_error(model: nn.Module, data: Data) -> float:
    """Root mean squared error of the expected star, in stars."""
    probabilities = _probabilities(model, data)
    return _error(probabilities @ torch.arange(5.0), data)


def likeliest_star_error(model: nn.Module, data: Data) -> float:
    """Root mean squared error of the most likely star, in stars."""
    return _error(_probabilities(model, data).argmax(1).float(), data)


def _probabilities(model: nn.Module, data: Data) -> Tensor:
    with torch.no_grad():
        scores: Tensor = model(torch.from_numpy(data.test[0]))
    return scores.softmax(1)


def _error(predicted: Tensor, data: Data) -> float:
    return round(float((predicted - torch.from_numpy(data.test[1])).square().mean().sqrt()), 5)


def network(data: Data, hidden: int | None) -> nn.Module:
    """One hidden layer with rectifiers for a table, or the paper's embeddings for words, people and films."""
    if hidden is None:
        return _started(network_for("embedding", data))
    return _started(nn.Sequential(nn.Linear(data.shape[0], hidden), nn.ReLU(), nn.Linear(hidden, data.classes or 1)))


def _started(module: nn.Module) -> nn.Module:
    """First weights as the paper's framework draws them: torch's own embeddings are thirty times as large."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.uniform_(part.weight, -0.05, 0.05)
        elif isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
    return module
