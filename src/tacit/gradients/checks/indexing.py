"""Where the examples are after entries were picked, put, joined or repeated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.gradients.checks.axes import along, normalise_axis
from tacit.gradients.checks.labels import (
    ORDER,
    POSITIONS,
    PUBLIC,
    UNIFORM,
    Label,
    Mixed,
    Operands,
    Rows,
    find_room,
)
from tacit.gradients.trace import Unclear


def embedding(operands: Operands) -> Label:
    """Rows of a public table."""
    if not operands.is_public(operands.given["weight"]):
        return operands.doubt()
    rows = operands.rows(operands.given["indices"]) or PUBLIC
    is_counted = operands.given.get("scale_grad_by_freq") and rows is not None
    return operands.mix("divides gradients by how often a row occurs in the lot") if is_counted else rows


def embedding_bag(operands: Operands) -> list[Label]:
    """Bags of equal length, one for each example, one after the other."""
    given = operands.given
    rows, offsets, shares = operands.rows(given["indices"]), given["offsets"], given.get("per_sample_weights")
    if rows is None or not operands.is_public(given["weight"]) or given.get("scale_grad_by_freq"):
        return [operands.doubt()] * len(operands.made)
    starts = torch.arange(operands.size, device=offsets.device) * rows.inner
    is_even = offsets.shape == starts.shape and bool((offsets == starts).all())
    is_even = is_even and not isinstance(operands.label(offsets), Rows)
    if rows.outer != 1 or not is_even or (shares is not None and not operands.fits(shares, rows)):
        return [operands.doubt()] * len(operands.made)
    # The second result numbers the bag of each entry; the others have a row per bag.
    bags, (_, *others) = Rows(0, loose=rows.loose), operands.made
    return [bags, *[PUBLIC if at == 0 else bags for at in range(len(others))]]


def concatenation(operands: Operands) -> Label:
    """Along another axis than that of the examples, or along it, one lot after the other."""
    tensors = [tensor for tensor in operands.given["tensors"] if tensor.numel()]
    if not tensors:
        return PUBLIC
    dims = tensors[0].dim()
    dim = normalise_axis(operands.given.get("dim", 0), dims)
    if not operands.has_rows(tensors):
        return _join_constants(operands, tensors, tensors[0].shape, dim)
    label = operands.align(tensors, dims)
    if not isinstance(label, Rows) or label.axis != dim:
        return label
    counts = [tensor.shape[dim] for tensor in tensors]
    if any(count % (label.inner * operands.size) for count in counts) or not all(
        operands.label(tensor) is UNIFORM or (rows is not None and rows.axis == dim and rows.inner == label.inner)
        for tensor, rows in ((tensor, operands.rows(tensor)) for tensor in tensors)
    ):
        return PUBLIC if label.loose else operands.doubt()
    return Rows(dim, sum(counts) // (label.inner * operands.size), label.inner, label.loose)


def stacking(operands: Operands) -> Label:
    """Along a new axis."""
    tensors = operands.given["tensors"]
    dims = tensors[0].dim()
    dim = normalise_axis(operands.given.get("dim", 0), dims + 1)
    if not operands.has_rows(tensors):
        shape = list(tensors[0].shape)
        return _join_constants(operands, tensors, [*shape[:dim], len(tensors), *shape[dim:]], dim)
    label = operands.align(tensors, dims)
    return label.move_to(label.axis + (dim <= label.axis)) if isinstance(label, Rows) else label


def _join_constants(operands: Operands, tensors: list[Tensor], shape: Sequence[int], dim: int) -> Label:
    """Constants, one after the other along an axis, are the same along the others."""
    if any(operands.label(tensor) is not UNIFORM for tensor in tensors):
        return PUBLIC
    return UNIFORM if len(tensors) == 1 else find_room([*shape[:dim], 1, *shape[dim + 1 :]], operands.size)


def selection(operands: Operands) -> Label:
    """gather and scatter: along `dim`, which must not be that of the examples."""
    given = operands.given
    x, index = given["self"], given["index"]
    dim = normalise_axis(given["dim"], x.dim())
    tensors = [given[name] for name in ("self", "index", "src") if isinstance(given.get(name), Tensor)]
    tensors = [tensor for tensor in tensors if tensor.dim() == x.dim()]
    if operands.has_rows(tensors):
        label = operands.align(tensors, x.dim())
    elif operands.name == "gather":
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    else:
        label = _join_constants(operands, [*tensors, x], x.shape, dim)
    if isinstance(label, Rows) and (label.axis == dim or index.dim() != x.dim()):
        return operands.mix()
    if isinstance(label, Rows) and index.shape[label.axis] != x.shape[label.axis]:
        # Nothing is broadcast here: the other examples are not touched.
        return PUBLIC if label.loose else operands.mix("treats an example by its place in the lot")
    return label


def by_index(operands: Operands) -> Label:
    """index_select, index_add, ...: the entries along `dim` that a vector names."""
    given = operands.given
    x, index, dim = given["self"], given["index"], normalise_axis(given["dim"], given["self"].dim())
    rows, chosen, source = operands.rows(x), operands.rows(index), given.get("source")
    if rows is None and operands.is_public(x) and chosen is not None and operands.name == "index_select":
        return chosen.move_to(dim)
    if chosen is not None and not chosen.loose:
        return operands.mix()
    if isinstance(source, Tensor):
        is_any = operands.has_rows((x, source))
        label = operands.align([x, source], x.dim()) if is_any else PUBLIC
    else:
        label = PUBLIC if rows is None else rows
    if not isinstance(label, Rows) or label.axis != dim:
        return label
    if label.loose:
        return PUBLIC
    if operands.label(index) is ORDER:
        return operands.mix("shuffles the examples of the lot")
    return operands.doubt("takes some of the examples by their place in the lot")


def indexing(operands: Operands) -> Label:
    """x[i, :, j] with tensors for i and j."""
    x, indices = operands.given["self"], list(operands.given["indices"])
    pairs = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    masks = [index for _, index in pairs if index.dtype in (torch.bool, torch.uint8)]
    if operands.has_rows(masks) and operands.name.endswith("index"):
        # Python then knows how many entries there are.
        raise Unclear(f"{operands.name} picks entries by the values of the examples")
    if masks:
        return operands.doubt("picks entries by the values of the examples")
    width = max(index.dim() for _, index in pairs)
    axes = [axis for axis, _ in pairs]
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    start = axes[0] if is_together else 0
    rows = operands.rows(x)
    by = [index for axis, index in pairs if rows is None or axis != rows.axis]
    block = operands.align(by, width) if by else PUBLIC
    if rows is not None and rows.axis in axes:
        index = indices[rows.axis]
        if operands.label(index) is ORDER:
            return operands.mix("shuffles the examples of the lot")
        is_all = operands.label(index) is POSITIONS and (rows.outer, rows.inner) == (1, 1)
        if not is_all or index.flatten().tolist() != list(range(index.numel())):
            return operands.doubt("takes some of the examples by their place in the lot")
        if isinstance(block, Mixed):
            return block
        at = next(axis for axis, length in enumerate(index.shape) if length > 1) + width - index.dim()
        if isinstance(block, Rows) and not block.loose and (block.axis != at or (block.outer, block.inner) != (1, 1)):
            return operands.mix()
        if not operands.is_shared(by, at - width):
            return operands.mix("treats an example by its place in the lot")
        return Rows(start + at)
    if rows is not None and not rows.loose and any(operands.label(index) is POSITIONS for index in by):
        return operands.doubt("treats an example by its place in the lot")
    if isinstance(block, Rows) and (rows is None or rows.loose):
        return block.move_to(start + block.axis) if operands.is_public(x) or rows is not None else operands.doubt()
    if isinstance(block, (Mixed, Rows)):
        return operands.mix() if isinstance(block, Rows) else block
    if rows is None:
        return UNIFORM if operands.label(x) is UNIFORM else PUBLIC
    return rows.move_to(_move_after_indexing(rows.axis, axes, width))


def _move_after_indexing(axis: int, axes: list[int], width: int) -> int:
    """The new place of an axis after these others were indexed with tensors of `width` axes."""
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    before = sum(other < axis for other in axes)
    return axis - before + (width if not is_together or axes[0] < axis else 0)


def index_put(operands: Operands) -> Label:
    """x[i, :, j] = values."""
    given = operands.given
    x, values = given["self"], given["values"]
    indices = {axis: index for axis, index in enumerate(given["indices"]) if index is not None}
    rows = operands.rows(x)
    target = indexing(operands)
    if isinstance(target, Mixed):
        return target
    if rows is None:
        return PUBLIC if operands.is_public(values, *indices.values()) else operands.doubt()
    width = max(index.dim() for index in indices.values())
    if rows.axis not in indices:
        if any(isinstance(label := operands.label(index), Rows) and not label.loose for index in indices.values()):
            return operands.mix()
        target = rows.move_to(_move_after_indexing(rows.axis, list(indices), width))
    written = operands.label(values)
    dims = x.dim() - len(indices) + width
    if operands.label(x) is UNIFORM and isinstance(written, Rows) and isinstance(target, Rows):
        # The order is that of the values.
        target = Rows(target.axis, written.outer, written.inner, target.loose)
    label = operands.align_with(target, values, dims) if isinstance(target, Rows) else operands.doubt()
    return label.move_to(rows.axis) if isinstance(label, Rows) else label


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
    """Any axis but that of the examples."""
    x, pad = operands.given["self"], list(operands.given["pad"])
    rows = operands.rows(x)
    padded = [x.dim() - 1 - i // 2 for i, amount in enumerate(pad) if amount]
    if rows is None:
        return PUBLIC if padded else operands.label(x)
    if rows.axis in padded:
        return PUBLIC if rows.loose else operands.mix("changes the number of examples")
    return rows


def search(operands: Operands) -> Label:
    """The position of each value in a public order."""
    values, order = operands.given["self"], operands.given.get("boundaries", operands.given.get("sorted_sequence"))
    if not operands.is_public(order, operands.given.get("sorter")) or (isinstance(order, Tensor) and order.dim() > 1):
        return operands.doubt()
    return operands.rows(values) or PUBLIC


def reordering(operands: Operands) -> Label | list[Label]:
    """sort, flip, roll: along another axis than that of the examples."""
    label = along("dim", "dims")(operands)
    return operands.doubt("puts the examples in another order") if isinstance(label, Mixed) else label
