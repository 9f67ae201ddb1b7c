"""Recipes: features, lots, steps and step lengths that suit a data set, from public facts about it alone.

A recipe is a linear model over features of norm 1, trained by clipped and noisy gradients with momentum. The rule
(docs/recipes.md says where its numbers come from) is one sentence: spread what the budget allows over many steps, and
make them so long that the noise which gathers in a weight has a standard deviation of about 1. No example is looked
at to find a recipe, so none is charged for it.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate
from tacit.accounting.events import Event, Gaussian
from tacit.errors import InvalidArgument

Kind = Literal["handwriting", "image", "table", "text"]
Preparation = Literal["none", "centring", "whitening", "word weights"]

# By the end, the noise that has gathered in a weight has this standard deviation, for features of norm 1.
GATHERED: dict[Kind, float] = {"handwriting": 1.5, "image": 1.5, "table": 1.5, "text": 0.85}
CLIP_NORMS: dict[Kind, float] = {"handwriting": 0.05, "image": 0.1, "table": 0.3, "text": 0.1}
MOMENTUM = 0.9
# The constant feature of every row. It is short, so that little of the clip norm goes to it.
CONSTANT = 0.3
# More steps cost time and no privacy; lots are so large that the noise on their sum is this multiple of the clip norm
# where nothing else asks for larger ones: below it, sampling hides less.
_STEPS = 500
# Of tables with a small budget, fewer and longer steps made more: so many for each unit of mu, and no fewer than these.
_STEPS_OF_MU = 3_600
_LEAST_STEPS = 100
_MULTIPLIER = 2.0
_LEAST_LOT = 1024.0
# The share of the squared budget (in mu) that goes to the preparation, and how many releases, with equal noise, it
# makes: a mean, and second moments if it whitens.
_SHARES: dict[Kind, float] = {"handwriting": 0.04, "image": 0.04, "table": 0.06, "text": 0.05}
_PREPARATIONS: dict[Kind, Preparation] = {
    "handwriting": "whitening",
    "image": "whitening",
    "table": "whitening",
    "text": "word weights",
}
_RELEASES: dict[Preparation, int] = {"none": 0, "centring": 1, "whitening": 2, "word weights": 1}


@dataclass(frozen=True)
class Recipe:
    """What to do with data of one kind. `share` of the squared budget (as mu, in the sense of Gaussian DP) pays for
    the preparation: a mean that is released once, and second moments if rows are whitened.
    """

    kind: Kind
    preparation: Preparation
    share: float
    steps: int
    lot_size: float
    population: int
    clip_norm: float
    learning_rate: float
    momentum: float

    @property
    def rate(self) -> float:
        """The probability with which an example enters a lot."""
        return self.lot_size / self.population

    @property
    def releases(self) -> int:
        """How many releases, with equal noise, prepare."""
        return _RELEASES[self.preparation]

    def noise(self, epsilon: float, delta: float) -> tuple[float | None, float]:
        """The multipliers of each release that prepares (None if none does) and of every step, to keep the budget."""
        preparation = self.preparation_multiplier(epsilon, delta)
        guess = self.rate * math.sqrt(self.steps) / float(gdp.mu(epsilon, delta)) + 0.5
        step = calibrate(
            lambda multiplier: self.event(preparation, multiplier), epsilon=epsilon, delta=delta, guess=guess
        )
        return preparation, step

    def preparation_multiplier(self, epsilon: float, delta: float) -> float | None:
        """The noise on each release of the preparation; None if there is none."""
        if self.preparation == "none":
            return None
        return math.sqrt(self.releases / self.share) / float(gdp.mu(epsilon, delta))

    def with_steps(self, steps: int, epsilon: float, delta: float) -> Recipe:
        """By the same rule, with another number of steps."""
        return _recipe(self.kind, self.population, float(gdp.mu(epsilon, delta)), _validate.count("steps", steps))

    def event(self, preparation: float | None, step: float) -> Event:
        """What everything costs together, with these multipliers."""
        training = Gaussian(step).sampled(self.rate) * self.steps
        return training if preparation is None else self.preparation_event(preparation) + training

    def preparation_event(self, multiplier: float) -> Event:
        """What the releases that prepare cost: one event each, as each is drawn by itself."""
        return reduce(operator.add, [Gaussian(multiplier)] * self.releases)


def auto(kind: Kind, *, population: int, epsilon: float, delta: float) -> Recipe:
    """The recipe for so many examples of a kind and such a budget.

    >>> auto("image", population=60_000, epsilon=1.0, delta=1e-5).steps
    500
    """
    if kind not in GATHERED:
        raise InvalidArgument(f"kind must be one of {', '.join(map(repr, GATHERED))}. Got {kind!r}.")
    population = _validate.count("population", population)
    mu = float(gdp.mu(_validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)))
    return _recipe(kind, population, mu, _steps(kind, mu))


def _steps(kind: Kind, mu: float) -> int:
    return max(_LEAST_STEPS, min(_STEPS, round(_STEPS_OF_MU * mu))) if kind == "table" else _STEPS


def _recipe(kind: Kind, population: int, mu: float, steps: int) -> Recipe:
    clip_norm = CLIP_NORMS[kind]
    wanted = max(_MULTIPLIER * mu * population / math.sqrt(steps), _LEAST_LOT)
    return Recipe(
        kind=kind,
        preparation=_PREPARATIONS[kind],
        share=_SHARES[kind],
        steps=steps,
        lot_size=min(float(round(wanted)), float(population)),
        population=population,
        clip_norm=clip_norm,
        learning_rate=GATHERED[kind] * mu * population * (1 - MOMENTUM) / (clip_norm * steps),
        momentum=MOMENTUM,
    )
