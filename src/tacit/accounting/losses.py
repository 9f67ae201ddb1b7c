"""Privacy losses as finite lists of atoms that provably dominate the true pair, or are dominated by it.

A mechanism's worst pair (P with the example, Q without it) matters only through the likelihood
ratio. Cut the outcomes into cells. Merging each cell to one outcome is post-processing: a lower
bound. Splitting each cell's mass onto the two extreme ratios of the cell, keeping its mass under
P and under Q, spreads the ratio: an upper bound. Both err to second order in the cell width, and
neither needs the cells to lie on a lattice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from tacit.accounting.densities import Density, Floats, GaussianDensity
from tacit.accounting.mixture import GaussianMixture, Tilted

Kind = Literal["lower", "estimate", "upper"]

# Relative distances from the focus at which cells are cut.
_NEAR = np.geomspace(1e-5, 0.5, 160)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, eq=False)
class LossAtoms:
    """Atoms of log P/Q: `loss`, their mass under P and under Q; `only_p` and `only_q` live where the other is zero."""

    loss: Floats
    p: Floats
    q: Floats
    only_p: float = 0.0
    only_q: float = 0.0

    def reverse(self) -> LossAtoms:
        """The same pair in the other direction."""
        return LossAtoms(-self.loss, self.q, self.p, self.only_q, self.only_p)

    def tilt(self, c: float) -> Tilted:
        """The masses under P times e^{c loss}, normalised."""
        loss, log_p = self._finite
        weight = c * loss
        weight += log_p
        top = float(weight.max())
        weight -= top
        np.exp(weight, out=weight)
        total = float(weight.sum())
        weight /= total
        return Tilted(weight[None], loss[None], np.array([top + math.log(total)]), np.zeros(1))

    @cached_property
    def _finite(self) -> tuple[Floats, Floats]:
        """The losses that have mass under P, and the logarithm of that mass."""
        keep = self.p > 0
        return self.loss[keep], np.log(self.p[keep])

    def cut(self, threshold: float) -> tuple[LossAtoms | None, LossAtoms | None]:
        """The finite losses up to the threshold, and those above it; None if there are none."""
        real = self.p > 0
        above = self.loss > threshold
        return self._where(real & ~above), self._where(real & above)

    def cap(self, most: float, kind: Kind) -> LossAtoms:
        """Losses above `most` become infinite; a lower bound gives up 1e-15 of their mass for that."""
        low, high = self.cut(most)
        if low is None or high is None:
            return self
        moved = float(high.p.sum()) * (1 - 1e-15 if kind == "lower" else 1.0)
        return LossAtoms(low.loss, low.p, low.q, self.only_p + moved, self.only_q)

    def _where(self, chosen: NDArray[np.bool_]) -> LossAtoms | None:
        return LossAtoms(self.loss[chosen], self.p[chosen], self.q[chosen]) if chosen.any() else None

    @property
    def size(self) -> int:
        """The number of atoms."""
        return self.loss.size

    def delta(self, epsilon: float) -> float:
        """delta(epsilon) of one step."""
        above = self.loss > epsilon
        gain = self.p[above] * -np.expm1(epsilon - self.loss[above])
        return float(gain.sum()) + self.only_p


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of the outcomes into consecutive cells: mass under P and Q, and the loss at the ends of each.

    Cell i reaches from ends[i] to ends[i + 1], and the loss is monotone (up or down) within it.
    """

    p: Floats
    q: Floats
    ends: Floats


def merge(cells: Cells) -> LossAtoms:
    """One atom a cell: dominated by the true pair."""
    # Mass whose partner underflowed is dropped: a lower bound may lose mass, but never gain it.
    keep = (cells.p > 0) & (cells.q > 0)
    low = np.minimum(cells.ends[:-1], cells.ends[1:])[keep]
    high = np.maximum(cells.ends[:-1], cells.ends[1:])[keep]
    p, q = cells.p[keep], cells.q[keep]
    return LossAtoms(np.clip(np.log(p / q), low, high), p, q)


def split(cells: Cells) -> LossAtoms:
    """Two atoms a cell, at its ends, shared with the neighbours: dominates the true pair."""
    left, right = cells.ends[:-1], cells.ends[1:]
    low, high = np.minimum(left, right), np.maximum(left, right)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Beyond e^700 by logarithms: where q underflowed, all of p may be at the upper end.
        least = np.where(low < 700, cells.q * np.exp(np.minimum(low, 700)), np.exp(np.log(cells.q) + low))
        excess = np.maximum(cells.p - least, 0.0)
        up = np.where(high > low, excess / -np.expm1(low - high), 0.0)
        up = np.clip(np.nan_to_num(up), 0.0, cells.p)
        # Below e^-700 by logarithms too: zero times infinity is NaN.
        beyond = np.where(up > 0, np.exp(np.log(up) - high), 0.0)
        q_up = np.where(high > -700, up * np.exp(np.minimum(-high, 700)), beyond)
    p_down, q_down = cells.p - up, np.maximum(cells.q - q_up, 0.0)
    rising = right >= left
    p, q = np.zeros(cells.ends.size), np.zeros(cells.ends.size)
    p[:-1] += np.where(rising, p_down, up)
    p[1:] += np.where(rising, up, p_down)
    q[:-1] += np.where(rising, q_down, q_up)
    q[1:] += np.where(rising, q_up, q_down)
    above, below = np.isposinf(cells.ends), np.isneginf(cells.ends)
    finite = ~(above | below)
    return LossAtoms(cells.ends[finite], p[finite], q[finite], float(p[above].sum()), float(q[below].sum()))


def sample_removal(atoms: LossAtoms, rate: float) -> LossAtoms:
    """The pair ((1-rate) Q + rate P, Q): the example takes part with probability `rate`."""
    loss = _sampled_loss(atoms.loss, rate)
    p = rate * atoms.p + (1 - rate) * atoms.q
    if rate == 1 or atoms.only_q == 0:
        return LossAtoms(loss, p, atoms.q, rate * atoms.only_p, atoms.only_q if rate == 1 else 0.0)
    return LossAtoms(
        np.append(loss, math.log1p(-rate)),
        np.append(p, (1 - rate) * atoms.only_q),
        np.append(atoms.q, atoms.only_q),
        rate * atoms.only_p,
    )


def sample_with_coin(atoms: LossAtoms, rate: float) -> LossAtoms:
    """Replace-one under Poisson sampling, with the coin revealed: with probability 1-rate nothing differs.

    Valid by joint convexity (the true pair is a function of this one); not the tightest.
    """
    return LossAtoms(
        np.append(atoms.loss, 0.0),
        np.append(rate * atoms.p, 1 - rate),
        np.append(rate * atoms.q, 1 - rate),
        rate * atoms.only_p,
        rate * atoms.only_q,
    )


def _sampled_loss(loss: Floats, rate: float) -> Floats:
    """log(1 - rate + rate e^loss), without overflow or cancellation."""
    if rate == 1:
        return loss
    small = np.log1p(rate * np.expm1(np.minimum(loss, 500.0)))
    large = math.log(rate) + loss + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, 500.0)))
    return np.where(loss > 500, large, small)


def _either(a: float, b: float) -> float:
    """The probability of at least one of two independent events, accurate for tiny ones."""
    return a + b - a * b


def convolve(first: LossAtoms, second: LossAtoms, kind: Kind, size: int) -> LossAtoms:
    """Atoms of the composition of two pairs, cut back to about `size` atoms on the side of `kind`."""
    product = LossAtoms(
        np.add.outer(first.loss, second.loss).ravel(),
        np.multiply.outer(first.p, second.p).ravel(),
        np.multiply.outer(first.q, second.q).ravel(),
        _either(first.only_p, second.only_p),
        _either(first.only_q, second.only_q),
    )
    return thin(product, kind, size)


def convolve_power(atoms: LossAtoms, times: int, kind: Kind, size: int) -> LossAtoms:
    """`times`-fold composition by repeated doubling."""
    result = _power(atoms, times, lambda first, second: convolve(first, second, kind, size), math.inf)
    assert result is not None
    return result


def exact_power(atoms: LossAtoms, times: int, kind: Kind, most: int = 4000) -> LossAtoms | None:
    """`times`-fold composition atom by atom if it has at most `most` different losses, as for randomized response."""
    return _power(atoms, times, lambda first, second: exact_product(first, second, kind), most)


def _power(
    atoms: LossAtoms, times: int, product: Callable[[LossAtoms, LossAtoms], LossAtoms], most: float
) -> LossAtoms | None:
    """`times`-fold product by repeated doubling; None if there are more than `most` atoms."""
    result: LossAtoms | None = None
    while times:
        if times & 1:
            result = atoms if result is None else product(result, atoms)
        times >>= 1
        if times:
            atoms = product(atoms, atoms)
        if max(atoms.loss.size, result.loss.size if result is not None else 0) > most:
            return None
    return result


def exact_product(first: LossAtoms, second: LossAtoms, kind: Kind) -> LossAtoms:
    """All pairs of atoms; losses that differ only by rounding are merged on the safe side."""
    loss = np.add.outer(first.loss, second.loss).ravel()
    order = np.argsort(loss)
    loss = loss[order]
    starts = np.concatenate([[True], np.diff(loss) > 1e-12 * (1 + np.abs(loss[1:]))])
    first_of = np.flatnonzero(starts)
    last_of = np.append(first_of[1:] - 1, loss.size - 1)
    p = np.add.reduceat(np.multiply.outer(first.p, second.p).ravel()[order], first_of)
    q = np.add.reduceat(np.multiply.outer(first.q, second.q).ravel()[order], first_of)
    return LossAtoms(
        loss[last_of] if kind == "upper" else loss[first_of],
        p,
        q,
        _either(first.only_p, second.only_p),
        _either(first.only_q, second.only_q),
    )


def thin(atoms: LossAtoms, kind: Kind, size: int) -> LossAtoms:
    """At most about `size` atoms: neighbours merged (lower, estimate) or spread onto cell ends (upper).

    Cells are narrow where P or Q has mass and wide in the far tails. No mass is dropped.
    """
    if atoms.loss.size <= size:
        return atoms
    edges = _edges(atoms, size)
    count = edges.size - 1
    cell = np.clip(np.searchsorted(edges, atoms.loss, side="right") - 1, 0, count - 1)
    if kind == "upper":
        low, high = edges[cell], edges[cell + 1]
        share = np.clip(np.expm1(low - atoms.loss) / np.expm1(low - high), 0.0, 1.0)
        up_p = atoms.p * share
        up_q = np.minimum(up_p * np.exp(-high), atoms.q)
        p = _gather(cell, atoms.p - up_p, count + 1) + _gather(cell + 1, up_p, count + 1)
        q = _gather(cell, atoms.q - up_q, count + 1) + _gather(cell + 1, up_q, count + 1)
        return LossAtoms(edges, p, q, atoms.only_p, atoms.only_q)
    p, q = _gather(cell, atoms.p, count), _gather(cell, atoms.q, count)
    keep = (p > 0) & (q > 0)
    # A cell whose mass underflowed on one side is dropped on both, which can only reduce the loss.
    loss = np.clip(np.log(p[keep] / q[keep]), edges[:-1][keep], edges[1:][keep])
    return LossAtoms(loss, p[keep], q[keep], atoms.only_p, atoms.only_q)


def _gather(cell: NDArray[np.intp], mass: Floats, count: int) -> Floats:
    """The mass that falls into each cell."""
    return np.bincount(cell, mass, count).astype(np.float64)


def _edges(atoms: LossAtoms, size: int) -> Floats:
    """Cell ends: evenly spaced where P or Q has mass, a few beyond, and the extremes."""
    first, last = float(atoms.loss.min()), float(atoms.loss.max())
    scan = 8192
    slot = np.minimum(((atoms.loss - first) * (scan / max(last - first, 1e-300))).astype(int), scan - 1)
    pieces = [np.array([first, last]), np.linspace(first, last, size // 8)]
    for mass in (atoms.p, atoms.q):
        ahead = np.cumsum(_gather(slot, mass, scan))
        low, high = np.searchsorted(ahead, [1e-16, ahead[-1] * (1 - 1e-13)])
        ends = first + (last - first) / scan * np.array([low, high + 1])
        pieces.append(np.linspace(ends[0], min(ends[1], last), max(7 * size // 16, 8)))
    return np.unique(np.concatenate(pieces))


@lru_cache(maxsize=256)
def density_atoms(density: Density, shift: float, kind: Kind, tail: float, size: int) -> LossAtoms:
    """Atoms for noise of `density` on a value that one example moves by `shift`.

    `tail` is the mass that may be outside the finite cells on each side.
    """
    if shift == 0:
        return LossAtoms(np.zeros(1), np.ones(1), np.ones(1))
    if kind == "estimate":
        # Gauss-Legendre panels between the cell ends: not a bound, but accurate to about 1e-13.
        x, weight = _panels(_grid(density, shift, tail, max(size // 8, 40)))
        p, q = density.log_density(x - shift), density.log_density(x)
        return LossAtoms(density.loss(x, shift), weight * np.exp(p), weight * np.exp(q))
    # Cells on the line for z(x - shift) against z(x); the loss is monotone within each.
    x, limit = _grid(density, shift, tail, size), density.loss_limit(shift)
    ends = np.concatenate([[-limit], density.loss(x, shift), [limit]])
    cells = Cells(_masses(density, x - shift), _masses(density, x), ends)
    return merge(cells) if kind == "lower" else split(cells)


def _masses(density: Density, x: Floats) -> Floats:
    """Mass of the cells cut by x, outer cells included, each computed from the accurate side."""
    above, below = density.survival(x), density.survival(-x)
    inner = np.where(x[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.asarray(np.maximum(np.concatenate([below[:1], inner, above[-1:]]), 0.0))


def _grid(density: Density, shift: float, tail: float, size: int) -> Floats:
    reach = _reach(density, tail)
    turns = density.loss_turns(shift)
    scale = density.typical_scale
    spread = math.asinh(reach / (4 * scale))
    centre = shift / 2
    half = spread + math.asinh(shift / (8 * scale))
    points = centre + 4 * scale * np.sinh(np.linspace(-half, half, size))
    return np.unique(np.concatenate([points, np.array(turns, dtype=float)]))


def _reach(density: Density, tail: float) -> float:
    """A point beyond which the noise has at most mass `tail` (capped: bounded losses need no far tails)."""
    low, high = 0.0, density.typical_scale
    bounded = math.isfinite(density.loss_limit(1.0))
    cap = (1e6 if bounded else 1e9) * density.typical_scale
    while high < cap and float(density.survival(np.array([high]))[0]) > tail:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if float(density.survival(np.array([middle]))[0]) > tail:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=64)
def replaced_atoms(shift: float, rate: float, kind: Kind, tail: float, size: int) -> LossAtoms:
    """Atoms for a Poisson lot in which one example points the other way: N(+-shift/2, 1) with probability rate.

    Contributions of at most half the replace-one sensitivity attain this pair, so merged atoms are a lower bound. It is
    not proven to be the worst pair.
    """
    reach = -float(special.ndtri(tail)) + shift / 2
    x = np.linspace(-reach, reach, size)
    up, down = _tilts(x, shift, rate)
    if kind == "estimate":
        x, weight = _panels(np.linspace(-reach, reach, max(size // 8, 24)))
        up, down = _tilts(x, shift, rate)
        base = weight * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
        return LossAtoms(up - down, base * np.exp(up), base * np.exp(down))
    noise = GaussianDensity()
    middle = (1 - rate) * _masses(noise, x)
    p = middle + rate * _masses(noise, x - shift / 2)
    q = middle + rate * _masses(noise, x + shift / 2)
    return merge(Cells(p, q, np.concatenate([[-math.inf], up - down, [math.inf]])))


def _tilts(x: Floats, shift: float, rate: float) -> tuple[Floats, Floats]:
    """log((1-rate) + rate e^{+-shift x / 2 - shift^2 / 8})."""
    centre = shift**2 / 8
    return _sampled_loss(shift * x / 2 - centre, rate), _sampled_loss(-shift * x / 2 - centre, rate)


@lru_cache(maxsize=256)
def mixture_atoms(mixture: GaussianMixture, kind: Kind, tail: float, size: int, focus: float = 0.0) -> LossAtoms:
    """Atoms for a Poisson-sampled Gaussian: bounds where the closed form is not available.

    Cells near the loss `focus` are fine: if one rare step makes up delta(epsilon), the whole error comes from the cell
    that contains epsilon.
    """
    reach = -float(special.ndtri(tail))
    x = np.linspace(-reach, reach + mixture.most * mixture.shift, size)
    if focus > 0 and mixture.most == 1:
        losses = focus * (1 + np.concatenate([-_NEAR, [0.0], _NEAR]))
        near = mixture.position(losses)
        x = np.unique(np.concatenate([x, near[(near > x[0]) & (near < x[-1])]]))
    if kind == "estimate":
        x, weight = _panels(np.linspace(x[0], x[-1], max(size // 8, 24)))
        ratio = mixture.log_ratio(x)
        weight = weight / math.sqrt(2 * math.pi)
        atoms = LossAtoms(ratio, weight * np.exp(ratio - x**2 / 2), weight * np.exp(-(x**2) / 2))
        return atoms.reverse() if mixture.added else atoms
    noise = GaussianDensity()
    p = sum(w * _masses(noise, x - j * mixture.shift) for j, w in enumerate(mixture.weights))
    # The far cells count as infinite losses: a finite rare one, tilted, would dominate all others.
    ends = np.concatenate([[-math.inf], mixture.log_ratio(x), [math.inf]])
    cells = Cells(np.asarray(p), _masses(noise, x), ends)
    atoms = merge(cells) if kind == "lower" else split(cells)
    return atoms.reverse() if mixture.added else atoms


def _panels(ends: Floats) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss-Legendre quadrature between consecutive ends."""
    middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
    x = (middle[:, None] + half[:, None] * _PANEL_NODES).ravel()
    return x, (half[:, None] * _PANEL_WEIGHTS).ravel()
