"""Gradient perturbation: every step of a descent gets noise, and all of them are accounted for together.

Four descents, three papers: full gradients and variance reduction (Wang et al. 2017), lots (Bassily et al. 2014), one
pass over disjoint lots (Song et al. 2013). In rigorous form the noise is the least that a certified accountant allows
for the budget. In paper form it is the paper's formula, and the guarantee says what that amounts to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate, multiplier_for
from tacit.accounting.events import Adjacency, Unproven
from tacit.erm.descent import (
    Descent,
    NoisyDescent,
    NoisyLots,
    NoisyPass,
    clip_norm_for,
    shift,
    shrinking_steps,
    step_size_for,
)
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy
from tacit.erm.problem import Problem, prepare
from tacit.erm.published import (
    bassily_2014_std,
    singles_descent,
    snapshot_descent,
    wang_2017_least_constant,
    wang_2017_std,
)
from tacit.erm.result import Allowance, ErmResult, Mode, Published, check_mode, refuse_network, result_of
from tacit.erm.snapshots import NoisySnapshots
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption, Status
from tacit.methods.registry import Entry
from tacit.randomness import Source, source_for

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
    training: Descent = NoisyDescent(),  # noqa: B008 - a frozen value
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    intercept: bool = True,
    constant: float = 1.0,
    module: object = None,
    seed: int | None = None,
) -> ErmResult:
    """Coefficients by noisy descent on mean loss + (regularisation / 2) |theta|^2, rows clipped to `data_norm`.

    Guarantee: (epsilon, delta)-DP in rigorous form, certified for all steps together; epsilon-DP with delta=None, which
    only `NoisyPass` can. In paper form `constant` is the one that Wang et al. 2017 leave open, and the guarantee is
    about one example replaced by another. The number of steps, step sizes and clip norms are public. A network
    (`module`) is refused.
    """
    refuse_network(module, _LINEAR_ONLY)
    budget, mode = Allowance(epsilon, delta), check_mode(mode)
    if not isinstance(training, Descent):
        raise InvalidArgument(
            f"training must be NoisyDescent, NoisyLots, NoisyPass or NoisySnapshots of tacit.erm. Got {training!r}."
        )
    problem = prepare(x, y, loss=loss, regularisation=regularisation, data_norm=data_norm, intercept=intercept)
    if isinstance(training, NoisyDescent) and budget.delta is not None:
        training = training.planned(problem, gdp.mu(budget.epsilon, budget.delta))
    source = source_for(seed)
    if mode == "rigorous":
        multiplier = _multiplier(training, problem.n, budget, adjacency)
        outcome = _Outcome(training.run(problem, multiplier, adjacency, source), Published(_NAME))
    else:
        outcome = _published(training, problem, budget, _validate.positive("constant", constant), source)
    return result_of(
        outcome.noisy.values,
        problem,
        outcome.noisy.event,
        published=outcome.published,
        delta=budget.stated_delta,
        intercept=intercept,
        source=source,
        assumptions=_sampling(training, mode),
    )


@dataclass(frozen=True, eq=False)
class _Outcome:
    noisy: Noisy
    published: Published


@lru_cache(maxsize=256)
def _multiplier(training: Descent, n: int, budget: Allowance, adjacency: Adjacency) -> float:
    """The least noise over sensitivity with which all steps keep the budget. Lots take seconds, so it is remembered."""
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
        # Rather too much noise than too little, of which the accountant is slow to say how much too little it is.
        guess=1.0 / float(gdp.mu(budget.epsilon, budget.delta)),
    )


def _published(training: Descent, problem: Problem, budget: Allowance, constant: float, source: Source) -> _Outcome:
    if isinstance(training, NoisyPass):
        return _song(training, problem, budget, source)
    if budget.delta is None:
        raise InvalidArgument("Only Song et al. 2013 (training=NoisyPass()) need no delta. Give one.")
    delta = budget.delta
    match training:
        case NoisyDescent():
            return _wang(training, problem, budget, delta, constant, source)
        case NoisyLots():
            return _bassily(training, problem, budget, delta, source)
        case NoisySnapshots():
            return _svrg(training, problem, budget, delta, constant, source)
    raise InvalidArgument(f"No paper is known for {training!r}. Use mode='rigorous'.")


def _song(training: NoisyPass, problem: Problem, budget: Allowance, source: Source) -> _Outcome:
    claim = budget.claim(f"Song et al. 2013, epsilon {budget.epsilon / training.passes:g} in each pass")
    noisy = training.run(problem, training.passes / budget.epsilon, Adjacency.REPLACE_ONE, source)
    return _Outcome(noisy, Published(f"{_NAME} (Song et al. 2013)", "paper", claim))


def _wang(
    training: NoisyDescent, problem: Problem, budget: Allowance, delta: float, constant: float, source: Source
) -> _Outcome:
    """Noise that keeps the claim from some constant on only."""
    assert training.steps is not None
    clip_norm = clip_norm_for(problem, training.clip_norm)
    std = wang_2017_std(problem.n, clip_norm, training.steps, budget.epsilon, delta, constant)
    multiplier = std * problem.n / shift(clip_norm, Adjacency.REPLACE_ONE)
    claim = budget.claim(f"Wang et al. 2017, noisy gradient descent with constant {constant:g}")
    least = wang_2017_least_constant(budget.epsilon, delta)
    status, because = Status.PROVEN, ""
    if constant < least * (1 - 1e-9):
        status = Status.REFUTED
        because = f"Their constant is left open; below {least:.4g} a loss with steady gradients exceeds the claim."
    noisy = training.run(problem, multiplier, Adjacency.REPLACE_ONE, source)
    return _Outcome(noisy, Published(f"{_NAME} (Wang et al. 2017)", "paper", claim, status, because))


def _bassily(training: NoisyLots, problem: Problem, budget: Allowance, delta: float, source: Source) -> _Outcome:
    """One uniformly drawn example per step. Fewer steps than the n^2 that the noise is made for cost less."""
    if training.lot_size != 1 or training.steps > problem.n**2:
        raise InvalidArgument(
            f"Bassily et al. 2014 take one example per step and at most n^2 = {problem.n**2} steps. Use "
            f"NoisyLots(steps=..., lot_size=1), or mode='rigorous'. Got {training!r}."
        )
    clip_norm = _longest_gradient(problem)
    std = bassily_2014_std(problem.n, clip_norm, budget.epsilon, delta) / problem.n
    moved = shift(clip_norm, Adjacency.REPLACE_ONE)
    sizes = shrinking_steps(problem, training.steps, training.step_size)
    noisy = singles_descent(problem, sizes, std=std, sensitivity=moved, delta=delta, source=source)
    claim = budget.claim(f"Bassily et al. 2014, {training.steps} of up to n^2 steps")
    published = Published(f"{_NAME} (Bassily et al. 2014)", "paper", claim)
    return _Outcome(noisy, published)


def _svrg(
    training: NoisySnapshots, problem: Problem, budget: Allowance, delta: float, constant: float, source: Source
) -> _Outcome:
    steps = training.rounds * training.inner
    clip_norm = _longest_gradient(problem)
    std = wang_2017_std(problem.n, clip_norm, steps, budget.epsilon, delta, constant)
    theta = snapshot_descent(
        problem,
        rounds=training.rounds,
        inner=training.inner,
        step_size=step_size_for(problem, training.step_size),
        std=std,
        source=source,
    )
    claim = budget.claim(f"Wang et al. 2017, DP-SVRG with constant {constant:g}")
    reason = "no constant is given for which the published noise is proven"
    event = Unproven(f"({budget.epsilon:g}, {delta:g})-DP", reason, Adjacency.REPLACE_ONE)
    because = "Their constant is left open, and no value of it has a proof."
    published = Published(f"{_NAME} (DP-SVRG, Wang et al. 2017)", "paper", claim, Status.UNPROVEN, because)
    return _Outcome(Noisy(theta, event), published)


def _longest_gradient(problem: Problem) -> float:
    """The Lipschitz constant, where gradients are not clipped."""
    if not math.isfinite(problem.lipschitz):
        raise InvalidArgument(
            f"{problem.loss!r} has gradients without a bound, and this paper does not clip them. Use Huber, or "
            "mode='rigorous'."
        )
    return problem.lipschitz


def _sampling(training: Descent, mode: Mode) -> tuple[Assumption, ...]:
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
