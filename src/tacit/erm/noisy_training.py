"""Trains linear models and networks on perturbed data within a budget: by noisy reports, or as published."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Union

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Event, Gaussian, Unproven
from tacit.erm.losses import Logistic, SmoothHinge
from tacit.erm.noisy_data import Descent, Noise, add_noise, one_step_event, with_rows
from tacit.erm.reports import (
    Labels,
    Randomizer,
    Reporting,
    calibrate_reports,
    fit_reports,
    keep_probability,
    reports_event,
)
from tacit.erm.result import ErmResult, Mode, PerturbedData, Setup, make_result
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.guarantee import Assumption, Claim, Guarantee, Status
from tacit.randomness import Purpose

if TYPE_CHECKING:
    from tacit.erm.noisy_networks import NetworkResult

Result = Union[ErmResult, "NetworkResult"]

# The features of one example: what noise on features alone can protect.
FEATURES = "row of features"
_NETWORK = Descent(steps=500, lot_size=256)
_SHUFFLED = Assumption(
    "reports_shuffled",
    "The reports were shuffled before anyone saw them; against whoever sees them with their senders the local "
    "statement holds, and no more.",
)
_STARTED = Assumption("public_first_weights", "The network started from weights that do not depend on the data.")


def set_up(
    x: Any, y: Any, mode: Mode, *, delta: float | None, training: Descent | None = None, **settings: Any
) -> Setup:
    """Clip the features to the declared norm; the 1 of an intercept is public and not clipped."""
    if training is not None:
        _validate.kind("training", training, Descent, "Descent(steps=100)")
    if mode == "paper" and delta is None:
        raise InvalidArgument("The formulas of Kang et al. need a delta. Give one, or use mode='rigorous'.")
    return Setup.of(x, y, delta=delta, is_joint=False, **settings)


def train_on_reports(setup: Setup, method: str, reporting: Reporting, training: Descent | None) -> Result:
    """Draw noisy reports, shuffle them, and train a model on them: proven, locally and centrally."""
    problem, budget = setup.problem, setup.budget
    if setup.module is None and training is not None:
        raise InvalidArgument(
            "training applies to networks and to mode='paper'. A linear model of reports is fitted to its minimum, "
            f"which costs nothing. Leave it out. Got {training!r}."
        )
    labels = Labels.of(problem.loss, reporting.target_bound)
    randomizer = calibrate_reports(
        reporting,
        epsilon=budget.epsilon,
        delta=budget.delta,
        n=problem.n,
        data_norm=problem.data_norm,
        labels=labels,
    )
    # Without a delta the shuffled reports cost what one of them costs, and are shuffled all the same.
    amplified = reporting.shuffled and budget.delta is not None
    data, report = randomizer.draw_reports(problem, setup.source, shuffled=reporting.shuffled)
    if report != randomizer.event:
        raise OutOfOrder(
            f"The noise on a report was calibrated for {randomizer.event}, but the noise drawn costs {report}. "
            "Nothing was released. Randomizer.event must match Randomizer.draw_reports."
        )
    public = randomizer.label_epsilon is None
    guarantee = Guarantee(
        event=reports_event(report, problem.n, shuffled=amplified),
        delta=budget.stated_delta,
        method=method,
        unit=FEATURES if public else "example",
        assumptions=(
            *setup.list_assumptions(),
            *([_SHUFFLED] if amplified else []),
            *([_STARTED] if setup.module is not None else []),
        ),
        unprotected=("labels",) if public else (),
        violations=setup.violations,
        notes=(_describe(randomizer),),
        local=report,
    )
    if setup.module is None:
        theta = fit_reports(problem, data, randomizer, intercept=setup.intercept, debias=reporting.debias)
        return make_result(theta, problem.loss, guarantee, intercept=setup.intercept, data=data)
    if reporting.debias:
        raise InvalidArgument("debias applies to linear models: no correction is known for networks. Leave it out.")
    descent = training or replace(_NETWORK, lot_size=min(256, problem.n))
    # Numbers beyond their bound are kept, because clipping would bias them.
    targets = data.y[:, None] if labels.bound is not None else problem.loss.encode(data.y)
    return _train_network(setup, data, descent, guarantee, targets)


def train_as_published(
    setup: Setup,
    std: float,
    noise: Noise,
    claim: Claim,
    descent: Descent,
    *,
    method: str,
    because: str,
    returns_data: bool,
) -> Result:
    """Features with the noise that a paper prescribes, labels without noise, and gradient steps on both.

    Noise per example is a Gaussian release of each row; of shared noise nothing is proven.
    """
    problem, intercept = setup.problem, setup.intercept
    x = add_noise(problem.rows, std, noise, setup.source.stream(Purpose.NOISE, 0))
    event: Event = Gaussian(std / (2 * problem.data_norm), Adjacency.REPLACE_ONE)
    if noise == "shared":
        event = Unproven(
            f"({claim.epsilon:g}, {claim.delta:g})-DP",
            "all examples got the same noise, which differences between them, and balanced sums over them, do not "
            "contain",
            Adjacency.REPLACE_ONE,
        )
    guarantee = published_guarantee(
        setup, event, claim, method=method, because=because, returns_data=returns_data, std=std
    )
    is_one_step = descent.steps == 1 and descent.lot_size_for(problem.n) == problem.n
    is_linear = setup.module is None and isinstance(problem.loss, Logistic | SmoothHinge)
    if isinstance(event, Gaussian) and is_one_step and is_linear and not returns_data:
        # Of the model alone more is known.
        guarantee = replace(guarantee, event=one_step_event(problem.n, std, problem.data_norm), attained=True)
    data = PerturbedData(x, problem.numbers)
    if setup.module is not None:
        return _train_network(setup, data, descent, guarantee, problem.targets, returns_data=returns_data)
    length = math.sqrt(problem.data_norm**2 + problem.columns * std**2 + intercept)
    theta = descent.fit(with_rows(problem, x, intercept=intercept, length=length), setup.source)
    return make_result(theta, problem.loss, guarantee, intercept=intercept, data=data if returns_data else None)


def published_guarantee(
    setup: Setup,
    event: Event,
    claim: Claim,
    *,
    method: str,
    because: str,
    returns_data: bool,
    std: float | None = None,
) -> Guarantee:
    """What is proven instead of a refuted claim: a Gaussian event on each row of features, or nothing.

    The event covers the perturbed data; the model alone may reveal less. Labels have no noise. `std` is that of the
    noise on features, if it is the same for all.
    """
    protects = isinstance(event, Gaussian)
    claimed = f"which the paper says keeps epsilon {claim.epsilon:g}"
    note = f"Features have normal noise of standard deviation {std:.4g}, {claimed}." if std is not None else ""
    return Guarantee(
        event=event,
        delta=claim.delta,
        method=method,
        mode="paper",
        status=Status.REFUTED,
        claim=claim,
        because=because,
        unit=FEATURES if protects else "example",
        assumptions=setup.list_assumptions() if protects else (),
        unprotected=("labels",) if protects else ("labels", "examples"),
        violations=setup.violations,
        notes=(note,) if note else (),
        local=event if protects else None,
        attained=returns_data,
    )


def _train_network(
    setup: Setup,
    data: PerturbedData,
    descent: Descent,
    guarantee: Guarantee,
    targets: Array,
    *,
    returns_data: bool = True,
) -> NetworkResult:
    from tacit.erm.noisy_networks import NetworkResult, descend

    assert setup.module is not None
    trained = descend(setup.module, setup.problem, data, targets, descent, setup.source)
    return NetworkResult(trained, setup.problem.loss, guarantee, data if returns_data else None)


def _describe(randomizer: Randomizer) -> str:
    kind = "normal noise of standard deviation" if randomizer.multiplier is not None else "K-norm noise of scale"
    features = f"Features have {kind} {randomizer.scale:.4g}"
    if randomizer.label_epsilon is None:
        return f"{features}; labels have none."
    choices = randomizer.labels.choices
    if choices is None:
        assert randomizer.labels.bound is not None
        scale = 2 * randomizer.labels.bound / randomizer.label_epsilon
        return f"{features}; targets have Laplace noise of scale {scale:.4g}."
    kept = keep_probability(randomizer.label_epsilon, choices)
    return f"{features}; labels are true with probability {kept:.4g}."
