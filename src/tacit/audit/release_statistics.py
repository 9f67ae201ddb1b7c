"""Statistics of the release test: lots, noise and composition against what was accounted for. No torch.

Every test here is exact or has a proven bound, so the probability of a false alarm is at most the `alpha` it is given.
A test that makes several comparisons divides `alpha` among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special, stats

from tacit.accounting.curve import PrivacyCurve

Floats = NDArray[np.float64]
# Random numbers that the simulation of a composition draws, at most and for each of the simulated outcomes.
_DRAWS, _OUTCOMES = 2**23, 4096
# How finely noise is rounded to its grid at least, in standard deviations: half a cell shifts a distribution function.
_CELL = 2.0**-6


def check_lots(lots: Sequence[NDArray[np.int64]], n: int, rate: float, alpha: float) -> list[str]:
    """Whether these lots, each a list of numbers below `n`, are independent Poisson samples at this rate."""
    repeated = sum(len(lot) - len(np.unique(lot)) for lot in lots)
    if repeated:
        return [f"{repeated} times an example was in one lot twice"]
    sizes, each = np.array([len(lot) for lot in lots]), alpha / 5
    found = []
    if _is_unlikely(int(sizes.sum()), n * len(lots), rate, each):
        found.append(f"lots hold {sizes.mean():.5g} of {n:,} examples on average; rate {rate:.5g} was accounted for")
    if _are_too_even(sizes, n, rate, each):
        found.append(f"the sizes of lots differ too little for Poisson samples: {sizes.min()} to {sizes.max()}")
    pairs = list(pairwise(lots))
    for some in (pairs[::2], pairs[1::2]):
        # Disjoint pairs are independent, and an example is in both lots of one with probability rate^2.
        shared = sum(len(np.intersect1d(*pair, assume_unique=True)) for pair in some)
        if some and _is_unlikely(shared, n * len(some), rate**2, each):
            text = f"consecutive lots share {shared} examples, {n * len(some) * rate**2:.4g} are expected"
            found.append(text)
    every = list(combinations(lots, 2))
    shared = max((len(np.intersect1d(*pair, assume_unique=True)) for pair in every), default=0)
    if every and len(every) * stats.binom.sf(shared - 1, n, rate**2) < each:
        found.append(f"two lots share {shared} of their examples: lots repeat")
    return found


def check_groups(lots: Sequence[NDArray[np.int64]], groups: int) -> list[str]:
    """Whether every example is in lots of one group only, where groups take turns."""
    whose: dict[int, int] = {}
    for step, lot in enumerate(lots):
        for example in lot.tolist():
            if whose.setdefault(example, step % groups) != step % groups:
                return [f"an example was in lots of two groups, and was accounted for in one of {groups} only"]
    return []


def _is_unlikely(count: int, trials: int, probability: float, alpha: float) -> bool:
    tails = stats.binom.cdf(count, trials, probability), stats.binom.sf(count - 1, trials, probability)
    return bool(2 * min(tails) < alpha)


def _are_too_even(sizes: NDArray[np.int64], n: int, rate: float, alpha: float) -> bool:
    """Whether all sizes are nearer to the expected one than those of so many independent lots would be."""
    middle = n * rate
    width = float(np.abs(sizes - middle).max())
    inside = stats.binom.cdf(math.floor(middle + width), n, rate)
    inside -= stats.binom.cdf(math.ceil(middle - width) - 1, n, rate)
    return bool(inside ** len(sizes) < alpha)


def check_noise(noise: Sequence[dict[str, Floats]], stds: Sequence[float], alpha: float) -> list[str]:
    """Whether the noise of several steps is normal with these standard deviations, and independent.

    `noise` has the noise of every parameter, by name, for each step.
    """
    scaled = [{name: part / std for name, part in step.items()} for step, std in zip(noise, stds, strict=True)]
    each, tests = alpha / 4, sum(map(len, scaled))
    found = []
    for name in scaled[0] if scaled else ():
        for step in scaled:
            square, size = float(step[name].dot(step[name])), step[name].size
            if 2 * min(stats.chi2.cdf(square, size), stats.chi2.sf(square, size)) < each / tests:
                ratio = math.sqrt(square / size)
                found.append(f"the noise on {name!r} is {ratio:.4g} times as large as was accounted for")
                break
    whole = np.concatenate([np.concatenate(list(step.values())) for step in scaled])
    total, size = float(whole.dot(whole)), whole.size
    if not found and 2 * min(stats.chi2.cdf(total, size), stats.chi2.sf(total, size)) < each:
        found.append(f"the noise is {math.sqrt(total / size):.4g} times as large as was accounted for")
    distance = stats.kstest(whole, "norm").statistic
    # Dvoretzky, Kiefer, Wolfowitz 1956, with the constant of Massart 1990.
    if not found and distance > math.sqrt(math.log(2 / each) / (2 * size)) + _CELL * stats.norm.pdf(0):
        found.append(f"the noise is not normal: its distribution function is off by {distance:.3g}")
    return found or _find_repetition(whole, len(scaled), each)


def _find_repetition(whole: Floats, steps: int, alpha: float) -> list[str]:
    """Whether the noise agrees with itself some draws later, or that of two steps agrees."""
    size = len(whole)
    # Laurent, Massart 2000, lemma 1, for symmetric matrices: of a shift, with norm at most 1 and square norm at most
    # n/2; of two steps, with norm 1/2 and square norm d/2.
    products = np.abs(signal.correlate(whole, whole, method="fft")[size:])
    nats = math.log(4 * size / alpha)
    if len(products) and products.max() > math.sqrt(2 * size * nats) + 2 * nats:
        return [f"the noise repeats: numbers that are {products.argmax() + 1:,} draws apart agree"]
    rows = whole.reshape(steps, -1)
    products, nats = np.abs(np.triu(rows @ rows.T, 1)), math.log(2 * steps**2 / alpha)
    if products.max() > math.sqrt(2 * rows.shape[1] * nats) + nats:
        first, second = np.unravel_index(products.argmax(), products.shape)
        return [f"the noise repeats: that of step {second} agrees with that of step {first}"]
    return []


def check_grid(values: Floats, std: float) -> list[str]:
    """Whether released sums are multiples of the public grid."""
    grid = 2.0 ** (math.floor(math.log2(std)) - 6)
    units = values / grid
    # Single precision has 24 bits: beyond 2^16 units, it cannot show a twentieth of one.
    units = units[np.abs(units) < 2**16]
    if len(units) < 40 or np.median(np.abs(units - np.rint(units))) < 0.05:
        return []
    return ["released numbers are not rounded to the public grid, so low-order bits may show the sum"]


def check_composition(
    curve: PrivacyCurve, multiplier: float, rate: float, steps: int, alpha: float, seed: int = 0
) -> list[str]:
    """Whether a curve is above what simulated privacy losses of all steps show.

    The loss of a step is drawn with the example in the data; outcomes are independent, and bounded by Hoeffding 1963.
    """
    outcomes = max(min(_OUTCOMES, _DRAWS // steps), 256)
    rng = np.random.default_rng(seed)
    losses = np.zeros(outcomes)
    for _ in range(steps):
        draw = rng.standard_normal(outcomes) + (rng.random(outcomes) < rate) / multiplier
        exponent = draw / multiplier - 0.5 / multiplier**2
        losses += exponent if rate >= 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + exponent)
    asked = np.unique(np.clip(np.quantile(losses, [0.05, 0.2, 0.4, 0.6, 0.8]), 0.0, None))
    error = math.sqrt(math.log(len(asked) / alpha) / (2 * outcomes))
    for epsilon in asked:
        shown = float(-special.expm1(np.minimum(epsilon - losses, 0.0)).mean()) - error
        stated = curve.delta(float(epsilon))
        if stated < shown:
            return [
                f"{steps:,} simulated steps need a delta of at least {shown:.3g} at epsilon {epsilon:.3g}, and the "
                f"accountant says {stated:.3g}"
            ]
    return []
