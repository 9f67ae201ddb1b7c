"""Output perturbation: train without noise, then add some to the coefficients.

Three trainings, three papers: the minimiser (Chaudhuri et al. 2011), passes over lots in a fixed order (Wu et al. 2017,
four step-size regimes) and full gradient steps (Zhang et al. 2017). All are for one example replaced by another. In
rigorous form the sensitivity is ours and the noise is the least that the budget allows: normal noise by the exact curve
of the Gaussian mechanism, or K-norm noise without a delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.events import Adjacency
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy, add_gaussian, add_k_norm
from tacit.erm.problem import Problem
from tacit.erm.result import ErmBudget, ErmResult, Mode, Published, Setup, check_mode, refuse_network
from tacit.erm.trainers import FullDescent, Minimiser, PermutedDescent, Trainer
from tacit.errors import InvalidArgument
from tacit.guarantee import Status
from tacit.methods.registry import Entry
from tacit.randomness import Purpose, Stream

ENTRY = Entry(
    name="output_perturbation",
    kind="linear",
    paper="Chaudhuri et al. 2011, Wu et al. 2017, Zhang et al. 2017",
    idea="Train without noise, then add some to the coefficients.",
    status="proven",
    verdict="For exact minimisers, fixed orders and constant divisors, with the sensitivities that are proven.",
    rigorous="The same, with a certified solver and the exact Gaussian curve.",
)

_NAME = "output_perturbation"
_LINEAR_ONLY = "how far one example moves a trained network has no known bound."
# Normal noise calibrated in closed form is off by less than this from rounding.
_OUTWARDS = 1 + 1e-11


def output_perturbation(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float | None,
    data_norm: float,
    mode: Mode = "rigorous",
    training: Trainer = Minimiser(),  # noqa: B008 - a frozen value
    intercept: bool = True,
    constant: float = 5.0,
    module: object = None,
    seed: int | None = None,
) -> ErmResult:
    """The trained coefficients of mean loss + (regularisation / 2) |theta|^2, rows clipped to `data_norm`, with noise.

    Guarantee: (epsilon, delta)-DP for one example replaced by another, or epsilon-DP with delta=None, in rigorous
    form. In paper form the noise is that of the training's paper, and the guarantee says what is proven of it;
    `constant` is Zhang et al.'s. An example that is not finite counts nothing. A network (`module`) is refused.
    """
    refuse_network(module, _LINEAR_ONLY)
    mode = check_mode(mode)
    _validate.kind("training", training, Trainer, "Minimiser(), PermutedDescent() or FullDescent()")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    setup = Setup.of(x, y, **about, epsilon=epsilon, delta=delta, intercept=intercept, seed=seed)
    problem, budget = setup.problem, setup.budget
    moved = training.sensitivity(problem)
    plan = _plan_rigorous(budget) if mode == "rigorous" else _follow_paper(training, problem, budget, constant, moved)
    noisy = plan.add(training.fit(problem), moved, setup.source.stream(Purpose.NOISE, 0))
    return setup.release(noisy, plan.published, notes=plan.list_notes(budget, moved))


@dataclass(frozen=True)
class _OutputNoise:
    """The noise in units of the proven sensitivity, and what its authors claim."""

    multiplier: float | None
    epsilon: float
    published: Published

    def add(self, theta: Array, moved: float, rng: Stream) -> Noisy:
        replaced = Adjacency.REPLACE_ONE
        if self.multiplier is not None:
            return add_gaussian(theta, sensitivity=moved, multiplier=self.multiplier, adjacency=replaced, rng=rng)
        return add_k_norm(theta, sensitivity=moved, epsilon=self.epsilon, adjacency=replaced, rng=rng)

    def list_notes(self, budget: ErmBudget, moved: float) -> tuple[str, ...]:
        """In paper form, how much noise is enough."""
        if self.multiplier is None or budget.delta is None or self.published.mode == "rigorous":
            return ()
        least = moved / gdp.mu(budget.epsilon, budget.delta)
        return (
            f"The noise has a standard deviation of {self.multiplier * moved:.6g}; {least:.6g} keeps the same budget.",
        )


def _plan_rigorous(budget: ErmBudget) -> _OutputNoise:
    if budget.delta is None:
        return _OutputNoise(None, budget.epsilon, Published(_NAME))
    return _OutputNoise(_OUTWARDS / gdp.mu(budget.epsilon, budget.delta), budget.epsilon, Published(_NAME))


def _follow_paper(
    training: Trainer, problem: Problem, budget: ErmBudget, constant: float, moved: float
) -> _OutputNoise:
    """The noise of the training's paper, in units of the proven sensitivity `moved`."""
    match training:
        case Minimiser():
            return _plan_chaudhuri(budget)
        case PermutedDescent():
            return _plan_wu(training, problem, budget, moved)
        case FullDescent():
            return _plan_zhang(problem, budget, _validate.positive("constant", constant), moved)
    raise InvalidArgument(f"No paper is known for {training!r}. Use mode='rigorous'.")


def _plan_chaudhuri(budget: ErmBudget) -> _OutputNoise:
    """K-norm noise; the sensitivity includes the solver's tolerance, which the paper takes to be zero."""
    if budget.delta is not None:
        raise InvalidArgument(
            "Chaudhuri et al. 2011 publish output perturbation without a delta. Give delta=None, or use "
            "mode='rigorous', which adds less noise with a delta."
        )
    claim = budget.claim("Chaudhuri et al. 2011, output perturbation")
    return _OutputNoise(None, budget.epsilon, Published(f"{_NAME} (Chaudhuri et al. 2011)", "paper", claim))


def _plan_wu(training: PermutedDescent, problem: Problem, budget: ErmBudget, moved: float) -> _OutputNoise:
    said = wu_sensitivity(training, problem)
    claim = budget.claim("Wu et al. 2017, permutation-based stochastic gradient descent")
    name = f"{_NAME} (Wu et al. 2017)"
    if budget.delta is None:
        true = budget.epsilon * moved / said
        return _OutputNoise(None, true, Published(name, "paper", claim, *_judge(true, budget)))
    multiplier = said / moved * classic_multiplier(budget.epsilon, budget.delta)
    true = gdp.epsilon(budget.delta, 1 / multiplier)
    return _OutputNoise(multiplier, true, Published(name, "paper", claim, *_judge(true, budget)))


def wu_sensitivity(training: PermutedDescent, problem: Problem) -> float:
    """The closed form that Wu et al. 2017 publish for this regime: constant or decreasing steps, convex or strongly."""
    if training.step_size is not None:
        return wu_constant(
            training.step_size,
            n=problem.n,
            passes=training.passes,
            lot_size=training.lot_size,
            lipschitz=problem.lipschitz,
            gamma=problem.regularisation,
        )
    whole = wu_decreasing(
        n=training.lots_per_pass(problem),
        passes=training.passes,
        lipschitz=problem.lipschitz,
        smoothness=problem.smoothness,
        gamma=problem.regularisation,
        exponent=training.exponent,
    )
    return whole / training.lot_size


def _plan_zhang(problem: Problem, budget: ErmBudget, constant: float, moved: float) -> _OutputNoise:
    if budget.delta is None or problem.regularisation == 0:
        raise InvalidArgument(
            "Zhang et al. 2017 is here as published for normal noise and strongly convex objectives: give a delta and "
            "a regularisation above 0, or use mode='rigorous'."
        )
    said = zhang_sensitivity(
        n=problem.n,
        lipschitz=problem.lipschitz,
        smoothness=problem.smoothness,
        strong_convexity=problem.regularisation,
        constant=constant,
    )
    multiplier = said / moved * classic_multiplier(budget.epsilon, budget.delta, head=2.0)
    true = gdp.epsilon(budget.delta, 1 / multiplier)
    claim = budget.claim(f"Zhang et al. 2017, gradient descent with constant {constant:g}")
    return _OutputNoise(
        multiplier, true, Published(f"{_NAME} (Zhang et al. 2017)", "paper", claim, *_judge(true, budget))
    )


def _judge(true: float, budget: ErmBudget) -> tuple[Status, str]:
    """A claim is proven if our epsilon is no larger; otherwise no proof of the difference is known."""
    if true <= budget.epsilon * (1 + 1e-9):
        return Status.PROVEN, ""
    return Status.UNPROVEN, f"The available proof gives epsilon {true:.4g}, and none is known for less."


def wu_constant(step_size: float, *, n: int, passes: int, lot_size: float, lipschitz: float, gamma: float) -> float:
    """Wu et al. 2017 for a constant step size: 2 k L eta / b, or with strong convexity gamma a geometric series.

    >>> round(wu_constant(0.1, n=1000, passes=5, lot_size=10, lipschitz=1.0, gamma=0.01), 8)
    0.21006671
    """
    if gamma == 0:
        return 2 * passes * lipschitz * step_size / lot_size
    left = math.pow(1 - step_size * gamma, n / lot_size)
    return 2 * step_size * lipschitz / (lot_size * (1 - left))


def wu_decreasing(*, n: int, passes: int, lipschitz: float, smoothness: float, gamma: float, exponent: float) -> float:
    """Wu et al. 2017 for decreasing step sizes: (4 L / beta)(1 / n^c + ln k / n), or 2 L / (gamma n).

    >>> settings = dict(n=1000, passes=5, lipschitz=1.0, smoothness=0.26, exponent=0.5)
    >>> round(wu_decreasing(gamma=0.0, **settings), 8), round(wu_decreasing(gamma=0.01, **settings), 8)
    (0.51126484, 0.2)
    """
    if gamma == 0:
        return 4 * lipschitz / smoothness * (math.pow(n, -exponent) + math.log(passes) / n)
    return 2 * lipschitz / (gamma * n)


def zhang_sensitivity(
    *, n: int, lipschitz: float, smoothness: float, strong_convexity: float, constant: float
) -> float:
    """Zhang et al. 2017: constant * (G / n)(1 / L + 1 / Delta). The constant is what the bound depends on most."""
    return constant * lipschitz / n * (1 / smoothness + 1 / strong_convexity)


def classic_multiplier(epsilon: float, delta: float, head: float = 1.25) -> float:
    """sqrt(2 ln(head / delta)) / epsilon: the textbook's Gaussian mechanism, proven for epsilon below 1 only.

    >>> round(0.2 * classic_multiplier(0.5, 1e-5), 7)
    1.9379221
    """
    return math.sqrt(2 * math.log(head / delta)) / epsilon
