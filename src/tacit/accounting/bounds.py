"""A number between two bounds that are certain."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """A certified interval and the best guess within it."""

    lower: float
    estimate: float
    upper: float


def ordered(lower: float, estimate: float, upper: float) -> Bounds:
    """The interval with its guess in it, whatever rounding did to the three."""
    upper = max(upper, lower)
    return Bounds(lower, min(max(estimate, lower), upper), upper)


def capped(bounds: Bounds, upper: float) -> Bounds:
    """With another upper bound, if that is smaller."""
    upper = max(min(bounds.upper, upper), bounds.lower)
    return Bounds(bounds.lower, min(bounds.estimate, upper), upper)


def around(value: float, relative: float) -> Bounds:
    """A probability that is known up to a relative error."""
    return Bounds(value * (1 - relative), value, min(value * (1 + relative), 1.0))


def larger(bounds: list[Bounds]) -> Bounds:
    """The bounds of the largest of several numbers."""
    return Bounds(max(b.lower for b in bounds), max(b.estimate for b in bounds), max(b.upper for b in bounds))
