"""Clipping in the metric of public Kronecker factors: its sensitivity, its algebra, and where its factors come from."""

import math

import numpy as np
import pytest
import torch
from experiments.kronecker.factors import KroneckerClip, find_factors, noise_images
from torch import nn
from torch.nn.functional import cross_entropy

from support.slow_gradients import SlowGradients
from tacit.gradients import per_example_gradients


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2), nn.GroupNorm(1, 3), nn.Tanh(), nn.Flatten(), nn.Linear(27, 4, bias=False)
    ).double()


def factors_of(model, damping=0.1):
    images = noise_images((1, 8, 8), 64, alpha=1.0, low=0.0, high=1.0, seed=0).double()
    return find_factors(model, images, 4, damping=damping, seed=0)


def gradients_of(model, count=6, scale=50.0):
    torch.manual_seed(1)
    found = per_example_gradients(
        model, cross_entropy, scale * torch.rand(count, 1, 8, 8).double(), torch.arange(count) % 4
    )
    return SlowGradients({name: rows.clone() for name, rows in found.dense().items()})


def length(values):
    return math.sqrt(sum(float(value.square().sum()) for value in values.values()))


@pytest.mark.parametrize("back", ["kept", "undone", "natural"])
def test_removing_any_example_moves_the_sum_by_at_most_the_norm(back):
    model = network()
    bound, lot = KroneckerClip(factors_of(model), 0.3, back), gradients_of(model)
    whole = bound.sum(lot, {})
    moves = [
        length({name: value - bound.sum(lot.without(i), {}).values[name] for name, value in whole.values.items()})
        for i in range(len(lot))
    ]
    assert whole.sensitivity == 0.3
    assert max(moves) == pytest.approx(0.3)
    received, _ = bound.receive(whole.values, {})
    assert {name: value.shape for name, value in received.items()} == {n: p.shape for n, p in model.named_parameters()}


def test_an_example_that_is_not_finite_contributes_zero():
    model = network()
    bound, lot = KroneckerClip(factors_of(model), 0.3), gradients_of(model)
    clean = bound.sum(lot.without(2), {}).values
    lot.dense()["0.weight"][2] = math.nan
    poisoned = bound.sum(lot, {}).values
    for name, value in clean.items():
        torch.testing.assert_close(poisoned[name], value)


def test_undone_the_unclipped_sum_is_that_of_the_gradients():
    model = network()
    bound, lot = KroneckerClip(factors_of(model), 1e9, "undone"), gradients_of(model)
    received, _ = bound.receive(bound.sum(lot, {}).values, {})
    for name, rows in lot.dense().items():
        torch.testing.assert_close(received[name], rows.sum(0))


def test_one_layer_is_whitened():
    """Where A and G are independent, as with one layer, the factors are those of the gradients themselves."""
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(5, 3)).double(), torch.randn(4000, 5).double() * torch.arange(1, 6)
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    factors = find_factors(model, inputs, 3, damping=1e-6, seed=0)
    labels = torch.randint(3, (4000,), generator=torch.Generator().manual_seed(0))
    rows = factors.whiten(per_example_gradients(model, cross_entropy, inputs, labels).dense())
    flat = torch.cat([rows["0.weight"], rows["0.bias"][:, :, None]], dim=2).flatten(1)
    assert float(flat.square().sum(1).mean()) == pytest.approx(1.0)
    # Scores add up to zero, so one direction in three is empty: the others have equal moments.
    moments = np.sort(np.linalg.eigvalsh((flat.T @ flat / len(flat)).numpy()))
    assert moments[:6] == pytest.approx(0.0, abs=1e-6)
    assert moments[6:] == pytest.approx(1 / 12, rel=0.2)


def test_noise_images_keep_to_the_range_of_pixels_and_pink_ones_are_smooth():
    pink, white = (noise_images((3, 16, 16), 32, alpha=a, low=-1.0, high=1.0, seed=0) for a in (1.0, 0.0))
    for images in (pink, white):
        assert images.shape == (32, 3, 16, 16)
        assert float(images.abs().max()) <= 1
    steps = [float((each[..., 1:] - each[..., :-1]).square().mean() / each.var()) for each in (pink, white)]
    assert steps[0] < 0.5 * steps[1]
