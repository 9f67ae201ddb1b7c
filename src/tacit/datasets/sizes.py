"""Whether there are as many examples as was published or declared: said to whoever loads them, and never released.

Lots are drawn at the rate lot_size / population, whatever the data hold, so what is proven does not depend on it. How
well a model learns does: with fewer examples than that, lots are smaller than planned, in the same noise.
"""

from __future__ import annotations

import warnings
from typing import Literal

from tacit.datasets.data import Data
from tacit.errors import Caution

# What is declared is meant to be about right, in round numbers; beyond this factor it was probably mistyped.
_FAR = 1.5


def other_size(data: Data, population: int, *, is_declared: bool) -> Literal["fewer", "more"] | None:
    """What there are of examples to train on, against a population; None if it fits.

    A published number fits if it is the same, a declared one if it is about the same. The number of examples is
    private: it is neither said nor put in the population's place.
    """
    size, leeway = len(data.train[0]), _FAR if is_declared else 1.0
    if size * leeway < population:
        return "fewer"
    return "more" if size > population * leeway else None


def warn_of_other_size(data: Data, *, is_declared: bool) -> None:
    """Give a `Caution`, as from whoever called the caller, where the data's own population does not fit them."""
    found = other_size(data, data.population, is_declared=is_declared)
    if found is None:
        return
    what = (
        f"{data.name} has far {found} rows to train on than the {data.population:,} that were declared"
        if is_declared
        else f"This copy of {data.name} is not the published one: it has {found} examples to train on than the "
        f"{data.population:,} of its population"
    )
    remedy = "declare that" if is_declared else "give it as the population"
    warnings.warn(
        f"{what}. A guarantee for that population holds all the same, but lots will hold {found} examples than "
        f"planned, in the same noise. If about how many there are may be public, {remedy} instead. This was counted, "
        "and is not for release.",
        Caution,
        stacklevel=3,
    )
