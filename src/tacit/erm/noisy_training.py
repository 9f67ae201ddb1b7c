"""Trains linear models and networks on perturbed data within a budget: by noisy reports, or as published."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Union

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Event, Gaussian, Unproven
from tacit.erm.losses import Loss
from tacit.erm.noise import Noisy
from tacit.erm.noisy_data import Descent, Noise, add_noise, expected_length, with_rows
from tacit.erm.problem import Problem, prepare
from tacit.erm.reports import Labels, Randomizer, Reporting, calibrate_reports, fit_reports, reports_event
from tacit.erm.result import Allowance, ErmResult, Mode, PerturbedData, make_result
from tacit.errors import InvalidArgument, OutOfOrder
from tacit.guarantee import FIXED_SEED, Assumption, Claim, Guarantee, Status
from tacit.randomness import Purpose, Source, source_for

if TYPE_CHECKING:
    import torch

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


@dataclass(frozen=True, eq=False)
class Setup:
    """The clipped data, the budget, and the model: `module`, or a linear one. Private."""

    problem: Problem
    budget: Allowance
    intercept: bool
    module: torch.nn.Module | None
    source: Source

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of every guarantee here."""
        norm = f"a norm of {self.problem.data_norm:g}, which was declared and not looked up"
        return (
            Assumption("rows_clipped", f"The features of every example were clipped to {norm}."),
            Assumption("public_count", "The number of examples is public."),
        )

    @property
    def length(self) -> float:
        """The largest norm of a row, the 1 of its intercept included."""
        return math.sqrt(self.problem.data_norm**2 + self.intercept)

    def longest_gradient(self, declared: float | None) -> float:
        """The G of the papers: declared, or the largest slope times the longest row, or 1 for a network."""
        if declared is not None:
            return _validate.positive("lipschitz", declared)
        if self.module is not None:
            return 1.0
        found = self.problem.loss.slope_bound * self.length
        if not math.isfinite(found):
            raise InvalidArgument(
                f"Slopes of {self.problem.loss!r} are unbounded, and the papers' noise grows with the longest gradient "
                "G. Use Huber, or declare a G for the formula, as in rule=InputRule(lipschitz=1.0)."
            )
        return found

    @property
    def violations(self) -> tuple[str, ...]:
        return () if self.source.is_secret else (FIXED_SEED,)


def clip_data(
    x: Any,
    y: Any,
    *,
    budget: Allowance,
    intercept: bool,
    module: torch.nn.Module | None,
    seed: int | None,
    **about: Any,
) -> Setup:
    """Clip the features to the declared norm; the 1 of an intercept is public and not clipped.

    `about` are the loss, the regularisation and the norm. An example that is not finite becomes a row of zeros with the
    first label.
    """
    return Setup(
        prepare(x, y, intercept=False, **about),
        budget,
        _validate.flag("intercept", intercept),
        module,
        source_for(seed),
    )


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
            *setup.assumptions,
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
    return _train_network(setup, data, descent, guarantee, targets_of(problem.loss, labels, data))


def perturb_features(setup: Setup, std: float, noise: Noise, claim: Claim) -> Noisy:
    """Features with the noise that a paper prescribes, drawn once, and their cost.

    Noise per example is a Gaussian release of each row; of shared noise nothing is proven.
    """
    problem = setup.problem
    x = add_noise(problem.rows, std, noise, setup.source.stream(Purpose.NOISE, 0))
    if noise == "per_example":
        return Noisy(x, Gaussian(std / (2 * problem.data_norm), Adjacency.REPLACE_ONE))
    event = Unproven(
        f"({claim.epsilon:g}, {claim.delta:g})-DP",
        "all examples got the same noise, which differences between them, and balanced sums over them, do not contain",
        Adjacency.REPLACE_ONE,
    )
    return Noisy(x, event)


def train_on_noise(
    setup: Setup, x: Array, std: float, descent: Descent, guarantee: Guarantee, *, returns_data: bool
) -> Result:
    """Gradient steps on features with noise of this standard deviation, and on labels without noise."""
    problem = setup.problem
    data = PerturbedData(x, problem.numbers)
    if setup.module is not None:
        return _train_network(setup, data, descent, guarantee, problem.targets, returns_data=returns_data)
    length = expected_length(problem, std, intercept=setup.intercept)
    noisy = with_rows(problem, x, intercept=setup.intercept, length=length)
    theta = descent.fit(noisy, setup.source)
    kept = data if returns_data else None
    return make_result(theta, problem.loss, guarantee, intercept=setup.intercept, data=kept)


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
    return Guarantee(
        event=event,
        delta=claim.delta,
        method=method,
        mode="paper",
        status=Status.REFUTED,
        claim=claim,
        because=because,
        unit=FEATURES if protects else "example",
        assumptions=setup.assumptions if protects else (),
        unprotected=("labels",) if protects else ("labels", "examples"),
        violations=setup.violations,
        notes=() if std is None else (noise_note(std, claim),),
        local=event if protects else None,
        attained=returns_data,
    )


def published_budget(epsilon: float, delta: float | None, mode: Mode) -> Allowance:
    """The budget; in paper mode it needs a delta, as the papers' formulas do."""
    if mode == "paper" and delta is None:
        raise InvalidArgument("The formulas of Kang et al. need a delta. Give one, or use mode='rigorous'.")
    return Allowance(epsilon, delta)


def noise_note(std: float, claim: Claim) -> str:
    """How much noise there is, and what the paper claims of it."""
    claimed = f"which the paper says keeps epsilon {claim.epsilon:g}"
    return f"Features have normal noise of standard deviation {std:.4g}, {claimed}."


def targets_of(loss: Loss, labels: Labels, data: PerturbedData) -> Array:
    """Reported labels as the loss uses them. Numbers beyond their bound are kept, because clipping would bias them."""
    return data.y[:, None] if labels.bound is not None else loss.encode(data.y)


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
    kept = 1 / (1 + (choices - 1) * math.exp(-randomizer.label_epsilon))
    return f"{features}; labels are true with probability {kept:.4g}."
