"""Many events as one, written as shortly as their repetitions allow; and one as the single releases in it."""

from __future__ import annotations

from collections import Counter
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


def count_releases(event: Event) -> Counter[Event]:
    """How often each single release happened: repetitions and compositions taken apart.

    >>> from tacit.accounting import Gaussian
    >>> count_releases(Gaussian(1.0) + Gaussian(2.0).sampled(0.1) * 5 + Gaussian(1.0))[Gaussian(1.0)]
    2
    """
    if isinstance(event, Composed):
        return sum((count_releases(part) for part in event.parts), Counter[Event]())
    if isinstance(event, Repeated):
        return Counter({inside: n * event.times for inside, n in count_releases(event.inside).items()})
    return Counter([event])


def covers(whole: Event, part: Event) -> bool:
    """Whether everything that `part` counts is counted in `whole`, so that `whole` costs at least as much.

    >>> from tacit.accounting import Gaussian
    >>> covers(Gaussian(2.0) + Gaussian(1.0) * 3, Gaussian(1.0) * 2), covers(Gaussian(1.0) * 2, Gaussian(1.0) * 3)
    (True, False)
    """
    return count_releases(part) <= count_releases(whole)
