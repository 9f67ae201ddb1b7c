"""What a comparison says of one of its rows beyond the score: the whole of its guarantee, as a run's page has it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tacit.accounting import PrivacyCurve
from tacit.guarantee import Guarantee
from tacit.reports.facts import Facts, certified_curve, guarantee_facts
from tacit.reports.run import drawn_words, release_facts
from tacit.reports.series import FALSE_ALARMS, Spending, Tradeoff

# Enough to see how epsilon grows; a comparison has many rows.
_POINTS = 4
# Between them the curve is drawn straight, and lies lower: close enough that the line is wider than that.
_ALARMS = np.unique([*FALSE_ALARMS, *0.5 * np.linspace(0.0, 1.0, 41) ** 1.5, *np.linspace(0.5, 1.0, 11)])
_AT_ONCE = "all examples at once, without lots"
_NOT_RELEASED = "Losses, gradient norms and sizes of lots: they tell about private examples."
_SECONDS = "How long the training took, which the table says: it may tell about private examples, and is not covered."
_HELD_OUT = "Rows held out: the scores in the table are about them, exact and without noise, and are not covered."


def details_of(guarantee: Guarantee, *, sampling: Any | None, is_held_out: bool) -> Facts:
    """The guarantee, its trade-off curve, what it covers, epsilon over the steps; `sampling` is None without lots."""
    certified = certified_curve(guarantee.event)
    spent = None if certified is None else Spending.of(guarantee.event, guarantee.delta, points=_POINTS)
    release = release_facts(guarantee, is_held_out=is_held_out, is_prepared=None)
    drawn = _AT_ONCE if sampling is None else drawn_words(sampling)
    facts = guarantee_facts(guarantee, spent, implemented=drawn, is_test_public=not is_held_out)
    facts["unprotected"] += [*([_HELD_OUT] if is_held_out else []), _SECONDS]
    weights = "The weights of the model, once." if sampling is None else release["released"][0]
    return {
        "guarantee": facts,
        "released": [weights, "The settings, which were fixed before training."],
        "tradeoff": None if certified is None else asdict(tradeoff_of(certified, guarantee.delta)),
        "not_released": [_NOT_RELEASED],
        "noise_from": release["noise_from"],
        "epsilon_over_steps": None if spent is None or sampling is None else asdict(spent),
    }


def tradeoff_of(certified: PrivacyCurve, delta: float) -> Tradeoff:
    """The trade-off curve at few points, one of them where both errors are as large: there an (ε, δ) has its corner."""
    return Tradeoff.of(certified, delta, np.unique([*_ALARMS, (1 - certified.advantage()) / 2]))
