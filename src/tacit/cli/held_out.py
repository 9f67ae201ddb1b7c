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

from tacit.cli.networks import Score, outputs_of
from tacit.noise import GaussianNoise
from tacit.randomness import Purpose, source_for
from tacit.types import BoundedSum

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.run import PrivateRun


def held_out_score(model: nn.Module, data: Data, run: PrivateRun, seed: int | None) -> Score | None:
    """The score, with noise. None where there are no such rows, or the method's noise is not Gaussian.

    Every call is a release: call it once.
    """
    noise = run.mechanism.noise
    if not isinstance(noise, GaussianNoise) or run.mechanism.guide is not None or not len(data.test[1]):
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
    if data.classes is None:
        return Score("rmse", data.unit * math.sqrt(_share(first, second)))
    return Score("accuracy", _share(first, first + second))


def _terms(model: nn.Module, data: Data) -> tuple[Tensor, float]:
    """Two numbers per row, whose sums make the score, and how long they are together at most."""
    outputs, targets = outputs_of(model, data.test[0]), torch.from_numpy(data.test[1])
    if data.classes is None:
        squared = torch.nan_to_num((outputs - targets).square().double(), nan=1.0).clamp(0, 1)
        return torch.cat([squared, torch.ones_like(squared)], 1), math.sqrt(2)
    right = (outputs.argmax(1) == targets).double()
    return torch.stack([right, 1 - right], 1), 1.0


def _share(part: float, whole: float) -> float:
    """Noise may leave less than nothing of either."""
    return min(max(part, 0.0) / whole, 1.0) if whole > 0 else 0.0
