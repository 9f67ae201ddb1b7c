"""Training for experiments: a model on a data set by a gradient method, tested after every epoch."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from experiments.library.records import Record
from torch import nn

from tacit import Budget, Poisson, PrivateRun
from tacit.datasets import Data
from tacit.datasets._data import Examples
from tacit.guarantee import Guarantee
from tacit.methods.noisy_adam import PrintedAdam
from tacit.stages.mechanism import Mechanism
from tacit.types import Sampling
from tacit.workflows.scoring import loss_for, score


@dataclass(frozen=True)
class Schedule:
    """How a model is trained. `adam` takes the place of plain gradient steps."""

    lot_size: float
    epochs: float
    learning_rate: float
    adam: bool | Literal["printed"] = False

    def steps(self, population: int) -> int:
        """How many there are."""
        return max(1, round(self.epochs * population / self.lot_size))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Plain descent, Adam, or Adam without bias correction ("printed")."""
        if self.adam == "printed":
            return PrintedAdam(model.parameters(), lr=self.learning_rate)
        kind = torch.optim.Adam if self.adam else torch.optim.SGD
        return kind(model.parameters(), lr=self.learning_rate)


@dataclass(frozen=True)
class Trained:
    """Scores after every epoch and at the end, after how many steps, what was proven, the processor time of a step.

    `held_out` are the scores on images held out, if there were any.
    """

    scores: list[float]
    scored_at: list[int]
    guarantee: Guarantee
    seconds_per_step: float
    held_out: list[float]


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
    sampling: Sampling | None = None,
    held_out: Data | None = None,
    score_by: Callable[[nn.Module, Data], float] | None = None,
) -> Trained:
    """A private run with a fixed seed: it can be repeated, and is not for release. Lots are Poisson samples by default.

    `held_out` is data whose `test` is scored too: training rows that are in no run, for choosing a learning rate.
    `score_by` scores a model in place of its accuracy or error.
    """
    model = with_channels_last(model)
    population = len(data.train[0]) if population is None else population
    steps, per_epoch = schedule.steps(population), max(1, round(population / schedule.lot_size))
    run = PrivateRun(
        model,
        loss_for(data),
        data=data.train,
        mechanism=mechanism,
        sampling=sampling or Poisson(schedule.lot_size, population),
        steps=steps,
        budget=budget,
        seed=seed,
        micro_batch=micro_batch,
    )
    optimizer, by = schedule.optimizer(model), score_by or scored
    scores, scored_at, others, seconds = [], [], [], 0.0
    started = time.process_time()
    for number, lot in enumerate(run, start=1):
        run.backward(lot)
        optimizer.step()
        if number % per_epoch == 0 or number == steps:
            seconds += time.process_time() - started
            scores.append(by(model, data))
            others += [] if held_out is None else [by(model, held_out)]
            scored_at.append(number)
            started = time.process_time()
    return Trained(scores, scored_at, run.guarantee(), seconds / steps, others)


def split(data: Data, examples: int, held_out: int, tested: int) -> tuple[Data, Data]:
    """The first training rows, tested on the first test rows; and the same with the next training rows as the test."""
    end = examples + held_out
    small = replace(data, train=_part(data.train, 0, examples), test=_part(data.test, 0, tested))
    return small, replace(small, test=_part(data.train, examples, end))


def _part(rows: Examples, start: int, end: int) -> Examples:
    return rows[0][start:end], rows[1][start:end]


def train_without_noise(
    model: nn.Module,
    data: Data,
    schedule: Schedule,
    *,
    seed: int,
    score_by: Callable[[nn.Module, Data], float] | None = None,
) -> list[float]:
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
        scores.append((score_by or scored)(model, data))
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


def select(records: list[Record], part: str, **asked: Any) -> list[Record]:
    """The records of a part of which these things were asked."""
    return [
        each
        for each in records
        if each.part == part and all(each.asked.get(name) == value for name, value in asked.items())
    ]


def choose_rate(records: list[Record], part: str, rates: list[float], seeds: list[int], **asked: Any) -> float | None:
    """The learning rate with the best mean accuracy over these seeds; None until all were tried."""
    scores: dict[float, list[float]] = {rate: [] for rate in rates}
    for record in select(records, part, **asked):
        if record.asked["rate"] in scores and record.asked["seed"] in seeds:
            scores[record.asked["rate"]].append(record.found["accuracy"])
    if any(len(each) < len(seeds) for each in scores.values()):
        return None
    return max(scores, key=lambda rate: statistics.mean(scores[rate]))


def difference_by_seed(one: list[Record], other: list[Record]) -> str:
    """How much more accurate one is, in points, with the standard error over the seeds that both have."""
    by_seed = [{each.asked["seed"]: each.found["accuracy"] for each in records} for records in (one, other)]
    both = sorted(by_seed[0].keys() & by_seed[1].keys())
    found = [100 * (by_seed[0][seed] - by_seed[1][seed]) for seed in both]
    if len(found) < 2:
        return f"{found[0]:+.2f}" if found else "–"
    return f"{statistics.mean(found):+.2f} (± {statistics.stdev(found) / math.sqrt(len(found)):.2f})"
