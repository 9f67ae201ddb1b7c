"""Shuffling: the privacy of many noisy reports when nobody can tell who sent which.

Each of `population` people sends a report that is locally private. Shuffled, the other reports hide it further: each
one looks, with some probability, as if either of the two compared examples had made it (a clone). Feldman, McMillan
and Talwar 2021 reduce the whole to two counts, which are computed here and rounded outwards. The smaller numbers of the
same authors' 2023 paper are not used: by their own erratum they hold for some reports only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.densities import Floats, GaussianDensity
from tacit.accounting.events import EpsilonDelta, Event, ProductNoise, RandomizedResponse, ShuffledReports
from tacit.accounting.losses import Kind, LossAtoms, density_atoms, exact_power, exact_product
from tacit.accounting.search import find_least
from tacit.accounting.steps import atoms_of, boil_down, total_loss_ceiling
from tacit.errors import NotAccountable

# Numbers of clones are rounded down to this many values: fewer clones hide less, so this is safe.
_BUCKETS = 240
_REACH = 12.0
# The relative error of a closed form for delta.
_ROUNDING = 1e-11
# Below this, the delta of the reports themselves is negligible.
_NEGLIGIBLE = 1e-18
# Beyond this epsilon fewer than one report in e^100 is a clone, and e^epsilon would soon overflow.
_HOPELESS = 100.0
_LARGEST = 600.0
_SPLITS = 64
_POINTS = 400
# So many losses are taken together with all epsilons.
_FEW = 200
_NOTHING = LossAtoms(np.zeros(1), np.ones(1), np.ones(1))


def clone_delta(epsilon: float, *, local_epsilon: float, population: int) -> float:
    """A certified upper bound of delta at `epsilon`, for shuffled reports that are each local_epsilon-DP.

    The number of clones is binomial with rate e^-local_epsilon; given it, the two counts of Feldman, McMillan and
    Talwar 2021 (theorem 3.1) are compared exactly. Holds for every local randomizer, and for every local_epsilon.

    >>> clone_delta(0.0608, local_epsilon=2.0, population=45_222) < 5e-6
    True
    """
    epsilon = _validate.non_negative("epsilon", epsilon)
    local_epsilon = _validate.positive("local_epsilon", local_epsilon)
    return _clone_delta(epsilon, local_epsilon, _validate.count("population", population))


def clone_epsilon(delta: float, *, local_epsilon: float, population: int) -> float:
    """The smallest epsilon at which `clone_delta` is at most `delta`; never above local_epsilon.

    >>> round(clone_epsilon(5e-6, local_epsilon=2.0, population=45_222), 4)
    0.0608
    """
    delta, local_epsilon, population = _check(delta, local_epsilon, population)

    def is_enough(epsilon: float) -> bool:
        return _clone_delta(epsilon, local_epsilon, population) <= delta

    # At local_epsilon the delta of the clones is 0.
    return 0.0 if is_enough(0.0) else find_least(is_enough, 0.0, local_epsilon, within=1e-12)


def closed_form_epsilon(delta: float, *, local_epsilon: float, population: int) -> float:
    """The closed form of Feldman, McMillan and Talwar 2021 (theorem 3.1): certified, several times `clone_epsilon`.

    It needs local_epsilon <= log(population / (16 log(2 / delta))); otherwise shuffling is ignored and the answer is
    local_epsilon.

    >>> round(closed_form_epsilon(5e-6, local_epsilon=2.0, population=45_222), 6)
    0.253189
    """
    delta, local_epsilon, population = _check(delta, local_epsilon, population)
    if local_epsilon > math.log(population / (16 * math.log(2 / delta))):
        return local_epsilon
    growth = math.exp(local_epsilon)
    spread = 8 * math.sqrt(growth * math.log(4 / delta) / population) + 8 * growth / population
    return min(math.log1p(math.tanh(local_epsilon / 2) * spread), local_epsilon)


def optimistic_epsilon(delta: float, *, local_epsilon: float, population: int) -> float:
    """The closed form of Feldman, McMillan and Talwar 2023: NOT certified, for comparison only.

    By its authors' erratum a lemma behind it is wrong, so it holds for some local randomizers only.
    """
    delta, local_epsilon, population = _check(delta, local_epsilon, population)
    growth = math.exp(local_epsilon)
    spread = 4 * math.sqrt(2 * math.log(4 / delta) / ((growth + 1) * population)) + 4 / population
    return math.log1p((growth - 1) * spread)


def _check(delta: float, local_epsilon: float, population: int) -> tuple[float, float, int]:
    delta, local_epsilon = _validate.open_unit("delta", delta), _validate.positive("local_epsilon", local_epsilon)
    return delta, local_epsilon, _validate.count("population", population)


def added_delta(epsilon: float, *, local_epsilon: float, local_delta: float, population: int) -> float:
    """What reports add to delta at `epsilon` if they are only (local_epsilon, local_delta)-DP.

    Each report is within (1 + e^-local_epsilon / 2) local_delta of one that is local_epsilon-DP and has the clones, in
    total variation; all reports together therefore within `population` times that, in both worlds.
    """
    return (math.exp(epsilon) + 1) * (1 + math.exp(-local_epsilon) / 2) * population * local_delta


def report_delta(event: ShuffledReports, epsilon: float, kind: Kind) -> float:
    """A lower or upper bound of delta of shuffled reports at `epsilon`.

    Upper: the best clone bound over many splits of the report's own guarantee into (local_epsilon, local_delta), at
    most the cost of one report by itself. Lower: the sum of all reports, in which Gaussian noise averages out.
    """
    reports = _reports(event)
    if kind == "lower":
        spread = reports.mu / math.sqrt(event.population)
        return float(gdp.delta(epsilon, spread)) * (1 - _ROUNDING) if spread > 0 else 0.0
    return _upper_delta(event, epsilon)


@lru_cache(maxsize=4096)
def _upper_delta(event: ShuffledReports, epsilon: float) -> float:
    reports = _reports(event)
    return min(reports.amplified(epsilon), reports.delta(epsilon), 1.0)


def report_atoms(event: ShuffledReports, kind: Kind, tail: float, size: int) -> LossAtoms:
    """The losses of shuffled reports as atoms, for composition with other releases."""
    if kind != "lower":
        return _upper_atoms(event)
    spread = _reports(event).mu / math.sqrt(event.population)
    return density_atoms(GaussianDensity(1 / spread), 1.0, "lower", tail, size) if spread > 0 else _NOTHING


@lru_cache(maxsize=64)
def _upper_atoms(event: ShuffledReports) -> LossAtoms:
    """The true delta is convex in e^epsilon, so chords between points above it stay above it."""
    reports = _reports(event)
    # Of larger losses e^loss is no number; they count as infinite.
    most = min(float(reports.splits[-1]), _LARGEST)
    rough = np.concatenate([[0.0], np.geomspace(1e-5 * most, most, 60)])
    found = reports.upper_deltas(rough)
    alive = int(np.searchsorted(-found, -max(1e-15, 4 * found.min())))
    losses = np.union1d(rough, np.linspace(0.0, rough[min(alive, rough.size - 1)], _POINTS))
    return _mirror_curve(losses, np.minimum.accumulate(reports.upper_deltas(losses)))


@dataclass(frozen=True, eq=False)
class _Reports:
    """The guarantee of one report by itself: Gaussian DP with `mu`, composed with a few losses.

    It is (splits[i], deltas[i])-DP for every i; beyond the last split its delta is negligible.
    """

    mu: float
    atoms: LossAtoms
    population: int
    splits: Floats
    deltas: Floats

    def delta(self, epsilon: float) -> float:
        """An upper bound of the delta of one report: the Gaussian's delta at epsilon minus each other loss."""
        return _local_delta(self.mu, self.atoms, epsilon)

    def upper_deltas(self, epsilons: Floats) -> Floats:
        """An upper bound of the delta of all reports at each of these epsilons, which ascend."""
        found, split = np.empty(epsilons.size), None
        for place, epsilon in enumerate(epsilons.tolist()):
            split = self._find_split(epsilon, split)
            found[place] = 1.0 if split is None else self._at(split, epsilon)
        if self.mu > 0 and self.atoms.loss.size <= _FEW:
            return np.minimum(found, np.minimum(_gaussian_deltas(self.mu, self.atoms, epsilons), 1.0))
        return np.minimum(found, [min(self.delta(epsilon), 1.0) for epsilon in epsilons.tolist()])

    def amplified(self, epsilon: float) -> float:
        """The clone bound at the best split of the report's guarantee that a search finds. Every split is valid."""
        split = self._find_split(epsilon, None)
        return 1.0 if split is None else self._at(split, epsilon)

    def _find_split(self, epsilon: float, near: int | None) -> int | None:
        """The split with the least bound, which falls and then rises with the split; None if there is no bound.

        The best split for an epsilon close by, if known, is `near`: then few are tried.
        """
        first, last = int(np.searchsorted(self.splits, epsilon, side="right")), self.splits.size - 1
        if first > last or epsilon > _HOPELESS:
            return None
        if near is not None:
            best = min(max(near, first), last)
            least = self._at(best, epsilon)
            for step in (1, -1):
                while first <= best + step <= last and (tried := self._at(best + step, epsilon)) < least:
                    best, least = best + step, tried
            return best
        while first < last:
            middle = (first + last) // 2
            if self._at(middle, epsilon) <= self._at(middle + 1, epsilon):
                last = middle
            else:
                first = middle + 1
        return first

    def _at(self, index: int, epsilon: float) -> float:
        split, population = float(self.splits[index]), self.population
        added = added_delta(epsilon, local_epsilon=split, local_delta=float(self.deltas[index]), population=population)
        return _clone_delta(epsilon, split, population) + added


@lru_cache(maxsize=64)
def _reports(event: ShuffledReports) -> _Reports:
    steps = boil_down(event.inside)
    atoms = _NOTHING
    for inner, times in steps.counts:
        power = exact_power(_few_losses(inner), times, "upper")
        if power is None or atoms.loss.size * power.loss.size > 100_000:
            raise NotAccountable(
                f"A report of {times} times {type(inner).__name__} has too many different losses for shuffling. State "
                "it as one EpsilonDelta."
            )
        atoms = exact_product(atoms, power, "upper")
    splits = _splits(steps.mu, float(atoms.loss.max()), event.population)
    deltas = np.array([_local_delta(steps.mu, atoms, float(split)) for split in splits])
    return _Reports(steps.mu, atoms, event.population, splits, deltas)


def _few_losses(event: Event) -> LossAtoms:
    """Losses that dominate a part of a report: binary randomized response dominates every pure mechanism."""
    match event:
        case RandomizedResponse() | EpsilonDelta():
            ((atoms, _),) = atoms_of(event, "upper", added=False, tail=0.0, size=0)
            return atoms
        case ProductNoise():
            ceiling = total_loss_ceiling(boil_down(event), added=False)
            if math.isfinite(ceiling):
                return _few_losses(EpsilonDelta(ceiling, 0.0, event.adjacency))
    raise NotAccountable(
        f"Shuffled reports of {type(event).__name__} cannot be accounted for. Use Gaussian noise, randomized response, "
        "noise with bounded losses such as Laplace, or EpsilonDelta."
    )


def _splits(mu: float, ceiling: float, population: int) -> Floats:
    """Epsilons of one report, from a delta that is far too large to a negligible one.

    `ceiling` is the largest loss apart from the Gaussian's. With bounded losses only, it is the last split and adds no
    delta.
    """
    if mu == 0:
        return np.linspace(0.0, max(ceiling, 1e-300), _SPLITS + 1)[1:]
    first, last = (gdp.epsilon(min(least / population, 0.5), mu) for least in (1e-2, _NEGLIGIBLE))
    return np.linspace(max(first, 1e-3 * last), ceiling + last, _SPLITS)


def _local_delta(mu: float, atoms: LossAtoms, epsilon: float) -> float:
    if mu == 0:
        return atoms.delta(epsilon) * (1 + _ROUNDING)
    return float(_gaussian_deltas(mu, atoms, np.array([epsilon]))[0])


def _gaussian_deltas(mu: float, atoms: LossAtoms, epsilons: Floats) -> Floats:
    found: Floats = (gdp.delta(epsilons[:, None] - atoms.loss, mu) @ atoms.p + atoms.only_p) * (1 + _ROUNDING)
    return found


def _clone_delta(epsilon: float, local_epsilon: float, population: int) -> float:
    if epsilon >= local_epsilon:
        return 0.0
    clones, mass = _clones(local_epsilon, population)
    # With c clones one count is k of c + 1, and the likelihood ratio exceeds e^epsilon from this share of them on.
    odds = math.expm1(-local_epsilon - epsilon) / math.expm1(epsilon - local_epsilon) * math.exp(epsilon)
    first = np.floor((clones + 1) * (odds / (1 + odds))) + 1
    likely = 1 / (1 + math.exp(-local_epsilon))
    above, from_there = _survival(first - 1, clones), _survival(first - 2, clones)
    with_it = likely * from_there + (1 - likely) * above
    without = math.exp(epsilon) * ((1 - likely) * from_there + likely * above)
    rounding = (1e-12 + 2e-15 * np.sqrt(clones)) * (with_it + without)
    return float(mass @ np.clip(with_it - without + rounding, 0.0, 1.0)) * (1 + 1e-9)


@lru_cache(maxsize=512)
def _clones(local_epsilon: float, population: int) -> tuple[Floats, Floats]:
    """The number of clones, rounded down to few values, with probabilities that add up to 1."""
    others, rate = population - 1, math.exp(-local_epsilon)
    middle, width = others * rate, math.sqrt(others * rate * (1 - rate))
    low, high = max(middle - _REACH * width, 0.0), min(middle + _REACH * width, float(others))
    bottoms = np.unique(np.concatenate([[0.0], np.floor(np.linspace(low, high, _BUCKETS))]))
    # P(C < bottom) below the middle and P(C >= bottom) above it, each accurate where it is small.
    below = np.where(bottoms > 0, special.betainc(others - bottoms + 1, np.maximum(bottoms, 1), 1 - rate), 0.0)
    above = np.where(bottoms > 0, special.betainc(np.maximum(bottoms, 1), others - bottoms + 1, rate), 1.0)
    lower = np.diff(np.append(below, 1.0))
    upper = -np.diff(np.append(above, 0.0))
    mass = np.where(bottoms < middle, lower, upper)
    return bottoms, np.maximum(mass, 0.0)


def _survival(k: Floats, coins: Floats) -> Floats:
    """P(more than k heads of `coins` fair coins), by the incomplete beta function."""
    inside = (k >= 0) & (k < coins)
    value = special.betainc(np.where(inside, k + 1, 1.0), np.where(inside, coins - k, 1.0), 0.5)
    return np.where(inside, value, np.where(k < 0, 1.0, 0.0))


def _mirror_curve(losses: Floats, deltas: Floats) -> LossAtoms:
    """The symmetric pair whose delta is linear in e^epsilon between these points; losses ascend from 0."""
    keep = _hull(np.exp(losses), deltas)
    x, losses, deltas = np.exp(losses[keep]), losses[keep], deltas[keep]
    slopes = np.append(np.diff(deltas) / np.diff(x), 0.0)
    q = np.maximum(np.diff(slopes), 0.0)
    p, only = q * x[1:], float(deltas[-1])
    middle = max(1 - float(p.sum() + q.sum()) - only, 0.0)
    return LossAtoms(
        np.concatenate([-losses[:0:-1], [0.0], losses[1:]]),
        np.concatenate([q[::-1], [middle], p]),
        np.concatenate([p[::-1], [middle], q]),
        only,
        only,
    )


def _hull(x: Floats, y: Floats) -> list[int]:
    """The points on the largest convex curve below all of them."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return kept
