"""Variance-reduced descent with noise: a full gradient now and then, and small corrections on lots in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Event, Gaussian, add_up
from tacit.erm.descent import clip_norm_for, clipped_sum, shift, step_size_for, weighted_sum
from tacit.erm.noise import Noisy, add_gaussian
from tacit.erm.problem import Problem
from tacit.randomness import Purpose, Source


@dataclass(frozen=True)
class NoisySnapshots:
    """DP-SVRG (Wang et al. 2017) in a form with a proof.

    Each of `rounds` releases a full gradient at a snapshot; each of its `inner` steps releases, on a Poisson lot, the
    sum of how much the examples' gradients have changed since. That change is at most smoothness times the way from
    the snapshot, which is public, so it is clipped there and its noise shrinks with it, while the multiplier stays
    fixed. `share` is how many times the multiplier of a correction a snapshot has.
    """

    rounds: int = 10
    inner: int = 10
    lot_size: float = 500.0
    step_size: float | None = None
    clip_norm: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rounds", "inner"):
            object.__setattr__(self, name, _validate.count(name, getattr(self, name)))
        for name in ("lot_size", "step_size", "clip_norm", "share"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _validate.positive(name, getattr(self, name)))

    def rate(self, n: int) -> float:
        """The probability with which an example enters a lot."""
        return min(self.lot_size / n, 1.0)

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """A Gaussian per snapshot and a sampled one per correction."""
        snapshot = Gaussian(self.share * multiplier, adjacency)
        correction = Gaussian(multiplier, adjacency).sampled(self.rate(n))
        return snapshot * self.rounds + correction * (self.rounds * self.inner)

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """All rounds; the last iterate is the next snapshot, and the last of all the answer."""
        steps = _Rounds(self, problem, multiplier, adjacency, source)
        theta = np.zeros(problem.shape)
        for _ in range(self.rounds):
            theta = steps.one(theta)
        return Noisy(theta, add_up(steps.events))


class _Rounds:
    """What the rounds of one run have in common."""

    def __init__(
        self, plan: NoisySnapshots, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source
    ) -> None:
        self._plan, self._problem = plan, problem
        self._multiplier, self._adjacency, self._source = multiplier, adjacency, source
        self._rng = source.stream(Purpose.NOISE, 0)
        self._clip_norm = clip_norm_for(problem, plan.clip_norm)
        self._size = step_size_for(problem, plan.step_size)
        self._drawn = 0
        self.events: list[Event] = []

    def one(self, snapshot: Array) -> Array:
        problem, plan = self._problem, self._plan
        total = clipped_sum(problem, snapshot, self._clip_norm)
        full = self._noisy(total, self._clip_norm, plan.share * self._multiplier, None) / problem.n
        theta = snapshot
        for _ in range(plan.inner):
            gradient = full + self._correction(theta, snapshot) + problem.regularisation * theta
            theta = theta - self._size * gradient
        return theta

    def _correction(self, theta: Array, snapshot: Array) -> Array:
        """How much the mean gradient has changed since the snapshot, from a lot."""
        problem, rate = self._problem, self._plan.rate(self._problem.n)
        way = float(np.linalg.norm(theta - snapshot))
        lot = self._source.stream(Purpose.LOT, self._drawn).coins(problem.n, rate)
        self._drawn += 1
        longest = min(problem.loss.curvature_bound * problem.data_norm**2 * way, 2 * self._clip_norm)
        # At the snapshot itself nothing has changed, and there is nothing to hide; the event is emitted all the same.
        longest = max(longest, 1e-12 * self._clip_norm)
        change = problem.slopes(theta, lot) - problem.slopes(snapshot, lot)
        total = weighted_sum(problem, change, longest, lot)
        return self._noisy(total, longest, self._multiplier, rate) / (rate * problem.n)

    def _noisy(self, total: Array, clip_norm: float, multiplier: float, rate: float | None) -> Array:
        noisy = add_gaussian(
            total,
            sensitivity=shift(clip_norm, self._adjacency),
            multiplier=multiplier,
            adjacency=self._adjacency,
            rng=self._rng,
        )
        self.events.append(noisy.event if rate is None else noisy.event.sampled(rate))
        return noisy.values
