"""Gaussian differential privacy: closed forms of its trade-off curves, accurate in the far tails.

A mechanism is mu-GDP if finding out whether an example was there is at least as hard as telling N(0, 1)
from N(mu, 1) by one draw (Dong, Roth, Su 2019). A trade-off function maps an attacker's false-alarm
probability alpha to the smallest probability of a miss: the higher it is, the better the privacy, and
1 - alpha is perfect. Everything here is exact up to rounding, in either direction.
"""

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, ndtr, ndtri

from tacit import _validate
from tacit._validate import Array

Values = TypeVar("Values", float, Array)
"""A number or an array; the result has the same shape."""

_BITS_OF_ONE = np.float64(1.0).view(np.int64)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)


def delta(epsilon: Values, mu: float) -> Values:
    """Smallest delta for which mu-GDP implies (epsilon, delta)-DP; epsilon may be negative.

    Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), without the cancellation. Zero only where it
    underflows; `log_delta` does not.

    >>> f"{delta(1.0, mu=0.5):.10f}"
    '0.0068295950'
    """
    return match_shape(np.exp(_log_delta(epsilon, mu)), epsilon)


def log_delta(epsilon: Values, mu: float) -> Values:
    """Natural logarithm of `delta`, also where delta itself is far below the smallest float.

    >>> log_delta(1.0, mu=0.01)
    -5014.2347...
    """
    return match_shape(_log_delta(epsilon, mu), epsilon)


def epsilon(delta: float, mu: float) -> float:
    """Smallest epsilon of at least 0 for which mu-GDP implies (epsilon, delta)-DP.

    >>> f"{epsilon(1e-5, mu=1.0):.7f}"
    '4.3771781'
    """
    delta = _validate.open_unit("delta", delta)
    mu = _validate.non_negative("mu", mu, infinite=True)
    if mu == 0 or math.isinf(mu):
        return mu
    goal = math.log(delta)
    if log_delta(0.0, mu) <= goal:
        return 0.0
    # Without its second, negative term delta would be reached here.
    enough = mu * (mu / 2 - float(ndtri(delta)))
    return find_root(lambda e: log_delta(e, mu) - goal, 0.0, enough * (1 + 1e-9))


def mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta)-DP: 1/mu calibrates a single Gaussian release.

    >>> f"{mu(1.0, delta=1e-5):.8f}"
    '0.26805112'
    """
    epsilon = _validate.non_negative("epsilon", epsilon, infinite=True)
    delta = _validate.open_unit("delta", delta)
    if math.isinf(epsilon):
        return math.inf
    at_zero = 2 * math.sqrt(2) * float(erfinv(delta))
    if epsilon == 0:
        return at_zero
    goal = math.log(delta)
    # Without its second, negative term delta would be reached where mu^2/2 + tail mu = epsilon.
    tail = -float(ndtri(delta))
    reach = math.sqrt(tail * tail + 2 * epsilon)
    too_small = 2 * epsilon / (reach + tail) if tail > 0 else reach - tail
    low = max(at_zero, too_small) * (1 - 1e-9)
    high = 2 * low
    while log_delta(epsilon, high) < goal:
        low, high = high, 2 * high
    return find_root(lambda m: log_delta(epsilon, m) - goal, low, high)


def compose(*mus: float) -> float:
    """The mu of several GDP releases together, also where each depends on the ones before.

    >>> compose(0.3, 0.4)
    0.5
    """
    return math.hypot(*(_validate.non_negative("mu", m, infinite=True) for m in mus))


def clt_mu(multiplier: float, rate: float, steps: int) -> float:
    """The mu to which Poisson-sampled Gaussian steps tend: asymptotic, so no guarantee.

    In most published settings the exact epsilon is larger. Infinite where it overflows (multiplier below
    0.03). rate * sqrt(steps * (e^(1/multiplier^2) - 1)): Bu, Dong, Long, Su 2019, theorem 5, less a misprint.

    >>> f"{clt_mu(1.1, 256 / 60_000, 14_062):.4f}"
    '0.5736'
    """
    multiplier = _validate.positive("multiplier", multiplier)
    rate = _validate.rate("rate", rate)
    steps = _validate.count("steps", steps)
    half = 0.5 / multiplier / multiplier
    with np.errstate(over="ignore"):
        return float(rate * math.sqrt(steps) * np.exp(half) * math.sqrt(-math.expm1(-2 * half)))


def smallest_error_sum(mu: float) -> float:
    """Smallest sum of false-alarm and miss probability under mu-GDP; at 1 an attacker can only guess.

    >>> f"{smallest_error_sum(0.5736):.8f}"
    '0.77426546'
    """
    return 2 * float(ndtr(-_validate.non_negative("mu", mu, infinite=True) / 2))


def tradeoff(alpha: Values, mu: float) -> Values:
    """Smallest miss probability under mu-GDP: G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu).

    >>> f"{tradeoff(0.05, mu=1.0):.8f}"
    '0.74048898'
    """
    alphas = _validate.units("alpha", alpha)
    mu = _validate.non_negative("mu", mu, infinite=True)
    if mu == 0:
        return match_shape(1 - alphas, alpha)
    if math.isinf(mu):
        return match_shape(np.zeros_like(alphas), alpha)
    return match_shape(ndtr(-ndtri(alphas) - mu), alpha)


def epsilon_delta_tradeoff(alpha: Values, epsilon: float, delta: float) -> Values:
    """Smallest miss probability under (epsilon, delta)-DP (Wasserman, Zhou 2010); delta may be 0.

    >>> f"{epsilon_delta_tradeoff(0.05, epsilon=1.0, delta=1e-5):.8f}"
    '0.86407591'
    """
    alphas = _validate.units("alpha", alpha)
    epsilon = _validate.non_negative("epsilon", epsilon, infinite=True)
    delta = _validate.unit("delta", delta)
    if math.isinf(epsilon):
        return match_shape(np.zeros_like(alphas), alpha)
    # e^epsilon may overflow while e^epsilon * alpha does not; beyond 1400 both bounds are 0 for every float.
    root = math.exp(min(epsilon, 1400.0) / 2)
    with np.errstate(over="ignore"):
        steep = 1 - delta - alphas * root * root
    shallow = math.exp(-epsilon) * (1 - delta - alphas)
    return match_shape(np.maximum(0.0, np.maximum(steep, shallow)), alpha)


def subsampled_gaussian_tradeoff(alpha: Values, mu: float, rate: float) -> Values:
    """Smallest miss probability after one Poisson-sampled mu-GDP Gaussian release, over both directions.

    C_p(G_mu) = min{f_p, f_p^-1}**: f_p, a line of slope -1, and f_p^-1 by inverting a mixture's distribution
    function. A guarantee for one release; several compose by `tacit.accounting.curve`.

    >>> f"{subsampled_gaussian_tradeoff(0.05, mu=1.0, rate=0.01):.8f}"
    '0.94790489'
    """
    alphas = np.atleast_1d(_validate.units("alpha", alpha))
    mu = _validate.non_negative("mu", mu, infinite=True)
    rate = _validate.rate("rate", rate)
    if math.isinf(mu):
        return epsilon_delta_tradeoff(alpha, 0.0, rate)
    # The slope of G_mu, and so that of f_p for every rate, is -1 here.
    knot = float(ndtr(-mu / 2))
    mirror = rate * knot + (1 - rate) * float(ndtr(mu / 2))
    left, right = alphas <= knot, alphas > mirror
    # The line of slope -1, twice: each form keeps its digits on one side.
    line = np.where(alphas < 0.5, mirror + knot - alphas, 1 - alphas - rate * math.erf(mu / math.sqrt(8)))
    miss = np.maximum(knot, line)
    miss[left] = rate * tradeoff(alphas[left], mu) + (1 - rate) * (1 - alphas[left])
    miss[right] = _sampled_gaussian_inverse(alphas[right], mu, rate)
    return match_shape(miss, alpha)


def _sampled_gaussian_inverse(alpha: Array, mu: float, rate: float) -> Array:
    def is_enough(t: Array) -> NDArray[np.bool_]:
        quantile = ndtri(t)
        miss = (1 - rate) * (1 - t) + rate * ndtr(-quantile - mu)
        hit = (1 - rate) * t + rate * ndtr(quantile + mu)
        # Compare the smaller of the two probabilities: the other one has lost its digits.
        enough: NDArray[np.bool_] = np.where(alpha < 0.5, miss <= alpha, hit >= 1 - alpha)
        return enough

    return find_smallest(is_enough, alpha.shape)


def _log_delta(epsilon: float | Array, mu: float) -> Array:
    epsilons = _validate.reals("epsilon", epsilon, infinite=True)
    mu = _validate.non_negative("mu", mu, infinite=True)
    size = np.abs(epsilons)
    with np.errstate(all="ignore"):
        if math.isinf(mu):
            tail = np.zeros_like(size)
        elif mu == 0:
            tail = np.full_like(size, -math.inf)
        else:
            tail = _log_tail(size / mu - mu / 2, mu)
        # delta(-epsilon) = 1 - e^-epsilon + e^-epsilon delta(epsilon)
        mirrored = np.log(-np.expm1(-size) + np.exp(tail - size))
    return np.where(epsilons >= 0, tail, mirrored)


def _log_tail(a: Array, mu: float) -> Array:
    """log(Phi(-a) - e^epsilon Phi(-a - mu)), where epsilon = mu (a + mu/2) >= 0.

    e^epsilon phi(a + mu) = phi(a), so this is phi(a) (R(a) - R(a + mu)) with Mills' ratio R = Phi(-t)/phi(t).
    Where R(a) and R(a + mu) are close, their difference is the integral of -R', which has one sign.
    """
    log_density = -a * a / 2 - _LOG_SQRT_TAU
    integral = mu * np.sum(_WEIGHTS / 2 * _mills_fall(a[..., None] + mu * (1 + _NODES) / 2), axis=-1)
    apart = _mills(a) - _mills(a + mu)
    outer = log_density + np.log(np.where(mu <= np.maximum(1, a), integral, apart))
    inner = np.log1p(-np.exp(log_density) * (_mills(-a) + _mills(a + mu)))
    return np.where((a < 0) & (mu > 1), inner, outer)


def _mills(t: Array) -> Array:
    ratio: Array = math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))
    return ratio


def _mills_fall(t: Array) -> Array:
    """-R'(t) = 1 - t R(t); from 15 on, where that cancels, by its asymptotic series."""
    inverse_square = 1 / (t * t)
    series = np.ones_like(t)
    for order in range(33, 1, -2):
        series = 1 - order * inverse_square * series
    return np.where(t < 15, 1 - t * _mills(t), inverse_square * series)


def find_smallest(is_enough: Callable[[Array], NDArray[np.bool_]], shape: tuple[int, ...]) -> Array:
    """The smallest floats in [0, 1] for which a monotone condition holds.

    Positive floats are ordered like their bits: bisecting the bits is as exact for 1e-300 as for 0.5.
    """
    low = np.zeros(shape, dtype=np.int64)
    high = np.full_like(low, _BITS_OF_ONE)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = is_enough(middle.view(np.float64))
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low.view(np.float64)


def find_root(crossing: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a function, to the last bit."""
    return float(brentq(crossing, low, high, xtol=1e-320, rtol=4 * np.finfo(float).eps, maxiter=2000))


def match_shape(values: Array, like: Values) -> Values:
    """A number if the argument was one."""
    return cast(Values, values if np.ndim(like) else values.item())
