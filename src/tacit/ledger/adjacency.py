"""Events under one adjacency: what is known for one example added or removed, said for one example replaced."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import singledispatch

from tacit.accounting.events import (
    Adaptive,
    Adjacency,
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    ProductNoise,
    RandomizedResponse,
    Repeated,
    Sampled,
    Unproven,
)
from tacit.errors import AdjacencyMismatch, NotAccountable


def stated(event: Event, adjacency: Adjacency) -> Event:
    """The event, as a statement about these neighbours.

    To replace an example is to remove one and add another, so noise counts half. The reverse is not possible: where
    the number of examples is public, nothing is said about a data set with one fewer.

    >>> stated(Gaussian(2.0) * 10, Adjacency.REPLACE_ONE) == Gaussian(1.0, Adjacency.REPLACE_ONE) * 10
    True
    """
    if event.adjacency is adjacency:
        return event
    if adjacency is Adjacency.ADD_REMOVE:
        raise AdjacencyMismatch(
            "This release is proven for one example replaced by another, and the data set's budget is about one "
            "example added or removed, which does not follow. Give the data set a budget for one example replaced: it "
            "covers both kinds of release (adjacency=Adjacency.REPLACE_ONE, or --adjacency replace_one)."
        )
    return _replaced(event)


@singledispatch
def _replaced(event: Event) -> Event:
    raise NotAccountable(
        f"What a {type(event).__name__} event costs when an example is replaced is not known. Keep it in a ledger "
        "whose budget is about one example added or removed."
    )


@_replaced.register
def _(event: Gaussian) -> Event:
    return Gaussian(event.multiplier / 2, Adjacency.REPLACE_ONE)


@_replaced.register
def _(event: ProductNoise) -> Event:
    return ProductNoise(event.density, tuple(2 * shift for shift in event.shifts), Adjacency.REPLACE_ONE)


@_replaced.register
def _(event: RandomizedResponse) -> Event:
    return EpsilonDelta(2 * event.epsilon, 0.0, Adjacency.REPLACE_ONE)


@_replaced.register
def _(event: EpsilonDelta) -> Event:
    # Two neighbours in a row: D without the example, then D with another one in its place.
    delta = min(event.delta * (1 + math.exp(min(event.epsilon, 700.0))), 1.0)
    return EpsilonDelta(2 * event.epsilon, delta, Adjacency.REPLACE_ONE)


@_replaced.register
def _(event: Unproven) -> Event:
    return replace(event, adjacency=Adjacency.REPLACE_ONE)


@_replaced.register
def _(event: Adaptive) -> Event:
    return Adaptive(_replaced(event.inside))


@_replaced.register
def _(event: Sampled) -> Event:
    return Sampled(_replaced(event.inside), event.rate)


@_replaced.register
def _(event: Repeated) -> Event:
    return Repeated(_replaced(event.inside), event.times)


@_replaced.register
def _(event: Composed) -> Event:
    return Composed(tuple(_replaced(part) for part in event.parts))
