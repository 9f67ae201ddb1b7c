"""The total loss of many releases on one lot, by fast Fourier transforms on a lattice: lower and upper bounds.

All releases on a random lot are sampled together, so the distribution of their total loss is needed before sampling.
Each loss is moved to a lattice, where the total is a convolution, computed by transforms. There are two ways to move a
loss to its two neighbours: keep its mass under P and under Q, which spreads the likelihood ratio and gives an upper
bound; or toss the same coin under both, which is post-processing and gives a lower bound. Both errors are of second
order in the lattice's width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from tacit.accounting.densities import Floats
from tacit.accounting.losses import Kind, LossAtoms, thin

Counted = Sequence[tuple[LossAtoms, int]]
# (first lattice point, mass at each point from there, number of repetitions)
Masses = Sequence[tuple[int, Floats, int]]

# The relative change of the variance of the total that the lattice may cause, divided by the number of atoms.
_TOLERANCE = 0.2
_MOST_POINTS = 2**20
# The mass that may be beyond the lattice.
_BEYOND = 1e-19
# Totals are computed several times, tilted so that losses this many deviations from zero are likeliest; each point
# takes the most accurate value.
_PLACES = (-6.0, -3.0, 0.0, 3.0, 6.0)
_STEEPER = np.geomspace(1.0, 60.0, 24)
# Error of one point of a total per release, in units of the mean modulus of the transform: eight times the largest
# error found with extended precision.
_ROUNDING = 2.0**-49
# Relative errors above which an upper bound adds mass to a point, and a lower bound drops it.
_BARELY_KNOWN, _WELL_KNOWN = 1e-3, 1e-7


def convolve_all(parts: Counted, kind: Kind, size: int, most_error: float) -> LossAtoms | None:
    """About `size` atoms of the total loss of all counted parts, on the side of `kind`.

    None if rounding adds more than `most_error` to an upper bound, or if the losses do not fit on a lattice. An
    estimate is computed like a lower bound.
    """
    std = _deviation(parts)
    lattice = _make_lattice(parts, std, _TOLERANCE / size)
    if lattice is None:
        return None
    atoms = _spread_losses(parts, lattice, std, most_error) if kind == "upper" else _round_losses(parts, lattice, std)
    return None if atoms is None or not atoms.loss.size else thin(atoms, kind, size)


@dataclass(frozen=True)
class _Lattice:
    """Equally spaced losses, `points` of them from `first * width` on; the total wraps around."""

    width: float
    first: int
    points: int

    @property
    def losses(self) -> Floats:
        return np.asarray(self.width * np.arange(self.first, self.first + self.points), dtype=np.float64)

    def total(self, masses: Masses, tilts: Sequence[float]) -> tuple[Floats, Floats]:
        """The mass of the total at each point, with an error bound."""
        best, error = np.zeros(self.points), np.full(self.points, np.inf)
        relative = _ROUNDING * sum(times for _, _, times in masses)
        for tilt in tilts:
            values, doubt, log_scale = self._sum_tilted(masses, tilt)
            scale = np.exp(np.clip(log_scale - tilt * self.losses, -700, 600))
            wrong = (doubt + relative * np.abs(values)) * scale
            best = np.where(wrong < error, values * scale, best)
            error = np.minimum(wrong, error)
        return best, error

    def _sum_tilted(self, masses: Masses, tilt: float) -> tuple[Floats, float, float]:
        """The total of masses times e^{tilt loss}, scaled to 1; its error per value; and the log of the scale."""
        log_scale, log_modulus, count = 0.0, np.zeros(self.points // 2 + 1), 0
        transforms = []
        for start, mass, times in masses:
            place = start + np.arange(mass.size)
            exponent = tilt * self.width * place
            top = float(exponent[mass > 0].max())
            tilted = mass * np.exp(np.minimum(exponent - top, 0.0))
            scale = float(tilted.sum())
            transform = fft.rfft(np.bincount(place % self.points, tilted / scale, self.points))
            with np.errstate(divide="ignore"):
                log_modulus += times * np.log(np.abs(transform))
            transforms.append((transform, times))
            log_scale += times * (math.log(scale) + top)
            count += times
        seen = log_modulus > -80
        product = np.zeros(log_modulus.size, dtype=np.complex128)
        product[seen] = np.exp(sum(times * np.log(transform[seen]) for transform, times in transforms))
        mean_modulus = 2 * float(np.abs(product).sum()) / self.points
        values = np.roll(fft.irfft(product, self.points), -(self.first % self.points))
        return values, _ROUNDING * (count + 64) * mean_modulus + _BEYOND, log_scale


def _spread_losses(parts: Counted, lattice: _Lattice, std: float, most_error: float) -> LossAtoms | None:
    """An upper bound: each loss goes to both neighbours so that its mass stays under P and under Q."""
    masses = []
    for part, times in parts:
        loss, p = part.loss[part.p > 0], part.p[part.p > 0]
        index = np.floor(loss / lattice.width).astype(np.int64)
        low, high = index * lattice.width, (index + 1) * lattice.width
        share = np.clip(np.expm1(low - loss) / np.expm1(low - high), 0.0, 1.0)
        masses.append((*_place(index, p, share), times))
    loss = lattice.losses
    p, error = lattice.total(masses, [place / std - 0.5 for place in _PLACES])
    # For a negative loss Q's mass counts, which is larger.
    barely = error * np.exp(np.maximum(-loss, 0.0)) * (error > _BARELY_KNOWN * p)
    if not float(barely.sum()) <= most_error:
        return None
    p = np.maximum(p + error, 0.0)
    unmatched = sum(times * float(part.q[part.p == 0].sum()) for part, times in parts)
    only_p = _any([(part.only_p, times) for part, times in parts]) + _BEYOND
    only_q = _any([(part.only_q, times) for part, times in parts]) + _BEYOND + unmatched
    return LossAtoms(loss, p, p * np.exp(-loss), only_p, only_q)


def _round_losses(parts: Counted, lattice: _Lattice, std: float) -> LossAtoms:
    """A lower bound: each loss is rounded up or down by a coin that is the same under P and Q."""
    under_p, under_q = [], []
    for part, times in parts:
        real = (part.p > 0) & (part.q > 0)
        index = np.floor(part.loss[real] / lattice.width).astype(np.int64)
        share = np.clip(part.loss[real] / lattice.width - index, 0.0, 1.0)
        under_p.append((*_place(index, part.p[real], share), times))
        under_q.append((*_place(index, part.q[real], share), times))
    p, p_error = lattice.total(under_p, [place / std - 0.5 for place in _PLACES])
    q, q_error = lattice.total(under_q, [place / std + 0.5 for place in _PLACES])
    known = (p_error < _WELL_KNOWN * p) & (q_error < _WELL_KNOWN * q)
    p, q = p[known] - p_error[known], q[known] - q_error[known]
    return LossAtoms(np.log(p / q), p, q)


def _place(index: NDArray[np.int64], mass: Floats, share: Floats) -> tuple[int, Floats]:
    """The first lattice point that has mass, and the mass there and after: `share` of each goes one point up."""
    start = int(index.min())
    count = int(index.max()) - start + 2
    masses = np.bincount(index - start, mass * (1 - share), count)
    masses += np.bincount(index - start + 1, mass * share, count)
    return start, masses.astype(np.float64)


def _deviation(parts: Counted) -> float:
    """The standard deviation of the total loss under P."""
    total = 0.0
    for part, times in parts:
        mean = float(part.p @ part.loss)
        total += times * float(part.p @ (part.loss - mean) ** 2)
    return math.sqrt(total)


def _make_lattice(parts: Counted, std: float, tolerance: float) -> _Lattice | None:
    """A lattice that holds all but `_BEYOND` of every total computed on it."""
    count = sum(times for _, times in parts)
    if not 0 < std < math.inf:
        return None
    reversed_parts = [(part.reverse(), times) for part, times in parts]
    high, low = _reach(parts, std), -_reach(reversed_parts, std)
    # Between two neighbours a loss has a variance of a sixth of their distance squared, on average.
    width = max(math.sqrt(6 * tolerance / count) * std, (high - low) / _MOST_POINTS)
    first, last = math.floor(low / width) - len(parts) - 1, math.ceil(high / width) + len(parts) + 1
    return _Lattice(width, first, fft.next_fast_len(last - first + 1, real=True))


def _reach(parts: Counted, std: float) -> float:
    """A total exceeded with probability below `_BEYOND` under the largest tilt; or the largest total."""
    tilt = _PLACES[-1] / std + 0.5
    orders = np.append(tilt, tilt + _STEEPER / std)
    logs = np.asarray(sum(times * _log_moments(part, orders) for part, times in parts))
    bound = float(np.min((logs[1:] - logs[0] - math.log(_BEYOND)) / (_STEEPER / std)))
    most = sum(times * float(part.loss[part.p > 0].max()) for part, times in parts)
    return min(bound, most)


def _log_moments(part: LossAtoms, orders: Floats) -> Floats:
    keep = part.p > 0
    logs = np.log(part.p[keep]) + orders[:, None] * part.loss[keep]
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.exp(logs - top[:, None]).sum(axis=1)))


def _any(chances: Sequence[tuple[float, int]]) -> float:
    """The probability that at least one of many independent events happens, each repeated `times` times."""
    return -math.expm1(sum(times * math.log1p(-min(chance, 1.0 - 1e-16)) for chance, times in chances))
