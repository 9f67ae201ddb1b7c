"""The bounds of both papers as numbers: table 1 of each, theorems 2 and 4 (2020) and 3 (2021), with O(1) read as 1.

Two of the theorems have exact counterexamples, which need no data: see `small_steps` and `lone_example`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.erm import Logistic, prepare
from tacit.erm.influence import InfluenceRule, LinearModel, selective_descent
from tacit.erm.noisy_data import kang_2020_std
from tacit.erm.trainers import FullDescent
from tacit.randomness import SeededSource


@dataclass(frozen=True)
class Constants:
    """The letters of both papers. `parameters` is p or m, `columns` d, `strong` the strong convexity."""

    n: int
    parameters: int
    columns: int
    steps: int
    step_size: float
    lipschitz: float
    smooth: float
    strong: float
    radius: float
    epsilon: float
    delta: float

    @property
    def log(self) -> float:
        return math.log(1 / self.delta)

    @property
    def budget(self) -> float:
        """(n epsilon)^2, which divides most of the bounds."""
        return (self.n * self.epsilon) ** 2


@dataclass(frozen=True)
class Row:
    """A row of a table 1: the method of our runs, and its variance and excess risk as printed."""

    method: str
    excess: Callable[[Constants], float] | None
    variance: Callable[[Constants], float] | None = None


def theorem_2(c: Constants, strong: float | None = None) -> float:
    """Kang et al. 2020, theorem 2; with `strong` 1 it is theorem 4."""
    spread = (2 * c.smooth * c.radius + c.lipschitz) * c.lipschitz**3 * c.columns
    pairs = c.n * (c.n - 1) * math.sqrt(c.strong if strong is None else strong)
    return c.step_size * spread * math.log(c.n) ** 2 * c.log / (pairs * c.epsilon**2)


def theorem_2_proof(c: Constants) -> float:
    """What the proof of theorem 2 arrives at (equation 48), from theta = 0 and without a hidden constant."""
    variance = _kang_2020(c)
    moved = c.lipschitz * (2 * c.smooth * c.radius + c.lipschitz) * c.columns * variance
    return c.step_size * c.steps * (c.lipschitz**2 + moved) + c.smooth / 2 * c.radius**2


def theorem_3(c: Constants, start: float) -> float:
    """Kang et al. 2021, equation 19: the excess risk after the steps, from a model with the excess risk `start`."""
    noise = c.parameters * c.lipschitz**2 * c.steps * c.log / (2 * c.smooth * c.budget)
    return (1 - c.strong / c.smooth) ** c.steps * start + noise


def _kang_2020(c: Constants) -> float:
    return (
        kang_2020_std(
            n=c.n,
            steps=c.steps,
            epsilon=c.epsilon,
            delta=c.delta,
            lipschitz=c.lipschitz,
            strong_convexity=c.strong,
        )
        ** 2
    )


def _by_steps(c: Constants) -> float:
    return c.lipschitz**2 * c.steps * c.log / c.budget


def _kifer(c: Constants) -> float:
    return c.lipschitz**2 * (c.epsilon + math.log(4 / c.delta**2)) / c.epsilon**2


TABLE_2020 = (
    Row(
        "objective, Kifer 2012",
        lambda c: c.parameters * _kifer(c) / (c.n**2 * c.strong) + c.strong * c.radius**2,
        _kifer,
    ),
    Row(
        "gradient, Bassily 2014",
        lambda c: (
            c.lipschitz**2 * c.parameters * math.log(c.n / c.delta) ** 2 * c.log / (c.n * c.strong * c.epsilon**2)
        ),
        lambda c: c.lipschitz**2 * c.n**2 * math.log(c.n / c.delta) * c.log / c.epsilon**2,
    ),
    Row(
        "output, Zhang 2017",
        lambda c: c.smooth * c.lipschitz**2 * c.parameters * c.log / (c.budget * c.strong**2),
        lambda c: (c.lipschitz * (1 + c.smooth / c.strong)) ** 2 * math.log(2 / c.delta) / (c.budget * c.smooth**2),
    ),
    Row(
        "gradient, Wang 2017 (c = 1)",
        lambda c: c.lipschitz**2 * c.parameters * math.log(c.n) * c.log / c.budget,
        _by_steps,
    ),
    Row("local, Duchi 2013", lambda c: c.lipschitz * c.parameters / (c.epsilon * math.sqrt(c.n))),
    Row(
        "local terms, Fukuchi 2017",
        lambda c: c.parameters * c.lipschitz**2 * (math.log(16 / c.delta) + c.epsilon) / (c.smooth * c.n * c.epsilon),
        lambda c: c.lipschitz**2 * (math.log(16 / c.delta) + c.epsilon) / (c.n * c.epsilon**2),
    ),
    Row("input, Kang 2020", theorem_2, _kang_2020),
)
TABLE_2021 = (
    Row("DP-SGD, Abadi 2016", None, _by_steps),
    Row(
        "output, Wu 2017",
        lambda c: (c.lipschitz**2 + math.log(c.n)) / c.n + c.parameters / (c.n * c.epsilon),
        lambda c: c.lipschitz**2 * math.log(1.25 / c.delta) / c.budget,
    ),
    Row(
        "DP-LSSGD, Wang 2019",
        lambda c: c.lipschitz * math.sqrt(c.lipschitz**2 * c.parameters * c.log) / (c.n * c.epsilon),
        lambda c: c.lipschitz**2 * c.steps * (c.log + c.epsilon) / c.budget,
    ),
    Row("data, Kang 2021", lambda c: _last(c), _by_steps),
    Row("influence, Kang 2021", lambda c: _last(c), _by_steps),
)


def _last(c: Constants) -> float:
    """Theorem 3 of Kang et al. 2021, as its table 1 prints it."""
    return c.parameters * c.lipschitz**2 * c.log * math.log(c.n) / c.budget


def small_steps(step_size: float, *, n: int = 10_000, steps: int = 100) -> tuple[float, float]:
    """Theorem 2 (2020) and the excess risk found: it allows any step size, and its bound shrinks with it.

    All examples are (1, +1). The bound is for one column, epsilon 1 and delta 1e-5; there is no noise in the run, which
    is the best case for it.
    """
    strong = 0.01
    problem = prepare(
        np.ones((n, 1)), np.ones(n), loss=Logistic(), regularisation=strong, data_norm=1.0, intercept=False
    )
    best = FullDescent(5_000).fit(problem)
    radius = abs(float(best[0, 0]))
    c = Constants(n, 1, 1, steps, step_size, 1.0, problem.smoothness, strong, radius, 1.0, 1e-5)
    found = FullDescent(steps, step_size).fit(problem)
    return theorem_2(c), problem.objective(found) - problem.objective(best)


def lone_example(n: int, steps: int = 1) -> tuple[float, float]:
    """Theorem 3 (2021) and the excess risk found: steps of 1 / smoothness on single examples, from the optimum.

    Half of the examples are (1, +1), half (1, -1), so the optimum is 0 and each single gradient is 1/2 long there.
    Neither depends on n; the bound does. Epsilon is 1, and the mean of 20 runs is taken.
    """
    strong = 0.01
    y = np.arange(n) % 2
    problem = prepare(np.ones((n, 1)), y, loss=Logistic(), regularisation=strong, data_norm=1.0, intercept=False)
    rule = InfluenceRule(rounds=steps, local_steps=1, step_size=1 / problem.smoothness)
    c = Constants(n, 1, 1, steps, rule.step_size, 1.0, problem.smoothness, strong, 1.0, 1.0, 1e-5)
    model, least = LinearModel(problem, False), problem.objective(np.zeros((1, 1)))
    found = []
    for seed in range(20):
        run = selective_descent(model, rule, epsilon=1.0, delta=1e-5, lipschitz=1.0, source=SeededSource(seed))
        found.append(problem.objective(run.theta[:, None]) - least)
    return theorem_3(c, 0.0), float(np.mean(found))
