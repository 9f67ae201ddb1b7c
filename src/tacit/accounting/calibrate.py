"""A budget, and the least noise, the most steps or the largest lots within it: never over it, and nearly optimal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.curve import accountant_named, curve
from tacit.accounting.events import Adjacency, Event, Gaussian
from tacit.accounting.pld import LossProfile
from tacit.errors import Asymptotic, NotAchievable

_PRECISION = 2e-5
_LEAST_MULTIPLIER, _MOST_MULTIPLIER = 1e-3, 1e9
# Above it nothing is protected anyway, and a search for the last bit of noise would take minutes.
MOST_EPSILON = 1e6


@dataclass(frozen=True)
class Budget:
    """The largest (epsilon, delta) that training may cost.

    >>> Budget(epsilon=3, delta=1e-5)
    Budget(epsilon=3.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive="epsilon", open_unit="delta")

    def allows(self, event: Event) -> bool:
        """Whether the event is certified to stay within the budget; `NotProven` if it has no proof."""
        found = curve(event)
        lower, upper = found.delta_bounds(self.epsilon)
        # Each condition certifies the pair; rounding may make one of them fail.
        return upper <= self.delta or (lower <= self.delta and found.epsilon(self.delta) <= self.epsilon)


def calibrate(
    event_of: Callable[[float], Event],
    *,
    epsilon: float,
    delta: float,
    guess: float = 1.0,
    by: str = "pld",
    allow_asymptotic: bool = False,
) -> float:
    """The smallest x for which `event_of(x)` stays within (epsilon, delta), if more x means more privacy.

    Certified by the accountant's upper bound. At most 0.01 % above the optimum where bounds are as tight as for
    Poisson-sampled Gaussians.
    """
    epsilon = _validate.positive("epsilon", epsilon)
    delta = _validate.open_unit("delta", delta)
    _refuse_asymptotic(by, allow_asymptotic)

    def spent(x: float) -> float:
        return curve(event_of(x), by).epsilon(delta)

    guess = _validate.positive("guess", guess)
    if by == "pld":
        found = _by_delta(event_of, epsilon, delta, guess)
        if found is not None:
            return found
    low, high = _bracket(spent, epsilon, guess)
    return _narrow(spent, epsilon, low, high)


def _by_delta(event_of: Callable[[float], Event], epsilon: float, delta: float, guess: float) -> float | None:
    """A secant search on log delta at the wanted epsilon, which avoids searching for epsilon.

    It uses one direction, which is usually the worse one; the answer is then certified in both. None if that fails or
    does not converge soon: the slower search always does.
    """
    steps = LossProfile.of(event_of(guess)).steps
    if steps.adjacency is Adjacency.REPLACE_ONE and steps.counts:
        # The bound over two hops has no direction, and is the better one on Poisson lots.
        return None
    target = math.log(delta)

    def excess(log_x: float) -> float:
        profile = LossProfile.of(event_of(math.exp(log_x)))
        bound = 1.0 if profile.is_hopeless() else profile.directions[0].delta(epsilon).upper
        return math.log(bound) - target if bound > 0 else -math.inf

    here = math.log(min(max(guess, _LEAST_MULTIPLIER), _MOST_MULTIPLIER))
    there = here + 0.02
    at_here, at_there = excess(here), excess(there)
    for _ in range(12):
        if not (math.isfinite(at_here) and math.isfinite(at_there)):
            return None
        slope = (at_there - at_here) / (there - here)
        if slope >= 0:
            return None
        if at_there <= 0 and at_there / slope <= _PRECISION:
            x = math.exp(there)
            return x if LossProfile.of(event_of(x)).epsilon(delta).upper <= epsilon else None
        step = max(min(-at_there / slope + 0.2 * _PRECISION, 0.5), -0.5)
        here, at_here, there = there, at_there, there + step
        if there < math.log(_LEAST_MULTIPLIER):
            return None
        at_there = excess(there)
    return None


def multiplier_for(
    *,
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    by: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    allow_asymptotic: bool = False,
) -> float:
    """The smallest noise multiplier with which `steps` Poisson-sampled Gaussian steps stay within (epsilon, delta).

    >>> round(multiplier_for(epsilon=3, delta=1e-5, rate=256 / 60_000, steps=14_062), 3)
    0.968
    """
    rate, steps = _validate.rate("rate", rate), _validate.count("steps", steps)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    if rate == 1 and by == "pld":
        return math.sqrt(steps) / float(gdp.mu(epsilon, delta)) * (1 + 1e-11)
    epsilon = min(epsilon, MOST_EPSILON)
    mu = float(gdp.mu(epsilon, delta))
    # Many steps contribute to the loss, or, at low rates, one lot with the example: each guess alone is too small.
    by_many = 1 / math.sqrt(math.log1p((mu / rate) ** 2 / steps))
    guess = max(by_many, _multiplier_for_one_lot(epsilon, delta, rate, steps))
    return calibrate(
        lambda multiplier: Gaussian(multiplier, adjacency).sampled(rate) * steps,
        epsilon=epsilon,
        delta=delta,
        guess=guess,
        by=by,
        allow_asymptotic=allow_asymptotic,
    )


def _multiplier_for_one_lot(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The multiplier with which the deltas of the single steps at `epsilon` add up to `delta`, by bisection."""
    threshold = epsilon - math.log(rate) + math.log(-math.expm1(-epsilon) + rate * math.exp(-epsilon))
    low, high = math.log(_LEAST_MULTIPLIER), math.log(_MOST_MULTIPLIER)
    while high - low > 1e-3:
        middle = (low + high) / 2
        is_enough = steps * rate * float(gdp.delta(threshold, math.exp(-middle))) <= delta
        low, high = (low, middle) if is_enough else (middle, high)
    return math.exp(high)


def steps_for(
    *,
    epsilon: float,
    delta: float,
    rate: float,
    multiplier: float,
    by: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    allow_asymptotic: bool = False,
) -> int:
    """The largest number of Poisson-sampled Gaussian steps within (epsilon, delta).

    >>> steps_for(epsilon=3, delta=1e-5, rate=256 / 60_000, multiplier=1.1)
    21364
    """
    rate, multiplier = _validate.rate("rate", rate), _validate.positive("multiplier", multiplier)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    _refuse_asymptotic(by, allow_asymptotic)
    step = Gaussian(multiplier, adjacency).sampled(rate)

    def spent(steps: float) -> float:
        return curve(step * int(steps), by).epsilon(delta)

    if spent(1) > epsilon:
        raise NotAchievable(
            f"Not even one step fits: with multiplier {multiplier:g} and rate {rate:g} it costs epsilon "
            f"{spent(1):.4g} at delta {delta:g}; the budget is {epsilon:g}. Raise the multiplier, or lower the rate."
        )
    guess = float(gdp.mu(epsilon, delta)) ** 2 / float(gdp.clt_mu(multiplier, rate, 1)) ** 2
    low, high = 1, max(int(min(guess, 1e15)), 2)
    while spent(high) <= epsilon:
        low, high = high, 2 * high
        if high > 10**15:
            raise NotAchievable(
                f"More than 10^15 steps fit into epsilon {epsilon:g} at delta {delta:g} with multiplier {multiplier:g} "
                f"and rate {rate:g}. Lower the multiplier."
            )
    return int(_last_within(spent, epsilon, low, high))


def lot_size_for(
    *,
    epsilon: float,
    delta: float,
    population: int,
    steps: int,
    multiplier: float,
    by: str = "pld",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    allow_asymptotic: bool = False,
) -> int:
    """The largest expected lot size within (epsilon, delta), out of a public `population`.

    >>> lot_size_for(epsilon=3, delta=1e-5, population=60_000, steps=14_062, multiplier=1.1)
    314
    """
    population, steps = _validate.count("population", population), _validate.count("steps", steps)
    multiplier = _validate.positive("multiplier", multiplier)
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    _refuse_asymptotic(by, allow_asymptotic)
    noise = Gaussian(multiplier, adjacency)

    def spent(lot_size: float) -> float:
        return curve(noise.sampled(int(lot_size) / population) * steps, by).epsilon(delta)

    if spent(population) <= epsilon:
        return population
    if spent(1) > epsilon:
        raise NotAchievable(
            f"Not even lots of one example fit: {steps} steps with multiplier {multiplier:g} cost epsilon "
            f"{spent(1):.4g} at delta {delta:g}; the budget is {epsilon:g}. Raise the multiplier, or take fewer steps."
        )
    guess = float(gdp.mu(epsilon, delta)) / float(gdp.clt_mu(multiplier, 1.0, steps)) * population
    low, high = 1, population
    for probe in (int(0.95 * guess), int(1.05 * guess) + 1):
        if low < probe < high:
            low, high = (probe, high) if spent(probe) <= epsilon else (low, probe)
    return int(_last_within(spent, epsilon, low, high))


def _refuse_asymptotic(by: str, allowed: bool) -> None:
    if accountant_named(by).is_asymptotic and not allowed:
        raise Asymptotic(
            f"The accountant {by!r} is an approximation, so a budget calibrated by it can be exceeded. Use by='pld', "
            "or pass allow_asymptotic=True if the budget is not a promise."
        )


def _bracket(spent: Callable[[float], float], epsilon: float, guess: float) -> tuple[float, float]:
    """An x that is too small and one that is enough."""
    low = high = min(max(guess, _LEAST_MULTIPLIER), _MOST_MULTIPLIER)
    factor = 1.05
    while spent(high) > epsilon:
        if high >= _MOST_MULTIPLIER:
            raise NotAchievable(
                f"No amount of noise brings this event down to epsilon {epsilon:g}: the part that does not depend on "
                "the noise already costs more. Raise the budget, or drop that part."
            )
        low, high, factor = high, high * factor, factor**2
    if high > low:
        return low, high
    factor = 1.05
    while spent(low) <= epsilon:
        if low <= _LEAST_MULTIPLIER:
            return low, low
        low, high, factor = low / factor, low, factor**2
    return low, high


def _narrow(spent: Callable[[float], float], epsilon: float, low: float, high: float) -> float:
    """False position on log epsilon over log x (nearly straight), always keeping an x that is enough."""
    if low == high:
        return high
    over, under = _gap(spent, epsilon, low), _gap(spent, epsilon, high)
    for _ in range(60):
        if high / low - 1 <= _PRECISION:
            break
        share = over / (over - under) if math.isfinite(over) and math.isfinite(under) else 0.5
        # Aim slightly above, so that the bracket shrinks from above.
        position = min(max(share, 0.02), 0.98)
        x = math.exp(math.log(low) + position * math.log(high / low)) * (1 + 0.3 * _PRECISION)
        x = min(max(x, low * (1 + 0.2 * _PRECISION)), high * (1 - 0.2 * _PRECISION))
        gap = _gap(spent, epsilon, x)
        if gap > 0:
            low, over = x, gap
            # Illinois: halve the weight of an end that stays, or the other end converges slowly.
            under = under / 2
        else:
            high, under = x, gap
            over = over / 2
            if gap > -_PRECISION / 4:
                break
    return high


def _gap(spent: Callable[[float], float], epsilon: float, x: float) -> float:
    value = spent(x)
    return math.log(value / epsilon) if value > 0 else -math.inf


def _last_within(spent: Callable[[float], float], epsilon: float, low: int, high: int) -> int:
    """The largest integer in [low, high) that stays within epsilon; low does, high does not."""
    over, under = _gap(spent, epsilon, high), _gap(spent, epsilon, low)
    turn = 0
    while high - low > 1:
        share = -under / (over - under) if math.isfinite(under) and math.isfinite(over) and turn % 3 != 2 else 0.5
        middle = min(max(round(low + share * (high - low)), low + 1), high - 1)
        gap = _gap(spent, epsilon, middle)
        if gap <= 0:
            low, under = middle, gap
        else:
            high, over = middle, gap
        turn += 1
    return low
