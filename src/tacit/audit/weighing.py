"""One training run, many canaries, and guesses that count for as much as the attacker trusts them.

Counting right guesses treats the surest one like the hundredth. Where the score of a canary is the log of how much
likelier the run is with it than without, the attacker knows how sure to be, and the test of an epsilon that loses
least gives each guess the weight by which its own odds exceed e^epsilon, and no weight where they do not.

Why it holds. Given everything released and the coins before it, a coin comes out as guessed with a probability of at
most p + g, where p = e^epsilon / (1 + e^epsilon) and g is what delta allows beyond that. Over coins and releases g is
delta / (1 + e^epsilon) at most, on average: (1 - p) / 2 times the sum of the two deltas between a coin's worlds. Were
there no g, the weight of all right guesses would be, whatever was released, no larger than the same weights on
independent coins that come up with probability p. Replacing these coins by the true ones, one after the other, changes
the probability of any tail by no more than the sum of all g: canaries * delta / (1 + e^epsilon). Weights and guesses
may depend on all that was released, since the argument is made for each release by itself; not on coins. Weighted
guesses without a delta: Steinke, Nasr and Jagielski 2023, proposition 5.1. Numpy only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import _validate
from tacit.audit.statistics import Floats
from tacit.errors import InvalidArgument

# Weights are rounded to so many units in all: they are the attacker's own choice, so any rounding is a choice too.
_UNITS = 2000
_STEP = 0.01


def is_worth_weighing(canaries: int, *, delta: float, confidence: float) -> bool:
    """Whether what delta takes from the allowance leaves enough of it: known before anything is released."""
    return canaries * delta <= 1 - confidence


def weighed_p_value(log_odds: Any, included: Any, epsilon: float, delta: float) -> float:
    """The largest probability of right guesses of so much weight against anything (epsilon, delta)-private."""
    odds, coins = _checked(log_odds, included)
    return _p_value(odds, coins, epsilon, delta)


def weighed_epsilon(log_odds: Any, included: Any, *, delta: float, confidence: float) -> float:
    """A lower bound on epsilon at `delta`: the last of a fixed row of values before the first that is not refuted.

    `log_odds` are positive where a canary seems to have been `included`. Wrong ones cost strength and nothing else.

    >>> rng = np.random.default_rng(0)
    >>> coins = rng.integers(0, 2, 1000).astype(bool)
    >>> scores = rng.normal(size=1000) + coins  # a Gaussian shift of 1, of which the odds are s - 1/2
    >>> 1 < weighed_epsilon(scores - 0.5, coins, delta=1e-5, confidence=0.99) < 4.38
    True
    """
    odds, coins = _checked(log_odds, included)
    steps = 0
    # Each value is a test of its own. To be misled, one has to refute the first value above the truth, whichever it is.
    while _p_value(odds, coins, steps * _STEP, delta) < 1 - confidence:
        steps += 1
    return max(steps - 1, 0) * _STEP


def _checked(log_odds: Any, included: Any) -> tuple[Floats, NDArray[np.bool_]]:
    odds = _validate.reals("log_odds", log_odds, infinite=True).ravel()
    coins = np.asarray(included, dtype=bool).ravel()
    if odds.size != coins.size or odds.size < 2:
        raise InvalidArgument(
            f"log_odds and included must have one entry per canary, for two or more. Got {odds.size} and {coins.size}."
        )
    # Among m canaries no guess is trusted beyond odds of m to one: a single one would outweigh all others.
    most = math.log(odds.size)
    return np.clip(odds, -most, most), coins


def _p_value(odds: Floats, coins: NDArray[np.bool_], epsilon: float, delta: float) -> float:
    trust = np.maximum(np.abs(odds) - epsilon, 0.0)
    total = float(trust.sum())
    if total == 0:
        return 1.0
    units = np.rint(trust * (_UNITS / total)).astype(np.int64)
    weight = int(units[(odds > 0) == coins].sum())
    by_luck = float(_weights_of_coins(units[units > 0], 1 / (1 + math.exp(-epsilon)))[weight:].sum())
    return min(by_luck + odds.size * delta / (1 + math.exp(epsilon)), 1.0)


def _weights_of_coins(units: NDArray[np.int64], share: float) -> Floats:
    """The distribution of the weight of independent coins that come up with probability `share`, exactly."""
    found = np.zeros(int(units.sum()) + 1)
    found[0] = 1.0
    reach = 0
    for unit in units.tolist():
        reach += unit
        up = share * found[: reach - unit + 1]
        found[: reach + 1] *= 1 - share
        found[unit : reach + 1] += up
    return found
