"""The local baselines of Kang et al. 2020: every example is randomised before anyone else sees it.

Duchi, Jordan and Wainwright 2013 report one noisy gradient of each example. Fukuchi, Tran and Sakuma 2017 report the
terms of a quadratic objective; their noise is small because only the sum over all examples has to be private.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from tacit.accounting import gdp
from tacit.accounting.events import Adjacency, EpsilonDelta, Gaussian
from tacit.erm import Logistic, Loss, prepare
from tacit.erm.result import ErmResult, make_result
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Guarantee

Array = NDArray[Any]

# Coefficients stay in a ball of this radius, a public constant.
RADIUS = 10.0
_REPLACED = Adjacency.REPLACE_ONE


def duchi_length(dimension: int, longest: float, epsilon: float) -> float:
    """The length of a report about a vector no longer than `longest`, with which reports are right on average.

    A report is uniform on a half sphere around the vector's direction, or on the opposite half. The cosine of a random
    direction of the right half has the mean gamma(d/2) / (sqrt(pi) gamma((d+1)/2)).
    """
    cosine = math.exp(gammaln(dimension / 2) - gammaln((dimension + 1) / 2)) / math.sqrt(math.pi)
    return longest / (math.tanh(epsilon / 2) * cosine)


def duchi_reports(vectors: Array, longest: float, epsilon: float, rng: np.random.Generator) -> Array:
    """One report for each row: epsilon-DP for that row by itself, whatever the row is.

    Duchi, Jordan and Wainwright 2013, section 4.2.3: the direction is kept with a probability that makes the average
    right, then a half sphere is chosen by randomised response.
    """
    directions = rng.normal(size=vectors.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.minimum(np.linalg.norm(vectors, axis=1), longest)
    kept = np.where(rng.random(len(vectors)) < 0.5 + lengths / (2 * longest), 1.0, -1.0)
    true = np.where(rng.random(len(vectors)) < 1 / (1 + math.exp(-epsilon)), 1.0, -1.0)
    side = np.where(np.einsum("ij,ij->i", directions, vectors) >= 0, 1.0, -1.0)
    return duchi_length(vectors.shape[1], longest, epsilon) * (kept * true * side)[:, None] * directions


def duchi_2013(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float,
    data_norm: float,
    seed: int,
    pace: float = 1.0,
    mode: str = "paper",
) -> ErmResult:
    """One pass over the examples in groups of sqrt(n); each reports its gradient once. The mean of the iterates."""
    problem = prepare(x, y, loss=loss, regularisation=regularisation, data_norm=data_norm)
    rng = np.random.default_rng(seed)
    group = max(1, math.isqrt(problem.n))
    length = duchi_length(problem.dimension, problem.lipschitz, epsilon)
    theta, total, steps = np.zeros(problem.shape), np.zeros(problem.shape), 0
    order = rng.permutation(problem.n)
    for start in range(0, problem.n - group + 1, group):
        lot = order[start : start + group]
        gradients = np.einsum("ni,no->nio", problem.rows[lot], problem.slopes(theta, lot)).reshape(group, -1)
        reported = duchi_reports(gradients, problem.lipschitz, epsilon, rng).mean(axis=0).reshape(problem.shape)
        steps += 1
        size = pace * RADIUS * math.sqrt(group) / (length * math.sqrt(steps))
        theta = theta - min(size, 1 / problem.regularisation) * (reported + problem.regularisation * theta)
        theta *= min(1.0, RADIUS / max(float(np.linalg.norm(theta)), RADIUS))
        total += theta
    # Nobody reports twice, so all reports together cost what one costs.
    event = EpsilonDelta(epsilon, 0.0, _REPLACED)
    return make_result(
        total / steps, problem.loss, _guarantee("Duchi et al. 2013", mode, event, event, delta), intercept=True
    )


def report_sensitivity(data_norm: float) -> float:
    """How far the report (y x / 2, x x' / 8) of one example moves if it is replaced, the square counted as a vector.

    Two vectors of that norm are at most twice it apart, and their squares sqrt(2) times its square.
    """
    return math.sqrt(data_norm**2 + 2 * (data_norm**2 / 8) ** 2)


def fukuchi_std(n: int, lipschitz: float, epsilon: float, delta: float) -> float:
    """The noise on one report: Kang et al. 2020, table 1, with the constant 1."""
    return lipschitz * math.sqrt((math.log(16 / delta) + epsilon) / n) / epsilon


def fukuchi_2017(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float,
    data_norm: float,
    seed: int,
    is_local: bool = False,
    mode: str = "paper",
) -> ErmResult:
    """The minimiser of a quadratic objective whose terms every example reports with Gaussian noise.

    The logistic loss is its expansion at zero, log 2 - y x.theta / 2 + (x.theta)^2 / 8. In paper mode the noise is that
    of the paper; else the least with which (epsilon, delta) holds: for the sum of all reports, or with `is_local` for
    each by itself.
    """
    if not isinstance(loss, Logistic):
        raise InvalidArgument("The quadratic expansion is that of the logistic loss, for two classes.")
    problem = prepare(x, y, loss=loss, regularisation=regularisation, data_norm=data_norm)
    n, d, moved = problem.n, problem.columns, report_sensitivity(data_norm)
    if mode == "paper":
        std = fukuchi_std(n, problem.lipschitz, epsilon, delta)
    else:
        std = moved / float(gdp.mu(epsilon, delta)) / (1 if is_local else math.sqrt(n)) * (1 + 1e-11)
    rng = np.random.default_rng(seed)
    # Only sums of reports are needed, and a sum of n normal numbers is a normal number.
    linear = problem.rows.T @ problem.targets / 2 + math.sqrt(n) * std * rng.normal(size=(d, 1))
    square = problem.rows.T @ problem.rows / 8 + math.sqrt(n) * std * _symmetric(rng, d)
    values, vectors = np.linalg.eigh(2 * square / n + regularisation * np.eye(d))
    theta = vectors @ ((vectors.T @ linear / n) / np.maximum(values, regularisation)[:, None])
    local, central = Gaussian(std / moved, _REPLACED), Gaussian(math.sqrt(n) * std / moved, _REPLACED)
    event = local if is_local else central
    return make_result(
        theta, problem.loss, _guarantee("Fukuchi et al. 2017", mode, event, local, delta), intercept=True
    )


def _symmetric(rng: np.random.Generator, d: int) -> Array:
    """Noise on a symmetric matrix: 1 on the diagonal, and as off-diagonal entries count twice, 1 / sqrt(2) there."""
    drawn = rng.normal(size=(d, d))
    noise: Array = (drawn + drawn.T) / 2
    return noise


def _guarantee(method: str, mode: str, event: Any, local: Any, delta: float) -> Guarantee:
    return Guarantee(event, delta, method=method, mode=mode, local=local, violations=(FIXED_SEED,))
