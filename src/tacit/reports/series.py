"""What the pictures of a guarantee draw, as numbers: the twin of a page holds every curve that the page shows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tacit import _validate
from tacit.accounting import Event, PrivacyCurve, curve, other_accountants
from tacit.accounting.densities import Floats
from tacit.errors import NotAccountable
from tacit.reports.schedule import Schedule

# Shares of false alarms at which it is said how many members are found.
FALSE_ALARMS = (0.001, 0.01)
LEAST_ALARMS = 1e-5
ALARMS = np.concatenate([[0.0], np.geomspace(LEAST_ALARMS, 0.02, 80), np.linspace(0.02, 1.0, 99)[1:]])
POINTS = 18

Numbers = list[float | None]


@dataclass(frozen=True)
class Tradeoff:
    """The share of members missed over the share of false alarms.

    No attack comes below `missed_lower`, and some attack comes as low as `missed_upper`. `central_limit` is what the
    central limit theorem says, None where it says nothing. `epsilon` belongs to `delta`; None where there is no
    finite one, or none was asked for. `marked` holds, for some shares of false alarms, how many members are found at
    most.
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
        """The certified curve, and what stands beside it."""
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
    """Epsilon at `delta` after so many steps, up to all of them, in their order; None where it is infinite.

    `lower` and `upper` are certified. `others` is what other accountants say, None for one that refuses the event;
    what the central limit theorem says promises nothing.
    """

    delta: float
    steps: list[int]
    lower: Numbers
    upper: Numbers
    others: dict[str, Numbers | None]

    @staticmethod
    def of(event: Event, delta: float, group: int = 1, points: int = POINTS) -> Spending:
        """Each accountant's answer, for a group of so many examples, at no more than so many numbers of steps."""
        delta = _validate.open_unit("delta", delta)
        schedule = Schedule.of(event)
        # Epsilon grows like the square root of the steps: more points where it bends.
        places = np.ceil(schedule.steps * np.linspace(0.0, 1.0, points) ** 2).astype(int)
        steps: list[int] = np.unique(np.maximum(places, min(schedule.steps, 1))).tolist()
        curves = [curve(schedule.until(step)).group(group) for step in steps]
        bounds = [one.epsilon_bounds(delta) for one in curves]
        return Spending(
            delta,
            steps,
            [finite(lower) for lower, _ in bounds],
            [finite(upper) for _, upper in bounds],
            {other.name: _asked(curves, other.name, delta) for other in other_accountants()},
        )


def _asked(curves: list[PrivacyCurve], by: str, delta: float) -> Numbers | None:
    """The same question, put to another accountant; None if it refuses the event."""
    try:
        return [finite(replace(one, by=by).epsilon(delta)) for one in curves]
    except NotAccountable:
        return None


def finite(value: float) -> float | None:
    """None for infinity, for which JSON has no number."""
    return float(value) if math.isfinite(value) else None
