"""One data set in the ledger: what is spent, reserved and left, and what would fit into the budget."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate
from tacit.accounting.curve import curve
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
    Unproven,
    count_releases,
    from_json,
)
from tacit.accounting.lots import LotEvent
from tacit.accounting.search import find_least, find_most
from tacit.budget import Budget, Terms
from tacit.errors import (
    AdjacencyMismatch,
    BadLedger,
    BudgetExceeded,
    InvalidArgument,
    NotAccountable,
    NotAchievable,
    NotProven,
)
from tacit.ledger.book import Entry
from tacit.ledger.course import Course

# What a release is about if it does not say so.
UNIT = "example"
_MOST_RUNS = 10**6
_MOST_TRIALS = 8
# Totals of consecutive runs share one event for all but the last so many of them.
_MERGED_EVERY = 32


def add_deltas(event: Event) -> float:
    """The sum of the deltas that releases state, which no epsilon makes smaller."""
    return sum(each.delta * times for each, times in count_releases(event).items() if isinstance(each, EpsilonDelta))


@dataclass(frozen=True)
class Charge:
    """The cost of one run: what it released if `is_settled`, else the most that it may release."""

    run: str
    event: Event
    is_settled: bool
    since: str
    who: str
    about: dict[str, Any]


@dataclass(frozen=True)
class Account:
    """A data set in the ledger."""

    dataset: str
    terms: Terms | None = None
    charges: tuple[Charge, ...] = ()

    @staticmethod
    def of(dataset: str, entries: Iterable[Entry]) -> Account:
        """Read the data set from these rows. A run's newest row states the cost of the whole run."""
        terms: Terms | None = None
        charges: dict[str, Charge] = {}
        for entry in entries:
            if entry.dataset != dataset:
                continue
            if entry.kind == "budget":
                stated = entry.content
                budget = Budget(stated["epsilon"], stated["delta"])
                terms = Terms(budget, Adjacency(stated["adjacency"]), stated["order"])
            if entry.kind in ("reserve", "settle"):
                charges[entry.run] = _read_charge(entry, charges.get(entry.run))
        return Account(dataset, terms, tuple(charges.values()))

    def without(self, run: str) -> Account:
        """The account without this run."""
        return Account(self.dataset, self.terms, tuple(charge for charge in self.charges if charge.run != run))

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency of the budget; without a budget, one that covers every release."""
        if self.terms is not None:
            return self.terms.adjacency
        replaced = any(charge.event.adjacency is Adjacency.REPLACE_ONE for charge in self.charges)
        return Adjacency.REPLACE_ONE if replaced else Adjacency.ADD_REMOVE

    @property
    def unit(self) -> str:
        """What the costs are about: one example, or one person. All releases of a data set are about the same."""
        return next((str(charge.about.get("unit", UNIT)) for charge in self.charges), UNIT)

    @cached_property
    def total(self) -> Event:
        """Everything that was released or reserved, as one event."""
        return self._compose([charge.event for charge in self.charges])

    def after(self, event: Event) -> Event:
        """Everything together with this event."""
        if self.charges and event.adjacency is self.adjacency:
            return Composed((self.total, event))
        return self._compose([*(charge.event for charge in self.charges), event])

    def _compose(self, events: list[Event]) -> Event:
        # Without a budget, one release about a replaced example makes the whole account replace-one.
        replaced = self.terms is None and any(event.adjacency is Adjacency.REPLACE_ONE for event in events)
        adjacency = Adjacency.REPLACE_ONE if replaced else self.adjacency
        if not events:
            return Gaussian(1.0, adjacency) * 0
        return merge_releases(restate(event, adjacency) for event in events)

    def epsilon(self, delta: float) -> float:
        """The proven epsilon of everything; infinite where something is not proven."""
        try:
            return curve(self.total).epsilon(delta)
        except NotProven:
            return math.inf

    def finite_total(self, delta: float) -> tuple[float, float] | None:
        """(epsilon, delta) of everything: at this delta or, if the deltas of the releases add up to more, at their sum.

        None if a release is not proven.
        """
        epsilon, used = self.epsilon(delta), add_deltas(self.total)
        if math.isinf(epsilon) and used > 0:
            # A little more than the sum, for the parts of a release that have no delta of their own.
            delta = float(f"{1.01 * used:.1e}")
            epsilon = self.epsilon(delta)
        return None if math.isinf(epsilon) else (epsilon, delta)

    def allows(self, event: Event) -> bool:
        """Whether this event fits into the budget; always true without one."""
        return self.terms is None or self.terms.allows(self.after(event))

    def remaining(self) -> Budget | None:
        """The largest budget that one more Gaussian release (or several that add up to one) may use; None if none fits.

        `InvalidArgument` if the data set has no budget.
        """
        terms = self._require_terms()
        delta = terms.budget.delta
        try:
            fits = terms.order is None and self.epsilon(delta) <= terms.budget.epsilon
            if not fits and not terms.allows(self.total):
                return None
            free = float(gdp.mu(terms.budget.epsilon, delta)) ** 2 - float(gdp.mu(self.epsilon(delta), delta)) ** 2
            guess = 1 / math.sqrt(free) if free > 0 else 1.0
            multiplier = self._least(lambda x: Gaussian(x, terms.adjacency), terms, guess)
        except (NotAchievable, NotProven):
            return None
        # The search stops at a very small multiplier, whose cost may be above the budget.
        epsilon = min(float(gdp.epsilon(delta, 1 / multiplier)), terms.budget.epsilon)
        return Budget(epsilon, delta) if epsilon > 0 else None

    def more_like_last(self) -> int | None:
        """How many more runs like the last one fit into the budget; None before the first run."""
        terms = self._require_terms()
        if not self.charges:
            return None
        last = restate(self.charges[-1].event, terms.adjacency)
        try:
            if terms.order is not None:
                return find_largest(lambda times: terms.allows(self.after(last * times)), 0, _MOST_RUNS)
            return self._count_fitting(last, terms.budget)
        except NotProven:
            return 0

    def _count_fitting(self, run: Event, budget: Budget) -> int:
        """How many such runs fit. The search is along mu squared, which is nearly linear in their number."""

        @cache
        def spent(times: int) -> float:
            return curve(self.after(run * times)).epsilon(budget.delta)

        def square(times: int) -> float:
            return float(gdp.mu(spent(times), budget.delta)) ** 2

        goal, low, high = float(gdp.mu(budget.epsilon, budget.delta)) ** 2, 0, 1
        while spent(high) <= budget.epsilon:
            if high >= _MOST_RUNS:
                return high
            share = (goal - square(0)) / max(square(high) - square(0), 1e-12 * goal)
            low, high = high, int(min(max(1.02 * share, 1.0) * high + 1, _MOST_RUNS))
        turn = 0
        while high - low > 1:
            turn += 1
            share = (goal - square(low)) / (square(high) - square(low)) if turn % 4 else 0.5
            middle = min(max(int(low + share * (high - low)), low + 1), high - 1)
            low, high = (middle, high) if spent(middle) <= budget.epsilon else (low, middle)
        return low

    def refusal(self, course: Course) -> BudgetExceeded:
        """The error for a course that does not fit: what it would cost, and what would fit."""
        terms, event = self._require_terms(), course.cost([(0, course.steps)])
        budget = terms.budget
        after, before = curve(self.after(event)).epsilon(budget.delta), self.epsilon(budget.delta)
        held = (
            ""
            if terms.order is None
            else f" (held by a Rényi filter of order {terms.order:.3g}, which leaves a margin)"
        )
        return BudgetExceeded(
            f"This would bring the data set {self.dataset!r} to epsilon {after:.4g} at delta {budget.delta:g}; the "
            f"budget is {budget.epsilon:g}{held}, of which {before:.4g} is spent or reserved.",
            self._advise(course, event, terms),
        )

    def find_fitting_epsilon(self, cost: Callable[[float], Event], epsilon: float) -> float | None:
        """The largest epsilon below the given one, in two digits, with which a run fits; None if none was found.

        `cost` is what a run with this epsilon costs. What the budget leaves for one Gaussian release is tried first.
        """
        left = self.remaining()
        if left is None:
            return None
        start = min(left.epsilon, epsilon)
        digit = 10.0 ** (math.floor(math.log10(start)) - 1)
        place, best = math.floor(start / digit), None
        for _ in range(_MOST_TRIALS):
            tried = float(f"{place * digit:.2g}")
            if not 0 < tried < epsilon or (best is not None and tried <= best):
                break
            if self.allows(cost(tried)):
                best, place = tried, place + 1
            elif best is None:
                place -= max(1, place // 10)
            else:
                break
        return best

    def _advise(self, course: Course, event: Event, terms: Terms) -> str:
        fits = 0
        if course.steps > 1:
            fits = find_largest(lambda stop: self.allows(course.cost([(0, stop)])), 0, course.steps)
        fewer = f"stop after {fits:,} of {course.steps:,} steps" if fits else ""
        advice = ", or ".join(
            part for part in (self._more_noise(event, terms), fewer, self._less(event, terms)) if part
        )
        return f"{advice[0].upper()}{advice[1:]}." if advice else "No release of this kind fits any more."

    def _more_noise(self, event: Event, terms: Terms) -> str:
        """The noise that would make it fit; empty if none would."""
        if add_noise(event, 2.0) == event or not terms.allows(self.total):
            return ""
        try:
            factor = self._least(lambda x: add_noise(event, x), terms)
        except NotAchievable:
            return ""
        multipliers = {one.multiplier for one in event.walk() if isinstance(one, Gaussian)}
        alone = len(multipliers) == 1 and not any(isinstance(one, ProductNoise) for one in event.walk())
        # Rounded up, so that the printed number fits.
        goal = f"to {_round_up(multipliers.pop() * factor)}" if alone else f"by a factor of {_round_up(factor)}"
        return f"raise the multiplier {goal}"

    def _less(self, event: Event, terms: Terms) -> str:
        """The epsilon that would make it fit, for an event of which only (epsilon, delta) is known."""
        if not isinstance(event, EpsilonDelta) or not terms.allows(self.after(replace(event, epsilon=0.0))):
            return ""

        def fits(epsilon: float) -> bool:
            return terms.allows(self.after(replace(event, epsilon=epsilon)))

        low = find_most(fits, 0.0, event.epsilon, within=1e-4 * event.epsilon)
        # Rounded down, so that the printed number fits.
        return f"lower epsilon to {math.floor(low * 1e4) / 1e4:g}" if low >= 1e-4 else ""

    def _least(self, event_of: Callable[[float], Event], terms: Terms, guess: float = 1.0) -> float:
        """The smallest x with which `event_of(x)` fits; `NotAchievable` if none does."""
        if terms.order is None:
            epsilon, delta = terms.budget.epsilon, terms.budget.delta
            return calibrate(lambda x: self.after(event_of(x)), epsilon=epsilon, delta=delta, guess=guess)

        def fits(x: float) -> bool:
            return terms.allows(self.after(event_of(x)))

        least = find_least(fits, 1e-3, 1.0, within=1e-4, most=1e9, is_geometric=True)
        if math.isinf(least):
            raise NotAchievable("No amount of noise makes this event fit through the filter.")
        return least

    def _require_terms(self) -> Terms:
        if self.terms is None:
            raise InvalidArgument(
                f"The data set {self.dataset!r} has no budget. Give it one: Ledger(path).set_budget({self.dataset!r}, "
                f"Budget(epsilon=3, delta=1e-5)), or tacit ledger budget FILE {self.dataset} --epsilon 3 --delta 1e-5."
            )
        return self.terms


def merge_releases(events: Iterable[Event]) -> Event:
    """All events as one in which equal releases are counted, so that a grid of equal runs is accounted for quickly.

    >>> merge_releases([Gaussian(1.0) * 5, Gaussian(2.0), Gaussian(1.0) + Gaussian(2.0) * 2]) == (
    ...     Gaussian(1.0) * 6 + Gaussian(2.0) * 3
    ... )
    True
    """
    counts = count_releases(Composed(tuple(events)))
    parts = tuple(Repeated(event, times) for event, times in counts.items())
    return parts[0] if len(parts) == 1 else Composed(parts)


def add_up_runs(events: Sequence[Event], first: int) -> Iterator[Event]:
    """The total up to each event from place `first` on. Equal releases of what came long before are counted once.

    >>> [count_releases(total)[Gaussian(1.0)] for total in add_up_runs([Gaussian(1.0)] * 4, first=2)]
    [3, 4]
    """
    for place in range(first, len(events)):
        start = place - (place - first) % _MERGED_EVERY
        if place == start:
            before = () if not start else (merge_releases(events[:start]),)
        yield Composed((*before, *events[start : place + 1]))


def restate(event: Event, adjacency: Adjacency) -> Event:
    """The event as a statement about these neighbours.

    To replace an example is to remove one and add another, so noise counts half. The reverse is not possible: where
    the number of examples is public, nothing is known about a data set with one fewer.

    >>> restate(Gaussian(2.0) * 10, Adjacency.REPLACE_ONE) == Gaussian(1.0, Adjacency.REPLACE_ONE) * 10
    True
    """
    if event.adjacency is adjacency:
        return event
    if adjacency is Adjacency.ADD_REMOVE:
        raise AdjacencyMismatch(
            "This release is proven for one example replaced by another. The data set's budget is about one example "
            "added or removed, which does not follow. Give the data set a budget for one example replaced, which "
            "covers both kinds of release: adjacency=Adjacency.REPLACE_ONE, or --adjacency replace_one."
        )
    return _replace_one(event)


def _replace_one(event: Event) -> Event:
    to = Adjacency.REPLACE_ONE
    match event:
        case Gaussian(multiplier=multiplier):
            return Gaussian(multiplier / 2, to)
        case ProductNoise(density=density, shifts=shifts):
            return ProductNoise(density, tuple(2 * shift for shift in shifts), to)
        case RandomizedResponse(epsilon=epsilon):
            return EpsilonDelta(2 * epsilon, 0.0, to)
        case EpsilonDelta(epsilon=epsilon, delta=delta):
            # Two neighbours in a row: D without the example, then D with another one in its place.
            return EpsilonDelta(2 * epsilon, min(delta * (1 + math.exp(min(epsilon, 700.0))), 1.0), to)
        case Unproven():
            return replace(event, adjacency=to)
        case Adaptive() | Sampled() | Repeated():
            return replace(event, inside=_replace_one(event.inside))
        case Composed(parts=parts):
            return Composed(tuple(_replace_one(part) for part in parts))
    raise NotAccountable(
        f"The cost of a {type(event).__name__} event when an example is replaced is not known. Keep it in a ledger "
        "whose budget is about one example added or removed."
    )


def add_noise(event: Event, factor: float) -> Event:
    """The event with `factor` times the noise; parts without noise to scale stay the same.

    >>> add_noise(Gaussian(1.1).sampled(0.1) * 5, 2.0) == Gaussian(2.2).sampled(0.1) * 5
    True
    """
    match event:
        case Gaussian(multiplier=multiplier):
            return replace(event, multiplier=multiplier * factor)
        case ProductNoise(shifts=shifts):
            return replace(event, shifts=tuple(shift / factor for shift in shifts))
        case LotEvent(inside=inside):
            return replace(event, inside=replace(inside, multiplier=inside.multiplier * factor))
        case Sampled() | Repeated():
            return replace(event, inside=add_noise(event.inside, factor))
        case Composed(parts=parts):
            return Composed(tuple(add_noise(part, factor) for part in parts))
    return event


def find_largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from `low` to `high` that fits, if smaller numbers fit too; `low` itself is not tried.

    Steps grow from `low` on, so that numbers far too large are never tried.
    """
    step = 1
    while low < high and fits(min(low + step, high)):
        low, step = min(low + step, high), 2 * step
    high = min(low + step, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _read_charge(entry: Entry, earlier: Charge | None) -> Charge:
    try:
        event = from_json(json.dumps(entry.content["event"]))
    except (InvalidArgument, KeyError) as error:
        raise BadLedger(
            f"Entry {entry.number} holds an event that this version of tacit cannot read: {error}"
        ) from error
    return Charge(
        entry.run,
        event,
        entry.kind == "settle",
        entry.at if earlier is None else earlier.since,
        entry.who,
        entry.content["about"],
    )


def _round_up(value: float) -> str:
    """Five digits, never below the value."""
    scale = 10.0 ** (4 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale) / scale:.5g}"
