"""Gradients as rows of numbers, some examples at a time: for bounds that need every coordinate of every example."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.bounds.clip import at_least_single
from tacit.types import PerExampleGradients


def dense_rows(gradients: PerExampleGradients, examples: int) -> Iterator[Tensor]:
    """So many rows at a time, one an example, over all parameters; at least one piece, which may have no row.

    In at least single precision, and zeros for an example that is not finite.
    """
    dense = list(gradients.dense().values())
    for start in range(0, max(len(gradients), 1), examples):
        parts = [rows[start : start + examples] for rows in dense]
        whole = torch.cat([part.reshape(len(part), math.prod(part.shape[1:])) for part in parts], dim=1)
        yield _finite(at_least_single(whole))


def _finite(rows: Tensor) -> Tensor:
    # A sum of finite numbers can overflow, so what looks bad is looked at closely.
    if bool(torch.isfinite(rows.sum())):
        return rows
    return rows.masked_fill(~torch.isfinite(rows).all(dim=1, keepdim=True), 0.0)
