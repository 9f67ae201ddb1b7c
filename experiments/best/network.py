"""A small network from scratch, beside the linear models: what it reaches and how long it takes."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tacit
from tacit.datasets import Data
from tacit.networks import tempered_cnn


def train_network(data: Data, about: dict[str, Any], epsilon: float, delta: float, seed: int) -> dict[str, Any]:
    """The last weights, and their running mean, which costs nothing: both are functions of what was released."""
    torch.manual_seed(seed)
    model = tempered_cnn(data.shape, data.classes or 2)
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(about["averaging"]))
    run = tacit.PrivateRun(
        model,
        torch.nn.functional.cross_entropy,
        data=data.train,
        mechanism=tacit.methods.dpsgd(clip_norm=about["clip_norm"]),
        sampling=tacit.Poisson(lot_size=about["lot_size"], population=data.population),
        steps=round(about["epochs"] * data.population / about["lot_size"]),
        budget=tacit.Budget(epsilon=epsilon, delta=delta),
        seed=seed,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=about["learning_rate"], momentum=about["momentum"])
    for lot in run:
        run.backward(lot)
        optimizer.step()
        mean.update_parameters(model)
    certified = run.guarantee().epsilon(delta)
    return {"accuracy": _accuracy(model, data), "averaged": _accuracy(mean, data), "certified": certified}


def _accuracy(model: torch.nn.Module, data: Data) -> float:
    inputs, labels = (torch.from_numpy(part) for part in data.test)
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).sum() for x, y in zip(inputs.split(2000), labels.split(2000), strict=True)]
    return float(torch.stack(hits).sum()) / len(labels)
