"""Noisy descent in which every example pays for what it contributes, and leaves when its own budget is spent.

Examples that the model already fits have short gradients and stay long; those with long gradients leave first. So the
same noise allows more steps than if every example were charged for the longest possible gradient. Which examples have
left is private, and so is what each has spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting import gdp
from tacit.accounting.events import Adjacency, EpsilonDelta, Event, Gaussian
from tacit.accounting.individual import ExampleCosts, GaussianFilter, RenyiFilter, filter_mu
from tacit.accounting.search import find_least
from tacit.erm.descent import NoisyDescent, clip_norm_for, step_size_for
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy, add_gaussian
from tacit.erm.problem import Problem
from tacit.erm.result import ErmBudget, ErmResult, Published, Setup
from tacit.randomness import Purpose, Source

# So that the budget is kept at exactly its delta, despite rounding.
_INWARDS = 1 - 1e-9


@dataclass(frozen=True)
class FilteredDescent:
    """`steps` noisy gradients, of which examples with gradients as long as `clip_norm` can pay for `full_share`.

    Without `lot_size` every step is over all examples; with it, over a Poisson lot of that size on average. The number
    of steps is fixed in advance (by default as in `NoisyDescent.plan_steps`): it must not depend on how many examples
    are left. A smaller share means less noise, but examples with long gradients leave earlier, which costs accuracy
    below a half.
    """

    steps: int | None = None
    full_share: float = 0.7
    lot_size: float | None = None
    step_size: float | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        sizes = ("lot_size", "step_size", "clip_norm")
        _validate.check_fields(self, count="steps", rate="full_share", positive=sizes)

    def steps_for(self, problem: Problem, mu: float) -> int:
        """The number of steps for a budget of mu."""
        steps = NoisyDescent(self.steps, self.step_size, self.clip_norm).plan_steps(problem, mu).steps
        assert steps is not None
        return steps


def individual_descent(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float,
    data_norm: float,
    training: FilteredDescent = FilteredDescent(),  # noqa: B008 - a frozen value
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    intercept: bool = True,
    seed: int | None = None,
) -> ErmResult:
    """Coefficients by descent under a filter: (epsilon, delta)-DP, whatever the examples contribute.

    The rigorous form of giving noise to influential examples only: everyone gets the same noise, and who contributes
    little is charged little. Rows are clipped to `data_norm`. What every example has spent is private and for the
    curator only: `result.curator.for_curator()`.
    """
    delta = _validate.open_unit("delta", delta)
    _validate.kind("training", training, FilteredDescent, "FilteredDescent(steps=100)")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    setup = Setup.of(x, y, **about, epsilon=epsilon, delta=delta, intercept=intercept, seed=seed)
    problem, budget = setup.problem, setup.budget
    clip_norm = clip_norm_for(problem, training.clip_norm)
    steps = training.steps_for(problem, gdp.mu(epsilon, delta))
    full_steps = max(training.full_share * steps, 1.0)
    judge = _filter_for(problem, training.lot_size, budget, adjacency, clip_norm, full_steps)
    sizes = np.full(steps, step_size_for(problem, training.step_size))
    theta, spent = _descend(problem, sizes, judge, clip_norm, setup.source)
    note = "Every example paid for its own contributions. What each has spent is private and is in no report."
    noisy = Noisy(theta, _restate(judge.event, budget, adjacency))
    return setup.release(noisy, Published("individual_descent"), notes=(note,), curator=spent)


def _filter_for(
    problem: Problem,
    lot_size: float | None,
    budget: ErmBudget,
    adjacency: Adjacency,
    clip_norm: float,
    full_steps: float,
) -> GaussianFilter | RenyiFilter:
    """The filter whose noise lets gradients of full length pay for `full_steps`."""
    assert budget.delta is not None
    if lot_size is None:
        mu = filter_mu(budget.epsilon, budget.delta, adjacency)
        return GaussianFilter(mu, clip_norm * math.sqrt(full_steps) / mu)
    epsilon, delta = budget.epsilon, _INWARDS * budget.delta
    if adjacency is Adjacency.REPLACE_ONE:
        # Two hops, one example removed and another added: (e, d) twice is (2 e, (1 + exp(e)) d).
        epsilon, delta = epsilon / 2, delta / (1 + math.exp(epsilon / 2))
    rate = min(lot_size / problem.n, 1.0)

    def with_std(std: float) -> RenyiFilter:
        return RenyiFilter.best(epsilon=epsilon, delta=delta, std=std, rate=rate, clip_norm=clip_norm)

    std = find_least(
        lambda std: with_std(std).lasts >= full_steps, clip_norm, clip_norm, within=1e-3, is_geometric=True
    )
    return with_std(std)


def _descend(
    problem: Problem,
    step_sizes: Array,
    judge: GaussianFilter | RenyiFilter,
    clip_norm: float,
    source: Source,
) -> tuple[Array, ExampleCosts]:
    rate = judge.rate if isinstance(judge, RenyiFilter) else 1.0
    rng = source.stream(Purpose.NOISE, 0)
    spent = judge.start(problem.n)

    def gradient(theta: Array, step: int) -> Array:
        nonlocal spent
        slopes = problem.slopes(theta)
        lengths = np.linalg.norm(slopes, axis=1) * problem.norms
        clipped = np.minimum(lengths, clip_norm)
        factors, spent = judge.admit(clipped, spent)
        weights = factors * clipped / np.maximum(lengths, 1e-300)
        lot = source.stream(Purpose.LOT, step).coins(problem.n, rate) if rate < 1 else slice(None)
        total = problem.rows[lot].T @ (slopes[lot] * weights[lot, None])
        # A step's own event says nothing here, as contributions depend on earlier ones: the filter states the cost.
        noisy = add_gaussian(total, sensitivity=judge.std, multiplier=1.0, adjacency=Adjacency.ADD_REMOVE, rng=rng)
        return noisy.values / (rate * problem.n)

    return problem.descend(gradient, step_sizes), spent


def _restate(event: Event, budget: ErmBudget, adjacency: Adjacency) -> Event:
    """The filter's event, which is for one example added or removed, under this adjacency."""
    if adjacency is Adjacency.ADD_REMOVE:
        return event
    if isinstance(event, Gaussian):
        # mu-GDP for removing one and for adding another is 2 mu-GDP for both.
        return replace(event, multiplier=event.multiplier / 2, adjacency=adjacency)
    assert isinstance(event, EpsilonDelta)
    assert budget.delta is not None
    return EpsilonDelta(budget.epsilon, _INWARDS * budget.delta, adjacency)
