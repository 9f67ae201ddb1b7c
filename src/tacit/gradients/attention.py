"""Self-attention as torch computes it, taken apart so that its two projections are seen as the linear maps they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]

_NAMES = (
    "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v",
    "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias",
)  # fmt: skip


def self_attention(
    args: tuple[Any, ...], kwargs: dict[str, Any], linear: Linear
) -> tuple[Tensor, Tensor | None] | None:
    """What F.multi_head_attention_forward gives, with `linear` for its projections; None for its rarer forms."""
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    query: Tensor = given["query"]
    rare = ("bias_k", "bias_v", "static_k", "static_v")
    if query is not given["key"] or query is not given["value"] or query.dim() != 3 or given.get("add_zero_attn"):
        return None
    if given.get("use_separate_proj_weight") or any(given.get(name) is not None for name in rare):
        return None
    length, size, width = query.shape
    heads = int(given["num_heads"])
    projected = linear(query, given["in_proj_weight"], given["in_proj_bias"])
    q, k, v = projected.view(length, size, 3, heads, width // heads).permute(2, 1, 3, 0, 4).unbind(0)
    mask = _mask(given, size, heads, q.dtype)
    dropout = float(given.get("dropout_p", 0.0)) if given.get("training", True) else 0.0
    if given.get("need_weights", True):
        scores = (q / math.sqrt(width // heads)) @ k.transpose(-2, -1)
        weights = (scores if mask is None else scores + mask).softmax(-1)
        weights = F.dropout(weights, dropout) if dropout > 0 else weights
        mixed = weights @ v
        shown: Tensor | None = weights.mean(1) if given.get("average_attn_weights", True) else weights
    else:
        is_causal = bool(given.get("is_causal")) and given.get("key_padding_mask") is None
        mixed = F.scaled_dot_product_attention(q, k, v, None if is_causal else mask, dropout, is_causal)
        shown = None
    joined = mixed.permute(2, 0, 1, 3).reshape(length, size, width)
    return linear(joined, given["out_proj_weight"], given["out_proj_bias"]), shown


def _mask(given: dict[str, Any], size: int, heads: int, dtype: torch.dtype) -> Tensor | None:
    """Both masks as one that is added to the scores."""
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    total = None
    if mask is not None:
        total = _additive(mask, dtype)
        if total.dim() == 3:
            total = total.view(size, heads, *total.shape[1:])
    if padding is not None:
        padding = _additive(padding, dtype)[:, None, None, :]
        total = padding if total is None else total + padding
    return total


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
