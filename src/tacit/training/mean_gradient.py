"""The mean gradient of all the data, in pieces: what a method may steer its noise by, at the price of releasing it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tacit.stages.bounds.clip import finite_only
from tacit.training.lots import Examples, on_device
from tacit.types import BoundedSum, PerExampleGradients, Tensors

# How many examples go through the model at once, unless a micro-batch is declared.
_AT_ONCE = 1024


def whole_mean(
    examples: Examples,
    gradients: Callable[[Any, Any], PerExampleGradients],
    like: Tensors,
    population: int,
    *,
    micro_batch: int | None,
    seeds: Iterator[int] | None,
) -> BoundedSum:
    """The sum of all gradients over the public population. Nothing bounds what one example does to it.

    An example whose gradient is not finite counts zero. `seeds`, one a piece, are for random transforms of the data.
    """
    size = micro_batch or _AT_ONCE
    device = next(iter(like.values())).device
    total = {name: torch.zeros_like(value) for name, value in like.items()}
    pieces = (np.arange(start, min(start + size, len(examples))) for start in range(0, len(examples), size))
    for inputs, targets in examples.fetch(pieces, seeds):
        found = gradients(*on_device((inputs, targets), device))
        norms = found.norms()
        for name, value in found.weighted_sum(finite_only(norms, torch.ones_like(norms))).items():
            total[name] += value
    return BoundedSum({name: value / population for name, value in total.items()}, math.inf)
