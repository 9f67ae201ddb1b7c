"""What is said before anything is trained where public numbers fit neither the copy at hand nor each other."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.cli.output import note
from tacit.errors import Caution

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.workflows.settings import Settings


@contextmanager
def said_later() -> Iterator[None]:
    """Data are loaded without a word: `cautions` will say it, and knows what was typed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        yield


@contextmanager
def said_plainly() -> Iterator[None]:
    """What loading says goes to standard error as a sentence, without a place in the code."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, Caution):
                note(f"WARNING: {message}")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def cautions(data: Data, settings: Settings) -> list[str]:
    """A line for each number that was probably not meant. What is proven holds all the same.

    They go to whoever trains, and into nothing that is released: how many examples there are is private.
    """
    found = [_other_size(data, settings), large_delta(settings.delta, settings.population)]
    return [line for line in found if line is not None]


def large_delta(delta: float, population: int) -> str | None:
    """What to know of a delta with which a guarantee says little; None of one that is small enough."""
    if delta * population < 1:
        return None
    return (
        f"WARNING: delta {delta:g} is not below 1/{population:,}, one over the population: publishing one example in "
        "full would meet it, whatever epsilon is. Leave --delta out, or choose one far below."
    )


def _other_size(data: Data, settings: Settings) -> str | None:
    """What to know where there are more or fewer examples than lots are planned for. It does not say how many."""
    found = data.compare_size(settings.population, is_declared=settings.is_declared)
    if found is None:
        return None
    holds = f"What is proven holds all the same, but lots will hold {found} examples than planned, in the same noise."
    lots = "" if settings.recipe is not None else ", and --lot-size so that it fits that"
    if settings.is_declared:
        where = "as rows in the bounds, or by --population" if settings.table is not None else "by --population"
        return (
            f"WARNING: {data.name} has far {found} examples to train on than the {settings.population:,} that were "
            f"declared and that lots are planned for. {holds} If about how many there are may be public, declare that "
            f"{where}{lots}. This was counted, and is not for release."
        )
    return (
        f"WARNING: this copy of {data.name} is not the published one: it has {found} examples to train on than the "
        f"{settings.population:,} that lots are planned for. {holds} If their number may be public, declare it by "
        f"--population{lots}."
    )
