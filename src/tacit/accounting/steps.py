"""An event reduced to its kinds of steps with their numbers, and the losses of each kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy import special

from tacit.accounting.densities import Density, GaussianDensity
from tacit.accounting.events import (
    Adaptive,
    Adjacency,
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    ProductNoise,
    RandomizedResponse,
    Repeated,
    Sampled,
    ShuffledReports,
    Unproven,
)
from tacit.accounting.lattice import convolve_all
from tacit.accounting.losses import (
    Kind,
    LossAtoms,
    convolve,
    convolve_power,
    density_atoms,
    mixture_atoms,
    replaced_atoms,
    sample_removal,
    sample_with_coin,
)
from tacit.accounting.lots import Correlated, LotEvent
from tacit.accounting.mixture import GaussianMixture
from tacit.errors import NotAccountable, NotProven

# More different shifts than this are rounded to this many values, on the safe side.
_MOST_SHIFTS = 256
# A few losses on one lot are convolved atom by atom (the square of this many); many by transforms.
_JOINED = 1000
_MANY_JOINED = 8
_MOST_JOINED_SHIFTS = 24


@dataclass(frozen=True)
class CountedSteps:
    """The unsampled Gaussians together (parameter mu, exact), and every other kind of step with its number.

    `group` examples are added or removed together (or replaced).
    """

    mu: float
    counts: tuple[tuple[Event, int], ...]
    adjacency: Adjacency
    group: int = 1

    @property
    def total(self) -> int:
        return sum(times for _, times in self.counts)

    def missing_from(self, more: CountedSteps) -> tuple[tuple[Event, int], ...] | None:
        """The steps that `more` has beyond these; None if it lacks some of these. Unsampled Gaussians do not matter."""
        if (self.adjacency, self.group) != (more.adjacency, more.group) or len(self.counts) > len(more.counts):
            return None
        rest = dict(more.counts)
        for event, times in self.counts:
            left = rest.pop(event, 0) - times
            if left < 0:
                return None
            if left:
                rest[event] = left
        return tuple(rest.items())

    @property
    def is_symmetric(self) -> bool:
        """Whether adding and removing the example give the same losses, as they do without sampling."""
        return self.adjacency is Adjacency.REPLACE_ONE or not any(
            isinstance(event, (Sampled, LotEvent)) for event, _ in self.counts
        )


def refuse_unproven(event: Event) -> None:
    """Raise `NotProven` if any part of `event` has no proof."""
    for inner in event.walk():
        if isinstance(inner, Unproven):
            raise NotProven(
                f"This event contains a release that is claimed to be {inner.claim}, but {inner.reason}. No accountant "
                "accepts a claim without a proof. Use the method's rigorous form, or report the claim as a claim."
            )
        if isinstance(inner, Correlated):
            raise NotAccountable(
                f"This noise is correlated over {inner.bands} steps, which is accounted for only if an example's lots "
                "are that far apart. Use sampling=CyclicPoisson(lot_size, population, groups=bands)."
            )
        if isinstance(inner, Adaptive):
            raise NotProven(
                "The privacy parameters of this schedule were chosen after seeing earlier releases, so the sum of "
                "their costs is not a guarantee. Fix multiplier, rate and steps in advance, or use a filter."
            )


def boil_down(event: Event, group: int = 1) -> CountedSteps:
    """Count the steps of `event` by kind; unsampled Gaussians are composed exactly."""
    counts: dict[Event, int] = {}
    _count(event, 1, counts)
    precision = 0.0
    rest = []
    # A fixed order, so that the result does not depend on the order of composition.
    for leaf, times in sorted(counts.items(), key=_place):
        if times == 0:
            continue
        mu = gaussian_mu(leaf)
        if mu is None:
            rest.append((leaf, times))
        else:
            # A product overflows to infinity, a power would raise an error.
            precision += times * (group * mu) * (group * mu)
    return CountedSteps(math.sqrt(precision), tuple(rest), event.adjacency, group)


def _place(counted: tuple[Event, int]) -> tuple[float, float, str]:
    """The place of an event in a fixed order; numbers come first, because thousands of them are sorted quickly."""
    event = counted[0]
    if type(event) is Sampled and type(event.inside) is Gaussian:
        return event.rate, event.inside.multiplier, event.adjacency.value
    return math.inf, 0.0, repr(event)


def _count(event: Event, times: int, counts: dict[Event, int]) -> None:
    """Add the steps of `event`, taken so often, to `counts`. Totals of thousands of runs go through here often."""
    match event:
        case Composed(parts=parts):
            for part in parts:
                _count(part, times, counts)
        case Repeated(inside=inside, times=more):
            _count(inside, times * more, counts)
        case Sampled(inside=Gaussian(), rate=rate) if rate < 1:
            counts[event] = counts.get(event, 0) + times
        case Gaussian():
            counts[event] = counts.get(event, 0) + times
        case Sampled():
            refuse_unproven(event)
            simple = _simplify(event)
            if isinstance(simple, Sampled):
                counts[simple] = counts.get(simple, 0) + times
            else:
                _count(simple, times, counts)
        case _:
            refuse_unproven(event)
            counts[event] = counts.get(event, 0) + times


def _simplify(event: Sampled) -> Event:
    """Sampling twice is sampling once; rate 1 is no sampling; Gaussians on one lot are one Gaussian."""
    if isinstance(event.inside, Sampled) and event.adjacency is Adjacency.ADD_REMOVE:
        return _simplify(Sampled(event.inside.inside, event.rate * event.inside.rate))
    inside, rate = event.inside, event.rate
    if isinstance(inside, Gaussian):
        return inside if rate == 1 else event
    steps = boil_down(inside)
    if not steps.counts and steps.mu > 0:
        inside = Gaussian(1 / steps.mu, inside.adjacency)
    return inside if rate == 1 else Sampled(inside, rate)


def as_add_remove(steps: CountedSteps) -> CountedSteps | None:
    """The same steps for one example added or removed, if each contributes at most half the replace-one sensitivity.

    None unless all noise is Gaussian.
    """
    counts = []
    for event, times in steps.counts:
        if not (isinstance(event, Sampled) and isinstance(event.inside, Gaussian)):
            return None
        counts.append((Sampled(Gaussian(2 * event.inside.multiplier), event.rate), times))
    return CountedSteps(steps.mu / 2, tuple(counts), Adjacency.ADD_REMOVE, steps.group)


def gaussian_mu(event: Event) -> float | None:
    """The GDP parameter of an unsampled Gaussian release; None for anything else."""
    if isinstance(event, Gaussian):
        return 1 / event.multiplier
    if isinstance(event, ProductNoise) and isinstance(event.density, GaussianDensity):
        return math.sqrt(sum(shift**2 for shift in event.shifts)) / event.density.scale
    if isinstance(event, ProductNoise) and not any(event.shifts):
        return 0.0
    return None


def exact_mixture(event: Event, added: bool, group: int = 1) -> GaussianMixture | None:
    """The closed form of a Poisson-sampled Gaussian; of a group, a binomial number takes part."""
    if not (isinstance(event, Sampled) and isinstance(event.inside, Gaussian)):
        return None
    if event.adjacency is Adjacency.REPLACE_ONE:
        return None
    rate = event.rate
    weights = (math.comb(group, j) * rate**j * (1 - rate) ** (group - j) for j in range(group + 1))
    return GaussianMixture(1 / event.inside.multiplier, tuple(weights), added)


def atoms_of(
    event: Event,
    kind: Kind,
    *,
    added: bool,
    tail: float,
    size: int,
    group: int = 1,
    focus: float = 0.0,
    most_shifts: int = _MOST_SHIFTS,
) -> list[tuple[LossAtoms, int]]:
    """The losses of one step as atoms on the side of `kind`, each with its number; several if independent.

    Atoms are dense near the loss `focus`.
    """
    mixture = exact_mixture(event, added, group)
    if mixture is not None:
        return [(mixture_atoms(mixture, kind, tail, size, 0.0 if added else focus), 1)]
    match event:
        case LotEvent() if group == 1:
            return [(event.atoms(kind, added=added, tail=tail, size=size), 1)]
        case Sampled(inside=inside, rate=rate) if group == 1:
            return [(_sampled_atoms(inside, rate, kind, added=added, tail=tail, size=size), 1)]
        case ProductNoise(density=density, shifts=shifts):
            return [
                (density_atoms(density, group * shift, kind, tail, size), times)
                for shift, times in _round_shifts(shifts, kind, most_shifts)
                if shift > 0
            ]
        case RandomizedResponse(epsilon=epsilon, choices=choices) if group == 1:
            return [(_response_atoms(epsilon, choices), 1)]
        case EpsilonDelta(epsilon=epsilon, delta=delta) if group == 1:
            return [(_response_atoms(epsilon, delta=delta), 1)]
        case ShuffledReports() if group == 1:
            # A cycle: shuffling reduces the reports by `boil_down`.
            from tacit.accounting.shuffle import report_atoms

            return [(report_atoms(event, kind, tail, size), 1)]
    raise NotAccountable(
        f"The losses of {type(event).__name__} for {group} example(s) together are not known in closed form. Known "
        "are Gaussian, Laplace, StudentT, ProductNoise, RandomizedResponse and EpsilonDelta, sampled, shuffled, "
        "repeated and composed; for groups, Gaussian noise (sampled or not) and unsampled product noise."
    )


def _sampled_atoms(inside: Event, rate: float, kind: Kind, *, added: bool, tail: float, size: int) -> LossAtoms:
    _refuse_shuffled(inside)
    is_replaced = inside.adjacency is Adjacency.REPLACE_ONE
    if is_replaced and kind != "upper" and isinstance(inside, Gaussian):
        return replaced_atoms(1 / inside.multiplier, rate, kind, tail, size)
    whole = _join_lot(inside, kind, tail, size)
    if is_replaced:
        return sample_with_coin(whole, rate)
    with_example = sample_removal(whole, rate)
    return with_example.reverse() if added else with_example


def _refuse_shuffled(event: Event) -> None:
    if any(isinstance(inner, LotEvent) for inner in event.walk()):
        raise NotAccountable(
            "A lot of its own law cannot be sampled once more: nothing is known about lots drawn from lots. Draw each "
            "lot once."
        )
    if any(isinstance(inner, ShuffledReports) for inner in event.walk()):
        raise NotAccountable(
            "Shuffled reports cannot be sampled: fewer reports than the declared population would be shuffled, so the "
            "stated amplification does not hold. Shuffle the reports of everyone."
        )


@lru_cache(maxsize=64)
def _join_lot(event: Event, kind: Kind, tail: float, size: int) -> LossAtoms:
    """The total loss of all releases on one lot, as one list of atoms."""
    steps = boil_down(event)
    releases = sum(times * _releases(inner) for inner, times in steps.counts) + (steps.mu > 0)
    if releases == 1:
        ((alone, _),) = _lot_parts(steps, kind, tail, size)
        return alone
    if releases >= _MANY_JOINED or all(isinstance(inner, ProductNoise) for inner, _ in steps.counts):
        # An estimate omits the far tails, which adds up over many releases.
        side: Kind = "upper" if kind == "upper" else "lower"
        # A tail is a billionth of a step's share of delta; rounding may use a tenth of that share.
        many = convolve_all(_lot_parts(steps, side, tail, size), kind, size, 1e8 * tail)
        if many is not None:
            return many
    size = min(size, _JOINED)
    parts = _lot_parts(steps, kind, tail, size)
    whole: LossAtoms | None = None
    size = size if len(parts) <= 4 else size // 2
    for part, times in parts:
        power = convolve_power(part, times, kind, size)
        whole = power if whole is None else convolve(whole, power, kind, size)
    return whole if whole is not None else LossAtoms(np.zeros(1), np.ones(1), np.ones(1))


def _releases(event: Event) -> int:
    """The number of independent losses of an event on a lot."""
    return sum(shift > 0 for shift in event.shifts) if isinstance(event, ProductNoise) else 1


def _lot_parts(steps: CountedSteps, kind: Kind, tail: float, size: int) -> list[tuple[LossAtoms, int]]:
    """The losses of all releases on one lot, each with its number."""
    parts: list[tuple[LossAtoms, int]] = []
    for inner, times in steps.counts:
        atoms = atoms_of(inner, kind, added=False, tail=tail, size=size, most_shifts=_MOST_JOINED_SHIFTS)
        parts += [(one, number * times) for one, number in atoms]
    if steps.mu > 0:
        parts.append((density_atoms(GaussianDensity(1 / steps.mu), 1.0, kind, tail, size), 1))
    return parts


def _round_shifts(shifts: tuple[float, ...], kind: Kind, most: int) -> list[tuple[float, int]]:
    """Different shifts with their numbers, rounded up (upper), down (lower) or in the mean square (estimate)."""
    values, counts = np.unique(np.array(shifts), return_counts=True)
    if values.size <= most:
        return [(float(v), int(n)) for v, n in zip(values, counts, strict=True)]
    cell = np.ceil(values / values[-1] * most).astype(int)
    result = []
    for index in np.unique(cell):
        inside = cell == index
        number = int(counts[inside].sum())
        square = float(counts[inside] @ values[inside] ** 2) / number
        value = {"upper": values[inside].max(), "lower": values[inside].min(), "estimate": math.sqrt(square)}[kind]
        result.append((float(value), number))
    return result


def _response_atoms(epsilon: float, choices: int = 2, delta: float = 0.0) -> LossAtoms:
    """Randomized response, which with probability `delta` shows the example."""
    likely = (1 - delta) / (1 + (choices - 1) * math.exp(-epsilon))
    unlikely = likely * math.exp(-epsilon)
    loss, p, q = [epsilon, -epsilon], [likely, unlikely], [unlikely, likely]
    if choices > 2:
        other = (choices - 2) * unlikely
        loss, p, q = [*loss, 0.0], [*p, other], [*q, other]
    return LossAtoms(np.array(loss), np.array(p), np.array(q), delta, delta)


def dominating_mu(steps: CountedSteps) -> float:
    """A mu for which all steps together are certified to be mu-GDP; infinite if there is none.

    Sampling does not help: the worst outcome of a sampled Gaussian is as bad as without sampling, however rare it is,
    so no smaller mu holds for the whole curve.
    """
    total = steps.mu * steps.mu
    for event, times in steps.counts:
        mu = steps.group * _unsampled_mu(event)
        total += times * mu * mu
    return math.sqrt(total)


def _unsampled_mu(event: Event) -> float:
    if isinstance(event, (Sampled, ShuffledReports)):
        return dominating_mu(boil_down(event.inside))
    mu = event.largest_mu if isinstance(event, LotEvent) else gaussian_mu(event)
    if mu is not None:
        return mu
    match event:
        case RandomizedResponse(epsilon=epsilon) | EpsilonDelta(epsilon=epsilon, delta=0.0):
            return _pure_mu(epsilon)
        case ProductNoise(density=density, shifts=shifts):
            return math.sqrt(sum(_pure_mu(_largest_loss(density, shift)) ** 2 for shift in shifts))
    return math.inf


def total_loss_ceiling(steps: CountedSteps, *, added: bool) -> float:
    """The largest possible total loss with the example added or removed; infinite if unbounded."""
    if steps.mu > 0:
        return math.inf
    total = 0.0
    for event, times in steps.counts:
        match event:
            case Sampled(rate=rate) if added and event.adjacency is Adjacency.ADD_REMOVE:
                total += times * steps.group * -math.log1p(-rate)
            case RandomizedResponse(epsilon=epsilon) | EpsilonDelta(epsilon=epsilon, delta=0.0):
                total += times * steps.group * epsilon
            case ProductNoise(density=density, shifts=shifts):
                total += times * sum(_largest_loss(density, steps.group * shift) for shift in shifts)
            case ShuffledReports(inside=inside):
                total += times * steps.group * total_loss_ceiling(boil_down(inside), added=False)
            case _:
                return math.inf
    return total


def sum_stated(steps: CountedSteps) -> tuple[float, float]:
    """The sums of all stated epsilons and deltas (basic composition); infinite unless every step states them.

    Computed exactly and rounded up once, so that stated pairs that fit a budget are seen to fit.
    """
    pairs = [(event, times) for event, times in steps.counts if isinstance(event, EpsilonDelta)]
    if steps.mu > 0 or steps.group > 1 or len(pairs) < len(steps.counts):
        return math.inf, math.inf
    epsilon = sum((Fraction(event.epsilon) * times for event, times in pairs), Fraction())
    return _round_up(epsilon), _round_up(sum((Fraction(event.delta) * times for event, times in pairs), Fraction()))


def _round_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _largest_loss(density: Density, shift: float) -> float:
    turns = np.array([*density.loss_turns(shift), 0.0])
    return max(abs(density.loss_limit(shift)), float(np.abs(density.loss(turns, shift)).max()))


def _pure_mu(epsilon: float) -> float:
    """The smallest mu for which epsilon-DP implies mu-GDP: both touch where the two errors are equal."""
    return -2 * float(special.ndtri(1 / (1 + math.exp(epsilon)))) if epsilon < 700 else math.inf
