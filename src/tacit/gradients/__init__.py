"""Per-example gradients of any PyTorch model whose examples do not mix: private values, made in one backward pass."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.backends import bookkeeping, by_vmap, lot_size_of, one_by_one
from tacit.gradients.engine import Unclear, refuse_inference
from tacit.gradients.layout import Layout, layout_of
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients
from tacit.gradients.models import refuse_mixing, replace_batch_norm, trainable

__all__ = ["LotGradients", "in_pieces", "per_example_gradients", "replace_batch_norm", "trainable"]

Backend = Literal["auto", "bookkeeping", "vmap"]

# So many numbers of a lot may be kept until all norms are known. Fewer examples than this at a time waste time, and
# more would be added up in single precision.
_KEPT, _FEWEST, _MOST = 2**23, 16, 8192


def in_pieces(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor]
) -> tuple[int | None, Layout | None]:
    """How many examples to take at a time so that a step needs about as much memory as an ordinary one; and what was
    found out about the model on the way.

    None for all of them: on other devices than a CPU, which want large lots and have a memory that their users know.
    """
    first = next(iter(parameters.values()))
    if not first.is_cpu or not lot_size_of(inputs):
        return None, None
    try:
        layout = layout_of(model, loss, parameters, inputs, targets)
    except Unclear:
        # Examples one by one: each is as large as the model.
        return max(1, _KEPT // sum(parameter.numel() for parameter in parameters.values())), None
    except RuntimeError as error:
        refuse_inference(error)
        raise
    return min(max(_FEWEST, _KEPT // max(layout.weight, 1)), _MOST), layout


def per_example_gradients(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    backend: Backend = "auto",
    *,
    parameters: dict[str, Tensor] | None = None,
    layout: Layout | None = None,
) -> LotGradients:
    """The gradient of every example's own loss with respect to the trainable parameters.

    "bookkeeping" takes one forward and one backward pass and a rule per operation; operations
    without a rule are vectorised on their own. "vmap" treats the whole model at once and works
    wherever torch.func does. "auto" takes the first that can tell the examples apart, and single
    passes, example by example, where neither can. Layers under torch.compile run as
    they were written. `parameters` names the trainable ones, and `layout` is what `in_pieces` has found out about the
    whole lot, where these are known.
    `MixesExamples` if examples influence each other. An empty lot gives zeros.
    """
    if backend not in ("auto", "bookkeeping", "vmap"):
        raise InvalidArgument(f"backend must be 'auto', 'bookkeeping' or 'vmap'. Got {backend!r}.")
    parameters = parameters or trainable(model)
    try:
        return _by_backend(model, loss, inputs, targets, parameters, backend, layout)
    except RuntimeError as error:
        refuse_inference(error)
        raise


def _by_backend(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    parameters: dict[str, Tensor],
    backend: Backend,
    layout: Layout | None,
) -> LotGradients:
    if any(parameter._backward_hooks for parameter in parameters.values()):
        return _hooked(model, loss, inputs, targets, parameters, backend)
    try:
        if backend == "vmap":
            refuse_mixing(model)
            return by_vmap(model, loss, inputs, targets, parameters)
        return bookkeeping(model, loss, inputs, targets, parameters, layout)
    except Unclear as reason:
        if backend != "auto":
            raise InvalidArgument(f"backend {backend!r} cannot follow this model: {reason}. Use 'auto'.") from reason
        why = str(reason)
    try:
        return by_vmap(model, loss, inputs, targets, parameters)
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError, Unclear):
        # torch.func cannot vectorise every operation; single passes can, if the model takes one example.
        return _alone(model, loss, inputs, targets, parameters, why)


def _alone(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor], why: str
) -> LotGradients:
    """Examples one by one; where one alone is too few for the model, the reason why they cannot be taken together."""
    try:
        return one_by_one(model, loss, inputs, targets, parameters)
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise MixesExamples(
            f"The examples of a lot cannot be told apart ({why}), and the model does not run on one example alone: "
            f"{error}"
        ) from error


def _hooked(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor], backend: Backend
) -> LotGradients:
    """Parameters with hooks, which change a gradient once it is there: each example's own, so one pass for each."""
    if backend != "auto":
        raise InvalidArgument(f"backend {backend!r} cannot follow hooks on parameters. Use 'auto', or remove them.")
    if lot_size_of(inputs):
        # Only to refuse models that mix examples, or keep something of them.
        with suppress(Unclear):
            layout_of(model, loss, parameters, inputs, targets)
    return one_by_one(model, loss, inputs, targets, parameters)
