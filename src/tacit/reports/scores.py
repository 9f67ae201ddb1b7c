"""How well a model did, with how sure that is: on public examples, or on private ones with noise."""

from __future__ import annotations

import json
import math

from tacit.accounting import curve, from_json
from tacit.reports.facts import Facts
from tacit.reports.intervals import wilson
from tacit.reports.wording import up

_ABOUT = ("step", "interval", "noise_std", "event")
_CHOSEN = (
    "It is the best of several trials, and was chosen for this score: on other examples it will be a little worse."
)


def utility_facts(metrics: Facts, non_private: Facts | None, *, is_held_out: bool, delta: float | None = None) -> Facts:
    """The scores of a run, and what they are worth. `non_private` is a model that was trained beside it.

    What the score of private rows cost them is stated at `delta`, from the event of its release.
    """
    rows = metrics.get("test") or []
    name = next((key for key in (rows[0] if rows else {}) if key not in _ABOUT), None)
    if name is None:
        return {
            **dict.fromkeys(("measure", "final", "interval", "noise_std", "cost", "non_private")),
            "by_step": [],
            "sentences": ["Nothing was measured."],
        }
    last, count = rows[-1], metrics.get("test_examples")
    interval = last.get("interval")
    finite = [[row["step"], row[name]] for row in rows if row[name] is not None]
    if interval is None and name == "accuracy" and count and last[name] is not None:
        interval = wilson(last[name], count)
    found = {
        "measure": name,
        "final": last[name],
        "interval": interval,
        "noise_std": last.get("noise_std"),
        "cost": None if metrics.get("tuning") else _cost(last.get("event"), delta),
        "by_step": finite,
        "non_private": non_private,
    }
    chosen = [_CHOSEN] if metrics.get("tuning") else []
    return {**found, "sentences": [*_sentences(found, count, is_held_out), *chosen]}


def _cost(event: Facts | None, delta: float | None) -> Facts | None:
    """What a release cost; None where nothing was released, or by a version that did not write it down."""
    if event is None or delta is None:
        return None
    return {"event": event, "epsilon": curve(from_json(json.dumps(event))).epsilon(delta), "delta": delta}


def _sentences(found: Facts, count: int | None, is_held_out: bool) -> list[str]:
    where = "on rows held out, how many is private" if is_held_out else "on public examples"
    where = f"on {count:,} public examples" if count else where
    measured = score_words(found["measure"], found["final"])
    sure = how_sure(found["measure"], found["interval"], found["noise_std"])
    sentences = [f"{measured[0].upper()}{measured[1:]} {where}{sure}."]
    if is_held_out:
        sentences.append(
            "The noise is for the sake of those rows: the score is covered by the same guarantee, and was drawn once. "
            "The interval is made of what was released and of public numbers, so it costs nothing."
        )
        if found["cost"] is not None:
            cost = f"epsilon {up(found['cost']['epsilon'])} at delta {found['cost']['delta']:g}"
            sentences.append(
                f"The score cost the rows held out {cost}. Each row is either trained on or held out, so this does not "
                "add to what training cost the others."
            )
        sentences.append(
            "No model without privacy stands beside it: it would tell about private rows what this report must not."
        )
    return [*sentences, *_beside(found)]


def _beside(found: Facts) -> list[str]:
    """What is honest to say where the private model did better than the one without privacy."""
    other = found["non_private"]
    if other is None or found["final"] is None:
        return []
    better, worse = (found["final"], other["final"])[:: 1 if found["measure"] == "accuracy" else -1]
    if better <= worse:
        return []
    ends = found["interval"]
    is_chance = ends is not None and ends[0] <= other["final"] <= ends[1]
    chance = ", and the difference is within the interval" if is_chance else ""
    return [
        "Here the private model did better than the one without privacy. That is no merit of the noise: the other "
        f"is one training by one rule, not the best that is possible{chance}. Do not read it as privacy for free."
    ]


def score_words(measure: str, value: float | None) -> str:
    """A score as words; None, and what is not finite, comes of training that diverged.

    >>> score_words("accuracy", 0.9333), score_words("rmse", 57.123)
    ('test accuracy 93.33 %', 'root mean squared test error 57.12')
    """
    if value is None or not math.isfinite(value):
        return "no finite test score, for the training diverged (take a smaller learning rate),"
    if measure == "accuracy":
        return f"test accuracy {value_words(measure, value)}"
    return f"root mean squared test error {value_words(measure, value)}"


def value_words(measure: str, value: float | None) -> str:
    """The number alone.

    >>> value_words("accuracy", 1.0), value_words("rmse", 0.12345), value_words("rmse", None)
    ('100.00 %', '0.1235', 'diverged')
    """
    if value is None:
        return "diverged"
    return f"{100 * value:.2f} %" if measure == "accuracy" else f"{value:.4g}"


def interval_words(measure: str, interval: list[float]) -> str:
    """Both ends.

    >>> interval_words("accuracy", [0.78, 0.98])
    '78.00 % to 98.00 %'
    """
    return " to ".join(value_words(measure, end) for end in interval)


def how_sure(measure: str, interval: list[float] | None, noise_std: float | None) -> str:
    """What follows a score: the scale of its noise, if it has any, and its interval.

    >>> how_sure("accuracy", [0.9, 1.0], 0.0123)
    ' (noise of standard deviation 1.23 % on it; 95 % interval 90.00 % to 100.00 %)'
    """
    parts = [] if noise_std is None else [f"noise of standard deviation {value_words(measure, noise_std)} on it"]
    parts += [] if interval is None else [f"95 % interval {interval_words(measure, interval)}"]
    return f" ({'; '.join(parts)})" if parts else ""
