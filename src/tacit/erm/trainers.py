"""Deterministic ways to train without noise, each with a proof of how far one replaced example moves its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.erm import sensitivity
from tacit.erm.problem import Problem
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument

# The solver's error may enlarge the sensitivity of a minimiser by this share.
_SOLVER_SHARE = 1e-4


@runtime_checkable
class Training(Protocol):
    """Coefficients from a problem, by steps that depend on nothing private but through the gradients."""

    def fit(self, problem: Problem) -> Array:
        """The coefficients. Private."""

    def sensitivity(self, problem: Problem) -> float:
        """The largest distance between the coefficients of two data sets that differ in one example. Public."""


@dataclass(frozen=True)
class Minimiser:
    """The minimiser of the regularised objective, up to a gradient of norm `tolerance` (default: 1e-4 L / n).

    This is what Chaudhuri et al. 2011 perturb. It needs a regularisation above 0.
    """

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", _validate.positive("tolerance", self.tolerance))

    def fit(self, problem: Problem) -> Array:
        """By Newton's method, with a certificate."""
        return minimise(problem, self.tolerance_for(problem)).theta

    def sensitivity(self, problem: Problem) -> float:
        """2 L / (n s) + 2 tolerance / s, for strong convexity s."""
        _need_regularisation(problem)
        tolerance = self.tolerance_for(problem)
        return sensitivity.of_minimiser(problem.n, problem.lipschitz_near, problem.regularisation, tolerance)

    def tolerance_for(self, problem: Problem) -> float:
        """The gradient norm at which the solver stops."""
        if self.tolerance is not None:
            return self.tolerance
        _need_regularisation(problem)
        longest = problem.lipschitz_near / problem.regularisation
        return max(_SOLVER_SHARE * problem.lipschitz_near / problem.n, reachable_tolerance(problem, longest))


@dataclass(frozen=True)
class PermutedDescent:
    """Passes over lots in an order that is drawn once and has nothing to do with the data (Wu et al. 2017).

    Without `step_size` the steps decrease as published: min(1/beta, 1/(gamma t)) with regularisation gamma, and
    2/(beta (t + m^exponent)) for m lots per pass without. Sums over a lot are divided by `lot_size` throughout, also
    that of a smaller last lot: dividing by its own size would break the bound.
    """

    passes: int = 5
    lot_size: int = 50
    step_size: float | None = None
    exponent: float = 0.5
    order_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("passes", "lot_size"):
            object.__setattr__(self, name, _validate.count(name, getattr(self, name)))
        if self.step_size is not None:
            object.__setattr__(self, "step_size", _validate.positive("step_size", self.step_size))
        object.__setattr__(self, "exponent", _validate.unit("exponent", self.exponent))
        object.__setattr__(self, "order_seed", _validate.count("order_seed", self.order_seed, at_least=0))

    def fit(self, problem: Problem) -> Array:
        """The last of the steps."""
        order = np.random.default_rng(self.order_seed).permutation(problem.n)
        sizes = self.step_sizes(problem)
        theta = np.zeros(problem.shape)
        lots = [order[start : start + self.lot_size] for start in range(0, problem.n, self.lot_size)]
        for step, size in enumerate(sizes):
            lot = lots[step % len(lots)]
            gradient = problem.rows[lot].T @ problem.slopes(theta, lot) / self.lot_size
            theta = theta - size * (gradient + problem.regularisation * theta)
        return theta

    def sensitivity(self, problem: Problem) -> float:
        """The exact sum of what one example adds per pass, shrunk by all later steps."""
        return _sensitivity(
            problem, self.step_sizes(problem), lots_per_pass=self.lots_per_pass(problem), lot_size=self.lot_size
        )

    def lots_per_pass(self, problem: Problem) -> int:
        """The number of lots, the last of which may be smaller."""
        return math.ceil(problem.n / self.lot_size)

    def step_sizes(self, problem: Problem) -> Array:
        """One for every step of all passes."""
        lots = self.lots_per_pass(problem)
        if self.step_size is not None:
            return np.full(self.passes * lots, self.step_size)
        return sensitivity.decreasing_steps(
            self.passes * lots, problem.smoothness, problem.regularisation, lots**self.exponent
        )


@dataclass(frozen=True)
class FullDescent:
    """Gradient steps over all examples, of one size (default: 1 / smoothness): Zhang et al. 2017."""

    steps: int = 100
    step_size: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _validate.count("steps", self.steps))
        if self.step_size is not None:
            object.__setattr__(self, "step_size", _validate.positive("step_size", self.step_size))

    def fit(self, problem: Problem) -> Array:
        """The last of the steps."""
        theta = np.zeros(problem.shape)
        for size in self.step_sizes(problem):
            theta = theta - size * problem.value_and_gradient(theta)[1]
        return theta

    def sensitivity(self, problem: Problem) -> float:
        """(2 L / (n s))(1 - (1 - eta s)^T) for strong convexity s, 2 L eta T / n without."""
        return _sensitivity(problem, self.step_sizes(problem), lots_per_pass=1, lot_size=problem.n)

    def step_sizes(self, problem: Problem) -> Array:
        """The same for every step."""
        size = 1 / problem.smoothness if self.step_size is None else self.step_size
        return np.full(self.steps, size)


def _sensitivity(problem: Problem, sizes: Array, *, lots_per_pass: int, lot_size: int) -> float:
    _need_bounded_slopes(problem)
    sensitivity.refuse_expanding(sizes, problem.smoothness, problem.regularisation)
    return sensitivity.of_steps(
        sizes,
        lots_per_pass=lots_per_pass,
        lot_size=lot_size,
        lipschitz=problem.lipschitz,
        strong_convexity=problem.regularisation,
    )


def _need_regularisation(problem: Problem) -> None:
    if problem.regularisation == 0:
        raise InvalidArgument(
            "regularisation must be above 0 where the minimiser is released: without it one example may move the "
            "minimiser as far as it likes. Common values lie between 1e-4 and 1e-1; or use gradient steps."
        )


def _need_bounded_slopes(problem: Problem) -> None:
    if not math.isfinite(problem.lipschitz):
        raise InvalidArgument(
            f"{problem.loss!r} has slopes without a bound, so nothing bounds what one example does to a gradient step. "
            "Use Huber, or release the minimiser (training=Minimiser()), which stays where slopes are bounded."
        )
