"""Per-example gradients of convolution weights: three forms, each the cheapest somewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.pieces import DensePiece, Piece, in_turn, not_below, squares_by_gram

# Stride, padding, dilation, groups.
Geometry = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]

# Patches of an example with more numbers than this are not worth unfolding: the library's own kernel is faster.
_MANY_PATCHES = 50_000
# How many numbers of patches are copied at a time: few enough to stay in the cache and to weigh nothing.
_COPIED = 400_000
# Rows of a kernel as long as this are copied as fast as any.
_COPIED_AT_ONCE = 8


def convolution_piece(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Piece:
    """Gram matrices where the image is small beside the weight; explicit gradients elsewhere."""
    _, padding, _, groups = geometry
    size, positions = grads.shape[0], grads[0, 0].numel() if grads.shape[0] else 0
    if weight.dim() == 4 and size and 4 * _padded_area(inputs, padding) ** 2 <= weight.numel():
        squares = _gram_squares(inputs, grads, weight, geometry)
        return ConvolutionPiece(squares, inputs, grads, weight, geometry)
    if weight.dim() == 4 and size and weight[0].numel() * groups * positions <= _MANY_PATCHES:
        return DensePiece(_unfolded(inputs, grads, weight, geometry))
    return DensePiece(_one_by_one(inputs, grads, weight, geometry))


def _padded_area(inputs: Tensor, padding: tuple[int, ...]) -> int:
    return (inputs.shape[2] + 2 * padding[0]) * (inputs.shape[3] + 2 * padding[1])


def _unfolded(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Patches side by side, then one product an example."""
    stride, padding, dilation, groups = geometry
    size, (rows, columns) = grads.shape[0], grads.shape[2:]
    _, channels, height, width = weight.shape
    image = F.pad(inputs, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else inputs
    example, channel, down, right = image.stride()
    positions = ((rows, columns), (down * stride[0], right * stride[1]))
    offsets = ((channels, height, width), (channel, down * dilation[0], right * dilation[1]))
    # A view, copied with the longer of the two rows side by side: faster than F.unfold.
    by_position = columns <= width or width >= _COPIED_AT_ONCE
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


def _one_by_one(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """One ordinary weight gradient an example: for large images as fast as one for the whole lot."""
    result = weight.new_empty(inputs.shape[0], *weight.shape)
    for index in range(inputs.shape[0]):
        part = slice(index, index + 1)
        result[index] = weight_gradient(inputs[part], grads[part], weight, geometry)
    return result


def _gram_squares(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """Squared norms from Gram matrices; that of the patches is a sum of shifted pieces of that of the image."""
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
    squares = squares_by_gram(products, patches.view_as(products), (outputs.shape[1], weight[0].numel()))
    return squares.view(size, groups).sum(1)


@dataclass(frozen=True, eq=False)
class ConvolutionPiece:
    """Squared norms known; the weighted sum is one ordinary weight gradient."""

    squared: Tensor
    inputs: Tensor
    grads: Tensor
    weight: Tensor
    geometry: Geometry

    def squares(self, known: dict[int, Tensor]) -> Tensor:
        return self.squared

    def scaled_norms(self, scale: Tensor) -> Tensor:
        pairs = zip(in_turn(self.inputs), in_turn(self.grads), strict=True)
        formed = (DensePiece(_one_by_one(inputs, grads, self.weight, self.geometry)) for inputs, grads in pairs)
        # No position sees more of the image than all of it.
        reach = self.inputs.flatten(1).norm(dim=1) * self.grads.flatten(2).norm(dim=1).sum(1)
        return not_below(torch.cat([piece.scaled_norms(scale) for piece in formed]), reach, scale)

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
        return weight_gradient(self.inputs, grads, self.weight, self.geometry)

    def dense(self) -> Tensor:
        return _one_by_one(self.inputs, self.grads, self.weight, self.geometry)

    def without(self, rows: Tensor) -> ConvolutionPiece:
        gone = rows.view(-1, *[1] * (self.grads.dim() - 1))
        return ConvolutionPiece(
            self.squared.masked_fill(rows, 0.0),
            self.inputs.masked_fill(gone, 0.0),
            self.grads.masked_fill(gone, 0.0),
            self.weight,
            self.geometry,
        )


def weight_gradient(inputs: Tensor, grads: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The ordinary gradient of the weight, summed over the examples given."""
    stride, padding, dilation, groups = geometry
    none = [0] * len(stride)
    _, result, _ = torch.ops.aten.convolution_backward(
        grads, inputs, weight, None, stride, padding, dilation, False, none, groups, [False, True, False]
    )
    assert isinstance(result, Tensor)
    return result
