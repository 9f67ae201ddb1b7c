"""The curves of a guarantee as numbers: the trade-off curve, and epsilon over the steps. Pages and plots use them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit import _validate
from tacit.accounting import Composed, Event, PrivacyCurve, Repeated, curve, other_accountants
from tacit.accounting.densities import Floats
from tacit.errors import NotAccountable
from tacit.guarantee import finite


@dataclass(frozen=True)
class Stretch:
    """The same event `times` times in a row; each of them counts as `length` steps."""

    event: Event
    times: int
    length: int = 1


@dataclass(frozen=True)
class Schedule:
    """An event as a sequence of stretches, so that it can be cut off after any step.

    A step is one release, or all releases from one lot.
    """

    stretches: tuple[Stretch, ...]

    @staticmethod
    def of(event: Event) -> Schedule:
        """The schedule of `event`.

        >>> from tacit.accounting import Gaussian
        >>> Schedule.of(Gaussian(2.0) + Gaussian(1.1).sampled(0.01) * 100).steps
        101
        """
        return Schedule(tuple(_list_stretches(event)))

    @property
    def steps(self) -> int:
        """The number of steps."""
        return sum(stretch.times * stretch.length for stretch in self.stretches)

    def until(self, steps: int) -> Event:
        """The event of the first `steps` steps; a stretch is cut off after its last complete event."""
        parts: list[Event] = []
        for stretch in self.stretches:
            times = min(stretch.times, steps // stretch.length)
            parts.append(stretch.event * times)
            steps -= times * stretch.length
            if times < stretch.times:
                break
        return Composed(tuple(parts))


def _list_stretches(event: Event) -> list[Stretch]:
    if isinstance(event, Composed):
        return [stretch for part in event.parts for stretch in _list_stretches(part)]
    if isinstance(event, Repeated):
        inside = _list_stretches(event.inside)
        if len(inside) == 1:
            return [Stretch(inside[0].event, inside[0].times * event.times, inside[0].length)]
        return [Stretch(event.inside, event.times, sum(one.times * one.length for one in inside))]
    return [Stretch(event, 1)]


# Shares of false alarms at which reports state how many members are found.
FALSE_ALARMS = (0.001, 0.01)
LEAST_ALARMS = 1e-5
ALARMS = np.concatenate([[0.0], np.geomspace(LEAST_ALARMS, 0.02, 80), np.linspace(0.02, 1.0, 99)[1:]])
POINTS = 18

Numbers = list[float | None]


@dataclass(frozen=True)
class Tradeoff:
    """The share of members missed over the share of false alarms.

    No attack goes below `missed_lower`, and some attack reaches `missed_upper`. `central_limit` is the curve of the
    central limit theorem, None if it does not apply. `epsilon` belongs to `delta`, None if it is infinite or there is
    no `delta`. `marked` holds pairs of a share of false alarms and the largest share of members found.
    """

    false_alarms: list[float]
    missed_lower: list[float]
    missed_upper: list[float]
    central_limit: list[float] | None
    marked: list[list[float]]
    delta: float | None = None
    epsilon: float | None = None

    @staticmethod
    def of(certified: PrivacyCurve, delta: float | None = None, alphas: Floats = ALARMS) -> Tradeoff:
        """The certified curve at the shares `alphas` of false alarms."""
        lower, upper = (np.asarray(bound) for bound in certified.tradeoff_bounds(alphas))
        try:
            central_limit = np.asarray(replace(certified, by="clt").tradeoff(alphas)).tolist()
        except NotAccountable:
            central_limit = None
        return Tradeoff(
            alphas.tolist(),
            lower.tolist(),
            upper.tolist(),
            central_limit,
            [[rate, certified.true_positive_rate(rate)] for rate in FALSE_ALARMS],
            delta,
            None if delta is None else finite(certified.epsilon(delta)),
        )


@dataclass(frozen=True)
class Spending:
    """Epsilon at `delta` after each number of steps; None if it is infinite.

    `lower` and `upper` are certified. `others` holds the answers of other accountants, None for one that refuses the
    event; the central limit theorem guarantees nothing.
    """

    delta: float
    steps: list[int]
    lower: Numbers
    upper: Numbers
    others: dict[str, Numbers | None]

    @staticmethod
    def of(event: Event, delta: float, group: int = 1, points: int = POINTS) -> Spending:
        """Each accountant's answer for a group of `group` examples, at up to `points` numbers of steps."""
        delta = _validate.open_unit("delta", delta)
        schedule = Schedule.of(event)
        # Epsilon grows like the square root of the steps, so early steps get more points.
        places = np.ceil(schedule.steps * np.linspace(0.0, 1.0, points) ** 2).astype(int)
        steps: list[int] = np.unique(np.maximum(places, min(schedule.steps, 1))).tolist()
        curves = [curve(schedule.until(step)).group(group) for step in steps]
        bounds = [one.epsilon_bounds(delta) for one in curves]
        return Spending(
            delta,
            steps,
            [finite(lower) for lower, _ in bounds],
            [finite(upper) for _, upper in bounds],
            {other.name: _ask(curves, other.name, delta) for other in other_accountants()},
        )


def _ask(curves: list[PrivacyCurve], by: str, delta: float) -> Numbers | None:
    """The answers of another accountant; None if it refuses the event."""
    try:
        return [finite(replace(one, by=by).epsilon(delta)) for one in curves]
    except NotAccountable:
        return None
