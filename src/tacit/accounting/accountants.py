"""The register of accountants: each says its name, what it certifies, and how it answers for an event.

A new accountant is one file that calls `register_accountant`; `curve(event, by=name)`, the command line's
comparisons and the plots then use it. Modules of this package are found by listing it; code elsewhere registers
when it is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from tacit.accounting.densities import Floats
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument


@dataclass(frozen=True)
class Bounds:
    """A certified interval and the best estimate within it."""

    lower: float
    estimate: float
    upper: float

    @staticmethod
    def ordered(lower: float, estimate: float, upper: float) -> Bounds:
        """The interval, with the upper end and the estimate moved where rounding has put them out of order."""
        upper = max(upper, lower)
        return Bounds(lower, min(max(estimate, lower), upper), upper)

    @staticmethod
    def around(value: float, relative: float) -> Bounds:
        """A probability that is known up to a relative error."""
        return Bounds(value * (1 - relative), value, min(value * (1 + relative), 1.0))

    @staticmethod
    def largest(bounds: list[Bounds]) -> Bounds:
        """The bounds of the largest of several numbers."""
        return Bounds(max(b.lower for b in bounds), max(b.estimate for b in bounds), max(b.upper for b in bounds))

    def capped(self, upper: float) -> Bounds:
        """The same with another upper bound, if that is smaller."""
        upper = max(min(self.upper, upper), self.lower)
        return Bounds(self.lower, min(self.estimate, upper), upper)


class Profile(Protocol):
    """An accountant's answers for one event. An accountant without lower bounds gives 0 for them."""

    def epsilon(self, delta: float) -> Bounds: ...
    def delta(self, epsilon: float) -> Bounds: ...


@runtime_checkable
class CurveProfile(Profile, Protocol):
    """A profile that computes a whole curve faster than one epsilon at a time."""

    def deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of delta at ascending epsilons."""


class Certifies(Enum):
    """Which of an accountant's numbers are proven."""

    BOTH_SIDES = "both sides"
    ABOVE = "above"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Accountant:
    """One way to account for events.

    `label` is what people read, `line` holds matplotlib settings for its plots. `group_profile` answers for several
    examples together; without it, neighbours are chained (`GroupProfile`), which is valid for every mechanism. `mu`
    is for accountants whose whole answer is mu-GDP.
    """

    name: str
    label: str
    profile: Callable[[Event], Profile] = field(repr=False)
    certifies: Certifies
    line: Mapping[str, Any] = field(default_factory=dict, repr=False)
    group_profile: Callable[[Event, int], Profile] | None = field(default=None, repr=False)
    mu: Callable[[Event], float] | None = field(default=None, repr=False)

    @property
    def is_asymptotic(self) -> bool:
        """Whether its numbers are approximations that prove nothing."""
        return self.certifies is Certifies.NOTHING

    @property
    def full_label(self) -> str:
        """The label, with a warning where nothing is certified."""
        return f"{self.label} (no guarantee)" if self.is_asymptotic else self.label

    def profile_of(self, event: Event, group: int = 1) -> Profile:
        """The answers for `group` examples together; `NotAccountable` or `NotProven` where there are none."""
        if group == 1:
            return self.profile(event)
        if self.group_profile is not None:
            return self.group_profile(event, group)
        return GroupProfile(self.profile(event), group)


ACCOUNTANTS: dict[str, Accountant] = {}
"""All of them by name, in the order of their registration."""


def register_accountant(accountant: Accountant) -> Accountant:
    """Make an accountant available as `curve(event, by=accountant.name)`. A name is given only once."""
    if ACCOUNTANTS.setdefault(accountant.name, accountant) is not accountant:
        raise InvalidArgument(f"There is already an accountant {accountant.name!r}. Register yours by another name.")
    return accountant


def accountant_named(name: str) -> Accountant:
    """The accountant of this name.

    >>> accountant_named("clt").is_asymptotic
    True
    """
    if name not in ACCOUNTANTS:
        raise InvalidArgument(f"by must be one of {', '.join(map(repr, sorted(ACCOUNTANTS)))}. Got {name!r}.")
    return ACCOUNTANTS[name]


def other_accountants(than: str = "pld") -> tuple[Accountant, ...]:
    """All accountants but one, by name: those that it is compared with.

    >>> [other.name for other in other_accountants()]
    ['clt', 'moments', 'rdp']
    """
    return tuple(ACCOUNTANTS[name] for name in sorted(ACCOUNTANTS) if name != than)


@dataclass(frozen=True)
class GroupProfile:
    """A group of k = `size` examples by chaining neighbours.

    (eps, delta) becomes (k eps, delta (e^{k eps} - 1) / (e^eps - 1)). Valid for every mechanism; the lower
    bound is that of one example.
    """

    single: Profile
    size: int

    def epsilon(self, delta: float) -> Bounds:
        """The epsilon at which the chained delta falls to `delta`."""
        lower = self.single.epsilon(delta).lower
        low, high = 0.0, max(self.single.epsilon(delta / self.size).upper * self.size, 1e-9)
        while self.delta(high).upper > delta:
            low, high = high, 2 * high
            if high > 1e9:
                return Bounds(lower, math.inf, math.inf)
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(middle).upper > delta else (low, middle)
        return Bounds(lower, high, high)

    def delta(self, epsilon: float) -> Bounds:
        """The chained delta."""
        # What holds at a smaller epsilon holds at this one.
        value = min(self._chained(part * epsilon / self.size) for part in (1.0, 0.9, 0.75, 0.6, 0.4, 0.2, 0.0))
        return Bounds(self.single.delta(epsilon).lower, value, value)

    def _chained(self, share: float) -> float:
        single = self.single.delta(share).upper
        if single == 0:
            return 0.0
        # (e^{k s} - 1) / (e^s - 1) = 1 + e^s + ... + e^{(k - 1) s}
        log_factor = math.log(self.size) + (self.size - 1) * share
        if log_factor < 600:
            log_factor = math.log(sum(math.exp(power * share) for power in range(self.size)))
        return math.exp(min(math.log(single) + log_factor, 0.0))
