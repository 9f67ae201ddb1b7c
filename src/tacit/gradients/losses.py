"""One loss per example, for losses with any reduction, and its gradients at the outputs of recorded operations."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.models import is_hooked, refuse_constant
from tacit.gradients.trace import LogComparison, OperationLog, OperationWatcher, map_tensors

Loss = Callable[[Any, Any], Tensor]
Reals = NDArray[np.floating]

# With more scores than this, arithmetic takes longer than calls.
_FEW = 100_000


def per_example_losses(
    loss: Loss, outputs: Any, targets: Any, size: int, comparison: LogComparison | None = None
) -> Tensor:
    """[B]: the loss of each example by itself.

    A loss with a `reduction` (torch's functionals and modules) is called without it. Several values an example are
    averaged, or added up where the reduction is "sum" or "batchmean", as the loss would do with one example alone;
    values whose target is its `ignore_index` do not count. Class weights multiply, without the division by their sum
    over the lot. A loss that returns one number for the lot is applied to every example alone; the number must be their
    mean or sum. A `comparison` refuses a loss that does something else than when it was examined.
    """
    if comparison is None:
        values, loss, reduction = apply_loss(loss, outputs, targets, size)
    else:
        with OperationWatcher(comparison.see):
            values, loss, reduction = apply_loss(loss, outputs, targets, size)
        comparison.finish()
    if values.dim() == 0:
        return _apply_to_each(loss, outputs, targets, values, size)
    if values.dim() == 1:
        return values
    sums = values.flatten(1).sum(1)
    return sums if reduction in ("sum", "batchmean") else sums / _count_values(loss, values, targets)


def apply_loss(loss: Loss, outputs: Any, targets: Any, size: int) -> tuple[Tensor, Loss, str | None]:
    """Apply a loss to a whole lot without its reduction: its values, the loss that was called, and the reduction."""
    reduction: str | None = None
    if isinstance(loss, nn.Module) and "reduction" in vars(loss):
        reduction = vars(loss)["reduction"]
        loss = copy.copy(loss)
        vars(loss)["reduction"] = "none"
        values = loss(outputs, targets)
    elif (reduction := _find_default(loss, "reduction")) is not None:
        values = loss(outputs, targets, reduction="none")  # type: ignore[call-arg]
    else:
        values = loss(outputs, targets)
    if not isinstance(values, Tensor):
        raise InvalidArgument(f"loss must return a tensor. Got {type(values).__name__}.")
    if values.dim() and values.shape[0] != size:
        raise InvalidArgument(
            f"loss returned {tuple(values.shape)} for a lot of {size} examples. Return one value per example, "
            "or the mean or sum of such values."
        )
    return values, loss, reduction


def _count_values(loss: Loss, values: Tensor, targets: Any) -> Tensor | int:
    """The number of values of each example whose target is not to be ignored."""
    ignored = vars(loss).get("ignore_index") if isinstance(loss, nn.Module) else _find_default(loss, "ignore_index")
    if not isinstance(ignored, int) or not isinstance(targets, Tensor) or targets.shape != values.shape:
        return values[0].numel() if len(values) else 1
    return (targets != ignored).flatten(1).sum(1).clamp_min(1)


def _find_default(loss: Loss, option: str) -> Any:
    """The default of an option of the loss; None if it has no such option."""
    try:
        return _find_hashable_default(loss, option)
    except TypeError:
        # Not every callable can be hashed.
        return _find_hashable_default.__wrapped__(loss, option)


@lru_cache(maxsize=64)
def _find_hashable_default(loss: Loss, option: str) -> Any:
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return None
    return parameters[option].default if option in parameters else None


def _apply_to_each(loss: Loss, outputs: Any, targets: Any, total: Tensor, size: int) -> Tensor:
    """The loss of every example alone; refused if the lot's loss is neither their mean nor their sum."""

    def apply_alone(output: Any, target: Any) -> Tensor:
        return loss(_unsqueeze(output), _unsqueeze(target))

    try:
        values = torch.func.vmap(apply_alone, randomness="different")(outputs, targets) if size else total.new_zeros(0)
    except RuntimeError:
        # Some of torch's losses look at the numbers, which cannot be vectorised.
        each = [(map_tensors(outputs, pick), map_tensors(targets, pick)) for pick in map(itemgetter, range(size))]
        values = torch.stack([apply_alone(*example) for example in each])
    if size > 1:
        found = total.detach()
        candidates = torch.stack([values.detach().mean(), values.detach().sum()])
        if bool(found.isfinite()) and not bool(torch.isclose(candidates, found, rtol=1e-3, atol=1e-6).any()):
            raise MixesExamples(
                "The loss of the lot is neither the mean nor the sum of the losses of its single examples. So one "
                "example's loss depends on others and has no gradient of its own. Write the loss per example."
            )
    return values


def _unsqueeze(tree: Any) -> Any:
    return map_tensors(tree, lambda tensor: tensor.unsqueeze(0))


def differentiate_losses(
    loss: Loss,
    outputs: Any,
    targets: Any,
    size: int,
    edges: list[GradientEdge],
    examined: OperationLog,
    *,
    keeps_graph: bool,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The loss of each example, and the gradients of their sum at the edges.

    The loss must do what it did when it was `examined`. With `keeps_graph` the losses can be differentiated again.
    """
    by_hand = _differentiate_scores(loss, outputs, targets, size)
    if keeps_graph or by_hand is None:
        values = per_example_losses(loss, outputs, targets, size, LogComparison(examined, size))
    else:
        values = by_hand[0]
    if not edges:
        return values, ()
    start, grads = (values, torch.ones_like(values)) if by_hand is None else (outputs, by_hand[1])
    try:
        # torch.autograd.grad ends in this call; what it does before takes longer than the pass of a small model.
        found: tuple[Tensor | None, ...] = Variable._execution_engine.run_backward(
            (start,), (grads,), keeps_graph, False, tuple(edges), True, accumulate_grad=False
        )
    except RuntimeError:
        refuse_constant(start)
        raise
    return values, found


def _differentiate_scores(loss: Loss, outputs: Any, targets: Any, size: int) -> tuple[Tensor, Tensor] | None:
    """Losses and their gradients at the outputs by numpy, for a plain cross-entropy of few scores; otherwise None.

    With autograd instead, the private step of the benchmark's MovieLens takes 7 % more time.
    """
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or not 0 < outputs.numel() <= _FEW:
        return None
    if not outputs.is_cpu or outputs.dtype not in (torch.float32, torch.float64) or outputs.shape[0] != size:
        return None
    if not is_cross_entropy(loss, targets, size) or torch.is_autocast_enabled("cpu"):
        return None
    with np.errstate(all="ignore"):
        found = differentiate_cross_entropy(np.array(outputs.detach().numpy().T, order="C"), targets.numpy())
    return None if found is None else (torch.from_numpy(found[0]), torch.from_numpy(np.ascontiguousarray(found[1])))


def is_cross_entropy(loss: Loss, targets: Any, size: int) -> bool:
    """Whether the loss is torch's cross-entropy without options, and the targets are classes."""
    if (
        not isinstance(targets, Tensor)
        or targets.dtype != torch.int64
        or targets.shape != (size,)
        or not targets.is_cpu
    ):
        return False
    if loss is F.cross_entropy:
        return True
    if type(loss) is not nn.CrossEntropyLoss or is_hooked(loss) or "forward" in loss.__dict__:
        return False
    return loss.weight is None and loss.label_smoothing == 0 and loss.ignore_index < 0


def differentiate_cross_entropy(rows: Reals, classes: NDArray[np.int64]) -> tuple[Reals, Reals] | None:
    """The losses and their gradients with respect to the scores; None if a class is out of range.

    There are few classes and many examples, so a row of the scores is a class here. They are overwritten.
    """
    count, size = rows.shape
    # Negative numbers are huge without their sign.
    if np.maximum.reduce(classes.view(np.uint64)) >= count:
        return None
    rows -= np.maximum.reduce(rows, axis=0)
    flat, places = rows.reshape(-1), classes * size
    places += _count_to(size)
    wanted = flat.take(places)
    np.exp(rows, out=rows)
    totals = np.add.reduce(rows, axis=0)
    rows /= totals
    flat[places] -= 1
    return np.log(totals) - wanted, rows.T


@lru_cache(maxsize=8)
def _count_to(size: int) -> NDArray[np.int64]:
    return np.arange(size)
