"""What a report says about a guarantee, as plain values: the JSON twin of the page, from which the page is made.

Every number is computed anew from the event, which is all that was released; none is read from an earlier report.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import tacit
from tacit.accounting import Adjacency, EpsilonDelta, PrivacyCurve, Sampled, ShuffledReports, curve
from tacit.accounting.events import Event
from tacit.errors import NotProven
from tacit.guarantee import Guarantee
from tacit.reports.series import FALSE_ALARMS, Spending, finite

Facts = dict[str, Any]

DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
MU_REGRET = 1e-6
_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "one of which has one {unit} more than the other",
    Adjacency.REPLACE_ONE: "of the same size, which differ in one {unit}",
}


_TRUSTED = "whoever trains: they hold the data and see everything."
_UNPROTECTED = (
    "What was declared public: the population, how inputs are scaled, the settings.",
    "Whoever has several examples in the data: their protection is weaker, the more there are.",
    "What holds of people in general. It can be learnt, and may be bad news for someone who was never in the data.",
)
_NOTHING_PROTECTED = "Any example: nothing is proven about what this run tells of it."
_PUBLIC_TEST = "Test examples, which are taken as public."


def guarantee_facts(
    guarantee: Guarantee, spent: Spending | None, *, implemented: str | None = None, is_test_public: bool = True
) -> Facts:
    """Everything that is known about the guarantee; infinities, for which JSON has no number, are None.

    `spent` is what the steps cost, None where nothing is proven: then there is no accountant, and nothing that it
    assumes. `implemented` says how lots were drawn.
    """
    lower, upper = guarantee.bounds(guarantee.delta)
    certified = certified_curve(guarantee.event)
    return {
        "statement": statement(guarantee),
        "sentences": list(guarantee.sentences),
        "is_proven": math.isfinite(upper),
        "epsilon": {"lower": finite(lower), "upper": finite(upper)},
        "delta": guarantee.delta,
        "profile": _profile(guarantee),
        "attacker": None if certified is None else attacker_facts(certified),
        "adjacency": {"name": guarantee.adjacency.value, "words": f"{guarantee.adjacency}"},
        "unit": guarantee.unit,
        "trusted": f"{_TRUSTED}{' The guarantee is about everyone else.' if math.isfinite(upper) else ''}",
        "sampling": {"implemented": implemented, **sampling_facts(guarantee.event, is_proven=certified is not None)},
        "accountant": None if spent is None else _accountant(spent),
        "unprotected": [
            *([] if math.isfinite(upper) else [_NOTHING_PROTECTED]),
            *guarantee.unprotected,
            *_UNPROTECTED,
            *([_PUBLIC_TEST] if is_test_public else []),
        ],
        "claim": _claim(guarantee),
        "assumptions": [asdict(each) for each in guarantee.assumptions],
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
    from tacit.reports.wording import up

    return (
        f"For any two data sets D and D′, {neighbours}, and any set S of outcomes of everything that was released: "
        f"P[M(D) ∈ S] ≤ e^ε · P[M(D′) ∈ S] + δ, with ε = {up(upper)} and δ = {guarantee.delta:g}."
    )


# Drawn and asked about in several places, and for every row of a comparison with the same noise.
@lru_cache(maxsize=16)
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


def sampling_facts(event: Event, *, is_proven: bool = True) -> Facts:
    """What the accountant takes the lots to be, read off the event; nothing where nothing is proven."""
    rates = sorted({each.rate for each in event.walk() if isinstance(each, Sampled)})
    if not is_proven:
        return {"assumed": None, "rates": rates}
    if any(isinstance(each, ShuffledReports) for each in event.walk()):
        return {"assumed": "reports in a random order, which nobody knows", "rates": rates}
    if any(isinstance(each, EpsilonDelta) for each in event.walk()):
        return {"assumed": "an (ε, δ) that was found before, in which any sampling is counted already", "rates": rates}
    if not rates or rates == [1.0]:
        return {"assumed": "every example in every release: no amplification is counted", "rates": rates}
    shown = ", ".join(f"{rate:.4g}" for rate in rates[:3])
    return {"assumed": f"Poisson: each example enters each lot by a coin of its own, rate {shown}", "rates": rates}


def _profile(guarantee: Guarantee) -> list[Facts]:
    """At which deltas a finite epsilon is proven, and which."""
    bounds = {delta: guarantee.bounds(delta) for delta in sorted({*DELTAS, guarantee.delta}, reverse=True)}
    return [
        {"delta": delta, "lower": finite(lower), "upper": upper}
        for delta, (lower, upper) in bounds.items()
        if math.isfinite(upper)
    ]


def _accountant(spent: Spending) -> Facts:
    return {
        "name": "PLD: privacy loss distributions, certified from above and below",
        "version": tacit.__version__,
        "others": {by: None if values is None else values[-1] for by, values in spent.others.items()},
    }


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
