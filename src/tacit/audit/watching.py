"""The attacker who watches a run: scores canaries by the likelihood ratio of what is released, step by step."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.stages.more_samplings import CyclicPoisson
from tacit.stages.noise import BandedNoise
from tacit.training.run import PrivateRun
from tacit.types import Tensors

if TYPE_CHECKING:
    from tacit.audit.canaries import Directions

Scores = NDArray[np.float64]
# Two estimates of the width of the noise differ by less than this, unless tails are heavy.
_ALIKE = 0.2


@dataclass(eq=False)
class Watch:
    """The attacker: scores all canaries, step by step, by the log-likelihood ratio of the releases.

    Along a canary's direction a release shows noise, plus `reach` if the canary was in the lot. The width of the noise
    is measured at every step, so the attack does not trust the stated noise.
    """

    directions: Directions
    run: PrivateRun
    added: list[Tensors]
    reach: float
    scores: Scores

    def resume(self, scores: Scores) -> None:
        """Go on from the scores of earlier steps."""
        self.scores[:] = scores

    def see(self) -> None:
        """Update the scores by the release of this step."""
        sampling = self.run.sampling
        rest = take_off(self.run, self.added[0], self.directions.like)
        seen = self.directions.project(rest).double().cpu().numpy()
        width = max(measure_width(seen, rest), 1e-9 * abs(self.reach))
        shift = self.reach / width
        self.scores += _mix(shift * seen / width - shift**2 / 2, sampling.lot_size / sampling.population)


@dataclass(eq=False)
class BandedWatch:
    """The same for correlated noise on lots whose groups take turns: undoes the correlation first.

    C times the releases has independent noise, and a canary that takes part at a step adds the coefficients to this
    row and the next ones. The turns of a group have no row in common. The attacker does not know a canary's group, so
    its score is that of the average likelihood over all groups. A resumed run has drawn new groups and a new band.
    """

    directions: Directions
    run: PrivateRun
    added: list[Tensors]
    reach: float
    earlier: Scores
    _recent: deque[tuple[Scores, Tensors]] = field(init=False)
    _turns: deque[tuple[int, Scores, float]] = field(init=False)
    _by_group: Scores = field(init=False)

    def __post_init__(self) -> None:
        noise, sampling = self.run.mechanism.noise, self.run.sampling
        assert isinstance(noise, BandedNoise)
        groups = sampling.groups if isinstance(sampling, CyclicPoisson) else 1
        self._coefficients, self._groups = noise.coefficients, groups
        self._rate = groups * sampling.lot_size / sampling.population
        self._recent = deque(maxlen=len(self._coefficients))
        self._turns = deque()
        self._by_group = np.zeros((groups, len(self.directions)))

    def resume(self, scores: Scores) -> None:
        """Go on from the scores of earlier steps, with new groups and a new band."""
        self.earlier[:] = scores

    def see(self) -> None:
        """Undo the correlation of this step, and update the turns that reach into it."""
        rest = take_off(self.run, self.added[0], self.directions.like)
        self._recent.appendleft((self.directions.project(rest).double().cpu().numpy(), rest))
        known = list(zip(self._coefficients, self._recent, strict=False))
        seen = sum((kind * each for kind, (each, _) in known), np.zeros(len(self.directions)))
        undone = {name: sum(kind * values[name] for kind, (_, values) in known) for name in rest}
        width = max(measure_width(seen, cast(Tensors, undone)), 1e-9 * abs(self.reach))
        self._turns.append(((self.run.step - 1) % self._groups, np.zeros(len(self.directions)), 0.0))
        shifts = [self.reach / width * kind for kind in self._coefficients]
        for place, shift in zip(reversed(range(len(self._turns))), shifts, strict=False):
            group, product, square = self._turns[place]
            self._turns[place] = (group, product + shift * seen / width, square + shift**2)
        if len(self._turns) == len(self._coefficients):
            group, product, square = self._turns.popleft()
            self._by_group[group] += _mix(product - square / 2, self._rate)

    @property
    def scores(self) -> Scores:
        """The log of the average likelihood ratio over all groups, with the turns that are still open."""
        total = self._by_group.copy()
        for group, product, square in self._turns:
            total[group] += _mix(product - square / 2, self._rate)
        return np.asarray(self.earlier + np.logaddexp.reduce(total, axis=0) - math.log(self._groups))


def take_off(run: PrivateRun, added: Tensors, like: Tensors) -> dict[str, Tensor]:
    """The released sum, p.grad times the lot size, less the contribution of the real examples."""
    parameters = dict(run.model.named_parameters())
    return {name: cast(Tensor, parameters[name].grad) * run.sampling.lot_size - added[name] for name in like}


def measure_width(seen: Scores, rest: Tensors) -> float:
    """The standard deviation of the noise along a random direction.

    Estimated by the root mean square over all parameters. The median over the canaries' directions has an error of a
    few per cent per step, which adds up over thousands of steps, but it is robust to heavy tails and to the few
    canaries in a lot. It is used if the two disagree.
    """
    middle = 1.4826 * float(np.median(np.abs(seen - np.median(seen))))
    squares = sum(float(value.double().square().sum()) for value in rest.values())
    overall = math.sqrt(squares / sum(value.numel() for value in rest.values()))
    return overall if abs(overall - middle) < _ALIKE * middle else middle


def _mix(ratio: Scores, rate: float) -> Scores:
    """The log-likelihood ratio of a step in which a canary takes part with this probability."""
    return np.asarray(np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)) if rate < 1 else ratio


AnyWatch = Watch | BandedWatch
