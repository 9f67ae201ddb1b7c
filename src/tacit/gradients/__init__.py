"""Per-example gradients of any PyTorch model whose examples do not mix: private values, made in one backward pass."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.backends import count_examples, keep_books, loop_over_examples, vectorise_model
from tacit.gradients.checks import Layout, find_layout
from tacit.gradients.contributions import BackendUsed, LotGradients
from tacit.gradients.losses import Loss
from tacit.gradients.models import (
    refuse_inference,
    refuse_inference_tensors,
    refuse_mixing,
    replace_batch_norm,
    trainable,
)
from tacit.gradients.trace import Unclear

__all__ = ["BackendUsed", "LotGradients", "in_pieces", "per_example_gradients", "replace_batch_norm", "trainable"]

Backend = Literal["auto", "bookkeeping", "vmap"]

# The number of values kept until all norms are known; the fewest examples worth a part of their own; and the most whose
# sum single precision can hold.
_KEPT, _FEWEST, _MOST = 2**23, 16, 8192


def in_pieces(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor]
) -> tuple[int | None, Layout | None]:
    """How many examples to take at a time so that a step needs about the memory of an ordinary one; and the layout.

    None for all at once: on devices other than a CPU, which want large lots and whose memory their users know.
    """
    first = next(iter(parameters.values()))
    if not first.is_cpu or not count_examples(inputs):
        return None, None
    try:
        layout = find_layout(model, loss, parameters, inputs, targets)
    except Unclear:
        # Every gradient is formed, and each is as large as the model.
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

    "bookkeeping" takes one forward and one backward pass and a rule per operation; operations without a rule are
    vectorised on their own. "vmap" vectorises the whole model by torch.func. "auto" takes the first that can tell the
    examples apart, and a pass for each example where neither can. Layers under torch.compile run eagerly. `parameters`
    names the trainable ones and `layout` is what `in_pieces` returned, where these are known.
    Raises `MixesExamples` if examples influence each other. An empty lot gives zeros.
    """
    if backend not in ("auto", "bookkeeping", "vmap"):
        raise InvalidArgument(f"backend must be 'auto', 'bookkeeping' or 'vmap'. Got {backend!r}.")
    parameters = parameters or trainable(model)
    refuse_inference_tensors(())
    try:
        return _choose_backend(model, loss, inputs, targets, parameters, backend, layout)
    except RuntimeError as error:
        refuse_inference(error)
        raise


def _choose_backend(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    parameters: dict[str, Tensor],
    backend: Backend,
    layout: Layout | None,
) -> LotGradients:
    if any(parameter._backward_hooks for parameter in parameters.values()):
        return _apply_hooks(model, loss, inputs, targets, parameters, backend)
    try:
        if backend == "vmap":
            refuse_mixing(model)
            found = vectorise_model(model, loss, inputs, targets, parameters)
            found.backend = BackendUsed("vmap", "it was asked for")
            return found
        return keep_books(model, loss, inputs, targets, parameters, layout)
    except Unclear as reason:
        if backend != "auto":
            raise InvalidArgument(f"backend {backend!r} cannot follow this model: {reason}. Use 'auto'.") from reason
        why = str(reason)
    try:
        found = vectorise_model(model, loss, inputs, targets, parameters)
        found.backend = BackendUsed("vmap", why)
        return found
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError, Unclear):
        # torch.func cannot vectorise every operation; single passes need a model that takes one example.
        pass
    try:
        found = loop_over_examples(model, loss, inputs, targets, parameters)
        found.backend = BackendUsed("loop", why)
        return found
    except InvalidArgument:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise MixesExamples(
            f"The examples of a lot cannot be told apart ({why}), and the model does not run on one example alone: "
            f"{error}"
        ) from error


def _apply_hooks(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: dict[str, Tensor], backend: Backend
) -> LotGradients:
    """Hooks on parameters change a gradient after it is computed: each example's own, so one pass for each."""
    if backend != "auto":
        raise InvalidArgument(f"backend {backend!r} cannot follow hooks on parameters. Use 'auto', or remove them.")
    if count_examples(inputs):
        # Only to refuse models that mix examples, or keep something of them.
        with suppress(Unclear):
            find_layout(model, loss, parameters, inputs, targets)
    found = loop_over_examples(model, loss, inputs, targets, parameters)
    found.backend = BackendUsed("loop", "hooks on parameters change their gradients")
    return found
