"""Labels: what a tensor depends on, and where the examples of a lot lie in it; and layouts, made of such places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor, nn

from tacit.gradients.trace import Call, OperationLog

# Types of arguments that are numbers, or may be: torch takes a number for a tensor.
_NUMBERS = frozenset({"number", "float", "Optional[number]", "Optional[float]", "Tensor"})


@dataclass(frozen=True)
class Rows:
    """The examples lie along `axis`, which has `outer` times the lot size times `inner` entries.

    Entry (o * size + e) * inner + i of the axis belongs to example e, and depends on that example alone.
    A `loose` place belongs to values that depend on no example, such as an expanded parameter: any order fits them.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    loose: bool = False

    @property
    def fold(self) -> int:
        """The number of entries that each example has along the axis."""
        return self.outer * self.inner

    def move_to(self, axis: int) -> Rows:
        """The same order of examples along another axis."""
        return replace(self, axis=axis)

    def resize(self, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The shape of the same tensor in a lot of this size."""
        return (*shape[: self.axis], self.fold * size, *shape[self.axis + 1 :])

    def front(self, value: Tensor) -> Tensor:
        """Move the examples to the front: [B, ...]; with several entries each, [B, fold, ...]."""
        value = value.movedim(self.axis, 0) if self.axis else value
        if self.outer > 1:
            return value.reshape(self.fold, -1, *value.shape[1:]).transpose(0, 1)
        return value if self.inner == 1 else value.reshape(-1, self.inner, *value.shape[1:])


@dataclass(frozen=True)
class Mixed:
    """Values that depend on which examples are in the lot, or on their order; `because` names the operation.

    `is_order` says that examples were only picked or reordered, so that each may still be treated alone.
    """

    because: str
    is_order: bool = False


class _Kind(Enum):
    """A label without content."""

    # One constant everywhere, or independent random numbers: the same for every example, along every axis.
    UNIFORM = auto()
    # 0, 1, 2, ... for the examples of the lot.
    POSITIONS = auto()
    # The same numbers in a random order.
    ORDER = auto()


UNIFORM, POSITIONS, ORDER = _Kind
# Depends on no example.
PUBLIC = None

Label = Rows | Mixed | _Kind | None


def is_private(label: Label) -> bool:
    """Whether what carries this label depends on an example."""
    return isinstance(label, Mixed) or (isinstance(label, Rows) and not label.loose)


def find_room(shape: Sequence[int], size: int) -> Rows | None:
    """Where examples would be in something constant: along the only axis whose length the lot size divides."""
    axes = [axis for axis, length in enumerate(shape) if length % size == 0]
    return Rows(axes[0], 1, shape[axes[0]] // size, loose=True) if len(axes) == 1 else None


@dataclass(frozen=True)
class Stride:
    """The distance in bytes between two examples in a storage: byte k is of example (k // bytes) % lot size."""

    bytes: int
    loose: bool = False

    @staticmethod
    def of(tensor: Tensor, rows: Rows) -> Stride:
        """That of a tensor whose examples lie in these rows."""
        return Stride(int(tensor.stride(rows.axis)) * tensor.element_size() * rows.inner, rows.loose)


def locate_rows(tensor: Tensor, per: Stride, size: int) -> Rows | str:
    """Where the examples of a lot of this size are in a tensor, from how it lies in its storage.

    A reason, if the tensor holds some of the examples only, or if no single axis tells them apart.
    """
    offset, stride = tensor.storage_offset() * tensor.element_size(), per.bytes
    period, within = stride * size, offset % stride
    found: Rows | None = None
    for axis, (length, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        step *= tensor.element_size()
        if length == 1 or step % period == 0:
            continue
        if step * (length - 1) < stride:
            within += step * (length - 1)
            continue
        inner = stride // step if stride % step == 0 else 0
        if not inner or length % (inner * size):
            return "takes some of the examples by their place in the lot"
        if found is not None:
            return "spreads the examples over two axes"
        found = Rows(axis, length // (inner * size), inner, per.loose)
        within += step * (inner - 1)
    if found is None or (offset // stride) % size:
        return "takes some of the examples by their place in the lot"
    return "cuts across examples" if within >= stride else found


class Operation:
    """An operation of torch by its schema: its name, its arguments, and which of them it writes to."""

    _known: dict[Any, Operation] = {}  # noqa: RUF012

    def __init__(self, func: Any) -> None:
        schema = func._schema
        name = schema.name.removeprefix("aten::")
        self.written = tuple(
            argument.name for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write
        )
        # These change how a tensor lies in its storage, but no value: seen whenever the tensor is used.
        if torch.Tag.inplace_view in func.tags and name not in ("set_", "resize_"):
            self.written = ()
        is_in_place = name.endswith("_") and not name.endswith("__") and self.written == ("self",)
        self.name = name[:-1] if is_in_place else name
        self.is_sized_by_values = torch.Tag.dynamic_output_shape in func.tags
        self.arguments = tuple(argument.name for argument in schema.arguments)
        # Positions have a label of their own.
        self._numbers = [a.name for a in schema.arguments if str(a.type) in _NUMBERS and name != "arange"]
        self.defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}

    @staticmethod
    def of(func: Any) -> Operation:
        """The operation, looked up once."""
        found = Operation._known.get(func)
        if found is None:
            found = Operation._known[func] = Operation(func)
        return found

    def numbers(self, given: dict[str, Any]) -> list[Any]:
        """The arguments that take part in the arithmetic, unless they are the defaults."""
        numbers = ((name, given.get(name)) for name in self._numbers)
        return [
            value
            for name, value in numbers
            if isinstance(value, (int, float, complex)) and value != self.defaults.get(name)
        ]

    def name_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments by their names."""
        return self.defaults | dict(zip(self.arguments, args, strict=False)) | kwargs


@dataclass(frozen=True, eq=False)
class Operands:
    """The arguments of one operation by name, the label of each tensor by identity, and its results."""

    name: str
    given: dict[str, Any]
    labels: dict[int, Label]
    made: list[Tensor]
    size: int

    def label(self, tensor: Any) -> Label:
        """The label of a tensor; public for other values."""
        return self.labels.get(id(tensor), PUBLIC) if isinstance(tensor, Tensor) else PUBLIC

    def rows(self, tensor: Any) -> Rows | None:
        """Where the examples are. In constants and random numbers, they are where there is room for them."""
        label = self.label(tensor)
        if label is UNIFORM:
            return find_room(tensor.shape, self.size)
        return label if isinstance(label, Rows) else None

    def fits(self, tensor: Tensor, rows: Rows) -> bool:
        """Whether the examples are in this tensor in the order of these rows, or the same values in any order."""
        own = self.rows(tensor)
        if own is None or (own.outer, own.inner) == (rows.outer, rows.inner):
            return own is not None
        return own.loose and (self.label(tensor) is UNIFORM or tensor.stride(own.axis) == 0)

    def is_public(self, *tensors: Any) -> bool:
        """Whether none of these depends on an example."""
        return all(self.label(tensor) in (PUBLIC, UNIFORM) for tensor in tensors)

    def has_rows(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the examples lie along an axis of one of these."""
        return any(isinstance(self.label(tensor), Rows) for tensor in tensors)

    def is_shared(self, tensors: list[Tensor], at: int) -> bool:
        """Whether public tensors are broadcast along this axis, counted from the end, so that no example is special."""
        for tensor in tensors:
            label = self.label(tensor)
            if label is UNIFORM or (isinstance(label, Rows) and label.axis - tensor.dim() == at):
                continue
            if tensor.dim() >= -at and tensor.shape[at] > 1:
                return False
        return True

    def mix(self, why: str = "combines different examples of the lot") -> Mixed:
        """The label of what is computed from several examples at once."""
        return Mixed(f"{self.name} {why}")

    def doubt(self, why: str = "does something with the examples that cannot be followed") -> Mixed:
        """The label of what may or may not depend on each example alone."""
        return Mixed(f"{self.name} {why}", is_order=True)

    def align(self, tensors: list[Tensor], dims: int) -> Label:
        """Where the examples are in what is computed entry by entry from these, broadcast to `dims` axes."""
        places = []
        for tensor in tensors:
            label = self.label(tensor)
            if isinstance(label, Mixed):
                return label
            if isinstance(label, Rows):
                places.append((tensor, label.move_to(label.axis - tensor.dim() + dims)))
        if not places:
            return self._align_public(tensors, dims)
        # Those of examples before public ones, and among these, those that are not the same along their whole axis.
        found = min(places, key=lambda place: (place[1].loose, place[0].stride(place[1].axis - dims) == 0))[1]
        for tensor, rows in places:
            if rows.axis != found.axis and not rows.loose:
                return self.mix()
            if rows.axis == found.axis and not self.fits(tensor, found):
                return PUBLIC if found.loose else self.doubt("meets two different orders of the examples")
        if not self.is_shared(tensors, found.axis - dims):
            return PUBLIC if found.loose else self.mix("treats an example by its place in the lot")
        return found

    def _align_public(self, tensors: list[Tensor], dims: int) -> Label:
        """Of constants, random numbers and public values: along which axis is the result the same for all examples?"""
        kinds = [self.label(tensor) for tensor in tensors]
        public = [tensor for tensor, kind in zip(tensors, kinds, strict=True) if kind is not UNIFORM and tensor.dim()]
        if not public:
            return UNIFORM if UNIFORM in kinds else PUBLIC
        found = find_room(broadcast_shape(tensors, dims), self.size)
        if found is None or UNIFORM not in kinds or not self.is_shared(public, found.axis - dims):
            return PUBLIC
        return found

    def align_with(self, rows: Rows, tensor: Tensor, dims: int) -> Label:
        """The label of something with these rows after a tensor was added to it."""
        label = self.label(tensor)
        at = rows.axis - dims
        if isinstance(label, Rows):
            is_same = label.axis - tensor.dim() == at
            if not is_same or not self.fits(tensor, rows):
                return PUBLIC if label.loose and rows.loose else self.doubt() if is_same else self.mix()
            return rows if not rows.loose else label.move_to(rows.axis)
        if not self.is_shared([tensor], at):
            return PUBLIC if rows.loose else self.mix("treats an example by its place in the lot")
        return rows


def broadcast_shape(tensors: list[Tensor], dims: int) -> list[int]:
    """The shape to which these are broadcast, with `dims` axes."""
    lengths = [[1] * (dims - tensor.dim()) + list(tensor.shape) for tensor in tensors]
    return [max(along) for along in zip(*lengths, strict=True)]


Places = tuple[Rows | None, ...]


@dataclass(frozen=True, eq=False)
class CallLayout:
    """Where the examples are in each argument and each output of one call; None where there are none."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    arguments: Places
    outputs: Places
    _sized: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)

    def resize(self, size: int) -> list[tuple[int, ...]]:
        """The shapes of all arguments and outputs for a lot of this size."""
        found = self._sized.get(size)
        if found is None:
            places = zip(self.shapes, self.arguments + self.outputs, strict=True)
            found = [shape if place is None else place.resize(shape, size) for shape, place in places]
            # One size is enough to remember: most runs have lots of one size.
            self._sized.clear()
            self._sized[size] = found
        return found

    def fits(self, call: Call, size: int) -> bool:
        """Whether a call on a lot of this size is the one that the layout is of."""
        is_same = call.function is self.function and len(call.shapes) == len(self.arguments)
        return is_same and [*call.shapes, *call.outputs] == self.resize(size)


@dataclass(eq=False)
class Layout:
    """What an examination found out: one entry a call, and facts about the model and the loss.

    `spread`: the numbers of derived tensors that hold a copy per example. `constants`: for the tensors that parameters
    met, in order, whether they depend on no example. `forward` and `loss`: the logs of the examined operations.
    `suspects`: layers that mix examples in one of their modes. `is_chain`: every call is a Linear of a chain, on one
    row an example. `weight`: how many numbers go in and out of the calls for one example, about what must be kept until
    all norms are known. `writes`: buffers that a pass writes to, without anything of the examples. `sets_once`:
    attributes that only the first pass sets. `writes_inputs`: a pass changes its inputs in place. `doubt`: why the
    examples cannot be followed, or which gradients were wrong. `proofs`: on how many examples gradients were checked.
    """

    calls: tuple[CallLayout, ...]
    spread: frozenset[int] = frozenset()
    constants: tuple[bool, ...] = ()
    forward: OperationLog = field(default_factory=lambda: OperationLog(1))
    loss: OperationLog = field(default_factory=lambda: OperationLog(1))
    suspects: tuple[nn.Module, ...] = ()
    is_chain: bool = False
    is_compiled: bool = False
    weight: int = 0
    writes: frozenset[str] = frozenset()
    sets_once: frozenset[str] = frozenset()
    writes_inputs: bool = False
    doubt: str = ""
    proofs: int = 0
    views: dict[int, Any] = field(default_factory=dict, repr=False)
