"""A loaded data set: examples to train on and to test on, and what is public about them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.datasets import TrainingDefaults
from tacit.errors import Caution
from tacit.guarantee import Assumption

if TYPE_CHECKING:
    from tacit.datasets._forms import Form

Array = NDArray[Any]
Examples = tuple[Array, Array]
Texts = tuple[list[list[str]], Array]

TABLE_SCALING = "numbers go from declared ranges to [-1, 1], categories to 0 or 1"
PUBLIC_TEST = Assumption("public_test", "The test examples are public; only examples trained on are protected.")
HELD_OUT = Assumption(
    "private_test",
    "Whether a row was held out for testing depends on a hash of that row alone. A score on held-out rows is released "
    "only with noise of its own, which protects them at least as much as training protects the others.",
)
NOT_TESTED = Assumption("not_tested", "No rows were held out for testing, as was declared, and nothing was scored.")
# A declared size need only be about right; beyond this factor it was probably mistyped.
_FAR = 1.5


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and targets to train on, which are private, and to test on.

    `population` is the published or declared number of training examples, a constant: the number of examples in the
    copy at hand is private. `classes` is None if the target is a number; it was then divided by `unit`. If inputs are
    numbers of words, people or things, `vocabulary` holds how many there are of each kind. `example` is the unit that
    the guarantee protects. With `is_test_private`, scores on the test examples need noise too. `is_tested` declares
    whether there are test examples; whether some came is then private too. The first `numbers` columns of a table are
    numbers in [-1, 1], the others 0 or 1. `is_text` says that `load_words` reads the texts themselves, `is_handwriting`
    that images show ink on a background of 0. `load` sets `source` and `defaults`. `form` says what an example looks
    like before it is scaled, and what targets mean; None if that is not known. `digests` holds a hash of each row of
    the user's own table, to recognise the table again; it is as private as the rows.
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
    is_text: bool = field(default=False, repr=False)
    is_handwriting: bool = field(default=False, repr=False)
    defaults: TrainingDefaults | None = field(default=None, repr=False)
    form: Form | None = field(default=None, repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].shape[1:])

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of a guarantee about these examples."""
        tested = HELD_OUT if self.is_test_private else PUBLIC_TEST
        unit = f"What is protected is one {self.example}; whoever has several in the data is protected less."
        return (
            Assumption("public_scaling", f"Inputs were scaled without looking at them: {self.scaling}."),
            tested if self.is_tested else NOT_TESTED,
            Assumption("one_unit", unit),
        )

    def compare_size(self, population: int, *, is_declared: bool) -> Literal["fewer", "more"] | None:
        """Whether there are "fewer" or "more" training examples than `population`; None if it fits.

        A published number must be met exactly, a declared one up to a factor of 1.5. The number of examples is private:
        it is not returned and does not replace the population.
        """
        size, leeway = len(self.train[0]), _FAR if is_declared else 1.0
        if size * leeway < population:
            return "fewer"
        return "more" if size > population * leeway else None

    def warn_if_size_differs(self, *, is_declared: bool) -> None:
        """Give a `Caution`, at the line that called the caller, if the population does not fit the examples.

        The guarantee holds for any number of examples, as lots are drawn at the rate lot_size / population. With fewer
        examples, lots are smaller than planned, with the same noise.
        """
        found = self.compare_size(self.population, is_declared=is_declared)
        if found is None:
            return
        what = (
            f"{self.name} has far {found} rows to train on than the {self.population:,} that were declared"
            if is_declared
            else f"This copy of {self.name} is not the published one: it has {found} examples to train on than the "
            f"{self.population:,} of its population"
        )
        remedy = "declare that" if is_declared else "give it as the population"
        warnings.warn(
            f"{what}. A guarantee for that population still holds, but lots will hold {found} examples than planned, "
            f"with the same noise. If their approximate number may be public, {remedy} instead. This warning depends "
            "on private data: do not release it.",
            Caution,
            stacklevel=3,
        )


def scale_to_unit(values: Array, low: Array | float, high: Array | float) -> Array:
    """Scale values from declared bounds to [-1, 1], after moving those outside to the nearer bound.

    A missing value (NaN) becomes 0, the middle.

    >>> scale_to_unit(np.array([0.0, 5.0, 20.0]), 0, 10)
    array([-1.,  0.,  1.], dtype=float32)
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    share = (np.clip(values, low, high) - low) / (high - low)
    scaled: Array = np.nan_to_num(2 * share - 1, nan=0.0).astype(np.float32)
    return scaled


def is_test_row(rows: int) -> Array:
    """Which rows of a published table are for testing: about a fifth, chosen by their row numbers alone.

    >>> is_test_row(25).nonzero()[0]
    array([ 0,  5, 10, 13, 18])
    """
    # Multiples of the golden ratio spread evenly.
    places = np.arange(rows, dtype=np.uint64)
    chosen: Array = (places * np.uint64(2_654_435_769)) % np.uint64(2**32) < np.uint64(2**32 // 5)
    return chosen


def split_rows(inputs: Array, targets: Array) -> tuple[Examples, Examples]:
    """Examples to train on and to test on, from a table that is published in one piece."""
    is_test = is_test_row(len(inputs))
    return (inputs[~is_test], targets[~is_test]), (inputs[is_test], targets[is_test])


def count_training_rows(rows: int) -> int:
    """How many of so many published rows `split_rows` trains on."""
    return int((~is_test_row(rows)).sum())
