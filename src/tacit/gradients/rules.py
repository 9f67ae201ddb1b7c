"""One rule per operation: from its inputs and the gradients of its outputs to the pieces of its parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.convolutions import convolution_piece
from tacit.gradients.engine import precise
from tacit.gradients.pieces import DensePiece, OuterPiece, Piece, matrix_piece, matrix_pieces
from tacit.gradients.recording import Call
from tacit.gradients.recurrent import two_linears
from tacit.gradients.tables import EmbeddingPiece


@dataclass(frozen=True, eq=False)
class Batched:
    """Where the examples are: dimension `axis` holds `fold` entries of each, one example after the other.

    With `is_minor` the examples alternate instead: all first entries, then all second ones.
    """

    axis: int
    fold: int = 1
    is_minor: bool = False

    def resized(self, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The shape of a tensor that holds so many examples."""
        return (*shape[: self.axis], self.fold * size, *shape[self.axis + 1 :])

    def front(self, value: Tensor) -> Tensor:
        """The examples moved to the front: [B, ...]; with a fold, [B, fold, ...]."""
        value = value.movedim(self.axis, 0) if self.axis else value
        if self.fold == 1:
            return value
        if self.is_minor:
            return value.reshape(self.fold, -1, *value.shape[1:]).transpose(0, 1)
        return value.reshape(-1, self.fold, *value.shape[1:])


Rule = Callable[[Call, Tensor, Callable[[Tensor], Tensor]], dict[int, Piece]]


def _argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def linear(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """y = x W^T + b on the last dimension, whatever comes before it."""
    x, weight, bias = _argument(call, 0, "input"), _argument(call, 1, "weight"), _argument(call, 2, "bias")
    size, is_flat, dtype = grads.shape[0], grads.dim() == 2, precise(weight.dtype)
    grads = (grads if is_flat else grads.reshape(size, -1, weight.shape[0])).to(dtype)
    pieces: dict[int, Piece] = {}
    if weight.requires_grad:
        inputs = front(x.detach()).to(dtype)
        inputs = inputs if is_flat else inputs.reshape(size, -1, weight.shape[1])
        pieces[id(weight)] = OuterPiece(grads, inputs) if is_flat else matrix_piece(grads, inputs)
    if bias is not None and bias.requires_grad:
        pieces[id(bias)] = DensePiece(grads if is_flat else grads.sum(1))
    return pieces


def recurrent(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Two linear maps with one output: of the inputs of a recurrence, and of the states before."""
    _, _, weight, state_weight, bias, state_bias = call.args
    if weight is state_weight or (bias is not None and bias is state_bias):
        return {}
    size, dtype = grads.shape[0], precise(weight.dtype)
    pairs = zip(call.args[2:4], call.args[:2], strict=True)
    wanted = [(weight, factor) for weight, factor in pairs if weight.requires_grad]
    grads = (grads[:, None] if grads.dim() == 2 else grads).to(dtype)
    factors = [front(factor.detach()).reshape(size, -1, factor.shape[-1]).to(dtype) for _, factor in wanted]
    found = zip(wanted, matrix_pieces(grads, factors), strict=True)
    pieces: dict[int, Piece] = {id(weight): piece for (weight, _), piece in found}
    biases = [bias for bias in (bias, state_bias) if bias is not None and bias.requires_grad]
    if biases:
        # One tensor for both, so that its norms are taken once.
        total = grads.sum(1)
        pieces |= {id(bias): DensePiece(total) for bias in biases}
    return pieces


def convolution(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Convolutions of one, two or three dimensions with any stride, padding, dilation and groups."""
    x, weight, bias = _argument(call, 0, "input"), _argument(call, 1, "weight"), _argument(call, 2, "bias")
    spatial, dtype = weight.dim() - 2, precise(weight.dtype)
    grads = grads.to(dtype)
    pieces: dict[int, Piece] = {}
    if weight.requires_grad:
        inputs = front(x.detach()).to(dtype)
        stride = _spread(_argument(call, 3, "stride", 1), spatial)
        padding = _argument(call, 4, "padding", 0)
        dilation = _spread(_argument(call, 5, "dilation", 1), spatial)
        groups = int(_argument(call, 6, "groups", 1))
        inputs, pads = _pad(inputs, weight, padding, dilation)
        geometry = (stride, pads, dilation, groups)
        pieces[id(weight)] = convolution_piece(inputs, grads, weight.detach().to(dtype), geometry)
    if bias is not None and bias.requires_grad:
        pieces[id(bias)] = DensePiece(grads.flatten(2).sum(2))
    return pieces


def transposed_convolution(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """A convolution backwards: it takes the gradients of the outputs to the inputs, with the same weight."""
    x, weight, bias = _argument(call, 0, "input"), _argument(call, 1, "weight"), _argument(call, 2, "bias")
    spatial, dtype = weight.dim() - 2, precise(weight.dtype)
    stride, padding, more, dilation = (
        _spread(_argument(call, place, name, default), spatial)
        for place, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "output_padding", 0), (7, "dilation", 1))
    )
    if any(extra >= step for extra, step in zip(more, stride, strict=True)):
        return {}
    grads = grads.to(dtype)
    pieces: dict[int, Piece] = {}
    if weight.requires_grad:
        geometry = (stride, padding, dilation, int(_argument(call, 6, "groups", 1)))
        pieces[id(weight)] = convolution_piece(grads, front(x.detach()).to(dtype), weight.detach().to(dtype), geometry)
    if bias is not None and bias.requires_grad:
        pieces[id(bias)] = DensePiece(grads.flatten(2).sum(2))
    return pieces


def _spread(value: Any, count: int) -> tuple[int, ...]:
    return (int(value),) * count if isinstance(value, int) else tuple(int(v) for v in value) * (count // len(value))


def _pad(inputs: Tensor, weight: Tensor, padding: Any, dilation: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """Numeric padding; "same" is asymmetric where it is odd, so the inputs are padded by hand then."""
    spatial = weight.dim() - 2
    if padding == "valid":
        return inputs, (0,) * spatial
    if padding == "same":
        pads: list[int] = []
        for size, step in zip(reversed(weight.shape[2:]), reversed(dilation), strict=True):
            total = step * (size - 1)
            pads += [total // 2, total - total // 2]
        return F.pad(inputs, pads), (0,) * spatial
    return inputs, _spread(padding, spatial)


def embedding(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Rows of a table, looked up by token."""
    tokens, weight = _argument(call, 0, "input"), _argument(call, 1, "weight")
    padding = _argument(call, 2, "padding_idx")
    if _argument(call, 3, "max_norm") is not None or _argument(call, 5, "scale_grad_by_freq", False):
        return {}
    size, rows = grads.shape[0], weight.shape[0]
    padding = -1 if padding is None else padding % rows
    flat, dtype = grads.reshape(size, -1, weight.shape[1]), precise(weight.dtype)
    flat = flat if flat.dtype == dtype else flat.to(dtype)
    return {id(weight): EmbeddingPiece(flat, front(tokens).reshape(size, -1), rows, padding)}


def embedding_bag(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Rows of a table, looked up by token, and added up or averaged over the tokens of an example."""
    tokens, weight, offsets = _argument(call, 0, "input"), _argument(call, 1, "weight"), _argument(call, 2, "offsets")
    mode, shares, padding = (
        _argument(call, place, name, default)
        for place, name, default in ((6, "mode", "mean"), (8, "per_sample_weights", None), (10, "padding_idx", None))
    )
    is_scaled = _argument(call, 3, "max_norm") is not None or _argument(call, 5, "scale_grad_by_freq", False)
    size, rows, dtype = grads.shape[0], weight.shape[0], precise(weight.dtype)
    each = front(tokens).reshape(size, -1)
    if mode == "max" or is_scaled or (shares is not None and shares.is_leaf and shares.requires_grad):
        return {}
    # Bags that are told by where they start are known if all are of one length.
    starts = torch.arange(0, size * each.shape[1], max(each.shape[1], 1), device=each.device)
    if offsets is not None and not torch.equal(offsets.to(starts.dtype), starts):
        return {}
    padding = -1 if padding is None else padding % rows
    share = torch.ones_like(each, dtype=dtype) if shares is None else front(shares.detach()).reshape(each.shape)
    if mode == "mean":
        share = share / (each != padding).sum(1, keepdim=True).clamp_min(1)
    return {id(weight): EmbeddingPiece(grads.to(dtype)[:, None, :] * share[:, :, None].to(dtype), each, rows, padding)}


def layer_norm(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Gain and offset after normalising the last dimensions."""
    x, shape = _argument(call, 0, "input"), _argument(call, 1, "normalized_shape")
    normal = F.layer_norm(x.detach(), shape, None, None, _argument(call, 4, "eps", 1e-5))
    return _gain_and_offset(call, (2, 3), grads, front(normal), len(shape))


def rms_norm(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Gain after dividing by the root mean square."""
    x, shape = _argument(call, 0, "input"), _argument(call, 1, "normalized_shape")
    normal = F.rms_norm(x.detach(), shape, None, _argument(call, 3, "eps"))
    return _gain_and_offset(call, (2, 99), grads, front(normal), len(shape))


def _gain_and_offset(call: Call, places: tuple[int, int], grads: Tensor, normal: Tensor, last: int) -> dict[int, Piece]:
    weight, bias = _argument(call, places[0], "weight"), _argument(call, places[1], "bias")
    middle = tuple(range(1, grads.dim() - last))
    pieces: dict[int, Piece] = {}
    for parameter, factor in ((weight, normal), (bias, None)):
        if parameter is not None and parameter.requires_grad:
            values = grads.to(precise(parameter.dtype))
            values = values if factor is None else values * factor.to(values.dtype)
            pieces[id(parameter)] = DensePiece(values.sum(middle) if middle else values)
    return pieces


def group_norm(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Gain and offset per channel after normalising groups of channels."""
    x, groups = _argument(call, 0, "input"), _argument(call, 1, "num_groups")
    normal = F.group_norm(x.detach(), groups, None, None, _argument(call, 4, "eps", 1e-5))
    return _per_channel(call, (2, 3), grads, front(normal))


def instance_norm(call: Call, grads: Tensor, front: Callable[[Tensor], Tensor]) -> dict[int, Piece]:
    """Gain and offset per channel after normalising every channel by itself."""
    if not _argument(call, 5, "use_input_stats", True) or _argument(call, 1, "running_mean") is not None:
        return {}
    x = _argument(call, 0, "input")
    normal = F.instance_norm(x.detach(), eps=_argument(call, 7, "eps", 1e-5))
    return _per_channel(call, (3, 4), grads, front(normal))


def _per_channel(call: Call, places: tuple[int, int], grads: Tensor, normal: Tensor) -> dict[int, Piece]:
    weight, bias = _argument(call, places[0], "weight"), _argument(call, places[1], "bias")
    pieces: dict[int, Piece] = {}
    for parameter, factor in ((weight, normal), (bias, None)):
        if parameter is not None and parameter.requires_grad:
            values = grads.to(precise(parameter.dtype))
            values = values if factor is None else values * factor.to(values.dtype)
            pieces[id(parameter)] = DensePiece(values.flatten(2).sum(2) if values.dim() > 2 else values)
    return pieces


RULES: dict[Callable[..., Any], Rule] = {
    F.linear: linear,
    two_linears: recurrent,
    torch.conv1d: convolution,
    torch.conv2d: convolution,
    torch.conv3d: convolution,
    torch.conv_transpose1d: transposed_convolution,
    torch.conv_transpose2d: transposed_convolution,
    torch.conv_transpose3d: transposed_convolution,
    F.embedding: embedding,
    F.embedding_bag: embedding_bag,
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.instance_norm: instance_norm,
}
