"""Linear regression of tables by recipe: whitened ramps, a private mean and scale of the targets, noisy gradients.

The gradient of squared loss grows with the residual, so a clip norm needs the scale of residuals. It is not declared:
sum and sum of squares of the targets are released once, with noise, and targets are standardised by them. Gradients are
then clipped where a residual is longer than one standard deviation, as Huber's loss would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate
from tacit.accounting.events import Event, Gaussian
from tacit.budget import Budget
from tacit.features import Knots, PrivateWhitening
from tacit.guarantee import Assumption, Guarantee
from tacit.methods.dpsgd import dpsgd
from tacit.randomness import Purpose, source_for
from tacit.recipes.recipe import MOMENTUM
from tacit.recipes.run import PreparedInputs
from tacit.stages.noise import GaussianNoise
from tacit.stages.sampling import FullBatch
from tacit.training.fit import fit
from tacit.training.plan import NOTHING_FITTED_BEFORE
from tacit.training.run import PrivateRun
from tacit.types import BoundedSum

STEPS = 200
# Gradients of squared loss are twice the residual, so this clips residuals longer than one standard deviation.
CLIP_NORM = 2.0
# Of the squared budget, for the mean and moments of the features, and for the targets; three releases of equal noise.
SHARE, RELEASES = 0.12, 3
# The noise that gathers in a weight, in standard deviations of the target: enough for all directions to be learnt,
# which takes about _ENOUGH steps of rate one per column, and at most _MOST.
_ENOUGH, _MOST = 3.0, 0.3
_TARGET_STREAM = 2**32 + 3
_AFTERWARDS = Assumption(
    "prepared_by_release",
    "The model's first weights did not depend on the examples, nor did their features, but for mean and second moments "
    "that were released first, and for the mean and the scale of the targets.",
)


@dataclass(frozen=True, eq=False)
class TrainedRegression:
    """A model over prepared rows, the released mean and scale of the targets, and the guarantee of all releases."""

    prepared: PreparedInputs
    model: nn.Module
    mean: float
    scale: float
    guarantee: Guarantee

    def predict(self, rows: Any) -> NDArray[np.float64]:
        """The expected target of each row, in units of the declared bound; never outside it."""
        with torch.no_grad():
            scores = self.model(self.prepared.tensor(rows))[:, 0].double().numpy()
        return np.asarray(np.clip(self.mean + self.scale * scores, -1, 1))


def train_regression(
    rows: Any, targets: NDArray[np.float64], *, numbers: int, budget: Budget, seed: int | None
) -> TrainedRegression:
    """Train on rows whose first `numbers` columns are in [-1, 1], and targets in [-1, 1], within the budget.

    The number of rows is taken to be public. A target outside [-1, 1] is moved to the nearer end.
    """
    features, population = Knots(numbers).fit(rows), len(targets)
    ramps = features.transform(rows)
    mu = float(gdp.mu(budget.epsilon, budget.delta))
    gathered = min(_MOST, _ENOUGH * ramps.shape[1] * CLIP_NORM / 2 / (mu * population))
    multiplier = math.sqrt(RELEASES / SHARE) / mu
    before: tuple[Event, ...] = (GaussianNoise(multiplier).event(1),) * RELEASES

    def cost(step: float) -> Event:
        return reduce(add, (*before, Gaussian(step) * STEPS))

    step = calibrate(cost, epsilon=budget.epsilon, delta=budget.delta, guess=math.sqrt(STEPS) / mu)
    whitening = PrivateWhitening(multiplier, population, axes=(ramps.shape[1],), random_state=seed).fit(ramps)
    mean, scale, spent = release_scale(targets, multiplier=multiplier, population=population, seed=seed)
    prepared = PreparedInputs("table", features, whitening)
    model = prepared.model(ramps.shape[1], 1)
    standard = (np.clip(targets, -1, 1) - mean) / scale
    mechanism = dpsgd(clip_norm=CLIP_NORM, multiplier=step)
    run = PrivateRun(
        model,
        F.mse_loss,
        data=(prepared.of_features(ramps), torch.from_numpy(standard.astype(np.float32))[:, None]),
        mechanism=replace(mechanism, method=replace(mechanism.method, claims=None)),
        sampling=FullBatch(population),
        steps=STEPS,
        seed=seed,
    )
    learning_rate = gathered * mu * population * (1 - MOMENTUM) / (CLIP_NORM * STEPS)
    fit(run, torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM))
    proven, event = run.guarantee(), whitening.event_ + spent
    assumed = tuple(_AFTERWARDS if each.key == NOTHING_FITTED_BEFORE.key else each for each in proven.assumptions)
    guarantee = replace(proven, event=event + proven.event, claim=None, assumptions=assumed, delta=budget.delta)
    return TrainedRegression(prepared, model.eval(), mean, scale, guarantee)


def release_scale(
    targets: NDArray[np.float64], *, multiplier: float, population: int, seed: int | None
) -> tuple[float, float, Event]:
    """Release the mean and standard deviation of targets in [-1, 1], and what that costs.

    Sum and sum of squares are one vector, which one example moves by at most sqrt(2). A variance below twice its noise
    is taken to be that; targets that are not finite count as zero.
    """
    inside = np.clip(np.nan_to_num(targets, posinf=0.0, neginf=0.0), -1, 1)
    sums = torch.tensor([inside.sum(), np.square(inside).sum()], dtype=torch.float64)
    rng = source_for(seed).stream(Purpose.NOISE, _TARGET_STREAM)
    release = GaussianNoise(multiplier).release(BoundedSum({"sums": sums}, math.sqrt(2)), rng)
    mean, square = (release.values["sums"] / population).tolist()
    mean = min(max(mean, -1.0), 1.0)
    doubt = 2 * multiplier * math.sqrt(2) / population
    return mean, math.sqrt(min(max(square - mean**2, doubt, 1e-4), 1.0)), release.event
