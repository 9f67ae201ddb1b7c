"""Random allocation: each example is in exactly one lot of an epoch. Its losses, bounded on both sides.

One of `lots` steps, at random, holds the example. With s = 1 / multiplier, the likelihood ratio of an epoch is the mean
of Y_i = e^{s x_i - s^2 / 2}, independent with mean 1 without the example. One pair dominates another exactly if its
ratio is larger in the convex order, and sums of independent variables keep that order. So each Y_i moves to a lattice:

- upper: to both neighbours such that the mean stays, which is larger in the convex order;
- lower: to one neighbour by a coin, which is post-processing; the ratio becomes the conditional mean given the total.

Both totals have the same law without the example, which transforms compute once; both errors are of second order in
the width. Large Y_i have no place on a short lattice: their number is binomial, and their values are atoms in cells
that widen with the value. Proof: docs/explanations/accounting.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from scipy import fft, special

from tacit.accounting.densities import Floats, GaussianDensity
from tacit.accounting.losses import Cells, Kind, LossAtoms, density_atoms, merge, mixture_atoms, split, thin
from tacit.accounting.mixture import GaussianMixture

# Width of the lattice in standard deviations of one small Y: it changes the variance by a sixth of its square.
_WIDTH = 0.02
_MOST_CELLS = 2**16
_TABLE_SIZE = 6000
# Few steps are added up without a lattice.
_MOST_DIRECT, _DIRECT_CELLS = 64, 800
# The mass that one Y may have beyond its cells.
_TAIL = 1e-18
# The expected number of large Y, without the example.
_FEW_LARGE = 0.01
_LARGE_CELLS, _JOINED = 200, 300
# Totals are computed tilted to these deviations from the mean; each point takes the most accurate value.
_PLACES = (-6.0, -3.0, 0.0, 3.0, 6.0)
# A tilt multiplies the largest small Y by at most e to this power: beyond, single terms would make up the total.
_MOST_TILT = 6.0
_STEEPER = np.geomspace(1.0, 60.0, 24)
_BEYOND = 1e-20
# Error of a point of a total per term, in units of the mean modulus of the transform (as in lattice.py).
_ROUNDING = 2.0**-49
_WELL_KNOWN = 1e-7
# Masses of cells are differences; their rounding errors stay below this fraction.
_OUTWARD = 1e-9


def allocation_atoms(multiplier: float, lots: int, steps: int, kind: Kind, tail: float, size: int) -> LossAtoms:
    """Atoms for the first `steps` of `lots` releases of an epoch, with the example against without it.

    The mass beyond the finite losses on each side is about 1e-17, whatever `tail` asks for: rounding is of that size.
    """
    if lots == 1:
        return density_atoms(GaussianDensity(multiplier), 1.0, kind, tail, size)
    if steps == 1:
        mixture = GaussianMixture(1 / multiplier, (1 - 1 / lots, 1 / lots))
        return mixture_atoms(mixture, kind, tail, size)
    side: Kind = "upper" if kind == "upper" else "lower"
    return thin(_allocation_table(multiplier, lots, steps, side), side, size)


@lru_cache(maxsize=64)
def _allocation_table(multiplier: float, lots: int, steps: int, side: Kind) -> LossAtoms:
    """One table for all questions about an epoch."""
    model = _make_model(multiplier, steps, _TAIL)
    zero = float(model.small[0])
    if steps <= _MOST_DIRECT and zero > 0 and steps * math.log(zero) > math.log(_TAIL):
        return _few_steps(multiplier, lots, steps, side, _TAIL)
    pieces = []
    for number in range(model.most_large + 1):
        values, masses = model.small_totals(steps - number, side)
        if number:
            # A cell's mass is that of all choices of the steps with large values.
            values, masses = _thin_values(values, masses, side)
            large = model.large_totals(number, side)
            values, masses = _add_values((values, masses), large)
            log_choices = math.lgamma(steps + 1) - math.lgamma(number + 1) - math.lgamma(steps - number + 1)
            masses = masses * math.exp(log_choices)
            values, masses = _thin_values(values, masses, side, 2 * _JOINED)
        pieces.append((values, masses))
    lost = model.lost_mass(steps / lots) if side == "upper" else (0.0, 0.0)
    totals, masses = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return _as_atoms((totals + (lots - steps)) / lots, masses, lost, side)


def _few_steps(multiplier: float, lots: int, steps: int, side: Kind, tail: float) -> LossAtoms:
    """The same without a lattice, on which totals near zero would count as zero."""
    shift = 1 / multiplier
    reach = -float(special.ndtri(tail))
    x = np.linspace(-reach, reach + shift, _DIRECT_CELLS)
    ends = np.concatenate([[-math.inf], shift * x - shift**2 / 2, [math.inf]])
    x = np.concatenate([[-math.inf], x, [math.inf]])
    cells = Cells(_masses(x, shift), _masses(x, 0.0), ends)
    atoms = split(cells) if side == "upper" else merge(cells)
    power = np.append(np.exp(atoms.loss), 0.0), np.append(atoms.q, atoms.only_q)
    total, rest = None, steps
    while rest:
        if rest & 1:
            total = power if total is None else _thin_values(*_add_values(total, power), side, _DIRECT_CELLS)
        rest >>= 1
        if rest:
            power = _thin_values(*_add_values(power, power), side, _DIRECT_CELLS)
    assert total is not None
    beyond = steps / lots * float(special.ndtr(-reach)) if side == "upper" else 0.0
    return _as_atoms((total[0] + (lots - steps)) / lots, total[1], (beyond, 0.0), side)


def _as_atoms(ratio: Floats, masses: Floats, lost: tuple[float, float], side: Kind) -> LossAtoms:
    """Losses of the ratios. A ratio of zero is an outcome that only occurs without the example."""
    q = masses * (1 + _OUTWARD if side == "upper" else 1 - _OUTWARD)
    real = ratio > 0
    nowhere = float(q[~real].sum()) if side == "upper" else 0.0
    atoms = LossAtoms(np.log(ratio[real]), ratio[real] * q[real], q[real], lost[0], lost[1] + nowhere)
    return thin(atoms, side, _TABLE_SIZE)


@dataclass(frozen=True, eq=False)
class _Model:
    """One Y without the example: on a lattice if small, else in atoms; and how many large ones are counted."""

    width: float
    steps: int
    small: Floats
    small_squares: Floats
    reaches: tuple[float, float]
    std: float
    large: Cells
    large_p: float
    beyond_p: float
    most_large: int

    def small_totals(self, terms: int, kind: Kind) -> tuple[Floats, Floats]:
        """Values and masses of the sum of so many small Y: an upper or a lower bound in the convex order."""
        if terms == 0:
            return np.zeros(1), np.ones(1)
        first = max(math.floor((terms * self.mean - self.reaches[0]) / self.width), 0)
        last = math.ceil((terms * self.mean + self.reaches[1]) / self.width)
        count = fft.next_fast_len(max(last - first + 1, self.small.size + 1), real=True)
        # Totals beside large Y need no far tails: their own probability is small.
        tilts = [0.0] if terms < self.steps else _tilts(self.std * math.sqrt(terms), self.width * self.small.size)
        q, error = _total(self.width, first, count, [(self.small, terms)], tilts)
        values = self.width * np.arange(first, first + count)
        if kind == "upper":
            q = np.maximum(q + error, 0.0)
            real = q > 0
            return values[real], q[real]
        weighted, doubt = _total(self.width, first, count, [(self.small_squares, 1), (self.small, terms - 1)], tilts)
        known = (error < _WELL_KNOWN * q) & (doubt < _WELL_KNOWN * weighted)
        return terms * weighted[known] / q[known], q[known] - error[known]

    @property
    def mean(self) -> float:
        return self.width * float(np.arange(self.small.size) @ self.small) / float(self.small.sum())

    def large_totals(self, terms: int, kind: Kind) -> tuple[Floats, Floats]:
        """The same for the sum of so many large Y."""
        atoms = split(self.large) if kind == "upper" else merge(self.large)
        each = np.exp(atoms.loss), atoms.q
        total = each
        for _ in range(terms - 1):
            total = _thin_values(*_add_values(total, each), kind)
        return total

    def lost_mass(self, share: float) -> tuple[float, float]:
        """Mass with and without the example that no finite loss holds: too many large Y, or one too large."""
        large_q, more, again = float(self.large.q.sum()), 0.0, 0.0
        if large_q:
            more = float(scipy.stats.binom.sf(self.most_large, self.steps, large_q))
            again = self.large_p * float(scipy.stats.binom.sf(self.most_large - 1, self.steps - 1, large_q))
        return share * (self.beyond_p + again) + more + 1e3 * _BEYOND, more + 1e3 * _BEYOND


@lru_cache(maxsize=32)
def _make_model(multiplier: float, steps: int, tail: float) -> _Model:
    shift = 1 / multiplier
    end = -float(special.ndtri(tail)) + shift
    start = min(-float(special.ndtri(min(_FEW_LARGE / steps, 0.4))), end)
    largest = math.exp(shift * start - shift**2 / 2)
    # The variance of Y, given that it is small.
    whole, once, twice = (float(special.ndtr(start - power * shift)) for power in range(3))
    variance = max(math.exp(shift**2) * twice / whole - (once / whole) ** 2, 1e-6 * shift**2)
    width = max(_WIDTH * math.sqrt(variance), largest / _MOST_CELLS)
    cells = max(math.ceil(largest / width), 8)
    width = largest / cells
    with np.errstate(divide="ignore"):
        x = (np.log(width * np.arange(cells + 1)) + shift**2 / 2) / shift
    below = width * np.arange(cells)
    q, p, second = (_masses(x, power * shift) for power in range(3))
    second = second * math.exp(shift**2)
    up_q = np.clip((p - below * q) / width, 0.0, q)
    up_p = np.clip((second - below * p) / width, 0.0, p)
    small = np.append(q - up_q, 0.0) + np.append(0.0, up_q)
    squares = np.append(p - up_p, 0.0) + np.append(0.0, up_p)
    far = np.linspace(start, end, _LARGE_CELLS) if start < end else np.array([start])
    large = Cells(_masses(np.append(far, math.inf), shift), _masses(np.append(far, math.inf), 0.0), _losses(far, shift))
    share = small / small.sum()
    place: Floats = width * np.arange(cells + 1, dtype=np.float64)
    std = math.sqrt(float(share @ (place - float(share @ place)) ** 2))
    reaches = _reach(-place, small, steps), _reach(place, small, steps)
    large_q, large_p = float(special.ndtr(-start)), float(special.ndtr(shift - start))
    most = _count_large(steps, large_q, tail) if start < end else 0
    return _Model(width, steps, small, squares, reaches, std, large, large_p, float(special.ndtr(shift - end)), most)


def _losses(x: Floats, shift: float) -> Floats:
    return np.append(shift * x - shift**2 / 2, math.inf)


def _count_large(steps: int, chance: float, tail: float) -> int:
    """Beyond this many large Y the probability is negligible, with the example (perhaps one of them) or without."""
    count = 1
    while count < steps and float(scipy.stats.binom.sf(count - 1, steps, chance)) > 0.1 * tail:
        count += 1
    return min(count, steps)


def _masses(x: Floats, shift: float) -> Floats:
    """The mass of a normal law around `shift` between consecutive x, each from the accurate side."""
    above, below = special.ndtr(shift - x), special.ndtr(x - shift)
    return np.asarray(np.maximum(np.where(x[:-1] > shift, above[:-1] - above[1:], below[1:] - below[:-1]), 0.0))


def _tilts(std: float, largest: float) -> list[float]:
    return [max(min(place / std, _MOST_TILT / largest), -_PLACES[-1] / std) for place in _PLACES]


def _reach(values: Floats, mass: Floats, terms: int) -> float:
    """How far the sum is from its mean with probability below `_BEYOND`, under every tilt that is used."""
    share = mass / mass.sum()
    centred = values - float(share @ values)
    std = math.sqrt(float(share @ centred**2))
    tilt = max(_tilts(std * math.sqrt(terms), float(np.abs(values).max())))
    orders = np.append(tilt, tilt + _STEEPER / (std * math.sqrt(terms)))
    logs = terms * np.log(np.exp(np.minimum(orders[:, None] * centred, 690.0)) @ share)
    bound = float(np.min((logs[1:] - logs[0] - math.log(_BEYOND)) / (orders[1:] - tilt)))
    return min(bound, terms * float(centred.max()))


def _total(
    width: float, first: int, count: int, parts: list[tuple[Floats, int]], tilts: list[float]
) -> tuple[Floats, Floats]:
    """The mass of a sum of independent lattice variables at `count` points from `first` on, with an error bound."""
    best, error = np.zeros(count), np.full(count, np.inf)
    terms = sum(times for _, times in parts)
    place = width * np.arange(first, first + count)
    for tilt in tilts:
        log_scale, log_modulus, log_value = 0.0, np.zeros(count // 2 + 1), np.zeros(count // 2 + 1, dtype=complex)
        for mass, times in parts:
            if not times:
                continue
            tilted = mass * np.exp(tilt * width * np.arange(mass.size))
            scale = float(tilted.sum())
            transform = fft.rfft(tilted / scale, count)
            log_value += times * np.log(np.where(transform == 0, 1e-300, transform))
            log_scale += times * math.log(scale)
        log_modulus = log_value.real
        product = np.where(log_modulus > -80, np.exp(np.where(log_modulus > -80, log_value, 0)), 0)
        doubt = _ROUNDING * (terms + 64) * 2 * float(np.abs(product).sum()) / count + _BEYOND
        values = np.roll(fft.irfft(product, count), -(first % count))
        back = np.exp(np.clip(log_scale - tilt * place, -700, 600))
        wrong = (doubt + _ROUNDING * terms * np.abs(values)) * back
        best = np.where(wrong < error, values * back, best)
        error = np.minimum(wrong, error)
    return best, error


def _thin_values(values: Floats, masses: Floats, kind: Kind, size: int = _JOINED) -> tuple[Floats, Floats]:
    """Fewer values, larger (upper) or smaller (lower) in the convex order; zero stays."""
    real = values > 0
    atoms = thin(LossAtoms(np.log(values[real]), values[real] * masses[real], masses[real]), kind, size)
    kept = np.exp(atoms.loss), atoms.q
    if real.all():
        return kept
    return np.append(kept[0], 0.0), np.append(kept[1], masses[~real].sum())


def _add_values(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """The sum of two independent variables."""
    return np.add.outer(one[0], other[0]).ravel(), np.multiply.outer(one[1], other[1]).ravel()
