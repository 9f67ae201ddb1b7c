"""Influence-selected noise (Kang et al. 2021, algorithm 2): noise for examples that move the model, none for others.

The claim is (epsilon, delta)-DP of the model, since examples of little influence are said to be protected by that. It
is refuted: training starts from a model that saw the data without noise, examples below the threshold go in as they
are (and are returned as they are), and which ones those are shows. On six examples the outcomes of two neighbouring
data sets have nothing in common. The threshold, besides, compares e^epsilon with a length that is sqrt(parameters)
where there is no influence. In rigorous form the idea survives as individual accounting: everyone's gradient gets the
same noise, who contributes little is charged little, and who has spent the budget is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.accounting.events import Adjacency, Unproven
from tacit.erm.individual import FilteredDescent, individual_descent_and_spent
from tacit.erm.influence import Influenceable, InfluenceRule, LinearModel, SelectiveRun, selective_descent
from tacit.erm.losses import Loss
from tacit.erm.noisy_data import Descent, PerturbedResult
from tacit.erm.noisy_training import Result, Setup, linear_result, published_budget, published_guarantee, set_up
from tacit.erm.result import Mode, check_mode
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.methods.registry import Entry

if TYPE_CHECKING:
    import torch

    from tacit.erm.noisy_networks import NetworkResult

ENTRY = Entry(
    name="influence_perturbation",
    kind="linear",
    paper="Kang et al. 2021, algorithm 2",
    idea="Examples that move the model get noise, the others none.",
    status="refuted",
    verdict="Training starts from a model that saw the data without noise, and examples of little influence are used "
    "without noise: outcomes of two neighbouring data sets can have nothing in common.",
    rigorous="Everyone's gradient gets the same noise, and an example that has spent the budget is left out "
    "(individual accounting).",
    options={"module": "a torch module in place of a linear model; in paper form only"},
    exposed=("labels", "examples"),
)

_NAME = "influence_perturbation"
_REASON = (
    "training started from a model that had seen the data without noise, examples of little influence went in and came "
    "out as they were, and which ones those were shows in the outcome"
)
_BECAUSE = "Little influence bounds how far a minimiser moves; an outcome without noise gives itself away all the same."
_PRETRAINING = Descent(steps=2000)


def influence_perturbation(
    x: Any,
    y: Any,
    *,
    loss: Loss,
    regularisation: float,
    epsilon: float,
    delta: float,
    data_norm: float,
    mode: Mode = "rigorous",
    intercept: bool = True,
    module: torch.nn.Module | None = None,
    training: FilteredDescent | None = None,
    adjacency: Adjacency | None = None,
    rule: InfluenceRule | None = None,
    pretraining: Descent | None = None,
    seed: int | None = None,
) -> Result:
    """A model in whose training examples of little influence are treated more gently.

    Guarantee, rigorous: (epsilon, delta)-DP, by a filter (`training` says how many steps, and on lots of which size),
    for one example replaced unless `adjacency` says otherwise; linear models only. Rows are clipped to `data_norm`, the
    1 of the intercept included. What each example has spent is private: `result.curator.for_curator()`.

    In paper form nothing is proven. A linear model starts from its minimiser, a network from `pretraining` on the data
    as they are; then come the steps of `rule`. The model is returned with the data, some of them as they were: which
    ones, `result.curator` tells the curator.

    >>> import numpy as np
    >>> from tacit.erm import Logistic
    >>> x, y = np.eye(4).repeat(50, axis=0), np.arange(200) % 2
    >>> settings = {"loss": Logistic(), "regularisation": 0.1, "data_norm": 1.0}
    >>> result = influence_perturbation(x, y, **settings, epsilon=1.0, delta=1e-5)
    >>> len(result.curator.for_curator()) == 200 and result.guarantee.epsilon(1e-5) <= 1.0
    True
    """
    mode = check_mode(mode)
    if rule is not None:
        _validate.kind("rule", rule, InfluenceRule, "InfluenceRule(rounds=2)")
    if pretraining is not None:
        _validate.kind("pretraining", pretraining, Descent, "Descent(steps=2000)")
    given: dict[str, Any] = {
        "loss": loss,
        "regularisation": regularisation,
        "data_norm": data_norm,
        "intercept": intercept,
    }
    if mode == "rigorous":
        if module is not None:
            raise InvalidArgument(
                "The filter of the rigorous form is for linear models. Train networks with tacit.PrivateRun and a "
                "gradient method such as methods.dpsgd, which charges every example alike."
            )
        _refuse(mode, rule=rule, pretraining=pretraining)
        filtered = {"training": training or FilteredDescent(), "adjacency": adjacency or Adjacency.REPLACE_ONE}
        return _filtered(x, y, epsilon=epsilon, delta=delta, seed=seed, **filtered, **given)
    _refuse(mode, training=training, adjacency=adjacency)
    setup = set_up(x, y, **given, budget=published_budget(epsilon, delta, mode), module=module, seed=seed)
    if module is None:
        _refuse("paper, for a linear model,", pretraining=pretraining)
        return _selective_linear(setup, rule or InfluenceRule())
    return _selective_network(setup, module, rule or InfluenceRule(), pretraining or _PRETRAINING)


def _refuse(mode: str, **given: object) -> None:
    """Raise `InvalidArgument` for what was given and would not be used."""
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InvalidArgument(
            f"Nothing in mode {mode} uses {' and '.join(unused)}: `training` and `adjacency` are for the filter of the "
            "rigorous form, `rule` and, for networks, `pretraining` for what the paper does. Leave that out."
        )


def _filtered(x: Any, y: Any, **settings: Any) -> PerturbedResult:
    found, spent = individual_descent_and_spent(x, y, **settings)
    guarantee = replace(found.guarantee, method=_NAME)
    return PerturbedResult(found.coef, found.intercept, found.loss, guarantee, None, spent)


def _selective_linear(setup: Setup, rule: InfluenceRule) -> PerturbedResult:
    run = _descent(LinearModel(setup.problem, setup.intercept), setup, rule)
    theta = run.theta.reshape(-1, setup.problem.loss.outputs)
    return linear_result(theta, setup, _guarantee(setup, rule), run.data, run.unnoised)


def _selective_network(
    setup: Setup, module: torch.nn.Module, rule: InfluenceRule, pretraining: Descent
) -> NetworkResult:
    from tacit.erm.noisy_networks import NetworkModel, NetworkResult

    model = NetworkModel(module, setup.problem, pretraining, setup.source)
    run = _descent(model, setup, rule)
    trained = model.with_parameters(run.theta).to(next(module.parameters()).dtype)
    return NetworkResult(trained, setup.problem.loss, _guarantee(setup, rule), run.data, run.unnoised)


def _descent(model: Influenceable, setup: Setup, rule: InfluenceRule) -> SelectiveRun:
    return selective_descent(
        model,
        rule,
        epsilon=setup.budget.epsilon,
        delta=setup.budget.stated_delta,
        lipschitz=setup.longest_gradient(rule.lipschitz),
        source=setup.source,
    )


def _guarantee(setup: Setup, rule: InfluenceRule) -> Guarantee:
    claim = setup.budget.claim(f"Kang et al. 2021, theorem 2 with c = {rule.constant:g}")
    event = Unproven(f"({claim.epsilon:g}, {claim.delta:g})-DP", _REASON, Adjacency.REPLACE_ONE)
    return published_guarantee(
        setup,
        event,
        claim,
        method=f"{_NAME} (Kang et al. 2021)",
        because=_BECAUSE,
        unprotected=("labels", "examples"),
        returns_data=True,
    )
