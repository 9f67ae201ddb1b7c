"""Everything that a command says about an event, asked of the accountants once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tacit
from tacit.accounting import (
    ACCOUNTANTS,
    Accountant,
    Certifies,
    Event,
    PrivacyCurve,
    accountant_named,
    claim_side,
    curve,
    other_accountants,
)
from tacit.errors import NotAccountable
from tacit.reports.curves import Schedule

FALSE_ALARMS = (0.01, 0.001)
MU_REGRET = 1e-6


@dataclass(frozen=True)
class Answer:
    """The epsilon of one accountant, or why it has none; `mu` where all that it says is mu-GDP."""

    epsilon: float | None
    refusal: str | None = None
    mu: float | None = None


@dataclass(frozen=True)
class Attacker:
    """What no attack on membership can exceed: certified by privacy loss distributions."""

    found: dict[float, float]
    advantage: float
    mu: float

    @staticmethod
    def against(certified: PrivacyCurve) -> Attacker:
        """The best attacker against this curve."""
        found = {rate: certified.true_positive_rate(rate) for rate in FALSE_ALARMS}
        return Attacker(found, certified.advantage(), certified.mu(MU_REGRET))

    def as_json(self) -> dict[str, float]:
        """Shares of members found, by false-positive rate; and the advantage."""
        return {
            **{f"fpr_{rate:g}": share for rate, share in self.found.items()},
            "advantage": self.advantage,
        }


@dataclass(frozen=True)
class Findings:
    """One event at one delta, by every accountant.

    `lower`, `estimate` and `upper` are those of the accountant `by`; a bound that it does not certify is None.
    `certified` is always the interval of "pld", and `answers` holds the epsilons of all others.
    """

    event: Event
    delta: float
    by: str
    group: int
    steps: int
    lower: float | None
    estimate: float
    upper: float | None
    certified: tuple[float, float]
    answers: dict[str, Answer]
    attacker: Attacker

    def as_json(self) -> dict[str, Any]:
        """The same for machines. What an accountant refuses is None, and `refused` says why."""
        return {
            "tacit": tacit.__version__,
            "event": json.loads(self.event.to_json()),
            "adjacency": self.event.adjacency.value,
            "group": self.group,
            "steps": self.steps,
            "accountant": self.by,
            "is_guarantee": not accountant_named(self.by).is_asymptotic,
            "delta": self.delta,
            "epsilon": {"lower": self.lower, "estimate": self.estimate, "upper": self.upper},
            "certified": {"lower": self.certified[0], "upper": self.certified[1]},
            **{name: self._answer_json(ACCOUNTANTS[name], answer) for name, answer in self.answers.items()},
            "refused": {name: answer.refusal for name, answer in self.answers.items() if answer.refusal},
            "attacker": self.attacker.as_json(),
            "mu": self.attacker.mu,
            "mu_regret": MU_REGRET,
        }

    def _answer_json(self, accountant: Accountant, answer: Answer) -> Any:
        """An upper bound is one number; an approximation also says on which side of the certified interval it is."""
        if not accountant.is_asymptotic:
            return answer.epsilon
        side = None if answer.epsilon is None else claim_side(answer.epsilon, self.certified)
        return {"mu": answer.mu, "epsilon": answer.epsilon, "side": side}


def find(event: Event, *, delta: float, by: str = "pld", group: int = 1) -> Findings:
    """Ask every accountant; `NotAccountable` only if the chosen one refuses."""
    accountant = accountant_named(by)
    certified = curve(event).group(group)
    bounds = certified.epsilon_bounds(delta)
    chosen = certified if by == "pld" else curve(event, by).group(group)
    return Findings(
        event=event,
        delta=delta,
        by=by,
        group=group,
        steps=Schedule.of(event).steps,
        lower=chosen.epsilon_bounds(delta)[0] if accountant.certifies is Certifies.BOTH_SIDES else None,
        estimate=chosen.epsilon_estimate(delta),
        upper=None if accountant.is_asymptotic else chosen.epsilon(delta),
        certified=bounds,
        answers={other.name: _ask(event, other, delta, group) for other in other_accountants()},
        attacker=Attacker.against(certified),
    )


def _ask(event: Event, accountant: Accountant, delta: float, group: int) -> Answer:
    try:
        epsilon = curve(event, accountant.name).group(group).epsilon(delta)
        return Answer(epsilon, mu=None if accountant.mu is None else accountant.mu(event))
    except NotAccountable as refusal:
        return Answer(None, str(refusal))
