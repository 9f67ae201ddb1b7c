"""How sure the mean score of several seeds is, and which of two means can be told to be better."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from scipy import stats

from tacit.reports.facts import Facts
from tacit.reports.intervals import wilson
from tacit.reports.scores import value_words

_SURE = 0.95
_Z = float(stats.norm.ppf((1 + _SURE) / 2))


def interval_of_shares(values: Sequence[float], tested: int) -> list[float]:
    """A 95 % interval for the mean accuracy over other seeds and other test examples, within [0, 1].

    Both spreads add up: that over seeds, which are few, and that over test examples, which all seeds share. They are
    as much as a share among fewer examples would have (Wilson 1927), with as many degrees of freedom as Satterthwaite
    1946 gives their sum. One seed says nothing about others: then it is about test examples only.
    """
    mean = float(np.mean(values))
    binomial = mean * (1 - mean) / tested
    variance, z = _combined(binomial, values)
    return wilson(mean, tested * binomial / variance if variance > 0 else tested, z)


def interval_of_errors(values: Sequence[float], own: Sequence[Sequence[float] | None]) -> list[float] | None:
    """The same for root mean squared errors, which are at least 0; `own` are the intervals over test examples.

    None if neither other seeds nor other test examples can be spoken of.
    """
    known = [(high - low) / (2 * _Z) for low, high in filter(None, own)]
    if not known and len(values) < 2:
        return None
    mean = float(np.mean(values))
    variance, z = _combined(float(np.mean(known)) ** 2 if known else 0.0, values)
    half = z * math.sqrt(variance)
    return [max(0.0, mean - half), mean + half] if math.isfinite(half) else None


def _combined(of_tests: float, values: Sequence[float]) -> tuple[float, float]:
    """The variance of the mean, and how many standard deviations 95 % are."""
    if len(values) < 2:
        return of_tests, _Z
    of_seeds = float(np.var(values, ddof=1)) / len(values)
    if of_seeds == 0:
        return of_tests, _Z
    freedom = (len(values) - 1) * ((of_tests + of_seeds) / of_seeds) ** 2
    return of_tests + of_seeds, float(stats.t.ppf((1 + _SURE) / 2, freedom))


def is_better(one: Facts, other: Facts) -> bool:
    """Whether the first row's mean is better for sure (95 %), by both intervals together (Newcombe 1998).

    Their test examples are the same, so this is on the careful side.
    """
    if one["interval"] is None or other["interval"] is None:
        return False
    sign = 1 if one["measure"] == "accuracy" else -1
    ahead = sign * (one["mean"] - other["mean"])
    nearest, farthest = (0, 1) if sign == 1 else (1, 0)
    doubt = math.hypot(one["mean"] - one["interval"][nearest], other["interval"][farthest] - other["mean"])
    return bool(ahead > doubt)


def scored_words(row: Facts) -> str:
    """A score with its interval, or that there is none.

    >>> scored_words({"measure": "accuracy", "mean": 0.9474, "interval": [0.9213, 0.9655]})
    '94.7 % (92.1 to 96.5)'
    >>> scored_words({"measure": "rmse", "mean": 64.512, "interval": [60.2, 71.04]})
    '64.51 (60.2 to 71.04)'
    >>> scored_words({"measure": "rmse", "mean": None, "interval": None, "diverged": 1, "seeds": 3})
    'diverged (1 of 3 seeds)'
    """
    measure, mean, interval = row["measure"], row["mean"], row["interval"]
    if mean is None:
        return f"diverged ({row['diverged']} of {seeds_in_words([row['seeds']])})"
    if measure == "accuracy":
        ends = f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
        return f"{100 * mean:.1f} %{ends}"
    ends = "" if interval is None else f" ({' to '.join(value_words(measure, end) for end in interval)})"
    return f"{value_words(measure, mean)}{ends}"


def seeds_in_words(seeds: Collection[int]) -> str:
    """How many seeds rows have.

    >>> seeds_in_words([1]), seeds_in_words([3]), seeds_in_words([3, 1])
    ('1 seed', '3 seeds', '1 to 3 seeds')
    """
    least, most = min(seeds), max(seeds)
    return f"{'' if least == most else f'{least} to '}{most} seed{'s' if most > 1 else ''}"


def interval_in_words(seeds: Collection[int]) -> str:
    """What the brackets are, in a table whose rows have so many seeds."""
    most = max(seeds)
    if most == 1:
        return (
            "In brackets: 95 % intervals for other test examples. One seed says nothing about other seeds, so they are "
            "too narrow."
        )
    single = " Where there is one seed, they are for other test examples only, and too narrow." if 1 in seeds else ""
    return (
        f"In brackets: 95 % intervals for other seeds and other test examples together. {seeds_in_words(seeds)} are "
        f"few, which makes them wide where scores differ from seed to seed.{single}"
    )
