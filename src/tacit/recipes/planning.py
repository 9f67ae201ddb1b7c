"""Planning: what a budget buys, for numbers of steps around those of a recipe. No data are read."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.recipes.recipe import Kind, Recipe, auto

_OTHER_STEPS = (100, 300, 1_000, 3_000)
# Rows that the time is measured on; it grows with their number.
_ROWS = 512


@dataclass(frozen=True)
class Row:
    """A number of steps, what goes with it, and what comes of it.

    `signal` is the longest sum of clipped gradients that a lot can have, all in one direction, over the length of the
    noise on it; `signal_in_all` is the same over all steps, whose noise adds up as its square root.
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
        """For machines."""
        return asdict(self)


def plans(kind: Kind, *, population: int, epsilon: float, delta: float, columns: int, classes: int) -> list[Row]:
    """The recipe and its neighbours with fewer and more steps, by number of steps."""
    recipe = auto(kind, population=population, epsilon=epsilon, delta=delta)
    each = _seconds_a_row(columns, classes)
    found = []
    for steps in sorted({*_OTHER_STEPS, recipe.steps}):
        other = recipe.with_steps(steps, epsilon, delta)
        found.append(_row(other, epsilon, delta, columns * classes, each, is_recipe=steps == recipe.steps))
    return found


def _row(recipe: Recipe, epsilon: float, delta: float, weights: int, each: float, *, is_recipe: bool) -> Row:
    multiplier = recipe.noise(epsilon, delta)[1]
    signal = recipe.lot_size / (multiplier * math.sqrt(weights))
    return Row(
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


def _seconds_a_row(columns: int, classes: int) -> float:
    """Of fetching one row and multiplying it twice, on this machine: the best of a few."""
    rows = np.ones((_ROWS, columns), dtype=np.float32)
    weights, errors = np.ones((columns, classes), dtype=np.float32), np.ones((_ROWS, classes), dtype=np.float32)
    order = np.arange(_ROWS)[::-1]
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        lot = rows[order]
        lot @ weights
        errors.T @ lot
        best = min(best, time.perf_counter() - start)
    return best / _ROWS
