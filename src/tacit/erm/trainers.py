"""Deterministic training without noise, with a proven bound on how far one replaced example moves the coefficients.

The bounds are suprema over all data; docs/reference/methods/output_perturbation.md has the proofs. n is the number of
examples, and the Lipschitz constant is that of one example's loss without the regulariser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.erm.problem import Problem
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument

# Far above the rounding of these formulas, far below anything that matters.
_OUTWARDS = 1 + 1e-12
# The solver's error may enlarge the sensitivity of a minimiser by this share.
_SOLVER_SHARE = 1e-4
_WHY = " to release a minimiser: without it, nothing bounds how far one example moves the minimiser"


@runtime_checkable
class Trainer(Protocol):
    """Computes coefficients from a problem; private data enter through gradients only."""

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
        _validate.check_fields(self, positive="tolerance")

    def fit(self, problem: Problem) -> Array:
        return minimise(problem, self.tolerance_for(problem)).theta

    def sensitivity(self, problem: Problem) -> float:
        """2 L / (n s) + 2 tolerance / s, for strong convexity s."""
        problem.require_regularisation(_WHY, "; or use gradient steps")
        tolerance = self.tolerance_for(problem)
        return minimiser_sensitivity(problem.n, problem.lipschitz_near, problem.regularisation, tolerance)

    def tolerance_for(self, problem: Problem) -> float:
        """The gradient norm at which the solver stops."""
        if self.tolerance is not None:
            return self.tolerance
        problem.require_regularisation(_WHY, "; or use gradient steps")
        longest = problem.lipschitz_near / problem.regularisation
        return max(_SOLVER_SHARE * problem.lipschitz_near / problem.n, reachable_tolerance(problem, longest))


@dataclass(frozen=True)
class PermutedDescent:
    """Passes over lots in an order that is drawn once and does not depend on the data (Wu et al. 2017).

    Without `step_size` the steps decrease as published: min(1/beta, 1/(gamma t)) with regularisation gamma, and
    2/(beta (t + m^exponent)) for m lots per pass without. All sums are divided by `lot_size`, also that of a smaller
    last lot: dividing by its own size would break the bound.
    """

    passes: int = 5
    lot_size: int = 50
    step_size: float | None = None
    exponent: float = 0.5
    order_seed: int = 0

    def __post_init__(self) -> None:
        _validate.check_fields(self, count=("passes", "lot_size"), positive="step_size", unit="exponent")
        object.__setattr__(self, "order_seed", _validate.count("order_seed", self.order_seed, at_least=0))

    def fit(self, problem: Problem) -> Array:
        order = np.random.default_rng(self.order_seed).permutation(problem.n)
        lots = [order[start : start + self.lot_size] for start in range(0, problem.n, self.lot_size)]

        def gradient(theta: Array, step: int) -> Array:
            lot = lots[step % len(lots)]
            return problem.rows[lot].T @ problem.slopes(theta, lot) / self.lot_size

        return problem.descend(gradient, self.step_sizes(problem))

    def sensitivity(self, problem: Problem) -> float:
        """The exact sum of what one example adds in each pass, shrunk by all later steps."""
        return _descent_sensitivity(
            problem, self.step_sizes(problem), lots_per_pass=self.lots_per_pass(problem), lot_size=self.lot_size
        )

    def lots_per_pass(self, problem: Problem) -> int:
        """The number of lots, the last of which may be smaller."""
        return math.ceil(problem.n / self.lot_size)

    def step_sizes(self, problem: Problem) -> Array:
        lots = self.lots_per_pass(problem)
        if self.step_size is not None:
            return np.full(self.passes * lots, self.step_size)
        return decreasing_steps(self.passes * lots, problem.smoothness, problem.regularisation, lots**self.exponent)


@dataclass(frozen=True)
class FullDescent:
    """Gradient steps over all examples, of one size (default: 1 / smoothness): Zhang et al. 2017."""

    steps: int = 100
    step_size: float | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, count="steps", positive="step_size")

    def fit(self, problem: Problem) -> Array:
        theta = np.zeros(problem.shape)
        for size in self.step_sizes(problem):
            theta = theta - size * problem.value_and_gradient(theta)[1]
        return theta

    def sensitivity(self, problem: Problem) -> float:
        """(2 L / (n s))(1 - (1 - eta s)^T) for strong convexity s, 2 L eta T / n without."""
        return _descent_sensitivity(problem, self.step_sizes(problem), lots_per_pass=1, lot_size=problem.n)

    def step_sizes(self, problem: Problem) -> Array:
        size = 1 / problem.smoothness if self.step_size is None else self.step_size
        return np.full(self.steps, size)


def minimiser_sensitivity(n: int, lipschitz: float, strong_convexity: float, tolerance: float = 0.0) -> float:
    """The sensitivity of a minimiser that is computed up to a gradient of norm `tolerance`.

    Chaudhuri et al. 2011 for tolerance 0: the gradients of both objectives differ by at most 2 L / n.

    >>> round(minimiser_sensitivity(1000, lipschitz=1.0, strong_convexity=0.01), 12)
    0.2
    """
    return _OUTWARDS * (2 * lipschitz / n + 2 * tolerance) / strong_convexity


def steps_sensitivity(
    step_sizes: Array, *, lots_per_pass: int, lot_size: float, lipschitz: float, strong_convexity: float
) -> float:
    """The sensitivity of gradient steps over the same lots in every pass, with sums divided by the constant `lot_size`.

    One step adds at most 2 eta L / lot_size if its lot holds the example, and multiplies the difference so far by
    1 - eta * strong_convexity. The sum is exact, for the worst place in a pass.
    """
    shrunk = np.log1p(-strong_convexity * step_sizes)
    later = np.concatenate([np.cumsum(shrunk[::-1])[::-1][1:], [0.0]])
    left = step_sizes * np.exp(later)
    passes = math.ceil(len(step_sizes) / lots_per_pass)
    padded = np.concatenate([left, np.zeros(passes * lots_per_pass - len(left))])
    worst = float(padded.reshape(passes, lots_per_pass).sum(axis=0).max())
    # Cumulative sums round once per step.
    return _OUTWARDS * (1 + len(step_sizes) * 2.0**-50) * 2 * lipschitz / lot_size * worst


def refuse_expanding(step_sizes: Array, smoothness: float, strong_convexity: float) -> None:
    """Raise if a step is so long that it can move two models further apart."""
    longest = float(step_sizes.max())
    allowed = (2 if strong_convexity == 0 else 1) / smoothness
    if longest > allowed * (1 + 1e-12):
        raise InvalidArgument(
            f"step_size must be at most {allowed:.6g} here ({'2' if strong_convexity == 0 else '1'} / smoothness): "
            f"longer steps can drive neighbouring models apart without bound. Got {longest:g}."
        )


def decreasing_steps(steps: int, smoothness: float, strong_convexity: float, offset: float) -> Array:
    """The step sizes of Wu et al. 2017: min(1/beta, 1/(gamma t)), or 2/(beta (t + offset)) without strong convexity."""
    t = np.arange(1.0, steps + 1)
    if strong_convexity > 0:
        return np.minimum(1 / smoothness, 1 / (strong_convexity * t))
    return 2 / (smoothness * (t + offset))


def _descent_sensitivity(problem: Problem, sizes: Array, *, lots_per_pass: int, lot_size: int) -> float:
    if not math.isfinite(problem.lipschitz):
        raise InvalidArgument(
            f"Slopes of {problem.loss!r} are unbounded, so nothing bounds what one example does to a gradient step. "
            "Use Huber, or release the minimiser (training=Minimiser()), where slopes are bounded."
        )
    refuse_expanding(sizes, problem.smoothness, problem.regularisation)
    return steps_sensitivity(
        sizes,
        lots_per_pass=lots_per_pass,
        lot_size=lot_size,
        lipschitz=problem.lipschitz,
        strong_convexity=problem.regularisation,
    )
