"""Gradient methods of `tacit.PrivateRun` in the form of the other ERM methods: fit(x, y, ...), linear or a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit import Budget, Poisson, PrivateRun, methods
from tacit.erm import Loss
from tacit.erm.noisy_networks import example_losses
from tacit.guarantee import Guarantee
from tacit.stages.mechanism import Mechanism
from tacit.training.fit import fit

STEPS, LOT_SIZE, CLIP_NORM, STEP_SIZE = 100, 256, 1.0, 1.0


@dataclass(frozen=True, eq=False)
class Trained:
    """A module after its run."""

    module: torch.nn.Module
    guarantee: Guarantee

    def scores(self, x: Any) -> Any:
        """The scores [examples, outputs]."""
        with torch.no_grad():
            return self.module(torch.as_tensor(np.asarray(x), dtype=torch.float32)).double().numpy()


def noisy_descent(method: str) -> Callable[..., Trained]:
    """Noisy gradient steps on Poisson lots by this method, from weights that do not depend on the data."""

    def fit(x: Any, y: Any, *, epsilon: float, delta: float, mode: str = "rigorous", **about: Any) -> Trained:
        mechanism = methods.GRADIENT_METHODS[method](CLIP_NORM, mode=mode)
        return _descend(x, y, mechanism, Budget(epsilon, delta), **about)

    return fit


def _descend(
    x: Any, y: Any, mechanism: Mechanism, budget: Budget, *, loss: Loss, regularisation: float, seed: int, **about: Any
) -> Trained:
    """`about` may have a `module`. Its `data_norm` is of no use here: gradients are clipped, whatever the rows are."""
    model = about.get("module") or linear(x.shape[1], loss.outputs)
    targets = torch.from_numpy(np.asarray(loss.encode(y), dtype=np.float32))
    run = PrivateRun(
        model,
        lambda scores, wanted: example_losses(loss, scores, wanted).mean(),
        data=(torch.as_tensor(x, dtype=torch.float32), targets),
        mechanism=mechanism,
        sampling=Poisson(lot_size=min(LOT_SIZE, len(x) // 4), population=len(x)),
        steps=STEPS,
        budget=budget,
        seed=seed,
    )
    # The regulariser is no function of the data: its gradient comes after the noise, and costs nothing.
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP_SIZE, weight_decay=regularisation)
    fit(run, optimizer)
    return Trained(model.eval(), run.guarantee())


def linear(features: int, outputs: int) -> torch.nn.Module:
    """A linear model that starts from zero."""
    model = torch.nn.Linear(features, outputs)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    return model


def one_hidden_layer(features: int, outputs: int, seed: int) -> torch.nn.Module:
    """The network of Kang et al.: one hidden layer as wide as the input."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Linear(features, features), torch.nn.ReLU(), torch.nn.Linear(features, outputs)
        )
