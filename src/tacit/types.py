"""The values that travel down the line, and the stages between them.

What may be done with a value is its type: only a `Bound` sees examples one by one, only a `Noise` takes a
`BoundedSum`, and everything after it sees nothing but a `Release`. A wrong order does not pass the type checker.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tacit.accounting.densities import Floats
from tacit.accounting.events import Event
from tacit.errors import InvalidArgument
from tacit.guarantee import Assumption
from tacit.randomness import Indices, Stream

# By parameter name. Public, unless wrapped in a BoundedSum.
Tensors = Mapping[str, Tensor]
# What a stage remembers from one release to the next: tensors, so that every state can be saved.
State = Mapping[str, Tensor]


class PerExampleGradients(Protocol):
    """The gradients of one lot, or of a piece of it. Private.

    An example with weight 0 contributes exactly 0, even where its gradient is NaN or infinite.
    """

    def __len__(self) -> int: ...
    def norms(self) -> Tensor: ...
    def layer_norms(self) -> dict[str, Tensor]: ...
    def scaled_norms(self, scale: Tensors) -> Tensor: ...
    def products(self, vectors: Tensors) -> Tensor: ...
    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]: ...
    def weighted_sum_by_layer(self, weights: dict[str, Tensor]) -> dict[str, Tensor]: ...
    def dense(self) -> dict[str, Tensor]: ...


class Box(Hashable, Protocol):
    """How far one example moves each coordinate of a sum at most, whichever coordinate is which.

    `corner` lists it in ascending order for so many coordinates; `sensitivity` bounds the Euclidean norm of a move,
    and can be below the norm of the corner. Public: nothing in it depends on an example.
    """

    @property
    def adds_up(self) -> bool:
        """Whether pieces of a lot may be summed apart."""

    def corner(self, dimension: int) -> Floats: ...
    def sensitivity(self, dimension: int) -> float: ...


@dataclass(frozen=True, eq=False, repr=False)
class BoundedSum:
    """A sum to which one example contributes at most `sensitivity` in Euclidean norm. Private.

    With a `box`, it also contributes only so much to each coordinate, as noise that is not Gaussian needs. A sum of
    several pieces is kept in double precision; `released_as` is the precision of each parameter's release.
    """

    values: Tensors
    sensitivity: float
    box: Box | None = None
    released_as: Mapping[str, torch.dtype] | None = None

    def __add__(self, other: BoundedSum) -> BoundedSum:
        """The sum over both pieces of a lot, in double precision: errors of many small sums would depend on examples.

        An example is in one piece only, so the sensitivity does not grow.
        """
        if not isinstance(other, BoundedSum):
            return NotImplemented
        copies = {name: value.to(torch.float64, copy=True) for name, value in self.values.items()}
        return BoundedSum(copies, *self._about())._absorb(other)

    def _about(self) -> tuple[float, Box | None, Mapping[str, torch.dtype]]:
        kinds = self.released_as or {name: value.dtype for name, value in self.values.items()}
        return self.sensitivity, self.box, kinds

    def _absorb(self, other: BoundedSum) -> BoundedSum:
        """Add another piece to the values of this sum, in place: they are in double precision already."""
        if any(box is not None and not box.adds_up for box in (self.box, other.box)):
            raise InvalidArgument(
                "This sum is bounded for a whole lot only: in pieces, one more example would move "
                "all later examples to another piece. Leave micro_batch out, or make it as large as the lot."
            )
        if self.values.keys() != other.values.keys():
            raise InvalidArgument(
                "Two pieces of one lot must sum over the same parameters. These differ in "
                f"{', '.join(sorted(self.values.keys() ^ other.values.keys()))}."
            )
        for name, value in self.values.items():
            value.add_(other.values[name])
        box = self.box if self.box == other.box else None
        return BoundedSum(self.values, max(self.sensitivity, other.sensitivity), box, self.released_as)

    def rounded(self, values: Tensors) -> Tensors:
        """The values of a release in the precision that they are released in."""
        kinds = self.released_as
        return values if kinds is None else {name: value.to(kinds[name]) for name, value in values.items()}

    @property
    def dimension(self) -> int:
        """How many numbers will be released."""
        return sum([value.numel() for value in self.values.values()])

    def __repr__(self) -> str:
        return f"BoundedSum({self.dimension} numbers, sensitivity={self.sensitivity:g})"


def sum_pieces(pieces: Iterable[BoundedSum], *, is_wide: bool) -> BoundedSum | None:
    """Sum the pieces of a lot in double precision; None if there are none. The sum stays double if `is_wide`."""
    total: BoundedSum | None = None
    for number, piece in enumerate(pieces):
        # From the third piece on, the total has memory of its own and is added to in place.
        total = piece if total is None else total + piece if number == 1 else total._absorb(piece)
    if total is None or total.released_as is None or is_wide:
        return total
    return BoundedSum(total.rounded(total.values), total.sensitivity, total.box)


def needs_wide_sums(lot_size: float, multiplier: float | None) -> bool:
    """Whether a sum over such lots would be rounded in single precision by more than a small part of its noise.

    A function of public numbers. Rounding errors are relative to the largest possible sum, lot size times sensitivity.
    """
    return multiplier is not None and 4 * lot_size * 2**-24 > multiplier / 128


@dataclass(frozen=True, eq=False)
class Release:
    """Values that went through noise, with the event that pays for them. Public.

    `realised` is what the release cost as it was made, where its noise depended on earlier releases: no
    guarantee comes of adding such events up.
    """

    values: Tensors
    event: Event
    realised: Event | None = None


@runtime_checkable
class Sampling(Protocol):
    """Draws lots from public numbers and says what that is worth. It never sees an example."""

    @property
    def lot_size(self) -> float:
        """The public number that sums are divided by: never the realised lot size."""

    @property
    def population(self) -> int:
        """The public number of examples that `lot_size` refers to."""

    @property
    def assumption(self) -> Assumption:
        """What the guarantee takes for granted about the lots."""

    def lot(self, n: int, rng: Stream, step: int = 0) -> Indices:
        """The examples, out of `n`, of the lot at `step`."""

    def amplify(self, event: Event) -> Event:
        """What one release costs when it was computed on such a lot."""

    def total(self, events: list[Event]) -> Event:
        """What the steps from the first on cost together, each already amplified."""


@runtime_checkable
class Bound(Protocol):
    """The only stage that sees private gradients one by one.

    `sum` is given private data and returns no state; `receive` returns state and is given only what was
    released: so the state is public by construction.
    """

    def init(self, like: Tensors, lot_size: float) -> State: ...
    def sum(self, gradients: PerExampleGradients, state: State) -> BoundedSum: ...
    def receive(self, noisy: Tensors, state: State) -> tuple[Tensors, State]: ...


@runtime_checkable
class Noise(Protocol):
    """The only way from private to public. It draws the noise, so it emits the event."""

    @property
    def multiplier(self) -> float | None:
        """Scale over sensitivity, the one knob that calibration turns; None until it has."""

    def add(self, bounded: BoundedSum, rng: Stream) -> Tensors: ...
    def event(self, dimension: int) -> Event: ...


@runtime_checkable
class Steered(Bound, Protocol):
    """A bound that is told a direction, which must be public, before each lot."""

    def steer(self, direction: Tensors, state: State) -> State: ...


@runtime_checkable
class Post(Protocol):
    """Sees releases only, and is free of charge because of that."""

    def init(self, like: Tensors) -> State: ...
    def apply(self, values: Tensors, state: State) -> tuple[Tensors, State]: ...


@runtime_checkable
class Following(Protocol):
    """A post that must know the law of the noise. The mechanism tells it, and again whenever that changes."""

    def following(self, noise: Noise) -> Post: ...


@runtime_checkable
class Boxed(Protocol):
    """A bound that keeps examples in a box, or a noise that takes them to be in one."""

    @property
    def box(self) -> Box: ...
