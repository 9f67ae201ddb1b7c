"""Given gradients: fixtures and audits run them through the same stages as training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.accounting.events import Event
from tacit.gradients.contributions import DenseContribution, LotGradients
from tacit.randomness import CurrentStep, Purpose, SeededSource
from tacit.stages.mechanism import Mechanism
from tacit.types import Bound, BoundedSum, Sampling, State

NAME = "weights"


def as_gradients(rows: Tensor) -> LotGradients:
    """Rows of numbers, one per example, as gradients of a single parameter."""
    like, losses = rows.new_zeros(rows.shape[1]), rows.new_zeros(len(rows))
    return LotGradients({NAME: like}, {NAME: DenseContribution(rows)}, losses)


def sum_rows(bound: Bound, rows: Sequence[Sequence[float]], dimension: int, state: State | None = None) -> BoundedSum:
    """The bounded sum of these gradients, by the stage that training uses."""
    gradients = as_gradients(torch.tensor(rows, dtype=torch.float64).reshape(len(rows), dimension))
    return bound.sum(gradients, bound.init(gradients.parameters, 1.0) if state is None else state)


@dataclass(frozen=True, eq=False)
class Releases:
    """A mechanism as a training function: the inputs of the data are gradients, one row per example.

    Returns the releases of all steps, each divided by the lot size. The seed of noise and lots comes from torch's
    generator, so a seeded audit can be repeated. `event` is the cost that the mechanism states.

    >>> from tacit.accounting import Gaussian
    >>> from tacit.methods import dpsgd
    >>> from tacit.stages.sampling import FullBatch
    >>> releases = Releases(dpsgd(1.0, 2.0), FullBatch(population=3), steps=4)
    >>> releases((np.eye(3), np.zeros(3))).shape, releases.event(3) == Gaussian(2.0) * 4
    (torch.Size([4, 3]), True)
    """

    mechanism: Mechanism
    sampling: Sampling
    steps: int

    def __call__(self, data: tuple[NDArray[Any], Any]) -> Tensor:
        rows = torch.from_numpy(np.asarray(data[0], dtype=np.float64))
        source = SeededSource(int(torch.randint(2**62, ())))
        state = self.mechanism.init({NAME: rows.new_zeros(rows.shape[1])}, self.sampling.lot_size)
        released = []
        for step in range(self.steps):
            lot = self.sampling.lot(len(rows), source.stream(Purpose.LOT, step), step)
            noise = source.stream(Purpose.NOISE, step)
            with CurrentStep(source, step):
                release, state = self.mechanism.step(as_gradients(rows[torch.from_numpy(lot)]), state, noise)
            released.append(release.values[NAME] / self.sampling.lot_size)
        return torch.stack(released)

    def dimension(self, size: int) -> int:
        """The number of values that each step releases, for gradients of this size."""
        gradients = as_gradients(torch.zeros((0, size), dtype=torch.float64))
        state = self.mechanism.init(gradients.parameters, self.sampling.lot_size)
        return self.mechanism.sum(gradients, state).dimension

    def event(self, size: int) -> Event:
        """The event of all steps, as stated by the noise and the sampling."""
        each = self.sampling.amplify(self.mechanism.noise.event(self.dimension(size)))
        return self.sampling.total([each] * self.steps)
