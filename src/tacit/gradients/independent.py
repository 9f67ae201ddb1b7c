"""The operations that act on each example alone, and the axes for which that holds. Everything else is not trusted.

Names are those of torch's own operators. A rule is given where the examples are in every argument, and says where they
are in the results; an operation that looks at several examples at once gives `Mixed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import MixesExamples
from tacit.gradients.engine import Unclear
from tacit.gradients.places import ORDER, POSITIONS, PUBLIC, UNIFORM, Label, Mixed, Rows
from tacit.gradients.trees import tensors_in


@dataclass(frozen=True, eq=False)
class Operands:
    """The arguments of one operation by name, what each depends on, and what it gave."""

    name: str
    given: dict[str, Any]
    labels: dict[int, Label]
    made: list[Tensor]
    size: int

    def label(self, tensor: Any) -> Label:
        """What a tensor depends on; public for what is no tensor."""
        return self.labels.get(id(tensor), PUBLIC) if isinstance(tensor, Tensor) else PUBLIC

    def rows(self, tensor: Any) -> Rows | None:
        """Where the examples are. In constants and random numbers, they are where there is room for them."""
        label = self.label(tensor)
        if label is UNIFORM:
            axes = [axis for axis, length in enumerate(tensor.shape) if length % self.size == 0]
            return Rows(axes[0], 1, tensor.shape[axes[0]] // self.size, loose=True) if len(axes) == 1 else None
        return label if isinstance(label, Rows) else None

    def fits(self, tensor: Tensor, rows: Rows) -> bool:
        """Whether the examples are in this tensor in the order of these rows, or the same values in any order."""
        own = self.rows(tensor)
        if own is None or (own.outer, own.inner) == (rows.outer, rows.inner):
            return own is not None
        return own.loose and (self.label(tensor) is UNIFORM or tensor.stride(own.axis) == 0)

    def is_public(self, *tensors: Any) -> bool:
        """Whether no example has a part in any of these."""
        return all(self.label(tensor) in (PUBLIC, UNIFORM) for tensor in tensors)

    def mixed(self, why: str = "combines different examples of the lot") -> Mixed:
        """The label of what is computed from several examples at once."""
        return Mixed(f"{self.name} {why}")

    def unclear(self, why: str = "does something with the examples that cannot be followed") -> Mixed:
        """The label of what may or may not be a matter of each example alone."""
        return Mixed(f"{self.name} {why}", is_order=True)


Rule = Callable[[Operands], Label | list[Label]]


def _axis(axis: int, dims: int) -> int:
    return axis % dims if dims else 0


def _axes(given: Any, dims: int) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return [_axis(value, dims) for value in values]


def aligned(operands: Operands, tensors: list[Tensor], dims: int) -> Label:
    """Where the examples are in what is computed entry by entry from these, after broadcasting to so many axes."""
    places = []
    for tensor in tensors:
        label = operands.label(tensor)
        if isinstance(label, Mixed):
            return label
        if isinstance(label, Rows):
            places.append((tensor, label.moved(label.axis - tensor.dim() + dims)))
    if not places:
        return _without_rows(operands, tensors, dims)
    # Those of examples before public ones, and among these, those that are not the same along their whole axis.
    found = min(places, key=lambda place: (place[1].loose, place[0].stride(place[1].axis - dims) == 0))[1]
    for tensor, rows in places:
        if rows.axis != found.axis and not rows.loose:
            return operands.mixed()
        if rows.axis == found.axis and not operands.fits(tensor, found):
            return PUBLIC if found.loose else operands.unclear("meets two different orders of the examples")
    if not _is_shared(operands, tensors, found.axis - dims):
        return PUBLIC if found.loose else operands.mixed("treats an example by its place in the lot")
    return found


def _is_shared(operands: Operands, tensors: list[Tensor], at: int) -> bool:
    """Whether public tensors are broadcast along this axis, counted from the end, so that no example is special."""
    for tensor in tensors:
        label = operands.label(tensor)
        if label is UNIFORM or (isinstance(label, Rows) and label.axis - tensor.dim() == at):
            continue
        if tensor.dim() >= -at and tensor.shape[at] > 1:
            return False
    return True


def _without_rows(operands: Operands, tensors: list[Tensor], dims: int) -> Label:
    """Of constants, random numbers and public values: along which axis is the result the same for all examples?"""
    kinds = [operands.label(tensor) for tensor in tensors]
    public = [tensor for tensor, kind in zip(tensors, kinds, strict=True) if kind is not UNIFORM and tensor.dim()]
    if not public:
        return UNIFORM if UNIFORM in kinds else PUBLIC
    found = constant_along(operands, _shape(tensors, dims))
    if not isinstance(found, Rows) or UNIFORM not in kinds or not _is_shared(operands, public, found.axis - dims):
        return PUBLIC
    return found


def _shape(tensors: list[Tensor], dims: int) -> list[int]:
    """What these are broadcast to."""
    lengths = [[1] * (dims - tensor.dim()) + list(tensor.shape) for tensor in tensors]
    return [max(along) for along in zip(*lengths, strict=True)]


def constant_along(operands: Operands, shape: Sequence[int]) -> Label:
    """The place of examples in what is the same along every axis, if there is room for them in a single one."""
    axes = [axis for axis, length in enumerate(shape) if length % operands.size == 0]
    if len(axes) != 1:
        return PUBLIC
    return Rows(axes[0], 1, shape[axes[0]] // operands.size, loose=True)


def _tensors(operands: Operands, *left_out: str) -> list[Tensor]:
    return [t for name, value in operands.given.items() if name not in left_out for t in tensors_in(value)]


def pointwise(operands: Operands) -> Label:
    """Entry by entry, after broadcasting."""
    tensors = _tensors(operands, "out", "grad_input")
    return aligned(operands, tensors, max((tensor.dim() for tensor in tensors), default=0))


def constant(operands: Operands) -> Label:
    """One value everywhere. What there was before may not all be overwritten: entries can overlap."""
    x = operands.given["self"]
    value, before = operands.label(operands.given.get("value")), operands.label(x)
    if isinstance(value, Mixed) or not isinstance(before, (Mixed, Rows)):
        return value if isinstance(value, Mixed) else UNIFORM
    return PUBLIC if isinstance(before, Rows) and x.stride(before.axis) == 0 else before


def pointwise_loss(operands: Operands) -> Label:
    """Entry by entry, if nothing is added up."""
    return pointwise(operands) if operands.given["reduction"] == 0 else operands.mixed()


def gradient_of_loss(operands: Operands) -> Label:
    """Entry by entry, if it is not that of a mean: its entries are divided by how many there are."""
    return pointwise(operands) if operands.given["reduction"] != 1 else operands.mixed()


def along(*names: str) -> Rule:
    """Along the axes that an argument names; the result keeps them."""

    def rule(operands: Operands) -> Label:
        x = operands.given["self"]
        rows = operands.rows(x)
        if rows is None:
            return PUBLIC
        given = next((operands.given[name] for name in names if operands.given.get(name) is not None), None)
        if given is None or not (isinstance(given, int) or len(given)) or rows.axis in _axes(given, x.dim()):
            return operands.mixed()
        return rows

    return rule


def reduction(operands: Operands) -> Label:
    """A sum, mean, norm, ... over the axes that `dim` names, all of them if it names none."""
    x, dim = operands.given["self"], operands.given.get("dim")
    if isinstance(operands.given.get("other"), Tensor):
        return pointwise(operands)
    rows = operands.rows(x)
    if rows is None and operands.label(x) is UNIFORM and any(length % operands.size == 0 for length in x.shape):
        return operands.mixed("counts the examples of the lot")
    if rows is None:
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    axes = list(range(x.dim())) if dim is None or (not isinstance(dim, int) and not len(dim)) else _axes(dim, x.dim())
    if rows.axis in axes:
        return operands.mixed()
    if operands.given.get("keepdim"):
        return rows
    return rows.moved(rows.axis - sum(axis < rows.axis for axis in axes))


def last(count: int, *tensors: str) -> Rule:
    """On the last axes, or on a matrix or an image in the last axes: the examples must lie before them."""

    def rule(operands: Operands) -> Label:
        values = [operands.given[name] for name in tensors] or [next(tensors_in(list(operands.given.values())))]
        return _before_last(operands, values, count)

    return rule


def _before_last(operands: Operands, tensors: list[Tensor], count: int) -> Label:
    dims = max(tensor.dim() for tensor in tensors)
    label = aligned(operands, tensors, dims)
    if label is UNIFORM:
        # A triangle of a constant matrix, for one, is not constant.
        label = constant_along(operands, _shape(tensors, dims))
    if isinstance(label, Rows) and label.axis >= dims - count:
        return operands.mixed()
    return label


def product(operands: Operands) -> Label:
    """Matrix products, of two matrices or of as many as there are in a first axis."""
    given = operands.given
    one, other = (given[name] for name in _FACTORS[operands.name])
    left, right = operands.rows(one), operands.rows(other)
    dims = max(tensor.dim() for tensor in operands.made)
    if any(rows is not None and rows.axis == _contracted(tensor, is_first) for rows, tensor, is_first in (
        (left, one, True), (right, other, False)
    )):  # fmt: skip
        return operands.mixed()
    places = []
    if left is not None:
        places.append(left)
    if right is not None:
        # The last axis of the second factor is the last axis of the product.
        places.append(right.moved(dims - 1) if right.axis == other.dim() - 1 and other.dim() > 1 else right)
    added = given["self"] if operands.name in ("addmm", "baddbmm", "addmv") else None
    if not places:
        label = operands.label(added)
        is_private = isinstance(label, Rows) and not label.loose
        return operands.mixed("treats an example by its place in the lot") if is_private else PUBLIC
    first, *rest = sorted(places, key=lambda rows: rows.loose)
    if rest and rest[0].axis != first.axis:
        return PUBLIC if first.loose else operands.unclear() if rest[0].loose else operands.mixed()
    if rest and not (operands.fits(one, first) and operands.fits(other, first)):
        return PUBLIC if first.loose else operands.unclear("meets two different orders of the examples")
    if len(places) == 1 and dims == 3 and first.axis == 0:
        # The other factor has as many matrices, one for each example by its place in the lot.
        alone = other if left is not None else one
        if alone.dim() == 3 and alone.shape[0] > 1 and operands.label(alone) is not UNIFORM:
            return PUBLIC if first.loose else operands.mixed("treats an example by its place in the lot")
    return first if added is None else aligned_with(operands, first, added, dims)


def aligned_with(operands: Operands, rows: Rows, tensor: Tensor, dims: int) -> Label:
    """The label of something with these rows after a tensor was added to it."""
    label = operands.label(tensor)
    at = rows.axis - dims
    if isinstance(label, Rows):
        is_same = label.axis - tensor.dim() == at
        if not is_same or not operands.fits(tensor, rows):
            return PUBLIC if label.loose and rows.loose else operands.unclear() if is_same else operands.mixed()
        return rows if not rows.loose else label.moved(rows.axis)
    if not _is_shared(operands, [tensor], at):
        return PUBLIC if rows.loose else operands.mixed("treats an example by its place in the lot")
    return rows


_FACTORS = {
    "mm": ("self", "mat2"), "addmm": ("mat1", "mat2"), "bmm": ("self", "mat2"), "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"), "addmv": ("mat", "vec"), "dot": ("self", "tensor"), "vdot": ("self", "other"),
}  # fmt: skip


def _contracted(tensor: Tensor, is_first: bool) -> int:
    """Over which axis a product sums."""
    return tensor.dim() - 1 if is_first or tensor.dim() == 1 else tensor.dim() - 2


def one_axis(axis: int, tensor: str, *shared: str, dims: int | None = None) -> Rule:
    """Examples along this axis of one argument; the `shared` ones must be public. All results have it there too.

    Without an axis for the examples, an argument has fewer than `dims`.
    """

    def rule(operands: Operands) -> Label | list[Label]:
        rows = operands.rows(operands.given[tensor])
        if dims is not None and operands.given[tensor].dim() != dims:
            return PUBLIC if rows is None else operands.mixed()
        if not all(operands.is_public(operands.given.get(name)) for name in shared):
            return operands.unclear()
        if rows is None:
            return PUBLIC
        if rows.axis != axis:
            return operands.mixed()
        return rows

    return rule


def convolution(operands: Operands) -> Label:
    """Weights are shared by all examples, which lie along the first axis."""
    return one_axis(0, "input", "weight", "bias")(operands)  # type: ignore[return-value]


def embedding(operands: Operands) -> Label:
    """Rows of a public table."""
    if not operands.is_public(operands.given["weight"]):
        return operands.unclear()
    rows = operands.rows(operands.given["indices"]) or PUBLIC
    is_counted = operands.given.get("scale_grad_by_freq") and rows is not None
    return operands.mixed("divides gradients by how often a row occurs in the lot") if is_counted else rows


def group_norm(operands: Operands) -> Label | list[Label]:
    """On the channels and places of each example; how many examples and channels there are is told apart."""
    x, given = operands.given["input"], operands.given
    if (given["N"], given["C"]) != tuple(x.shape[:2]):
        return operands.unclear()
    return one_axis(0, "input", "weight", "bias")(operands)


def embedding_bag(operands: Operands) -> list[Label]:
    """Bags of equal length, one after the other, one for each example."""
    given = operands.given
    rows, offsets, shares = operands.rows(given["indices"]), given["offsets"], given.get("per_sample_weights")
    if rows is None or not operands.is_public(given["weight"]) or given.get("scale_grad_by_freq"):
        return [operands.unclear()] * len(operands.made)
    starts = torch.arange(operands.size, device=offsets.device) * rows.inner
    is_even = offsets.shape == starts.shape and bool((offsets == starts).all())
    is_even = is_even and not isinstance(operands.label(offsets), Rows)
    if rows.outer != 1 or not is_even or (shares is not None and not operands.fits(shares, rows)):
        return [operands.unclear()] * len(operands.made)
    # The second result tells the bags apart, the others how many entries count and which are the largest.
    bags, (_, *others) = Rows(0, loose=rows.loose), operands.made
    return [bags, *[PUBLIC if at == 0 else bags for at in range(len(others))]]


def concatenation(operands: Operands) -> Label:
    """Along another axis than that of the examples; or along it, which puts one lot after the other."""
    tensors = [tensor for tensor in operands.given["tensors"] if tensor.numel()]
    if not tensors:
        return PUBLIC
    dims = tensors[0].dim()
    dim = _axis(operands.given.get("dim", 0), dims)
    if not any(isinstance(operands.label(tensor), Rows) for tensor in tensors):
        return _joined(operands, tensors, tensors[0].shape, dim)
    label = aligned(operands, tensors, dims)
    if not isinstance(label, Rows) or label.axis != dim:
        return label
    counts = [tensor.shape[dim] for tensor in tensors]
    if any(count % (label.inner * operands.size) for count in counts) or not all(
        operands.label(tensor) is UNIFORM or (rows is not None and rows.axis == dim and rows.inner == label.inner)
        for tensor, rows in ((tensor, operands.rows(tensor)) for tensor in tensors)
    ):
        return PUBLIC if label.loose else operands.unclear()
    return Rows(dim, sum(counts) // (label.inner * operands.size), label.inner, label.loose)


def stacking(operands: Operands) -> Label:
    """Along a new axis."""
    tensors = operands.given["tensors"]
    dims = tensors[0].dim()
    dim = _axis(operands.given.get("dim", 0), dims + 1)
    if not any(isinstance(operands.label(tensor), Rows) for tensor in tensors):
        shape = list(tensors[0].shape)
        return _joined(operands, tensors, [*shape[:dim], len(tensors), *shape[dim:]], dim)
    label = aligned(operands, tensors, dims)
    return label.moved(label.axis + (dim <= label.axis)) if isinstance(label, Rows) else label


def _joined(operands: Operands, tensors: list[Tensor], shape: Sequence[int], dim: int) -> Label:
    """Constants, one after the other along an axis, are the same along the others."""
    if any(operands.label(tensor) is not UNIFORM for tensor in tensors):
        return PUBLIC
    return UNIFORM if len(tensors) == 1 else constant_along(operands, [*shape[:dim], 1, *shape[dim + 1 :]])


def selection(operands: Operands) -> Label:
    """gather, scatter and the like: along `dim`, which must not be that of the examples."""
    given = operands.given
    x, index = given["self"], given["index"]
    dim = _axis(given["dim"], x.dim())
    tensors = [given[name] for name in ("self", "index", "src") if isinstance(given.get(name), Tensor)]
    tensors = [tensor for tensor in tensors if tensor.dim() == x.dim()]
    if any(isinstance(operands.label(tensor), Rows) for tensor in tensors):
        label = aligned(operands, tensors, x.dim())
    elif operands.name == "gather":
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    else:
        label = _joined(operands, [*tensors, x], x.shape, dim)
    if isinstance(label, Rows) and (label.axis == dim or index.dim() != x.dim()):
        return operands.mixed()
    if isinstance(label, Rows) and index.shape[label.axis] != x.shape[label.axis]:
        # Nothing is broadcast here: the others are left alone.
        return PUBLIC if label.loose else operands.mixed("treats an example by its place in the lot")
    return label


def by_index(operands: Operands) -> Label:
    """index_select and the like: some entries along `dim`, told by a vector."""
    given = operands.given
    x, index, dim = given["self"], given["index"], _axis(given["dim"], given["self"].dim())
    rows, chosen, source = operands.rows(x), operands.rows(index), given.get("source")
    if rows is None and operands.is_public(x) and chosen is not None and operands.name == "index_select":
        return chosen.moved(dim)
    if chosen is not None and not chosen.loose:
        return operands.mixed()
    if isinstance(source, Tensor):
        is_any = any(isinstance(operands.label(tensor), Rows) for tensor in (x, source))
        label = aligned(operands, [x, source], x.dim()) if is_any else PUBLIC
    else:
        label = PUBLIC if rows is None else rows
    if not isinstance(label, Rows) or label.axis != dim:
        return label
    if label.loose:
        return PUBLIC
    if operands.label(index) is ORDER:
        return operands.mixed("shuffles the examples of the lot")
    return operands.unclear("takes some of the examples by their place in the lot")


def indexing(operands: Operands) -> Label:
    """x[i, :, j] with tensors for i and j."""
    x, indices = operands.given["self"], list(operands.given["indices"])
    told = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    masks = [index for _, index in told if index.dtype in (torch.bool, torch.uint8)]
    if any(isinstance(operands.label(mask), Rows) for mask in masks) and operands.name.endswith("index"):
        # How many entries there are is then known outside of torch.
        raise Unclear(f"{operands.name} picks entries by the values of the examples")
    if masks:
        return operands.unclear("picks entries by the values of the examples")
    width = max(index.dim() for _, index in told)
    axes = [axis for axis, _ in told]
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    start = axes[0] if is_together else 0
    rows = operands.rows(x)
    by = [index for axis, index in told if rows is None or axis != rows.axis]
    block = aligned(operands, by, width) if by else PUBLIC
    if rows is not None and rows.axis in axes:
        index = indices[rows.axis]
        if operands.label(index) is ORDER:
            return operands.mixed("shuffles the examples of the lot")
        is_all = operands.label(index) is POSITIONS and (rows.outer, rows.inner) == (1, 1)
        if not is_all or not _counts(index):
            return operands.unclear("takes some of the examples by their place in the lot")
        if isinstance(block, Mixed):
            return block
        at = next(axis for axis, length in enumerate(index.shape) if length > 1) + width - index.dim()
        if isinstance(block, Rows) and not block.loose and (block.axis != at or (block.outer, block.inner) != (1, 1)):
            return operands.mixed()
        if not _is_shared(operands, by, at - width):
            return operands.mixed("treats an example by its place in the lot")
        return Rows(start + at)
    if rows is not None and not rows.loose and any(operands.label(index) is POSITIONS for index in by):
        return operands.unclear("treats an example by its place in the lot")
    if isinstance(block, Rows) and (rows is None or rows.loose):
        return block.moved(start + block.axis) if operands.is_public(x) or rows is not None else operands.unclear()
    if isinstance(block, (Mixed, Rows)):
        return operands.mixed() if isinstance(block, Rows) else block
    if rows is None:
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    return rows.moved(_after_indexing(rows.axis, axes, width))


def _after_indexing(axis: int, axes: list[int], width: int) -> int:
    """Where an axis is after these others were indexed with tensors of so many axes."""
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    before = sum(other < axis for other in axes)
    return axis - before + (width if not is_together or axes[0] < axis else 0)


def _counts(index: Tensor) -> bool:
    flat = index.reshape(-1)
    return bool((flat == torch.arange(len(flat), device=flat.device)).all())


def index_put(operands: Operands) -> Label:
    """x[i, :, j] = values."""
    given = operands.given
    x, values = given["self"], given["values"]
    told = {axis: index for axis, index in enumerate(given["indices"]) if index is not None}
    rows = operands.rows(x)
    target = indexing(operands)
    if isinstance(target, Mixed):
        return target
    if rows is None:
        return PUBLIC if operands.is_public(values, *told.values()) else operands.unclear()
    width = max(index.dim() for index in told.values())
    if rows.axis not in told:
        if any(isinstance(label := operands.label(index), Rows) and not label.loose for index in told.values()):
            return operands.mixed()
        target = rows.moved(_after_indexing(rows.axis, list(told), width))
    written = operands.label(values)
    dims = x.dim() - len(told) + width
    if operands.label(x) is UNIFORM and isinstance(written, Rows) and isinstance(target, Rows):
        # The order is that of the values.
        target = Rows(target.axis, written.outer, written.inner, target.loose)
    label = aligned_with(operands, target, values, dims) if isinstance(target, Rows) else operands.unclear()
    return label.moved(rows.axis) if isinstance(label, Rows) else label


def layer_norm(operands: Operands) -> Label:
    """On the last axes, with public gain and offset."""
    given = operands.given
    if not operands.is_public(given.get("weight"), given.get("bias")):
        return operands.unclear()
    return _before_last(operands, [given["input"]], len(given["normalized_shape"]))


def batch_norm(operands: Operands) -> Label | list[Label]:
    """With fixed statistics examples may lie along any axis, with those of the lot along that of the channels."""
    given = operands.given
    x, is_training = given["input"], given.get("training", operands.name == "_batch_norm_with_update")
    rows, kept = operands.rows(x), [given.get(name) for name in ("running_mean", "running_var")]
    if rows is None:
        return PUBLIC
    shared = [tensor for tensor in (given.get("weight"), given.get("bias"), *kept) if isinstance(tensor, Tensor)]
    if is_training and not rows.loose and operands.name == "native_batch_norm" and isinstance(kept[0], Tensor):
        raise MixesExamples(
            "batch_norm writes the mean and the variance of the examples into running_mean and running_var, which "
            "would be released without noise. Use GroupNorm, or fixed statistics (training=False)."
        )
    if rows.axis == 1:
        if all(operands.fits(tensor, rows) and operands.rows(tensor).loose for tensor in shared):  # type: ignore[union-attr]
            return [rows.moved(0) if tensor.dim() < x.dim() else rows for tensor in operands.made]
        return operands.unclear()
    if is_training:
        return operands.mixed()
    if not operands.is_public(*shared):
        return operands.unclear()
    return [PUBLIC if tensor.dim() < x.dim() else rows for tensor in operands.made]


def attention(operands: Operands) -> Label | list[Label]:
    """softmax(q k) v on the last two axes of three or four tensors."""
    given = operands.given
    tensors = [given[name] for name in ("query", "key", "value")]
    mask = given.get("attn_mask", given.get("attn_bias"))
    tensors += [mask] if isinstance(mask, Tensor) else []
    label = _before_last(operands, tensors, 2)
    if isinstance(label, Mixed):
        return label
    return [label, *[label if tensor.dim() > 2 else UNIFORM for tensor in operands.made[1:]]]


def distances(operands: Operands) -> Label:
    """From each row of a matrix to each of another, or of as many matrices as there are in the first axes."""
    one, other = operands.given["x1"], operands.given["x2"]
    left, right = operands.rows(one), operands.rows(other)
    if left is not None and right is None and left.axis == one.dim() - 2 and operands.is_public(other):
        return left.moved(max(one.dim(), other.dim()) - 2)
    return _before_last(operands, [one, other], 2) if right is not None or left is not None else PUBLIC


def repetition(operands: Operands) -> Label:
    """Copies of a public tensor for each example, or of each example."""
    x, repeats = operands.given["self"], list(operands.given["repeats"])
    rows, added = operands.rows(x), len(repeats) - x.dim()
    if operands.label(x) is UNIFORM:
        return UNIFORM
    axes = [axis for axis, count in enumerate(repeats) if count % operands.size == 0 and count]
    if rows is not None and (not rows.loose or len(axes) != 1):
        return Rows(rows.axis + added, rows.outer * repeats[rows.axis + added], rows.inner, rows.loose)
    if len(axes) != 1:
        return PUBLIC
    return Rows(axes[0], 1, operands.made[0].shape[axes[0]] // operands.size, loose=True)


def padding(operands: Operands) -> Label:
    """Of any axes but that of the examples."""
    x, pad = operands.given["self"], list(operands.given["pad"])
    rows = operands.rows(x)
    padded = [x.dim() - 1 - i // 2 for i, amount in enumerate(pad) if amount]
    if rows is None:
        return PUBLIC if padded else operands.label(x)
    if rows.axis in padded:
        return PUBLIC if rows.loose else operands.mixed("changes the number of examples")
    return rows


def class_loss(operands: Operands) -> Label | list[Label]:
    """The negative log-likelihood of each example's class, if nothing is added up."""
    given = operands.given
    if given["reduction"] != 0:
        return [operands.mixed()] * len(operands.made)
    x, target = given["self"], given["target"]
    rows, wanted = operands.rows(x), operands.rows(target)
    if rows is None or wanted is None or rows.axis or wanted.axis or not operands.is_public(given.get("weight")):
        return operands.unclear()
    first = wanted if rows.loose else rows
    if not operands.fits(x, first) or not operands.fits(target, first):
        return operands.unclear("meets two different orders of the examples")
    return [first, *[UNIFORM] * (len(operands.made) - 1)]


def renorm(operands: Operands) -> Label:
    """Each slice along `dim` by itself."""
    rows, x = operands.rows(operands.given["self"]), operands.given["self"]
    if rows is None or rows.axis == _axis(operands.given["dim"], x.dim()):
        return rows or PUBLIC
    return operands.mixed()


def search(operands: Operands) -> Label:
    """The place of each value in a public order."""
    values, order = operands.given["self"], operands.given.get("boundaries", operands.given.get("sorted_sequence"))
    if not operands.is_public(order, operands.given.get("sorter")) or (isinstance(order, Tensor) and order.dim() > 1):
        return operands.unclear()
    return operands.rows(values) or PUBLIC


def grid_sampling(operands: Operands) -> Label:
    """Images and grids, one of each for an example."""
    images, grid = operands.given["input"], operands.given["grid"]
    label = aligned(operands, [images, grid], images.dim())
    return label if not isinstance(label, Rows) or label.axis == 0 else operands.unclear()


def solving(operands: Operands) -> Label:
    """Systems of equations with matrices on both sides; one vector for each matrix is not followed."""
    given = operands.given
    one = given["A"] if "A" in given else given["LU"]
    other, pivots = given["B"], given.get("pivots")
    is_vector = other.dim() > 1 and other.shape == one.shape[:-1]
    if is_vector and operands.label(other) is not UNIFORM:
        return PUBLIC if operands.is_public(one, other) else operands.unclear()
    label = _before_last(operands, [one, other], 2)
    if pivots is None or not isinstance(label, Rows) or operands.label(pivots) == operands.label(one):
        return label
    return operands.unclear()


def random_pooling(operands: Operands) -> Label:
    """Pooling of images over regions of random sizes, which are drawn for every example and channel."""
    x, drawn = operands.given["self"], operands.label(operands.given["random_samples"])
    label = _before_last(operands, [x], 2)
    if not isinstance(label, Rows) or drawn is UNIFORM or (label.axis == 0 and drawn == label):
        return label
    return operands.unclear()


def mixing(operands: Operands) -> Label:
    """Counts, and other things that are made of all examples at once."""
    if operands.name == "bincount" and not operands.given["minlength"]:
        raise Unclear("bincount gives a tensor whose size depends on the values of the examples")
    return operands.mixed()


def reordering(operands: Operands) -> Label | list[Label]:
    """sort, flip and the like: along another axis than that of the examples."""
    label = along("dim", "dims")(operands)
    return operands.unclear("puts the examples in another order") if isinstance(label, Mixed) else label


_POINTWISE = """
abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bernoulli
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cauchy ceil celu clamp clamp_max
clamp_min clone complex conj_physical copy copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2
expm1 exponential floor floor_divide fmax fmin fmod frac ge gelu geometric gt hardshrink hardsigmoid hardswish
hardtanh heaviside hypot i0 igamma igammac isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp
lgamma log log10 log1p log2 log_normal log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit lt masked_fill maximum minimum mish mul mvlgamma nan_to_num native_dropout ne neg nextafter normal
polar polygamma positive pow poisson rad2deg random real reciprocal relu remainder resolve_conj resolve_neg round
rrelu_with_noise rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr
special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri special_xlog1py
special_zeta sqrt square sub tan tanh threshold trunc uniform where xlogy _to_copy _prelu_kernel imag
_conj_physical _fused_dropout sigmoid_backward tanh_backward threshold_backward gelu_backward silu_backward
elu_backward leaky_relu_backward hardtanh_backward softplus_backward log_sigmoid_backward native_dropout_backward
"""
_POINTWISE_LOSSES = """
mse_loss binary_cross_entropy smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits
"""
_REDUCTIONS = """
sum mean amax amin max min any all prod std var std_mean var_mean median nanmedian mode logsumexp linalg_vector_norm
norm argmax argmin nansum count_nonzero aminmax kthvalue
"""
_ALONG = """
_softmax _safe_softmax _log_softmax cumsum cumprod cummax cummin logcumsumexp _logcumsumexp topk glu
"""
_REORDERING = "sort argsort flip roll"
_MIXING = "bincount histc _unique2 unique_dim unique_consecutive _pdist_forward"
_LAST_ONE = """
avg_pool1d max_pool1d_with_indices adaptive_avg_pool1d adaptive_max_pool1d reflection_pad1d replication_pad1d
upsample_linear1d upsample_nearest1d _upsample_nearest_exact1d
"""
_LAST_TWO = """
max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d upsample_nearest2d
upsample_bilinear2d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact2d
reflection_pad2d replication_pad2d tril triu linalg_inv_ex linalg_cholesky_ex cholesky
linalg_qr linalg_svd _linalg_svd _linalg_eigh _linalg_det _linalg_slogdet linalg_det linalg_slogdet linalg_matrix_exp
linalg_lu_factor_ex linalg_lu cholesky_inverse matrix_exp linalg_eig linalg_eigvals
"""
_LAST_THREE = """
max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d
upsample_trilinear3d reflection_pad3d replication_pad3d pixel_shuffle pixel_unshuffle
"""

OPERATIONS: dict[str, Rule] = {
    **dict.fromkeys(_POINTWISE.split(), pointwise),
    **dict.fromkeys(("zero", "fill"), constant),
    **dict.fromkeys(_POINTWISE_LOSSES.split(), pointwise_loss),
    "mse_loss_backward": gradient_of_loss,
    **dict.fromkeys(_REDUCTIONS.split(), reduction),
    **dict.fromkeys(_ALONG.split(), along("dim", "dims")),
    **dict.fromkeys(_REORDERING.split(), reordering),
    **dict.fromkeys(_MIXING.split(), mixing),
    **dict.fromkeys(_LAST_ONE.split(), last(1)),
    **dict.fromkeys(_LAST_TWO.split(), last(2)),
    **dict.fromkeys(_LAST_THREE.split(), last(3)),
    **dict.fromkeys(_FACTORS, product),
    **dict.fromkeys(("_fft_r2c", "_fft_c2c", "_fft_c2r"), along("dim")),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce"), selection),
    **dict.fromkeys(("index_select", "index_add", "index_copy", "index_fill"), by_index),
    **dict.fromkeys(("_native_batch_norm_legit", "native_batch_norm", "_native_batch_norm_legit_no_training",
                     "_batch_norm_no_update", "_batch_norm_with_update"), batch_norm),
    **dict.fromkeys(("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
                     "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"), attention),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss"), class_loss),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback"), grid_sampling),
    **dict.fromkeys(("bucketize", "searchsorted"), search),
    **dict.fromkeys(("_linalg_solve_ex", "linalg_lu_solve"), solving),
    "im2col": one_axis(0, "self", dims=4),
    "col2im": one_axis(0, "self", dims=3),
    "multinomial": one_axis(0, "self", dims=2),
    "channel_shuffle": one_axis(0, "self"),
    "fractional_max_pool2d": random_pooling,
    "linalg_solve_triangular": last(2, "self", "B"),
    "linalg_ldl_factor_ex": last(2, "self"),
    "affine_grid_generator": one_axis(0, "theta"),
    "convolution": convolution,
    "embedding": embedding,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "cat": concatenation,
    "stack": stacking,
    "index": indexing,
    "index_put": index_put,
    "_unsafe_index": indexing,
    "_unsafe_index_put": index_put,
    "native_layer_norm": layer_norm,
    "_fused_rms_norm": layer_norm,
    "native_group_norm": group_norm,
    "_cdist_forward": distances,
    "repeat": repetition,
    "constant_pad_nd": padding,
    "renorm": renorm,
}  # fmt: skip

# The same number everywhere; or whatever was in memory, before something is written there.
_CONSTANTS = "zeros ones full empty empty_strided scalar_tensor zero fill"
CONSTANTS = frozenset(_CONSTANTS.split())
_RANDOM = "rand randn randint bernoulli uniform normal exponential random cauchy log_normal geometric"
RANDOM = frozenset(_RANDOM.split())
# What leaves torch, a size among it: Python could then do anything, for all examples, with what one of them holds.
_HOST = """
_local_scalar_dense is_nonzero equal item nonzero masked_select allclose
_unique2 unique_dim unique_consecutive repeat_interleave
"""
HOST = frozenset(_HOST.split())
