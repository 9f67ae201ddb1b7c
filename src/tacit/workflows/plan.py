"""What a budget buys before any data are read: what `tacit plan` calls."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from tacit import _validate
from tacit.errors import Caution
from tacit.recipes.recipe import Kind, plan_steps
from tacit.workflows.cautions import check_delta
from tacit.workflows.progress import show_status
from tacit.workflows.settings import resolve_delta
from tacit.workflows.text import Paragraph, join_paragraphs

_HEAD = (
    f"{'steps':>8}{'lot size':>10}{'epochs':>8}{'multiplier':>12}{'rate':>10}{'a step':>10}{'in all':>9}{'seconds':>9}"
)
_MEANING = [
    "multiplier: noise on the sum over a lot, as a multiple of the clip norm. rate: the learning rate of the recipe.",
    "a step, in all: signal to noise of one step, and of all steps together: the longest sum of a lot over the length "
    "of its noise.",
    "More steps at the same total noise follow the gradient better and take longer. * marks the recipe.",
]


@dataclass(frozen=True)
class BudgetPlan:
    """Lots, steps, noise, signal and time that a budget buys, for a linear model over features."""

    epsilon: float
    delta: float
    population: int
    rows: list[Any]

    def paragraphs(self) -> list[Paragraph]:
        """The table, and what its columns mean."""
        head = f"epsilon {self.epsilon:g} at delta {self.delta:g} out of {self.population:,} examples (add/remove, PLD)"
        lines = [
            f"{row.steps:>7,}{'*' if row.is_recipe else ' '}{row.lot_size:>10,.0f}{row.epochs:>8.3g}"
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
        return {**about, "plans": [row.facts() for row in self.rows]}


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
