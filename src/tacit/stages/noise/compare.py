"""The error of a release under each law of noise, at equal certified epsilon, as in figure 6 of Nasr et al. 2020."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import optimize

from tacit import _validate
from tacit.accounting.calibrate import calibrate
from tacit.accounting.curve import curve
from tacit.accounting.densities import Floats
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.stages.noise.gaussian import Normal
from tacit.stages.noise.laws import Family, find_family, list_families
from tacit.stages.noise.product import release_event


@dataclass(frozen=True)
class Setting:
    """Releases in which one example moves coordinate i by at most box[i], and all together by at most norm 1.

    The box may hold several vectors of norm 1 and then has a larger norm itself, which Gaussian noise ignores. `rate` 1
    means that every example enters every lot.
    """

    box: tuple[float, ...]
    rate: float = 1.0
    steps: int = 1

    def __post_init__(self) -> None:
        box = _validate.non_negatives("box", self.box).ravel()
        if not np.linalg.norm(box) >= 1 - 1e-6:
            raise InvalidArgument("box must have a norm of at least 1: errors are in units of what one example moves.")
        object.__setattr__(self, "box", tuple(box.tolist()))
        _validate.check_fields(self, rate="rate", count="steps")

    @property
    def dimension(self) -> int:
        return len(self.box)

    def event(self, family: Family, multiplier: float) -> Event:
        """All releases, with noise of this size."""
        return release_event(family, multiplier, np.array(self.box)).sampled(self.rate) * self.steps


@dataclass(frozen=True)
class FamilyError:
    """The error that noise of one law causes in a release, in units of the norm that bounds examples.

    `l1` is the expected sum of all errors, `l2` the root of the expected sum of their squares; infinite if the law has
    no such moment. Half of the errors are below `median`. `certified` bounds epsilon from below and above.
    """

    name: str
    multiplier: float
    l1: float
    l2: float
    median: float
    certified: tuple[float, float]


def compare_families(setting: Setting, *, epsilon: float, delta: float) -> list[FamilyError]:
    """Every law with the least noise that keeps the budget, ordered by the expected sum of errors.

    >>> found = compare_families(Setting((1.0,)), epsilon=1.0, delta=1e-5)
    >>> [one.name for one in found[:2]]
    ['laplace', 'sech']
    """
    epsilon, delta = _validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)
    guess = calibrate(partial(setting.event, Normal()), epsilon=epsilon, delta=delta)
    found = []
    for name, family in list_families().items():
        least = calibrate(partial(setting.event, family), epsilon=epsilon, delta=delta, guess=guess)
        found.append(error_of(setting, name, least, delta))
    return sorted(found, key=lambda one: (one.l1, one.median))


def error_of(setting: Setting, name: str, multiplier: float, delta: float) -> FamilyError:
    """The error and the cost of noise of this size, for the law of that name."""
    family = find_family(name)
    return FamilyError(
        name,
        multiplier,
        l1=setting.dimension * multiplier * family.mean_absolute,
        l2=math.sqrt(setting.dimension * family.mean_square) * multiplier,
        median=multiplier * median_size(family),
        certified=curve(setting.event(family, multiplier)).epsilon_bounds(delta),
    )


def median_size(family: Family) -> float:
    """The median of |noise| of size 1."""
    density = family.density(1.0)

    def excess(x: float) -> float:
        return float(density.survival(np.array([x]))[0]) - 0.25

    return float(optimize.brentq(excess, 0.0, 10.0))


def trace(setting: Setting, name: str, multipliers: Floats, delta: float) -> tuple[Floats, Floats, Floats]:
    """Certified epsilon, `l1` and `l2` for noise of each size."""
    found = [error_of(setting, name, float(multiplier), delta) for multiplier in multipliers]
    return (
        np.array([one.certified[1] for one in found]),
        np.array([one.l1 for one in found]),
        np.array([one.l2 for one in found]),
    )
