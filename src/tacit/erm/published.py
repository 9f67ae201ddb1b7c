"""Noisy descents as published, where they draw one example at a time and not a Poisson lot."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.events import Adjacency, EpsilonDelta, Event
from tacit.erm.descent import descend
from tacit.erm.noise import Noisy, gaussian
from tacit.erm.problem import Problem
from tacit.randomness import Indices, Purpose, Source, Stream

# So much of delta is left to outcomes that no single step's epsilon covers.
_TAIL_SHARE = 0.1
_AT_ONCE = 256


def bassily_2014_std(n: int, lipschitz: float, epsilon: float, delta: float) -> float:
    """The deviation of Bassily et al. 2014 on n times the gradient of one example, for up to n^2 steps.

    >>> round(bassily_2014_std(1000, 1.0, 1.0, 1e-5) / 1000, 2)
    82.38
    """
    return math.sqrt(32 * math.log(n / delta) * math.log(1 / delta)) * lipschitz * n / epsilon


def wang_2017_std(n: int, lipschitz: float, steps: int, epsilon: float, delta: float, constant: float = 1.0) -> float:
    """The deviation of Wang et al. 2017 on the mean gradient, "for some constant".

    >>> round(wang_2017_std(1000, 1.0, 50, 0.25, 1e-5), 8)
    0.09597052
    """
    return math.sqrt(constant * steps * math.log(1 / delta)) * lipschitz / (n * epsilon)


def wang_2017_least_constant(epsilon: float, delta: float) -> float:
    """The constant from which on Wang et al.'s noisy gradient descent keeps its claim.

    >>> round(wang_2017_least_constant(0.1, 1e-5), 3), round(wang_2017_least_constant(1.0, 1e-5), 3)
    (3.285, 4.835)
    """
    return 4 * epsilon**2 / (math.log(1 / delta) * gdp.mu(epsilon, delta) ** 2)


def singles_event(n: int, steps: int, multiplier: float, delta: float) -> Event:
    """What steps cost that each look at one example out of n, drawn uniformly, when one is replaced.

    A step with Gaussian noise is (e, d)-DP for the drawn example, so (log(1 + (exp(e) - 1) / n), d / n)-DP for an
    example that is drawn with probability 1/n (Balle, Barthe and Gaboardi 2018); steps compose.
    """
    tail = min(_TAIL_SHARE * delta * n / steps, 0.5)
    alone = gdp.epsilon(tail, 1 / multiplier)
    return EpsilonDelta(math.log1p(math.expm1(alone) / n), tail / n, Adjacency.REPLACE_ONE) * steps


def singles_descent(
    problem: Problem, step_sizes: Array, *, std: float, sensitivity: float, delta: float, source: Source
) -> Noisy:
    """Steps along the noisy gradient of one uniformly drawn example each (Bassily et al. 2014), and what they cost.

    One example replaced by another moves a gradient by `sensitivity` at most.
    """
    drawn = _indices(source.stream(Purpose.LOT, 0), len(step_sizes), problem.n)
    noises = _noises(source.stream(Purpose.NOISE, 0), problem.dimension)

    def gradient(theta: Array, step: int) -> Array:
        one = drawn[step : step + 1]
        noise: Array = std * next(noises).reshape(problem.shape)
        return problem.rows[one].T @ problem.slopes(theta, one) + noise

    event = singles_event(problem.n, len(step_sizes), std / sensitivity, delta)
    return Noisy(descend(problem, gradient, step_sizes), event)


def snapshot_descent(
    problem: Problem, *, rounds: int, inner: int, step_size: float, std: float, source: Source
) -> Array:
    """DP-SVRG as published (Wang et al. 2017): noise on corrected gradients, none on the snapshot's."""
    drawn = _indices(source.stream(Purpose.LOT, 0), rounds * inner, problem.n)
    noises = _noises(source.stream(Purpose.NOISE, 0), problem.dimension)
    theta = np.zeros(problem.shape)
    for turn in range(rounds):
        snapshot = theta
        full = problem.rows.T @ problem.slopes(snapshot) / problem.n
        for step in range(turn * inner, (turn + 1) * inner):
            one = drawn[step : step + 1]
            change = problem.rows[one].T @ (problem.slopes(theta, one) - problem.slopes(snapshot, one))
            noise = std * next(noises).reshape(problem.shape)
            theta = theta - step_size * (change + full + noise + problem.regularisation * theta)
    return theta


def _indices(rng: Stream, count: int, n: int) -> Indices:
    """Uniform indices below n, up to a bias of n / 2^64."""
    bits = np.empty(count, dtype=np.uint64)
    rng.fill(bits)
    return (bits % np.uint64(n)).astype(np.int64)


def _noises(rng: Stream, dimension: int) -> Iterator[Array]:
    """Standard normal vectors without end, drawn some at a time."""
    while True:
        yield from gaussian(rng, _AT_ONCE * dimension).reshape(_AT_ONCE, dimension)
