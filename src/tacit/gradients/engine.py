"""The backward pass, down to the outputs of what was watched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge


class Unclear(Exception):  # noqa: N818 - never leaves this package
    """The examples cannot be told apart in some tensor: the whole model must be treated example by example."""


def pulled_back(
    values: Tensor, edges: list[GradientEdge], grads: Tensor | None = None, *, keep_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of all losses; from ones, which spares the sum, or from the gradients of `values`.

    What torch.autograd.grad would do in the end; what it does before takes longer than the pass of a small model.
    """
    grads = torch.ones_like(values) if grads is None else grads
    found: tuple[Tensor | None, ...] = Variable._execution_engine.run_backward(
        (values,), (grads,), keep_graph, False, tuple(edges), True, accumulate_grad=False
    )
    return found


def precise(dtype: torch.dtype) -> torch.dtype:
    """The precision in which gradients of such a parameter are kept: half precision would round away other examples."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Norms and sums are never taken in half precision. Leaving autocast takes time, so only if it is on."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
