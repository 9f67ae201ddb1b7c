"""What a comparison says of one of its rows beyond the score: the whole of its guarantee, as a run's page has it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tacit.guarantee import Guarantee
from tacit.report.facts import Facts, certified_curve, guarantee_facts
from tacit.report.run import drawn_words, release_facts
from tacit.report.series import Spending

# Enough to see how epsilon grows; a comparison has many rows.
_POINTS = 4
_AT_ONCE = "all examples at once, without lots"


def details_of(guarantee: Guarantee, *, sampling: Any | None, is_held_out: bool) -> Facts:
    """The guarantee, what it covers, and epsilon over the steps; `sampling` is None where no lots are drawn."""
    certified = certified_curve(guarantee.event)
    spent = None if certified is None else Spending.of(guarantee.event, guarantee.delta, points=_POINTS)
    release = release_facts(guarantee, is_held_out=is_held_out, is_prepared=None)
    drawn = _AT_ONCE if sampling is None else drawn_words(sampling)
    weights = "The weights of the model, once." if sampling is None else release["released"][0]
    return {
        "guarantee": guarantee_facts(guarantee, spent, implemented=drawn, is_test_public=not is_held_out),
        "released": [weights, "The settings, which were fixed before training."],
        "not_released": release["not_released"],
        "noise_from": release["noise_from"],
        "epsilon_over_steps": None if spent is None or sampling is None else asdict(spent),
    }
