"""What a convex method returns: public coefficients with the guarantee that they come with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from tacit import _validate
from tacit._validate import Array
from tacit.accounting.events import Adjacency, Event
from tacit.erm.losses import Loss
from tacit.erm.problem import Problem
from tacit.errors import InvalidArgument
from tacit.guarantee import FIXED_SEED, Assumption, Claim, Guarantee, Status
from tacit.randomness import Source

Mode = Literal["rigorous", "paper"]

# A method without delta is stated at this one, below anything that could matter.
NO_DELTA = 1e-12


@dataclass(frozen=True, eq=False)
class ErmResult:
    """Released coefficients [outputs, features] and intercepts [outputs]. Public: computing with them is free."""

    coef: Array
    intercept: Array
    loss: Loss
    guarantee: Guarantee

    @property
    def event(self) -> Event:
        """All that was released."""
        return self.guarantee.event

    def scores(self, x: Any) -> Array:
        """The scores [examples, outputs] of new examples."""
        scores: Array = np.asarray(x, dtype=np.float64) @ self.coef.T + self.intercept
        return scores


@dataclass(frozen=True)
class Published:
    """What a method's authors say of it in this setting, and how well that stands."""

    method: str
    mode: Mode = "rigorous"
    claim: Claim | None = None
    status: Status = Status.PROVEN
    because: str = ""


@dataclass(frozen=True)
class Allowance:
    """The (epsilon, delta) that a method may spend; without delta the guarantee is pure."""

    epsilon: float
    delta: float | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))
        if self.delta is not None:
            object.__setattr__(self, "delta", _validate.open_unit("delta", self.delta))

    @property
    def stated_delta(self) -> float:
        """The delta that sentences speak about."""
        return NO_DELTA if self.delta is None else self.delta

    def claim(self, source: str) -> Claim:
        """A paper's claim to keep exactly this."""
        return Claim(self.epsilon, self.stated_delta, source)


def check_mode(mode: str) -> Mode:
    """`mode` if there is such a one."""
    if mode not in ("rigorous", "paper"):
        raise InvalidArgument(f"mode must be 'rigorous' or 'paper'. Got {mode!r}.")
    return cast(Mode, mode)


def refuse_network(module: object, why: str) -> None:
    """Raise for a model that is not linear, and say where networks are trained."""
    if module is not None:
        raise InvalidArgument(
            f"This method is for linear models and takes no module: {why} Train networks with tacit.PrivateRun and a "
            "gradient method such as methods.dpsgd, or with PrivateClassifier(module=...)."
        )


def result_of(
    theta: Array,
    problem: Problem,
    event: Event,
    *,
    published: Published,
    delta: float,
    intercept: bool,
    source: Source,
    assumptions: Sequence[Assumption] = (),
    notes: Sequence[str] = (),
) -> ErmResult:
    """The released coefficients, with a guarantee read off the event."""
    guarantee = Guarantee(
        event=event,
        delta=delta,
        method=published.method,
        mode=published.mode,
        status=published.status,
        claim=published.claim,
        because=published.because,
        assumptions=(*_assumptions(problem, event, intercept), *assumptions),
        violations=() if source.is_secret else (FIXED_SEED,),
        notes=tuple(notes),
        # Sensitivities are bounded and not measured, and of a descent only the end is handed out.
        attained=False,
    )
    weights, ones = (theta[:-1], theta[-1]) if intercept else (theta, np.zeros(problem.loss.outputs))
    return ErmResult(np.ascontiguousarray(weights.T), ones, problem.loss, guarantee)


def _assumptions(problem: Problem, event: Event, intercept: bool) -> tuple[Assumption, ...]:
    joint = ", the 1 of its intercept included," if intercept else ""
    clipped = f"Every row{joint} was clipped to a norm of {problem.data_norm:g}, which was declared and not looked up."
    count = "The number of examples is public."
    if event.adjacency is Adjacency.ADD_REMOVE:
        count = "The number of rows is public: an example that is removed leaves a row of zeros in its place."
    return Assumption("rows_clipped", clipped), Assumption("public_count", count)
