"""Chains of plain layers take a shorter way, and it must be the same way."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from support.slow_gradients import slow_gradients
from tacit.gradients import per_example_gradients
from tacit.gradients.chains import chain_of

X, Y = torch.randn(7, 6), torch.randint(3, (7,))


def tied():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.ReLU(inplace=True), nn.Linear(6, 3, bias=False))


def frozen():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


CHAINS = {"one": lambda: nn.Linear(6, 3), "tied": tied, "frozen": frozen}


@pytest.mark.parametrize("build", CHAINS.values(), ids=CHAINS)
def test_a_chain_agrees_with_single_passes(build):
    model = build()
    assert chain_of(model) is not None
    found, expected = per_example_gradients(model, cross_entropy, X, Y), slow_gradients(model, cross_entropy, X, Y)
    weights = torch.rand(7)
    assert torch.allclose(found.norms(), expected.norms(), rtol=1e-5)
    sums, slow_sums = found.weighted_sum(weights), expected.weighted_sum(weights)
    for name, value in expected.dense().items():
        assert torch.allclose(found.dense()[name], value, atol=1e-6)
        assert torch.allclose(sums[name], slow_sums[name], atol=1e-6)


def test_hooks_are_not_left_out():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    before = per_example_gradients(model, cross_entropy, X, Y).norms()
    model[0].register_forward_hook(lambda module, args, out: 3 * out)
    assert chain_of(model) is None
    after = per_example_gradients(model, cross_entropy, X, Y).norms()
    assert not torch.allclose(before, after)
    assert torch.allclose(after, slow_gradients(model, cross_entropy, X, Y).norms(), rtol=1e-5)


@pytest.mark.parametrize(
    "model",
    [nn.Conv1d(6, 3, 1), nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)), nn.Sequential(nn.LSTM(6, 3))],
    ids=["convolution", "parametrised", "recurrent"],
)
def test_other_models_are_watched(model):
    assert chain_of(model) is None


def test_a_chain_works_where_gradients_are_off():
    model = nn.Linear(6, 3)
    with torch.no_grad():
        off = per_example_gradients(model, cross_entropy, X, Y).norms()
    assert torch.equal(off, per_example_gradients(model, cross_entropy, X, Y).norms())
