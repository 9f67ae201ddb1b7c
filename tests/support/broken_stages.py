"""DP-SGD with one thing wrong at a time, in one stage. Each still claims what the right one costs."""

from dataclasses import dataclass, field

import numpy as np
import torch

from tacit.accounting import Gaussian
from tacit.guarantee import Assumption
from tacit.stages.noise import GaussianNoise
from tacit.stages.sampling import Poisson
from tacit.types import BoundedSum


@dataclass(frozen=True)
class ForgottenNoise:
    """Emits the event, adds nothing."""

    multiplier: float

    def add(self, bounded, rng):
        return dict(bounded.values)

    def event(self, dimension):
        return Gaussian(self.multiplier)


@dataclass(frozen=True)
class HalvedNoise:
    """Half as much noise as the event says: a variance taken for a standard deviation, say."""

    multiplier: float

    def add(self, bounded, rng):
        return GaussianNoise(self.multiplier / 2).add(bounded, rng)

    def event(self, dimension):
        return Gaussian(self.multiplier)


@dataclass(frozen=True)
class SkippedClip:
    """Sums gradients as they are, and calls that bounded."""

    norm: float = 1.0

    def init(self, like, lot_size):
        return {}

    def sum(self, gradients, state):
        return BoundedSum(gradients.weighted_sum(torch.ones_like(gradients.norms())), self.norm)

    def receive(self, noisy, state):
        return noisy, state


@dataclass(frozen=True)
class InOrder:
    """Lots are consecutive pieces of the data, the same in every epoch; the event is that of Poisson lots."""

    lot_size: float
    population: int

    assumption: Assumption = field(default=Assumption("poisson_lots", "Lots are Poisson samples."), init=False)

    def lot(self, n, rng, step=0):
        size = int(self.lot_size)
        start = step * size % n
        return np.arange(start, min(start + size, n))

    def amplify(self, event):
        return Poisson(self.lot_size, self.population).amplify(event)

    def total(self, events):
        return Poisson(self.lot_size, self.population).total(events)
