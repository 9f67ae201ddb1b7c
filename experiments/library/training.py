"""Training for experiments: a model on a data set by a gradient method, tested after every epoch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tacit import Budget, Poisson, PrivateRun
from tacit.datasets import Data
from tacit.guarantee import Guarantee
from tacit.stages.mechanism import Mechanism
from tacit.workflows.scoring import loss_for, score


@dataclass(frozen=True)
class Schedule:
    """How a model is trained. `adam` takes the place of plain gradient steps."""

    lot_size: float
    epochs: float
    learning_rate: float
    adam: bool = False

    def steps(self, population: int) -> int:
        """How many there are."""
        return max(1, round(self.epochs * population / self.lot_size))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Plain descent, or Adam."""
        kind = torch.optim.Adam if self.adam else torch.optim.SGD
        return kind(model.parameters(), lr=self.learning_rate)


@dataclass(frozen=True)
class Trained:
    """Scores after every epoch and at the end, after how many steps, what was proven, the processor time of a step."""

    scores: list[float]
    scored_at: list[int]
    guarantee: Guarantee
    seconds_per_step: float


def train(
    model: nn.Module,
    data: Data,
    mechanism: Mechanism,
    schedule: Schedule,
    *,
    seed: int,
    budget: Budget | None = None,
    population: int | None = None,
    micro_batch: int | None = None,
) -> Trained:
    """A private run with a fixed seed: it can be repeated, and is not for release."""
    model = with_channels_last(model)
    population = len(data.train[0]) if population is None else population
    steps, per_epoch = schedule.steps(population), max(1, round(population / schedule.lot_size))
    run = PrivateRun(
        model,
        loss_for(data),
        data=data.train,
        mechanism=mechanism,
        sampling=Poisson(schedule.lot_size, population),
        steps=steps,
        budget=budget,
        seed=seed,
        micro_batch=micro_batch,
    )
    optimizer = schedule.optimizer(model)
    scores, scored_at, seconds = [], [], 0.0
    started = time.process_time()
    for number, lot in enumerate(run, start=1):
        run.backward(lot)
        optimizer.step()
        if number % per_epoch == 0 or number == steps:
            seconds += time.process_time() - started
            scores.append(scored(model, data))
            scored_at.append(number)
            started = time.process_time()
    return Trained(scores, scored_at, run.guarantee(), seconds / steps)


def train_without_noise(model: nn.Module, data: Data, schedule: Schedule, *, seed: int) -> list[float]:
    """The same without privacy: lots in a shuffled order. Scores after every epoch."""
    model = with_channels_last(model)
    inputs, targets = (torch.from_numpy(part) for part in data.train)
    loss, optimizer, size = loss_for(data), schedule.optimizer(model), int(schedule.lot_size)
    generator = torch.Generator().manual_seed(seed)
    scores = []
    for _ in range(max(1, round(schedule.epochs))):
        order = torch.randperm(len(inputs), generator=generator)
        for start in range(0, len(order), size):
            lot = order[start : start + size]
            optimizer.zero_grad()
            loss(model(inputs[lot]), targets[lot]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        scores.append(scored(model, data))
    return scores


def scored(model: nn.Module, data: Data) -> float:
    """The score, rounded. A classifier that diverged, and answers with no numbers, gets nothing right."""
    found = score(model, data)
    return 0.0 if found.name == "accuracy" and math.isnan(found.value) else rounded(found.value)


def with_channels_last(model: nn.Module) -> nn.Module:
    """The same model with images kept as rows of pixels, not of planes: torch's pooling takes a fifth of the time."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def rounded(value: float) -> float:
    """Five digits are more than any score has."""
    return round(float(value), 5)


def mean_and_spread(values: list[float], unit: str = " %", scale: float = 100.0, digits: int = 1) -> str:
    """A mean with the standard deviation over runs, where there are several."""
    scaled: list[Any] = [scale * value for value in values]
    mean = sum(scaled) / len(scaled)
    if len(scaled) == 1:
        return f"{mean:.{digits}f}{unit}"
    spread = (sum((value - mean) ** 2 for value in scaled) / (len(scaled) - 1)) ** 0.5
    return f"{mean:.{digits}f} ± {spread:.{digits}f}{unit}"
