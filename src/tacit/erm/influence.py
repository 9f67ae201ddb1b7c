"""Influence functions, and the selective noise of Kang et al. 2021 (algorithm 2) as published.

Without an example the model would move by about its contribution: the inverse Hessian times its gradient, over n (Koh
and Liang 2017). The paper adds noise to examples that contribute much and none to the others. Nothing is proven:
small influence bounds how far a minimiser moves, not how likely an outcome is, and an output without noise identifies
its data however little it moves. The list of examples without noise is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, cg, eigsh

from tacit import _validate
from tacit._validate import Array
from tacit.erm.noisy_data import draw_below, with_rows
from tacit.erm.problem import Problem
from tacit.erm.result import PerturbedData, Unnoised
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument, NotConverged
from tacit.randomness import Purpose, Source

Times = Callable[[Array], Array]

# Up to this many parameters the Hessian is built and factored; for more, only products with it are computed.
_BUILT = 600
_CG_TOLERANCE = 1e-10
_EIGEN_TOLERANCE = 1e-4
_PRETRAINED = 1e-12
# A coefficient of zero has no ratio.
_LEAST = 1e-12
_INDEFINITE = (
    "The Hessian is not positive definite, so influence is not defined. For a network it is so only near a minimum: "
    "train longer first, raise the regularisation, or add damping: InfluenceRule(damping=...)."
)


class Influenceable(Protocol):
    """A model with one vector of parameters; the regulariser is part of every example's loss, and of its gradient."""

    @property
    def problem(self) -> Problem:
        """Clipped features, targets and loss."""

    def pretrain(self) -> Array:
        """Parameters near the optimum, from the data without noise."""

    def gradient(self, index: int, x: Array, theta: Array) -> Array:
        """The gradient of one example's loss, with its features replaced by `x`."""

    def mixed_norm(self, index: int, theta: Array) -> float:
        """The spectral norm of the second derivative by features and parameters: how noise passes into the gradient."""

    def inverse_hessian(
        self, theta: Array, damping: float = 0.0, *, directions: int | None = None, rows: int | None = None
    ) -> Times:
        """Multiplication with the inverse Hessian of the mean loss, with `damping` added to its diagonal.

        `directions` and `rows` are those of `InfluenceRule`.
        """


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model of clipped features; with an intercept, one more row of parameters. Numpy and scipy only."""

    problem: Problem
    intercept: bool

    @property
    def whole(self) -> Problem:
        """The problem with its column of ones."""
        length = math.sqrt(self.problem.data_norm**2 + self.intercept)
        return with_rows(self.problem, self.problem.rows, intercept=self.intercept, length=length)

    def pretrain(self) -> Array:
        """The minimiser of the regularised objective, as exactly as double precision allows."""
        self.problem.require_regularisation(": influence divides by the Hessian, which must be positive definite")
        whole = self.whole
        longest = whole.lipschitz_near / whole.regularisation
        return minimise(whole, max(_PRETRAINED, reachable_tolerance(whole, longest))).theta.ravel()

    def gradient(self, index: int, x: Array, theta: Array) -> Array:
        row, matrix = self._row(x), self._matrix(theta)
        _, slopes = self.problem.loss.evaluate(row[None] @ matrix, self.problem.targets[index : index + 1])
        gradient: Array = np.outer(row, slopes[0]) + self.problem.regularisation * matrix
        return gradient.ravel()

    def mixed_norm(self, index: int, theta: Array) -> float:
        return float(np.linalg.norm(self.mixed_derivative(index, theta), 2))

    def mixed_derivative(self, index: int, theta: Array) -> Array:
        """d/dx d/dtheta of one example's loss, as a matrix [parameters, features]."""
        x, matrix, loss = self.problem.rows[index], self._matrix(theta), self.problem.loss
        row, target = self._row(x), self.problem.targets[index : index + 1]
        scores = row[None] @ matrix
        slopes = loss.evaluate(scores, target)[1][0]
        bends = np.concatenate([loss.bend(scores, target, one[None]) for one in np.eye(loss.outputs)])
        # The gradient is row x slopes: features move the row, and through the scores the slopes.
        mixed = np.einsum("a,bj->abj", row, bends @ matrix[: x.size].T)
        own = np.arange(x.size)
        mixed[own, :, own] += slopes
        derivative: Array = mixed.reshape(theta.size, x.size)
        return derivative

    def inverse_hessian(
        self, theta: Array, damping: float = 0.0, *, directions: int | None = None, rows: int | None = None
    ) -> Times:
        if directions is not None or rows is not None:
            raise InvalidArgument("directions and rows apply to networks: a linear model's Hessian is exact.")
        # To the Hessian, damping is as much more regularisation.
        whole, matrix = replace(self.whole, regularisation=self.problem.regularisation + damping), self._matrix(theta)
        if whole.loss.outputs == 1 and whole.dimension <= _BUILT:
            return _factor(whole.hessian(matrix))
        scores = whole.scores(matrix)
        return invert(lambda vector: whole.hessian_times(scores, vector.reshape(whole.shape)).ravel(), theta.size)

    def _row(self, x: Array) -> Array:
        return np.append(x, 1.0) if self.intercept else x

    def _matrix(self, theta: Array) -> Array:
        return theta.reshape(-1, self.problem.loss.outputs)


def invert(times: Times, dimension: int) -> Times:
    """The inverse of a positive definite matrix that is known by its products: factored, or by conjugate gradients."""
    if dimension <= _BUILT:
        built = np.stack([times(one) for one in np.eye(dimension)])
        return _factor((built + built.T) / 2)

    def product(vector: Array) -> Array:
        found = times(vector)
        # Conjugate gradients would converge to a saddle point.
        if not float(vector @ found) > 0:
            raise NotConverged(_INDEFINITE)
        return found

    operator = LinearOperator((dimension, dimension), matvec=product, dtype=np.float64)

    def inverse(vector: Array) -> Array:
        solution, failed = cg(operator, vector, rtol=_CG_TOLERANCE, maxiter=20 * dimension)
        if failed or not np.all(np.isfinite(solution)):
            raise NotConverged(_INDEFINITE)
        return np.asarray(solution)

    return inverse


def invert_leading(times: Times, dimension: int, *, directions: int, damping: float, rest: float) -> Times:
    """The inverse of a damped symmetric matrix that is factored once, by its `directions` largest eigenvectors.

    Every other eigenvalue is taken for `rest`; an eigenvalue e off by x changes the inverse there by the factor
    (rest + damping) / (e + damping). Few products are needed, and each inverse is then two small ones.
    """
    operator = LinearOperator((dimension, dimension), matvec=times, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=dimension)
    try:
        values, vectors = eigsh(operator, k=directions, which="LM", v0=start, tol=_EIGEN_TOLERANCE)
    except ArpackNoConvergence as error:
        raise NotConverged("The leading eigenvectors of the Hessian were not found. Ask for more or fewer.") from error
    outside = 1 / (rest + damping)
    if values.min() + damping <= 0:
        raise NotConverged(_INDEFINITE)
    inside = 1 / (values + damping) - outside

    return lambda vector: outside * vector + vectors @ (inside * (vectors.T @ vector))


def _factor(hessian: Array) -> Times:
    try:
        factor = cho_factor(hessian)
    except LinAlgError as error:
        raise NotConverged(_INDEFINITE) from error

    return lambda vector: np.asarray(cho_solve(factor, vector))


def contributions(model: Influenceable, theta: Array, inverse: Times | None = None) -> Array:
    """How far the model would move without each example, to first order [examples, parameters]. Private.

    At the optimum they add up to zero.
    """
    inverse = model.inverse_hessian(theta) if inverse is None else inverse
    rows = [
        inverse(model.gradient(index, model.problem.rows[index], theta)) / model.problem.n
        for index in range(model.problem.n)
    ]
    return np.stack(rows)


def ratio(contribution: Array, theta: Array, *, normalise: bool = False) -> float:
    """The paper's measure |(contribution + theta) / theta|, element by element, then its length.

    For an example without influence that is the square root of the number of parameters, not 1; `normalise` divides by
    it.
    """
    divisor = np.where(np.abs(theta) < _LEAST, np.copysign(_LEAST, theta), theta)
    length = float(np.linalg.norm((contribution + theta) / divisor))
    return length / math.sqrt(theta.size) if normalise else length


def is_left_alone(measure: float, epsilon: float) -> bool:
    """The paper's test: an example with a measure between e^-epsilon and e^epsilon gets no noise."""
    return measure > 0 and abs(math.log(measure)) <= epsilon


def kang_2021_example_std(
    *,
    n: int,
    steps: int,
    epsilon: float,
    delta: float,
    mixed_norm: float,
    lipschitz: float = 1.0,
    constant: float = 1.0,
    consistent: bool = False,
) -> float:
    """Noise of Kang et al. 2021, theorem 2, for one example whose noise reaches the gradient times `mixed_norm`.

    As published it is divided by the square root of `mixed_norm`; `consistent` divides by `mixed_norm`, as the argument
    needs.

    >>> round(kang_2021_example_std(n=1000, steps=1000, epsilon=0.25, delta=1e-5, mixed_norm=0.5), 8)
    0.60697085
    """
    n, steps = _validate.count("n", n), _validate.count("steps", steps)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    passed = max(_validate.non_negative("mixed_norm", mixed_norm), _LEAST)
    passed = passed if consistent else math.sqrt(passed)
    return constant * lipschitz * math.sqrt(steps * -math.log(delta)) / (passed * n * epsilon)


@dataclass(frozen=True)
class InfluenceRule:
    """Algorithm 2's settings: `rounds` of `local_steps` steps on single examples, and what the paper leaves open.

    With `normalise` the threshold compares with 1, as the paper seems to mean; without, literally. The smaller the
    steps, the nearer the outcome stays to the model that was trained without noise. `damping` is added to the diagonal
    of the Hessian, which for networks need not be positive definite (Koh and Liang 2017).

    The Hessian of a large network is inverted by conjugate gradients, afresh for each step. With `directions` it is
    factored once, by that many leading eigenvectors (`invert_leading`), measured on `rows` random examples.
    """

    rounds: int = 10
    local_steps: int = 10
    step_size: float = 0.1
    normalise: bool = False
    consistent: bool = False
    constant: float = 1.0
    lipschitz: float | None = None
    damping: float = 0.0
    directions: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        counts, sizes = ("rounds", "local_steps", "directions", "rows"), ("step_size", "constant")
        _validate.check_fields(self, count=counts, positive=sizes, non_negative="damping")

    @property
    def steps(self) -> int:
        return self.rounds * self.local_steps


@dataclass(frozen=True, eq=False)
class SelectiveRun:
    """The result of algorithm 2, and the examples whose last use had no noise."""

    theta: Array
    data: PerturbedData
    unnoised: Unnoised


def selective_descent(
    model: Influenceable,
    rule: InfluenceRule,
    *,
    epsilon: float,
    delta: float,
    lipschitz: float,
    source: Source,
) -> SelectiveRun:
    """Algorithm 2 of Kang et al. 2021: from a model trained without noise, steps on examples, some of them with noise.

    Nothing is proven: if all examples are below the threshold, the result is a function of the data without noise.
    """
    start = model.pretrain()
    inverse = model.inverse_hessian(start, rule.damping, directions=rule.directions, rows=rule.rows)
    order = draw_below(model.problem.n, rule.steps, source.stream(Purpose.LOT, 0))
    rng = source.stream(Purpose.NOISE, 0)
    x, noised = model.problem.rows.copy(), np.zeros(model.problem.n, dtype=bool)
    shared = local = start
    for step, index in enumerate(order.tolist()):
        if step % rule.local_steps == 0:
            shared = local
        features = model.problem.rows[index]
        contribution = inverse(model.gradient(index, features, shared)) / model.problem.n
        alone = is_left_alone(ratio(contribution, shared, normalise=rule.normalise), epsilon)
        if not alone:
            std = kang_2021_example_std(
                n=model.problem.n,
                steps=rule.steps,
                epsilon=epsilon,
                delta=delta,
                mixed_norm=model.mixed_norm(index, local),
                lipschitz=lipschitz,
                constant=rule.constant,
                consistent=rule.consistent,
            )
            features = features + std * rng.normal(features.size, wide=True)
        local = local - rule.step_size * model.gradient(index, features, local)
        x[index], noised[index] = features, not alone
    return SelectiveRun(local, PerturbedData(x, model.problem.numbers), Unnoised(np.flatnonzero(~noised)))
