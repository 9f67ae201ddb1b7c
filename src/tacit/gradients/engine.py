"""The backward pass, down to the outputs of what was watched."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge


class Unclear(Exception):  # noqa: N818 - never leaves this package
    """The examples cannot be told apart in some tensor: the whole model must be treated example by example."""


def pulled_back(values: Tensor, edges: list[GradientEdge]) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of all losses; from ones, which spares the sum.

    What torch.autograd.grad would do in the end; what it does before takes longer than the pass of a small model.
    """
    ones = torch.ones_like(values)
    found: tuple[Tensor | None, ...] = Variable._execution_engine.run_backward(
        (values,), (ones,), False, False, tuple(edges), True, accumulate_grad=False
    )
    return found
