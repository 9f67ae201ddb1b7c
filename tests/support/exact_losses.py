"""What accountants must answer, the slow way: sums and integrals of the definition, in long arithmetic.

A pair of outcomes' laws is a list of points (probability with the example, probability without it).
delta(epsilon) of a pair is the sum of (p - e^epsilon q)_+ over its points.
"""

import math
from itertools import pairwise, product

import mpmath
import numpy as np
from mpmath import mpf
from scipy.special import ndtr

Point = tuple[mpf, mpf]

DIGITS = 50
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


@mpmath.workdps(DIGITS)
def gaussian_delta(epsilon, mu):
    """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), as it stands."""
    epsilon, mu = mpf(epsilon), mpf(mu)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@mpmath.workdps(DIGITS)
def response(epsilon, choices=2):
    """Randomized response: the true answer, the neighbour's answer, and the others as one."""
    likely = 1 / (1 + (choices - 1) * mpmath.exp(-mpf(epsilon)))
    unlikely = likely * mpmath.exp(-mpf(epsilon))
    points = [(likely, unlikely), (unlikely, likely)]
    return points if choices == 2 else [*points, ((choices - 2) * unlikely, (choices - 2) * unlikely)]


@mpmath.workdps(DIGITS)
def epsilon_delta(epsilon, delta):
    """The worst pair of an (epsilon, delta)-DP mechanism (Kairouz, Oh, Viswanath 2015)."""
    delta = mpf(delta)
    inside = [((1 - delta) * p, (1 - delta) * q) for p, q in response(epsilon)]
    return [*inside, (delta, mpf(0)), (mpf(0), delta)]


@mpmath.workdps(DIGITS)
def sampled(points, rate):
    """The example takes part with probability `rate`."""
    return [((1 - mpf(rate)) * q + mpf(rate) * p, q) for p, q in points]


def swapped(points):
    """The example added instead of removed."""
    return [(q, p) for p, q in points]


@mpmath.workdps(DIGITS)
def composed(*parts):
    """Independent runs: each part is (points, times). All multinomial counts, one by one."""
    whole = [(mpf(1), mpf(1))]
    for points, times in parts:
        powers = [[(p**k, q**k) for k in range(times + 1)] for p, q in points]
        lists = [
            (ways * mpmath.fprod(p for p, _ in chosen), ways * mpmath.fprod(q for _, q in chosen))
            for counts, ways in _counts(len(points), times)
            for chosen in [[powers[i][k] for i, k in enumerate(counts)]]
        ]
        whole = [(a * p, b * q) for (a, b), (p, q) in product(whole, lists)]
    return whole


def _counts(kinds, times):
    """Every way to share `times` among kinds, with the number of orders in which it comes about."""
    if kinds == 1:
        yield (times,), 1
        return
    for first in range(times + 1):
        for rest, ways in _counts(kinds - 1, times - first):
            yield (first, *rest), math.comb(times, first) * ways


@mpmath.workdps(DIGITS)
def hockey_stick(points, epsilon, mu=0.0):
    """delta(epsilon) of the points, composed with a Gaussian mechanism of parameter mu if that is positive."""
    if mu == 0:
        return mpmath.fsum(max(p - mpmath.exp(mpf(epsilon)) * q, 0) for p, q in points)
    parts = [p if q == 0 else p * gaussian_delta(epsilon - mpmath.log(p / q), mu) for p, q in points if p > 0]
    return mpmath.fsum(parts)


@mpmath.workdps(DIGITS)
def root(decreasing, target, start):
    """Where a decreasing function of epsilon crosses `target`, near `start`."""
    return mpmath.findroot(lambda e: mpmath.log(decreasing(e) / mpf(target)), start)


@mpmath.workdps(DIGITS)
def sampled_gaussian_delta(epsilon, multiplier, rate, added=False):
    """One Poisson-sampled Gaussian step, any real epsilon: the likelihood ratio crosses e^epsilon once."""
    shift, rate, growth = 1 / mpf(multiplier), mpf(rate), mpmath.exp(mpf(epsilon))
    if added:
        left = 1 - growth * (1 - rate)
        if left <= 0:
            return mpf(0)
        crossing = mpmath.log(left / (growth * rate)) / shift + shift / 2
        return left * mpmath.ncdf(crossing) - growth * rate * mpmath.ncdf(crossing - shift)
    right = growth - 1 + rate
    if right <= 0:
        return 1 - growth
    crossing = mpmath.log(right / rate) / shift + shift / 2
    return rate * mpmath.ncdf(shift - crossing) - right * mpmath.ncdf(-crossing)


def panels(low, high, width):
    """Nodes and weights of Gauss-Legendre quadrature on panels of about this width."""
    ends = np.linspace(low, high, max(math.ceil((high - low) / width), 1) + 1)
    middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    return (middle[:, None] + half[:, None] * NODES).ravel(), (half[:, None] * WEIGHTS).ravel()


def _one_step(epsilon, shift, rate, added):
    """The same as `sampled_gaussian_delta` for an array of epsilons, in doubles."""
    growth = np.exp(epsilon)
    left = 1 - growth * (1 - rate) if added else np.expm1(epsilon) + rate
    inside = left > 0
    safe = np.where(inside, left, 1.0)
    if added:
        crossing = np.log(safe / (growth * rate)) / shift + shift / 2
        value = safe * ndtr(crossing) - growth * rate * ndtr(crossing - shift)
        return np.where(inside, value, 0.0)
    crossing = np.log(safe / rate) / shift + shift / 2
    return np.where(inside, rate * ndtr(shift - crossing) - safe * ndtr(-crossing), -np.expm1(epsilon))


def _loss(x, shift, rate, added):
    ratio = np.log1p(rate * np.expm1(shift * x - shift**2 / 2))
    return -ratio if added else ratio


def several_sampled_gaussians(epsilon, *steps, added=False):
    """delta(epsilon) of two or three Poisson-sampled Gaussian steps (multiplier, rate): the last one in closed form.

    Good to about 1e-12 of the largest of 1e-3 and the answer. For two steps panels are short, because the last step has
    a kink, where its loss is least.
    """
    *outer, (multiplier, rate) = steps
    left = np.array([epsilon])
    weight = np.ones(1)
    for z, q in outer:
        shift = 1 / z
        x, w = panels(-9.0, 9.0 + shift, 0.005 if len(outer) == 1 else 0.5)
        density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        if not added:
            density = (1 - q) * density + q * np.exp(-((x - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
        left = np.subtract.outer(left, _loss(x, shift, q, added)).ravel()
        weight = np.multiply.outer(weight, w * density).ravel()
    return float(weight @ _one_step(left, 1 / multiplier, rate, added))


@mpmath.workdps(DIGITS)
def laplace_delta(epsilon, multiplier, times):
    """delta(epsilon) of several Laplace releases of one number.

    e^{-loss/2} times the law of one loss is e^{-s/2}/2 times (a mass at -s, a mass at s, s times the uniform
    law between them), s = 1/multiplier; sums of uniform laws are polynomials between their knots.
    """
    s, epsilon = 1 / mpf(multiplier), mpf(epsilon)
    total = mpf(0)
    for ups, downs in product(range(times + 1), repeat=2):
        evens = times - ups - downs
        if evens < 0:
            continue
        ways = math.comb(times, ups) * math.comb(times - ups, downs)
        offset = (ups - downs) * s
        if evens == 0:
            total += ways * max(mpmath.exp(offset / 2) - mpmath.exp(epsilon - offset / 2), 0)
            continue
        knots = [offset + (2 * k - evens) * s for k in range(evens + 1)]
        ends = [max(knot, epsilon) for knot in knots]

        def term(x, offset=offset, evens=evens):
            return _uniform_sum(x - offset, s, evens) * (mpmath.exp(x / 2) - mpmath.exp(epsilon - x / 2))

        area = mpmath.fsum(mpmath.quad(term, [a, b], method="gauss-legendre") for a, b in pairwise(ends) if b > a)
        total += ways * s**evens * area
    return total * (mpmath.exp(-s / 2) / 2) ** times


def _uniform_sum(x, s, number):
    """Density of the sum of so many uniform variables on (-s, s): Irwin and Hall."""
    u = (x + number * s) / (2 * s)
    terms = [(-1) ** k * math.comb(number, k) * (u - k) ** (number - 1) for k in range(int(u) + 1) if u > k]
    return mpmath.fsum(terms) / math.factorial(number - 1) / (2 * s)
