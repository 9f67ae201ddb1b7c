"""How well a model does on private rows that were held out: measured as it was trained, in lots and with noise.

A row is either trained on or held out, and its own hash says which. So if the score costs held-out rows what training
costs the others, one guarantee covers every row. It does: the score is read off as many lots, drawn at the same rate,
whose two counts (or sums) get the same noise over the same sensitivity as the gradients had.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tacit.cli.networks import Score, outputs_of, right_ones
from tacit.noise import GaussianNoise
from tacit.randomness import Purpose, source_for
from tacit.report.intervals import NoisyShare
from tacit.types import BoundedSum

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.run import PrivateRun


def held_out_score(model: nn.Module, data: Data, run: PrivateRun, seed: int | None) -> Score | None:
    """The score, with noise. None where no rows were to be held out, or the method's noise is not Gaussian.

    Both are public. That no row happens to be held out is not, and then there is a score of nothing but noise.
    Every call is a release: call it once. Its interval is made of what is released, and so costs nothing more.
    """
    noise = run.mechanism.noise
    if not isinstance(noise, GaussianNoise) or run.mechanism.guide is not None or not data.is_tested:
        return None
    terms, sensitivity = _terms(model, data)
    # With a seed, other noise than the one that the gradients had.
    source = source_for(None if seed is None else seed + 2**64)
    total = torch.zeros(2, dtype=torch.float64)
    for step in range(run.steps):
        lot = run.sampling.lot(len(terms), source.stream(Purpose.LOT, step), step)
        bounded = BoundedSum({"terms": terms[torch.from_numpy(lot)].sum(0)}, sensitivity)
        total += noise.add(bounded, source.stream(Purpose.NOISE, step))["terms"]
    first, second = total.tolist()
    variance = run.steps * (run.multiplier * sensitivity) ** 2
    sampled = run.steps, run.sampling.lot_size / run.sampling.population
    if data.classes is None:
        return _error(NoisyShare(first, second, (variance, 0.0, variance), *sampled), data.unit)
    found = NoisyShare(first, first + second, (variance, -2 * variance, 2 * variance), *sampled)
    return Score("accuracy", found.value, found.interval, found.noise_std)


def _error(mean: NoisyShare, unit: float) -> Score:
    """The root of a mean squared error that lies in [0, 1], in the target's own unit."""
    root, std = math.sqrt(mean.value), mean.noise_std
    # Of a root, the noise is that of the mean over twice the root; at 0 it has no such scale.
    scale = None if std is None or root == 0 else unit * std / (2 * root)
    return Score("rmse", unit * root, [unit * math.sqrt(end) for end in mean.interval], scale)


def _terms(model: nn.Module, data: Data) -> tuple[Tensor, float]:
    """Two numbers per row, whose sums make the score, and how long they are together at most."""
    sensitivity = 1.0 if data.classes is not None else math.sqrt(2)
    if not len(data.test[1]):
        # Not every network takes a batch of none.
        return torch.zeros(0, 2, dtype=torch.float64), sensitivity
    outputs, targets = outputs_of(model, data.test[0]), torch.from_numpy(data.test[1])
    if data.classes is None:
        squared = torch.nan_to_num((outputs - targets).square().double(), nan=1.0).clamp(0, 1)
        return torch.cat([squared, torch.ones_like(squared)], 1), sensitivity
    right = right_ones(outputs, targets).double()
    return torch.stack([right, 1 - right], 1), sensitivity
