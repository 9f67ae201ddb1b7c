"""Finding epsilon: where to draw the lines of a composition, and how to walk along them."""

from __future__ import annotations

import math

from tacit.accounting.composition import Composition, Measure, separate
from tacit.accounting.contour import Lines, draw_line, saddle, saddle_epsilon, saddle_for_delta
from tacit.accounting.losses import Kind

# The line stands a little left of the saddle, where fewer nodes do.
LEFT = 0.85
# While searching, smoothing may move epsilon by this share of itself.
SEARCH_TOLERANCE = 1e-4
# A step is a jump if its loss is above one of these shares of epsilon (an infinite share: nothing is).
JUMPS = (3.0, 0.4, 0.14)
# Bounds of delta that differ by less than this many tolerances need no better lines.
_ENOUGH = 100.0
_LONG = 12_000.0


def search(composition: Composition, delta: float) -> tuple[float, float, float]:
    """The saddle for the epsilon of `delta`, that epsilon, and how jumps were best kept apart: all estimated."""
    target = math.log(delta)
    c = saddle_for_delta(composition, target)
    epsilon = max(saddle_epsilon(composition, c), 0.0)
    for _ in range(30):
        order = shares(composition, c, epsilon, target, SEARCH_TOLERANCE)
        lines = draw(composition, c, epsilon, target, SEARCH_TOLERANCE, order)
        found = follow(lines, epsilon, delta, "estimate")
        near = abs(found - epsilon) <= 0.1 * found + 0.5 / c
        # Far from the root, lines drawn elsewhere see only their own aliases: go there in stages.
        epsilon = found if near else min(max(found, epsilon / 8), 8 * epsilon + 8 / c)
        c = saddle(composition, epsilon, c)
        if near:
            break
    order = shares(composition, c, epsilon, target, SEARCH_TOLERANCE)
    return c, epsilon, draw(composition, c, epsilon, target, SEARCH_TOLERANCE, order).share


def draw(
    composition: Composition,
    c: float,
    epsilon: float,
    log_delta: float,
    tolerance: float,
    order: tuple[float, ...],
) -> Lines:
    """Lines for `composition` near epsilon; the first share of the order (see `JUMPS`) that does well, or the best."""
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
    """Two lines, for the core and for the jumps above share * epsilon; one for all where the share is infinite."""
    measures: tuple[Measure, ...] = (composition,)
    if math.isfinite(share):
        apart = separate(composition, share * epsilon)
        if apart is None:
            return None
        measures = apart
    lines = []
    for measure in measures:
        place = c if measure is composition else saddle(measure, epsilon, c)
        lines.append(draw_line(measure, LEFT * place, epsilon, log_delta, tolerance))
    return Lines(tuple(lines), composition.infinite(), share)


def shares(composition: Composition, c: float, epsilon: float, log_delta: float, tolerance: float) -> tuple[float, ...]:
    """In which order to try: one line first, unless it would be badly conditioned or very long."""
    if epsilon <= 0:
        return (math.inf,)
    log_weight = composition.cumulants(c)[0] - c * epsilon - math.log(c * (c + 1))
    length = (23 - log_delta) / math.sqrt(tolerance * c * max(epsilon, 1e-3 / c))
    uneven = log_weight > log_delta + 4 or length > _LONG
    return (*JUMPS, math.inf) if uneven else (math.inf, *JUMPS)


def follow(lines: Lines, epsilon: float, delta: float, kind: Kind) -> float:
    """Newton's method on log delta along the same lines, kept within the bracket; 0 if delta(0) is below."""
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


def settle(lines: Lines, start: float, delta: float, kind: Kind) -> float:
    """The root on the side of `kind`, moved by a few roundings so that the bound there really holds."""
    if lines.infinite >= delta:
        return math.inf
    epsilon = follow(lines, start, delta, kind)
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
