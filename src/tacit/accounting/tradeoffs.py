"""Trade-off functions in general: sampled, inverted, and the largest convex one below two directions.

A trade-off function maps an attacker's false-alarm probability alpha to the smallest probability of a miss (Dong, Roth,
Su 2019).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from tacit import _validate
from tacit._validate import Array
from tacit.errors import InvalidArgument

Values = TypeVar("Values", float, Array)
"""A number, or an array of them: the answer has the shape of the question."""

_BITS_OF_ONE = np.float64(1.0).view(np.int64)


class Tradeoff(Protocol):
    """Smallest probability of a miss for a given probability of a false alarm."""

    def __call__(self, alpha: Values, /) -> Values: ...


@dataclass(frozen=True)
class _Sampled:
    """rate * f + (1 - rate) * (1 - alpha)."""

    f: Callable[[Array], Array]
    rate: float

    def __call__(self, alpha: Values, /) -> Values:
        alphas = np.atleast_1d(_validate.units("alpha", alpha))
        return shaped(self.rate * self.f(alphas) + (1 - self.rate) * (1 - alphas), alpha)


def subsampled_tradeoff(f: Callable[[Array], Array], rate: float) -> Tradeoff:
    """f_p = rate * f + (1 - rate)(1 - alpha): one direction of the add/remove pair after Poisson sampling.

    The other direction is its inverse, so only `symmetrized` of this, or of its composition, is a guarantee.

    >>> from tacit.accounting.gdp import tradeoff
    >>> f"{subsampled_tradeoff(lambda alpha: tradeoff(alpha, 1.0), rate=0.01)(0.05):.8f}"
    '0.94790489'
    """
    return _Sampled(f, _validate.rate("rate", rate))


@dataclass(frozen=True)
class _Inverse:
    """f^-1(alpha) = the smallest t with f(t) <= alpha; this swaps the roles of the two hypotheses."""

    f: Callable[[Array], Array]

    def __call__(self, alpha: Values, /) -> Values:
        alphas = np.atleast_1d(_validate.units("alpha", alpha))
        return shaped(smallest(lambda t: self.f(t) <= alphas, alphas.shape), alpha)


@dataclass(frozen=True)
class _Arc:
    """A piece of a curve that lies on a convex hull, from one corner (alpha, miss) to the other."""

    start: tuple[float, float]
    end: tuple[float, float]
    curve: Callable[[Array], Array]


@dataclass(frozen=True)
class _Hull:
    """Arcs from left to right, and straight lines between them."""

    arcs: tuple[_Arc, ...]

    def __call__(self, alpha: Values, /) -> Values:
        alphas = np.atleast_1d(_validate.units("alpha", alpha))
        corners = [corner for arc in self.arcs for corner in (arc.start, arc.end)]
        at, height = zip(*corners, strict=True)
        miss = np.interp(alphas, at, height)
        for arc in self.arcs:
            inside = (alphas >= arc.start[0]) & (alphas <= arc.end[0])
            miss[inside] = arc.curve(alphas[inside])
        return shaped(miss, alpha)


def symmetrized(f: Callable[[Array], Array]) -> Tradeoff:
    """min{f, f^-1}**: the largest convex function below `f` and its inverse, the pair's two directions.

    `f` is a trade-off function (convex, falling, at most 1 - alpha) that maps arrays to arrays; what is
    visibly none is refused. Absolute error about 1e-12 where the slope is between 1e-9 and 1e9;
    `subsampled_gaussian_tradeoff` is good further out.

    >>> from tacit.accounting.gdp import tradeoff
    >>> curve = symmetrized(subsampled_tradeoff(lambda alpha: tradeoff(alpha, 2.0), rate=0.5))
    >>> f"{curve(0.1):.6f} {curve(curve(0.1)):.6f}"
    '0.568120 0.100000'
    """
    _refuse_unless_tradeoff(f)
    curves: tuple[Callable[[Array], Array], ...] = f, _Inverse(f)
    slopes = _slopes(f)
    lower = (_lead(f, slopes) > 0).astype(int)
    # The hull is symmetric: a line of slope -1 crosses the diagonal, from the lower curve to its mirror.
    alpha, miss = _touching(f, 1.0, lower[0])
    end = min(alpha, (alpha + miss) / 2), max(miss, (alpha + miss) / 2)
    arcs = []
    for i in np.flatnonzero(np.diff(lower)):
        slope = root(lambda s: float(_lead(f, np.array([s]))[0]), slopes[i], slopes[i + 1])
        arcs.append(_Arc(_touching(f, slope, lower[i]), end, curves[lower[i]]))
        end = _touching(f, slope, lower[i + 1])
    last = curves[lower[-1]]
    arcs.append(_Arc((0.0, float(last(np.zeros(1))[0])), end, last))
    mirrored = [_Arc(arc.end[::-1], arc.start[::-1], curves[arc.curve is f]) for arc in arcs]
    return _Hull((*reversed(arcs), *mirrored))


def _refuse_unless_tradeoff(f: Callable[[Array], Array]) -> None:
    alpha = np.linspace(0.0, 1.0, 1025)
    miss = f(alpha)
    fits = (miss >= 0) & (miss <= 1 - alpha + 1e-9)
    if not np.all(fits) or np.any(np.diff(miss, 2) < -1e-9):
        raise InvalidArgument(
            f"f must be a trade-off function: convex, falling, between 0 and 1 - alpha. Got {f!r}. Pass a "
            "function of an array of alphas, such as lambda alpha: tradeoff(alpha, mu)."
        )


def _slopes(f: Callable[[Array], Array]) -> Array:
    """Slopes above 1 of the chords of `f` and of its inverse: the corners of a polygon are among them."""
    alpha = np.union1d(np.linspace(0.0, 1.0, 1025), np.geomspace(1e-12, 1.0, 385))
    falls = np.clip(-np.diff(f(alpha)) / np.diff(alpha), 1e-9, 1e9)
    return np.union1d(np.maximum(falls, 1 / falls), 1 + np.geomspace(1e-8, 1e9, 171))


def _lead(f: Callable[[Array], Array], slopes: Array) -> Array:
    """By how much the tangents of slope -s to `f` lie above those to its inverse; in a tie they do not."""
    direct, mirrored = _touch(f, slopes, 1.0), _touch(f, 1.0, slopes)
    gap: Array = slopes * direct + f(direct) - mirrored - slopes * f(mirrored)
    return gap - 1e-13 - 4e-15 * slopes


def _touching(f: Callable[[Array], Array], slope: float, mirrored: int) -> tuple[float, float]:
    """Where the tangent of slope -s touches f, or, mirrored, its inverse."""
    weights = (1.0, slope) if mirrored else (slope, 1.0)
    alpha = _touch(f, np.array([weights[0]]), weights[1])
    point = float(alpha[0]), float(f(alpha)[0])
    return point[::-1] if mirrored else point


def _touch(f: Callable[[Array], Array], across: float | Array, up: float | Array) -> Array:
    """The alpha for which across * alpha + up * f(alpha) is smallest, by golden section of the bits."""
    low = np.zeros(np.broadcast_shapes(np.shape(across), np.shape(up)), dtype=np.int64)
    high = np.full_like(low, _BITS_OF_ONE)
    for _ in range(90):
        step = ((high - low) * 0.3819660112501051).astype(np.int64)
        left, right = (low + step).view(np.float64), (high - step).view(np.float64)
        # Far to the left all is equal but for rounding: left wins only by more than that.
        drop = across * (right - left) + up * (f(right) - f(left))
        is_left = drop > 4e-16 * np.asarray(up)
        low, high = np.where(is_left, low, low + step), np.where(is_left, high - step, high)
    return low.view(np.float64)


def smallest(is_enough: Callable[[Array], NDArray[np.bool_]], shape: tuple[int, ...]) -> Array:
    """Smallest floats in [0, 1] for which a fact, true from some point on, is true.

    Floats of one sign are ordered as their bits are: bisecting the bits is as exact for 1e-300 as for 0.5.
    """
    low = np.zeros(shape, dtype=np.int64)
    high = np.full_like(low, _BITS_OF_ONE)
    while np.any(low < high):
        middle = (low + high) // 2
        enough = is_enough(middle.view(np.float64))
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return low.view(np.float64)


def root(crossing: Callable[[float], float], low: float, high: float) -> float:
    """Where a function crosses zero, to the last bit."""
    return float(brentq(crossing, low, high, xtol=1e-320, rtol=4 * np.finfo(float).eps, maxiter=2000))


def shaped(values: Array, like: Values) -> Values:
    """A number where a number was asked for."""
    return cast(Values, values if np.ndim(like) else values.item())
