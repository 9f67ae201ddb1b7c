"""One loss value per example, from whatever loss a user has: an averaging one is un-averaged, never mis-scaled."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.sequence import Followed, Follower
from tacit.gradients.trees import replaced

Loss = Callable[[Any, Any], Tensor]


def per_example_losses(loss: Loss, outputs: Any, targets: Any, size: int, follower: Follower | None = None) -> Tensor:
    """[B]: the loss of each example by itself.

    A loss with a `reduction` (torch's functionals and modules) is asked for none of it. Several values an example are
    averaged, or added up where the reduction is "sum" or "batchmean", as the loss would have done with one example
    alone: those whose target is its `ignore_index` do not count. Weights of classes multiply; no sum over the lot is
    there to divide them by. A loss that returns one number for the lot is applied to every example alone, and must be
    their mean or sum. A `follower` compares what the loss does with what it did when it was examined.
    """
    if follower is None:
        values, loss, reduction = whole_losses(loss, outputs, targets, size)
    else:
        with Followed(follower.see):
            values, loss, reduction = whole_losses(loss, outputs, targets, size)
        follower.finish()
    if values.dim() == 0:
        return _one_by_one(loss, outputs, targets, values, size)
    if values.dim() == 1:
        return values
    sums = values.flatten(1).sum(1)
    return sums if reduction in ("sum", "batchmean") else sums / _counted(loss, values, targets)


def whole_losses(loss: Loss, outputs: Any, targets: Any, size: int) -> tuple[Tensor, Loss, str | None]:
    """What the loss gives for a whole lot without its `reduction`; the loss that gave it; and the reduction."""
    reduction: str | None = None
    if isinstance(loss, nn.Module) and "reduction" in vars(loss):
        reduction = vars(loss)["reduction"]
        loss = _without_reduction(loss)
        values = loss(outputs, targets)
    elif (reduction := _default(loss, "reduction")) is not None:
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


def _counted(loss: Loss, values: Tensor, targets: Any) -> Tensor | int:
    """How many values of each example count: all but those whose target says that it is to be ignored."""
    ignored = vars(loss).get("ignore_index") if isinstance(loss, nn.Module) else _default(loss, "ignore_index")
    if not isinstance(ignored, int) or not isinstance(targets, Tensor) or targets.shape != values.shape:
        return values[0].numel() if len(values) else 1
    return (targets != ignored).flatten(1).sum(1).clamp_min(1)


def _default(loss: Loss, option: str) -> Any:
    """What an option of the loss is unless told otherwise; None if it has none, or it cannot be told."""
    try:
        return _known_default(loss, option)
    except TypeError:
        # Not every callable can be hashed.
        return _known_default.__wrapped__(loss, option)


@lru_cache(maxsize=64)
def _known_default(loss: Loss, option: str) -> Any:
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return None
    return parameters[option].default if option in parameters else None


def _without_reduction(loss: nn.Module) -> nn.Module:
    bare = copy.copy(loss)
    vars(bare)["reduction"] = "none"
    return bare


def _one_by_one(loss: Loss, outputs: Any, targets: Any, total: Tensor, size: int) -> Tensor:
    """The loss of every example alone; refused if the lot's loss is neither their mean nor their sum."""

    def alone(output: Any, target: Any) -> Tensor:
        return loss(_unsqueezed(output), _unsqueezed(target))

    try:
        values = torch.func.vmap(alone, randomness="different")(outputs, targets) if size else total.new_zeros(0)
    except RuntimeError:
        # Some of torch's losses look at the numbers, which cannot be vectorised.
        each = [(replaced(outputs, pick), replaced(targets, pick)) for pick in map(itemgetter, range(size))]
        values = torch.stack([alone(*example) for example in each])
    if size > 1:
        found = total.detach()
        candidates = torch.stack([values.detach().mean(), values.detach().sum()])
        if bool(found.isfinite()) and not bool(torch.isclose(candidates, found, rtol=1e-3, atol=1e-6).any()):
            raise MixesExamples(
                "The loss of the lot is neither the mean nor the sum of the losses of its examples taken alone, so one "
                "example's loss depends on others and has no gradient of its own. Write the loss per example."
            )
    return values


def _unsqueezed(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.unsqueeze(0)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_unsqueezed(item) for item in tree)
    if isinstance(tree, dict):
        return {key: _unsqueezed(item) for key, item in tree.items()}
    return tree
