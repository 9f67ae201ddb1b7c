"""What a budget buys before any data are read: what `tacit plan` calls."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit import _validate
from tacit.errors import Caution
from tacit.recipes.recipe import Kind, Recipe, auto
from tacit.workflows.arguments import check_delta
from tacit.workflows.progress import show_status
from tacit.workflows.settings import resolve_delta
from tacit.workflows.text import Paragraph, join_paragraphs

_HEAD = (
    f"{'steps':>8}{'lot size':>10}{'epochs':>10}{'multiplier':>12}{'rate':>10}{'a step':>10}{'in all':>9}{'seconds':>9}"
)
_MEANING = [
    "multiplier: noise on the sum over a lot, as a multiple of the clip norm. rate: the learning rate of the recipe.",
    "a step, in all: signal to noise of one step, and of all steps together. The signal is the largest norm of the "
    "sum over a lot.",
    "More steps at the same total noise follow the gradient better and take longer. * marks the recipe.",
]

# Numbers of steps that a plan compares, and rows on which it measures time.
_OTHER_STEPS = (100, 300, 1_000, 3_000)
_TIMED_ROWS = 512


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


@dataclass(frozen=True)
class BudgetPlan:
    """Lots, steps, noise, signal and time that a budget buys, for a linear model over features."""

    epsilon: float
    delta: float
    population: int
    rows: list[PlanRow]

    def paragraphs(self) -> list[Paragraph]:
        """The table, and what its columns mean."""
        head = f"epsilon {self.epsilon:g} at delta {self.delta:g} out of {self.population:,} examples (add/remove, PLD)"
        lines = [
            f"{row.steps:>7,}{'*' if row.is_recipe else ' '}{row.lot_size:>10,.0f}{row.epochs:>10,.4g}"
            f"{row.multiplier:>12.4g}{row.learning_rate:>10.4g}{row.signal:>10.3g}{row.signal_in_all:>9.3g}"
            f"{row.seconds:>9.2g}"
            for row in self.rows
        ]
        return [(head, [_HEAD, *lines]), ("What the columns mean", _MEANING)]

    def __str__(self) -> str:
        return join_paragraphs(self.paragraphs())

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        about = {"epsilon": self.epsilon, "delta": self.delta, "population": self.population}
        return {**about, "plans": [asdict(row) for row in self.rows]}


def plan(
    *,
    population: float,
    epsilon: float,
    delta: float | None = None,
    kind: Kind = "image",
    features: float,
    classes: float,
) -> BudgetPlan:
    """Several ways to spend a budget on a linear model over features; one of them is the automatic recipe."""
    size = _validate.count("population", population)
    chosen = resolve_delta(delta, size)
    with show_status("Accounting"):
        rows = plan_steps(
            kind,
            population=size,
            epsilon=epsilon,
            delta=chosen,
            columns=_validate.count("features", features),
            classes=_validate.count("classes", classes, at_least=2),
        )
    caution = check_delta(chosen, size)
    if caution is not None:
        warnings.warn(caution, Caution, stacklevel=2)
    return BudgetPlan(epsilon, chosen, size, rows)


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
