"""Certified privacy curves by privacy loss distributions: a lower bound, an estimate, an upper bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tacit.accounting import gdp
from tacit.accounting.composition import Composition, Measure, Part, separate
from tacit.accounting.contour import (
    Lines,
    draw_line,
    saddle,
    saddle_epsilon,
    saddle_for_delta,
    saddle_log_delta,
    try_line,
)
from tacit.accounting.densities import Floats
from tacit.accounting.events import Event, ProductNoise
from tacit.accounting.losses import Kind
from tacit.accounting.mixture import GaussianMixture
from tacit.accounting.steps import Steps, atoms_of, boil_down, exact_mixture, total_loss_ceiling

_KINDS: tuple[Kind, ...] = ("lower", "estimate", "upper")
# The line stands a little left of the saddle, where fewer nodes do.
_LEFT = 0.85
_SEARCH_TOLERANCE = 1e-4
_SEARCH_SIZE = 480
_SIZE = 4000
_TOLERANCE = 2e-6
# Bounds of delta that differ by less than this many tolerances need no better lines.
_ENOUGH = 100.0
# A step is a jump if its loss is above one of these shares of epsilon (an infinite share: nothing is).
_JUMPS = (3.0, 0.4, 0.14)
_LONG = 12_000.0
_LOG_LEAST = -650.0
# A whole curve is read off so many sets of lines.
_ANCHORS = 10
# Closed-form losses are used where smoothing would move epsilon by less than this fraction.
_EXACT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Bounds:
    """A certified interval and the best guess within it."""

    lower: float
    estimate: float
    upper: float


def _ordered(lower: float, estimate: float, upper: float) -> Bounds:
    upper = max(upper, lower)
    return Bounds(lower, min(max(estimate, lower), upper), upper)


@dataclass(frozen=True)
class LossProfile:
    """delta(epsilon) and epsilon(delta) of an event, both directions, both sides, certified."""

    steps: Steps

    @staticmethod
    def of(event: Event, group: int = 1) -> LossProfile:
        """The profile of `event` for so many examples together; `NotProven` if any part of it is."""
        return LossProfile(boil_down(event, group))

    @property
    def directions(self) -> tuple[_Direction, ...]:
        if self.steps.is_symmetric:
            return (_Direction(self.steps, added=False),)
        return (_Direction(self.steps, added=False), _Direction(self.steps, added=True))

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of the smallest epsilon >= 0 for which the event is (epsilon, delta)-DP."""
        if not self.steps.counts:
            value = gdp.epsilon(delta, self.steps.mu) if self.steps.mu > 0 else 0.0
            return _around(value, 1e-12)
        return _larger([direction.epsilon(delta) for direction in self.directions])

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of the smallest delta for which the event is (epsilon, delta)-DP."""
        if not self.steps.counts:
            value = float(gdp.delta(epsilon, self.steps.mu)) if self.steps.mu > 0 else 0.0
            return _around(value, 1e-11)
        return _larger([direction.delta(epsilon) for direction in self.directions])

    def deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of delta at many epsilons (ascending), with few lines: accurate to about 1e-10."""
        if not self.steps.counts or self.steps.total == 1:
            found = [self.delta(float(epsilon)) for epsilon in epsilons]
            return np.array([b.lower for b in found]), np.array([b.upper for b in found])
        lower, upper = np.zeros(epsilons.size), np.zeros(epsilons.size)
        for direction in self.directions:
            for piece in np.array_split(np.arange(epsilons.size), _ANCHORS):
                if piece.size == 0:
                    continue
                lines = direction.lines_near(float(epsilons[piece[0]]))
                for index in piece:
                    epsilon = float(epsilons[index])
                    lower[index] = max(lower[index], lines["lower"].delta(epsilon, "lower"))
                    upper[index] = max(upper[index], lines["upper"].delta(epsilon, "upper"))
        return lower, upper


def _around(value: float, relative: float) -> Bounds:
    return Bounds(value * (1 - relative), value, value * (1 + relative))


def _larger(bounds: list[Bounds]) -> Bounds:
    return Bounds(max(b.lower for b in bounds), max(b.estimate for b in bounds), max(b.upper for b in bounds))


@dataclass(frozen=True)
class _Direction:
    """One way round: the example removed, or added."""

    steps: Steps
    added: bool

    def epsilon(self, delta: float) -> Bounds:
        tail = 1e-9 * delta / self.steps.total
        if self._is_single():
            return _ordered(*(self._single_epsilon(delta, kind, tail) for kind in _KINDS))
        rough = self._atoms("estimate", tail, _SEARCH_SIZE)
        if rough.infinite() >= delta:
            lower = self._atoms("lower", tail, _SIZE).infinite()
            return Bounds(math.inf if lower >= delta else 0.0, math.inf, math.inf)
        c, epsilon, share = _search(rough, delta)
        lines = self._lines(c, epsilon, math.log(delta), tail, share)
        return _ordered(*(_settle(lines[kind], epsilon, delta, kind) for kind in lines))

    def delta(self, epsilon: float) -> Bounds:
        if self._is_single():
            tail = 1e-40
            return _ordered(*(self._single_delta(epsilon, kind, tail) for kind in _KINDS))
        lines = self.lines_near(epsilon)
        return _ordered(*(lines[kind].delta(epsilon, kind) for kind in lines))

    def lines_near(self, epsilon: float) -> dict[Kind, Lines]:
        """Lines for the three sides, drawn for epsilon."""
        if epsilon >= total_loss_ceiling(self.steps, added=self.added):
            nothing = Lines((), 0.0, math.inf)
            return dict.fromkeys(_KINDS, nothing)
        guess = 1e-3
        while True:
            tail = max(1e-9 * guess / self.steps.total, 1e-300)
            rough = self._atoms("estimate", tail, _SEARCH_SIZE)
            c = saddle(rough, epsilon)
            log_delta = min(max(saddle_log_delta(rough, c, epsilon), _LOG_LEAST), 0.0)
            shares = _shares(rough, c, epsilon, log_delta, _SEARCH_TOLERANCE)
            lines = _draw(rough, c, epsilon, log_delta, _SEARCH_TOLERANCE, shares)
            found = lines.delta(epsilon, "estimate")
            # What was cut away must not be seen in the answer; a delta far below the guess needs a longer tail.
            if found > 1e-3 * guess or guess <= 1e-280:
                break
            guess = max(found, 1e-12 * guess)
        return self._lines(c, epsilon, math.log(max(found, 1e-280)), tail, lines.share)

    def _lines(self, c: float, epsilon: float, log_delta: float, tail: float, share: float) -> dict[Kind, Lines]:
        exact = self._exact(c)
        if exact is not None:
            rough = self._atoms("estimate", tail, _SEARCH_SIZE)
            # Far beyond the tail that matters the true moments may be astronomical: then the cut losses serve better.
            if exact.cumulants(_LEFT * c)[0] < rough.cumulants(_LEFT * c)[0] + 1e-3:
                line = try_line(exact, _LEFT * c, epsilon, log_delta, _EXACT_TOLERANCE)
                if line is not None and (lines := Lines((line,), 0.0, math.inf)).doubt(epsilon) < 1e-4:
                    return {"lower": lines, "estimate": lines, "upper": lines}
        return {
            kind: _draw(self._atoms(kind, tail, _SIZE, epsilon), c, epsilon, log_delta, _TOLERANCE, (share,))
            for kind in _KINDS
        }

    def _exact(self, c: float) -> Composition | None:
        parts: list[tuple[Part, int]] = []
        for event, times in self.steps.counts:
            mixture = exact_mixture(event, self.added, self.steps.group)
            if mixture is None or not mixture.is_tame(c):
                return None
            parts.append((mixture, times))
        return Composition(tuple(parts), self.steps.mu)

    def _atoms(self, kind: Kind, tail: float, size: int, focus: float = 0.0) -> Composition:
        parts: list[tuple[Part, int]] = []
        for event, times in self.steps.counts:
            atoms = atoms_of(event, kind, added=self.added, tail=tail, size=size, group=self.steps.group, focus=focus)
            parts += [(one, number * times) for one, number in atoms]
        return Composition(tuple(parts), self.steps.mu)

    def _is_single(self) -> bool:
        if self.steps.total != 1 or self.steps.mu > 0:
            return False
        ((event, _),) = self.steps.counts
        return not isinstance(event, ProductNoise) or sum(shift > 0 for shift in event.shifts) == 1

    def _single_delta(self, epsilon: float, kind: Kind, tail: float) -> float:
        ((event, _),) = self.steps.counts
        mixture = exact_mixture(event, self.added, self.steps.group)
        if mixture is not None and mixture.most == 1:
            exact = _sampled_delta(epsilon, mixture)
            return exact * {"lower": 1 - 1e-11, "estimate": 1.0, "upper": 1 + 1e-11}[kind]
        ((atoms, _),) = atoms_of(event, kind, added=self.added, tail=tail, size=2 * _SIZE, group=self.steps.group)
        return atoms.delta(epsilon)

    def _single_epsilon(self, delta: float, kind: Kind, tail: float) -> float:
        """Where the (decreasing, convex in e^epsilon) curve of one step crosses delta."""

        def excess(epsilon: float) -> float:
            return self._single_delta(epsilon, kind, tail) - delta

        if excess(0.0) <= 0:
            return 0.0
        high = 1.0
        while excess(high) > 0:
            high *= 2
            if high > 1e9:
                return math.inf
        root = float(optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14))
        while kind == "upper" and excess(root) > 0:
            root += 1e-14 * root
        while kind == "lower" and excess(root) < 0:
            root -= 1e-14 * root
        return root


def _sampled_delta(epsilon: float, mixture: GaussianMixture) -> float:
    """One Poisson-sampled Gaussian release, in closed form: the hockey stick of a mixture is a scaled hockey stick."""
    rate = mixture.weights[1]
    if not mixture.added:
        return rate * float(gdp.delta(math.log1p(math.expm1(epsilon) / rate), mixture.shift))
    left = rate - (1 - rate) * math.expm1(epsilon)
    if left <= 0:
        return 0.0
    return left * float(gdp.delta(math.log(rate / left) + epsilon, mixture.shift))


def _search(composition: Composition, delta: float) -> tuple[float, float, float]:
    """The saddle for the epsilon of `delta`, that epsilon, and how jumps were best kept apart: all estimated."""
    target = math.log(delta)
    c = saddle_for_delta(composition, target)
    epsilon = max(saddle_epsilon(composition, c), 0.0)
    for _ in range(30):
        shares = _shares(composition, c, epsilon, target, _SEARCH_TOLERANCE)
        lines = _draw(composition, c, epsilon, target, _SEARCH_TOLERANCE, shares)
        found = _follow(lines, epsilon, delta, "estimate")
        near = abs(found - epsilon) <= 0.1 * found + 0.5 / c
        # Far from the root, lines drawn elsewhere see only their own aliases: go there in stages.
        epsilon = found if near else min(max(found, epsilon / 8), 8 * epsilon + 8 / c)
        c = saddle(composition, epsilon, c)
        if near:
            break
    return c, epsilon, lines.share


def _draw(
    composition: Composition,
    c: float,
    epsilon: float,
    log_delta: float,
    tolerance: float,
    shares: tuple[float, ...],
) -> Lines:
    """Lines for `composition` near epsilon; the first of these shares (see `_JUMPS`) that does well, or the best."""
    best: Lines | None = None
    for share in shares:
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
        lines.append(draw_line(measure, _LEFT * place, epsilon, log_delta, tolerance))
    return Lines(tuple(lines), composition.infinite(), share)


def _shares(
    composition: Composition, c: float, epsilon: float, log_delta: float, tolerance: float
) -> tuple[float, ...]:
    """In which order to try: one line first, unless it would be badly conditioned or very long."""
    if epsilon <= 0:
        return (math.inf,)
    log_weight = composition.cumulants(c)[0] - c * epsilon - math.log(c * (c + 1))
    length = (23 - log_delta) / math.sqrt(tolerance * c * max(epsilon, 0.1 / c))
    uneven = log_weight > log_delta + 4 or length > _LONG
    return (*_JUMPS, math.inf) if uneven else (math.inf, *_JUMPS)


def _follow(lines: Lines, epsilon: float, delta: float, kind: Kind) -> float:
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


def _settle(lines: Lines, start: float, delta: float, kind: Kind) -> float:
    """The root on the side of `kind`, moved by a few roundings so that the bound there really holds."""
    if lines.infinite >= delta:
        return math.inf
    epsilon = _follow(lines, start, delta, kind)
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
