"""Per-example gradients of any PyTorch model whose examples do not mix: private values, made in one backward pass."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from tacit.errors import InvalidArgument
from tacit.gradients.backends import bookkeeping, by_vmap, one_by_one
from tacit.gradients.engine import Unclear
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients
from tacit.gradients.models import refuse_mixing, replace_batch_norm, trainable

__all__ = ["LotGradients", "per_example_gradients", "replace_batch_norm", "trainable"]

Backend = Literal["auto", "bookkeeping", "vmap"]


def per_example_gradients(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    backend: Backend = "auto",
    *,
    parameters: dict[str, Tensor] | None = None,
) -> LotGradients:
    """The gradient of every example's own loss with respect to the trainable parameters.

    "bookkeeping" takes one forward and one backward pass and a rule per operation; operations
    without a rule are vectorised on their own. "vmap" treats the whole model at once and works
    wherever torch.func does. "auto" takes the first that can tell the examples apart, and single
    passes, example by example, where neither can. Layers under torch.compile run as
    they were written. `parameters` names the trainable ones, where these are known.
    `MixesExamples` if examples influence each other. An empty lot gives zeros.
    """
    if backend not in ("auto", "bookkeeping", "vmap"):
        raise InvalidArgument(f"backend must be 'auto', 'bookkeeping' or 'vmap'. Got {backend!r}.")
    parameters = parameters or trainable(model)
    if backend == "vmap":
        refuse_mixing(model)
        return by_vmap(model, loss, inputs, targets, parameters)
    try:
        return bookkeeping(model, loss, inputs, targets, parameters)
    except Unclear as reason:
        if backend == "bookkeeping":
            raise InvalidArgument(f"backend 'bookkeeping' cannot follow this model: {reason}. Use 'auto'.") from reason
    try:
        return by_vmap(model, loss, inputs, targets, parameters)
    except RuntimeError:
        # torch.func cannot vectorise every operation; single passes always can.
        return one_by_one(model, loss, inputs, targets, parameters)
