"""Influence-selected noise (Kang et al. 2021, algorithm 2): noise for examples that move the model, none for others.

The claim is (epsilon, delta)-DP of the model, because little influence is said to protect an example. It is refuted:
training starts from a model that saw the data without noise, examples below the threshold are used (and returned)
without noise, and the outcome shows which ones those are. On six examples the outcomes of two neighbouring data sets
have nothing in common. Besides, the threshold compares e^epsilon with a length that is sqrt(parameters) for an example
without influence. In rigorous form the idea becomes individual accounting: everyone's gradient gets the same noise, an
example that contributes little is charged little, and an example that has spent the budget is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit import _validate
from tacit.accounting.events import Adjacency, Unproven
from tacit.erm.individual import FilteredDescent, individual_descent
from tacit.erm.influence import Influenceable, InfluenceRule, LinearModel, SelectiveRun, selective_descent
from tacit.erm.losses import Loss
from tacit.erm.noisy_data import Descent
from tacit.erm.noisy_training import Result, published_guarantee, set_up
from tacit.erm.result import Mode, Setup, check_mode, make_result
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.methods.registry import Entry

if TYPE_CHECKING:
    import torch

ENTRY = Entry(
    name="influence_perturbation",
    kind="linear",
    paper="Kang et al. 2021, algorithm 2",
    idea="Examples that move the model get noise, the others none.",
    status="refuted",
    verdict="Training starts from a model that saw the data without noise, and examples of little influence are used "
    "without noise. So a result may show for sure from which of two neighbouring data sets it comes.",
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
_BECAUSE = "Little influence bounds how far a minimiser moves; an outcome without noise still identifies its data set."
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
    """Coefficients by training in which examples of little influence spend less privacy.

    Guarantee, rigorous: (epsilon, delta)-DP, by a filter (`training` sets the number of steps and the lot size), for
    one example replaced unless `adjacency` is given; linear models only. Rows are clipped to `data_norm`, the 1 of the
    intercept included. What each example has spent is private: `result.curator.for_curator()`.

    In paper form nothing is proven. A linear model starts from its minimiser, a network from `pretraining` on the data
    without noise; then come the steps of `rule`. The model is returned with the data, some of them without noise:
    `result.curator` tells the curator which.

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
        "seed": seed,
    }
    if mode == "rigorous":
        if module is not None:
            raise InvalidArgument(
                "The rigorous form is for linear models. Train networks with tacit.PrivateRun and a gradient method, "
                "such as methods.dpsgd."
            )
        _refuse_unused(mode, rule=rule, pretraining=pretraining)
        training, adjacency = training or FilteredDescent(), adjacency or Adjacency.REPLACE_ONE
        found = individual_descent(x, y, epsilon=epsilon, delta=delta, training=training, adjacency=adjacency, **given)
        return replace(found, guarantee=replace(found.guarantee, method=_NAME))
    _refuse_unused(mode, training=training, adjacency=adjacency)
    setup = set_up(x, y, mode, epsilon=epsilon, delta=delta, module=module, **given)
    if module is None:
        _refuse_unused("paper, for a linear model,", pretraining=pretraining)
        run, guarantee = _descend(LinearModel(setup.problem, setup.intercept), setup, rule or InfluenceRule())
        theta = run.theta.reshape(-1, loss.outputs)
        return make_result(theta, loss, guarantee, intercept=setup.intercept, data=run.data, curator=run.unnoised)
    # It needs torch.
    from tacit.erm.noisy_networks import NetworkModel, NetworkResult

    model = NetworkModel(module, setup.problem, pretraining or _PRETRAINING, setup.source)
    run, guarantee = _descend(model, setup, rule or InfluenceRule())
    trained = model.with_parameters(run.theta).to(next(module.parameters()).dtype)
    return NetworkResult(trained, loss, guarantee, run.data, run.unnoised)


def _refuse_unused(mode: str, **given: object) -> None:
    """Raise `InvalidArgument` for arguments that this mode ignores."""
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InvalidArgument(
            f"Nothing in mode {mode} uses {' and '.join(unused)}: `training` and `adjacency` apply to the rigorous "
            "form, `rule` and, for networks, `pretraining` to the paper's. Leave that out."
        )


def _descend(model: Influenceable, setup: Setup, rule: InfluenceRule) -> tuple[SelectiveRun, Guarantee]:
    """The steps of the rule, and the guarantee that nothing is proven about them."""
    budget, lipschitz = setup.budget, setup.longest_gradient(rule.lipschitz)
    about: dict[str, Any] = {"epsilon": budget.epsilon, "delta": budget.stated_delta, "lipschitz": lipschitz}
    claim = budget.claim(f"Kang et al. 2021, theorem 2 with c = {rule.constant:g}")
    event = Unproven(f"({claim.epsilon:g}, {claim.delta:g})-DP", _REASON, Adjacency.REPLACE_ONE)
    words: dict[str, Any] = {"method": f"{_NAME} (Kang et al. 2021)", "because": _BECAUSE, "returns_data": True}
    guarantee = published_guarantee(setup, event, claim, **words)
    return selective_descent(model, rule, source=setup.source, **about), guarantee
