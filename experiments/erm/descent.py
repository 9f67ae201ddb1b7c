"""DP-SGD and DP-LSSGD by `tacit.PrivateRun`, stated for one example replaced by another like every other method here.

Gradients on Poisson lots are accounted for one example added or removed. What is (e, d)-DP for that is
(2 e, (1 + exp(e)) d)-DP for one example replaced: one is removed, then another added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tacit import Budget, Poisson, PrivateRun, methods
from tacit.accounting import Gaussian, curve, multiplier_for
from tacit.accounting.events import Adjacency, EpsilonDelta
from tacit.accounting.rdp import RenyiProfile
from tacit.erm import Loss
from tacit.erm.noisy_networks import example_losses
from tacit.guarantee import Guarantee
from tacit.methods.dp_lssgd import VarianceRule
from tacit.training.fit import fit

CLIP_NORM, MOST_IN_LOT = 1.0, 512
# The moments accountant: whole orders to 64, then half powers of two, so that it reaches an epsilon of 0.005.
ORDERS = (*(float(order) for order in range(2, 65)), *(64 * 2 ** (half / 2) for half in range(1, 24)))


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
        rate, steps = min(MOST_IN_LOT, len(x) // 4) / len(x), about["steps"]
        if mode == "paper" and method == "dp_lssgd":
            # This theorem is about replaced examples already.
            multiplier = VarianceRule().multiplier(Budget(epsilon, delta), rate, steps)
        else:
            find = moments_multiplier if mode == "paper" else _proven_multiplier
            multiplier = find(*halved(epsilon, delta), rate, steps)
        mechanism = methods.GRADIENT_METHODS[method](CLIP_NORM, multiplier)
        proven = replaced_epsilon(multiplier, rate, steps, delta)
        event = EpsilonDelta(proven, delta, Adjacency.REPLACE_ONE)
        return _descend(x, y, mechanism, rate, Guarantee(event, delta, method=method, mode=mode), **about)

    return fit


def halved(epsilon: float, delta: float) -> tuple[float, float]:
    """What to keep for one example added or removed, so that (epsilon, delta) holds for one replaced."""
    return epsilon / 2, delta / (1 + math.exp(epsilon / 2))


@lru_cache(maxsize=1024)
def replaced_epsilon(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon for one example replaced, within 0.1 %, from above."""
    known = curve(Gaussian(multiplier).sampled(rate) * steps)
    low, high = 0.0, 2 * known.epsilon(delta / 2)
    # A smaller epsilon asks for a larger delta of each hop.
    while known.epsilon(halved(high, delta)[1]) > high / 2:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if known.epsilon(halved(middle, delta)[1]) <= middle / 2 else (middle, high)
    return high


@lru_cache(maxsize=1024)
def moments_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The noise of Abadi et al.'s moments accountant with the orders above, for one example added or removed."""

    def spent(multiplier: float) -> float:
        profile = RenyiProfile.of(Gaussian(multiplier).sampled(rate) * steps, ORDERS, "classical")
        return profile.epsilon(delta).upper

    low, high = 0.3, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


@lru_cache(maxsize=1024)
def _proven_multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    return multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=steps)


def _descend(
    x: Any,
    y: Any,
    mechanism: Any,
    rate: float,
    guarantee: Guarantee,
    *,
    loss: Loss,
    regularisation: float,
    steps: int,
    step_size: float,
    seed: int,
    **about: Any,
) -> Trained:
    """`about` may have a `module`. Its `data_norm` is of no use here: gradients are clipped, whatever the rows are."""
    model = about.get("module") or linear(x.shape[1], loss.outputs)
    targets = torch.from_numpy(np.asarray(loss.encode(y), dtype=np.float32))
    run = PrivateRun(
        model,
        lambda scores, wanted: example_losses(loss, scores, wanted).mean(),
        data=(torch.as_tensor(x, dtype=torch.float32), targets),
        mechanism=mechanism,
        sampling=Poisson(lot_size=rate * len(x), population=len(x)),
        steps=steps,
        seed=seed,
    )
    # The regulariser is no function of the data: its gradient comes after the noise, and costs nothing.
    fit(run, torch.optim.SGD(model.parameters(), lr=step_size, weight_decay=regularisation))
    return Trained(model.eval(), guarantee)


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
