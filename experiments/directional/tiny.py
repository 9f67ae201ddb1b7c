"""Figure 1's network, and the time of a step without privacy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from .networks import Tiny

# What is added to each of two parameters.
SHIFTS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]


def surfaces(*, examples: int, epochs: int, seed: int) -> dict[str, Any]:
    """The cost of the trained network while two of its parameters are moved: (theta_1, b_3) and (theta_6, b_3)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(examples, 2, generator=generator)
    # The nearest whole number of each input: the output is 1 if both are.
    y = (x.round().sum(1) == 2).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for lot in torch.randperm(examples, generator=generator).split(20):
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(model(x[lot]), y[lot]).backward()
            optimizer.step()
    accuracy = float(((model(x) > 0) == (y > 0.5)).double().mean())
    places = {"theta_1": (model.hidden.weight, (0, 0)), "theta_6": (model.output.weight, (0, 1))}
    b_3 = (model.output.bias, (0,))
    found = {name: _surface(model, x, y, place, b_3) for name, place in places.items()}
    return {"accuracy": accuracy, "shifts": SHIFTS, **found}


def _surface(model: nn.Module, x: Any, y: Any, first: Any, second: Any) -> list[list[float]]:
    costs = []
    with torch.no_grad():
        for one in SHIFTS:
            first[0][first[1]] += one
            row = []
            for other in SHIFTS:
                second[0][second[1]] += other
                row.append(round(float(binary_cross_entropy_with_logits(model(x), y)), 6))
                second[0][second[1]] -= other
            first[0][first[1]] -= one
            costs.append(row)
    return costs


def ranges(surface: list[list[float]]) -> list[list[float]]:
    """The least and largest derivative by the first parameter and by b_3, from differences between grid points."""
    step, cost = SHIFTS[1] - SHIFTS[0], np.array(surface)
    slopes = (np.diff(cost, axis=axis) / step for axis in (0, 1))
    return [[round(float(each.min()), 4), round(float(each.max()), 4)] for each in slopes]


def plain_step_seconds(model: nn.Module, data: Any, lot_size: int, steps: int) -> float:
    """Processor seconds of an ordinary gradient step."""
    inputs, targets = (torch.from_numpy(part) for part in data.train)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    started = time.process_time()
    for step in range(steps):
        lot = slice(step * lot_size % len(inputs), step * lot_size % len(inputs) + lot_size)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[lot]), targets[lot]).backward()
        optimizer.step()
    return (time.process_time() - started) / steps
