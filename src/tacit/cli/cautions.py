"""What is said before anything is trained where public numbers fit neither the copy at hand nor each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.cli.settings import Settings
    from tacit.datasets import Data


def cautions(data: Data, settings: Settings) -> list[str]:
    """A line for each number that was probably not meant. What is proven holds all the same."""
    found = [_another_copy(data, settings), large_delta(settings.delta, settings.population)]
    return [line for line in found if line is not None]


def large_delta(delta: float, population: int) -> str | None:
    """What to know of a delta with which a guarantee says little; None of one that is small enough."""
    if delta * population < 1:
        return None
    return (
        f"WARNING: delta {delta:g} is not below 1/{population:,}, one over the population: publishing one example in "
        "full would meet it, whatever epsilon is. Leave --delta out, or choose one far below."
    )


def _another_copy(data: Data, settings: Settings) -> str | None:
    """What to know of a copy of another size than was published, and out of which lots are drawn.

    Its size is private: it is neither said here nor put in the place of the published one.
    """
    size = len(data.train[0])
    if settings.is_declared or size == settings.population:
        return None
    fewer = "fewer" if size < settings.population else "more"
    lots = "" if settings.recipe is not None else ", and --lot-size so that it fits that"
    return (
        f"WARNING: this copy of {data.name} is not the published one: it has {fewer} examples to train on than the "
        f"{settings.population:,} that lots are planned for. What is proven holds all the same, but lots will hold "
        f"{fewer} examples than planned, in the same noise. If their number may be public, declare it by "
        f"--population{lots}."
    )
