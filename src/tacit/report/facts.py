"""What a report says about a guarantee, as plain values: the JSON twin of the page, from which the page is made.

Every number is computed anew from the event, which is all that was released; none is read from an earlier report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.accounting import Adjacency, PrivacyCurve, Sampled, ShuffledReports, curve
from tacit.accounting.curve import AccountantName
from tacit.accounting.events import Event
from tacit.errors import Asymptotic, NotAccountable, NotProven
from tacit.guarantee import Guarantee
from tacit.report.schedule import Schedule

Facts = dict[str, Any]

DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
FALSE_ALARMS = (0.001, 0.01)
MU_REGRET = 1e-6
_POINTS = 18
_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "one of which has one {unit} more than the other",
    Adjacency.REPLACE_ONE: "of the same size, which differ in one {unit}",
}


def guarantee_facts(guarantee: Guarantee) -> Facts:
    """Everything that is known about the guarantee; infinities, for which JSON has no number, are None."""
    lower, upper = guarantee.bounds(guarantee.delta)
    certified = certified_curve(guarantee.event)
    return {
        "statement": statement(guarantee),
        "sentences": str(guarantee).splitlines(),
        "is_proven": math.isfinite(upper),
        "epsilon": {"lower": finite(lower), "upper": finite(upper)},
        "delta": guarantee.delta,
        "profile": _profile(guarantee),
        "attacker": None if certified is None else attacker_facts(certified),
        "adjacency": {"name": guarantee.adjacency.value, "words": f"{guarantee.adjacency}"},
        "unit": guarantee.unit,
        "sampling": sampling_facts(guarantee.event),
        "accountant": _accountants(guarantee),
        "unprotected": list(guarantee.unprotected),
        "claim": _claim(guarantee),
        "assumptions": list(guarantee.assumptions),
        "violations": list(guarantee.violations),
        "errors": list(guarantee.errors),
        "notes": list(guarantee.notes),
        "odometer": None if guarantee.odometer is None else finite(guarantee.odometer),
        "local": None if guarantee.local is None else {"epsilon": finite(guarantee.local_epsilon(guarantee.delta))},
        "event": json.loads(guarantee.event.to_json()),
    }


def statement(guarantee: Guarantee) -> str:
    """The guarantee as a formal sentence; what is not proven is said as plainly."""
    upper = guarantee.epsilon(guarantee.delta)
    neighbours = _NEIGHBOURS[guarantee.adjacency].format(unit=guarantee.unit)
    if math.isinf(upper):
        return f"No finite ε is proven at δ = {guarantee.delta:g} for two data sets {neighbours}."
    from tacit.report.wording import up

    return (
        f"For any two data sets D and D′, {neighbours}, and any set S of outcomes of everything that was released: "
        f"P[M(D) ∈ S] ≤ e^ε · P[M(D′) ∈ S] + δ, with ε = {up(upper)} and δ = {guarantee.delta:g}."
    )


def certified_curve(event: Event) -> PrivacyCurve | None:
    """The certified privacy curve; None where nothing is proven."""
    try:
        return curve(event)
    except NotProven:
        return None


def attacker_facts(certified: PrivacyCurve) -> Facts:
    """What no attack on membership can exceed."""
    return {
        "found": [{"false_alarms": rate, "members_found": certified.true_positive_rate(rate)} for rate in FALSE_ALARMS],
        "advantage": certified.advantage(),
        "mu": finite(certified.mu(MU_REGRET)),
        "mu_regret": MU_REGRET,
    }


def tradeoff_facts(certified: PrivacyCurve) -> Facts:
    """Points of the trade-off curve: the smallest share of members that any attack misses lies between the two."""
    alphas = np.concatenate([[0.0], np.geomspace(1e-5, 0.1, 25), np.linspace(0.1, 1.0, 19)[1:]])
    lower, upper = (np.asarray(bound) for bound in certified.tradeoff_bounds(alphas))
    return {"false_alarms": alphas.tolist(), "missed_lower": lower.tolist(), "missed_upper": upper.tolist()}


def epsilon_over_steps(event: Event, delta: float) -> Facts:
    """Certified bounds on epsilon after so many steps, up to all of them, in their order."""
    schedule = Schedule.of(event)
    places = np.ceil(schedule.steps * np.linspace(0.0, 1.0, _POINTS) ** 2).astype(int)
    steps = np.unique(np.maximum(places, min(schedule.steps, 1)))
    bounds = [curve(schedule.until(int(step))).epsilon_bounds(delta) for step in steps]
    return {
        "steps": steps.tolist(),
        "lower": [finite(lower) for lower, _ in bounds],
        "upper": [finite(upper) for _, upper in bounds],
    }


def sampling_facts(event: Event) -> Facts:
    """What the accountant takes the lots to be, read off the event."""
    rates = sorted({each.rate for each in event.walk() if isinstance(each, Sampled)})
    if any(isinstance(each, ShuffledReports) for each in event.walk()):
        return {"assumed": "reports in a random order, which nobody knows", "rates": rates}
    if not rates or rates == [1.0]:
        return {"assumed": "every example in every release: no amplification is counted", "rates": rates}
    shown = ", ".join(f"{rate:.4g}" for rate in rates[:3])
    return {"assumed": f"Poisson: each example enters each lot by a coin of its own, rate {shown}", "rates": rates}


def finite(value: float) -> float | None:
    """None for infinity."""
    return float(value) if math.isfinite(value) else None


def _profile(guarantee: Guarantee) -> list[Facts]:
    rows = []
    for delta in sorted({*DELTAS, guarantee.delta}, reverse=True):
        lower, upper = guarantee.bounds(delta)
        rows.append({"delta": delta, "lower": finite(lower), "upper": finite(upper)})
    return rows


def _accountants(guarantee: Guarantee) -> Facts:
    others: Sequence[AccountantName] = ("rdp", "moments", "clt")
    return {
        "name": "PLD: privacy loss distributions, certified from above and below",
        "others": {by: _asked(guarantee.event, by, guarantee.delta) for by in others},
    }


def _asked(event: Event, by: AccountantName, delta: float) -> float | None:
    try:
        return finite(curve(event, by=by).epsilon(delta))
    except (NotProven, NotAccountable, Asymptotic):
        return None


def _claim(guarantee: Guarantee) -> Facts:
    claim = guarantee.claim
    status = {"status": guarantee.status.value, "because": guarantee.because, "mode": guarantee.mode}
    if claim is None:
        return {**status, "source": None, "epsilon": None, "delta": None, "verdict": None}
    return {
        **status,
        "source": claim.source,
        "epsilon": finite(claim.epsilon),
        "delta": claim.delta,
        "verdict": guarantee.verdict,
    }
