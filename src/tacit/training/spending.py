"""An odometer: the cost of adaptive releases as they were made, computed as if planned. Not a guarantee."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from tacit.accounting.densities import Floats
from tacit.accounting.events import Composed, EpsilonDelta, Event, Gaussian, Repeated, Sampled
from tacit.errors import NotAccountable

# The moments tried, and how far beyond the outermost peak, in standard deviations, they are integrated.
_MOMENTS = np.exp(np.linspace(math.log(1e-5), math.log(300.0), 160))
_FAR, _STEP, _LONGEST = 12.0, 0.05, 20_000


def epsilon_spent(events: Iterable[Event], delta: float) -> float:
    """The epsilon of Gaussian releases, on Poisson lots or not, as if they had been planned like this.

    Infinite where a release had no noise at all, or on a lot too little for its moments to be within reach.

    >>> round(epsilon_spent([Gaussian(1.1).sampled(0.01)] * 100, 1e-5), 2)
    0.97
    """
    logs = np.zeros(_MOMENTS.size)
    for (multiplier, rate), times in Counter(leaf for event in events for leaf in _iterate_leaves(event)).items():
        logs = logs + times * (_find_moments(multiplier, rate) if multiplier > 0 else np.full_like(logs, math.inf))
    if not logs.any():
        return 0.0
    # Canonne, Kamath, Steinke 2020, proposition 12.
    c = _MOMENTS
    epsilons = (logs - math.log(delta) - np.log1p(c)) / c + np.log(c / (1 + c))
    return max(float(np.min(epsilons)), 0.0)


def largest_mu(events: Iterable[Event]) -> float:
    """The largest of what one example can move in a release, in standard deviations of its noise.

    >>> largest_mu([Gaussian(4.0).sampled(0.1), Gaussian(0.5).sampled(0.1) + Gaussian(100.0)])
    2.0
    """
    least = min((multiplier for event in events for multiplier, _ in _iterate_leaves(event)), default=math.inf)
    return 1 / least if least > 0 else math.inf


def _iterate_leaves(event: Event, rate: float = 1.0) -> Iterator[tuple[float, float]]:
    """(multiplier, rate) of everything inside; a multiplier of zero stands for no noise."""
    match event:
        case Gaussian():
            yield event.multiplier, rate
        case EpsilonDelta():
            yield (0.0, rate) if event.delta > 0 or event.epsilon > 0 else (math.inf, rate)
        case Sampled():
            yield from _iterate_leaves(event.inside, rate * event.rate)
        case Composed():
            for part in event.parts:
                yield from _iterate_leaves(part, rate)
        case Repeated():
            yield from [leaf for leaf in _iterate_leaves(event.inside, rate) for _ in range(event.times)]
        case _:
            raise NotAccountable(f"An odometer reads Gaussian releases only. Got {type(event).__name__}.")


@lru_cache(maxsize=4096)
def _find_moments(multiplier: float, rate: float) -> Floats:
    """log E[e^{c loss}] for every moment c; infinite where it is out of reach."""
    c, shift = _MOMENTS, 1 / multiplier
    if rate == 1:
        return np.asarray(c * (c + 1) * shift**2 / 2)
    result = np.full(c.size, math.inf)
    for index, power in enumerate(c):
        end = shift * (1 + power) + _FAR
        if (end + _FAR) / _STEP > _LONGEST:
            break
        x = np.arange(-_FAR, end, _STEP)
        ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + shift * x - shift**2 / 2)
        logs = (1 + power) * ratio - x**2 / 2
        top = float(logs.max())
        result[index] = top + math.log(float(np.exp(logs - top).sum()) * _STEP / math.sqrt(2 * math.pi))
    return np.asarray(np.maximum(result, 0.0))
