"""A plan: every privacy parameter of a run, fixed before the first lot; and the guarantee of what was released."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any, cast

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.calibrate import MOST_EPSILON, calibrate
from tacit.accounting.curve import curve
from tacit.accounting.events import Event, Gaussian, add_up
from tacit.budget import Budget
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.guarantee import Assumption, Guarantee, Status
from tacit.stages.mechanism import Mechanism, Settings
from tacit.stages.more_samplings import Remembered
from tacit.stages.sampling import FullBatch, Poisson, Shuffled
from tacit.training.spending import epsilon_spent, largest_mu
from tacit.types import Sampling

Factors = Sequence[float] | Callable[[int], float] | None
_MOST_STEPS = 10**8

NOTHING_FITTED_BEFORE = Assumption(
    "nothing_fitted_before",
    "The model's first weights, and the preprocessing of the data, did not depend on the examples.",
)
_ASSUMPTIONS = (
    Assumption(
        "fixed_in_advance",
        "Noise levels, lot sizes and the number of steps were fixed before the first lot was drawn.",
    ),
    NOTHING_FITTED_BEFORE,
    Assumption(
        "noise_on_a_grid",
        "The noise is drawn in floating point, and noise and sum are rounded to a public grid.",
    ),
)
_PUBLIC_SIZE = Assumption("public_lot_size", "Sums are divided by the public lot size, never by the realised lot size.")
_NO_ANSWER = "The formula of {source} does not apply to this run, so there is no claim to compare with."
_LARGE_DELTA = (
    "Delta {delta:g} is not below 1/{population:,}, one over the population: publishing a random example would satisfy "
    "it. Choose a delta far below."
)
_PEOPLE = (
    "What is protected is one person with all their rows, which are those with the same id. In every step at most "
    "{rows:,} rows of a person are used, drawn at random, and their gradients are averaged before they are bounded. "
    "Population and lots count people, and 'example' in these sentences means a person."
)
_NO_NOISE = "some coordinate had no noise at all"
EXAMPLE, PERSON = "example", "person"


@dataclass(frozen=True)
class Schedule:
    """Factors by which multiplier and lot size vary over the steps.

    A list with one factor per step, or a function of the step. All factors are fixed in advance: a schedule that
    depends on releases would need a filter. Accounting takes time for every distinct value, so use some dozens of
    them, not thousands.

    >>> Schedule(multiplier=lambda step: 1.0 if step < 500 else 0.8, lot_size=None).over(1000).multiplier[499:501]
    (1.0, 0.8)
    """

    multiplier: Factors = None
    lot_size: Factors = None

    def over(self, steps: int) -> FixedSchedule:
        """The factors of every step, as numbers."""
        return FixedSchedule(
            _list_factors("multiplier", self.multiplier, steps), _list_factors("lot_size", self.lot_size, steps)
        )


@dataclass(frozen=True)
class FixedSchedule:
    """The factors of every step; empty if all are 1."""

    multiplier: tuple[float, ...] = ()
    lot_size: tuple[float, ...] = ()


def _list_factors(name: str, factors: Factors, steps: int) -> tuple[float, ...]:
    if factors is None:
        return ()
    values = [factors(step) for step in range(steps)] if callable(factors) else factors
    if len(values) != steps:
        raise InvalidArgument(
            f"The schedule of {name} must hold one factor per step. Got {len(values)} for {steps} steps."
        )
    return tuple(_validate.positive(f"the schedule's factor of {name}", value) for value in values)


@dataclass(frozen=True)
class Plan:
    """What will be released in every step. `dimension` is the number of coordinates of each release.

    With `rows_per_unit` people are protected and not examples: population and lots count people, and so many rows of a
    person enter a step at most.

    `restarts` are the steps from which a resumed run drew anew what spans several steps: the lots of an
    epoch, groups, or correlated noise.
    """

    mechanism: Mechanism
    sampling: Sampling
    steps: int
    dimension: int
    budget: Budget | None = None
    schedule: FixedSchedule = FixedSchedule()
    restarts: tuple[int, ...] = ()
    rows_per_unit: int | None = None

    def __post_init__(self) -> None:
        if self.steps > _MOST_STEPS:
            raise InvalidArgument(
                f"steps must be at most {_MOST_STEPS:,}, because every step is planned in advance. Got {self.steps:,}. "
                "Use larger lots and fewer steps."
            )
        if self.schedule.lot_size and not isinstance(self.sampling, Poisson):
            raise InvalidArgument(
                f"Lot sizes can follow a schedule with Poisson sampling only. Got {type(self.sampling).__name__}."
            )

    @property
    def unit(self) -> str:
        """What is protected."""
        return EXAMPLE if self.rows_per_unit is None else PERSON

    @property
    def delta(self) -> float:
        """The budget's delta, or else 1e-5, but always below a tenth of 1 / population."""
        return self.budget.delta if self.budget else min(1e-5, 0.1 / self.sampling.population)

    def sampling_at(self, step: int) -> Sampling:
        """How the lot of a step is drawn."""
        if not self.schedule.lot_size:
            return self.sampling
        lot_size = self.sampling.lot_size * self.schedule.lot_size[step]
        return cast(Sampling, replace(cast(Any, self.sampling), lot_size=lot_size))

    def mechanism_at(self, step: int) -> Mechanism:
        """The mechanism of a step."""
        multiplier = self.mechanism.noise.multiplier
        if not self.schedule.multiplier or multiplier is None:
            return self.mechanism
        return self.mechanism.with_multiplier(multiplier * self.schedule.multiplier[step])

    def event_at(self, step: int) -> Event:
        """The cost of a step. Also for steps beyond the end of a shortened plan: lost ones are charged."""
        return self.events[step] if step < self.steps else self._event(step)

    @cached_property
    def events(self) -> list[Event]:
        """The cost of every step; equal steps share one object."""
        constant = not (self.schedule.multiplier or self.schedule.lot_size)
        return [self._event(0)] * self.steps if constant else [self._event(step) for step in range(self.steps)]

    def _event(self, step: int) -> Event:
        mechanism = self.mechanism_at(step)
        return mechanism.cost(mechanism.noise.event(self.dimension), self.sampling_at(step), self.dimension)

    def settings(self, done: int | None = None, lost: Sequence[int] = ()) -> Settings:
        """The numbers that a paper's formula needs: for the first `done` steps and `lost` ones, or for all."""

        def gaussian(multiplier: float) -> Event:
            steps = range(self.steps if done is None else done)
            spent, again = self._gaussians(multiplier, steps), self._gaussians(multiplier, lost)
            return total(self.sampling, spent, again, self.restarts)

        return Settings(
            lot_size=self.sampling.lot_size,
            population=self.sampling.population,
            steps=self.steps if done is None else done + len(lost),
            is_scheduled=bool(self.schedule.multiplier or self.schedule.lot_size),
            dimension=self.dimension,
            delta=self.delta,
            mechanism=self.mechanism,
            budget=self.budget,
            gaussian=gaussian,
        )

    def _gaussians(self, multiplier: float, steps: Sequence[int]) -> list[Event]:
        factors = self.schedule.multiplier
        return [self.sampling_at(i).amplify(Gaussian(multiplier * (factors[i] if factors else 1))) for i in steps]

    def total(self, steps: int, lost: Sequence[Event] = ()) -> Event:
        """The cost of the first `steps` steps and of lost ones."""
        return total(self.sampling, self.events[:steps], lost, self.restarts)

    def restart(self, step: int) -> Plan:
        """The plan of a run that resumes at `step` without what it kept in memory.

        At the end of an epoch or cycle nothing is kept that later steps would need.
        """
        length = self.sampling.steps_per_epoch if isinstance(self.sampling, Remembered) else 1
        return replace(self, restarts=(*self.restarts, step)) if step % length else self

    def calibrate(self) -> Plan:
        """This plan with a multiplier that keeps the budget: computed if none was given, else checked."""
        given = self.mechanism.noise.multiplier
        if self.budget is None:
            if given is None:
                raise InvalidArgument(
                    "The noise is not determined. Give the mechanism a multiplier, as in dpsgd(clip_norm=1.0, "
                    "multiplier=1.1), or give a budget, as in budget=Budget(epsilon=3, delta=1e-5)."
                )
            return self._check()
        if self.mechanism.method.mode == "paper":
            return self._apply_rule(self.budget)
        if given is None:
            return self._with(self._find_multiplier(self.budget))
        if self._epsilon(given) > self.budget.epsilon:
            raise BudgetExceeded(
                f"{self.steps} steps with multiplier {given:g} cost epsilon {self._epsilon(given):.4g} at delta "
                f"{self.budget.delta:g}; the budget is {self.budget.epsilon:g}. Raise the multiplier to "
                f"{self._find_multiplier(self.budget):.4g}, or leave it out to have it computed."
            )
        return self

    def _apply_rule(self, budget: Budget) -> Plan:
        """This plan with the noise that the method's paper prescribes for a claimed budget."""
        claims, given = self.mechanism.method.claims, self.mechanism.noise.multiplier
        if given is not None:
            claim = None if claims is None else claims.claim(self.settings(), self._check().total(self.steps))
            if claim is not None and claim.epsilon > budget.epsilon:
                raise BudgetExceeded(
                    f"By its own paper, {self.steps} steps with multiplier {given:g} cost epsilon {claim.epsilon:.4g} "
                    f"at delta {budget.delta:g}; the budget is {budget.epsilon:g}. Leave the multiplier out to have it "
                    "found."
                )
            return self._check()
        if claims is None:
            raise InvalidArgument(
                f"The paper of {self.mechanism.method.name} has no rule for the noise. Give a multiplier instead."
            )
        return replace(self, mechanism=claims.calibrate(self.settings(), budget))._check()

    def _check(self) -> Plan:
        """This plan; raises now if any of its steps is invalid."""
        self.events  # noqa: B018 - find a wrong lot size at step 1000 before step 1
        return self

    def shorten(self, done: int, lost: Sequence[Event]) -> Plan:
        """The plan with as many steps as the budget pays for after `lost` steps; at least those already `done`."""
        budget = self.budget
        # A claimed budget does not say how many steps it still pays for.
        if budget is None or not (lost or self.restarts) or self.mechanism.method.mode == "paper":
            return self

        def fits(steps: int) -> bool:
            return curve(self.total(steps, lost)).epsilon(budget.delta) <= budget.epsilon

        if fits(self.steps):
            return self
        more = bisect_left(range(done + 1, self.steps), True, key=lambda steps: not fits(steps))
        return replace(self, steps=done + more)

    def _with(self, multiplier: float) -> Plan:
        return replace(self, mechanism=self.mechanism.with_multiplier(multiplier))

    def _epsilon(self, multiplier: float) -> float:
        assert self.budget is not None
        return curve(self._with(multiplier).total(self.steps)).epsilon(self.budget.delta)

    def _find_multiplier(self, budget: Budget) -> float:
        epsilon = min(budget.epsilon, MOST_EPSILON)
        return calibrate(
            lambda multiplier: self._with(multiplier).total(self.steps),
            epsilon=epsilon,
            delta=budget.delta,
            guess=self._guess(float(gdp.mu(epsilon, budget.delta))),
        )

    def _guess(self, mu: float) -> float:
        """The central limit theorem, solved for the multiplier."""
        sampling = self.sampling
        if isinstance(sampling, (FullBatch, Shuffled)):
            return math.sqrt(self.steps) / mu
        log_square = 2 * (math.log(mu) + math.log(sampling.population) - math.log(sampling.lot_size))
        log_square -= math.log(self.steps)
        # log(1 + x), also for rates so small that x overflows.
        return 1 / math.sqrt(log_square if log_square > 40 else math.log1p(math.exp(log_square)))


def total(sampling: Sampling, events: list[Event], lost: Sequence[Event] = (), restarts: Sequence[int] = ()) -> Event:
    """The cost of `events` from the first step on, plus each of the `lost` events in full.

    An epoch that was drawn anew from a restart on costs its two parts, each by itself.
    """
    length = getattr(sampling, "steps_per_epoch", 1)
    cuts = {cut for step in restarts for cut in (step, -(-step // length) * length) if 0 < cut < len(events)}
    ends = [0, *sorted(cuts), len(events)]
    parts = [sampling.total(events[start:end]) for start, end in pairwise(ends)]
    spent = reduce(add, parts)
    return spent + add_up(lost) if lost else spent


@dataclass(frozen=True)
class ReleasedSteps:
    """The events of all released steps, as planned and as realised.

    `lost` counts steps that were begun before a crash and drawn again; `forgiven` counts those that left no trace.
    """

    events: list[Event]
    realised: list[Event]
    lost: Counter[int]
    forgiven: int = 0


def make_guarantee(
    plan: Plan, spent: ReleasedSteps, *, assumptions: tuple[Assumption, ...] = (), violations: tuple[str, ...] = ()
) -> Guarantee:
    """The guarantee of everything released so far, with the method's claim beside it."""
    method = plan.mechanism.method
    lost = list(spent.lost.elements())
    event = total(plan.sampling, spent.events, [plan.event_at(step) for step in lost], plan.restarts)
    divided = () if "random_denominator" in method.violations else (_PUBLIC_SIZE,)
    claims = method.claims if spent.events else None
    settings = plan.settings(len(spent.events), lost)
    claim = None if claims is None else claims.claim(settings, event)
    # As for most schedules.
    is_silent = claims is not None and claim is None
    doubt = "" if claim is None or method.status is not Status.PROVEN else claim.doubt
    left = f"{spent.forgiven} lost steps were not charged: the user declared that nothing of them left the process."
    forgiven = (Assumption("lost_steps_not_charged", left),) if spent.forgiven else ()
    of_people = plan.rows_per_unit is not None
    people = (Assumption("unit_is_person", _PEOPLE.format(rows=plan.rows_per_unit)),) if of_people else ()
    return Guarantee(
        event,
        plan.delta,
        method=method.name,
        mode=method.mode,
        status=Status.UNPROVEN if doubt else method.status,
        claim=claim,
        because=doubt or method.because,
        unit=plan.unit,
        assumptions=(plan.sampling.assumption, *divided, *people, *_ASSUMPTIONS, *forgiven, *assumptions),
        unprotected=method.unprotected,
        odometer=epsilon_spent(spent.realised, plan.delta) if spent.realised else None,
        violations=(*method.violations, *violations),
        notes=(
            *_list_notes(plan, spent),
            *([_NO_ANSWER.format(source=method.source)] if is_silent else []),
            *method.notes,
        ),
        attained=method.attained,
    )


def _list_notes(plan: Plan, spent: ReleasedSteps) -> list[str]:
    done, guide = len(spent.events), plan.mechanism.guide
    notes = [f"{done} of {plan.steps} planned steps were released."]
    if plan.delta * plan.sampling.population >= 1:
        notes.append(_LARGE_DELTA.format(delta=plan.delta, population=plan.sampling.population))
    if plan.restarts:
        notes.append(
            f"The run was resumed within an epoch or cycle at step {', '.join(map(str, plan.restarts))}, so its lots "
            "were drawn anew from there, and both parts are charged."
        )
    if spent.lost:
        notes.append(f"{spent.lost.total()} lost steps were drawn again, so they are charged twice.")
    if guide is not None and done:
        epsilon = curve(guide.event(plan.dimension) * (done + spent.lost.total())).epsilon(plan.delta)
        notes.append(
            f"The noisy mean gradients that steered the noise cost epsilon {epsilon:.4g} at delta {plan.delta:g} by "
            "themselves; that much is proven."
        )
    if spent.realised:
        largest = largest_mu(spent.realised)
        moved = f"one example could move a release by {largest:.4g} standard deviations of its noise"
        how = f"{moved} (mu, the clip norm over the smallest sigma)" if math.isfinite(largest) else _NO_NOISE
        notes.append(f"In the step that protected least, {how}. That depends on the run, and is not a guarantee.")
    return notes
