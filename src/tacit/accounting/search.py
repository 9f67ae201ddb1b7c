"""The smallest number that is enough, by doubling, then by bisection; and the largest that fits."""

import math
from collections.abc import Callable


def find_least(
    is_enough: Callable[[float], bool],
    low: float,
    high: float,
    *,
    within: float,
    most: float = math.inf,
    is_geometric: bool = False,
) -> float:
    """The smallest x that is enough, at most the share `within` too large; infinite if it exceeds `most`.

    `high` is doubled until it is enough; `low` is not, or is not tried. `is_geometric` halves ratios, not differences.

    >>> round(find_least(lambda x: x * x >= 2, 0.0, 1.0, within=1e-9), 6)
    1.414214
    """
    while not is_enough(high):
        low, high = high, 2 * high
        if high > most:
            return math.inf
    while high / low > 1 + within if is_geometric else high - low > within * high:
        middle = math.sqrt(low * high) if is_geometric else (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def find_most(fits: Callable[[float], bool], low: float, high: float, *, within: float) -> float:
    """The largest x that fits, at most `within` too small: `low` does, and `high` is taken not to."""
    while high - low > within:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
