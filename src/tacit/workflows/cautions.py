"""Warnings before training: public numbers that fit neither the data nor each other.

They are `Caution`s: what is proven holds all the same. They are shown to whoever trains and released nowhere, because
the number of examples is private.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tacit.errors import Caution

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.workflows.settings import Settings


@contextmanager
def ignore_cautions() -> Iterator[None]:
    """Load data without warnings: `warn_about` gives them later, when the options are known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        yield


def warn_about(data: Data, settings: Settings) -> None:
    """Warn of a population that does not fit the data, and of a large delta."""
    for text in (_compare_size(data, settings), check_delta(settings.delta, settings.population)):
        if text is not None:
            warnings.warn(text, Caution, stacklevel=3)


def check_delta(delta: float, population: int) -> str | None:
    """A warning if delta is so large that the guarantee says little; else None."""
    if delta * population < 1:
        return None
    return (
        f"delta {delta:g} is not below 1/{population:,}, one over the population: publishing one example in full would "
        "satisfy it, whatever epsilon is. Leave --delta out, or choose one far below."
    )


def _compare_size(data: Data, settings: Settings) -> str | None:
    """A warning if there are more or fewer examples than the population says. It does not say how many."""
    found = data.compare_size(settings.population, is_declared=settings.is_declared)
    if found is None:
        return None
    holds = f"The guarantee holds all the same, but lots will have {found} examples than planned, with the same noise."
    lots = "" if settings.recipe is not None else ", and a --lot-size that fits"
    if settings.is_declared:
        where = "as rows in the bounds, or with --population" if settings.table is not None else "with --population"
        return (
            f"{data.name} has far {found} training examples than the declared population of {settings.population:,}. "
            f"{holds} If their approximate number may be public, declare it {where}{lots}. This message was computed "
            "from private rows and is not for release."
        )
    return (
        f"this copy of {data.name} is not the published one: it has {found} training examples than the published "
        f"{settings.population:,}. {holds} If their number may be public, declare it with --population{lots}."
    )
