"""Many steps' events as one, written as shortly as their repetitions allow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from tacit.accounting.events import Composed, Event, Repeated


def add_up(events: Iterable[Event]) -> Event:
    """Everything that happened, with equal events counted: what an accountant reads in no time.

    Composition does not care for order, so equal events are counted wherever they stand.

    >>> from tacit.accounting import Gaussian
    >>> add_up([Gaussian(1.0)] * 1000) == Gaussian(1.0) * 1000
    True
    """
    counts: dict[Event, int] = {}
    # A run's steps share one event object: counting those first saves comparing thousands of events.
    for _, same in groupby(events, key=id):
        event, *others = same
        counts[event] = counts.get(event, 0) + 1 + len(others)
    parts = tuple(Repeated(event, times) for event, times in counts.items())
    return parts[0] if len(parts) == 1 else Composed(parts)
