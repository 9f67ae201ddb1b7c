"""A norm that finds its own level, and does not get lost."""

import math

import pytest
import torch

from tacit.stages.bounds import QuantileClip
from tacit.stages.bounds.clip import COUNT


def level_after(steps, count_per_step, bound):
    state = bound.init({}, 10.0)
    for _ in range(steps):
        noisy = {COUNT: torch.tensor([count_per_step * bound._weight(float(state["norm"]))])}
        _, state = bound.receive(noisy, state)
    return float(state["norm"])


def test_the_norm_follows_the_quantile():
    bound = QuantileClip(start=2.0, quantile=0.5)
    assert level_after(1, 10.0, bound) == pytest.approx(2.0 * math.exp(-0.2 * 0.5))
    assert level_after(1, -10.0, bound) == pytest.approx(2.0 * math.exp(0.2 * 0.5))


def test_the_norm_stays_among_numbers_that_noise_can_be_drawn_for():
    """Where all gradients vanish, or none does, the norm would go to zero or to infinity within some hundred steps."""
    assert 1e-13 < level_after(8000, 10.0, QuantileClip(quantile=0.0)) < 1e-11
    assert 1e11 < level_after(8000, -10.0, QuantileClip()) < 1e13
