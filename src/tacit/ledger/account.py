"""What the ledger says of one data set: what is spent and reserved, what is left, and why more would be too much."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
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

_MOST_RUNS = 10**6


@dataclass(frozen=True)
class Charge:
    """What one run costs: `is_settled` if that was released, else what it may release at most."""

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
        """The data set as these rows have it. A run's newest row says what the whole run costs."""
        terms: Terms | None = None
        charges: dict[str, Charge] = {}
        for entry in entries:
            if entry.dataset != dataset:
                continue
            if entry.kind == "budget":
                terms = read_terms(entry.content)
            if entry.kind in ("reserve", "settle"):
                charges[entry.run] = _charge(entry, charges.get(entry.run))
        return Account(dataset, terms, tuple(charges.values()))

    def without(self, run: str) -> Account:
        """The account as if this run had never been."""
        return Account(self.dataset, self.terms, tuple(charge for charge in self.charges if charge.run != run))

    @property
    def adjacency(self) -> Adjacency:
        """The budget's neighbours; without one, those that every release says something about."""
        if self.terms is not None:
            return self.terms.adjacency
        replaced = any(charge.event.adjacency is Adjacency.REPLACE_ONE for charge in self.charges)
        return Adjacency.REPLACE_ONE if replaced else Adjacency.ADD_REMOVE

    @cached_property
    def total(self) -> Event:
        """Everything that was released or reserved, as one event."""
        return self._with([charge.event for charge in self.charges])

    def after(self, event: Event) -> Event:
        """Everything, and this event too."""
        return self._with([*(charge.event for charge in self.charges), event])

    def _with(self, events: list[Event]) -> Event:
        # A release about one example replaced makes all of it so, where no budget says otherwise.
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

    def allows(self, event: Event) -> bool:
        """Whether the budget, if there is one, has room for this event."""
        return self.terms is None or self.terms.allows(self.after(event))

    def remaining(self) -> Budget | None:
        """The largest budget with which one more Gaussian release, or many that amount to one, fits; None if none does.

        Without a budget there is nothing to remain of: `InvalidArgument`.
        """
        terms = self._needed_terms()
        delta = terms.budget.delta
        try:
            if not terms.allows(self.total):
                return None
            multiplier = self._least(lambda x: Gaussian(x, terms.adjacency), terms)
        except (NotAchievable, NotProven):
            return None
        # The search stops where noise is no longer noise; one that costs more than the budget is not meant.
        epsilon = min(float(gdp.epsilon(delta, 1 / multiplier)), terms.budget.epsilon)
        return Budget(epsilon, delta) if epsilon > 0 else None

    def more_like_last(self) -> int | None:
        """How many more runs like the last one the budget has room for; None before the first one."""
        terms = self._needed_terms()
        if not self.charges:
            return None
        last = restate(self.charges[-1].event, terms.adjacency)
        try:
            return largest(lambda times: terms.allows(self.after(last * times)), 0, _MOST_RUNS)
        except NotProven:
            return 0

    def fitting(self, cost: Callable[[int], Event], start: int, stop: int) -> int:
        """The largest number from `start` to `stop` whose cost the budget has room for; `start` if none has."""
        return largest(lambda last: self.allows(cost(last)), start, stop)

    def refusal(self, course: Course) -> BudgetExceeded:
        """Why a whole course is too much, and what would fit."""
        terms, event = self._needed_terms(), course.cost([(0, course.steps)])
        budget = terms.budget
        after, before = curve(self.after(event)).epsilon(budget.delta), self.epsilon(budget.delta)
        held = "" if terms.order is None else f" (held by a Rényi filter of order {terms.order:.3g}, which wants more)"
        return BudgetExceeded(
            f"This would bring the data set {self.dataset!r} to epsilon {after:.4g} at delta {budget.delta:g}; the "
            f"budget is {budget.epsilon:g}{held}, of which {before:.4g} is spent or reserved. "
            f"{self._what_fits(course, event, terms)}"
        )

    def _what_fits(self, course: Course, event: Event, terms: Terms) -> str:
        fits = self.fitting(lambda stop: course.cost([(0, stop)]), 0, course.steps) if course.steps > 1 else 0
        fewer = f"stop after {fits:,} of {course.steps:,} steps" if fits else ""
        advice = ", or ".join(
            part for part in (self._more_noise(event, terms), fewer, self._less(event, terms)) if part
        )
        return f"{advice[0].upper()}{advice[1:]}." if advice else "Nothing of this kind fits any more."

    def _more_noise(self, event: Event, terms: Terms) -> str:
        """How much more noise would make it fit; nothing where none would."""
        if add_noise(event, 2.0) == event or not terms.allows(self.total):
            return ""
        try:
            factor = self._least(lambda x: add_noise(event, x), terms)
        except NotAchievable:
            return ""
        multipliers = {one.multiplier for one in event.walk() if isinstance(one, Gaussian)}
        alone = len(multipliers) == 1 and not any(isinstance(one, ProductNoise) for one in event.walk())
        # Rounded up, so that what is typed after reading it fits.
        goal = f"to {_up(multipliers.pop() * factor)}" if alone else f"by a factor of {_up(factor)}"
        return f"raise the multiplier {goal}"

    def _less(self, event: Event, terms: Terms) -> str:
        """How much less epsilon would make it fit, where no more than that is known of the event."""
        if not isinstance(event, EpsilonDelta) or not terms.allows(self.after(replace(event, epsilon=0.0))):
            return ""
        low, high = 0.0, event.epsilon
        while high - low > 1e-4 * event.epsilon:
            middle = (low + high) / 2
            low, high = (middle, high) if terms.allows(self.after(replace(event, epsilon=middle))) else (low, middle)
        # Rounded down, so that what is typed after reading it fits.
        return f"lower epsilon to {math.floor(low * 1e4) / 1e4:g}" if low >= 1e-4 else ""

    def _least(self, event_of: Callable[[float], Event], terms: Terms) -> float:
        """The smallest x with which `event_of(x)` fits; `NotAchievable` if none does."""
        if terms.order is None:
            budget = terms.budget
            return calibrate(lambda x: self.after(event_of(x)), epsilon=budget.epsilon, delta=budget.delta)
        low, high = 1e-3, 1.0
        while not terms.allows(self.after(event_of(high))):
            low, high = high, 2 * high
            if high > 1e9:
                raise NotAchievable("No amount of noise brings this event within what the filter lets through.")
        while high / low > 1.0001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if terms.allows(self.after(event_of(middle))) else (middle, high)
        return high

    def _needed_terms(self) -> Terms:
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
        case Sampled() | Repeated():
            return replace(event, inside=add_noise(event.inside, factor))
        case Composed(parts=parts):
            return Composed(tuple(add_noise(part, factor) for part in parts))
    return event


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from `low` to `high` that fits, where smaller ones fit too; `low` itself is not asked.

    Numbers are tried from `low` on, in growing steps: what is far too much is never asked for.
    """
    step = 1
    while low < high and fits(min(low + step, high)):
        low, step = min(low + step, high), 2 * step
    high = min(low + step, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def read_terms(content: dict[str, Any]) -> Terms:
    """The terms that a row of kind `budget` states."""
    return Terms(Budget(content["epsilon"], content["delta"]), Adjacency(content["adjacency"]), content["order"])


def _charge(entry: Entry, earlier: Charge | None) -> Charge:
    try:
        event = from_json(json.dumps(entry.content["event"]))
    except (InvalidArgument, KeyError) as error:
        raise BadLedger(f"Entry {entry.number} holds an event that this tacit cannot read: {error}") from error
    return Charge(
        entry.run,
        event,
        entry.kind == "settle",
        entry.at if earlier is None else earlier.since,
        entry.who,
        entry.content["about"],
    )


def _up(value: float) -> str:
    """Five digits, never below the value."""
    scale = 10.0 ** (4 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale) / scale:.5g}"
