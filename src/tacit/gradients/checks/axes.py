"""Where the examples are in the results of an operation, given where they are in its arguments.

An operation that looks at several examples at once gives `Mixed`. `operations.py` lists the operations of each kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tacit.errors import MixesExamples
from tacit.gradients.checks.labels import PUBLIC, UNIFORM, Label, Mixed, Operands, Rows, broadcast_shape, find_room
from tacit.gradients.trace import Unclear, iter_tensors

AxisRule = Callable[[Operands], Label | list[Label]]


def normalise_axis(axis: int, dims: int) -> int:
    """Count an axis from the front."""
    return axis % dims if dims else 0


def _normalise_axes(given: Any, dims: int) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return [normalise_axis(value, dims) for value in values]


def pointwise(operands: Operands) -> Label:
    """Entry by entry, after broadcasting."""
    read = [value for name, value in operands.given.items() if name not in ("out", "grad_input")]
    tensors = list(iter_tensors(read))
    return operands.align(tensors, max((tensor.dim() for tensor in tensors), default=0))


def constant(operands: Operands) -> Label:
    """One value everywhere. Some old values may remain, as entries can overlap in memory."""
    x = operands.given["self"]
    value, before = operands.label(operands.given.get("value")), operands.label(x)
    if isinstance(value, Mixed) or not isinstance(before, (Mixed, Rows)):
        return value if isinstance(value, Mixed) else UNIFORM
    return PUBLIC if isinstance(before, Rows) and x.stride(before.axis) == 0 else before


def pointwise_loss(operands: Operands) -> Label:
    """Entry by entry, without a reduction."""
    return pointwise(operands) if operands.given["reduction"] == 0 else operands.mix()


def gradient_of_loss(operands: Operands) -> Label:
    """Entry by entry, unless it is that of a mean, which divides by the number of entries."""
    return pointwise(operands) if operands.given["reduction"] != 1 else operands.mix()


def along(*names: str) -> AxisRule:
    """Along the axes that an argument names; the result has the same axes."""

    def rule(operands: Operands) -> Label:
        x = operands.given["self"]
        rows = operands.rows(x)
        if rows is None:
            return PUBLIC
        given = next((operands.given[name] for name in names if operands.given.get(name) is not None), None)
        if given is None or not (isinstance(given, int) or len(given)) or rows.axis in _normalise_axes(given, x.dim()):
            return operands.mix()
        return rows

    return rule


def reduction(operands: Operands) -> Label:
    """A sum, mean, norm, ... over the axes that `dim` names, or over all of them."""
    x, dim = operands.given["self"], operands.given.get("dim")
    if isinstance(operands.given.get("other"), Tensor):
        return pointwise(operands)
    rows = operands.rows(x)
    if rows is None and operands.label(x) is UNIFORM and any(length % operands.size == 0 for length in x.shape):
        return operands.mix("counts the examples of the lot")
    if rows is None:
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    is_all = dim is None or (not isinstance(dim, int) and not len(dim))
    axes = list(range(x.dim())) if is_all else _normalise_axes(dim, x.dim())
    if rows.axis in axes:
        return operands.mix()
    if operands.given.get("keepdim"):
        return rows
    return rows.move_to(rows.axis - sum(axis < rows.axis for axis in axes))


def last(count: int, *tensors: str) -> AxisRule:
    """On the last axes, or on a matrix or an image in the last axes: the examples must lie before them."""

    def rule(operands: Operands) -> Label:
        values = [operands.given[name] for name in tensors] or [next(iter_tensors(list(operands.given.values())))]
        return _check_before_last(operands, values, count)

    return rule


def _check_before_last(operands: Operands, tensors: list[Tensor], count: int) -> Label:
    dims = max(tensor.dim() for tensor in tensors)
    label = operands.align(tensors, dims)
    if label is UNIFORM:
        # The result need not be constant: a triangle of a constant matrix is not.
        label = find_room(broadcast_shape(tensors, dims), operands.size)
    if isinstance(label, Rows) and label.axis >= dims - count:
        return operands.mix()
    return label


def product(operands: Operands) -> Label:
    """Products of two matrices, or of two stacks of matrices along a first axis."""
    given = operands.given
    one, other = (given[name] for name in FACTORS[operands.name])
    left, right = operands.rows(one), operands.rows(other)
    dims = max(tensor.dim() for tensor in operands.made)
    # A product sums over the last axis of its first factor, and over the last but one of its second.
    is_summed = left is not None and left.axis == one.dim() - 1
    if is_summed or (right is not None and right.axis == max(other.dim() - 2, 0)):
        return operands.mix()
    places = []
    if left is not None:
        places.append(left)
    if right is not None:
        # The last axis of the second factor is the last axis of the product.
        places.append(right.move_to(dims - 1) if right.axis == other.dim() - 1 and other.dim() > 1 else right)
    added = given["self"] if operands.name in ("addmm", "baddbmm", "addmv") else None
    if not places:
        label = operands.label(added)
        is_private = isinstance(label, Rows) and not label.loose
        return operands.mix("treats an example by its place in the lot") if is_private else PUBLIC
    first, *rest = sorted(places, key=lambda rows: rows.loose)
    if rest and rest[0].axis != first.axis:
        return PUBLIC if first.loose else operands.doubt() if rest[0].loose else operands.mix()
    if rest and not (operands.fits(one, first) and operands.fits(other, first)):
        return PUBLIC if first.loose else operands.doubt("meets two different orders of the examples")
    if len(places) == 1 and dims == 3 and first.axis == 0:
        # The other factor may be a stack of matrices, one for each example by its place in the lot.
        alone = other if left is not None else one
        if alone.dim() == 3 and alone.shape[0] > 1 and operands.label(alone) is not UNIFORM:
            return PUBLIC if first.loose else operands.mix("treats an example by its place in the lot")
    return first if added is None else operands.align_with(first, added, dims)


FACTORS = {
    "mm": ("self", "mat2"), "addmm": ("mat1", "mat2"), "bmm": ("self", "mat2"), "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"), "addmv": ("mat", "vec"), "dot": ("self", "tensor"), "vdot": ("self", "other"),
}  # fmt: skip


def one_axis(axis: int, tensor: str, *shared: str, dims: int | None = None) -> AxisRule:
    """Examples along this axis of one argument and of all results; the `shared` arguments must be public.

    `dims` is the number of axes of an argument that has one for the examples.
    """

    def rule(operands: Operands) -> Label | list[Label]:
        rows = operands.rows(operands.given[tensor])
        if dims is not None and operands.given[tensor].dim() != dims:
            return PUBLIC if rows is None else operands.mix()
        if not all(operands.is_public(operands.given.get(name)) for name in shared):
            return operands.doubt()
        return rows if rows is None or rows.axis == axis else operands.mix()

    return rule


def group_norm(operands: Operands) -> Label | list[Label]:
    """On the channels and positions of each example; the numbers of both are arguments."""
    x, given = operands.given["input"], operands.given
    if (given["N"], given["C"]) != tuple(x.shape[:2]):
        return operands.doubt()
    return one_axis(0, "input", "weight", "bias")(operands)


def layer_norm(operands: Operands) -> Label:
    """On the last axes, with public gain and offset."""
    given = operands.given
    if not operands.is_public(given.get("weight"), given.get("bias")):
        return operands.doubt()
    return _check_before_last(operands, [given["input"]], len(given["normalized_shape"]))


def batch_norm(operands: Operands) -> Label | list[Label]:
    """With fixed statistics examples may lie along any axis, with statistics of the lot along that of the channels."""
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
            return [rows.move_to(0) if tensor.dim() < x.dim() else rows for tensor in operands.made]
        return operands.doubt()
    if is_training:
        return operands.mix()
    if not operands.is_public(*shared):
        return operands.doubt()
    return [PUBLIC if tensor.dim() < x.dim() else rows for tensor in operands.made]


def attention(operands: Operands) -> Label | list[Label]:
    """softmax(q k) v on the last two axes of three or four tensors."""
    given = operands.given
    tensors = [given[name] for name in ("query", "key", "value")]
    mask = given.get("attn_mask", given.get("attn_bias"))
    tensors += [mask] if isinstance(mask, Tensor) else []
    label = _check_before_last(operands, tensors, 2)
    if isinstance(label, Mixed):
        return label
    return [label, *[label if tensor.dim() > 2 else UNIFORM for tensor in operands.made[1:]]]


def distances(operands: Operands) -> Label:
    """From each row of a matrix to each row of another, or of two stacks of matrices."""
    one, other = operands.given["x1"], operands.given["x2"]
    left, right = operands.rows(one), operands.rows(other)
    if left is not None and right is None and left.axis == one.dim() - 2 and operands.is_public(other):
        return left.move_to(max(one.dim(), other.dim()) - 2)
    return _check_before_last(operands, [one, other], 2) if right is not None or left is not None else PUBLIC


def class_loss(operands: Operands) -> Label | list[Label]:
    """The negative log-likelihood of each example's class, without a reduction."""
    given = operands.given
    if given["reduction"] != 0:
        return [operands.mix()] * len(operands.made)
    x, target = given["self"], given["target"]
    rows, wanted = operands.rows(x), operands.rows(target)
    if rows is None or wanted is None or rows.axis or wanted.axis or not operands.is_public(given.get("weight")):
        return operands.doubt()
    first = wanted if rows.loose else rows
    if not operands.fits(x, first) or not operands.fits(target, first):
        return operands.doubt("meets two different orders of the examples")
    return [first, *[UNIFORM] * (len(operands.made) - 1)]


def renorm(operands: Operands) -> Label:
    """Each slice along `dim` by itself."""
    rows, x = operands.rows(operands.given["self"]), operands.given["self"]
    if rows is None or rows.axis == normalise_axis(operands.given["dim"], x.dim()):
        return rows or PUBLIC
    return operands.mix()


def grid_sampling(operands: Operands) -> Label:
    """Images and grids, one of each for an example."""
    images, grid = operands.given["input"], operands.given["grid"]
    label = operands.align([images, grid], images.dim())
    return label if not isinstance(label, Rows) or label.axis == 0 else operands.doubt()


def solving(operands: Operands) -> Label:
    """Systems of equations with matrices on both sides; one vector for each matrix is not followed."""
    given = operands.given
    one = given["A"] if "A" in given else given["LU"]
    other, pivots = given["B"], given.get("pivots")
    is_vector = other.dim() > 1 and other.shape == one.shape[:-1]
    if is_vector and operands.label(other) is not UNIFORM:
        return PUBLIC if operands.is_public(one, other) else operands.doubt()
    label = _check_before_last(operands, [one, other], 2)
    if pivots is None or not isinstance(label, Rows) or operands.label(pivots) == operands.label(one):
        return label
    return operands.doubt()


def random_pooling(operands: Operands) -> Label:
    """Pooling of images over regions of random sizes, which are drawn for every example and channel."""
    x, drawn = operands.given["self"], operands.label(operands.given["random_samples"])
    label = _check_before_last(operands, [x], 2)
    if not isinstance(label, Rows) or drawn is UNIFORM or (label.axis == 0 and drawn == label):
        return label
    return operands.doubt()


def mixing(operands: Operands) -> Label:
    """Counts and other results of all examples at once."""
    if operands.name == "bincount" and not operands.given["minlength"]:
        raise Unclear("bincount gives a tensor whose size depends on the values of the examples")
    return operands.mix()
