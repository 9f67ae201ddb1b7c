"""The minimiser of a regularised problem, with a certificate of how far away it can be: Newton's method.

Everything is deterministic. The final gradient is computed again in blocks, and a bound on its rounding error is added
to its norm, so that `Solution.gradient_norm` is an upper bound: with strong convexity s the true minimiser is within
gradient_norm / s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tacit._validate import Array
from tacit.erm.problem import Problem
from tacit.errors import NotConverged

_ROUNDING = 2.0**-53
_MOST_STEPS = 300
# Up to this many columns, and for one output, the Hessian is built; for more, only products with it are computed.
_BUILT = 600
# A Hessian that still shortens the gradient by this factor per step is used again: building one costs several steps.
_GOOD_ENOUGH = 0.1


@dataclass(frozen=True, eq=False)
class Solution:
    """Coefficients, and an upper bound of the norm of the objective's gradient there. Private."""

    theta: Array
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class _Point:
    theta: Array
    value: float
    gradient: Array

    @staticmethod
    def at(problem: Problem, theta: Array) -> _Point:
        return _Point(theta, *problem.value_and_gradient(theta))

    @property
    def steepness(self) -> float:
        return float(np.linalg.norm(self.gradient))


def minimise(problem: Problem, tolerance: float) -> Solution:
    """Coefficients whose gradient has certainly a norm of at most `tolerance`.

    Raises `NotConverged` if rounding does not allow it; `reachable_tolerance` gives a tolerance that it allows.
    """
    point = _Point.at(problem, np.zeros(problem.shape))
    newton = _Directions(problem)
    for _ in range(_MOST_STEPS):
        if point.steepness <= tolerance:
            bound = certified_gradient_norm(problem, point.theta)
            if bound <= tolerance:
                return Solution(point.theta, bound)
        following = _step(problem, point, newton.at(point))
        newton.learn(following.steepness / point.steepness if point.steepness > 0 else 1.0)
        point = following
    raise NotConverged(
        f"The solver stopped at a gradient of norm {certified_gradient_norm(problem, point.theta):.3g}, above the "
        f"tolerance of {tolerance:.3g}. Raise the regularisation (now {problem.regularisation:g}) or the tolerance."
    )


def reachable_tolerance(problem: Problem, longest: float) -> float:
    """A gradient norm that double precision can certify where coefficients are no longer than `longest`; public."""
    summed = (2 * math.sqrt(problem.n) + problem.columns + 40) * problem.lipschitz_near
    return 16 * _ROUNDING * summed + 4 * _ROUNDING * _score_rounding(problem, longest)


def certified_gradient_norm(problem: Problem, theta: Array) -> float:
    """An upper bound of the norm of the gradient at `theta`: computed in blocks, with rounding allowed for."""
    slopes = problem.slopes(theta)
    size = max(math.isqrt(problem.n), 1)
    total = np.zeros(problem.shape)
    for start in range(0, problem.n, size):
        total += problem.rows[start : start + size].T @ slopes[start : start + size]
    gradient = total / problem.n + problem.regularisation * theta
    if problem.linear is not None:
        gradient += problem.linear
    # A sum of m terms errs by at most m roundings of their absolute values; slopes err as their scores do.
    longest = float(np.linalg.norm(theta))
    average = float(np.mean(np.linalg.norm(slopes, axis=1) * problem.norms))
    summed = (size + problem.n / size + 40) * average
    given = 0.0 if problem.linear is None else 4 * float(np.linalg.norm(problem.linear))
    return float(np.linalg.norm(gradient)) + 1.01 * _ROUNDING * (summed + _score_rounding(problem, longest) + given)


def _score_rounding(problem: Problem, longest: float) -> float:
    """How far the rounding of scores may move the gradient, in units of a rounding error."""
    return (problem.columns + 4) * (problem.smoothness + problem.regularisation) * longest


class _Directions:
    """Newton directions; a built Hessian is reused while it works well."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._built = problem.loss.outputs == 1 and problem.columns <= _BUILT
        self._factor: tuple[Array, bool] | None = None

    def at(self, point: _Point) -> Array:
        if not self._built:
            return _conjugate_gradients(self._problem, point)
        if self._factor is None:
            self._factor = cho_factor(self._problem.hessian(point.theta), overwrite_a=True, check_finite=False)
        direction: Array = -cho_solve(self._factor, point.gradient, check_finite=False)
        return direction

    def learn(self, shortened: float) -> None:
        """Forget the Hessian after a step that shortened the gradient by too little."""
        if shortened > _GOOD_ENOUGH:
            self._factor = None


def _conjugate_gradients(problem: Problem, point: _Point) -> Array:
    """The Newton direction to a precision that grows as the gradient vanishes."""
    scores = problem.scores(point.theta)
    residual = -point.gradient
    direction, search = np.zeros_like(residual), residual
    square = float(np.sum(residual**2))
    goal = square * min(0.01, point.steepness)
    for _ in range(4 * problem.dimension + 50):
        if square <= goal:
            break
        bent = problem.hessian_times(scores, search)
        length = square / float(np.sum(search * bent))
        direction = direction + length * search
        residual = residual - length * bent
        square, before = float(np.sum(residual**2)), square
        search = residual + square / before * search
    return direction


def _step(problem: Problem, point: _Point, direction: Array) -> _Point:
    """The first point, halving the step, that is low enough (Armijo), up to the rounding of the value."""
    fall = -float(np.sum(point.gradient * direction))
    # The value is a sum whose terms may cancel: it is as exact as they are.
    terms = abs(point.value) + problem.regularisation * float(np.sum(point.theta**2))
    if problem.linear is not None:
        terms += float(np.sum(np.abs(problem.linear * point.theta)))
    slack = 64 * _ROUNDING * (terms + fall)
    length = 1.0
    while True:
        following = _Point.at(problem, point.theta + length * direction)
        if following.value <= point.value - 1e-4 * length * fall + slack or length < 1e-10:
            return following
        length /= 2
