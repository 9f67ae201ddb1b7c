"""One private run of a small network from scratch, as all runs of this experiment are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from experiments.gaussian_dp.data import network
from experiments.library.training import scored, with_channels_last
from torch import nn

from tacit import Budget, PrivateRun
from tacit.datasets import Data
from tacit.stages.mechanism import Mechanism
from tacit.training.fit import fit
from tacit.types import Sampling
from tacit.workflows.defaults import network_for
from tacit.workflows.scoring import loss_for

_READY: dict[tuple[str, int, int], Data] = {}


def prepare(data: Data, most_rows: int, last: int) -> Data:
    """At most so many examples; with `last`, so many of those to train on are scored in place of the test examples."""
    key = (data.name, most_rows, last)
    if key not in _READY:
        # Images in single precision take a gigabyte: one data set at a time, with and without examples held out.
        for each in [each for each in _READY if each[0] != data.name]:
            del _READY[each]
        _READY[key] = hold_out(cut(data, most_rows), last) if last else cut(data, most_rows)
    return _READY[key]


def cut(data: Data, most_rows: int) -> Data:
    """At most so many examples, evenly spaced: reviews come sorted by label."""
    step = max(1, len(data.train[0]) // most_rows)
    if step == 1:
        return data
    (inputs, targets), (others, answers) = data.train, data.test
    train, test = (inputs[::step], targets[::step]), (others[::step], answers[::step])
    return replace(data, train=train, test=test, population=-(-data.population // step))


def hold_out(data: Data, last: int) -> Data:
    """Some training examples in the place of the test examples: in a public random order, the last ones."""
    order = torch.randperm(len(data.train[0]), generator=torch.Generator().manual_seed(0)).numpy()
    kept, scored_rows = order[:-last], order[-last:]
    inputs, targets = data.train
    train, test = (inputs[kept], targets[kept]), (inputs[scored_rows], targets[scored_rows])
    return replace(data, train=train, test=test, population=data.population - last)


def new_model(data: Data, about: Mapping[str, Any], seed: int) -> nn.Module:
    """The network with first weights of this seed."""
    torch.manual_seed(seed)
    if about["model"] == "embedding":
        return network(data, None)
    return with_channels_last(network_for(about["model"], data))


def train(
    model: nn.Module,
    data: Data,
    about: Mapping[str, Any],
    mechanism: Mechanism,
    sampling: Sampling,
    *,
    budget: Budget,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Accuracy on the test examples, what is certified, and the noise. The seed makes the run no release."""
    torch.set_num_threads(1)
    run = PrivateRun(
        model,
        loss_for(data),
        data=data.train,
        mechanism=mechanism,
        sampling=sampling,
        steps=about["steps"],
        budget=budget,
        seed=seed,
    )
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[about["optimizer"]]
    fit(run, kind(model.parameters(), lr=rate))
    certified = run.guarantee().epsilon(budget.delta)
    return {"accuracy": scored(model, data), "certified": certified, "multiplier": run.multiplier}
