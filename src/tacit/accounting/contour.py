"""delta(epsilon) of a composition as a contour integral, with every error term bounded.

With M(z) = E_P[exp(z L)] of the total loss L,

    delta(eps) = (1 / 2 pi i) * integral over Re z = c of M(z) e^{-z eps} / (z (z + 1)) dz,

and composition multiplies the M of the steps, whatever their kind. Three facts turn the
trapezoidal sum with spacing 2 pi / P into certified bounds:

1. Aliasing is exact and positive: the endless sum equals the sum over all integers m of
   delta(eps + m P) e^{c m P} (Poisson summation). It errs upwards, and Chernoff bounds say by how much.
2. Truncation: where the loss is known in closed form the integrand is proven to have died out;
   elsewhere compose with one more Gaussian mechanism of tiny parameter eta. That can only raise
   delta, and it makes the integrand fall like exp(-eta^2 t^2 / 2).
3. What eta costs is known: the rise of the hockey stick (1 - e^{-u})_+ under it is the integral over
   s in (0, eta) of phi(u/s) e^{-s^2/8 - u/2} (the vega of an option price), at most
   eta phi(u/eta) e^{-u/2}, whose transform is eta^2 e^{eta^2 (z + 1/2)^2 / 2}. Subtracting it gives
   the lower bound; subtracting half of it an estimate that is right to fourth order in eta.

The line passes near the saddle point, so a delta of 1e-15 has the same relative accuracy as one of 0.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.composition import Composition, Measure, chernoff_bound
from tacit.accounting.jumps import separate
from tacit.accounting.losses import Kind

# Aliases and what lies beyond the last node are kept below e^-this of delta; or below this share of the tolerance.
_LOG_SMALL = 23.0
_SHARE_OF_TOLERANCE = 1e-3
# Below e^this, delta counts as 0, and the line is not moved any further.
_NOTHING = -700.0
# With more smoothing than this eta, the lower bound is 0.
_MOST_ETA = 70.0
# Most complex multiplications for one line: without smoothing, and with it; and for a smoothed one of a search.
_WORK = 1e8
_FIRST_WORK = 8e6
_MOST_WORK = 6e8


# How much larger (in logarithms) the integrand may be than at the saddle.
_LOSS = 1.5
# During the search, smoothing may move epsilon by this fraction.
SEARCH_TOLERANCE = 1e-4
# A step is a jump if its loss exceeds one of these multiples of epsilon; infinity means no jumps.
JUMPS = (3.0, 0.4, 0.14)
# Bounds of delta that differ by less than this many tolerances need no better lines.
_ENOUGH = 20.0
_LONG = 12_000.0

# Pairs (a, b): delta(x) is at most e^{b - a x}.
Ceilings = tuple[tuple[float, float], ...]


def saddle(measure: Measure, epsilon: float, start: float = 1.0, most: float = 1e9) -> float:
    """The c > 0 that nearly minimises M(c) e^{-c eps} / (c (c + 1)), a convex problem."""
    low, high = 1e-7, min(most, 1e9)
    c = min(start, 0.5 * high)
    for _ in range(100):
        value, slope, curvature = measure.cumulants(c)
        if value - c * epsilon < _NOTHING:
            return c
        gradient = slope - epsilon - 1 / c - 1 / (c + 1)
        if gradient > 0:
            high = c
        else:
            low = c
        step = c - gradient / (curvature + 1 / c**2 + 1 / (c + 1) ** 2)
        step = min(max(step, c / 8), 8 * c)
        after = step if low < step < high else math.sqrt(low * high)
        if (abs(after - c) <= 0.05 * c and abs((after - c) * gradient) < 0.5) or high < low * (1 + 1e-9):
            return after
        c = after
    return c


def saddle_epsilon(measure: Measure, c: float) -> float:
    """The epsilon whose saddle is c."""
    return measure.cumulants(c)[1] - 1 / c - 1 / (c + 1)


def saddle_log_delta(measure: Measure, c: float, epsilon: float) -> float:
    """The saddle-point formula for log delta(epsilon) with saddle c: an estimate without a bound."""
    value, _, curvature = measure.cumulants(c)
    width = curvature + 1 / c**2 + 1 / (c + 1) ** 2
    return value - c * epsilon - math.log(c * (c + 1)) - 0.5 * math.log(2 * math.pi * width)


def saddle_for_delta(measure: Measure, log_delta: float, most: float = 1e9) -> float:
    """The approximate c (at most `most`) at which the saddle-point formula gives `log_delta`."""

    def excess(log_c: float) -> float:
        c = math.exp(log_c)
        return saddle_log_delta(measure, c, saddle_epsilon(measure, c)) - log_delta

    ceiling = math.log(min(most, 1e9))
    low, high = -3.0, min(3.0, ceiling)
    while (at_low := excess(low)) <= 0:
        low, high = low - 3, low
        if low < -18:
            return math.exp(high)
    while (at_high := excess(high)) >= 0:
        if high >= ceiling:
            return math.exp(high)
        low, at_low, high = high, at_high, min(high + 3, ceiling)
    # False position: where losses jump, a little of c changes delta by many powers of ten.
    for _ in range(60):
        middle = low + (high - low) * min(max(at_low / (at_low - at_high), 0.05), 0.95)
        found = excess(middle)
        if abs(found) < 0.2 or high - low < 1e-9:
            break
        if found > 0:
            low, at_low, at_high = middle, found, at_high / 2
        else:
            high, at_high, at_low = middle, found, at_low / 2
    return math.exp(middle)


def left_of(measure: Measure, c: float, epsilon: float, log_delta: float, small: float = _LOG_SMALL) -> float:
    """Where the line is drawn: a little left of the saddle c, where fewer nodes suffice and M is hardly larger.

    Where rare large losses make up M(c), the aliases of the right side set the period; further left they are smaller.
    """
    value, _, curvature = measure.cumulants(c)
    first = c - min(0.15 * c, 0.75 / math.sqrt(max(curvature, 1e-300)))
    most = value - c * epsilon - math.log(c * (c + 1)) + _LOSS
    best, period = first, _periods(measure, first, epsilon, log_delta, small)
    for place in (0.7 * c, 0.5 * c, 0.35 * c):
        if period[1] < 1.2 * period[0] or place >= best:
            break
        if measure.cumulants(place)[0] - place * epsilon - math.log(place * (place + 1)) > most:
            break
        other = _periods(measure, place, epsilon, log_delta, small)
        if max(other) > 0.9 * max(period):
            break
        best, period = place, other
    return best


@dataclass(frozen=True, eq=False)
class Line:
    """One vertical line with its nodes. It gives delta(epsilon) for epsilon near the one it was drawn for.

    `smoothing` is roughly how far eta moves epsilon.
    """

    c: float
    spacing: float
    last: float
    places: NDArray[np.int64]
    transform: NDArray[np.complex128]
    bump: NDArray[np.complex128]
    log_scale: float
    doubt: float
    doubt_bump: float
    ceilings: Ceilings
    mass: float
    smoothing: float

    def delta_and_slope(self, epsilon: float, kind: Kind) -> tuple[float, float]:
        """delta and roughly its derivative. Not clipped, because the lines of a composition are added."""
        wave = self._turn(epsilon)
        scale = math.exp(min(self.log_scale - self.c * epsilon, 700.0)) * self.spacing / math.pi
        terms = self.transform * wave
        smooth = scale * float(terms.sum().real)
        # By einsum: a product would wake the threads of BLAS, which costs more than so short a sum.
        slope = scale * self.spacing * float(np.einsum("i,i", terms.imag, self.places)) - self.c * smooth
        if kind == "upper":
            return max(smooth + scale * self.doubt, 0.0), slope
        lost = scale * float(np.einsum("i,i", self.bump, wave).real) if self.smoothing else 0.0
        if kind == "estimate":
            return max(smooth - lost / 2, 0.0), slope
        below = smooth - lost - scale * (self.doubt + self.doubt_bump) - self.aliases(epsilon)
        # NaN where there is no lower bound.
        return below if below > 0 else 0.0, slope

    def _turn(self, epsilon: float) -> NDArray[np.complex128]:
        """e^{-i t epsilon} at the nodes: products of two short tables, ten times as fast as exponentials."""
        last = int(self.places[-1])
        stride = math.isqrt(last) + 1
        angle = self.spacing * epsilon
        fine = np.exp(-1j * (angle * np.arange(stride)))
        coarse = np.exp(-1j * (angle * stride * np.arange(last // stride + 1)))
        turns: NDArray[np.complex128] = (coarse[:, None] * fine).reshape(-1)
        return turns[: last + 1] if len(self.places) == last + 1 else turns[self.places]

    def aliases(self, epsilon: float) -> float:
        """Upper bound of the sum over m != 0 of delta(eps + m P) e^{c m P}."""
        period = 2 * math.pi / self.spacing
        behind = self.mass * math.exp(-self.c * period) / -math.expm1(-self.c * period)
        ahead = math.inf
        for a, log_bound in self.ceilings:
            gap = (a - self.c) * period
            ahead = min(ahead, math.exp(min(log_bound - a * epsilon - gap, 700.0)) / -math.expm1(-gap))
        return behind + ahead


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines whose deltas add up, and the probability of an infinite loss.

    Jumps above share * epsilon have a line of their own.
    """

    parts: tuple[Line, ...]
    infinite: float
    share: float

    @property
    def scale(self) -> float:
        """Roughly how far epsilon may move before other lines would be better."""
        return max(1 / line.c for line in self.parts)

    @property
    def smoothing(self) -> float:
        """Roughly how far smoothing moves epsilon at most."""
        return max(line.smoothing for line in self.parts)

    def delta(self, epsilon: float, kind: Kind) -> float:
        """delta(epsilon) on the side of `kind`, between 0 and 1."""
        return self.delta_and_slope(epsilon, kind)[0]

    def delta_and_slope(self, epsilon: float, kind: Kind) -> tuple[float, float]:
        """The same with (roughly) its derivative."""
        found = [line.delta_and_slope(epsilon, kind) for line in self.parts]
        return min(sum(value for value, _ in found) + self.infinite, 1.0), sum(slope for _, slope in found)

    def doubt(self, epsilon: float) -> float:
        """The width of the bounds at epsilon, relative to the estimate."""
        value = self.delta(epsilon, "estimate")
        width = self.delta(epsilon, "upper") - self.delta(epsilon, "lower")
        return width / value if value > 0 else math.inf


def draw_line(
    measure: Measure, c: float, epsilon: float, log_delta: float, tolerance: float, small: float = _LOG_SMALL
) -> Line:
    """The line Re z = c, with as little smoothing as `tolerance` requires or the work limit allows."""
    line = try_line(measure, c, epsilon, log_delta, tolerance, small=small, strict=False)
    assert line is not None
    return line


def try_line(
    measure: Measure,
    c: float,
    epsilon: float,
    log_delta: float,
    tolerance: float,
    *,
    small: float = _LOG_SMALL,
    strict: bool = True,
) -> Line | None:
    """The line Re z = c, for epsilon near the one whose saddle is near c.

    `log_delta` estimates log delta(epsilon); with `small` it sets the period and so the size of the aliases. Necessary
    smoothing moves epsilon by about the fraction `tolerance`, or more if that costs too much; with `strict`, None
    instead.
    """
    value, _, curvature = measure.cumulants(c)
    log_scale = value - c * epsilon
    log_delta = min(log_delta, log_scale)
    spacing = 2 * math.pi / max(_periods(measure, c, epsilon, log_delta, small))
    wanted = log_scale - log_delta + small
    most_eta = math.sqrt(2 * tolerance * max(epsilon, 1e-3 / c) / (c + 1))
    t = max(min(1 / math.sqrt(max(curvature, 1e-300)), 1 / most_eta) * math.sqrt(2 * wanted), 2 * spacing)
    t, eta = _find_end(measure, c, t, wanted, most_eta)
    # A smoothed line of a search is the first step to one that is many times as long.
    is_first = eta > 0 and tolerance > 0.1 * SEARCH_TOLERANCE
    most_work = _MOST_WORK if not strict else _FIRST_WORK if is_first else _WORK
    while t > 2 * spacing and measure.work(c, spacing, int(t / spacing) + 1) > most_work:
        if strict:
            return None
        t *= 0.8
        eta = _least_eta(measure, c, t, wanted)
    fallen = measure.log_decay(c, t) - 0.5 * (eta * t) ** 2
    return _evaluate(measure, c, eta, spacing, (t, fallen), _ceilings(measure, c, eta))


def redraw_line(measure: Measure, line: Line) -> Line | None:
    """The same line for another measure, nearly the one it was drawn for; None if it was smoothed."""
    if line.smoothing > 0:
        return None
    ceilings = tuple(chernoff_bound(measure, a, 0.0) for a, _ in line.ceilings)
    end = (line.last, measure.log_decay(line.c, line.last))
    return _evaluate(measure, line.c, 0.0, line.spacing, end, ceilings)


def _find_end(measure: Measure, c: float, t: float, wanted: float, most_eta: float) -> tuple[float, float]:
    """The first of t, 1.2 t, 1.2^2 t, ... with little enough smoothing, and that smoothing: by ever longer steps.

    Then the end is moved back to where that much smoothing is just enough, if that much is allowed.
    """
    eta = _least_eta(measure, c, t, wanted)
    if eta <= most_eta:
        return t, eta
    low, high = 0, 1
    while (eta := _least_eta(measure, c, t * 1.2**high, wanted)) > most_eta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        found = _least_eta(measure, c, t * 1.2**middle, wanted)
        if found > most_eta:
            low = middle
        else:
            high, eta = middle, found
    end = t * 1.2**high
    sooner = end * eta / most_eta
    if 0 < eta < most_eta and (found := _least_eta(measure, c, sooner, wanted)) <= most_eta * (1 + 1e-9):
        return sooner, found
    return end, eta


def _least_eta(measure: Measure, c: float, t: float, wanted: float) -> float:
    """The smoothing with which the integrand has fallen by `wanted` (in logarithms) at t, if it needs any."""
    missing = wanted + measure.log_decay(c, t)
    # Without smoothing the kernel 1 / (z (z + 1)) makes the rest smaller; what smoothing costs has no such kernel.
    return 0.0 if missing <= math.log(math.pi * t) else math.sqrt(2 * missing) / t


def _periods(
    measure: Measure, c: float, epsilon: float, log_delta: float, small: float = _LOG_SMALL
) -> tuple[float, float]:
    """The periods with which aliases from the left, and from the right, are below e^-small of delta."""
    behind = (small - log_delta + math.log(measure.mass())) / c
    ahead = min((b - a * epsilon - log_delta + small) / (a - c) for a, b in _ceilings(measure, c, 0.0))
    return max(behind, 4.0 / c), ahead


def _ceilings(measure: Measure, c: float, eta: float) -> Ceilings:
    """Chernoff bounds to the right of c: for a Gaussian, the best is a few standard deviations away."""
    spread = math.sqrt(max(measure.cumulants(c)[2], 0.0) + 1 / c**2)
    return tuple(chernoff_bound(measure, c + share / spread, eta) for share in (0.5, 1.0, 2.0, 4.0, 8.0, 14.0))


def _evaluate(
    measure: Measure, c: float, eta: float, spacing: float, end: tuple[float, float], ceilings: Ceilings
) -> Line:
    count = int(end[0] / spacing) + 1
    nodes = spacing * np.arange(count)
    moments = measure.moments(c, spacing, count)
    # z (z + 1) - c (c + 1) = -t^2 + i t (2 c + 1)
    values = moments.values * np.exp(0.5 * eta**2 * (1j * nodes * (2 * c + 1) - nodes**2))
    values[0] *= 0.5
    kernel = 1 / ((c + 1j * nodes) * (c + 1 + 1j * nodes))
    # eta^2 e^{eta^2 (z + 1/2)^2 / 2} differs from eta^2 e^{eta^2 (z^2 + z) / 2} by e^{eta^2 / 8}.
    height = eta**2 * math.exp(min(eta, _MOST_ETA) ** 2 / 8)
    sizes = np.abs(values)
    doubts = moments.doubts * np.exp(-0.5 * (eta * nodes) ** 2)
    # Negligible nodes are dropped; their weight is added to the error.
    reach = sizes * (np.abs(kernel) + height)
    keep = reach > 1e-19 * float(reach.max())
    doubts[~keep] += sizes[~keep]
    cut, cut_bump = _cut_off(measure, eta, spacing, end)
    bump_doubt = height * float(doubts.sum()) + height * cut_bump if eta <= _MOST_ETA else math.inf
    doubt = float(np.einsum("i,i", doubts, np.abs(kernel))) + cut
    values, kernel = values[keep], kernel[keep]
    return Line(
        c=c,
        spacing=spacing,
        last=end[0],
        places=np.flatnonzero(keep),
        transform=values * kernel,
        bump=values * height,
        log_scale=moments.log_scale + 0.5 * eta**2 * c * (c + 1),
        doubt=doubt,
        doubt_bump=bump_doubt,
        ceilings=ceilings,
        mass=measure.mass(),
        smoothing=0.5 * eta**2 * (c + 1),
    )


def _cut_off(measure: Measure, eta: float, spacing: float, end: tuple[float, float]) -> tuple[float, float]:
    """Upper bounds of what nodes beyond the last one add, to the transform and to the bump per unit of height.

    There 1 / t^2 sums to at most 2 / last, and e^{-g t^2 / 2} to 1 + 1 / (g last spacing).
    """
    last, log_fallen = end
    beyond = math.exp(max(log_fallen, -700.0))
    bump = beyond * (1 + 1 / ((eta**2 + measure.mu**2) * last * spacing)) if eta > 0 else 0.0
    return 2 * beyond / (last * spacing) + beyond / last, bump


def search_epsilon(composition: Composition, delta: float) -> tuple[float, float, float]:
    """Estimates of the saddle, the epsilon of `delta`, and the best threshold for jumps."""
    target = math.log(delta)
    c = saddle_for_delta(composition, target)
    epsilon = max(saddle_epsilon(composition, c), 0.0)
    for _ in range(30):
        order = order_shares(composition, c, epsilon, target, SEARCH_TOLERANCE)
        lines = draw_lines(composition, c, epsilon, target, SEARCH_TOLERANCE, order)
        found = follow_lines(lines, epsilon, delta, "estimate")
        near = abs(found - epsilon) <= 0.1 * found + 0.5 / c
        # Far from its epsilon, a line shows only aliases: approach the root in stages.
        epsilon = found if near else min(max(found, epsilon / 8), 8 * epsilon + 8 / c)
        c = saddle(composition, epsilon, c)
        if near:
            break
    order = order_shares(composition, c, epsilon, target, SEARCH_TOLERANCE)
    return c, epsilon, draw_lines(composition, c, epsilon, target, SEARCH_TOLERANCE, order).share


def draw_lines(
    composition: Composition,
    c: float,
    epsilon: float,
    log_delta: float,
    tolerance: float,
    order: tuple[float, ...],
) -> Lines:
    """Lines near epsilon by the first share in `order` (see `JUMPS`) that is good enough, or by the best."""
    best: Lines | None = None
    for share in order:
        lines = _draw_apart(composition, c, epsilon, log_delta, tolerance, share)
        if lines is None:
            continue
        if best is None or lines.doubt(epsilon) < best.doubt(epsilon):
            best = lines
        if best.doubt(epsilon) < _ENOUGH * tolerance:
            break
    if best is None:
        best = _draw_apart(composition, c, epsilon, log_delta, tolerance, math.inf)
        assert best is not None
    return best


def _draw_apart(
    composition: Composition, c: float, epsilon: float, log_delta: float, tolerance: float, share: float
) -> Lines | None:
    """Two lines, for the core and for the jumps above share * epsilon; one line if the share is infinite."""
    measures: tuple[Measure, ...] = (composition,)
    if math.isfinite(share):
        apart = separate(composition, share * epsilon)
        if apart is None:
            return None
        measures = apart
    # Atoms alone never die out, so their lines are smoothed, which costs more than a share of the tolerance.
    small = _LOG_SMALL if composition.mu > 0 else min(_LOG_SMALL, -math.log(_SHARE_OF_TOLERANCE * tolerance))
    lines = []
    for measure in measures:
        place = c if measure is composition else saddle(measure, epsilon, c)
        left = left_of(measure, place, epsilon, log_delta, small)
        # What smoothing does to epsilon is set by the saddle, wherever the line is.
        finer = tolerance * (left + 1) / (place + 1)
        lines.append(draw_line(measure, left, epsilon, log_delta, finer, small))
    return Lines(tuple(lines), composition.infinite(), share)


def order_shares(
    composition: Composition, c: float, epsilon: float, log_delta: float, tolerance: float
) -> tuple[float, ...]:
    """The order of shares to try: one line first, unless it would be badly conditioned or very long."""
    if epsilon <= 0:
        return (math.inf,)
    log_weight = composition.cumulants(c)[0] - c * epsilon - math.log(c * (c + 1))
    length = (23 - log_delta) / math.sqrt(tolerance * c * max(epsilon, 1e-3 / c))
    uneven = log_weight > log_delta + 4 or length > _LONG
    return (*JUMPS, math.inf) if uneven else (math.inf, *JUMPS)


def follow_lines(lines: Lines, epsilon: float, delta: float, kind: Kind) -> float:
    """Newton's method on log delta along fixed lines, kept within a bracket; 0 if delta(0) is below `delta`."""
    target = math.log(delta)
    low, high = -math.inf, math.inf
    most = 4 * lines.scale
    for _ in range(60):
        value, slope = lines.delta_and_slope(epsilon, kind)
        if value > delta:
            low = epsilon
        else:
            high = epsilon
            if epsilon == 0:
                break
        if 0 < value < 1 and slope < 0:
            step = max(min((math.log(value) - target) * value / -slope, most), -most)
        else:
            step = most if value > delta else -most
        after = max(epsilon + step, 0.0)
        if not low < after < high:
            if math.isinf(low) or math.isinf(high):
                return epsilon
            after = (low + high) / 2
        if abs(after - epsilon) <= 1e-13 * max(epsilon, 1e-3 * lines.scale):
            return after
        epsilon = after
    return epsilon


def settle_epsilon(lines: Lines, start: float, delta: float, kind: Kind) -> float:
    """The root on the side of `kind`, moved by a few roundings so that the bound holds."""
    if lines.infinite >= delta:
        return math.inf
    epsilon = follow_lines(lines, start, delta, kind)
    if kind == "estimate":
        return epsilon
    # The losses themselves are rounded (relatively, to 1e-16 each), which moves epsilon by less than this.
    epsilon *= 1 + 1e-12 if kind == "upper" else 1 - 1e-12
    nudge = 1e-13 * max(epsilon, 1e-3 * lines.scale)
    for _ in range(60):
        value = lines.delta(epsilon, kind)
        if value <= delta if kind == "upper" else value >= delta:
            return epsilon
        if kind == "lower" and epsilon == 0:
            return 0.0
        epsilon = max(epsilon + (nudge if kind == "upper" else -nudge), 0.0)
        nudge *= 2
    return math.inf if kind == "upper" else 0.0
