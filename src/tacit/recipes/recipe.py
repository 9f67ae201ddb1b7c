"""Recipes: features, lots, steps and learning rates that follow from public facts about a data set.

A recipe is a linear model over features of norm 1, trained by clipped noisy gradients with momentum. The rule: spread
the budget over many steps, with a learning rate for which the noise that accumulates in a weight has a standard
deviation of about 1 (docs/explanations/recipes.md says where the numbers come from). A recipe uses no example, so it
costs nothing.
"""

from __future__ import annotations

import math
import operator
import time
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np

from tacit import _validate
from tacit.accounting import gdp
from tacit.accounting.calibrate import calibrate
from tacit.accounting.events import Event, Gaussian
from tacit.errors import InvalidArgument

Kind = Literal["handwriting", "image", "table", "text"]
Preparation = Literal["none", "centring", "whitening", "word weights"]

# The standard deviation of the noise that has accumulated in a weight by the end, for features of norm 1.
GATHERED: dict[Kind, float] = {"handwriting": 1.5, "image": 1.5, "table": 1.5, "text": 0.85}
CLIP_NORMS: dict[Kind, float] = {"handwriting": 0.05, "image": 0.1, "table": 0.3, "text": 0.1}
MOMENTUM = 0.9
# The constant feature of every row: small, so that it takes little of the clip norm.
CONSTANT = 0.3
# More steps cost time and no privacy. Lots are at least so large that the noise multiplier is _MULTIPLIER: below that,
# sampling amplifies less.
_STEPS = 500
# For tables with a small budget, fewer and longer steps gave better accuracy: steps per unit of mu, and the least.
_STEPS_OF_MU = 3_600
_LEAST_STEPS = 100
_MULTIPLIER = 2.0
_LEAST_LOT = 1024.0
# The share of the squared budget (in mu) for the preparation, and its number of releases, all with the same noise: a
# mean, and for whitening second moments.
_SHARES: dict[Kind, float] = {"handwriting": 0.04, "image": 0.04, "table": 0.06, "text": 0.05}
_PREPARATIONS: dict[Kind, Preparation] = {
    "handwriting": "whitening",
    "image": "whitening",
    "table": "whitening",
    "text": "word weights",
}
# Numbers of steps that a plan compares, and rows on which it measures time.
_OTHER_STEPS = (100, 300, 1_000, 3_000)
_TIMED_ROWS = 512
_RELEASES: dict[Preparation, int] = {"none": 0, "centring": 1, "whitening": 2, "word weights": 1}


@dataclass(frozen=True)
class Recipe:
    """The settings for data of one kind. `share` of the squared budget (as mu of Gaussian DP) pays for the preparation:
    a mean that is released once, and for whitening second moments.
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
        """The number of releases in the preparation, all with the same noise."""
        return _RELEASES[self.preparation]

    def noise(self, epsilon: float, delta: float) -> tuple[float | None, float]:
        """The multipliers of each preparation release (None if there is none) and of every step, within the budget."""
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
        """The recipe with another number of steps, by the same rule."""
        return _make_recipe(self.kind, self.population, float(gdp.mu(epsilon, delta)), _validate.count("steps", steps))

    def event(self, preparation: float | None, step: float) -> Event:
        """The total cost with these multipliers."""
        training = Gaussian(step).sampled(self.rate) * self.steps
        return training if preparation is None else self.preparation_event(preparation) + training

    def preparation_event(self, multiplier: float) -> Event:
        """The cost of the preparation: one event per release."""
        return reduce(operator.add, [Gaussian(multiplier)] * self.releases)


def auto(kind: Kind, *, population: int, epsilon: float, delta: float) -> Recipe:
    """The recipe for this kind of data, population and budget.

    >>> auto("image", population=60_000, epsilon=1.0, delta=1e-5).steps
    500
    """
    if kind not in GATHERED:
        raise InvalidArgument(f"kind must be one of {', '.join(map(repr, GATHERED))}. Got {kind!r}.")
    population = _validate.count("population", population)
    mu = float(gdp.mu(_validate.positive("epsilon", epsilon), _validate.open_unit("delta", delta)))
    return _make_recipe(kind, population, mu, _choose_steps(kind, mu))


def _choose_steps(kind: Kind, mu: float) -> int:
    return max(_LEAST_STEPS, min(_STEPS, round(_STEPS_OF_MU * mu))) if kind == "table" else _STEPS


def _make_recipe(kind: Kind, population: int, mu: float, steps: int) -> Recipe:
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


@dataclass(frozen=True)
class PlanRow:
    """A number of steps, the settings that go with it, and what they give.

    `signal` is the norm of the longest possible sum of clipped gradients of a lot over the norm of its noise;
    `signal_in_all` is the same over all steps, whose noise grows with the square root of their number.
    """

    steps: int
    lot_size: float
    epochs: float
    multiplier: float
    learning_rate: float
    signal: float
    signal_in_all: float
    seconds: float
    is_recipe: bool

    def facts(self) -> dict[str, Any]:
        """The row as a dict."""
        return asdict(self)


def plan_steps(
    kind: Kind, *, population: int, epsilon: float, delta: float, columns: int, classes: int
) -> list[PlanRow]:
    """The recipe and its neighbours with fewer and more steps, by number of steps. No data are read."""
    recipe = auto(kind, population=population, epsilon=epsilon, delta=delta)
    each = _time_one_row(columns, classes)
    found = []
    for steps in sorted({*_OTHER_STEPS, recipe.steps}):
        other = recipe.with_steps(steps, epsilon, delta)
        found.append(_plan_row(other, epsilon, delta, columns * classes, each, is_recipe=steps == recipe.steps))
    return found


def _plan_row(recipe: Recipe, epsilon: float, delta: float, weights: int, each: float, *, is_recipe: bool) -> PlanRow:
    multiplier = recipe.noise(epsilon, delta)[1]
    signal = recipe.lot_size / (multiplier * math.sqrt(weights))
    return PlanRow(
        steps=recipe.steps,
        lot_size=recipe.lot_size,
        epochs=recipe.steps * recipe.rate,
        multiplier=multiplier,
        learning_rate=recipe.learning_rate,
        signal=signal,
        signal_in_all=signal * math.sqrt(recipe.steps),
        seconds=each * recipe.lot_size * recipe.steps,
        is_recipe=is_recipe,
    )


def _time_one_row(columns: int, classes: int) -> float:
    """Seconds to fetch one row and multiply it twice on this machine: the best of five."""
    rows = np.ones((_TIMED_ROWS, columns), dtype=np.float32)
    weights, errors = np.ones((columns, classes), dtype=np.float32), np.ones((_TIMED_ROWS, classes), dtype=np.float32)
    order = np.arange(_TIMED_ROWS)[::-1]
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        lot = rows[order]
        lot @ weights
        errors.T @ lot
        best = min(best, time.perf_counter() - start)
    return best / _TIMED_ROWS
