"""Gradient perturbation: every step of a descent gets noise, and all of them are accounted for together.

Four descents, three papers: full gradients and variance reduction (Wang et al. 2017), lots (Bassily et al. 2014), one
pass over disjoint lots (Song et al. 2013). In rigorous form the noise is the least that a certified accountant allows
for the budget. In paper form it follows the paper's formula, and the guarantee states what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate, multiplier_for
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Unproven
from tacit.erm.descent import (
    NoisyDescent,
    NoisyLots,
    NoisyPass,
    NoisySnapshots,
    NoisyTrainer,
    clip_norm_for,
    shift,
    shrinking_steps,
    step_size_for,
)
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy
from tacit.erm.noisy_data import draw_below
from tacit.erm.problem import Problem
from tacit.erm.result import ErmBudget, ErmResult, Mode, Published, Setup, check_mode, refuse_network
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption, Status
from tacit.methods.registry import Entry
from tacit.randomness import Purpose, Source, Stream

ENTRY = Entry(
    name="gradient_perturbation",
    kind="linear",
    paper="Song et al. 2013, Bassily et al. 2014, Wang et al. 2017",
    idea="Every step of a descent gets noise, and all of them are accounted for together.",
    status="refuted",
    verdict="Wang et al. (full gradients, the default) leave a constant open, and with 1 the epsilon is 2.4 where 1 is "
    "claimed (at delta 1e-5; from 4.84 on it is proven). Song et al. (NoisyPass) and Bassily et al. (NoisyLots) are "
    "proven; for DP-SVRG (NoisySnapshots) no constant has a proof.",
    rigorous="As much noise as a certified accountant asks for.",
)

_NAME = "gradient_perturbation"
_LINEAR_ONLY = "its steps and its clipping follow from the constants of a convex loss."
# This share of delta covers outcomes that no single step's epsilon covers.
_TAIL_SHARE = 0.1
_AT_ONCE = 256


def gradient_perturbation(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float | None,
    data_norm: float,
    mode: Mode = "rigorous",
    training: NoisyTrainer = NoisyDescent(),  # noqa: B008 - a frozen value
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    intercept: bool = True,
    constant: float = 1.0,
    module: object = None,
    seed: int | None = None,
) -> ErmResult:
    """Coefficients by noisy descent on mean loss + (regularisation / 2) |theta|^2, rows clipped to `data_norm`.

    Guarantee, rigorous: (epsilon, delta)-DP, certified for all steps together; epsilon-DP with delta=None, for
    `NoisyPass` only. In paper form `constant` is the one that Wang et al. 2017 leave open, and the guarantee is for one
    example replaced by another. The number of steps, step sizes and clip norms are public. A network (`module`) is
    refused.
    """
    refuse_network(module, _LINEAR_ONLY)
    mode = check_mode(mode)
    _validate.kind("training", training, NoisyTrainer, "NoisyDescent(), NoisyLots(), NoisyPass() or NoisySnapshots()")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    setup = Setup.of(x, y, **about, epsilon=epsilon, delta=delta, intercept=intercept, seed=seed)
    problem, budget, source = setup.problem, setup.budget, setup.source
    if isinstance(training, NoisyDescent) and budget.delta is not None:
        training = training.plan_steps(problem, gdp.mu(budget.epsilon, budget.delta))
    if mode == "rigorous":
        multiplier = _find_multiplier(training, problem.n, budget, adjacency)
        noisy, published = training.run(problem, multiplier, adjacency, source), Published(_NAME)
    else:
        constant = _validate.positive("constant", constant)
        noisy, published = _run_as_published(training, problem, budget, constant, source)
    return setup.release(noisy, published, assumptions=_assume_sampling(training, mode))


@lru_cache(maxsize=256)
def _find_multiplier(training: NoisyTrainer, n: int, budget: ErmBudget, adjacency: Adjacency) -> float:
    """The least noise over sensitivity with which all steps keep the budget. Cached, because lots take seconds."""
    if budget.delta is None:
        if not isinstance(training, NoisyPass):
            raise InvalidArgument(
                "Normal noise is never private without a delta. Give one, or use training=NoisyPass(), whose noise "
                "needs none."
            )
        return training.passes / budget.epsilon
    if isinstance(training, NoisyDescent) and training.steps is not None:
        return multiplier_for(epsilon=budget.epsilon, delta=budget.delta, rate=1.0, steps=training.steps)
    return calibrate(
        lambda multiplier: training.event(n, multiplier, adjacency),
        epsilon=budget.epsilon,
        delta=budget.delta,
        # The accountant is slow where there is too little noise, so the search starts with much.
        guess=1.0 / float(gdp.mu(budget.epsilon, budget.delta)),
    )


def _run_as_published(
    training: NoisyTrainer, problem: Problem, budget: ErmBudget, constant: float, source: Source
) -> tuple[Noisy, Published]:
    if isinstance(training, NoisyPass):
        claim = budget.claim(f"Song et al. 2013, epsilon {budget.epsilon / training.passes:g} in each pass")
        noisy = training.run(problem, training.passes / budget.epsilon, Adjacency.REPLACE_ONE, source)
        return noisy, Published(f"{_NAME} (Song et al. 2013)", "paper", claim)
    if budget.delta is None:
        raise InvalidArgument("Only Song et al. 2013 (training=NoisyPass()) need no delta. Give one.")
    match training:
        case NoisyDescent():
            return _run_wang(training, problem, budget, constant, source)
        case NoisyLots():
            return _run_bassily(training, problem, budget, source)
        case NoisySnapshots():
            return _run_svrg(training, problem, budget, constant, source)
    raise InvalidArgument(f"No paper is known for {training!r}. Use mode='rigorous'.")


def _run_wang(
    training: NoisyDescent, problem: Problem, budget: ErmBudget, constant: float, source: Source
) -> tuple[Noisy, Published]:
    """Noise that keeps the claim only if the constant is large enough."""
    assert training.steps is not None
    clip_norm, delta = clip_norm_for(problem, training.clip_norm), budget.stated_delta
    std = wang_2017_std(problem.n, clip_norm, training.steps, budget.epsilon, delta, constant)
    multiplier = std * problem.n / shift(clip_norm, Adjacency.REPLACE_ONE)
    claim = budget.claim(f"Wang et al. 2017, noisy gradient descent with constant {constant:g}")
    least = wang_2017_least_constant(budget.epsilon, delta)
    status, because = Status.PROVEN, ""
    if constant < least * (1 - 1e-9):
        status = Status.REFUTED
        because = f"Their constant is left open; below {least:.4g} a loss with steady gradients exceeds the claim."
    noisy = training.run(problem, multiplier, Adjacency.REPLACE_ONE, source)
    return noisy, Published(f"{_NAME} (Wang et al. 2017)", "paper", claim, status, because)


def _run_bassily(training: NoisyLots, problem: Problem, budget: ErmBudget, source: Source) -> tuple[Noisy, Published]:
    """One uniformly drawn example per step. The noise is made for n^2 steps; fewer steps cost less."""
    if training.lot_size != 1 or training.steps > problem.n**2:
        raise InvalidArgument(
            f"Bassily et al. 2014 take one example per step and at most n^2 = {problem.n**2} steps. Use "
            f"NoisyLots(steps=..., lot_size=1), or mode='rigorous'. Got {training!r}."
        )
    clip_norm, delta = _bound_gradient(problem), budget.stated_delta
    std = bassily_2014_std(problem.n, clip_norm, budget.epsilon, delta) / problem.n
    moved = shift(clip_norm, Adjacency.REPLACE_ONE)
    sizes = shrinking_steps(problem, training.steps, training.step_size)
    noisy = singles_descent(problem, sizes, std=std, sensitivity=moved, delta=delta, source=source)
    claim = budget.claim(f"Bassily et al. 2014, {training.steps} of up to n^2 steps")
    return noisy, Published(f"{_NAME} (Bassily et al. 2014)", "paper", claim)


def _run_svrg(
    training: NoisySnapshots, problem: Problem, budget: ErmBudget, constant: float, source: Source
) -> tuple[Noisy, Published]:
    """Noise on corrected gradients, none on the snapshot's."""
    delta = budget.stated_delta
    steps, size = training.rounds * training.inner, step_size_for(problem, training.step_size)
    std = wang_2017_std(problem.n, _bound_gradient(problem), steps, budget.epsilon, delta, constant)
    drawn = draw_below(problem.n, steps, source.stream(Purpose.LOT, 0))
    noises = _draw_noises(source.stream(Purpose.NOISE, 0), problem.dimension)
    snapshot = full = np.zeros(problem.shape)

    def gradient(theta: Array, step: int) -> Array:
        nonlocal snapshot, full
        if step % training.inner == 0:
            snapshot, full = theta, problem.rows.T @ problem.slopes(theta) / problem.n
        one = drawn[step : step + 1]
        change = problem.rows[one].T @ (problem.slopes(theta, one) - problem.slopes(snapshot, one))
        noise: Array = std * next(noises).reshape(problem.shape)
        return change + full + noise

    theta = problem.descend(gradient, np.full(steps, size))
    claim = budget.claim(f"Wang et al. 2017, DP-SVRG with constant {constant:g}")
    reason = "no constant is given for which the published noise is proven"
    event = Unproven(f"({budget.epsilon:g}, {delta:g})-DP", reason, Adjacency.REPLACE_ONE)
    because = "Their constant is left open, and no value of it has a proof."
    published = Published(f"{_NAME} (DP-SVRG, Wang et al. 2017)", "paper", claim, Status.UNPROVEN, because)
    return Noisy(theta, event), published


def _bound_gradient(problem: Problem) -> float:
    """The Lipschitz constant, because gradients are not clipped."""
    if not math.isfinite(problem.lipschitz):
        raise InvalidArgument(
            f"Gradients of {problem.loss!r} are unbounded, and this paper does not clip them. Use Huber, or "
            "mode='rigorous'."
        )
    return problem.lipschitz


def _assume_sampling(training: NoisyTrainer, mode: Mode) -> tuple[Assumption, ...]:
    match training:
        case NoisyLots() | NoisySnapshots() if mode == "rigorous":
            text = "Lots are Poisson samples, and which examples they held stays secret."
            return (Assumption("poisson_lots", text),)
        case NoisyLots() | NoisySnapshots():
            text = "Each step draws one example uniformly, and which it was stays secret."
            return (Assumption("single_draws", text),)
        case NoisyPass():
            text = "Lots are consecutive pieces of the data, whose order does not depend on its values."
            return (Assumption("ordered_lots", text),)
    return ()


def bassily_2014_std(n: int, lipschitz: float, epsilon: float, delta: float) -> float:
    """The standard deviation of Bassily et al. 2014 on n times the gradient of one example, for up to n^2 steps.

    >>> round(bassily_2014_std(1000, 1.0, 1.0, 1e-5) / 1000, 2)
    82.38
    """
    return math.sqrt(32 * math.log(n / delta) * math.log(1 / delta)) * lipschitz * n / epsilon


def wang_2017_std(n: int, lipschitz: float, steps: int, epsilon: float, delta: float, constant: float = 1.0) -> float:
    """The standard deviation of Wang et al. 2017 on the mean gradient, "for some constant".

    >>> round(wang_2017_std(1000, 1.0, 50, 0.25, 1e-5), 8)
    0.09597052
    """
    return math.sqrt(constant * steps * math.log(1 / delta)) * lipschitz / (n * epsilon)


def wang_2017_least_constant(epsilon: float, delta: float) -> float:
    """The least constant with which Wang et al.'s noisy gradient descent keeps its claim.

    >>> round(wang_2017_least_constant(0.1, 1e-5), 3), round(wang_2017_least_constant(1.0, 1e-5), 3)
    (3.285, 4.835)
    """
    return 4 * epsilon**2 / (math.log(1 / delta) * gdp.mu(epsilon, delta) ** 2)


def singles_event(n: int, steps: int, multiplier: float, delta: float) -> Event:
    """The cost of steps on one example out of n each, drawn uniformly, if one example is replaced.

    A step with Gaussian noise is (e, d)-DP for the drawn example, so (log(1 + (exp(e) - 1) / n), d / n)-DP for an
    example that is drawn with probability 1/n (Balle, Barthe and Gaboardi 2018); steps compose.
    """
    tail = min(_TAIL_SHARE * delta * n / steps, 0.5)
    alone = gdp.epsilon(tail, 1 / multiplier)
    return EpsilonDelta(math.log1p(math.expm1(alone) / n), tail / n, Adjacency.REPLACE_ONE) * steps


def singles_descent(
    problem: Problem, step_sizes: Array, *, std: float, sensitivity: float, delta: float, source: Source
) -> Noisy:
    """Steps along the noisy gradient of one uniformly drawn example each (Bassily et al. 2014), and their cost.

    One example replaced by another moves a gradient by at most `sensitivity`.
    """
    drawn = draw_below(problem.n, len(step_sizes), source.stream(Purpose.LOT, 0))
    noises = _draw_noises(source.stream(Purpose.NOISE, 0), problem.dimension)

    def gradient(theta: Array, step: int) -> Array:
        one = drawn[step : step + 1]
        noise: Array = std * next(noises).reshape(problem.shape)
        return problem.rows[one].T @ problem.slopes(theta, one) + noise

    event = singles_event(problem.n, len(step_sizes), std / sensitivity, delta)
    return Noisy(problem.descend(gradient, step_sizes), event)


def _draw_noises(rng: Stream, dimension: int) -> Iterator[Array]:
    """Standard normal vectors without end, drawn some at a time."""
    while True:
        yield from rng.normal(_AT_ONCE * dimension, wide=True).reshape(_AT_ONCE, dimension)
