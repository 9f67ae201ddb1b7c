"""What a data set is here: private examples, public examples, and the public numbers that describe both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Examples = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and targets to train on, which are private, and to test on, which are taken as public.

    `population` is the published number of training examples, a constant: it is not counted from the copy at hand,
    whose size is private. `classes` is None where the target is a number; it was then divided by `unit`.
    """

    name: str
    train: Examples = field(repr=False)
    test: Examples = field(repr=False)
    classes: int | None
    population: int
    scaling: str = field(repr=False)
    unit: float = field(default=1.0, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])


def within(values: Array, low: Array | float, high: Array | float) -> Array:
    """Values from declared bounds to [-1, 1]; what lies outside is moved to the nearer bound.

    >>> within(np.array([0.0, 5.0, 20.0]), 0, 10)
    array([-1.,  0.,  1.], dtype=float32)
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    share = (np.clip(values, low, high) - low) / (high - low)
    # Not a number, where a value is missing, is the middle: it says nothing.
    scaled: Array = np.nan_to_num(2 * share - 1, nan=0.0).astype(np.float32)
    return scaled
