"""Correlated noise by matrix factorisation: coefficients, sensitivity, error of prefix sums, and the best band.

A run releases x_t + w_t with w = C^{-1} z and independent z, for a lower triangular Toeplitz matrix C. That is C x + z
after post-processing, so an example costs what the columns of C say, and sums of consecutive releases, which is what an
optimizer adds up, have less noise. With b bands and steps at least b apart, an example's columns do not overlap: each
of its steps costs one Gaussian release, if columns have norm 1 (Choquette-Choo et al. 2023). Proof:
docs/explanations/accounting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from scipy import fft, optimize

from tacit import _validate
from tacit.accounting.calibrate import multiplier_for
from tacit.accounting.densities import Floats
from tacit.errors import InvalidArgument

# Above this many steps, coefficients are optimised for this many: they hardly change.
_MOST_OPTIMISED = 4096
# The same for learning rates that vary, where the error takes the square of their number.
_MOST_SCHEDULED = 512


def square_root_coefficients(bands: int) -> Floats:
    """The first coefficients of the square root of the matrix of prefix sums (Fichtenberger et al. 2022).

    >>> square_root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    k = np.arange(1, _validate.count("bands", bands))
    return np.append(1.0, np.cumprod((2 * k - 1) / (2 * k)))


def inverse_square_root_coefficients(bands: int) -> Floats:
    """The first coefficients of its inverse: a banded inverse that costs no memory of past noise (BISR).

    >>> inverse_square_root_coefficients(4).tolist()
    [1.0, -0.5, -0.125, -0.0625]
    """
    k = np.arange(1, _validate.count("bands", bands))
    return np.append(1.0, np.cumprod((2 * k - 3) / (2 * k)))


def invert_coefficients(coefficients: Floats, steps: int) -> Floats:
    """The first coefficients of the inverse of a lower triangular Toeplitz matrix."""
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    return np.asarray(scipy.signal.lfilter([1.0], np.asarray(coefficients, dtype=float), impulse))


def prefix_variances(coefficients: Floats, steps: int) -> Floats:
    """The variance of the noise of every prefix sum, for unit noise z."""
    return np.cumsum(np.cumsum(invert_coefficients(coefficients, steps)) ** 2)


def weighted_variances(coefficients: Floats, rates: Floats) -> Floats:
    """The same for sums of releases times learning rates: of where an optimizer stands after every step.

    >>> weighted_variances(np.array([1.0]), np.array([1.0, 0.5, 0.0])).tolist()
    [1.0, 1.25, 1.25]
    """
    sums = _weighted_sums(invert_coefficients(coefficients, len(rates)), rates)
    # Row j holds what draw j leaves after step j, j + 1, ...: its k-th number belongs to step j + k.
    return np.array([float(np.square(np.fliplr(sums).diagonal(len(rates) - 1 - t)).sum()) for t in range(len(rates))])


def _weighted_sums(inverse: Floats, rates: Floats) -> Floats:
    """[draw j, k]: how much of draw j is in the weighted sum after step j + k."""
    return np.cumsum(_shift(rates) * inverse, axis=1)


def _shift(rates: Floats) -> Floats:
    """[j, k]: the rate of step j + k, and 0 beyond the last step."""
    padded = np.concatenate([rates, np.zeros(len(rates))])
    return np.lib.stride_tricks.sliding_window_view(padded, len(rates))[:-1]


def squared_sensitivity(coefficients: Floats, *, steps: int, apart: int, times: int | None = None) -> float:
    """The squared norm of what an example adds to C x in `times` steps at least `apart` apart, each of norm 1.

    For coefficients that are neither negative nor increasing: then the first possible steps are the worst, with equal
    directions (Kalinin, Lampert 2024).
    """
    values = np.zeros(steps)
    values[: min(len(coefficients), steps)] = np.asarray(coefficients, dtype=float)[:steps]
    if values.min() < 0 or (np.diff(values) > 1e-12).any():
        raise InvalidArgument("The sensitivity is known for coefficients that are neither negative nor increasing.")
    possible = -(-steps // apart)
    total = np.zeros(steps)
    for number in range(min(possible, times or possible)):
        total[number * apart :] += values[: steps - number * apart]
    return float(total @ total)


@lru_cache(maxsize=256)
def band_coefficients(bands: int, steps: int, rates: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Coefficients of norm 1, in `bands` bands, with the least mean variance of prefix sums over `steps` steps.

    With `rates`, a learning rate for each step, of sums of releases times their rates. Found from the square-root
    coefficients by gradient descent; any coefficients of norm 1 cost the same.
    """
    bands, steps = _validate.count("bands", bands), _validate.count("steps", steps)
    if rates and len(rates) != steps:
        raise InvalidArgument(f"rates must hold one learning rate per step. Got {len(rates)} for {steps} steps.")
    schedule = _thin(_validate.non_negatives("rates", rates)) if rates and len(set(rates)) > 1 else None
    steps = min(steps, _MOST_OPTIMISED) if schedule is None else len(schedule)
    bands = min(bands, steps)
    start = square_root_coefficients(bands)
    if bands == 1:
        return (1.0,)

    def error(coefficients: Floats) -> tuple[float, Floats]:
        if schedule is None:
            return _mean_variance(coefficients, steps)
        return _mean_weighted_variance(coefficients, schedule)

    found = optimize.minimize(lambda tail: error(np.append(1.0, tail)), start[1:], jac=True, method="L-BFGS-B")
    best = np.append(1.0, found.x) if found.fun < error(start)[0] else start
    best = best / np.linalg.norm(best)
    # Rounded down, so that the norm is certainly at most 1.
    return tuple((best * (1 - 1e-15)).tolist())


def _mean_variance(coefficients: Floats, steps: int) -> tuple[float, Floats]:
    """Log of squared norm times mean variance of prefix sums, and its gradient (without the first coefficient)."""
    inverse = invert_coefficients(coefficients, steps)
    if not np.abs(inverse).max() < 1e6:
        # Unstable: the noise would grow from step to step. The line search turns back.
        return 700.0, np.zeros(len(coefficients) - 1)
    sums = np.cumsum(inverse)
    weight = np.arange(steps, 0, -1) / steps
    error, norm = float(weight @ sums**2), float(coefficients @ coefficients)
    by_inverse = np.cumsum((2 * weight * sums)[::-1])[::-1]
    size = fft.next_fast_len(2 * steps, real=True)
    squared = fft.irfft(fft.rfft(inverse, size) ** 2, size)[:steps]
    # The derivative of an inverse is minus its square, shifted by one place per coefficient.
    backwards = fft.irfft(fft.rfft(by_inverse, size) * np.conj(fft.rfft(squared, size)), size)
    gradient = -backwards[: len(coefficients)] / error + 2 / norm * coefficients
    return math.log(error * norm), np.asarray(gradient[1:])


def _thin(rates: Floats) -> Floats:
    """The rates, or evenly spaced ones of a long run: the error is computed for all pairs of steps."""
    if len(rates) <= _MOST_SCHEDULED:
        return rates
    return np.asarray(rates[np.linspace(0, len(rates) - 1, _MOST_SCHEDULED).round().astype(int)])


def _mean_weighted_variance(coefficients: Floats, rates: Floats) -> tuple[float, Floats]:
    """As `_mean_variance`, for sums of releases times learning rates."""
    steps = len(rates)
    inverse = invert_coefficients(coefficients, steps)
    if not np.abs(inverse).max() < 1e6 or not rates.any():
        return 700.0, np.zeros(len(coefficients) - 1)
    shifted = _shift(rates)
    sums = np.cumsum(shifted * inverse, axis=1)
    # Beyond the last step nothing is summed.
    sums *= np.arange(steps)[:, None] + np.arange(steps) < steps
    error, norm = float(np.square(sums).sum()), float(coefficients @ coefficients)
    by_inverse = (shifted * (2 * np.cumsum(sums[:, ::-1], axis=1)[:, ::-1])).sum(axis=0)
    size = fft.next_fast_len(2 * steps, real=True)
    squared = fft.irfft(fft.rfft(inverse, size) ** 2, size)[:steps]
    backwards = fft.irfft(fft.rfft(by_inverse, size) * np.conj(fft.rfft(squared, size)), size)
    gradient = -backwards[: len(coefficients)] / error + 2 / norm * coefficients
    return math.log(error * norm / steps), np.asarray(gradient[1:])


@dataclass(frozen=True)
class Buffers:
    """A strategy with few buffers (BLT): c_0 = 1 and c_j = sum_i weights_i decays_i^(j-1)."""

    decays: tuple[float, ...]
    weights: tuple[float, ...]

    def coefficients(self, steps: int) -> Floats:
        """The first coefficients of C.

        >>> Buffers((0.5,), (0.4,)).coefficients(4).tolist()
        [1.0, 0.4, 0.2, 0.1]
        """
        powers = np.asarray(self.decays)[:, None] ** np.arange(steps - 1)
        return np.append(1.0, np.asarray(self.weights) @ powers)

    def prefix_variances(self, steps: int) -> Floats:
        """As the function of this name, in time proportional to the number of steps.

        C is the series of a rational function, and C^{-1} that of its reciprocal.
        """
        below = np.poly(self.decays)
        above = below.copy()
        for place, weight in enumerate(self.weights):
            above[1:] += weight * np.poly(np.delete(np.asarray(self.decays), place))
        impulse = np.zeros(steps)
        impulse[0] = 1.0
        return np.cumsum(np.cumsum(scipy.signal.lfilter(below, above, impulse)) ** 2)


@lru_cache(maxsize=256)
def optimise_buffers(count: int, steps: int, apart: int) -> Buffers:
    """Buffers with little mean variance of prefix sums, for an example's steps at least `apart` apart, by descent.

    It starts from decays at equal ratios, which follow the square-root coefficients. Any buffers have a proof; these
    decide only how much noise is left.
    """
    count = _validate.count("buffers", count)
    # Longer runs are optimised at this length, with as many steps of an example.
    length = min(_validate.count("steps", steps), _MOST_OPTIMISED)
    apart = max(round(apart * length / steps), 1)
    most = -(-length // apart)

    def read(point: Floats) -> Buffers:
        return Buffers(tuple(np.exp(-np.exp(point[:count])).tolist()), tuple(np.exp(point[count:]).tolist()))

    def error(point: Floats) -> float:
        found = read(point)
        if sum(found.weights) > 1:
            # The sensitivity is known for coefficients that do not increase. The line search turns back.
            return 700.0
        strategy = found.coefficients(length)
        cost = squared_sensitivity(strategy, steps=length, apart=apart) / most
        return math.log(float(found.prefix_variances(length).mean()) * cost)

    speeds = np.geomspace(1 / length, 1.0, count) if count > 1 else np.array([length**-0.5])
    start = np.append(np.log(speeds), np.log(0.5 * np.sqrt(speeds) / np.sqrt(speeds).sum()))
    found = optimize.minimize(error, start, method="L-BFGS-B", options={"maxiter": 60, "ftol": 1e-7})
    return read(found.x)


def find_scale(strategy: Floats, apart: int) -> float:
    """The largest root of an example's squared sensitivity per step, over its first steps; rounded up.

    With the strategy divided by it, an example's first j steps, at least `apart` apart, cost j Gaussian releases.
    """
    steps = len(strategy)
    most = -(-steps // apart)
    found = (squared_sensitivity(strategy, steps=steps, apart=apart, times=j) / j for j in range(1, most + 1))
    return math.sqrt(max(found)) * (1 + 1e-12)


@dataclass(frozen=True)
class BandPlan:
    """Bands, the multiplier that the budget needs with them, and the error of prefix sums relative to one band."""

    bands: int
    multiplier: float
    relative_error: float


def compare_bands(*, lot_size: float, population: int, steps: int, epsilon: float, delta: float) -> list[BandPlan]:
    """What powers of two of bands give, from public numbers only. One band is DP-SGD with Poisson lots.

    The error is the root of the mean squared noise of all prefix sums: of where an optimizer with a constant learning
    rate stands. It grows with the multiplier, as more bands mean a higher rate within each group, and falls with the
    bands, over which noise cancels.
    """
    rate = _validate.rate("rate", lot_size / population)
    found: list[BandPlan] = []
    plain = math.nan
    bands = 1
    while bands * rate <= 1 and bands <= steps:
        multiplier = multiplier_for(epsilon=epsilon, delta=delta, rate=bands * rate, steps=math.ceil(steps / bands))
        variance = float(prefix_variances(np.array(band_coefficients(bands, steps)), steps).mean())
        error = multiplier * math.sqrt(variance)
        plain = error if bands == 1 else plain
        found.append(BandPlan(bands, multiplier, error / plain))
        if len(found) > 2 and found[-1].relative_error > found[-2].relative_error > found[-3].relative_error:
            break
        bands *= 2
    return found


def best_band(plans: list[BandPlan]) -> BandPlan:
    """The plan with the least error; one band unless another is at least 2 % better."""
    best = min(plans, key=lambda plan: plan.relative_error)
    return best if best.relative_error < 0.98 else plans[0]
