"""Noise on the training data as Kang et al. publish it: how much, on which examples, and the gradient steps after it.

Nothing here is a guarantee. Noise per example protects the features of each example by itself, as any Gaussian release
does, but not the labels. One noise vector for all examples protects nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Gaussian
from tacit.erm.descent import step_size_for
from tacit.erm.problem import Problem
from tacit.erm.trainers import FullDescent
from tacit.errors import InvalidArgument
from tacit.randomness import Indices, Purpose, Source, Stream

Noise = Literal["per_example", "shared"]
Condition = Literal["strongly_convex", "polyak_lojasiewicz"]


def kang_2020_std(
    *,
    n: int,
    steps: int,
    epsilon: float,
    delta: float,
    lipschitz: float = 1.0,
    strong_convexity: float | None = None,
    constant: float = 1.0,
) -> float:
    """Noise of Kang et al. 2020: theorem 1, or theorem 3 (Polyak-Lojasiewicz) without `strong_convexity`.

    >>> round(kang_2020_std(n=1000, steps=20, epsilon=0.25, delta=1e-5, strong_convexity=0.01), 8)
    0.19203708
    """
    n, steps = _validate.count("n", n, at_least=2), _validate.count("steps", steps)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    lipschitz, constant = _validate.positive("lipschitz", lipschitz), _validate.positive("constant", constant)
    root = 1.0 if strong_convexity is None else math.sqrt(_validate.positive("strong_convexity", strong_convexity))
    variance = constant * lipschitz**2 * steps * -math.log(delta) / (n * (n - 1) * root * epsilon**2)
    return math.sqrt(variance)


def kang_2021_std(
    *, rate: float, steps: int, epsilon: float, delta: float, lipschitz: float = 1.0, constant: float = 1.0
) -> float:
    """Noise of Kang et al. 2021, theorem 1, for lots that hold a share of `rate` of the examples.

    >>> round(kang_2021_std(rate=0.01, steps=1000, epsilon=0.25, delta=1e-5), 7)
    4.2919321
    """
    rate, steps = _validate.rate("rate", rate), _validate.count("steps", steps)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    lipschitz, constant = _validate.positive("lipschitz", lipschitz), _validate.positive("constant", constant)
    return constant * rate * lipschitz * math.sqrt(steps * -math.log(delta)) / epsilon


@dataclass(frozen=True)
class InputRule:
    """What Kang et al. 2020 leave open: the constant c, which theorem applies, and G if the loss has none.

    Without a condition it is "strongly_convex" for a linear model with regularisation, and "polyak_lojasiewicz" for
    one without and for networks, whose objective is not convex.
    """

    constant: float = 1.0
    condition: Condition | None = None
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        if self.condition is not None and self.condition not in get_args(Condition):
            raise InvalidArgument(
                f"condition must be {' or '.join(map(repr, get_args(Condition)))}, or None. Got {self.condition!r}."
            )

    def condition_for(self, problem: Problem) -> Condition:
        """Selects the theorem."""
        return self.condition or ("strongly_convex" if problem.regularisation > 0 else "polyak_lojasiewicz")

    def std(self, problem: Problem, steps: int, epsilon: float, delta: float, lipschitz: float) -> float:
        """The standard deviation for this problem, with gradients no longer than `lipschitz`."""
        return kang_2020_std(
            n=problem.n,
            steps=steps,
            epsilon=epsilon,
            delta=delta,
            lipschitz=lipschitz,
            strong_convexity=problem.regularisation if self.condition_for(problem) == "strongly_convex" else None,
            constant=self.constant,
        )


@dataclass(frozen=True)
class DataRule:
    """What Kang et al. 2021 leave open in theorem 1: the constant c, and G if the loss has none."""

    constant: float = 1.0
    lipschitz: float | None = None

    def std(self, problem: Problem, descent: Descent, epsilon: float, delta: float, lipschitz: float) -> float:
        """The standard deviation for this problem and these lots, with gradients no longer than `lipschitz`."""
        return kang_2021_std(
            rate=descent.lot_size_for(problem.n) / problem.n,
            steps=descent.steps,
            epsilon=epsilon,
            delta=delta,
            lipschitz=lipschitz,
            constant=self.constant,
        )


@dataclass(frozen=True)
class Descent:
    """Gradient steps without noise, from zero: over all examples, or over lots of `lot_size` without replacement.

    The default step size is 1 / smoothness, for rows of the norm that is expected after noise.
    """

    steps: int = 100
    step_size: float | None = None
    lot_size: int | None = None

    def __post_init__(self) -> None:
        _validate.check_fields(self, count=("steps", "lot_size"), positive="step_size")

    def lot_size_for(self, n: int) -> int:
        size = n if self.lot_size is None else self.lot_size
        if size > n:
            raise InvalidArgument(f"lot_size must be at most the number of examples, {n}. Got {size}.")
        return size

    def fit(self, problem: Problem, source: Source) -> Array:
        """The coefficients after all steps."""
        size, step_size = self.lot_size_for(problem.n), step_size_for(problem, self.step_size)
        if size == problem.n:
            return FullDescent(self.steps, step_size).fit(problem)

        def gradient(theta: Array, step: int) -> Array:
            lot = draw_lot(problem.n, size, source.stream(Purpose.LOT, step))
            return problem.rows[lot].T @ problem.slopes(theta, lot) / size

        return problem.descend(gradient, np.full(self.steps, step_size))


def add_noise(rows: Array, std: float, noise: Noise, rng: Stream) -> Array:
    """Normal noise of standard deviation `std`: fresh for every row, or one vector for all of them.

    The result is not rounded to a grid, as in the papers.
    """
    if noise == "shared":
        return rows + std * rng.normal(rows.shape[1], wide=True)
    return rows + std * rng.normal(rows.size, wide=True).reshape(rows.shape)


def check_noise(noise: str) -> Noise:
    """`noise`, if it is valid."""
    if noise not in get_args(Noise):
        raise InvalidArgument(
            "noise must be 'per_example' (which protects the features of each example by itself) or 'shared' (which "
            f"the proofs in the papers are about). Got {noise!r}."
        )
    return cast(Noise, noise)


def with_rows(problem: Problem, x: Array, *, intercept: bool, length: float | None = None) -> Problem:
    """The same problem over other rows (with a column of ones for the intercept), whose norms are about `length`.

    Without `length` it is the largest norm, which is right if the rows are public.
    """
    rows = np.concatenate([x, np.ones((len(x), 1))], axis=1) if intercept else x
    if length is None:
        length = float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max()))
    return replace(problem, rows=rows, data_norm=max(length, 1e-300))


def one_step_event(n: int, std: float, data_norm: float) -> Gaussian:
    """The cost of the model after one full step from zero with noise per example: exactly Gaussian, features replaced.

    At zero all slopes have the same size, so the step is a mean of noisy rows, and one row moves it by 2 norms over n.
    """
    return Gaussian(std * math.sqrt(n) / (2 * data_norm), Adjacency.REPLACE_ONE)


def draw_lot(n: int, size: int, rng: Stream) -> Indices:
    """`size` different indices below `n`, every set of them equally likely."""
    keys = _draw_keys(n, rng)
    return np.argpartition(keys, size - 1)[:size].astype(np.int64)


def draw_permutation(n: int, rng: Stream) -> Indices:
    """The indices below `n` in uniformly random order."""
    return np.argsort(_draw_keys(n, rng)).astype(np.int64)


def draw_below(n: int, size: int, rng: Stream) -> Indices:
    """`size` whole numbers below `n`, each uniform to within n / 2^64."""
    bits = np.empty(size, dtype=np.uint64)
    rng.fill(bits)
    return (bits % np.uint64(n)).astype(np.int64)


def _draw_keys(n: int, rng: Stream) -> Any:
    """`n` random numbers, all different."""
    keys = np.empty(n, dtype=np.uint64)
    while True:
        rng.fill(keys)
        if n < 2 or np.diff(np.sort(keys)).min() > 0:
            return keys
