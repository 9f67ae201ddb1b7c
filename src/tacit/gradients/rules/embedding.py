"""Embeddings: gradients of tables that are looked up by token. Their cost follows the tokens, not the table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.contributions import (
    LEAST_SHARE,
    LEAST_SHARE_BY_GRAM,
    Contribution,
    DenseContribution,
    OuterProduct,
    OuterProductSum,
    join_products,
    raise_to_share,
    split_examples,
    square_rows,
    take_norms,
    widen,
    zero_examples,
)
from tacit.gradients.rules import Front, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call, Derived

try:
    # Private to scipy, though its matrices have used it for many years. Without it torch does the same, more slowly.
    from scipy.sparse._sparsetools import csc_matvecs
except ImportError:
    csc_matvecs = None

# The number of values of token gradients that are added up at a time: few enough to stay in the cache.
_ADDED = 250_000


@rule(F.embedding, any_axis=True)
def embedding(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Rows of a table, looked up by token."""
    tokens, weight = call.argument(0, "input"), call.argument(1, "weight")
    padding = call.argument(2, "padding_idx")
    if call.argument(3, "max_norm") is not None or call.argument(5, "scale_grad_by_freq", False):
        return {}
    size, rows = grads.shape[0], weight.shape[0]
    padding = -1 if padding is None else padding % rows
    flat, dtype = grads.reshape(size, -1, weight.shape[1]), widen(weight.dtype)
    flat = flat if flat.dtype == dtype else flat.to(dtype)
    return {id(weight): TableContribution(flat, front(tokens).reshape(size, -1), rows, padding)}


def pull_to_table(derived: Derived, grads: Tensor) -> tuple[Tensor, Contribution] | None:
    """Gradients [B, ...] of rows that all examples share, such as learned positions: their table, and the contribution.

    None if the rows were not simply looked up.
    """
    if derived.function is not F.embedding or len(derived.args) < 2:
        return None
    options = dict(zip(("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq"), derived.args[2:], strict=False))
    options |= derived.kwargs
    tokens, weight = derived.args[:2]
    if not weight.is_leaf or options.get("max_norm") is not None or options.get("scale_grad_by_freq"):
        return None
    padding = options.get("padding_idx")
    padding = -1 if padding is None else padding % weight.shape[0]
    flat = grads.reshape(len(grads), -1, weight.shape[1])
    each = tokens.reshape(1, -1).expand(len(grads), -1).contiguous()
    return weight, TableContribution(flat, each, weight.shape[0], padding)


@rule(F.embedding_bag)
def embedding_bag(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Rows of a table, looked up by token, and added up or averaged over the tokens of an example."""
    tokens, weight, offsets = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "offsets")
    mode, shares, padding = (
        call.argument(place, name, default)
        for place, name, default in ((6, "mode", "mean"), (8, "per_sample_weights", None), (10, "padding_idx", None))
    )
    is_scaled = call.argument(3, "max_norm") is not None or call.argument(5, "scale_grad_by_freq", False)
    size, rows, dtype = grads.shape[0], weight.shape[0], widen(weight.dtype)
    each = front(tokens).reshape(size, -1)
    if mode == "max" or is_scaled or (shares is not None and shares.is_leaf and shares.requires_grad):
        return {}
    # Bags given by offsets are followed if all have one length.
    starts = torch.arange(0, size * each.shape[1], max(each.shape[1], 1), device=each.device)
    if offsets is not None and not torch.equal(offsets.to(starts.dtype), starts):
        return {}
    padding = -1 if padding is None else padding % rows
    share = torch.ones_like(each, dtype=dtype) if shares is None else front(shares.detach()).reshape(each.shape)
    if mode == "mean":
        share = share / (each != padding).sum(1, keepdim=True).clamp_min(1)
    by_token = grads.to(dtype)[:, None, :] * share[:, :, None].to(dtype)
    return {id(weight): TableContribution(by_token, each, rows, padding)}


@dataclass(frozen=True, eq=False)
class TableContribution(Contribution):
    """Rows of a table: each of an example's tokens adds its gradient [B, T, D] to one row."""

    grads: Tensor
    tokens: Tensor
    rows: int
    padding: int

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        return self._square_norms(None)

    def scaled_norms(self, scale: Tensor) -> Tensor:
        return self._square_norms(scale.view(self.rows, -1)).sqrt_()

    def products(self, vector: Tensor) -> Tensor:
        each = torch.einsum("btd,btd->bt", self.grads, vector.view(self.rows, -1).to(self.grads.dtype)[self.tokens])
        return (each * (self.tokens != self.padding) if self.padding >= 0 else each).sum(1)

    def _square_norms(self, scale: Tensor | None) -> Tensor:
        """No smaller than some share of the squares of all tokens' gradients: those of equal tokens can cancel."""
        size, count, width = self.grads.shape
        if size == 0 or count == 0:
            return self.grads.new_zeros(size)
        if count == 1 and scale is None:
            squares = square_rows(self.grads.view(size, width))
            return squares if self.padding < 0 else squares * (self.tokens[:, 0] != self.padding)
        at_a_time = max(1, _ADDED // (count * width))
        square = self._square_some_norms if self.grads.is_cpu else self._square_on_device
        return torch.cat([square(slice(i, i + at_a_time), scale) for i in range(0, size, at_a_time)])

    def _square_some_norms(self, part: slice, scale: Tensor | None) -> Tensor:
        """The squared norms of some examples: the gradients of equal tokens of an example are added up first."""
        tokens, order = _group(self.tokens[part])
        size, count = tokens.shape
        order += torch.arange(size, device=order.device)[:, None] * count
        starts = torch.ones_like(tokens, dtype=torch.bool)
        torch.ne(tokens[:, 1:], tokens[:, :-1], out=starts[:, 1:])
        offsets = starts.flatten().nonzero().flatten()
        grads = self.grads[part].reshape(size, -1)
        sums = F.embedding_bag(order.flatten(), grads.reshape(-1, self.grads.shape[2]), offsets, mode="sum")
        squares = take_norms(sums if scale is None else sums * scale[tokens.flatten()[offsets]]).square_()
        if self.padding >= 0:
            squares.masked_fill_(tokens.flatten()[offsets] == self.padding, 0.0)
        largest = 1.0 if scale is None else scale.abs().max()
        least = take_norms(grads).mul_(LEAST_SHARE * largest).square_()
        return torch.maximum(squares.new_zeros(size).index_add_(0, offsets // count, squares), least)

    def _square_on_device(self, part: slice, scale: Tensor | None) -> Tensor:
        """The same without asking a device how many tokens differ, which would wait for it."""
        tokens, order = _group(self.tokens[part])
        size, count = tokens.shape
        width, first = self.grads.shape[2], torch.arange(size, device=tokens.device)[:, None] * count
        grads = self.grads[part].reshape(-1, width)[(order + first).flatten()]
        largest = 1.0 if scale is None else scale.abs().max()
        least = take_norms(grads.view(size, -1)).mul_(LEAST_SHARE * largest).square_()
        if scale is not None:
            grads = grads * scale[tokens.flatten()]
        if self.padding >= 0:
            grads = grads.masked_fill(tokens.flatten()[:, None] == self.padding, 0.0)
        group = torch.zeros_like(tokens)
        group[:, 1:] = torch.ne(tokens[:, 1:], tokens[:, :-1]).cumsum(1)
        sums = torch.zeros_like(grads).index_add_(0, (group + first).flatten(), grads)
        return torch.maximum(take_norms(sums.view(size, -1)).square_(), least)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        _, count, width = self.grads.shape
        if csc_matvecs is not None and self.grads.is_cpu and self.grads.dtype in (torch.float32, torch.float64):
            result = _scatter(self.grads, self.tokens, weights, self.rows)
        else:
            weights = weights.to(self.grads.dtype).repeat_interleave(count)
            grads, tokens = self.grads.reshape(-1, width), self.tokens.flatten()
            result = grads.new_zeros(self.rows, width).index_add_(0, tokens, grads * weights[:, None])
        if self.padding >= 0:
            result[self.padding] = 0.0
        return result

    def dense(self) -> Tensor:
        size, _, width = self.grads.shape
        grads = self.grads
        if self.padding >= 0:
            grads = grads * (self.tokens != self.padding)[:, :, None]
        result = grads.new_zeros(size, self.rows, width)
        return result.scatter_add_(1, self.tokens[:, :, None].expand(-1, -1, width), grads)

    def without(self, rows: Tensor) -> TableContribution:
        return TableContribution(zero_examples(self.grads, rows), self.tokens, self.rows, self.padding)

    def join(self, uses: list[Contribution]) -> Contribution | None:
        tables = [use for use in uses if isinstance(use, TableContribution)]
        if len({table.padding for table in tables}) > 1:
            return None
        grads, tokens = torch.cat([t.grads for t in tables], 1), torch.cat([t.tokens for t in tables], 1)
        table = TableContribution(grads, tokens, self.rows, self.padding)
        if len(tables) == len(uses):
            return table
        product = join_products([use for use in uses if not isinstance(use, TableContribution)])
        if not isinstance(product, (OuterProduct, OuterProductSum)):
            return None
        return TiedContribution(table, product.as_sum())


@dataclass(frozen=True, eq=False)
class TiedContribution(Contribution):
    """A table that is looked up and also multiplied by, as in tied input and output embeddings. Forms no gradient."""

    table: TableContribution
    product: OuterProductSum

    def squared_norms(self, known: dict[int, Tensor]) -> Tensor:
        looked_up, multiplied = self.table.squared_norms(known), self.product.squared_norms(known)
        # The inner product of both: only rows of the example's own tokens meet.
        tokens, grads = self.table.tokens, self.product.grads
        at_tokens = grads.gather(2, tokens.long()[:, None, :].expand(-1, grads.shape[1], -1))
        if self.table.padding >= 0:
            at_tokens = at_tokens * (tokens != self.table.padding)[:, None, :]
        both = torch.bmm(self.product.inputs, self.table.grads.transpose(1, 2)).mul_(at_tokens).sum((1, 2))
        reach = looked_up.sqrt() + multiplied.sqrt()
        return torch.maximum(looked_up + multiplied + 2 * both, reach.mul_(LEAST_SHARE_BY_GRAM).square_())

    def scaled_norms(self, scale: Tensor) -> Tensor:
        table, product = self.table, self.product
        found = []
        for part in split_examples(torch.arange(len(table.grads), device=table.grads.device)):
            looked_up = TableContribution(table.grads[part], table.tokens[part], table.rows, table.padding)
            formed = TiedContribution(looked_up, OuterProductSum(product.grads[part], product.inputs[part])).dense()
            found.append(DenseContribution(formed).scaled_norms(scale))
        multiplied = product.grads.norm(dim=2) * product.inputs.norm(dim=2)
        return raise_to_share(torch.cat(found), table.grads.norm(dim=2).sum(1) + multiplied.sum(1), scale)

    def products(self, vector: Tensor) -> Tensor:
        return self.table.products(vector) + self.product.products(vector)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self.table.weighted_sum(weights) + self.product.weighted_sum(weights)

    def dense(self) -> Tensor:
        return self.table.dense() + self.product.dense()

    def without(self, rows: Tensor) -> TiedContribution:
        return TiedContribution(self.table.without(rows), self.product.without(rows))


def _group(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Sort every row, so that equal tokens stand together; also return where each of them was."""
    count = tokens.shape[1]
    # Token and position in one number: sorting these is much faster than finding the order of the tokens.
    packed = (tokens.long() * count).add_(torch.arange(count, device=tokens.device))
    # On a CPU numpy sorts ten times as fast as torch.
    packed = torch.from_numpy(np.sort(packed.numpy())) if packed.device.type == "cpu" else packed.sort().values
    tokens = packed.div(count, rounding_mode="floor")
    return tokens, packed.sub_(tokens * count)


def _scatter(grads: Tensor, tokens: Tensor, weights: Tensor, rows: int) -> Tensor:
    """Add weight times gradient of every token to its row: a product with a matrix that has one entry a column.

    Eight times as fast as torch's index_add_, which also needs a copy of the gradients for the weights; scipy's public
    matrices would spend twice the time of the product on checking it.
    """
    which, numbers = tokens.numpy().reshape(-1), grads.numpy().reshape(-1, grads.shape[2])
    by = weights.numpy().astype(numbers.dtype, copy=False)
    by = by if grads.shape[1] == 1 else np.repeat(by, grads.shape[1])
    result = np.zeros((rows, numbers.shape[1]), dtype=numbers.dtype)
    ends = _count_to(len(which) + 1, which.dtype)
    csc_matvecs(rows, len(which), numbers.shape[1], ends, which, by, numbers.reshape(-1), result.reshape(-1))
    return torch.from_numpy(result)


@lru_cache(maxsize=32)
def _count_to(count: int, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.arange(count, dtype=kind)
