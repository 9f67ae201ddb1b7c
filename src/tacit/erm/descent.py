"""Gradient descent with noise in every step: full gradients, Poisson lots, one pass over disjoint lots, snapshots.

Each kind of descent states the events of its steps for a given multiplier, which calibration uses: K-norm noise in one
pass over disjoint lots, Gaussian noise elsewhere. Gradients of examples are clipped to `clip_norm`, by default to the
loss's Lipschitz constant, which changes nothing. Sums are divided by public numbers. The regulariser does not depend on
the data: its gradient is added after the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Gaussian, add_up
from tacit.erm.noise import Noisy, add_gaussian, add_k_norm
from tacit.erm.problem import Problem
from tacit.errors import InvalidArgument
from tacit.randomness import Indices, Purpose, Source, Stream

# For the planned number of steps: how far away a minimiser is expected, and when the descent has converged.
_FAR = 10.0
_CONVERGED = 5.0
_LEAST_STEPS, _MOST_STEPS = 5, 500


@runtime_checkable
class NoisyTrainer(Protocol):
    """A fixed number of noisy steps. A frozen value."""

    def __hash__(self) -> int: ...

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """The cost of all steps together, with `n` examples."""

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """The coefficients after the last step, with the events that the noise emitted. Public."""


@dataclass(frozen=True)
class NoisyDescent:
    """`steps` gradients over all examples (Wang et al. 2017), with a step size of 1 / smoothness by default.

    Without a number of steps, `plan_steps` derives one from public numbers.
    """

    steps: int | None = None
    step_size: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="steps", positive=("step_size", "clip_norm"))

    def plan_steps(self, problem: Problem, mu: float) -> NoisyDescent:
        """The same with a number of steps that suits a budget of mu.

        The descent covers a distance of size * steps. The remaining error falls as its inverse; the harm of noise grows
        as its square, with the trace of the curvature and with (longest gradient / (n mu))^2. The best distance
        balances both, for a minimiser that is ten inverse data norms away.
        """
        if self.steps is not None:
            return self
        size = step_size_for(problem, self.step_size)
        noise = clip_norm_for(problem, self.clip_norm) * 2 / (problem.n * mu)
        trace = problem.loss.curvature_trace * problem.data_norm**2
        way = (_FAR**2 / (2 * trace * problem.data_norm**2 * noise**2)) ** (1 / 3)
        if problem.regularisation > 0:
            way = min(way, _CONVERGED / problem.regularisation)
        return replace(self, steps=round(min(max(way / size, _LEAST_STEPS), _MOST_STEPS)))

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """One unsampled Gaussian per step."""
        return Gaussian(multiplier, adjacency) * self._steps

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        clip_norm, rng = clip_norm_for(problem, self.clip_norm), source.stream(Purpose.NOISE, 0)

        def gradient(theta: Array, step: int) -> tuple[Array, Event]:
            noisy = _add_gaussian(clipped_sum(problem, theta, clip_norm), clip_norm, multiplier, adjacency, rng)
            return noisy.values / problem.n, noisy.event

        return _descend(problem, gradient, np.full(self._steps, step_size_for(problem, self.step_size)))

    @property
    def _steps(self) -> int:
        if self.steps is None:
            raise InvalidArgument("This descent has no number of steps yet. Give one, or call plan_steps().")
        return self.steps


@dataclass(frozen=True)
class NoisyLots:
    """`steps` gradients over Poisson lots of `lot_size` examples on average (Bassily et al. 2014, in accountable form).

    Step t has size 1 / (regularisation * t), at most 1 / smoothness, unless a constant `step_size` is given.
    """

    steps: int = 300
    lot_size: float = 500.0
    step_size: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="steps", positive=("lot_size", "step_size", "clip_norm"))

    def rate(self, n: int) -> float:
        """The probability with which an example enters a lot."""
        return min(self.lot_size / n, 1.0)

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """One Gaussian on a Poisson lot per step."""
        return Gaussian(multiplier, adjacency).sampled(self.rate(n)) * self.steps

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        clip_norm, rate = clip_norm_for(problem, self.clip_norm), self.rate(problem.n)
        rng = source.stream(Purpose.NOISE, 0)

        def gradient(theta: Array, step: int) -> tuple[Array, Event]:
            lot = source.stream(Purpose.LOT, step).coins(problem.n, rate)
            noisy = _add_gaussian(clipped_sum(problem, theta, clip_norm, lot), clip_norm, multiplier, adjacency, rng)
            return noisy.values / (rate * problem.n), noisy.event.sampled(rate)

        return _descend(problem, gradient, shrinking_steps(problem, self.steps, self.step_size))


@dataclass(frozen=True)
class NoisyPass:
    """`passes` over disjoint lots with K-norm noise in every step: epsilon per pass and no delta (Song et al. 2013).

    An example is in one lot of a pass, so a pass costs as much as one step. Step t has size step_size / sqrt(t).
    """

    passes: int = 1
    lot_size: int = 50
    step_size: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, count=("passes", "lot_size"), positive=("step_size", "clip_norm"))

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """1 / multiplier per pass, if an example is replaced; removing one would move all later lots."""
        _require_replacement(adjacency)
        return EpsilonDelta(1 / multiplier, 0.0, adjacency) * self.passes

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        _require_replacement(adjacency)
        clip_norm = clip_norm_for(problem, self.clip_norm)
        moved, rng = shift(clip_norm, adjacency), source.stream(Purpose.NOISE, 0)
        lots = math.ceil(problem.n / self.lot_size)

        def gradient(theta: Array, step: int) -> tuple[Array, Event | None]:
            lot = slice(step % lots * self.lot_size, (step % lots + 1) * self.lot_size)
            total = clipped_sum(problem, theta, clip_norm, lot)
            noisy = add_k_norm(total, sensitivity=moved, epsilon=1 / multiplier, adjacency=adjacency, rng=rng)
            # Parallel composition: the lots of a pass have no example in common.
            return noisy.values / self.lot_size, noisy.event if step % lots == 0 else None

        return _descend(problem, gradient, self.step_size / np.sqrt(np.arange(1.0, self.passes * lots + 1)))


@dataclass(frozen=True)
class NoisySnapshots:
    """DP-SVRG (Wang et al. 2017) in a form with a proof.

    Each of the `rounds` releases a full gradient at a snapshot. Each of its `inner` steps releases, on a Poisson lot,
    the sum of how much the examples' gradients have changed since. That change is at most smoothness times the distance
    from the snapshot, which is public, so it is clipped to that and its noise shrinks with it, while the multiplier
    stays fixed. The multiplier of a snapshot is `share` times that of a correction.
    """

    rounds: int = 10
    inner: int = 10
    lot_size: float = 500.0
    step_size: float | None = None
    clip_norm: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        sizes = ("lot_size", "step_size", "clip_norm", "share")
        _validate.check_fields(self, count=("rounds", "inner"), positive=sizes)

    def rate(self, n: int) -> float:
        """The probability with which an example enters a lot."""
        return min(self.lot_size / n, 1.0)

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """A Gaussian per snapshot and a sampled one per correction."""
        snapshot = Gaussian(self.share * multiplier, adjacency)
        correction = Gaussian(multiplier, adjacency).sampled(self.rate(n))
        return snapshot * self.rounds + correction * (self.rounds * self.inner)

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """All rounds. The last iterate of a round is the next snapshot, and the last of all is the answer."""
        clip_norm, rate = clip_norm_for(problem, self.clip_norm), self.rate(problem.n)
        size, rng = step_size_for(problem, self.step_size), source.stream(Purpose.NOISE, 0)
        events: list[Event] = []

        def correct(theta: Array, snapshot: Array, step: int) -> Array:
            """How much the mean gradient has changed since the snapshot, from a lot."""
            lot = source.stream(Purpose.LOT, step).coins(problem.n, rate)
            way = float(np.linalg.norm(theta - snapshot))
            longest = min(problem.loss.curvature_bound * problem.data_norm**2 * way, 2 * clip_norm)
            # At the snapshot itself nothing has changed and nothing needs hiding; the event is emitted all the same.
            longest = max(longest, 1e-12 * clip_norm)
            change = problem.slopes(theta, lot) - problem.slopes(snapshot, lot)
            total = weighted_sum(problem, change, longest, lot)
            noisy = _add_gaussian(total, longest, multiplier, adjacency, rng)
            events.append(noisy.event.sampled(rate))
            return noisy.values / (rate * problem.n)

        theta = np.zeros(problem.shape)
        for turn in range(self.rounds):
            snapshot = theta
            total = clipped_sum(problem, snapshot, clip_norm)
            full = _add_gaussian(total, clip_norm, self.share * multiplier, adjacency, rng)
            events.append(full.event)
            for step in range(turn * self.inner, (turn + 1) * self.inner):
                gradient = full.values / problem.n + correct(theta, snapshot, step)
                theta = theta - size * (gradient + problem.regularisation * theta)
        return Noisy(theta, add_up(events))


def _descend(
    problem: Problem, gradient: Callable[[Array, int], tuple[Array, Event | None]], step_sizes: Array
) -> Noisy:
    """The last iterate, and what the gradients cost together."""
    events: list[Event] = []

    def step_along(theta: Array, step: int) -> Array:
        values, event = gradient(theta, step)
        events.extend([] if event is None else [event])
        return values

    theta = problem.descend(step_along, step_sizes)
    return Noisy(theta, add_up(events))


def _add_gaussian(total: Array, longest: float, multiplier: float, adjacency: Adjacency, rng: Stream) -> Noisy:
    """A sum of gradients up to `longest`, with noise."""
    moved = shift(longest, adjacency)
    return add_gaussian(total, sensitivity=moved, multiplier=multiplier, adjacency=adjacency, rng=rng)


def clipped_sum(problem: Problem, theta: Array, clip_norm: float, lot: Indices | slice = slice(None)) -> Array:
    """The sum of the examples' gradients at `theta`, each scaled down to `clip_norm` where it is longer. Private."""
    slopes = problem.slopes(theta, lot)
    if clip_norm < problem.lipschitz:
        return weighted_sum(problem, slopes, clip_norm, lot)
    return problem.rows[lot].T @ slopes


def weighted_sum(problem: Problem, slopes: Array, clip_norm: float, lot: Indices | slice = slice(None)) -> Array:
    """The sum of row times slopes, each term scaled down to `clip_norm` where it is longer."""
    lengths = np.linalg.norm(slopes, axis=1) * problem.norms[lot]
    weights = np.minimum(1.0, clip_norm / np.maximum(lengths, 1e-300))
    total: Array = problem.rows[lot].T @ (slopes * weights[:, None])
    return total


def shift(clip_norm: float, adjacency: Adjacency) -> float:
    """How far one example moves a sum of gradients that are clipped to `clip_norm`."""
    return clip_norm if adjacency is Adjacency.ADD_REMOVE else 2 * clip_norm


def clip_norm_for(problem: Problem, clip_norm: float | None) -> float:
    """The given clip norm, or the largest norm of a gradient."""
    if clip_norm is not None:
        return clip_norm
    if not math.isfinite(problem.lipschitz_near):
        raise InvalidArgument(
            f"Gradients of {problem.loss!r} are unbounded, so one example could move the model without limit. Give "
            "clip_norm: each example's gradient is scaled down to that norm."
        )
    return problem.lipschitz_near


def step_size_for(problem: Problem, step_size: float | None) -> float:
    """The given step size, or 1 / smoothness."""
    return 1 / problem.smoothness if step_size is None else step_size


def shrinking_steps(problem: Problem, steps: int, step_size: float | None) -> Array:
    """A constant size if given; else 1 / (regularisation * t), capped at 1 / smoothness."""
    if step_size is not None or problem.regularisation == 0:
        return np.full(steps, step_size_for(problem, step_size))
    return np.minimum(1 / problem.smoothness, 1 / (problem.regularisation * np.arange(1.0, steps + 1)))


def _require_replacement(adjacency: Adjacency) -> None:
    if adjacency is not Adjacency.REPLACE_ONE:
        raise InvalidArgument(
            "A pass over disjoint lots is private for one example replaced by another: removing one would move all "
            "later lots. Use adjacency=Adjacency.REPLACE_ONE, or Poisson lots."
        )
