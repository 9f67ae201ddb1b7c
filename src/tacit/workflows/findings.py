"""Everything that a command says about an event, asked of the accountants once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tacit
from tacit.accounting import Event, PrivacyCurve, central_limit_mu, claim_side, curve
from tacit.accounting.curve import AccountantName, ClaimSide
from tacit.errors import NotAccountable
from tacit.reports.schedule import Schedule

FALSE_ALARMS = (0.01, 0.001)
MU_REGRET = 1e-6


@dataclass(frozen=True)
class Answer:
    """The epsilon of one accountant, or why it has none."""

    epsilon: float | None
    refusal: str | None = None


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

    `lower`, `estimate` and `upper` are those of the accountant `by`: a lower bound only for "pld",
    an upper bound for all but "clt". `certified` is always the interval of "pld".
    """

    event: Event
    delta: float
    by: AccountantName
    group: int
    steps: int
    lower: float | None
    estimate: float
    upper: float | None
    certified: tuple[float, float]
    clt_mu: float | None
    answers: dict[str, Answer]
    attacker: Attacker

    @property
    def clt_side(self) -> ClaimSide | None:
        """On which side of the certified interval the central limit theorem errs."""
        claimed = self.answers["clt"].epsilon
        return None if claimed is None else claim_side(claimed, self.certified)

    def as_json(self) -> dict[str, Any]:
        """The same for machines. What an accountant refuses is None, and `refused` says why."""
        return {
            "tacit": tacit.__version__,
            "event": json.loads(self.event.to_json()),
            "adjacency": self.event.adjacency.value,
            "group": self.group,
            "steps": self.steps,
            "accountant": self.by,
            "is_guarantee": self.by != "clt",
            "delta": self.delta,
            "epsilon": {"lower": self.lower, "estimate": self.estimate, "upper": self.upper},
            "certified": {"lower": self.certified[0], "upper": self.certified[1]},
            "clt": {"mu": self.clt_mu, "epsilon": self.answers["clt"].epsilon, "side": self.clt_side},
            "rdp": self.answers["rdp"].epsilon,
            "moments": self.answers["moments"].epsilon,
            "refused": {name: answer.refusal for name, answer in self.answers.items() if answer.refusal},
            "attacker": self.attacker.as_json(),
            "mu": self.attacker.mu,
            "mu_regret": MU_REGRET,
        }


def find(event: Event, *, delta: float, by: AccountantName = "pld", group: int = 1) -> Findings:
    """Ask every accountant; `NotAccountable` only if the chosen one refuses."""
    certified = curve(event).group(group)
    bounds = certified.epsilon_bounds(delta)
    chosen = certified if by == "pld" else curve(event, by).group(group)
    return Findings(
        event=event,
        delta=delta,
        by=by,
        group=group,
        steps=Schedule.of(event).steps,
        lower=bounds[0] if by == "pld" else None,
        estimate=chosen.epsilon_estimate(delta),
        upper=None if by == "clt" else chosen.epsilon(delta),
        certified=bounds,
        clt_mu=_clt_mu(event),
        answers={name: _ask(event, name, delta, group) for name in ("clt", "rdp", "moments")},
        attacker=Attacker.against(certified),
    )


def _ask(event: Event, by: AccountantName, delta: float, group: int) -> Answer:
    try:
        return Answer(curve(event, by).group(group).epsilon(delta))
    except NotAccountable as refusal:
        return Answer(None, str(refusal))


def _clt_mu(event: Event) -> float | None:
    try:
        return central_limit_mu(event)
    except NotAccountable:
        return None
