"""The operations that act on each example alone, and the axes for which that holds. Everything else is not trusted.

Names are those of torch's own operators. A rule is given where the examples are in every argument, and says where they
are in the results; an operation that looks at several examples at once gives `Mixed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
    found: Rows | None = None
    for tensor in tensors:
        rows = operands.label(tensor)
        if not isinstance(rows, Rows):
            continue
        rows = rows.moved(rows.axis - tensor.dim() + dims)
        if found is None or (found.loose and not rows.loose and found.axis == rows.axis):
            found = rows
        elif rows.axis != found.axis:
            if not rows.loose and not found.loose:
                return operands.mixed()
            # Two public tensors, expanded along different axes, or one beside the examples.
            found = found if rows.loose else rows
        elif (rows.outer, rows.inner) != (found.outer, found.inner) and not rows.loose:
            return operands.unclear("meets two different orders of the examples")
    if found is None:
        return _without_rows(operands, tensors, dims)
    at = found.axis - dims
    for tensor in tensors:
        label = operands.label(tensor)
        if label is UNIFORM or (isinstance(label, Rows) and label.axis - tensor.dim() == at):
            continue
        if tensor.dim() >= -at and tensor.shape[at] > 1:
            if found.loose:
                return PUBLIC
            return operands.mixed("treats an example by its place in the lot")
    return found


def _without_rows(operands: Operands, tensors: list[Tensor], dims: int) -> Label:
    """Of constants, random numbers and public values: along which axis is the result the same for all examples?"""
    kinds = [operands.label(tensor) for tensor in tensors]
    public = [tensor for tensor, kind in zip(tensors, kinds, strict=True) if kind is not UNIFORM and tensor.dim()]
    if not public:
        return UNIFORM if UNIFORM in kinds else PUBLIC
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))  # type: ignore[no-untyped-call]
    axes = [axis for axis, length in enumerate(shape) if length % operands.size == 0]
    if len(axes) != 1 or UNIFORM not in kinds:
        return PUBLIC
    at = axes[0] - dims
    if any(tensor.dim() >= -at and tensor.shape[at] > 1 for tensor in public):
        return PUBLIC
    return Rows(axes[0], 1, shape[axes[0]] // operands.size, loose=True)


def _tensors(operands: Operands, *left_out: str) -> list[Tensor]:
    return [t for name, value in operands.given.items() if name not in left_out for t in tensors_in(value)]


def pointwise(operands: Operands) -> Label:
    """Entry by entry, after broadcasting."""
    tensors = _tensors(operands, "out", "grad_input")
    return aligned(operands, tensors, max((tensor.dim() for tensor in tensors), default=0))


def pointwise_loss(operands: Operands) -> Label:
    """Entry by entry, if nothing is added up."""
    return pointwise(operands) if operands.given["reduction"] == 0 else operands.mixed()


def along(*names: str) -> Rule:
    """Along the axes that an argument names; the result keeps them."""

    def rule(operands: Operands) -> Label:
        x = operands.given["self"]
        rows = operands.rows(x)
        if rows is None:
            return operands.label(x) if operands.label(x) is not POSITIONS else PUBLIC
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
        return operands.label(x) if operands.label(x) is not POSITIONS else PUBLIC
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
    label = aligned(operands, tensors, max(tensor.dim() for tensor in tensors))
    dims = max(tensor.dim() for tensor in tensors)
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
    if not places:
        return PUBLIC
    first, *rest = sorted(places, key=lambda rows: rows.loose)
    if rest and (rest[0].axis != first.axis or (not rest[0].loose and rest[0] != first)):
        return operands.mixed() if not rest[0].loose else operands.unclear()
    if len(places) == 1 and dims == 3 and first.axis == 0:
        # The other factor has as many matrices, one for each example by its place in the lot.
        alone = other if left is not None else one
        if alone.dim() == 3 and alone.shape[0] > 1 and operands.label(alone) is not UNIFORM:
            return PUBLIC if first.loose else operands.mixed("treats an example by its place in the lot")
    added = given["self"] if operands.name in ("addmm", "baddbmm", "addmv") else None
    return first if added is None else aligned_with(operands, first, added, dims)


def aligned_with(operands: Operands, rows: Rows, tensor: Tensor, dims: int) -> Label:
    """The label of something with these rows after a tensor was added to it."""
    label = operands.label(tensor)
    at = rows.axis - dims
    if isinstance(label, Rows):
        is_same = label.axis - tensor.dim() == at
        is_order = (label.outer, label.inner) == (rows.outer, rows.inner) or label.loose or rows.loose
        return (rows if not rows.loose else label.moved(rows.axis)) if is_same and is_order else operands.mixed()
    if label is not UNIFORM and tensor.dim() >= -at and tensor.shape[at] > 1:
        return operands.mixed("treats an example by its place in the lot")
    return rows


_FACTORS = {
    "mm": ("self", "mat2"), "addmm": ("mat1", "mat2"), "bmm": ("self", "mat2"), "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"), "addmv": ("mat", "vec"), "dot": ("self", "tensor"), "vdot": ("self", "other"),
}  # fmt: skip


def _contracted(tensor: Tensor, is_first: bool) -> int:
    """Over which axis a product sums."""
    return tensor.dim() - 1 if is_first or tensor.dim() == 1 else tensor.dim() - 2


def one_axis(axis: int, tensor: str, *shared: str) -> Rule:
    """Examples along this axis of one argument; the `shared` ones must be public. All results have it there too."""

    def rule(operands: Operands) -> Label | list[Label]:
        rows = operands.rows(operands.given[tensor])
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
    return operands.rows(operands.given["indices"]) or PUBLIC


def embedding_bag(operands: Operands) -> list[Label]:
    """Bags of equal length, one after the other, one for each example."""
    given = operands.given
    rows, offsets, shares = operands.rows(given["indices"]), given["offsets"], given.get("per_sample_weights")
    if rows is None or not operands.is_public(given["weight"]) or given.get("scale_grad_by_freq"):
        return [operands.unclear()] * len(operands.made)
    starts = torch.arange(operands.size, device=offsets.device) * rows.inner
    is_even = offsets.shape == starts.shape and bool((offsets == starts).all())
    if rows.outer != 1 or not is_even or (shares is not None and operands.rows(shares) not in (rows, None)):
        return [operands.unclear()] * len(operands.made)
    # What tells the bags apart is for the backward pass only.
    return [Rows(0), *[UNIFORM] * (len(operands.made) - 1)]


def concatenation(operands: Operands) -> Label:
    """Along another axis than that of the examples; or along it, which puts one lot after the other."""
    tensors = [tensor for tensor in operands.given["tensors"] if tensor.numel()]
    dims = tensors[0].dim()
    dim = _axis(operands.given.get("dim", 0), dims)
    label = aligned(operands, tensors, dims)
    if not isinstance(label, Rows) or label.axis != dim:
        return label
    places = [operands.rows(tensor) for tensor in tensors]
    if any(rows is None or rows.axis != dim or rows.inner != label.inner for rows in places):
        return operands.unclear()
    return Rows(dim, sum(rows.outer for rows in places if rows is not None), label.inner)


def stacking(operands: Operands) -> Label:
    """Along a new axis."""
    tensors = operands.given["tensors"]
    dims = tensors[0].dim()
    dim = _axis(operands.given.get("dim", 0), dims + 1)
    label = aligned(operands, tensors, dims)
    return label.moved(label.axis + (dim <= label.axis)) if isinstance(label, Rows) else label


def selection(operands: Operands) -> Label:
    """gather, scatter and the like: along `dim`, which must not be that of the examples."""
    given = operands.given
    x = given["self"]
    tensors = [given[name] for name in ("self", "index", "src") if isinstance(given.get(name), Tensor)]
    tensors = [tensor for tensor in tensors if tensor.dim() == x.dim()]
    label = aligned(operands, tensors, x.dim())
    if isinstance(label, Rows) and label.axis == _axis(given["dim"], x.dim()):
        return operands.mixed()
    return label


def by_index(operands: Operands) -> Label:
    """index_select and the like: some entries along `dim`, told by a vector."""
    given = operands.given
    x, index, dim = given["self"], given["index"], _axis(given["dim"], given["self"].dim())
    rows, chosen = operands.rows(x), operands.rows(index)
    if rows is None and operands.label(x) in (PUBLIC, UNIFORM) and chosen is not None and "source" not in given:
        return chosen.moved(dim)
    if chosen is not None and not chosen.loose:
        return operands.mixed()
    if rows is not None and rows.axis == dim and operands.label(index) is ORDER:
        return operands.mixed("shuffles the examples of the lot")
    if rows is not None and rows.axis == dim:
        return operands.unclear("takes some of the examples by their place in the lot")
    if isinstance(given.get("source"), Tensor):
        return aligned(operands, [x, given["source"]], x.dim())
    return rows or PUBLIC


def indexing(operands: Operands) -> Label:
    """x[i, :, j] with tensors for i and j."""
    x, indices = operands.given["self"], list(operands.given["indices"])
    told = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in told):
        return operands.unclear("picks entries by the values of the examples")
    width = max(index.dim() for _, index in told)
    axes = [axis for axis, _ in told]
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    start = axes[0] if is_together else 0
    rows = operands.rows(x)
    by = [index for _, index in told if operands.label(index) is not POSITIONS]
    block = aligned(operands, by, width) if by else PUBLIC
    if rows is not None and rows.axis in axes:
        index = indices[rows.axis]
        if operands.label(index) is ORDER:
            return operands.mixed("shuffles the examples of the lot")
        is_all = operands.label(index) is POSITIONS and (rows.outer, rows.inner) == (1, 1)
        if not is_all or not _counts(index) or index.dim() > width:
            return operands.unclear("takes some of the examples by their place in the lot")
        at = next(axis for axis, length in enumerate(index.shape) if length > 1) + width - index.dim()
        if isinstance(block, Rows) and (block.axis != at or (block.outer, block.inner) != (1, 1)):
            return operands.mixed()
        return Rows(start + at)
    if any(operands.label(index) is POSITIONS for _, index in told):
        return operands.unclear("treats an example by its place in the lot")
    if isinstance(block, Rows) and (rows is None or rows.loose):
        return block.moved(start + block.axis) if operands.is_public(x) or rows is not None else operands.unclear()
    if isinstance(block, (Mixed, Rows)):
        return operands.mixed() if isinstance(block, Rows) else block
    if rows is None:
        return operands.label(x)
    before = sum(axis < rows.axis for axis in axes)
    return rows.moved(rows.axis - before + (width if not is_together or start < rows.axis else 0))


def _counts(index: Tensor) -> bool:
    flat = index.reshape(-1)
    return bool((flat == torch.arange(len(flat), device=flat.device)).all())


def index_put(operands: Operands) -> Label:
    """x[i, :, j] = values."""
    given = operands.given
    target = indexing(Operands(operands.name, given, operands.labels, operands.made, operands.size))
    x, values = given["self"], given["values"]
    rows = operands.rows(x)
    if isinstance(target, Mixed):
        return target
    if not isinstance(target, Rows):
        return operands.unclear() if not operands.is_public(values) else (rows or PUBLIC)
    if rows is None:
        return operands.unclear()
    dims = sum(index is None for index in given["indices"]) + x.dim() - len(given["indices"])
    dims += max(index.dim() for index in given["indices"] if index is not None)
    label = aligned_with(operands, target, values, dims)
    return label if isinstance(label, Mixed) else rows if not rows.loose else Rows(rows.axis)


def layer_norm(operands: Operands) -> Label:
    """On the last axes, with public gain and offset."""
    given = operands.given
    if not operands.is_public(given.get("weight"), given.get("bias")):
        return operands.unclear()
    return _before_last(operands, [given["input"]], len(given["normalized_shape"]))


def batch_norm(operands: Operands) -> Label | list[Label]:
    """With fixed statistics examples may lie along the first axis, with those of the lot along that of the channels."""
    given = operands.given
    rows, is_training = operands.rows(given["input"]), given.get("training", given.get("train", True))
    if rows is None:
        return PUBLIC
    shared = [given.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    if rows.axis == 1 and is_training:
        places = [operands.rows(tensor) for tensor in shared if isinstance(tensor, Tensor)]
        if all(place is not None and place.loose for place in places) or not places:
            return [rows, *[rows.moved(0)] * (len(operands.made) - 1)]
        return operands.unclear()
    if not operands.is_public(*shared) or rows.axis > 1:
        return operands.unclear()
    if is_training:
        return operands.mixed()
    return [rows, *[PUBLIC] * (len(operands.made) - 1)]


def attention(operands: Operands) -> Label | list[Label]:
    """softmax(q k) v on the last two axes of three or four tensors."""
    given = operands.given
    tensors = [given[name] for name in ("query", "key", "value")]
    mask = given.get("attn_mask", given.get("attn_bias"))
    tensors += [mask] if isinstance(mask, Tensor) else []
    label = _before_last(operands, tensors, 2)
    return [label, *[label if tensor.dim() > 2 else UNIFORM for tensor in operands.made[1:]]]


def distances(operands: Operands) -> Label:
    """From each row of a matrix to each of another, or of as many matrices as there are in the first axes."""
    one, other = operands.given["x1"], operands.given["x2"]
    left, right = operands.rows(one), operands.rows(other)
    if left is not None and right is None and left.axis == one.dim() - 2 and operands.is_public(other):
        return left
    return _before_last(operands, [one, other], 2) if right is not None or left is not None else PUBLIC


def repetition(operands: Operands) -> Label:
    """Copies of a public tensor for each example, or of each example."""
    x, repeats = operands.given["self"], list(operands.given["repeats"])
    rows, added = operands.rows(x), len(repeats) - x.dim()
    if rows is not None and not rows.loose:
        return Rows(rows.axis + added, rows.outer * repeats[rows.axis + added], rows.inner)
    axes = [axis for axis, count in enumerate(repeats) if count % operands.size == 0 and count]
    if len(axes) != 1 or operands.label(x) is UNIFORM:
        return operands.label(x)
    return Rows(axes[0], 1, operands.made[0].shape[axes[0]] // operands.size, loose=True)


def padding(operands: Operands) -> Label:
    """Of any axes but that of the examples."""
    x, pad = operands.given["self"], list(operands.given["pad"])
    rows = operands.rows(x)
    if rows is None:
        return operands.label(x)
    padded = [x.dim() - 1 - i // 2 for i, amount in enumerate(pad) if amount]
    return operands.mixed("changes the number of examples") if rows.axis in padded and not rows.loose else rows


def class_loss(operands: Operands) -> Label | list[Label]:
    """The negative log-likelihood of each example's class, if nothing is added up."""
    given = operands.given
    if given["reduction"] != 0:
        return [operands.mixed()] * len(operands.made)
    x, target = given["self"], given["target"]
    rows, wanted = operands.rows(x), operands.rows(target)
    if rows is None or wanted is None or rows.axis or wanted.axis or not operands.is_public(given.get("weight")):
        return operands.unclear()
    if (rows.outer, rows.inner) != (wanted.outer, wanted.inner) and not (rows.loose or wanted.loose):
        return operands.mixed()
    return [rows, *[UNIFORM] * (len(operands.made) - 1)]


def renorm(operands: Operands) -> Label:
    """Each slice along `dim` by itself."""
    rows, x = operands.rows(operands.given["self"]), operands.given["self"]
    if rows is None or rows.axis == _axis(operands.given["dim"], x.dim()):
        return rows or PUBLIC
    return operands.mixed()


def search(operands: Operands) -> Label:
    """The place of each value in a public order."""
    values, order = operands.given["self"], operands.given.get("boundaries", operands.given.get("sorted_sequence"))
    if not operands.is_public(order) or (isinstance(order, Tensor) and order.dim() > 1):
        return operands.unclear()
    return operands.rows(values) or PUBLIC


def grid_sampling(operands: Operands) -> Label:
    """Images and grids, one of each for an example."""
    images, grid = operands.given["input"], operands.given["grid"]
    label = aligned(operands, [images, grid], images.dim())
    return label if not isinstance(label, Rows) or label.axis == 0 else operands.unclear()


def mixing(operands: Operands) -> Label:
    """Counts, and other things that are made of all examples at once."""
    return operands.mixed()


def reordering(operands: Operands) -> Label | list[Label]:
    """sort, flip and the like: along another axis than that of the examples."""
    label = along("dim", "dims")(operands)
    return operands.unclear("puts the examples in another order") if isinstance(label, Mixed) else label


_POINTWISE = """
abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bernoulli binary_cross_entropy_with_logits
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cauchy ceil celu clamp clamp_max
clamp_min clone complex conj_physical copy copysign cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2
expm1 exponential fill floor floor_divide fmax fmin fmod frac ge gelu geometric gt hardshrink hardsigmoid hardswish
hardtanh heaviside hypot i0 igamma igammac isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp
lgamma log log10 log1p log2 log_normal log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit lt masked_fill maximum minimum mish mul mvlgamma nan_to_num native_dropout ne neg nextafter normal
polar polygamma positive pow poisson rad2deg random real reciprocal relu remainder resolve_conj resolve_neg round
rrelu_with_noise rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr
special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri special_xlog1py
special_zeta sqrt square sub tan tanh threshold trunc uniform where xlogy zero _to_copy _prelu_kernel imag
_conj_physical _fused_dropout sigmoid_backward tanh_backward threshold_backward gelu_backward silu_backward
elu_backward leaky_relu_backward hardtanh_backward softplus_backward log_sigmoid_backward native_dropout_backward
mse_loss_backward
"""
_POINTWISE_LOSSES = "mse_loss binary_cross_entropy smooth_l1_loss huber_loss soft_margin_loss"
_REDUCTIONS = """
sum mean amax amin max min any all prod std var std_mean var_mean median nanmedian mode logsumexp linalg_vector_norm
norm argmax argmin nansum count_nonzero aminmax kthvalue
"""
_ALONG = """
_softmax _log_softmax cumsum cumprod cummax cummin logcumsumexp _logcumsumexp topk glu
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
reflection_pad2d replication_pad2d fractional_max_pool2d tril triu linalg_inv_ex linalg_cholesky_ex cholesky
linalg_qr linalg_svd _linalg_svd _linalg_eigh _linalg_det _linalg_slogdet linalg_det linalg_slogdet linalg_matrix_exp
linalg_lu_factor_ex linalg_lu cholesky_inverse matrix_exp linalg_eig linalg_eigvals
"""
_LAST_THREE = """
max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d upsample_nearest3d
upsample_trilinear3d reflection_pad3d replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle
"""

OPERATIONS: dict[str, Rule] = {
    **dict.fromkeys(_POINTWISE.split(), pointwise),
    **dict.fromkeys(_POINTWISE_LOSSES.split(), pointwise_loss),
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
    **dict.fromkeys(("im2col", "col2im", "multinomial"), one_axis(0, "self")),
    **dict.fromkeys(("linalg_solve_triangular", "linalg_lu_solve"), last(2, "self", "B")),
    "_linalg_solve_ex": last(2, "A", "B"),
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
    "native_group_norm": one_axis(0, "input", "weight", "bias"),
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
# What leaves torch: Python could then do anything, for all examples, with what one of them holds.
_HOST = "_local_scalar_dense is_nonzero equal item nonzero masked_select allclose"
HOST = frozenset(_HOST.split())
