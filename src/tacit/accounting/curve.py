"""A privacy curve: every statement about one event by one accountant; and the register of accountants.

A new accountant is one file that calls `register_accountant`; `curve(event, by=name)`, the command line and the plots
then use it. Modules of this package are found by listing it; code elsewhere registers when it is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.densities import Floats
from tacit.accounting.events import Adjacency, Event
from tacit.accounting.search import find_least
from tacit.accounting.steps import boil_down, dominating_mu
from tacit.errors import Asymptotic, InvalidArgument, TacitError

T = TypeVar("T")
ClaimSide = Literal["under", "inside", "over"]

_TABLE_SIZE = 500
_LEAST_DELTA = 1e-13
# How often a chain of neighbours is shortened, and the logarithm of the least delta that is asked for it.
_MOST_CHAINS, _LEAST_LOG = 60, -600.0


def unless_too_large(answer: Callable[[], T]) -> T | None:
    """The answer; None where numbers are so extreme that none can be computed, which proves nothing."""
    try:
        return answer()
    except TacitError:
        raise
    except (ArithmeticError, ValueError, IndexError, MemoryError):
        return None


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

    def cap(self, upper: float) -> Bounds:
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
        share = self._find_share(delta)
        if share is None:
            high = max(self.single.epsilon(delta / self.size).upper * self.size, 1e-9)
            found = find_least(lambda epsilon: self.delta(epsilon).upper <= delta, 0.0, high, within=1e-9, most=1e9)
        else:
            found = share * self.size
        return Bounds(lower, found, found)

    def _find_share(self, delta: float) -> float | None:
        """The least epsilon of one example whose chain stays within `delta`; None where numbers are too small for it.

        If the epsilon at delta / factor(share) is at most the share, the chain from there stays within delta. As the
        factor falls with the share, repeating that gives ever smaller shares of which the same holds.
        """
        share, is_enough = self.single.epsilon(delta / self.size).upper, False
        for _ in range(_MOST_CHAINS):
            log_part = math.log(delta) - self._log_factor(share)
            if not math.isfinite(share) or log_part < _LEAST_LOG:
                return None
            found = self.single.epsilon(math.exp(log_part)).upper
            if found <= share:
                if is_enough and found >= (1 - 1e-9) * share:
                    return found
                share, is_enough = found, True
            elif is_enough:
                # As near as rounding allows.
                return share
            else:
                share = 2 * found - share
        return share if is_enough else None

    def delta(self, epsilon: float) -> Bounds:
        """The chained delta."""
        # What holds at a smaller epsilon holds at this one.
        shares = [part * epsilon / self.size for part in (1.0, 0.9, 0.75, 0.6, 0.4, 0.2, 0.0)]
        value = min(self._chain(share, self.single.delta(share).upper) for share in shares)
        return Bounds(self.single.delta(epsilon).lower, value, value)

    def deltas(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of the chained delta at many epsilons, which are ascending."""
        if not isinstance(self.single, CurveProfile):
            found = [self.delta(float(epsilon)) for epsilon in epsilons]
            return np.array([b.lower for b in found]), np.array([b.upper for b in found])
        shares = epsilons / self.size
        singles = self.single.deltas(shares)[1]
        # What holds at a smaller epsilon holds at this one.
        upper = np.minimum.accumulate([self._chain(*pair) for pair in zip(shares, singles, strict=True)])
        return self.single.deltas(epsilons)[0], upper

    def _chain(self, share: float, single: float) -> float:
        """The delta of the group at `size` times the share, from that of one example at the share."""
        if single == 0:
            return 0.0
        return math.exp(min(math.log(single) + self._log_factor(share), 0.0))

    def _log_factor(self, share: float) -> float:
        # (e^{k s} - 1) / (e^s - 1) = 1 + e^s + ... + e^{(k - 1) s}
        log_factor = math.log(self.size) + (self.size - 1) * share
        if log_factor < 600:
            return math.log(sum(math.exp(power * share) for power in range(self.size)))
        return log_factor


@dataclass(frozen=True)
class PrivacyCurve:
    """The guarantee of one event: epsilon for every delta, and what an attacker can do.

    Single numbers are upper bounds unless the accountant is asymptotic, such as "clt": then they are approximations,
    and bounds are refused. "pld" certifies both sides; for others the lower bound is 0. Every number is the worse of
    adding and removing the example.
    """

    event: Event
    by: str = "pld"
    group_size: int = 1

    def __post_init__(self) -> None:
        accountant_named(self.by)
        if not isinstance(self.event, Event):
            raise InvalidArgument(
                f"event must be an event such as Gaussian(multiplier=1.1).sampled(0.01) * 1000. Got {self.event!r}."
            )
        self._profile  # noqa: B018 - an event without an answer is refused here, not at the first question

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbouring data sets are compared."""
        return self.event.adjacency

    @property
    def accountant(self) -> Accountant:
        """The accountant that answers."""
        return accountant_named(self.by)

    @property
    def is_asymptotic(self) -> bool:
        """True where the numbers hold only in the limit of many steps."""
        return self.accountant.is_asymptotic

    @cached_property
    def _profile(self) -> Profile:
        return self.accountant.profile_of(self.event, self.group_size)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon for which the event is (epsilon, delta)-DP: a certified upper bound, never negative.

        Infinite where no epsilon will do.
        """
        return self._profile.epsilon(_validate.open_unit("delta", delta)).upper

    def epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """(lower, upper): the true epsilon lies between them."""
        self._refuse_asymptotic_bounds()
        delta = _validate.open_unit("delta", delta)
        # Printing a guarantee asks for the same few numbers many times.
        if delta not in self._answers:
            bounds = self._profile.epsilon(delta)
            self._answers[delta] = (bounds.lower, bounds.upper)
        return self._answers[delta]

    @cached_property
    def _answers(self) -> dict[float, tuple[float, float]]:
        return {}

    def epsilon_estimate(self, delta: float) -> float:
        """The best estimate of epsilon: for comparison, not a bound."""
        return self._profile.epsilon(_validate.open_unit("delta", delta)).estimate

    def delta(self, epsilon: float) -> float:
        """Smallest delta for which the event is (epsilon, delta)-DP: a certified upper bound."""
        return self._profile.delta(_validate.non_negative("epsilon", epsilon)).upper

    def delta_bounds(self, epsilon: float) -> tuple[float, float]:
        """(lower, upper): the true delta lies between them."""
        self._refuse_asymptotic_bounds()
        bounds = self._profile.delta(_validate.non_negative("epsilon", epsilon))
        return bounds.lower, bounds.upper

    def tradeoff(self, alpha: gdp.Values) -> gdp.Values:
        """Smallest type II error of any attacker whose false alarms have probability `alpha`.

        The symmetric curve of Dong, Roth and Su 2019: the worse of adding and removing the example.
        """
        alphas = _validate.units("alpha", alpha)
        epsilons, _, deltas = self._table
        return gdp.match_shape(_find_largest(alphas, epsilons, deltas), alpha)

    def tradeoff_bounds(self, alpha: gdp.Values) -> tuple[gdp.Values, gdp.Values]:
        """(lower, upper): the smallest type II error lies between them."""
        self._refuse_asymptotic_bounds()
        alphas = _validate.units("alpha", alpha)
        epsilons, deltas, _ = self._table
        # Between two tabulated epsilons, delta is at least its value at the right, e^epsilon that at the left.
        later = np.append(deltas[1:], 0.0)
        upper = np.minimum(_find_largest(alphas, epsilons, later), 1 - alphas)
        return self.tradeoff(alpha), gdp.match_shape(upper, alpha)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The largest fraction of members that an attacker can find at this rate of false alarms."""
        rate = _validate.unit("false_positive_rate", false_positive_rate)
        return 1 - float(self.tradeoff(rate))

    def advantage(self) -> float:
        """The largest (true positive rate - false positive rate) of any attack: the total variation distance.

        That is delta(0). Where delta is not exact, a pair with a larger epsilon may bound it better: with (epsilon,
        delta)-DP it is at most 1 - 2 (1 - delta) / (1 + e^epsilon), where the trade-off curve meets its diagonal.
        """
        at_zero = self.delta(0.0)
        if self.accountant.certifies is not Certifies.ABOVE and isinstance(self._profile, CurveProfile):
            return at_zero
        epsilons, _, deltas = self._table
        pairs = 1 - 2 * (1 - deltas) / (1 + np.exp(np.minimum(epsilons, 700.0)))
        return min(at_zero, float(pairs.min()))

    def group(self, size: int) -> PrivacyCurve:
        """The guarantee for `size` examples together: exact for Gaussian noise, sampled or not; else by chaining."""
        return replace(self, group_size=self.group_size * _validate.count("size", size))

    def mu(self, regret: float = 0.0) -> float:
        """The smallest mu for which the trade-off curve is certified to be above that of mu-GDP minus `regret`.

        With regret 0 it must hold for the whole curve, and then sampling does not help: the rarest outcomes of a
        sampled Gaussian are as bad as without sampling. A regret such as 1e-6 ignores outcomes of that probability and
        gives a mu that describes the mechanism.
        """
        regret = _validate.non_negative("regret", regret)
        if regret < _LEAST_DELTA:
            return self._whole_mu()
        epsilons, _, deltas = self._table
        rights, excess = np.append(epsilons[1:], math.inf), deltas - regret
        if excess.min() > 0:
            return self._whole_mu()
        rights, excess = rights[: np.argmax(excess <= 0)], excess[: np.argmax(excess <= 0)]
        best, todo = 0.0, np.arange(excess.size)
        while todo.size:
            # A point that the best mu so far covers, beyond rounding, cannot raise it.
            lacking = np.log(excess[todo]) - gdp.log_delta(rights[todo], best)
            todo, lacking = todo[lacking > -1e-9], lacking[lacking > -1e-9]
            if todo.size:
                worst = todo[todo.size // 2] if best == 0 else todo[np.argmax(lacking)]
                best = max(best, float(gdp.mu(float(rights[worst]), float(excess[worst]))))
                todo = todo[todo != worst]
        return min(best, self._whole_mu())

    def _whole_mu(self) -> float:
        if self.accountant.mu is not None:
            return self.group_size * self.accountant.mu(self.event)
        return dominating_mu(boil_down(self.event, self.group_size))

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Many epsilons, and lower and upper bounds of delta there."""
        profile = self._profile
        least = _LEAST_DELTA
        last = profile.epsilon(least).upper
        while math.isinf(last) and least < 0.5:
            least *= 4
            last = profile.epsilon(least).upper
        epsilons = np.linspace(0.0, last, _TABLE_SIZE) if 0 < last < math.inf else np.zeros(1)
        if isinstance(profile, CurveProfile):
            lower, upper = profile.deltas(epsilons)
        else:
            found = [profile.delta(float(epsilon)) for epsilon in epsilons]
            lower, upper = np.array([b.lower for b in found]), np.array([b.upper for b in found])
        return epsilons, lower, np.minimum.accumulate(upper)

    def _refuse_asymptotic_bounds(self) -> None:
        if self.is_asymptotic:
            raise Asymptotic(
                f"The accountant {self.by!r} ({self.accountant.label}) gives an approximation without bounds: the true "
                "epsilon may be larger or smaller. Ask curve(event).epsilon_bounds(delta) for a certified interval."
            )


def curve(event: Event, by: str = "pld") -> PrivacyCurve:
    """The privacy curve of `event` by one accountant.

    "pld" (default) is certified on both sides, "rdp" and "moments" from above, "clt" is an approximation;
    `ACCOUNTANTS` lists all. Raises `NotProven` if a part of the event has no proof.

    >>> from tacit.accounting import Gaussian
    >>> event = Gaussian(multiplier=1.1).sampled(rate=256 / 60_000) * 14_062
    >>> round(curve(event).epsilon(delta=1e-5), 4)
    2.3816
    """
    return PrivacyCurve(event, by)


def claim_side(claimed: float, bounds: tuple[float, float]) -> ClaimSide:
    """Whether a claimed epsilon is under, inside or over the certified interval."""
    lower, upper = bounds
    return "under" if claimed < lower else "over" if claimed > upper else "inside"


def _find_largest(alphas: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """max over the table of 1 - delta - e^eps alpha and e^{-eps} (1 - delta - alpha), at least 0."""
    growth = np.exp(np.minimum(epsilons, 700.0))
    flat = np.atleast_1d(alphas)[..., None]
    left = 1 - deltas - growth * flat
    right = (1 - deltas - flat) / growth
    return np.asarray(np.maximum(np.maximum(left, right).max(axis=-1), 0.0))
