"""Gradient steps with noise in every one: full ones, on Poisson lots, in one pass over disjoint lots, with snapshots.

Each kind of descent knows which events its steps emit for a given multiplier (noise over sensitivity, K-norm noise in
one pass, normal noise elsewhere), so calibration asks it and never guesses. Gradients of examples are clipped to
`clip_norm`, by default to the loss's Lipschitz constant, which changes nothing. Sums are divided by public numbers.
The regulariser is no data: its gradient is added after the noise.
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
from tacit.randomness import Indices, Purpose, Source

# For the planned number of steps: how far away a minimiser is expected, and when descent has settled for good.
_FAR = 10.0
_SETTLED = 5.0
_LEAST_STEPS, _MOST_STEPS = 5, 500


@runtime_checkable
class Descent(Protocol):
    """Noisy steps of a fixed number. A frozen value."""

    def __hash__(self) -> int: ...

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """What all steps together cost, with `n` examples."""

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """The coefficients after the last step, with the events that the noise emitted. Public."""


@dataclass(frozen=True)
class NoisyDescent:
    """`steps` gradients over all examples (Wang et al. 2017), with steps of 1 / smoothness unless told otherwise.

    Without a number of steps, `planned` finds one from public numbers.
    """

    steps: int | None = None
    step_size: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check(self, counts=("steps",), sizes=("step_size", "clip_norm"))

    def planned(self, problem: Problem, mu: float) -> NoisyDescent:
        """With a number of steps that suits a budget of mu.

        The way gone is size * steps. What is missing falls as its inverse; the harm of noise grows as its square,
        by the trace of the curvature and by (longest gradient / (n mu))^2. The best way balances both, for a minimiser
        as far away as ten inverse data norms.
        """
        if self.steps is not None:
            return self
        size = step_size_for(problem, self.step_size)
        noise = clip_norm_for(problem, self.clip_norm) * 2 / (problem.n * mu)
        trace = problem.loss.curvature_trace * problem.data_norm**2
        way = (_FAR**2 / (2 * trace * problem.data_norm**2 * noise**2)) ** (1 / 3)
        if problem.regularisation > 0:
            way = min(way, _SETTLED / problem.regularisation)
        return replace(self, steps=round(min(max(way / size, _LEAST_STEPS), _MOST_STEPS)))

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """One unsampled Gaussian per step."""
        return Gaussian(multiplier, adjacency) * self._steps

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """All steps."""
        clip_norm = clip_norm_for(problem, self.clip_norm)
        moved, rng = shift(clip_norm, adjacency), source.stream(Purpose.NOISE, 0)
        events: list[Event] = []

        def gradient(theta: Array, step: int) -> Array:
            total = clipped_sum(problem, theta, clip_norm)
            noisy = add_gaussian(total, sensitivity=moved, multiplier=multiplier, adjacency=adjacency, rng=rng)
            events.append(noisy.event)
            return noisy.values / problem.n

        sizes = np.full(self._steps, step_size_for(problem, self.step_size))
        return Noisy(descend(problem, gradient, sizes), add_up(events))

    @property
    def _steps(self) -> int:
        if self.steps is None:
            raise InvalidArgument("This descent has no number of steps yet. Give one, or ask planned() for one.")
        return self.steps


@dataclass(frozen=True)
class NoisyLots:
    """`steps` gradients, each over a Poisson lot of `lot_size` examples on average (Bassily et al. 2014, accountable).

    Steps are 1 / (regularisation * t), never longer than 1 / smoothness, unless a constant `step_size` is given.
    """

    steps: int = 300
    lot_size: float = 500.0
    step_size: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check(self, counts=("steps",), sizes=("lot_size", "step_size", "clip_norm"))

    def rate(self, n: int) -> float:
        """The probability with which an example enters a lot; lots of everything where there are too few."""
        return min(self.lot_size / n, 1.0)

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """One Gaussian on a Poisson lot per step."""
        return Gaussian(multiplier, adjacency).sampled(self.rate(n)) * self.steps

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """All steps, on lots that are drawn by one coin per example."""
        clip_norm, rate = clip_norm_for(problem, self.clip_norm), self.rate(problem.n)
        moved, rng = shift(clip_norm, adjacency), source.stream(Purpose.NOISE, 0)
        events: list[Event] = []

        def gradient(theta: Array, step: int) -> Array:
            lot = source.stream(Purpose.LOT, step).coins(problem.n, rate)
            total = clipped_sum(problem, theta, clip_norm, lot)
            noisy = add_gaussian(total, sensitivity=moved, multiplier=multiplier, adjacency=adjacency, rng=rng)
            events.append(noisy.event.sampled(rate))
            return noisy.values / (rate * problem.n)

        theta = descend(problem, gradient, shrinking_steps(problem, self.steps, self.step_size))
        return Noisy(theta, add_up(events))


@dataclass(frozen=True)
class NoisyPass:
    """`passes` over disjoint lots with K-norm noise in every step: epsilon per pass and no delta (Song et al. 2013).

    An example is in one lot of a pass, so a pass costs what one step costs. Step t has size step_size / sqrt(t).
    """

    passes: int = 1
    lot_size: int = 50
    step_size: float = 1.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check(self, counts=("passes", "lot_size"), sizes=("step_size", "clip_norm"))

    def event(self, n: int, multiplier: float, adjacency: Adjacency) -> Event:
        """1 / multiplier per pass, for an example that is replaced: one that is removed would move all later lots."""
        _need_replacement(adjacency)
        return EpsilonDelta(1 / multiplier, 0.0, adjacency) * self.passes

    def run(self, problem: Problem, multiplier: float, adjacency: Adjacency, source: Source) -> Noisy:
        """All passes, in the order of the examples."""
        _need_replacement(adjacency)
        clip_norm = clip_norm_for(problem, self.clip_norm)
        moved, rng = shift(clip_norm, adjacency), source.stream(Purpose.NOISE, 0)
        lots = math.ceil(problem.n / self.lot_size)
        events: list[Event] = []

        def gradient(theta: Array, step: int) -> Array:
            lot = slice(step % lots * self.lot_size, (step % lots + 1) * self.lot_size)
            total = clipped_sum(problem, theta, clip_norm, lot)
            noisy = add_k_norm(total, sensitivity=moved, epsilon=1 / multiplier, adjacency=adjacency, rng=rng)
            # Parallel composition: the lots of a pass have no example in common.
            if step % lots == 0:
                events.append(noisy.event)
            return noisy.values / self.lot_size

        sizes = self.step_size / np.sqrt(np.arange(1.0, self.passes * lots + 1))
        return Noisy(descend(problem, gradient, sizes), add_up(events))


def descend(problem: Problem, gradient: Callable[[Array, int], Array], step_sizes: Array) -> Array:
    """The last of the steps from zero, the regulariser's gradient added to the noisy one."""
    theta = np.zeros(problem.shape)
    for step, size in enumerate(step_sizes):
        theta = theta - size * (gradient(theta, step) + problem.regularisation * theta)
    return theta


def clipped_sum(problem: Problem, theta: Array, clip_norm: float, lot: Indices | slice = slice(None)) -> Array:
    """The sum of the examples' gradients at `theta`, each scaled down to `clip_norm` where it is longer. Private."""
    slopes = problem.slopes(theta, lot)
    if clip_norm < problem.lipschitz:
        return weighted_sum(problem, slopes, clip_norm, lot)
    total: Array = problem.rows[lot].T @ slopes
    return total


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
    """The clip norm given, or the longest gradient that there is."""
    if clip_norm is not None:
        return clip_norm
    if not math.isfinite(problem.lipschitz_near):
        raise InvalidArgument(
            f"{problem.loss!r} has gradients without a bound, so clip_norm must be given: the norm to which each "
            "example's gradient is scaled down."
        )
    return problem.lipschitz_near


def step_size_for(problem: Problem, step_size: float | None) -> float:
    """The step size given, or 1 / smoothness."""
    return 1 / problem.smoothness if step_size is None else step_size


def shrinking_steps(problem: Problem, steps: int, step_size: float | None) -> Array:
    """A constant size if given; else 1 / (regularisation * t), capped at 1 / smoothness."""
    if step_size is not None or problem.regularisation == 0:
        return np.full(steps, step_size_for(problem, step_size))
    return np.minimum(1 / problem.smoothness, 1 / (problem.regularisation * np.arange(1.0, steps + 1)))


def _need_replacement(adjacency: Adjacency) -> None:
    if adjacency is not Adjacency.REPLACE_ONE:
        raise InvalidArgument(
            "A pass over disjoint lots is private for one example replaced by another: removing one would move all "
            "later lots. Use adjacency=Adjacency.REPLACE_ONE, or Poisson lots."
        )


def _check(descent: object, *, counts: tuple[str, ...], sizes: tuple[str, ...]) -> None:
    """Refuse what is no count or no size; store plain numbers."""
    for check, names in ((_validate.count, counts), (_validate.positive, sizes)):
        for name in names:
            if getattr(descent, name) is not None:
                object.__setattr__(descent, name, check(name, getattr(descent, name)))
