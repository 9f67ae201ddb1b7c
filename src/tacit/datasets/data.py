"""What a data set is here: private examples, examples to test on, and the public numbers that describe both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.guarantee import Assumption

Array = NDArray[Any]
Examples = tuple[Array, Array]

PUBLIC_TEST = Assumption("public_test", "The test examples are public; only examples trained on are protected.")
HELD_OUT = Assumption(
    "private_test",
    "Which rows were held out for testing, a hash of each row alone decided; a score of theirs is released only with "
    "noise of its own, which protects those rows no less than training protects the others.",
)
NOT_TESTED = Assumption("not_tested", "No rows were held out for testing, as was declared, and nothing was scored.")


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and targets to train on, which are private, and to test on.

    `population` is the published or declared number of training examples, a constant: it is not counted from the
    copy at hand, whose size is private. `classes` is None where the target is a number; it was then divided by `unit`.
    Where inputs are numbers of words, people or things, `vocabulary` says how many there are of each kind. `example`
    is what the guarantee protects one of. With `is_test_private`, scores on the test examples must get noise too.
    `is_tested` says whether there are to be test examples, as declared: whether some came is then private too. Of a
    table, so many columns as `numbers` says, the first ones, are numbers in [-1, 1]; the others are 0 or 1.
    """

    name: str
    train: Examples = field(repr=False)
    test: Examples = field(repr=False)
    classes: int | None
    population: int
    scaling: str = field(repr=False)
    unit: float = field(default=1.0, repr=False)
    vocabulary: tuple[int, ...] = field(default=(), repr=False)
    example: str = field(default="row", repr=False)
    source: str = field(default="", repr=False)
    is_test_private: bool = field(default=False, repr=False)
    is_tested: bool = field(default=True, repr=False)
    numbers: int = field(default=0, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What a guarantee about these examples rests on."""
        tested = HELD_OUT if self.is_test_private else PUBLIC_TEST
        unit = f"What is protected is one {self.example}; whoever has several in the data is protected less."
        return (
            Assumption("public_scaling", f"Inputs were scaled without looking at them: {self.scaling}."),
            tested if self.is_tested else NOT_TESTED,
            Assumption("one_unit", unit),
        )


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


def is_public(rows: int) -> Array:
    """Which rows of a published table are for testing: fixed by their place alone, spread evenly by the golden ratio.

    >>> is_public(25).nonzero()[0]
    array([ 0,  5, 10, 13, 18])
    """
    places = np.arange(rows, dtype=np.uint64)
    public: Array = (places * np.uint64(2_654_435_769)) % np.uint64(2**32) < np.uint64(2**32 // 5)
    return public


def split(inputs: Array, targets: Array) -> tuple[Examples, Examples]:
    """What to train on and what to test on, of a table that is published in one piece."""
    public = is_public(len(inputs))
    return (inputs[~public], targets[~public]), (inputs[public], targets[public])


def private_part(rows: int) -> int:
    """How many of so many published rows are trained on."""
    return int((~is_public(rows)).sum())
