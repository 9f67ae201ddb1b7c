"""Gradients on a device: no step waits for it. Meta tensors stand for one, because asking them for a number fails."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tacit.gradients import trainable
from tacit.gradients.backends import keep_books
from tacit.gradients.checks import find_layout
from tacit.gradients.rules.embedding import TableContribution
from tacit.stages.bounds import Clip


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.scores = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.scores(self.layer(self.words(tokens)).mean(1))


NETWORKS = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), (6, 4)),
    "layer norm": (lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), (6, 4)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
        (6, 1, 5, 5),
    ),
    "bag of words": (lambda: nn.Sequential(nn.Embedding(20, 5), nn.Flatten(), nn.Linear(20, 3)), (6, 4)),
    "attention": (Attention, (6, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_never_waits_for_the_device(name, monkeypatch):
    make, shape = NETWORKS[name]
    has_tokens = name in ("bag of words", "attention")
    inputs = torch.randint(0, 20, shape) if has_tokens else torch.randn(shape)
    targets, network = torch.randint(0, 3, shape[:1]), make()
    # The examination of the first lots looks at numbers, and is over.
    layout = find_layout(network, cross_entropy, trainable(network), inputs, targets)
    layout.proofs = 100
    known = torch.is_autocast_enabled
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind=None: kind != "meta" and known(kind))
    network.to("meta")
    parameters = trainable(network)
    gradients = keep_books(network, cross_entropy, inputs.to("meta"), targets.to("meta"), parameters, layout)
    found = Clip(1.0).sum(gradients, {}).values
    assert {key: (each.device.type, each.shape) for key, each in found.items()} == {
        key: ("meta", each.shape) for key, each in parameters.items()
    }


@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_repeated_tokens_count_once_on_a_device_too(padding, is_scaled):
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 5, (7, 9), generator=draw)
    table = TableContribution(torch.randn(7, 9, 3, generator=draw), tokens, 5, padding)
    scale = torch.rand(5, 3, generator=draw) if is_scaled else None
    rows = table.dense() if scale is None else table.dense() * scale
    expected = rows.flatten(1).square().sum(1)
    for part in (slice(0, 7), slice(2, 5)):
        torch.testing.assert_close(table._square_on_device(part, scale), expected[part])
        torch.testing.assert_close(table._square_some_norms(part, scale), expected[part])
