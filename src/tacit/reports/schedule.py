"""An event in the order in which it happens, so that it can be followed step by step."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.accounting import Composed, Event, Repeated


@dataclass(frozen=True)
class Stretch:
    """The same event `times` times in a row; each of them counts as `length` steps."""

    event: Event
    times: int
    length: int = 1


@dataclass(frozen=True)
class Schedule:
    """Stretches, one after the other.

    A step is one release, or all releases from one lot: sampling happens once for what is inside it.
    """

    stretches: tuple[Stretch, ...]

    @staticmethod
    def of(event: Event) -> Schedule:
        """The schedule of `event`.

        >>> from tacit.accounting import Gaussian
        >>> Schedule.of(Gaussian(2.0) + Gaussian(1.1).sampled(0.01) * 100).steps
        101
        """
        return Schedule(tuple(_stretches(event)))

    @property
    def steps(self) -> int:
        """How many steps there are in all."""
        return sum(stretch.times * stretch.length for stretch in self.stretches)

    def until(self, steps: int) -> Event:
        """What has happened after so many steps; a stretch is followed to the last whole event within it."""
        parts: list[Event] = []
        for stretch in self.stretches:
            times = min(stretch.times, steps // stretch.length)
            parts.append(stretch.event * times)
            steps -= times * stretch.length
            if times < stretch.times:
                break
        return Composed(tuple(parts))


def _stretches(event: Event) -> list[Stretch]:
    if isinstance(event, Composed):
        return [stretch for part in event.parts for stretch in _stretches(part)]
    if isinstance(event, Repeated):
        inside = _stretches(event.inside)
        if len(inside) == 1:
            return [Stretch(inside[0].event, inside[0].times * event.times, inside[0].length)]
        return [Stretch(event.inside, event.times, sum(one.times * one.length for one in inside))]
    return [Stretch(event, 1)]
