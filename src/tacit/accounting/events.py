"""Events: frozen records of what was released. Code that draws noise emits one; accountants read nothing else.

Events multiply (`event * 100`: the same mechanism a hundred times), add (`a + b`: both were run)
and can be sampled (`event.sampled(rate)`: on a Poisson lot). An event once published never changes
meaning: `to_json` carries a version, and old versions stay readable.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import groupby
from typing import Any, final

from tacit import _validate
from tacit.accounting.densities import Density, LaplaceDensity, StudentTDensity, describe_density, read_density
from tacit.errors import AdjacencyMismatch, InvalidArgument

VERSION = 1


class Adjacency(Enum):
    """Which two data sets a guarantee compares."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    def __str__(self) -> str:
        return {"add_remove": "add/remove one example", "replace_one": "replace one example"}[self.value]


class Event(ABC):
    """Base of all events. The set of kinds is closed: an accountant refuses unknown ones."""

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """The neighbouring relation under which the event is stated."""

    def __add__(self, other: Event) -> Event:
        if not isinstance(other, Event):
            return NotImplemented
        return Composed((*_flat(self), *_flat(other)))

    def __mul__(self, times: int) -> Event:
        return Repeated(self, times)

    def __rmul__(self, times: int) -> Event:
        return Repeated(self, times)

    def sampled(self, rate: float) -> Event:
        """This mechanism on a Poisson lot: each example takes part independently with probability `rate`."""
        return Sampled(self, rate)

    def walk(self) -> Iterator[Event]:
        """This event and everything inside it."""
        yield self

    def to_json(self) -> str:
        """A stable text form; `from_json` gives back an equal event.

        >>> Gaussian(1.1).sampled(0.01).to_json()  # doctest: +ELLIPSIS
        '{"version": 1, "event": "sampled", "rate": 0.01, "inside": {"event": "gaussian", "multiplier": 1.1, ...}}'
        """
        return json.dumps({"version": VERSION, **_write(self)})


@final
@dataclass(frozen=True)
class Gaussian(Event):
    """A value released with Gaussian noise whose standard deviation is `multiplier` times the L2 sensitivity.

    The sensitivity is that of the stated adjacency: replacing an example moves a sum of clipped gradients by up to
    twice the clip norm, adding or removing one by the clip norm.
    """

    multiplier: float
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiplier", _validate.positive("multiplier", self.multiplier))


@final
@dataclass(frozen=True)
class ProductNoise(Event):
    """Independent noise of one symmetric unimodal `density` on every coordinate.

    One example moves coordinate i by at most shifts[i], in the units of the density. The corner of that box dominates
    all its points, so the corner is accounted for.
    """

    density: Density
    shifts: tuple[float, ...]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        shifts = tuple(abs(shift) for shift in _validate.reals("shifts", self.shifts).ravel().tolist())
        if not shifts:
            raise InvalidArgument("shifts must hold at least one number: how far one example moves each coordinate.")
        if not isinstance(self.density, Density):
            raise InvalidArgument(
                "density must be one of tacit.accounting's densities or satisfy its Density protocol. "
                f"Got {self.density!r}."
            )
        object.__setattr__(self, "shifts", shifts)


def Laplace(multiplier: float, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> ProductNoise:  # noqa: N802 - reads as an event
    """A number released with Laplace noise whose scale is `multiplier` times the L1 sensitivity: 1/multiplier-DP."""
    return ProductNoise(LaplaceDensity(_validate.positive("multiplier", multiplier)), (1.0,), adjacency)


def StudentT(  # noqa: N802 - reads as an event
    dof: float,
    scale: float,
    shifts: tuple[float, ...] = (1.0,),
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> ProductNoise:
    """Values released with Student's t noise: `dof` degrees of freedom, stretched by `scale`."""
    return ProductNoise(StudentTDensity(dof, scale), shifts, adjacency)


@final
@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One of `choices` answers, the true one e^epsilon times as likely as any other: epsilon-DP, exactly."""

    epsilon: float
    choices: int = 2
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.positive("epsilon", self.epsilon))
        object.__setattr__(self, "choices", _validate.count("choices", self.choices, at_least=2))


@final
@dataclass(frozen=True)
class EpsilonDelta(Event):
    """A mechanism known only to be (epsilon, delta)-DP."""

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        _validate.check_fields(self, non_negative="epsilon", unit="delta")


@final
@dataclass(frozen=True)
class Unproven(Event):
    """A release whose claim has no proof. Every accountant refuses an event that contains one."""

    claim: str
    reason: str
    adjacency: Adjacency = Adjacency.ADD_REMOVE


@dataclass(frozen=True)
class AroundEvent(Event):
    """An event around another one, with the same adjacency."""

    inside: Event

    @property
    def adjacency(self) -> Adjacency:
        return self.inside.adjacency

    def walk(self) -> Iterator[Event]:
        yield self
        yield from self.inside.walk()


@final
@dataclass(frozen=True)
class Adaptive(AroundEvent):
    """A schedule whose privacy parameters were chosen after seeing earlier releases.

    The sum of the chosen costs is not a guarantee (each branch may keep a budget that the choice between them exceeds),
    so accountants refuse it: fix the schedule, or use a filter.
    """


@final
@dataclass(frozen=True)
class Sampled(AroundEvent):
    """The mechanism inside on a Poisson lot: an example that is not drawn contributes nothing.

    Under replace-one each example must contribute at most half the sensitivity, as with clipping: replacing one then
    moves a sum by at most twice the clip norm.
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", _validate.rate("rate", self.rate))


@final
@dataclass(frozen=True)
class ShuffledReports(AroundEvent):
    """Each of `population` people runs the mechanism inside on their own example; then the reports are shuffled.

    Only the unordered reports, or a symmetric function of them, are released. `inside` is the guarantee of one report
    by itself (local privacy), so it is about replace-one. So is the whole; `population` is public and the same for
    both data sets.
    """

    population: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "population", _validate.count("population", self.population))
        if self.inside.adjacency is not Adjacency.REPLACE_ONE:
            raise AdjacencyMismatch(
                "A report compares any two values of one example, so the event inside shuffled reports must be stated "
                f"under replace one example. This one is about {self.inside.adjacency}."
            )


@final
@dataclass(frozen=True)
class Repeated(AroundEvent):
    """The mechanism inside, run `times` times with fresh noise (and fresh lots)."""

    times: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", _validate.count("times", self.times, at_least=0))


@final
@dataclass(frozen=True)
class Composed(Event):
    """Several mechanisms on the same data. They may depend on earlier releases, but their noise levels may not."""

    parts: tuple[Event, ...]
    adjacency: Adjacency = field(init=False, compare=False, default=Adjacency.ADD_REMOVE)

    def __post_init__(self) -> None:
        found = {part.adjacency for part in self.parts}
        if len(found) > 1:
            raise AdjacencyMismatch(
                "These events compare different neighbours: "
                + " and ".join(sorted(str(one) for one in found))
                + ". Their costs do not add. State all of them under one adjacency: for Gaussian noise, "
                "replacing one example halves the multiplier of adding or removing one."
            )
        object.__setattr__(self, "adjacency", next(iter(found), Adjacency.ADD_REMOVE))

    def walk(self) -> Iterator[Event]:
        yield self
        for part in self.parts:
            yield from part.walk()


def _flat(event: Event) -> tuple[Event, ...]:
    return event.parts if isinstance(event, Composed) else (event,)


_KINDS: dict[str, type[Event]] = {
    "gaussian": Gaussian,
    "randomized_response": RandomizedResponse,
    "epsilon_delta": EpsilonDelta,
    "unproven": Unproven,
    "product_noise": ProductNoise,
    "adaptive": Adaptive,
    "sampled": Sampled,
    "shuffled_reports": ShuffledReports,
    "repeated": Repeated,
    "composed": Composed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def register_event(name: str, kind: type[Event]) -> None:
    """Make a kind of event readable by `from_json`, for modules of this package. A name never changes its meaning."""
    _KINDS[name], _NAMES[kind] = kind, name


def _fields(kind: type[Any]) -> list[str]:
    """The fields of an event in the order of its text, in which what is inside comes last."""
    return sorted((field.name for field in fields(kind) if field.init), key=lambda name: name == "inside")


def _keep(value: Any) -> Any:
    return value


def _write(event: Event) -> dict[str, Any]:
    values = {name: _WRITERS.get(name, _keep)(getattr(event, name)) for name in _fields(type(event))}
    return {"event": _NAMES[type(event)], **values}


def from_json(text: str) -> Event:
    """The event that `to_json` wrote.

    >>> from_json(Laplace(2.0).to_json()) == Laplace(2.0)
    True
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"This is not a JSON text, so it is not an event: {error}.") from error
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise InvalidArgument(
            f"An event of version {version!r} is not known here; this version of tacit reads version {VERSION}. "
            "Read it with the version of tacit that wrote it, or a newer one."
        )
    try:
        return _read(data)
    except RecursionError as error:
        raise InvalidArgument("This event is nested too deeply. Write events with Event.to_json().") from error


def _read(data: dict[str, Any]) -> Event:
    try:
        kind: Callable[..., Event] = _KINDS[data["event"]]
        return kind(**{name: _READERS.get(name, _keep)(data[name]) for name in _fields(_KINDS[data["event"]])})
    except InvalidArgument:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"Not an event of version {VERSION}: {json.dumps(data)[:200]} (missing or unknown: {error}). "
            f"Known events: {', '.join(sorted(_KINDS))}."
        ) from error


# Fields that are no JSON values.
_WRITERS: dict[str, Callable[[Any], Any]] = {
    "inside": _write,
    "parts": lambda parts: [_write(part) for part in parts],
    "density": describe_density,
    "adjacency": lambda adjacency: adjacency.value,
    "shifts": list,
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "inside": _read,
    "parts": lambda parts: tuple(_read(part) for part in parts),
    "density": read_density,
    "adjacency": Adjacency,
    "shifts": tuple,
}


def add_up(events: Iterable[Event]) -> Event:
    """All events as one, with equal events counted, so that accounting is fast.

    The order of composition does not matter, so equal events need not be consecutive.

    >>> add_up([Gaussian(1.0)] * 1000) == Gaussian(1.0) * 1000
    True
    """
    counts: dict[Event, int] = {}
    # The steps of a run share one event object; counting by identity first avoids thousands of comparisons.
    for _, same in groupby(events, key=id):
        event, *others = same
        counts[event] = counts.get(event, 0) + 1 + len(others)
    parts = tuple(Repeated(event, times) for event, times in counts.items())
    return parts[0] if len(parts) == 1 else Composed(parts)


def count_releases(event: Event) -> Counter[Event]:
    """How often each single release happened, with repetitions and compositions expanded.

    >>> count_releases(Gaussian(1.0) + Gaussian(2.0).sampled(0.1) * 5 + Gaussian(1.0))[Gaussian(1.0)]
    2
    """
    counts: Counter[Event] = Counter()
    _count_releases(event, 1, counts)
    return counts


def _count_releases(event: Event, times: int, counts: Counter[Event]) -> None:
    if isinstance(event, Composed):
        for part in event.parts:
            _count_releases(part, times, counts)
    elif isinstance(event, Repeated):
        _count_releases(event.inside, times * event.times, counts)
    else:
        counts[event] += times


def covers(whole: Event, part: Event) -> bool:
    """Whether `whole` contains every release of `part`, and so costs at least as much.

    >>> covers(Gaussian(2.0) + Gaussian(1.0) * 3, Gaussian(1.0) * 2), covers(Gaussian(1.0) * 2, Gaussian(1.0) * 3)
    (True, False)
    """
    return count_releases(part) <= count_releases(whole)
