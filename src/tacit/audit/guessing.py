"""One training run, many canaries: a lower bound on epsilon from how many coins were guessed right.

Every canary enters the data by the toss of a fair coin. After the run the attacker guesses coins, abstaining where
nothing was learnt. (epsilon, delta)-privacy limits how many guesses can be right (Steinke, Nasr and Jagielski 2023),
and so does any trade-off curve, more tightly (Mahloujifar, Melis and Chaudhuri 2024). Numpy and scipy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special, stats

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.curve import PrivacyCurve
from tacit.audit.evidence import Kind, LowerBound
from tacit.audit.statistics import GAUSSIAN_SHAPE, Floats
from tacit.audit.weighing import is_worth_weighing, weighed_epsilon
from tacit.errors import InvalidArgument

_MOST_EPSILON = 100.0
_MOST_MU = 40.0


@dataclass(frozen=True)
class Guesses:
    """How many of the `canaries` coins were guessed, and how many of those `made` guesses were `right`."""

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries:
            raise InvalidArgument(
                f"Guesses need 0 <= right <= made <= canaries. Got {self.right} right, {self.made} made, "
                f"{self.canaries} canaries."
            )


def guess(scores: Any, included: Any, share: float = 0.1) -> Guesses:
    """Call the highest-scored canaries "in" and as many of the lowest "out"; abstain on the others.

    `share` of all canaries are guessed, half at each end; it must be fixed before the scores are seen.

    >>> guess([3.0, 1.0, 2.0, 0.0], [True, True, False, False], share=0.5)
    Guesses(canaries=4, made=2, right=2)
    """
    scores = _validate.reals("scores", scores, infinite=True).ravel()
    coins = np.asarray(included, dtype=bool).ravel()
    if scores.size != coins.size or scores.size < 2:
        raise InvalidArgument(
            f"scores and included must have one entry per canary, for two or more. Got {scores.size} and {coins.size}."
        )
    each = max(int(_validate.rate("share", share) * scores.size / 2), 1)
    order = np.argsort(scores, kind="stable")
    right = np.sum(~coins[order[:each]]) + np.sum(coins[order[scores.size - each :]])
    return Guesses(scores.size, 2 * each, int(right))


def p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The largest probability of so many right guesses against anything (epsilon, delta)-private.

    Steinke, Nasr and Jagielski 2023, theorem 5.2 and corollary 5.4.
    """
    share = 1 / (1 + math.exp(-epsilon))
    by_luck = float(stats.binom.sf(guesses.right - 1, guesses.made, share))
    fewer = stats.binom.pmf(np.arange(guesses.right - 1, -1, -1), guesses.made, share)
    slope = float((np.cumsum(fewer) / np.arange(1, guesses.right + 1)).max(initial=0.0))
    return min(by_luck + 2 * guesses.canaries * delta * slope, 1.0)


def steinke_epsilon(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """The largest epsilon that so many right guesses refute at `delta`, by Steinke, Nasr and Jagielski 2023.

    >>> round(steinke_epsilon(Guesses(1000, 100, 75), delta=1e-4, confidence=0.95), 3)
    0.673
    """
    return _largest(lambda epsilon: p_value(guesses, epsilon, delta) < 1 - confidence, _MOST_EPSILON)


def is_refuted(guesses: Guesses, tradeoff: Callable[[float], float], confidence: float) -> bool:
    """Whether nothing with this (symmetric) trade-off curve would let so many guesses be right, but by luck.

    Mahloujifar, Melis and Chaudhuri 2024, theorem 9 and algorithm 3. Let p_i be the probability of i right guesses.
    The guess on a random canary is made and right, with i right in all, with probability p_i i / m; with that coin
    turned over it is made and wrong, with i - 1 right. So the curve bounds sums of the one by sums of the other, and
    p_c, p_{c-1}, ... are found from the top, supposing that the tail from c on has probability 1 - confidence. If
    they sum up to more than 1, it has less.
    """
    level, made, right = 1 - confidence, guesses.made, guesses.right
    whole = made / guesses.canaries
    hits, misses = level * right / guesses.canaries, level * (made - right) / guesses.canaries
    for i in range(right - 1, -1, -1):
        if hits + misses > whole:
            return True
        # What has probability `hits` with the coin one way has at least f(1 - hits) with it turned over.
        more = max(misses, tradeoff(1 - hits))
        hits += i / (made - i) * (more - misses)
        misses = more
    return hits + misses > whole


def curve_epsilon(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """The largest epsilon refuted at `delta`, by the trade-off curve of (epsilon, delta)-privacy: assumes nothing."""

    def refuted(epsilon: float) -> bool:
        growth = math.exp(epsilon)
        return is_refuted(
            guesses, lambda alpha: max(0.0, 1 - delta - growth * alpha, (1 - delta - alpha) / growth), confidence
        )

    return _largest(refuted, _MOST_EPSILON)


def curve_mu(guesses: Guesses, *, confidence: float) -> float:
    """The largest mu of Gaussian DP that is refuted."""

    def refuted(mu: float) -> bool:
        # Scalars: a thousand of them are asked for, one after the other.
        return is_refuted(guesses, lambda alpha: float(special.ndtr(special.ndtri(1 - alpha) - mu)), confidence)

    return _largest(refuted, _MOST_MU)


def refutes(guesses: Guesses, proven: PrivacyCurve, confidence: float) -> bool:
    """Whether a proven curve cannot be true of the run that was attacked."""
    # Read off a table, from below: the curve falls, so the value at the next entry is a safe one.
    alphas = np.concatenate([[0.0], np.geomspace(1e-7, 0.5, 2000), 1 - np.geomspace(0.5, 1e-7, 2000)[1:], [1.0]])
    values: Floats = np.asarray(proven.tradeoff(alphas))

    def below(alpha: float) -> float:
        place = int(np.searchsorted(alphas, alpha, side="left"))
        return float(values[min(place, values.size - 1)])

    return is_refuted(guesses, below, confidence)


@dataclass(frozen=True)
class OneRun:
    """What one run with canaries shows. `bound`, `counted` and `steinke` assume nothing, each by its own theorem.

    `bound` is the one to quote: guesses weighed where their odds are known, else counted. `gaussian` is true where the
    trade-off curve is a Gaussian's. `contradicts` is None where no proven curve was given. Every statement holds with
    its confidence by itself.
    """

    guesses: Guesses
    bound: LowerBound
    counted: LowerBound
    steinke: LowerBound
    gaussian: LowerBound
    contradicts: bool | None


def one_run(
    scores: Any,
    included: Any,
    *,
    delta: float,
    confidence: float = 0.99,
    share: float = 0.1,
    proven: PrivacyCurve | None = None,
    log_odds: bool = False,
) -> OneRun:
    """Lower bounds from canaries' scores and the coins that decided whether each was `included`.

    The coins must be fair and independent, and known to nobody but the judge. `share` of the canaries are guessed where
    guesses are counted. With `log_odds` scores are logs of how much likelier the run is with the canary than without,
    and `bound` weighs all guesses by them, if delta leaves room for that: canaries * delta <= 1 - confidence.
    """
    confidence, delta = _validate.open_unit("confidence", confidence), _validate.open_unit("delta", delta)
    guesses = guess(scores, included, share)
    mu = curve_mu(guesses, confidence=confidence)

    def measured(epsilon: float, assuming: str = "") -> LowerBound:
        return LowerBound(epsilon, delta, confidence, Kind.SIMULATED, assuming=assuming)

    counted = measured(curve_epsilon(guesses, delta=delta, confidence=confidence))
    weighs = log_odds and is_worth_weighing(guesses.canaries, delta=delta, confidence=confidence)
    return OneRun(
        guesses,
        measured(weighed_epsilon(scores, included, delta=delta, confidence=confidence)) if weighs else counted,
        counted,
        measured(steinke_epsilon(guesses, delta=delta, confidence=confidence)),
        measured(gdp.epsilon(delta, mu) if mu > 0 else 0.0, GAUSSIAN_SHAPE),
        None if proven is None else refutes(guesses, proven, confidence),
    )


def _largest(refuted: Callable[[float], bool], most: float) -> float:
    """The largest value below `most` that is refuted; whatever is refuted takes all smaller values with it."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < most and refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
