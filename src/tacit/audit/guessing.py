"""One training run, many canaries: a lower bound on epsilon from the number of coins guessed right.

Every canary is included by the toss of a fair coin. After the run the attacker guesses some of the coins.
(epsilon, delta)-privacy limits how many guesses can be right (Steinke, Nasr and Jagielski 2023), and so does any
trade-off curve, more tightly (Mahloujifar, Melis and Chaudhuri 2024). Numpy and scipy only.

Guesses can also be weighted. If the score of a canary is a log-likelihood ratio, the attacker knows how certain each
guess is. The most powerful test of an epsilon gives each guess the weight by which its log odds exceed epsilon.

Why the weighted test is valid: given the releases and the earlier coins, a coin comes out as guessed with probability
at most p + g, where p = e^epsilon / (1 + e^epsilon) and g is the excess that delta allows. On average over coins and
releases, g is at most delta / (1 + e^epsilon): (1 - p) / 2 times the sum of the two deltas between a coin's worlds.
Without g, the weight of all right guesses would be stochastically no larger than the same weights on independent coins
with probability p. Replacing these coins by the true ones, one by one, changes the probability of any tail by at most
the sum of all g: canaries * delta / (1 + e^epsilon). Weights and guesses may depend on the releases, because the
argument holds for each release, but not on the coins. Weighted guesses without a delta: Steinke, Nasr and Jagielski
2023, proposition 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.curve import PrivacyCurve
from tacit.audit.evidence import Kind, LowerBound
from tacit.audit.statistics import GAUSSIAN_SHAPE, Floats
from tacit.errors import InvalidArgument

_MOST_EPSILON = 100.0
_MOST_MU = 40.0


@dataclass(frozen=True)
class Guesses:
    """The number of canaries, of guesses made, and of right guesses."""

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
    """Guess that the canaries with the highest scores are included and as many with the lowest are not.

    `share` of all canaries are guessed, half at each end; it must be fixed before the scores are known.

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
    """The largest probability of at least this many right guesses under (epsilon, delta)-privacy.

    Steinke, Nasr and Jagielski 2023, theorem 5.2 and corollary 5.4.
    """
    share = 1 / (1 + math.exp(-epsilon))
    by_luck = float(stats.binom.sf(guesses.right - 1, guesses.made, share))
    fewer = stats.binom.pmf(np.arange(guesses.right - 1, -1, -1), guesses.made, share)
    slope = float((np.cumsum(fewer) / np.arange(1, guesses.right + 1)).max(initial=0.0))
    return min(by_luck + 2 * guesses.canaries * delta * slope, 1.0)


def steinke_epsilon(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """The largest epsilon that the guesses refute at `delta`, by Steinke, Nasr and Jagielski 2023.

    >>> round(steinke_epsilon(Guesses(1000, 100, 75), delta=1e-4, confidence=0.95), 3)
    0.673
    """
    return _find_largest(lambda epsilon: p_value(guesses, epsilon, delta) < 1 - confidence, _MOST_EPSILON)


def is_refuted(guesses: Guesses, tradeoff: Callable[[float], float], confidence: float) -> bool:
    """Whether the guesses refute this (symmetric) trade-off curve with the given confidence.

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
        # An event of probability `hits` has probability at least f(1 - hits) with the coin turned over.
        more = max(misses, tradeoff(1 - hits))
        hits += i / (made - i) * (more - misses)
        misses = more
    return hits + misses > whole


def curve_epsilon(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """The largest epsilon refuted at `delta`, by the trade-off curve of (epsilon, delta)-privacy. Assumes nothing."""

    def rejects(epsilon: float) -> bool:
        growth = math.exp(epsilon)
        return is_refuted(
            guesses, lambda alpha: max(0.0, 1 - delta - growth * alpha, (1 - delta - alpha) / growth), confidence
        )

    return _find_largest(rejects, _MOST_EPSILON)


def curve_mu(guesses: Guesses, *, confidence: float) -> float:
    """The largest mu of Gaussian DP that is refuted."""

    def rejects(mu: float) -> bool:
        # Scalar functions, because this is called a thousand times with one value.
        return is_refuted(guesses, lambda alpha: float(special.ndtr(special.ndtri(1 - alpha) - mu)), confidence)

    return _find_largest(rejects, _MOST_MU)


def refutes(guesses: Guesses, proven: PrivacyCurve, confidence: float) -> bool:
    """Whether the guesses refute a proven curve."""
    # From a table: the curve decreases, so the next entry is a lower bound.
    alphas = np.concatenate([[0.0], np.geomspace(1e-7, 0.5, 2000), 1 - np.geomspace(0.5, 1e-7, 2000)[1:], [1.0]])
    values: Floats = np.asarray(proven.tradeoff(alphas))

    def below(alpha: float) -> float:
        place = int(np.searchsorted(alphas, alpha, side="left"))
        return float(values[min(place, values.size - 1)])

    return is_refuted(guesses, below, confidence)


@dataclass(frozen=True)
class OneRun:
    """What one run with canaries shows. `bound`, `counted` and `steinke` assume nothing, each by its own theorem.

    `bound` is the main result: guesses are weighted if their odds are known, else counted. `gaussian` is valid if the
    trade-off curve is a Gaussian's. `contradicts` is None if no proven curve was given. Each statement holds with its
    confidence on its own.
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

    The coins must be fair, independent, and unknown to the attacker. `share` of the canaries are guessed if guesses are
    counted. With `log_odds` scores are log-likelihood ratios, and `bound` weights all guesses by them, if delta is
    small enough: canaries * delta <= 1 - confidence.
    """
    confidence, delta = _validate.open_unit("confidence", confidence), _validate.open_unit("delta", delta)
    guesses = guess(scores, included, share)
    mu = curve_mu(guesses, confidence=confidence)

    def make_bound(epsilon: float, assuming: str = "") -> LowerBound:
        return LowerBound(epsilon, delta, confidence, Kind.SIMULATED, assuming=assuming)

    counted = make_bound(curve_epsilon(guesses, delta=delta, confidence=confidence))
    is_weighted = log_odds and can_weight(guesses.canaries, delta=delta, confidence=confidence)
    return OneRun(
        guesses,
        make_bound(weighted_epsilon(scores, included, delta=delta, confidence=confidence)) if is_weighted else counted,
        counted,
        make_bound(steinke_epsilon(guesses, delta=delta, confidence=confidence)),
        make_bound(gdp.epsilon(delta, mu) if mu > 0 else 0.0, GAUSSIAN_SHAPE),
        None if proven is None else refutes(guesses, proven, confidence),
    )


def _find_largest(rejects: Callable[[float], bool], most: float) -> float:
    """The largest refuted value below `most`; if a value is refuted, so are all smaller ones."""
    if not rejects(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < most and rejects(high):
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
    return low


# Weights are rounded to this many units in total. The attacker may choose any weights, so rounding is valid.
_UNITS = 2000
_STEP = 0.01


def can_weight(canaries: int, *, delta: float, confidence: float) -> bool:
    """Whether delta leaves enough of the error probability. Depends on public numbers only."""
    return canaries * delta <= 1 - confidence


def weighted_epsilon(log_odds: Any, included: Any, *, delta: float, confidence: float) -> float:
    """A lower bound on epsilon at `delta`: the last value of a fixed grid before the first that is not refuted.

    `log_odds` are positive if a canary seems to be `included`. Wrong ones cost power, not validity.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.integers(0, 2, 1000).astype(bool)
    >>> scores = rng.normal(size=1000) + coins  # a Gaussian shift of 1, with log odds s - 1/2
    >>> 1 < weighted_epsilon(scores - 0.5, coins, delta=1e-5, confidence=0.99) < 4.38
    True
    """
    steps = 0
    # Each value is a separate test. The result is wrong only if the first value above the truth is refuted.
    while weighted_p_value(log_odds, included, steps * _STEP, delta) < 1 - confidence:
        steps += 1
    return max(steps - 1, 0) * _STEP


def weighted_p_value(log_odds: Any, included: Any, epsilon: float, delta: float) -> float:
    """The largest probability of right guesses of at least this weight under (epsilon, delta)-privacy."""
    odds = _validate.reals("log_odds", log_odds, infinite=True).ravel()
    coins = np.asarray(included, dtype=bool).ravel()
    if odds.size != coins.size or odds.size < 2:
        raise InvalidArgument(
            f"log_odds and included must have one entry per canary, for two or more. Got {odds.size} and {coins.size}."
        )
    # Among m canaries odds are capped at m to one, so that no guess outweighs all others.
    most = math.log(odds.size)
    odds = np.clip(odds, -most, most)
    trust = np.maximum(np.abs(odds) - epsilon, 0.0)
    total = float(trust.sum())
    if total == 0:
        return 1.0
    units = np.rint(trust * (_UNITS / total)).astype(np.int64)
    weight = int(units[(odds > 0) == coins].sum())
    by_luck = float(_find_weight_distribution(units[units > 0], 1 / (1 + math.exp(-epsilon)))[weight:].sum())
    return min(by_luck + odds.size * delta / (1 + math.exp(epsilon)), 1.0)


def _find_weight_distribution(units: NDArray[np.int64], share: float) -> Floats:
    """The exact distribution of the total weight of independent coins with probability `share`."""
    found = np.zeros(int(units.sum()) + 1)
    found[0] = 1.0
    reach = 0
    for unit in units.tolist():
        reach += unit
        up = share * found[: reach - unit + 1]
        found[: reach + 1] *= 1 - share
        found[unit : reach + 1] += up
    return found
