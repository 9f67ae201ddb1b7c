"""The facts of a report about a guarantee, as plain values: the page is made from them, and its JSON twin holds them.

Every number is computed from the event of the guarantee; none is read from an earlier report.
"""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import tacit
from tacit.accounting import (
    Adjacency,
    Allocated,
    EpsilonDelta,
    FixedSize,
    PrivacyCurve,
    Sampled,
    ShuffledReports,
    Truncated,
)
from tacit.accounting.events import Event
from tacit.accounting.lots import LotEvent
from tacit.audit.evidence import find_curve
from tacit.guarantee import FIXED_SEED, VIOLATIONS, Guarantee, finite
from tacit.reports.curves import FALSE_ALARMS, Spending
from tacit.reports.wording import about_units, neighbours, up

Facts = dict[str, Any]

DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
MU_REGRET = 1e-6
# The first step and the last: a comparison has many rows.
_POINTS = 2
_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "one of which has one {unit} more than the other",
    Adjacency.REPLACE_ONE: "of the same size, which differ in one {unit}",
}
_TRUSTED = "whoever trains the model: they hold the data and see everything."
_UNPROTECTED = (
    "Everything declared public: the population, the scaling of inputs, the settings.",
    "People with several examples in the data: the more examples, the weaker their protection.",
    "Facts about people in general. They can be learnt, and may harm someone whose data were never used.",
)
_UNPROTECTED_PEOPLE = (
    _UNPROTECTED[0],
    "Single rows at the same ε: who loses one of several rows is replaced by somebody else, which costs more.",
    "Somebody with several ids counts as several people, who are protected less together.",
    _UNPROTECTED[2],
)
_NOTHING_PROTECTED = "Any example: nothing is proven about what this run reveals of it."
_PUBLIC_TEST = "Test examples, which are assumed to be public."
_SEEDED = (
    "The noise came from a fixed seed, which this page names: anyone who knows it can remove the noise, so keep both "
    "the model and this page private."
)
_SCORES = {
    False: "Scores on test examples, which are public.",
    True: "One score on rows held out from training, with its own noise.",
}
_SAMPLED = {
    "Poisson": "Poisson: each example is in each lot independently, with probability {rate:.4g}",
    "FullBatch": "every example is in every lot",
    "Shuffled": "shuffled epochs: every example is in one lot of each epoch",
    "RandomAllocation": "random allocation: each example draws one lot of every epoch, independently and uniformly",
    "CyclicPoisson": "cyclic Poisson: groups take turns, and lots are Poisson samples of their group",
    "TruncatedPoisson": "truncated Poisson: each example with probability {rate:.4g}, lots cut at random if too large",
    "FixedLots": "lots of fixed size, drawn without replacement",
}
_ASSUMED: dict[type, str] = {
    Allocated: "random allocation: each example is in one lot of every epoch, independently and uniformly",
    Truncated: "truncated Poisson: full lots count as one example replaced by another",
    FixedSize: "lots of fixed size without replacement, one example replaced by another",
}
_WITHOUT_LOTS = "all examples at once, without lots"
_SETTINGS_RELEASED = "The settings, which were fixed before training."
_NOT_RELEASED = "Losses, gradient norms and lot sizes, because they depend on private examples."
_DURATIONS = "The training time in the table: it may depend on private examples, and the guarantee does not cover it."
_HELD_OUT = "Held-out rows: the scores in the table are measured on them without noise, and are not covered."


def list_guarantee(
    guarantee: Guarantee, spent: Spending | None, *, implemented: str | None = None, is_test_public: bool = True
) -> Facts:
    """All facts about a guarantee. Infinity becomes None, because JSON has no number for it.

    `spent` is epsilon over the steps, None if nothing is proven. `implemented` says how lots were drawn.
    """
    lower, upper = guarantee.bounds(guarantee.delta)
    certified, unit = find_certified_curve(guarantee.event), guarantee.unit
    takes_turns = "cyclic_poisson_lots" in {each.key for each in guarantee.assumptions}
    assumed = assume_sampling(guarantee.event, is_proven=certified is not None, takes_turns=takes_turns)
    sampling = {"implemented": implemented, **assumed}
    return {
        "statement": write_statement(guarantee),
        "sentences": list(guarantee.sentences),
        "is_proven": math.isfinite(upper),
        "epsilon": {"lower": finite(lower), "upper": finite(upper)},
        "delta": guarantee.delta,
        "profile": _list_profile(guarantee),
        "attacker": None if certified is None else describe_attacker(certified),
        "adjacency": {"name": guarantee.adjacency.value, "words": neighbours(guarantee.adjacency, unit=unit)},
        "unit": unit,
        "trusted": f"{_TRUSTED}{' The guarantee protects against everyone else.' if math.isfinite(upper) else ''}",
        "sampling": {
            name: about_units(value, unit) if isinstance(value, str) else value for name, value in sampling.items()
        },
        "accountant": None if spent is None else _describe_accountants(spent),
        "unprotected": [
            *([] if math.isfinite(upper) else [about_units(_NOTHING_PROTECTED, unit)]),
            *guarantee.unprotected,
            *(_UNPROTECTED_PEOPLE if unit == "person" else _UNPROTECTED),
            *([_PUBLIC_TEST] if is_test_public else []),
        ],
        "claim": _describe_claim(guarantee),
        "assumptions": [asdict(each) for each in guarantee.assumptions],
        "violations": list(guarantee.violations),
        "errors": list(guarantee.errors),
        "notes": list(guarantee.notes),
        "odometer": None if guarantee.odometer is None else finite(guarantee.odometer),
        "local": None if guarantee.local is None else {"epsilon": finite(guarantee.local_epsilon(guarantee.delta))},
        "event": json.loads(guarantee.event.to_json()),
    }


def write_statement(guarantee: Guarantee) -> str:
    """The guarantee as a formal sentence, or that nothing is proven."""
    upper = guarantee.epsilon(guarantee.delta)
    neighbours = _NEIGHBOURS[guarantee.adjacency].format(unit=guarantee.unit)
    if math.isinf(upper):
        return f"No finite ε is proven at δ = {guarantee.delta:g} for two data sets {neighbours}."
    return (
        f"For any two data sets D and D′, {neighbours}, and any set S of outcomes of all releases: "
        f"P[M(D) ∈ S] ≤ e^ε · P[M(D′) ∈ S] + δ, with ε = {up(upper)} and δ = {guarantee.delta:g}."
    )


# Used several times for each report, and for every row of a comparison with the same noise.
find_certified_curve = lru_cache(maxsize=16)(find_curve)


def describe_attacker(certified: PrivacyCurve) -> Facts:
    """Bounds on every membership attack."""
    return {
        "found": [{"false_alarms": rate, "members_found": certified.true_positive_rate(rate)} for rate in FALSE_ALARMS],
        "advantage": certified.advantage(),
        "mu": finite(certified.mu(MU_REGRET)),
        "mu_regret": MU_REGRET,
    }


def assume_sampling(event: Event, *, is_proven: bool = True, takes_turns: bool = False) -> Facts:
    """How the accountant assumes that lots are drawn, read from the event; nothing if nothing is proven.

    `takes_turns` says that examples are in groups of which each is charged once in a cycle.
    """
    rates = sorted({each.rate for each in event.walk() if isinstance(each, Sampled)})
    if not is_proven:
        return {"assumed": None, "rates": rates}
    if any(isinstance(each, ShuffledReports) for each in event.walk()):
        return {"assumed": "reports in a secret random order", "rates": rates}
    if any(isinstance(each, EpsilonDelta) for each in event.walk()):
        return {"assumed": "a known (ε, δ), which already includes any sampling", "rates": rates}
    kinds = {type(each) for each in event.walk() if isinstance(each, LotEvent)}
    if kinds:
        assumed = [_ASSUMED[kind] for kind in sorted(kinds, key=lambda kind: kind.__name__)]
        return {"assumed": "; ".join(assumed), "rates": rates}
    if not rates or rates == [1.0]:
        return {"assumed": "every example in every release: no amplification by sampling", "rates": rates}
    listed = ", ".join(f"{rate:.4g}" for rate in rates[:3])
    if takes_turns:
        words = "cyclic Poisson: once in every cycle each example is in a lot, independently, at rate"
        return {"assumed": f"{words} {listed}; nothing is gained from the secrecy of groups", "rates": rates}
    return {"assumed": f"Poisson: each example is in each lot independently, at rate {listed}", "rates": rates}


def _list_profile(guarantee: Guarantee) -> list[Facts]:
    """Certified bounds on epsilon at every delta with a finite one."""
    bounds = {delta: guarantee.bounds(delta) for delta in sorted({*DELTAS, guarantee.delta}, reverse=True)}
    return [
        {"delta": delta, "lower": finite(lower), "upper": upper}
        for delta, (lower, upper) in bounds.items()
        if math.isfinite(upper)
    ]


def _describe_accountants(spent: Spending) -> Facts:
    return {
        "name": "PLD: privacy loss distributions, certified from above and below",
        "version": tacit.__version__,
        "others": {by: None if values is None else values[-1] for by, values in spent.others.items()},
    }


def _describe_claim(guarantee: Guarantee) -> Facts:
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


def describe_versions() -> Facts:
    """The date of the report, and the versions that made it."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "tacit": tacit.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "torch")},
    }


def describe_release(
    guarantee: Guarantee, *, is_held_out: bool, is_prepared: Facts | None, is_scored: bool = True
) -> Facts:
    """What is released and what is not; or the reason why nothing may be released."""
    is_proven, is_seeded = math.isfinite(guarantee.epsilon(guarantee.delta)), FIXED_SEED in guarantee.violations
    others = [VIOLATIONS.get(one, one) for one in guarantee.violations if one != FIXED_SEED]
    return {
        "released": [
            *([] if is_prepared is None else ["The preparation of the features, once, before the first step."]),
            f"The weights after every step{': the guarantee covers all of them, not only the last' * is_proven}.",
            *([_SCORES[is_held_out]] if is_scored else []),
            _SETTINGS_RELEASED,
        ],
        "not_released": ["Losses, gradient norms, lot sizes and durations, because they depend on private examples."],
        "noise_from": "a fixed seed" if is_seeded else "the operating system's secure generator; it is never stored",
        "is_for_release": is_proven and not guarantee.violations,
        "warnings": [
            *([] if is_proven else ["No finite ε is proven for this run."]),
            *([_SEEDED] if is_seeded else []),
            *(f"{one[0].upper()}{one[1:]}." for one in others),
        ],
    }


def describe_sampling(sampling: Any) -> str:
    """How lots are drawn, in words."""
    name = type(sampling).__name__
    return _SAMPLED.get(name, name).format(rate=sampling.lot_size / sampling.population)


def details_of(guarantee: Guarantee, *, sampling: Any | None, is_held_out: bool) -> Facts:
    """The facts of one row of a comparison beyond its score. `sampling` is None for a method without lots."""
    certified = find_certified_curve(guarantee.event)
    spent = None if certified is None else Spending.of(guarantee.event, guarantee.delta, points=_POINTS)
    release = describe_release(guarantee, is_held_out=is_held_out, is_prepared=None)
    drawn = _WITHOUT_LOTS if sampling is None else describe_sampling(sampling)
    facts = list_guarantee(guarantee, spent, implemented=drawn, is_test_public=not is_held_out)
    facts["unprotected"] += [*([_HELD_OUT] if is_held_out else []), _DURATIONS]
    weights = "The weights of the model, once." if sampling is None else release["released"][0]
    return {
        "guarantee": facts,
        "released": [weights, _SETTINGS_RELEASED],
        "not_released": [_NOT_RELEASED],
        "noise_from": release["noise_from"],
        "epsilon_over_steps": None if spent is None or sampling is None else asdict(spent),
    }
