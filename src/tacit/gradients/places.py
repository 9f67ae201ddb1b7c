"""Where the examples of a lot lie in a tensor: along one axis, found from how the tensor lies in its storage."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """The examples lie along `axis`, which has `outer` times the lot size times `inner` entries.

    Entry (o * size + e) * inner + i of the axis belongs to example e. Each entry depends on that example alone.
    A `loose` place belongs to values that depend on no example, such as an expanded parameter: any order fits them.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    loose: bool = False

    def moved(self, axis: int) -> Rows:
        """The same order of examples along another axis."""
        return Rows(axis, self.outer, self.inner, self.loose)


@dataclass(frozen=True)
class Mixed:
    """Values that depend on which examples are in the lot, or on their order; `because` names the operation.

    `is_order` says that examples were only picked or reordered, so that each may still be treated alone.
    """

    because: str
    is_order: bool = False


class _Kind:
    """A label without content."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


# One constant everywhere, or independent random numbers: the same for every example, along every axis.
UNIFORM = _Kind("UNIFORM")
# 0, 1, 2, ... for the examples of the lot.
POSITIONS = _Kind("POSITIONS")
# The same numbers in a random order.
ORDER = _Kind("ORDER")
# No example has a part in it.
PUBLIC = None

Label = Rows | Mixed | _Kind | None


def is_private(label: Label) -> bool:
    """Whether some example has a part in what carries this label."""
    return isinstance(label, Mixed) or (isinstance(label, Rows) and not label.loose)


@dataclass(frozen=True)
class Stride:
    """After how many bytes of a storage the next example begins: byte k is of example (k // bytes) % lot size."""

    bytes: int
    loose: bool = False

    @staticmethod
    def of(tensor: Tensor, rows: Rows) -> Stride:
        """That of a tensor whose examples lie in these rows."""
        return Stride(int(tensor.stride(rows.axis)) * tensor.element_size() * rows.inner, rows.loose)


def rows_of(tensor: Tensor, per: Stride, size: int) -> Rows | str:
    """Where the examples of a lot of this size are.

    A sentence, if the tensor holds some of the examples only, or if no single axis tells them apart.
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
    if within >= stride:
        return "cuts across examples"
    return found
