"""Gradients as rows of numbers, some examples at a time: for bounds that need every coordinate of every example."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tacit.stages.bounds.clip import at_least_single


def dense_rows(dense: Mapping[str, Tensor], examples: int) -> Iterator[Tensor]:
    """So many rows at a time, one an example, over all parameters; at least one piece, which may have no row.

    `dense` is what PerExampleGradients.dense gives. Rows come in at least single precision, and as zeros for an example
    that is not finite.
    """
    count = max((len(rows) for rows in dense.values()), default=0)
    for start in range(0, max(count, 1), examples):
        parts = [rows[start : start + examples] for rows in dense.values()]
        whole = torch.cat([part.reshape(len(part), math.prod(part.shape[1:])) for part in parts], dim=1)
        yield _finite(at_least_single(whole))


def _finite(rows: Tensor) -> Tensor:
    # A sum of finite numbers can overflow, so what looks bad is looked at closely.
    if bool(torch.isfinite(rows.sum())):
        return rows
    return rows.masked_fill(~torch.isfinite(rows).all(dim=1, keepdim=True), 0.0)
