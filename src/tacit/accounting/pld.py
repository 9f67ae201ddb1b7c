"""Certified privacy curves by privacy loss distributions: a lower bound, an estimate, an upper bound."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy import optimize

from tacit.accounting import gdp
from tacit.accounting.composition import Composition, Part, chernoff_bound
from tacit.accounting.contour import (
    JUMPS,
    SEARCH_TOLERANCE,
    Line,
    Lines,
    draw_lines,
    follow_lines,
    left_of,
    order_shares,
    redraw_line,
    saddle,
    saddle_epsilon,
    saddle_for_delta,
    saddle_log_delta,
    search_epsilon,
    settle_epsilon,
    try_line,
)
from tacit.accounting.curve import (
    Accountant,
    Bounds,
    Certifies,
    GroupProfile,
    Profile,
    register_accountant,
    unless_too_large,
)
from tacit.accounting.densities import Floats
from tacit.accounting.events import (
    Adjacency,
    EpsilonDelta,
    Event,
    Gaussian,
    ProductNoise,
    RandomizedResponse,
    Sampled,
    ShuffledReports,
)
from tacit.accounting.losses import Kind, LossAtoms, exact_power, exact_product
from tacit.accounting.mixture import GaussianMixture
from tacit.accounting.shuffle import report_delta
from tacit.accounting.steps import (
    CountedSteps,
    as_add_remove,
    atoms_of,
    boil_down,
    dominating_mu,
    exact_mixture,
    sum_stated,
    total_loss_ceiling,
)
from tacit.errors import NotAccountable

_KINDS: tuple[Kind, ...] = ("lower", "estimate", "upper")
_SEARCH_SIZE = 480
_LOG_LEAST = -650.0
_LEAST_DELTA = 1e-300
# Beyond this shift, in standard deviations, losses overflow.
_HOPELESS = 40.0
# The number of sets of lines for a whole curve.
_ANCHORS = 10
# Shares of an epsilon that the first of two hops gets.
_HOPS = (0.4, 0.45, 0.5, 0.55)
# A delta closer to 1 than this counts as 1, and no line is drawn for it.
_CERTAIN = 1e-9
# A larger epsilon protects nobody. Without a closed form it is bounded roughly, which takes no time.
_ENORMOUS = 1e3
# Larger groups are chained from single examples.
_MOST_GROUP = 256
# Closed-form losses are used where smoothing would move epsilon by less than this fraction.
_EXACT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Fineness:
    """The number of atoms of a step, and the fraction by which smoothing may move epsilon."""

    size: int
    tolerance: float


_FINE = Fineness(12_000, 1.5e-6)
# For whole curves, which need four digits.
_COARSE = Fineness(1000, 1e-4)


# Totals of at least so many kinds are remembered, and a total with at most so many more kinds re-uses one.
_MANY_KINDS = 50
_MOST_MORE = 25
# A line of a known total serves another one if its bounds of epsilon (or delta) differ by less than this fraction.
_SAME_LINE = 1e-7


@lru_cache(maxsize=1)
def _totals() -> deque[LossProfile]:
    """The totals that are remembered."""
    return deque(maxlen=2)


@dataclass(frozen=True)
class LossProfile:
    """delta(epsilon) and epsilon(delta) of an event, both directions, both sides, certified.

    A total of many kinds of steps is remembered: the same steps with a few more re-use what was computed for it.
    """

    steps: CountedSteps

    @staticmethod
    def of(event: Event, group: int = 1) -> LossProfile:
        """The profile of `event` for `group` examples together; `NotProven` if a part has no proof."""
        return LossProfile(boil_down(event, group))

    @cached_property
    def directions(self) -> tuple[_Direction, ...]:
        if self.steps.is_symmetric:
            return (_Direction(self.steps, added=False),)
        if len(self.steps.counts) < _MANY_KINDS:
            return (_Direction(self.steps, added=False), _Direction(self.steps, added=True))
        for known in _totals():
            more = known.steps.missing_from(self.steps)
            if more is not None and len(more) <= _MOST_MORE:
                first, second = known.directions
                return (
                    _Direction(self.steps, added=False, known=first, more=more),
                    _Direction(self.steps, added=True, known=second, more=more),
                )
        _totals().appendleft(self)
        return (_Direction(self.steps, added=False), _Direction(self.steps, added=True))

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of the smallest epsilon >= 0 for which the event is (epsilon, delta)-DP."""
        found = unless_too_large(lambda: self._bound_epsilon(delta))
        if found is not None and found.lower <= found.estimate <= found.upper:
            return found
        return self._bound_roughly(delta, 0.0)

    def _bound_roughly(self, delta: float, lower: float) -> Bounds:
        """What bounds epsilon without any composition: the sum of the largest losses, and Gaussian privacy."""

        def by_mu() -> float:
            mu = dominating_mu(self.steps)
            return gdp.epsilon(delta, mu) if math.isfinite(mu) else math.inf

        known = (unless_too_large(by_mu), unless_too_large(self._largest_loss))
        value = min((bound for bound in known if bound is not None and bound >= 0), default=math.inf)
        return Bounds.ordered(lower, value, value)

    def _largest_loss(self) -> float:
        """No example loses more than that, whatever is seen."""
        directions = (False,) if self.steps.is_symmetric else (False, True)
        return max(total_loss_ceiling(self.steps, added=added) for added in directions) * (1 + 1e-12)

    def _bound_epsilon(self, delta: float) -> Bounds:
        if not self.steps.counts:
            return self._gaussian_epsilon(delta)
        if self.is_hopeless():
            value = gdp.epsilon(delta, dominating_mu(self.steps))
            return Bounds(0.0, value, value)
        if len(self.steps.counts) < _MANY_KINDS and self.steps.total > 1 and self._summed_advantage() <= delta:
            return Bounds(0.0, 0.0, 0.0)
        first = self.directions[0]
        if first.is_out_of_reach(delta):
            return self._bound_roughly(delta, _ENORMOUS if first.is_nearly_certain(_ENORMOUS) else 0.0)
        bounds = self.directions[0].epsilon(delta)
        for other in self.directions[1:]:
            if not other.is_below(bounds.lower, delta):
                bounds = Bounds.largest([bounds, other.epsilon(delta)])
        stated = sum_stated(self.steps)
        return bounds.cap(min(self._epsilon_by_hops(delta), stated[0] if stated[1] <= delta else math.inf))

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of the smallest delta for which the event is (epsilon, delta)-DP."""
        found = unless_too_large(lambda: self._bound_delta(epsilon))
        if found is not None and found.lower <= found.estimate <= found.upper:
            return found
        largest = unless_too_large(self._largest_loss)
        value = 0.0 if largest is not None and largest <= epsilon else 1.0
        return Bounds(0.0, value, value)

    def _bound_delta(self, epsilon: float) -> Bounds:
        if not self.steps.counts:
            value = float(gdp.delta(epsilon, self.steps.mu)) if self.steps.mu > 0 else 0.0
            return Bounds.around(value, 1e-11)
        if self.is_hopeless():
            value = float(gdp.delta(epsilon, dominating_mu(self.steps)))
            return Bounds(0.0, value, value)
        bounds = self.directions[0].delta(epsilon)
        for other in self.directions[1:]:
            if not (bounds.lower > 0 and other.is_below(epsilon, bounds.lower)):
                bounds = Bounds.largest([bounds, other.delta(epsilon)])
        stated = sum_stated(self.steps)
        bounds = bounds.cap(min(self._delta_by_hops(epsilon), stated[1] if stated[0] <= epsilon else 1.0))
        if self.steps.total > 1 and bounds.upper > 1.001 * bounds.lower:
            bounds = bounds.cap(self._summed_advantage())
        if bounds.upper == 0 or bounds.lower >= _LEAST_DELTA:
            return bounds
        # Nothing is computed below what a float can hold with all its digits.
        return Bounds(0.0, bounds.estimate, max(bounds.upper, _LEAST_DELTA))

    def _summed_advantage(self) -> float:
        """The sum of the steps' advantages bounds delta at every epsilon: tight for few steps at low rates."""
        total = float(gdp.delta(0.0, self.steps.mu)) if self.steps.mu > 0 else 0.0
        for event, times in self.steps.counts:
            alone = LossProfile(replace(self.steps, counts=((event, 1),), mu=0.0))
            total += times * alone.delta(0.0).upper
        return total * (1 + 1e-11)

    def _gaussian_epsilon(self, delta: float) -> Bounds:
        """In closed form, widened because the formula for delta is accurate to eleven digits."""
        mu = self.steps.mu
        if mu == 0:
            return Bounds(0.0, 0.0, 0.0)
        lower = gdp.epsilon(min(delta * (1 + 1e-11), 1 - 1e-16), mu) * (1 - 1e-13)
        upper = gdp.epsilon(delta * (1 - 1e-11), mu) * (1 + 1e-13)
        return Bounds.ordered(lower, gdp.epsilon(delta, mu), upper)

    def is_hopeless(self) -> bool:
        """Whether a step has so little noise that its losses overflow; then the bound without sampling is used."""
        least = self.steps.group / _HOPELESS
        return any(
            isinstance(event, Sampled) and isinstance(event.inside, Gaussian) and event.inside.multiplier < least
            for event, _ in self.steps.counts
            if event.adjacency is Adjacency.ADD_REMOVE
        )

    def _hops(self) -> tuple[_Direction, _Direction] | None:
        """Replacing an example of a Poisson lot as two hops: one removed, then the other added."""
        if self.steps.adjacency is not Adjacency.REPLACE_ONE or not self.steps.counts:
            return None
        steps = as_add_remove(self.steps)
        return None if steps is None else (_Direction(steps, added=False), _Direction(steps, added=True))

    def _epsilon_by_hops(self, delta: float) -> float:
        """Over two hops delta is at most delta_1 + e^eps_1 delta_2; the best of a few splits."""
        hops, best = self._hops(), math.inf
        if hops is None:
            return best
        for share in (0.2, 0.5, 0.8, 0.95):
            first = hops[0].epsilon(share * delta).upper
            rest = (1 - share) * delta * math.exp(-min(first, 700.0))
            if rest > 1e-290:
                best = min(best, first + hops[1].epsilon(rest).upper)
        return best

    def _delta_by_hops(self, epsilon: float) -> float:
        hops, best = self._hops(), 1.0
        if hops is None:
            return best
        for share in _HOPS:
            first = hops[0].delta(share * epsilon).upper
            best = min(best, first + math.exp(share * epsilon) * hops[1].delta((1 - share) * epsilon).upper)
        return best

    def deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of delta at many epsilons (ascending), with few lines: accurate to about 1e-10."""
        is_alone = self.steps.total == 1 and self.steps.mu == 0
        if self.steps.counts and not is_alone and not self.is_hopeless():
            known = unless_too_large(lambda: self._bound_deltas(epsilons))
            if known is not None and not bool(np.isnan(known).any()):
                return known
        found = [self.delta(float(epsilon)) for epsilon in epsilons]
        return np.array([b.lower for b in found]), np.array([b.upper for b in found])

    def _bound_deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        lower, upper = np.zeros(epsilons.size), np.zeros(epsilons.size)
        for direction in self.directions:
            below, above = direction.deltas(epsilons)
            lower, upper = np.maximum(lower, below), np.maximum(upper, above)
        if (hops := self._hops()) is not None:
            for share in _HOPS:
                first = hops[0].deltas(share * epsilons)[1]
                second = hops[1].deltas((1 - share) * epsilons)[1]
                upper = np.minimum(upper, first + np.exp(np.minimum(share * epsilons, 700.0)) * second)
        return lower, upper


@dataclass(frozen=True)
class _Direction:
    """One direction: the example removed, or added. `more` are the steps that a known direction lacks."""

    steps: CountedSteps
    added: bool
    known: _Direction | None = field(default=None, compare=False, repr=False)
    more: tuple[tuple[Event, int], ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def _drawn(self) -> dict[tuple[str, float], tuple[float, Line]]:
        """The line drawn last for a delta or an epsilon, with the epsilon at which it is good."""
        return {}

    def _redraw(self, asked: str, value: float) -> tuple[float, Lines] | None:
        """The line that a known direction has drawn for this question, for these steps."""
        if self.known is None or self._exact is None or (asked, value) not in self.known._drawn:
            return None
        epsilon, before = self.known._drawn[asked, value]
        line = redraw_line(self._exact, before)
        return None if line is None else (epsilon, Lines((line,), 0.0, math.inf))

    def epsilon(self, delta: float) -> Bounds:
        """Bounds of epsilon(delta) in this direction."""
        ceiling = total_loss_ceiling(self.steps, added=self.added)
        return self._search_epsilon(delta).cap(ceiling * (1 + 1e-12))

    def _search_epsilon(self, delta: float) -> Bounds:
        tail = 1e-9 * delta / self.steps.total
        if self._is_single():
            return Bounds.ordered(*(self._single_epsilon(delta, kind, tail) for kind in _KINDS))
        exact = self._exact_epsilon(delta)
        if exact is not None:
            return exact
        rough = self._atoms("estimate", tail, _SEARCH_SIZE)
        if rough.infinite() >= delta:
            lower = self._atoms("lower", tail, _SEARCH_SIZE).infinite()
            return Bounds(math.inf if lower >= delta else 0.0, math.inf, math.inf)
        c, epsilon, share = search_epsilon(rough, delta)
        lines = self._atom_lines(c, epsilon, math.log(delta), tail, share, _FINE)
        return Bounds.ordered(*(settle_epsilon(lines[kind], epsilon, delta, kind) for kind in lines))

    def _exact_epsilon(self, delta: float) -> Bounds | None:
        """By the closed form of the losses; None if there is none, or if it is slower."""
        composition, most = self._exact, self._most_tilt
        if composition is None or most < 0.1:
            return None
        again = self._redraw("delta", delta)
        if again is not None:
            found = follow_lines(again[1], again[0], delta, "estimate")
            bounds = Bounds.ordered(*(settle_epsilon(again[1], found, delta, kind) for kind in _KINDS))
            if bounds.upper - bounds.lower <= _SAME_LINE * bounds.upper:
                return bounds
        target = math.log(delta)
        c = saddle_for_delta(composition, target, most)
        epsilon = max(saddle_epsilon(composition, c), 0.0)
        tolerance = SEARCH_TOLERANCE
        for _ in range(6):
            lines = self._exact_lines(c, epsilon, target, tolerance) if c < most else None
            if lines is None:
                return None
            found = follow_lines(lines, epsilon, delta, "estimate")
            if abs(found - epsilon) <= 0.05 * found + 0.5 / c:
                if lines.smoothing <= 0.3 * _EXACT_TOLERANCE * found:
                    self._drawn["delta", delta] = (found, lines.parts[0])
                    bounds = Bounds.ordered(*(settle_epsilon(lines, found, delta, kind) for kind in _KINDS))
                    return bounds if bounds.upper - bounds.lower <= 1e-5 * bounds.upper else None
                tolerance = 0.2 * _EXACT_TOLERANCE
            epsilon, c = found, saddle(composition, found, c)
        return None

    def _exact_lines(self, c: float, epsilon: float, log_delta: float, tolerance: float) -> Lines | None:
        composition = self._exact
        assert composition is not None
        left = left_of(composition, c, epsilon, log_delta)
        line = try_line(composition, left, epsilon, log_delta, tolerance * (left + 1) / (c + 1))
        return None if line is None else Lines((line,), 0.0, math.inf)

    def is_below(self, epsilon: float, delta: float) -> bool:
        """Whether a Chernoff bound already shows that this direction is (epsilon, delta)-DP."""
        if self._exact is None or self._is_single() or not epsilon > 0:
            return False
        c = saddle(self._exact, epsilon, most=self._most_tilt)
        return bool(chernoff_bound(self._exact, c, 0.0)[1] - c * epsilon <= math.log(delta))

    @cached_property
    def _most_tilt(self) -> float:
        """Beyond this c the moments consist of a far tail of negligible probability."""
        parts = self._exact.parts if self._exact is not None else ()
        least = min((part.most_tilt() for part, _ in parts if isinstance(part, GaussianMixture)), default=math.inf)
        if self.known is not None:
            least = min(least, self.known._most_tilt)
        return least if self._exact is not None else 0.0

    def _size(self, fineness: Fineness) -> int:
        """Atoms per kind of step: fewer if there are many kinds, whose errors average out."""
        return max(int(fineness.size / len(self.steps.counts) ** 0.6), 400)

    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(epsilon) in this direction."""
        if not self.steps.counts:
            return Bounds.around(float(gdp.delta(epsilon, self.steps.mu)) if self.steps.mu > 0 else 0.0, 1e-11)
        if self._is_single():
            return Bounds.ordered(*(self._single_delta(epsilon, kind, 1e-40) for kind in _KINDS))
        if self.is_nearly_certain(epsilon):
            return Bounds(1 - 2 * _CERTAIN, 1.0, 1.0)
        lines = self.lines_near(epsilon)
        return Bounds.ordered(*(lines[kind].delta(epsilon, kind) for kind in lines))

    def deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of delta at many epsilons (ascending), from a line for each tenth of them."""
        lower, upper = np.zeros(epsilons.size), np.zeros(epsilons.size)
        for piece in np.array_split(np.arange(epsilons.size), min(_ANCHORS, epsilons.size)):
            lines = self.lines_near(float(epsilons[piece[0]]), _COARSE)
            for index in piece:
                epsilon = float(epsilons[index])
                lower[index] = lines["lower"].delta(epsilon, "lower")
                upper[index] = lines["upper"].delta(epsilon, "upper")
        return lower, upper

    def is_out_of_reach(self, delta: float) -> bool:
        """Whether epsilon is finite and so large, by an estimate, that lines for a sharp answer would be as long."""
        if self._exact is not None or delta > 0.99:
            return False
        tail = _CERTAIN / self.steps.total
        return self._atoms("estimate", tail, _SEARCH_SIZE).infinite() < delta and self.seems_certain(_ENORMOUS)

    def is_nearly_certain(self, epsilon: float) -> bool:
        """Whether 1 - delta = E min(1, e^{epsilon - loss}) <= e^{epsilon / 2} E e^{-loss / 2} is negligible.

        If nearly every outcome reveals the example, a line to the right of zero shows only its smoothing.
        """
        if not self.seems_certain(epsilon):
            return False
        # The omitted tails add at most _CERTAIN.
        below = self._atoms("lower", _CERTAIN / self.steps.total, _SEARCH_SIZE)
        return below.cumulants(-0.5)[0] + epsilon / 2 <= math.log(_CERTAIN)

    def seems_certain(self, epsilon: float) -> bool:
        """The same by an estimate, which proves nothing."""
        rough = self._exact or self._atoms("estimate", _CERTAIN / self.steps.total, _SEARCH_SIZE)
        return rough.cumulants(-0.5)[0] + epsilon / 2 <= math.log(_CERTAIN)

    def lines_near(self, epsilon: float, fineness: Fineness | None = None) -> dict[Kind, Lines]:
        """Lines for the three sides, drawn for epsilon."""
        if epsilon >= total_loss_ceiling(self.steps, added=self.added):
            nothing = Lines((), 0.0, math.inf)
            return dict.fromkeys(_KINDS, nothing)
        composition = self._exact
        if composition is not None and self._most_tilt > 0.1:
            again = self._redraw("epsilon", epsilon)
            if again is not None and again[1].doubt(epsilon) < _SAME_LINE:
                return dict.fromkeys(_KINDS, again[1])
            c = saddle(composition, epsilon, most=self._most_tilt)
            log_delta = min(saddle_log_delta(composition, c, epsilon), 0.0)
            found = self._exact_lines(c, epsilon, log_delta, _EXACT_TOLERANCE) if c < self._most_tilt else None
            if found is not None and (found.doubt(epsilon) < 1e-4 or log_delta < _LOG_LEAST):
                self._drawn["epsilon", epsilon] = (epsilon, found.parts[0])
                return dict.fromkeys(_KINDS, found)
        guess = 1e-3
        while True:
            tail = max(1e-9 * guess / self.steps.total, 1e-300)
            rough = _cap(self._atoms("estimate", tail, _SEARCH_SIZE), epsilon, "estimate")
            c = saddle(rough, epsilon)
            log_delta = min(max(saddle_log_delta(rough, c, epsilon), _LOG_LEAST), 0.0)
            order = order_shares(rough, c, epsilon, log_delta, SEARCH_TOLERANCE)
            lines = draw_lines(rough, c, epsilon, log_delta, SEARCH_TOLERANCE, order)
            size = lines.delta(epsilon, "estimate")
            # The omitted tail must not change the answer: a delta far below the guess needs a longer tail.
            if size > 1e-3 * guess or guess <= 1e-280:
                break
            guess = max(size, 1e-12 * guess)
        return self._atom_lines(c, epsilon, math.log(max(size, 1e-280)), tail, lines.share, fineness or _FINE)

    def _atom_lines(
        self, c: float, epsilon: float, log_delta: float, tail: float, share: float, fineness: Fineness
    ) -> dict[Kind, Lines]:
        order = (share, *(other for other in (*JUMPS, math.inf) if other != share)) if epsilon > 0 else (math.inf,)
        lines: dict[Kind, Lines] = {}
        for kind in _KINDS:
            atoms = _cap(self._atoms(kind, tail, self._size(fineness), epsilon), epsilon, kind)
            # An estimate is right to fourth order in the smoothing.
            tolerance = (5 if kind == "estimate" else 1) * fineness.tolerance
            lines[kind] = draw_lines(atoms, c, epsilon, log_delta, tolerance, order)
        return lines

    @cached_property
    def _exact(self) -> Composition | None:
        before = None if self.known is None else self.known._exact
        parts: list[tuple[Part, int]] = []
        for event, times in self.steps.counts if before is None else self.more:
            mixture = exact_mixture(event, self.added, self.steps.group)
            if mixture is None:
                return None
            parts.append((mixture, times))
        return Composition(tuple(parts), self.steps.mu, () if before is None else before.mixtures)

    def _atoms(self, kind: Kind, tail: float, size: int, focus: float = 0.0) -> Composition:
        parts: list[tuple[Part, int]] = []
        for event, times in self.steps.counts:
            atoms = atoms_of(event, kind, added=self.added, tail=tail, size=size, group=self.steps.group, focus=focus)
            parts += [(one, number * times) for one, number in atoms]
        return Composition(tuple(parts), self.steps.mu)

    def _is_single(self) -> bool:
        """Whether all total losses can be listed: one step, or steps with few different losses."""
        if self.steps.mu > 0:
            return False
        if self.steps.total == 1:
            ((event, _),) = self.steps.counts
            return not isinstance(event, ProductNoise) or sum(shift > 0 for shift in event.shifts) == 1
        return self._compose_atoms("estimate") is not None

    def _compose_atoms(self, kind: Kind) -> LossAtoms | None:
        """The composition of steps that have a handful of different losses each, atom by atom."""
        whole: LossAtoms | None = None
        for event, times in self.steps.counts:
            if not isinstance(event, (RandomizedResponse, EpsilonDelta)) or self.steps.group > 1:
                return None
            ((atoms, _),) = atoms_of(event, kind, added=self.added, tail=0.0, size=0)
            power = exact_power(atoms, times, kind)
            if power is None or (whole is not None and whole.loss.size * power.loss.size > 4_000_000):
                return None
            whole = power if whole is None else exact_product(whole, power, kind)
        return whole

    def _single_delta(self, epsilon: float, kind: Kind, tail: float) -> float:
        outward = {"lower": 1 - 1e-11, "estimate": 1.0, "upper": 1 + 1e-11}[kind]
        listed = self._compose_atoms(kind)
        if listed is not None:
            return min(listed.delta(epsilon) * outward, 1.0)
        ((event, _),) = self.steps.counts
        if isinstance(event, ShuffledReports) and self.steps.group == 1:
            return min(report_delta(event, epsilon, kind) * outward, 1.0)
        mixture = exact_mixture(event, self.added, self.steps.group)
        if mixture is not None and mixture.most == 1:
            return min(_sampled_delta(epsilon, mixture, kind) * outward, 1.0)
        size, group = 2 * _FINE.size, self.steps.group
        ((atoms, _),) = atoms_of(event, kind, added=self.added, tail=tail, size=size, group=group)
        return min(atoms.delta(epsilon) * outward, 1.0)

    def _single_epsilon(self, delta: float, kind: Kind, tail: float) -> float:
        """Where the curve of one step (decreasing, convex in e^epsilon) crosses delta."""

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


def _cap(composition: Composition, epsilon: float, kind: Kind) -> Composition:
    """Cap losses above epsilon + 45, where lines for little noise would be as long as the largest loss.

    With one such loss l, whatever the other steps lose (L), the expected 1 - e^{epsilon - l - L} is at least 1 - e^-45,
    because E[e^-L] is at most 1. So an infinite loss is an upper bound, and 1 - 1e-15 of its mass a lower one.
    """
    parts = tuple((part.cap(epsilon + 45.0, kind), times) for part, times in composition.atoms)
    return Composition(parts, composition.mu)


def _sampled_delta(epsilon: float, mixture: GaussianMixture, kind: Kind) -> float:
    """One Poisson-sampled Gaussian release, in closed form: the hockey stick of a mixture is a scaled hockey stick."""
    rate = mixture.weights[1]
    if not mixture.added:
        return rate * float(gdp.delta(math.log1p(math.expm1(epsilon) / rate), mixture.shift))
    # 1 - (1 - rate) e^epsilon; near the end of the curve it is only rounding.
    left = rate - (1 - rate) * math.expm1(epsilon) + {"lower": -1e-15, "estimate": 0.0, "upper": 1e-15}[kind]
    if left <= 0:
        return 0.0
    return left * float(gdp.delta(math.log(rate / left) + epsilon, mixture.shift))


def _group_profile(event: Event, size: int) -> Profile:
    """Exact for Gaussian noise, sampled or not, and unsampled product noise; else by chaining."""
    if size <= _MOST_GROUP:
        profile = LossProfile.of(event, size)
        try:
            profile.delta(1.0)
        except NotAccountable:
            pass
        else:
            return profile
    return GroupProfile(LossProfile.of(event), size)


register_accountant(
    Accountant(
        name="pld",
        label="PLD",
        profile=LossProfile.of,
        certifies=Certifies.BOTH_SIDES,
        line={"color": "#0072B2", "linewidth": 2.2},
        group_profile=_group_profile,
    )
)
