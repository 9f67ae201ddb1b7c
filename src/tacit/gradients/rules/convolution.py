"""Convolutions: per-example gradients of their weights in three forms, each the cheapest somewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import (
    Contribution,
    DenseContribution,
    raise_to_share,
    split_examples,
    square_norms_by_gram,
    widen,
    zero_examples,
)
from tacit.gradients.rules import Front, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call

# Stride, padding, dilation, groups.
Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]

# Patches of an example with more numbers than this are not unfolded: the library's own kernel is faster.
_MANY_PATCHES = 50_000
# The number of values of patches that are copied at a time: few enough to stay in the cache.
_COPIED = 400_000
# Rows of a kernel as long as this are copied at full speed.
_LONG_ROW = 8


@rule(torch.conv1d, torch.conv2d, torch.conv3d)
def convolution(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Convolutions of one, two or three dimensions with any stride, padding, dilation and groups."""
    x, weight = call.argument(0, "input"), call.argument(1, "weight")
    spatial, dtype = weight.dim() - 2, widen(weight.dtype)
    grads = grads.to(dtype)
    found = _sum_bias(call.argument(2, "bias"), grads)
    if weight.requires_grad:
        stride = _repeat(call.argument(3, "stride", 1), spatial)
        dilation = _repeat(call.argument(5, "dilation", 1), spatial)
        inputs, padding = _pad(front(x.detach()).to(dtype), weight, call.argument(4, "padding", 0), dilation)
        geometry = (stride, padding, dilation, int(call.argument(6, "groups", 1)))
        found[id(weight)] = _choose_form(inputs, grads, weight.detach().to(dtype), geometry)
    return found


@rule(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
def transposed_convolution(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """A convolution backwards: it takes the gradients of the outputs to the inputs, with the same weight."""
    x, weight = call.argument(0, "input"), call.argument(1, "weight")
    spatial, dtype = weight.dim() - 2, widen(weight.dtype)
    stride, padding, more, dilation = (
        _repeat(call.argument(place, name, default), spatial)
        for place, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "output_padding", 0), (7, "dilation", 1))
    )
    if any(extra >= step for extra, step in zip(more, stride, strict=True)):
        return {}
    grads = grads.to(dtype)
    found = _sum_bias(call.argument(2, "bias"), grads)
    if weight.requires_grad:
        geometry = (stride, padding, dilation, int(call.argument(6, "groups", 1)))
        found[id(weight)] = _choose_form(grads, front(x.detach()).to(dtype), weight.detach().to(dtype), geometry)
    return found


def _sum_bias(bias: Tensor | None, grads: Tensor) -> dict[int, Contribution]:
    if bias is None or not bias.requires_grad:
        return {}
    return {id(bias): DenseContribution(grads.flatten(2).sum(2))}


def _repeat(value: Any, count: int) -> tuple[int, ...]:
    return (int(value),) * count if isinstance(value, int) else tuple(int(v) for v in value) * (count // len(value))


def _pad(inputs: Tensor, weight: Tensor, padding: Any, dilation: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Padding in numbers; "same" is asymmetric where it is odd, so the inputs are padded by hand then."""
    spatial = weight.dim() - 2
    if padding == "valid":
        return inputs, (0,) * spatial
    if padding == "same":
        pads: list[int] = []
        for size, step in zip(reversed(weight.shape[2:]), reversed(dilation), strict=True):
            total = step * (size - 1)
            pads += [total // 2, total - total // 2]
        return F.pad(inputs, pads), (0,) * spatial
    return inputs, _repeat(padding, spatial)


def _choose_form(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Contribution:
    """Gram matrices where the image is small beside the weight; explicit gradients elsewhere."""
    _, padding, _, groups = geometry
    area = math.prod(length + 2 * pad for length, pad in zip(inputs.shape[2:], padding, strict=True))
    size, positions = grads.shape[0], grads[0, 0].numel() if grads.shape[0] else 0
    if weight.dim() == 4 and size and 4 * area**2 <= weight.numel():
        squares = _square_norms(inputs, grads, weight, geometry)
        return ConvolutionContribution(squares, inputs, grads, weight, geometry)
    if weight.dim() == 4 and size and weight[0].numel() * groups * positions <= _MANY_PATCHES:
        return DenseContribution(_unfold(inputs, grads, weight, geometry))
    return DenseContribution(_loop(inputs, grads, weight, geometry))


def _unfold(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Lay patches side by side, then take one product an example."""
    stride, padding, dilation, groups = geometry
    size, (rows, columns) = grads.shape[0], grads.shape[2:]
    _, channels, height, width = weight.shape
    image = F.pad(inputs, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else inputs
    example, channel, down, right = image.stride()
    positions = ((rows, columns), (down * stride[0], right * stride[1]))
    offsets = ((channels, height, width), (channel, down * dilation[0], right * dilation[1]))
    # A view, copied with the longer of the two rows side by side: faster than F.unfold.
    by_position = columns <= width or width >= _LONG_ROW
    first, last = (positions, offsets) if by_position else (offsets, positions)
    patches = image.as_strided((size, groups, *first[0], *last[0]), (example, channels * channel, *first[1], *last[1]))
    outputs = grads.reshape(size * groups, weight.shape[0] // groups, rows * columns)
    result = outputs.new_empty(*outputs.shape[:2], weight[0].numel())
    at_a_time = max(1, _COPIED // patches[0].numel())
    for start in range(0, size, at_a_time):
        part = slice(start * groups, (start + at_a_time) * groups)
        copied = patches[start : start + at_a_time].reshape(-1, math.prod(first[0]), math.prod(last[0]))
        torch.bmm(outputs[part], copied if by_position else copied.transpose(1, 2), out=result[part])
    return result.view(size, *weight.shape)


def _loop(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """One ordinary weight gradient an example: for large images as fast as a single one for the whole lot."""
    result = weight.new_empty(inputs.shape[0], *weight.shape)
    for index in range(inputs.shape[0]):
        part = slice(index, index + 1)
        result[index] = _sum_weight_gradients(inputs[part], grads[part], weight, geometry)
    return result


def _square_norms(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Squared norms from Gram matrices; that of the patches is a sum of shifted parts of that of the image."""
    stride, padding, dilation, groups = geometry
    size, (rows, columns) = grads.shape[0], grads.shape[2:]
    image = F.pad(inputs, (padding[1], padding[1], padding[0], padding[0]))
    height, width = image.shape[2:]
    flat = image.reshape(size * groups, -1, height * width)
    gram = torch.bmm(flat.transpose(1, 2), flat).view(-1, height, width, height, width)
    patches = gram.new_zeros(gram.shape[0], rows, columns, rows, columns)
    for i in range(weight.shape[2]):
        down = slice(i * dilation[0], i * dilation[0] + stride[0] * (rows - 1) + 1, stride[0])
        for j in range(weight.shape[3]):
            right = slice(j * dilation[1], j * dilation[1] + stride[1] * (columns - 1) + 1, stride[1])
            patches += gram[:, down, right, down, right]
    outputs = grads.reshape(size * groups, -1, rows * columns)
    products = torch.bmm(outputs.transpose(1, 2), outputs)
    squares = square_norms_by_gram(products, patches.view_as(products), (outputs.shape[1], weight[0].numel()))
    return squares.view(size, groups).sum(1)


@dataclass(frozen=True, eq=False)
class ConvolutionContribution(Contribution):
    """Squared norms are known; the weighted sum is one ordinary weight gradient."""

    squared: Tensor
    inputs: Tensor
    grads: Tensor
    weight: Tensor
    geometry: Geometry

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        return self.squared

    def scaled_norms(self, scale: Tensor) -> Tensor:
        pairs = zip(split_examples(self.inputs), split_examples(self.grads), strict=True)
        formed = (DenseContribution(_loop(inputs, grads, self.weight, self.geometry)) for inputs, grads in pairs)
        # No position sees more of the image than all of it.
        reach = self.inputs.flatten(1).norm(dim=1) * self.grads.flatten(2).norm(dim=1).sum(1)
        return raise_to_share(torch.cat([each.scaled_norms(scale) for each in formed]), reach, scale)

    def products(self, vector: Tensor) -> Tensor:
        stride, padding, dilation, groups = self.geometry
        weight = vector.to(self.grads.dtype).view_as(self.weight)
        none = [0] * len(stride)
        outputs: Tensor = torch.ops.aten.convolution(
            self.inputs, weight, None, stride, padding, dilation, False, none, groups
        )
        return outputs.mul_(self.grads).flatten(1).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        shape = (-1, *[1] * (self.grads.dim() - 1))
        grads = self.grads * weights.to(self.grads.dtype).view(shape)
        return _sum_weight_gradients(self.inputs, grads, self.weight, self.geometry)

    def dense(self) -> Tensor:
        return _loop(self.inputs, self.grads, self.weight, self.geometry)

    def without(self, rows: Tensor) -> ConvolutionContribution:
        squared, inputs, grads = (zero_examples(each, rows) for each in (self.squared, self.inputs, self.grads))
        return ConvolutionContribution(squared, inputs, grads, self.weight, self.geometry)


def _sum_weight_gradients(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The ordinary gradient of the weight, summed over the examples given."""
    stride, padding, dilation, groups = geometry
    none = [0] * len(stride)
    _, result, _ = torch.ops.aten.convolution_backward(
        grads, inputs, weight, None, stride, padding, dilation, False, none, groups, [False, True, False]
    )
    assert isinstance(result, Tensor)
    return result
