"""How well scores separate members from others: the ROC curve and its summaries, each with a confidence interval.

The intervals are over examples, for one model. They do not bound epsilon, which is about the randomness of training:
use canaries or repeated runs for that. Numpy and scipy only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special, stats

from tacit import _validate
from tacit.audit.statistics import Floats, least_share, most_share
from tacit.errors import InvalidArgument

FEW_ALARMS = (0.001, 0.01)


@dataclass(frozen=True)
class Interval:
    """A measured value and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, eq=False)
class Roc:
    """Members found over false alarms, for scores that are larger for members.

    `found_at` holds the true-positive rate at each of `FEW_ALARMS`, by rate. All intervals are at `confidence`.
    """

    alarms: Floats = field(repr=False)
    found: Floats = field(repr=False)
    area: Interval
    found_at: dict[float, Interval]
    members: int
    others: int
    confidence: float

    def __str__(self) -> str:
        rates = ", ".join(f"TPR {one} at {rate:.1%} FPR" for rate, one in self.found_at.items())
        return f"AUC {self.area}, {rates} ({100 * self.confidence:g} % intervals)"


def roc(members: Any, others: Any, *, confidence: float = 0.95) -> Roc:
    """The ROC curve of scores of members and of others.

    >>> str(roc([3.0, 2.0, 4.0, 5.0], [0.0, 1.0, 2.5, 1.5]).area.value)
    '0.9375'
    """
    members, others = _check_finite("members", members), _check_finite("others", others)
    confidence = _validate.open_unit("confidence", confidence)
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    found = 1 - np.searchsorted(np.sort(members), cuts, side="left") / members.size
    alarms = 1 - np.searchsorted(np.sort(others), cuts, side="left") / others.size
    return Roc(
        np.concatenate([[0.0], alarms]),
        np.concatenate([[0.0], found]),
        _find_area(members, others, confidence),
        {rate: find_detection_interval(members, others, rate, confidence) for rate in FEW_ALARMS},
        members.size,
        others.size,
        confidence,
    )


def find_detection_interval(members: Floats, others: Floats, rate: float, confidence: float) -> Interval:
    """The true-positive rate at a false-positive rate; the interval allows for errors in both.

    Order statistics bracket the threshold with a false-positive rate of `rate`, with half of the error probability;
    Clopper-Pearson brackets the share of members above either end, with the other half.
    """
    part = 1 - (1 - confidence) / 4
    ranked = np.sort(others)[::-1]
    # The number of false alarms above the true threshold is Binomial(n, rate).
    beyond = stats.binom.ppf([1 - part, part], others.size, rate).astype(int)
    strict = ranked[max(beyond[0] - 1, 0)] if beyond[0] > 0 else np.inf
    lax = ranked[beyond[1]] if beyond[1] < others.size else -np.inf
    cut = ranked[min(int(rate * others.size), others.size - 1)]
    low = least_share(np.sum(members > strict), members.size, part)
    high = most_share(np.sum(members >= lax), members.size, part)
    return Interval(float(np.mean(members > cut)), float(low), float(high))


def _find_area(members: Floats, others: Floats, confidence: float) -> Interval:
    """The area with the interval of DeLong, DeLong and Clarke-Pearson 1988, by logits, so within [0, 1]."""
    n, m = members.size, others.size
    together = stats.rankdata(np.concatenate([members, others]))
    # The share of others below each member, and of members above each other: ties count half.
    below = (together[:n] - stats.rankdata(members)) / m
    above = 1 - (together[n:] - stats.rankdata(others)) / n
    area = float(below.mean())
    error = float(np.sqrt(below.var(ddof=1) / n + above.var(ddof=1) / m))
    if not 0 < area < 1 or error == 0:
        # Perfect separation: the area differs from 1 by at most the share of a pair that was not observed.
        slack = 1 - (1 - confidence) ** (1 / min(n, m))
        return Interval(area, max(area - slack, 0.0), min(area + slack, 1.0))
    reach = float(special.ndtri((1 + confidence) / 2)) * error / (area * (1 - area))
    centre = float(special.logit(area))
    return Interval(area, float(special.expit(centre - reach)), float(special.expit(centre + reach)))


def _check_finite(name: str, values: Any) -> Floats:
    scores = _validate.reals(name, values).ravel()
    if scores.size < 2:
        raise InvalidArgument(f"{name} must hold at least two scores. Got {scores.size}.")
    return scores
