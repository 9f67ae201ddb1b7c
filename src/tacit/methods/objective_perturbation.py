"""Objective perturbation: add a random linear term to the objective, and release its minimiser.

Chaudhuri et al. 2011 draw K-norm noise and need no delta; Kifer et al. 2012 draw normal noise. Their proofs are about
the exact minimiser, which no solver returns. Here a share of the budget pays for the difference: the solver's answer
is certified to be within a public distance of the minimiser, and gets a little more noise that hides this distance. In
rigorous form the accounting of the noise is ours (docs/reference/methods/objective_perturbation.md): it needs less
noise, and holds for a softmax too. Models that are not linear are refused: the proof needs the Hessian of one example
to have few eigenvalues.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.events import Adjacency, EpsilonDelta, Unproven
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy, add_gaussian, add_k_norm, k_norm
from tacit.erm.objective import Setting, added_strength, chaudhuri_2011, kifer_2012
from tacit.erm.problem import Problem
from tacit.erm.result import ErmBudget, ErmResult, Mode, Published, Setup, check_mode, refuse_network
from tacit.erm.solver import minimise, reachable_tolerance
from tacit.errors import InvalidArgument
from tacit.guarantee import Claim, Status
from tacit.methods.registry import Entry
from tacit.randomness import Purpose, Stream

ENTRY = Entry(
    name="objective_perturbation",
    kind="linear",
    paper="Chaudhuri et al. 2011, Kifer et al. 2012",
    idea="A random linear term is added to the objective, and its minimiser released.",
    status="proven",
    verdict="For the exact minimiser, which no solver returns.",
    rigorous="The solver's answer is proven to be close to the exact one. A little more noise hides the difference.",
)

_NAME = "objective_perturbation"
_LINEAR_ONLY = "the proof needs a convex objective in which the Hessian of one example has few eigenvalues."
# The probability that noise is longer than the solver allows for: about that of guessing a key.
_LONGEST_TAIL = 1e-30


def objective_perturbation(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float | None,
    data_norm: float,
    mode: Mode = "rigorous",
    adjacency: Adjacency | None = None,
    intercept: bool = True,
    solver_share: float = 1e-3,
    module: object = None,
    seed: int | None = None,
) -> ErmResult:
    """The minimiser of mean loss + (regularisation / 2) |theta|^2 + noise . theta, over rows clipped to `data_norm`.

    Guarantee: (epsilon, delta)-DP, or epsilon-DP with delta=None; for one example replaced by another, except that
    Kifer et al.'s own constant (paper form with a delta) is about one added or removed. More regularisation is added
    if the proof needs it. `solver_share` of the budget pays for the solver's tolerance; with 0 the answer is treated as
    the exact minimiser, as in the papers, and nothing is proven. A network (`module`) is refused.
    """
    refuse_network(module, _LINEAR_ONLY)
    mode, share = check_mode(mode), _validate.unit("solver_share", solver_share)
    if share > 0.5:
        raise InvalidArgument(f"solver_share must be at most 0.5: the rest is for the noise. Got {share:g}.")
    about: dict[str, Any] = {"loss": loss, "regularisation": regularisation, "data_norm": data_norm}
    setup = Setup.of(x, y, **about, epsilon=epsilon, delta=delta, intercept=intercept, seed=seed)
    problem = setup.problem
    if not math.isfinite(problem.lipschitz):
        raise InvalidArgument(
            f"Slopes of {problem.loss!r} are unbounded, and the noise may push the minimiser anywhere: no noise would "
            "be enough. Use Huber, or output perturbation."
        )
    plan = _make_plan(problem, setup.budget, share, mode, adjacency)
    published = plan.published
    if share == 0:
        reason = "The proof is about the exact minimiser, and the solver's answer was treated as one."
        published = replace(published, status=Status.UNPROVEN, because=reason)
    strong = plan.setting.strength / problem.n
    notes: list[str] = []
    if strong > 1.01 * problem.regularisation:
        notes = [f"The proof needed more regularisation: {strong:.4g} in place of {problem.regularisation:.4g}."]
    noisy = _release(setup, plan, share)
    return replace(setup.release(noisy, published, notes=notes), regularisation=strong)


@dataclass(frozen=True)
class _LinearTerm:
    """Noise on the sum of gradients (normal if `std`, K-norm if `scale`), and the cost."""

    setting: Setting
    std: float | None
    scale: float | None
    cost: EpsilonDelta
    published: Published

    def draw(self, dimension: int, rng: Stream) -> Noisy:
        """The random linear term, and the cost of the minimiser."""
        if self.std is not None:
            return Noisy(self.std * rng.normal(dimension, wide=True), self.cost)
        assert self.scale is not None
        return Noisy(k_norm(rng, dimension, self.scale)[0], self.cost)

    def longest(self, dimension: int) -> float:
        """A length that the noise exceeds with a probability of at most 1e-30."""
        tail = -math.log(_LONGEST_TAIL)
        if self.std is not None:
            return self.std * (math.sqrt(dimension) + math.sqrt(2 * tail))
        assert self.scale is not None
        return self.scale * 2 * (dimension + tail)


def _make_plan(
    problem: Problem, budget: ErmBudget, share: float, mode: Mode, adjacency: Adjacency | None
) -> _LinearTerm:
    """The noise gets the budget that the solver leaves; a paper's claim is about the whole budget."""
    # Minus a little, so that the sum of both stays within the budget despite rounding.
    kept = (1 - share) * (1 - 1e-9)
    left = ErmBudget(kept * budget.epsilon, None if budget.delta is None else kept * budget.delta)
    if mode == "rigorous":
        return _plan_rigorous(problem, left, adjacency or Adjacency.REPLACE_ONE)
    if problem.loss.curvature_rank > 1:
        raise InvalidArgument(
            "Chaudhuri et al. 2011 and Kifer et al. 2012 prove objective perturbation for one score per example, where "
            f"the Hessian of an example has one eigenvalue. {problem.loss!r} has {problem.loss.curvature_rank}. Use "
            "mode='rigorous', which is proven for them."
        )
    if budget.delta is None:
        claim = budget.claim("Chaudhuri et al. 2011, objective perturbation")
        return _plan_chaudhuri(problem, left, claim, adjacency)
    adjacency = adjacency or Adjacency.ADD_REMOVE
    return _plan_kifer(problem, left, budget.claim(f"Kifer et al. 2012, {adjacency}"), adjacency)


def _plan_rigorous(problem: Problem, budget: ErmBudget, adjacency: Adjacency) -> _LinearTerm:
    loss, norm = problem.loss, problem.data_norm
    strength = problem.n * problem.regularisation
    added = added_strength(loss, norm, strength, budget.epsilon)
    setting = Setting(loss, norm, strength + added, adjacency)
    cost = EpsilonDelta(budget.epsilon, budget.delta or 0.0, adjacency)
    if budget.delta is None:
        return _LinearTerm(setting, None, setting.k_norm_scale(budget.epsilon), cost, Published(_NAME))
    return _LinearTerm(setting, setting.std(budget.epsilon, budget.delta), None, cost, Published(_NAME))


def _plan_chaudhuri(problem: Problem, budget: ErmBudget, claim: Claim, adjacency: Adjacency | None) -> _LinearTerm:
    if adjacency is Adjacency.ADD_REMOVE:
        raise InvalidArgument(
            "Chaudhuri et al. 2011 compare data sets of one size, in which an example is replaced. Leave adjacency "
            "out, or use mode='rigorous'."
        )
    left, added = chaudhuri_2011(
        n=problem.n,
        regularisation=problem.regularisation,
        epsilon=budget.epsilon,
        curvature=problem.loss.curvature_bound * problem.data_norm**2,
    )
    strength = problem.n * (problem.regularisation + added)
    setting = Setting(problem.loss, problem.data_norm, strength)
    published = Published(f"{_NAME} (Chaudhuri et al. 2011)", "paper", claim)
    scale = 2 * problem.lipschitz / left
    # Our proof charges one determinant and the paper two, so the proven epsilon may be less than the claimed one.
    true = setting.determinant_cost() + left
    return _LinearTerm(setting, None, scale, EpsilonDelta(true, 0.0, setting.adjacency), published)


def _plan_kifer(problem: Problem, budget: ErmBudget, claim: Claim, adjacency: Adjacency) -> _LinearTerm:
    assert budget.delta is not None
    doubled = 1 if adjacency is Adjacency.ADD_REMOVE else 2
    added, std = kifer_2012(
        epsilon=budget.epsilon,
        delta=budget.delta,
        lipschitz=doubled * problem.lipschitz,
        curvature=problem.loss.curvature_bound * problem.data_norm**2,
    )
    setting = Setting(problem.loss, problem.data_norm, problem.n * problem.regularisation + added, adjacency)
    true = setting.epsilon(budget.delta, std)
    published = Published(f"{_NAME} (Kifer et al. 2012)", "paper", claim)
    return _LinearTerm(setting, std, None, EpsilonDelta(true, budget.delta, adjacency), published)


def _release(setup: Setup, plan: _LinearTerm, share: float) -> Noisy:
    """The minimiser of the perturbed objective, with a little noise for the solver's error."""
    problem, budget, rng = setup.problem, setup.budget, setup.source.stream(Purpose.NOISE, 0)
    term = plan.draw(problem.dimension, rng)
    strong = plan.setting.strength / problem.n
    perturbed = replace(problem, regularisation=strong, linear=term.values.reshape(problem.shape) / problem.n)
    longest = (problem.lipschitz + plan.longest(problem.dimension) / problem.n) / strong
    tolerance = reachable_tolerance(perturbed, longest)
    theta = minimise(perturbed, tolerance).theta
    if share == 0:
        why = f"the proof is about the exact minimiser, and the solver stopped at a gradient of norm {tolerance:.2g}"
        claimed = f"({plan.cost.epsilon:g}, {plan.cost.delta:g})-DP"
        return Noisy(theta, Unproven(claimed, why, plan.cost.adjacency))
    # On both data sets the answer is at most this far from its minimiser: given the minimiser, that is the sensitivity.
    moved = 2 * tolerance / strong
    left = share * budget.epsilon
    if budget.delta is None:
        noisy = add_k_norm(theta, sensitivity=moved, epsilon=left, adjacency=plan.cost.adjacency, rng=rng)
    else:
        multiplier = (1 + 1e-11) / gdp.mu(left, share * budget.delta)
        noisy = add_gaussian(theta, sensitivity=moved, multiplier=multiplier, adjacency=plan.cost.adjacency, rng=rng)
    return Noisy(noisy.values, term.event + noisy.event)
