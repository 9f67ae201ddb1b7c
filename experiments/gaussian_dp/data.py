"""The data and networks of tables 2 to 4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from tacit.cli.networks import network_for
from tacit.datasets import Data


def adult(data: Data, share: float, seed: int) -> Data:
    """The examples of a9a with a random part of them to test on, as in the paper; a9a.t is not used."""
    inputs, targets = data.train
    order = np.random.default_rng(seed).permutation(len(inputs))
    held_out, kept = np.split(order, [round(share * len(inputs))])
    return replace(data, train=(inputs[kept], targets[kept]), test=(inputs[held_out], targets[held_out]))


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
