"""Random search whose best outcome is private: a secret number of trials, one release, one charge.

Settings are drawn from a space that is fixed in advance, a trial is made with each, and the one with the best score is
all that is ever shown. How many trials there are is drawn at random and stays secret (Liu and Talwar 2019; Papernot and
Steinke 2022), which is why that costs little more than one trial; tacit.accounting.selection has the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, Generic, TypeVar

import numpy as np

from tacit import _validate
from tacit.accounting.events import EpsilonDelta, Event
from tacit.accounting.selection import BestOf, TruncatedNegativeBinomial, draw
from tacit.budget import Budget
from tacit.errors import InvalidArgument, NotAchievable, OutOfOrder
from tacit.guarantee import FIXED_SEED, Assumption, Guarantee
from tacit.ledger import Ledger
from tacit.randomness import Purpose, SecureSource, SeededSource, Stream

T = TypeVar("T")
Settings = dict[str, Any]
# How close to the budget calibration comes, from below.
_CLOSE = 0.998

_SECRET = "The number of trials was drawn at random ({mean:g} on average) and stays secret, as do all other trials."
_ASSUMPTIONS = (
    Assumption(
        "public_scores",
        "Trials were compared by a score that is part of what each of them releases, or that public examples give.",
    ),
    Assumption(
        "fixed_search_space",
        "The space of settings was fixed before the first trial, and did not depend on the examples.",
    ),
)


@dataclass(frozen=True)
class Choices:
    """One of these values, each as likely as the others."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise InvalidArgument("Choices must hold at least one value.")

    def choose(self, uniform: float) -> Any:
        """The value that belongs to a number from [0, 1)."""
        return self.values[int(uniform * len(self.values))]


@dataclass(frozen=True)
class LogUniform:
    """A number between two others, every power of ten as likely as the next.

    >>> LogUniform(0.01, 1.0).choose(0.5)
    0.1
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        _validate.check_fields(self, positive=("low", "high"))
        if self.high < self.low:
            raise InvalidArgument(f"A range goes from low to high. Got {self.low:g} to {self.high:g}.")

    def choose(self, uniform: float) -> float:
        """The number that belongs to one from [0, 1)."""
        return float(f"{self.low * (self.high / self.low) ** uniform:.6g}")


Space = Mapping[str, Choices | LogUniform]


@dataclass(frozen=True)
class Trial(Generic[T]):
    """What one trial gave. `guarantee` covers everything in it: the outcome **and the score**.

    A score on private examples is a release of its own. Either it has noise and the guarantee counts it, or it comes
    from examples that are public, and follows from the outcome.
    """

    score: float
    outcome: T
    guarantee: Guarantee


@dataclass(frozen=True)
class Tuned(Generic[T]):
    """The best trial, the settings that it was made with, and what the whole search guarantees."""

    settings: Settings
    score: float
    outcome: T
    guarantee: Guarantee


@dataclass(frozen=True)
class Search:
    """Where settings are drawn from, how often, and what a trial costs with them.

    `cost` gives the event of a trial. It may depend on settings that are `Choices`, and on no range: the price of the
    search is that of its most expensive trial, so all costs must be known in advance.

    >>> from tacit.accounting import Gaussian, curve
    >>> space = {"learning_rate": LogUniform(0.1, 10), "steps": Choices((100, 200))}
    >>> search = Search(space, lambda settings: Gaussian(8.0).sampled(0.1) * settings["steps"])
    >>> round(curve(Gaussian(8.0).sampled(0.1) * 200).epsilon(1e-5), 2), round(search.event(1e-5).epsilon, 2)
    (0.65, 1.07)
    """

    space: Space
    cost: Callable[[Settings], Event]
    repetitions: TruncatedNegativeBinomial = field(default_factory=lambda: TruncatedNegativeBinomial.with_mean(10))

    def costs(self) -> tuple[Event, ...]:
        """All that a trial may cost, each once."""
        return tuple(dict.fromkeys(self.cost(settings) for settings in combinations(self.space)))

    def event(self, delta: float) -> EpsilonDelta:
        """The whole search, as one release."""
        return _price(best_of(self.costs(), self.repetitions), delta)

    def draw(self, stream: Stream) -> Settings:
        """Settings for one trial."""
        return {name: one.choose(_draw_uniform(stream)) for name, one in self.space.items()}


def combinations(space: Space) -> list[Settings]:
    """All settings, with every range at its low end: what a cost may depend on."""
    values = [one.values if isinstance(one, Choices) else (one.low,) for one in space.values()]
    return [dict(zip(space, chosen, strict=True)) for chosen in product(*values)]


def best_of(costs: Sequence[Event], repetitions: TruncatedNegativeBinomial) -> BestOf:
    """The best of several trials, each of which costs one of these."""
    return BestOf(costs[0], repetitions, tuple(costs[1:]))


@lru_cache(maxsize=64)
def _price(best: BestOf, delta: float) -> EpsilonDelta:
    """Asked for several times, and each time it would be accounted for anew."""
    return best.release(delta)


def scaled_to(
    costs: Callable[[float], Sequence[Event]], repetitions: TruncatedNegativeBinomial, budget: Budget
) -> float:
    """A factor of noise with which the best trial costs at most the budget, and hardly less.

    `costs(factor)` is what trials may cost with so many times the noise of what a single one would need.
    """

    def epsilon(factor: float) -> float:
        return best_of(costs(factor), repetitions).epsilon(budget.delta)

    low, high = 1.0, 2.0
    while (found := epsilon(high)) > budget.epsilon:
        low, high = high, 2 * high
        if high > 1e6:
            raise NotAchievable(f"No noise brings the search within epsilon {budget.epsilon:g} at {budget.delta:g}.")
    while found < _CLOSE * budget.epsilon and high - low > 1e-4:
        # Epsilon falls about as fast as noise grows, so the next guess is close; halves make sure of an end.
        guess = high * found / (0.9995 * budget.epsilon)
        middle = guess if low < guess < high else (low + high) / 2
        tried = epsilon(middle)
        if tried <= budget.epsilon:
            high, found = middle, tried
        else:
            low = middle
    return high


def tune(
    trial: Callable[[Settings], Trial[T]],
    search: Search,
    *,
    delta: float,
    ledger: Ledger | None = None,
    dataset: str | None = None,
    fingerprint: str | None = None,
    about: Mapping[str, Any] | None = None,
    seed: int | None = None,
    each: Callable[[Callable[[Settings], Trial[T]], Sequence[Settings]], Iterable[Trial[T]]] = map,
) -> Tuned[T]:
    """Make a secret number of trials and release the one with the highest score (the first of equals).

    The search is charged to the `ledger` as a whole before its first trial; trials must not be charged by themselves.
    `trial` must keep to itself all that it sees: whatever it prints, saves or returns besides is not covered. A score
    that is no number counts as the worst. With a `seed` it is not for release. `each` applies `trial` to
    all settings, in their order, such as on several machines.
    """
    event = search.event(delta)
    expected = set(search.costs())
    if ledger is not None:
        if dataset is None:
            raise InvalidArgument(
                "A ledger charges data sets by name. Give dataset='patients', or leave the ledger out."
            )
        described = {
            **(about or {}),
            "tuned": {name: str(one) for name, one in search.space.items()},
            "trials_on_average": search.repetitions.mean,
            "violations": [] if seed is None else [FIXED_SEED],
        }
        ledger.spend(dataset, event, about=described, fingerprint=fingerprint)
    # One key for all draws of the search, and none of the trials': each of those has its own.
    source = SecureSource() if seed is None else SeededSource(seed)
    stream = source.stream(Purpose.SHUFFLE, 0)
    times = draw(search.repetitions, _draw_uniform(stream))
    best: tuple[Settings, Trial[T]] | None = None
    drawn = [search.draw(stream) for _ in range(times)]
    for settings, made in zip(drawn, each(trial, [dict(one) for one in drawn]), strict=True):
        if made.guarantee.event not in expected or made.guarantee.event != search.cost(settings):
            raise OutOfOrder(
                f"A trial with {settings} cost {made.guarantee.event}, and the search was charged for "
                f"{search.cost(settings)}. A cost may depend on choices, not on ranges; and all steps must be made."
            )
        if best is None or _score(made) > _score(best[1]):
            best = settings, made
    assert best is not None
    return _make_result(search, event, delta, *best, seed=seed)


def _make_result(
    search: Search, event: Event, delta: float, settings: Settings, best: Trial[T], *, seed: int | None
) -> Tuned[T]:
    one = best.guarantee
    violations = one.violations if seed is None else tuple(dict.fromkeys((*one.violations, FIXED_SEED)))
    guarantee = replace(
        one,
        event=event,
        delta=delta,
        claim=None,
        odometer=None,
        # The theorem bounds what a selection gives away; how close one comes to it is not known.
        attained=False,
        violations=violations,
        assumptions=(
            *one.assumptions,
            Assumption("secret_trials", _SECRET.format(mean=search.repetitions.mean)),
            *_ASSUMPTIONS,
        ),
        notes=(*one.notes, "The best of several trials was released; the steps above are those of that one."),
    )
    return Tuned(settings, best.score, best.outcome, guarantee)


def _score(trial: Trial[Any]) -> float:
    return -math.inf if math.isnan(trial.score) else trial.score


def _draw_uniform(stream: Stream) -> float:
    """A number from [0, 1), of 53 random bits."""
    bits = np.empty(1, dtype=np.uint64)
    stream.fill(bits)
    return float(bits[0] >> np.uint64(11)) * 2.0**-53
