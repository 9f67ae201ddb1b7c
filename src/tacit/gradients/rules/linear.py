"""Linear maps, and self-attention, which is run as the linear maps that it is made of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Contribution, DenseContribution, OuterProduct, make_product, widen
from tacit.gradients.rules import Front, decompose, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call, Recorder

_ATTENTION_ARGUMENTS = (
    "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v",
    "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias",
)  # fmt: skip


@rule(F.linear, any_axis=True)
def linear(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """y = x W^T + b on the last dimension."""
    x, weight, bias = call.argument(0, "input"), call.argument(1, "weight"), call.argument(2, "bias")
    size, is_flat, dtype = grads.shape[0], grads.dim() == 2, widen(weight.dtype)
    grads = (grads if is_flat else grads.reshape(size, -1, weight.shape[0])).to(dtype)
    found: dict[int, Contribution] = {}
    if weight.requires_grad:
        inputs = front(x.detach()).to(dtype)
        inputs = inputs if is_flat else inputs.reshape(size, -1, weight.shape[1])
        found[id(weight)] = OuterProduct(grads, inputs) if is_flat else make_product(grads, inputs)
    if bias is not None and bias.requires_grad:
        found[id(bias)] = DenseContribution(grads if is_flat else grads.sum(1))
    return found


@rule(torch.addmm, any_argument=True)
def addmm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """y = b + x W on rows, as GPT-2 has it."""
    if len(call.args) != 3 or call.kwargs:
        return {}
    bias, x, weight = call.args
    is_flat, dtype = grads.dim() == 2, widen(weight.dtype)
    grads, found = grads.to(dtype), dict[int, Contribution]()
    if weight.requires_grad:
        inputs = front(x.detach()).to(dtype)
        found[id(weight)] = OuterProduct(inputs, grads) if is_flat else make_product(inputs, grads)
    if bias.requires_grad:
        if bias.shape != weight.shape[1:]:
            return {}
        found[id(bias)] = DenseContribution(grads if is_flat else grads.sum(1))
    return found


@decompose(F.multi_head_attention_forward)
def run_self_attention(
    args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
) -> tuple[Tensor, Tensor | None] | None:
    """What F.multi_head_attention_forward gives; None unless query, key and value are one tensor."""
    given = dict(zip(_ATTENTION_ARGUMENTS, args, strict=False)) | kwargs
    query: Tensor = given["query"]
    rare = ("bias_k", "bias_v", "static_k", "static_v")
    if query is not given["key"] or query is not given["value"] or query.dim() != 3 or given.get("add_zero_attn"):
        return None
    if given.get("use_separate_proj_weight") or any(given.get(name) is not None for name in rare):
        return None

    def project(x: Tensor, name: str) -> Tensor:
        inputs = x, given[f"{name}_weight"], given[f"{name}_bias"]
        return recorder.note(F.linear, inputs, F.linear(*inputs))

    length, size, width = query.shape
    heads = int(given["num_heads"])
    projected = project(query, "in_proj")
    q, k, v = projected.view(length, size, 3, heads, width // heads).permute(2, 1, 3, 0, 4).unbind(0)
    mask = _join_masks(given, size, heads, q.dtype)
    dropout = float(given.get("dropout_p", 0.0)) if given.get("training", True) else 0.0
    returned: Tensor | None = None
    if given.get("need_weights", True):
        scores = (q / math.sqrt(width // heads)) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, dropout) if dropout > 0 else weights
        mixed = weights @ v
        returned = weights.mean(1) if given.get("average_attn_weights", True) else weights
    else:
        is_causal = bool(given.get("is_causal")) and given.get("key_padding_mask") is None
        mixed = F.scaled_dot_product_attention(q, k, v, None if is_causal else mask, dropout, is_causal)
    return project(mixed.permute(2, 0, 1, 3).reshape(length, size, width), "out_proj"), returned


@decompose(F.scaled_dot_product_attention)
def run_biased_attention(args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder) -> Tensor | None:
    """Attention whose scores get a learned bias, as in T5; None where the bias is not all that is learned."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | kwargs
    query, key, value = (given[name] for name in names[:3])
    bias = given.get("attn_mask")
    if bias is None or recorder.is_tracked((query, key, value)) or given.get("is_causal") or given.get("enable_gqa"):
        return None
    scale = given.get("scale")
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)
    weights = recorder.note(torch.add, (scores, bias), scores + bias).softmax(-1)
    dropout = float(given.get("dropout_p") or 0.0)
    mixed: Tensor = (F.dropout(weights, dropout) if dropout else weights) @ value
    return mixed


def _join_masks(given: dict[str, Any], size: int, heads: int, dtype: torch.dtype) -> Tensor | None:
    """Both masks as one that is added to the scores."""
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    total = None
    if mask is not None:
        total = _make_additive(mask, dtype)
        if total.dim() == 3:
            total = total.view(size, heads, *total.shape[1:])
    if padding is not None:
        padding = _make_additive(padding, dtype)[:, None, None, :]
        total = padding if total is None else total + padding
    return total


def _make_additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
