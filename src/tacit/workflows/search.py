"""What a budget leaves open: the noise, the number of steps or the lot size, found by any accountant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tacit import _validate
from tacit.accounting import Adjacency, Event, Gaussian, curve, lot_size_for, multiplier_for, steps_for
from tacit.errors import InvalidArgument, NotAccountable, NotAchievable
from tacit.reports.wording import round_up
from tacit.workflows.numbers import Plan

Unknown = Literal["multiplier", "steps", "lot_size"]

_DIGITS = 6


@dataclass(frozen=True)
class Search:
    """A budget, and a run of which one number is not yet known."""

    unknown: Unknown
    epsilon: float
    delta: float
    adjacency: Adjacency
    multiplier: float = 0.0
    rate: float = 0.0
    steps: int = 0
    population: int = 0

    def solve(self, by: str) -> float:
        """The best value within the budget by this accountant's book; a multiplier is rounded up to six digits."""
        match self.unknown:
            case "multiplier":
                return self._multiplier(by)
            case "steps":
                return steps_for(
                    epsilon=self.epsilon,
                    delta=self.delta,
                    rate=self.rate,
                    multiplier=self.multiplier,
                    by=by,
                    adjacency=self.adjacency,
                    allow_asymptotic=True,
                )
            case "lot_size":
                return lot_size_for(
                    epsilon=self.epsilon,
                    delta=self.delta,
                    population=self.population,
                    steps=self.steps,
                    multiplier=self.multiplier,
                    by=by,
                    adjacency=self.adjacency,
                    allow_asymptotic=True,
                )

    def _multiplier(self, by: str) -> float:
        found = multiplier_for(
            epsilon=self.epsilon,
            delta=self.delta,
            rate=self.rate,
            steps=self.steps,
            by=by,
            adjacency=self.adjacency,
            allow_asymptotic=True,
        )
        shown = round_up(found, _DIGITS)
        # More noise is more privacy, but the bounds of two multipliers are computed apart: what is shown is checked.
        while curve(self.event(shown), by).epsilon(self.delta) > self.epsilon:
            shown = round_up(shown * (1 + 10.0**-_DIGITS), _DIGITS)
        return shown

    def event(self, value: float) -> Event:
        """The run, with the unknown number filled in."""
        multiplier = value if self.unknown == "multiplier" else self.multiplier
        rate = value / self.population if self.unknown == "lot_size" else self.rate
        steps = int(value) if self.unknown == "steps" else self.steps
        return Gaussian(multiplier, self.adjacency).sampled(rate) * steps


@dataclass(frozen=True)
class Alternative:
    """What another accountant would have asked for, and what that costs by the certified one."""

    value: float | None
    certified: tuple[float, float] | None = None
    refusal: str | None = None


def ask(search: Search, by: str) -> Alternative:
    """Solve by this accountant and certify the result; a refusal is an answer too."""
    try:
        value = search.solve(by)
    except (NotAccountable, NotAchievable) as refusal:
        return Alternative(None, refusal=str(refusal))
    return Alternative(value, curve(search.event(value)).epsilon_bounds(search.delta))


def search_for(plan: Plan, *, epsilon: float, delta: float) -> Search:
    """The search in which the one number that was not typed is the unknown."""
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    adjacency = plan.neighbours()
    if plan.multiplier is None:
        rate, steps = plan.sampling_rate(), plan.step_count()
        return Search("multiplier", epsilon, delta, adjacency, rate=rate, steps=steps)
    multiplier = _validate.positive("multiplier", plan.multiplier)
    if plan.steps is None and plan.epochs is None:
        rate = plan.sampling_rate()
        return Search("steps", epsilon, delta, adjacency, multiplier=multiplier, rate=rate)
    if plan.lot_size is not None or plan.rate is not None:
        raise InvalidArgument(
            f"Nothing is left to find: {', '.join(plan.given())} and a budget were given. Leave out --multiplier, "
            "--steps or --lot-size; or ask `tacit epsilon` what the run costs."
        )
    if plan.population is None or plan.steps is None:
        raise InvalidArgument(
            "To find the largest lot size, the number of steps and the population must be known "
            f"(got {', '.join(plan.given())}). Give --steps and --population."
        )
    steps = _validate.count("steps", plan.steps)
    population = _validate.count("population", plan.population)
    return Search("lot_size", epsilon, delta, adjacency, multiplier=multiplier, steps=steps, population=population)
