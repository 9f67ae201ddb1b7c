"""Contributions: what one use of one parameter adds to every example's gradient, and the gradients of a lot.

A contribution gives the squared norm of each example's part, any weighted sum of them, and, on request, the parts one
by one. Norms and sums never form the parts. Whitened clipping also takes norms of parts whose coordinates are scaled,
and their products with one vector.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from tacit.gradients.perceptrons import LinearLayer

Tensors = dict[str, Tensor]

_NOTHING = nullcontext()
# Explicit gradients are kept if they are no larger than this many times the tensors they are made of.
_LARGER = 1.5
# Rows no longer than this count as short.
_SHORT = 64
# With fewer numbers in a tensor, calls take longer than arithmetic.
_FEW, _IN_NUMPY = 100_000, (torch.float32, torch.float64)
# The least normal number of a type: asking torch takes as long as a small sum.
_TINY = {kind: torch.finfo(kind).tiny for kind in (torch.float16, torch.bfloat16, *_IN_NUMPY)}
_ONES: dict[torch.dtype, NDArray[Any]] = {torch.float32: np.ones(_SHORT, np.float32), torch.float64: np.ones(_SHORT)}
# Scaled norms that need the parts one by one form them for this many examples at a time.
_FORMED = 32
# Terms that cancel leave rounding errors as large as theirs, in the sum and in the norm. So no norm is taken below this
# share of the norm without cancellation: an example may be clipped too much, never too little. Gram matrices, which
# square the terms, need the larger share.
LEAST_SHARE, LEAST_SHARE_BY_GRAM = 2.0**-10, 2.0**-6


class Contribution(ABC):
    """One use of one parameter in one lot."""

    @abstractmethod
    def squared_norms(self, known: dict[int, Tensor]) -> Tensor: ...
    @abstractmethod
    def scaled_norms(self, scale: Tensor) -> Tensor: ...
    @abstractmethod
    def products(self, vector: Tensor) -> Tensor: ...
    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor: ...
    @abstractmethod
    def dense(self) -> Tensor: ...
    @abstractmethod
    def without(self, rows: Tensor) -> Contribution: ...

    def join(self, uses: list[Contribution]) -> Contribution | None:
        """Add several uses of one parameter up without forming them; None where there is no such way."""
        return None


@dataclass(frozen=True, eq=False)
class DenseContribution(Contribution):
    """Gradients one by one: [B, *shape]."""

    values: Tensor

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        return square_norms(self.values, known)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        flat, scale = _flatten(self.values), scale.reshape(-1)
        return torch.cat([take_norms(rows * scale) for rows in split_examples(flat)]) if len(flat) else take_norms(flat)

    def products(self, vector: Tensor) -> Tensor:
        return _flatten(self.values) @ vector.reshape(-1).to(self.values.dtype)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        flat = _flatten(self.values)
        by = weights if weights.dtype is flat.dtype else weights.to(flat.dtype)
        if _is_small(flat) and _is_small(by):
            return torch.from_numpy(by.numpy() @ flat.numpy()).view(self.values.shape[1:])
        return (by @ flat).view(self.values.shape[1:])

    def dense(self) -> Tensor:
        return self.values

    def without(self, rows: Tensor) -> DenseContribution:
        return DenseContribution(zero_examples(self.values, rows))


@dataclass(frozen=True, eq=False)
class OuterProduct(Contribution):
    """One outer product an example: output gradient [B, p] times input [B, d]."""

    grads: Tensor
    inputs: Tensor

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        return square_norms(self.inputs, known) * square_norms(self.grads, known)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        # sum_ij (s_ij g_i x_j)^2 is a bilinear form of the squares.
        squares = scale.to(self.grads.dtype).reshape(self.grads.shape[1], self.inputs.shape[1]).square()
        return (self.grads.square() @ squares).mul_(self.inputs.square()).sum(1).sqrt_()

    def products(self, vector: Tensor) -> Tensor:
        return _multiply_through(self.grads, vector, self.inputs).sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        grads, inputs = self.grads, self.inputs
        by = weights if weights.dtype is grads.dtype else weights.to(grads.dtype)
        if _is_small(grads) and _is_small(inputs) and _is_small(by):
            return torch.from_numpy((grads.numpy().T * by.numpy()) @ inputs.numpy())
        return (grads.T * by) @ inputs

    def dense(self) -> Tensor:
        return self.grads[:, :, None] * self.inputs[:, None, :]

    def without(self, rows: Tensor) -> OuterProduct:
        return OuterProduct(zero_examples(self.grads, rows), zero_examples(self.inputs, rows))

    def as_sum(self) -> OuterProductSum:
        """A sum of one."""
        return OuterProductSum(self.grads[:, None], self.inputs[:, None])

    def join(self, uses: list[Contribution]) -> Contribution | None:
        return join_products(uses)


@dataclass(frozen=True, eq=False)
class OuterProductSum(Contribution):
    """A sum of T outer products an example: gradients [B, T, p], inputs [B, T, d]. Norms by Gram matrices.

    `is_shared` says that another contribution has the same gradients, so their Gram matrices are kept for it.
    """

    grads: Tensor
    inputs: Tensor
    is_shared: bool = False

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        left = known.pop(id(self.grads), None)
        if left is None:
            left = torch.bmm(self.grads, self.grads.transpose(1, 2))
            if self.is_shared:
                known[id(self.grads)] = left.clone()
        right = torch.bmm(self.inputs, self.inputs.transpose(1, 2))
        return square_norms_by_gram(left, right, (self.grads.shape[2], self.inputs.shape[2]))

    def scaled_norms(self, scale: Tensor) -> Tensor:
        pairs = zip(split_examples(self.grads), split_examples(self.inputs), strict=True)
        formed = (DenseContribution(OuterProductSum(grads, inputs).dense()) for grads, inputs in pairs)
        reach = (self.grads.norm(dim=2) * self.inputs.norm(dim=2)).sum(1)
        return raise_to_share(torch.cat([each.scaled_norms(scale) for each in formed]), reach, scale)

    def products(self, vector: Tensor) -> Tensor:
        return _multiply_through(self.grads, vector, self.inputs).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        grads, inputs, by = self.grads, self.inputs, weights.to(self.grads.dtype)[:, None, None]
        grads, inputs = (grads * by, inputs) if grads.shape[2] <= inputs.shape[2] else (grads, inputs * by)
        if grads.stride(0) < grads.stride(1):
            # Times come before examples in memory: summed in that order, nothing is copied.
            grads, inputs = grads.transpose(0, 1), inputs.transpose(0, 1)
        return grads.flatten(0, 1).T @ inputs.flatten(0, 1)

    def dense(self) -> Tensor:
        return torch.bmm(self.grads.transpose(1, 2), self.inputs)

    def without(self, rows: Tensor) -> OuterProductSum:
        return OuterProductSum(zero_examples(self.grads, rows), zero_examples(self.inputs, rows))

    def as_sum(self) -> OuterProductSum:
        return self

    def join(self, uses: list[Contribution]) -> Contribution | None:
        return join_products(uses)


def join_products(uses: list[Contribution]) -> Contribution | None:
    """Add several uses up if all are outer products or sums of them."""
    products = [use for use in uses if isinstance(use, (OuterProduct, OuterProductSum))]
    if not products or len(products) != len(uses):
        return None
    sums = [product.as_sum() for product in products]
    return make_product(torch.cat([each.grads for each in sums], 1), torch.cat([each.inputs for each in sums], 1))


def make_product(grads: Tensor, inputs: Tensor) -> Contribution:
    """Choose the cheaper form of sum_t grads[b, t] inputs[b, t]^T."""
    return make_products(grads, [inputs])[0]


def make_products(grads: Tensor, inputs: list[Tensor]) -> list[Contribution]:
    """The same for several inputs with the same gradients, whose Gram matrices then serve all."""
    if grads.shape[1] == 1:
        row = grads[:, 0]
        return [OuterProduct(row, each[:, 0]) for each in inputs]
    times, p, d = grads.shape[1], grads.shape[2], sum(each.shape[2] for each in inputs)
    if p * d <= _LARGER * times * (p + d):
        return [DenseContribution(torch.bmm(grads.transpose(1, 2), each)) for each in inputs]
    return [OuterProductSum(grads, each, is_shared=len(inputs) > 1) for each in inputs]


def merge_uses(uses: list[Contribution], shape: tuple[int, ...]) -> Contribution:
    """Add several uses of one parameter up before any norm is taken."""
    if len(uses) == 1:
        return uses[0]
    for use in uses:
        joined = use.join(uses)
        if joined is not None:
            return joined
    first = uses[0].dense()
    total = first.reshape(first.shape[0], *shape).clone()
    for use in uses[1:]:
        total += use.dense().view_as(total)
    return DenseContribution(total)


def split_examples(values: Tensor) -> tuple[Tensor, ...]:
    """Split the rows of a lot into parts with a bounded number of examples."""
    parts: tuple[Tensor, ...] = torch.split(values, _FORMED)
    return parts


def _flatten(values: Tensor) -> Tensor:
    """Each example's part [B, ...] as one row; a single number is a row too."""
    return values if values.dim() == 2 else values.reshape(values.shape[0], values[0].numel())


def take_norms(values: Tensor) -> Tensor:
    """The norm of each row."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=1)
    return norms


def square_rows(rows: Tensor) -> Tensor:
    """The squared norm of each row. Short rows are summed by a product with ones, twice as fast as torch's norm."""
    width = rows.shape[1]
    if width > _SHORT:
        return take_norms(rows).square_()
    if _is_small(rows):
        numbers = rows.numpy()
        if numbers.flags.forc:
            return torch.from_numpy((numbers * numbers) @ _ONES[rows.dtype][:width])
        # Rows that are parts of longer ones, as after a concatenation, are not copied.
        return torch.from_numpy(np.einsum("ij,ij->i", numbers, numbers))
    return rows.square() @ _make_ones(rows.shape[1], rows.dtype, rows.device)


def _is_small(values: Tensor) -> bool:
    """Whether numpy computes faster: its calls cost half of torch's, which uses several threads."""
    return values.is_cpu and values.numel() <= _FEW and values.dtype in _IN_NUMPY and not values.requires_grad


@lru_cache(maxsize=64)
def _make_ones(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Not made in torch.inference_mode, where it would be of no use to later lots.
    with torch.inference_mode(False):
        return torch.ones(count, dtype=dtype, device=device)


def square_norms(values: Tensor, known: dict[int, Tensor]) -> Tensor:
    """The squared norm of each example's part [B, ...], unless it is `known` by the identity of the tensor.

    At least what numbers whose squares vanish can add up to: multiplied by a huge other factor, they would matter.
    """
    found = known.get(id(values))
    if found is None:
        rows = _flatten(values)
        found = square_rows(rows).clamp_min_(rows.shape[1] * _TINY[rows.dtype])
        known[id(values)] = found
    return found


def square_norms_by_gram(left: Tensor, right: Tensor, widths: tuple[int, int]) -> Tensor:
    """[N]: the squared norms of sums of T outer products, from the Gram matrices [N, T, T] of the factors.

    `widths` are the lengths of the factors; `left` is overwritten. Where terms cancel, or squares vanish, the result is
    above the true value.
    """
    times = left.shape[1]
    if times == 0:
        return left.new_zeros(left.shape[0])
    lefts, rights = left.diagonal(dim1=1, dim2=2), right.diagonal(dim1=1, dim2=2)
    reach = (lefts.sqrt() * rights.sqrt()).sum(1)
    vanished = (widths[0] * rights.amax(1) + widths[1] * lefts.amax(1)) * (times**2 * torch.finfo(left.dtype).tiny)
    least = torch.maximum(reach.mul_(LEAST_SHARE_BY_GRAM).square_(), vanished)
    return torch.maximum(left.mul_(right).sum((1, 2)), least)


def raise_to_share(norms: Tensor, reach: Tensor, scale: Tensor) -> Tensor:
    """Raise scaled norms to the least share of `reach`, the unscaled norm without cancellation."""
    return torch.maximum(norms, reach * (LEAST_SHARE * scale.abs().max()))


def _multiply_through(grads: Tensor, matrix: Tensor, inputs: Tensor) -> Tensor:
    """The terms of grads^T matrix inputs, still to be summed."""
    return (grads @ matrix.to(grads.dtype).reshape(grads.shape[-1], inputs.shape[-1])).mul_(inputs)


def zero_examples(values: Tensor, rows: Tensor) -> Tensor:
    """Set the values of these examples to zero."""
    return values.masked_fill(rows.view(-1, *[1] * (values.dim() - 1)), 0.0)


def widen(dtype: torch.dtype) -> torch.dtype:
    """The precision in which gradients of such a parameter are kept: half precision would round other examples away."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def leave_autocast(device: str) -> AbstractContextManager[Any]:
    """Take norms and sums in full precision. Leaving autocast takes time, so only if it is on."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


@dataclass(frozen=True)
class BackendUsed:
    """How the gradients of single examples were computed; `why`, where one backward pass was not enough."""

    name: Literal["bookkeeping", "vmap", "loop"]
    why: str = ""

    def __str__(self) -> str:
        """One line, for people."""
        ways = {
            "bookkeeping": "one backward pass, with a rule for each operation",
            "vmap": "torch.func.vmap over the whole model",
            "loop": "one pass for each example",
        }
        return f"{self.name}: {ways[self.name]}" + (f", because {self.why}" if self.why else "")


@dataclass(eq=False)
class LotGradients:
    """The gradients of one lot, example by example: private.

    Made of one contribution for every parameter that was used, or of the layers of a small perceptron with their norms.
    """

    parameters: Tensors
    given: dict[str, Contribution]
    losses: Tensor
    layers: tuple[LinearLayer, ...] = ()
    _norms: Tensor | None = field(default=None, repr=False)
    _lengths: NDArray[Any] | None = field(default=None, repr=False)
    _squares: Tensors | None = field(default=None, repr=False)
    backend: BackendUsed = field(default=BackendUsed("bookkeeping"), repr=False)

    @staticmethod
    def of(parameters: Tensors, uses: dict[str, list[Contribution]], losses: Tensor) -> LotGradients:
        """Merge the uses of each parameter."""
        return LotGradients(
            parameters, {name: merge_uses(each, parameters[name].shape) for name, each in uses.items()}, losses
        )

    def __len__(self) -> int:
        return self.losses.shape[0]

    @property
    def contributions(self) -> dict[str, Contribution]:
        """By parameter, what it contributes to every example's gradient."""
        if self.layers and not self.given:
            self.given = {name: each for layer in self.layers for name, each in layer.contributions().items()}
        return self.given

    def norms(self) -> Tensor:
        """[B]: each example's gradient norm over all trainable parameters; NaN or infinite if it is not finite."""
        if self._norms is None:
            squares = self._by_parameter().values()
            self._norms = reduce(torch.add, squares).sqrt() if squares else self.losses.new_zeros(len(self))
        return self._norms

    def _by_parameter(self) -> Tensors:
        """By parameter, the squared norms. A weight and its bias share an output gradient, and its norms."""
        if self._squares is None:
            known: dict[int, Tensor] = {}
            with leave_autocast(self.losses.device.type), np.errstate(all="ignore"):
                self._squares = {name: each.squared_norms(known) for name, each in self.contributions.items()}
        return self._squares

    def layer_norms(self) -> Tensors:
        """[B] for each parameter: the norm of its part of each example's gradient."""
        zero = self.losses.new_zeros(len(self))
        squares = self._by_parameter()
        return {name: squares.get(name, zero).sqrt() for name in self.parameters}

    def scaled_norms(self, scale: Mapping[str, Tensor]) -> Tensor:
        """[B]: the norms of gradients whose coordinates are multiplied by `scale`: a number for each coordinate of a
        parameter, or one for all. At most a few examples' gradients are formed at a time."""
        squares = self.losses.new_zeros(len(self))
        with leave_autocast(self.losses.device.type):
            for name, each in self.contributions.items():
                by, is_single = scale[name], self.parameters[name].numel() > scale[name].numel()
                by_one = self._by_parameter()[name] * by.square() if is_single else each.scaled_norms(by).square()
                squares = squares + by_one
        return squares.sqrt_()

    def products(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """[B]: the inner product of each example's gradient with one vector."""
        with leave_autocast(self.losses.device.type):
            each = [use.products(vectors[name]) for name, use in self.contributions.items()]
        return sum(each, self.losses.new_zeros(len(self)))

    def weighted_sum(self, weights: Tensor) -> Tensors:
        """Sum over examples of weight times gradient. At weight zero an example adds zero, even if not finite."""
        if not self.layers:
            return self.weighted_sum_by_layer(dict.fromkeys(self.parameters, weights))
        layers, sums = self.layers, Tensors()
        lengths = self.norms().numpy() if self._lengths is None else self._lengths
        by = weights.numpy().astype(layers[0].grads.dtype, copy=False)
        # Their sum is finite only if all norms are.
        is_finite = math.isfinite(np.add.reduce(lengths))
        if not is_finite:
            rows = (by == 0) & ~np.isfinite(lengths)
            layers = tuple(layer.without(rows) for layer in layers)
        # Telling numpy not to warn takes as long as a small sum.
        with _NOTHING if is_finite else np.errstate(all="ignore"):
            for layer in layers:
                sums |= layer.weighted_sum(by)
        return {name: sums[name] if name in sums else torch.zeros_like(p) for name, p in self.parameters.items()}

    def weighted_sum_by_layer(self, weights: Tensors) -> Tensors:
        """The same with weights for each parameter by itself."""
        norms = self.norms()
        # Another device is not asked, because the answer would have to be waited for.
        is_finite = norms.is_cpu and math.isfinite(
            np.add.reduce(norms.numpy()) if _is_small(norms) else norms.sum().item()
        )
        result: Tensors = {}
        with leave_autocast(self.losses.device.type), _NOTHING if is_finite else np.errstate(all="ignore"):
            for name, parameter in self.parameters.items():
                use = self.contributions.get(name)
                if use is None or not norms.shape[0]:
                    result[name] = torch.zeros_like(parameter)
                    continue
                if not is_finite:
                    use = use.without((weights[name] == 0) & ~norms.isfinite())
                found = use.weighted_sum(weights[name])
                result[name] = found if found.shape == parameter.shape else found.view_as(parameter)
        return result

    def dense(self) -> Tensors:
        """[B, ...] for each parameter: as much memory as B copies of the model."""
        result: Tensors = {}
        with leave_autocast(self.losses.device.type):
            for name, parameter in self.parameters.items():
                use = self.contributions.get(name)
                shape = (len(self), *parameter.shape)
                result[name] = parameter.new_zeros(shape) if use is None else use.dense().view(shape)
        return result
