"""The backward pass, down to the outputs of what was watched."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge

from tacit.errors import InvalidArgument
from tacit.gradients.trees import tensors_in


class Unclear(Exception):  # noqa: N818 - never leaves this package
    """The examples cannot be told apart in some tensor: the whole model must be treated example by example."""


def pulled_back(
    values: Tensor, edges: list[GradientEdge], grads: Tensor | None = None, *, keep_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of all losses; from ones, which spares the sum, or from the gradients of `values`.

    What torch.autograd.grad would do in the end; what it does before takes longer than the pass of a small model.
    """
    grads = torch.ones_like(values) if grads is None else grads
    try:
        found: tuple[Tensor | None, ...] = Variable._execution_engine.run_backward(
            (values,), (grads,), keep_graph, False, tuple(edges), True, accumulate_grad=False
        )
    except RuntimeError:
        refuse_constant(values)
        raise
    return found


def refuse_constant(values: Tensor) -> None:
    """Raise `InvalidArgument` for losses, or outputs, to which no trainable parameter leads."""
    if not values.requires_grad:
        raise InvalidArgument(
            "The loss of no example depends on a trainable parameter, so there is nothing to learn from. Look for "
            ".detach(), .item(), argmax or torch.no_grad() in the model and in the loss, and use the model's outputs."
        )


def refuse_inference(error: RuntimeError) -> None:
    """Raise `InvalidArgument` if it is torch.inference_mode by which something failed."""
    if torch.is_inference_mode_enabled() or "nference tensor" in str(error):
        raise InvalidArgument(
            "torch.inference_mode keeps no record of what is done with tensors, so there are no gradients in "
            "it, nor of a model or a lot that was made in it. Make the model, draw lots and call run.backward "
            "outside of it, and use torch.no_grad where you only want outputs."
        ) from error


def refuse_inference_tensors(tree: Any) -> None:
    """Raise `InvalidArgument` for tensors that were made in torch.inference_mode."""
    if torch.is_inference_mode_enabled() or any(tensor.is_inference() for tensor in tensors_in(tree)):
        refuse_inference(RuntimeError("Inference tensors cannot be used."))


def precise(dtype: torch.dtype) -> torch.dtype:
    """The precision in which gradients of such a parameter are kept: half precision would round away other examples."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Norms and sums are never taken in half precision. Leaving autocast takes time, so only if it is on."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
