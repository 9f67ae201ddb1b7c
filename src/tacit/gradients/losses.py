"""One loss value per example, from whatever loss a user has: an averaging one is un-averaged, never mis-scaled."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples

Loss = Callable[[Any, Any], Tensor]


def per_example_losses(loss: Loss, outputs: Any, targets: Any, size: int) -> Tensor:
    """[B]: the loss of each example by itself.

    A loss with a `reduction` (torch's functionals and modules) is asked for none of it. Several values an example are
    averaged, or added up where the reduction is "sum" or "batchmean", as the loss would have done with one example
    alone. A loss that returns one number for the lot is applied to every example alone, and must be their mean or sum.
    """
    reduction: str | None = None
    if isinstance(loss, nn.Module) and "reduction" in vars(loss):
        reduction = vars(loss)["reduction"]
        loss = _without_reduction(loss)
        values = loss(outputs, targets)
    elif (reduction := _reduction(loss)) is not None:
        values = loss(outputs, targets, reduction="none")  # type: ignore[call-arg]
    else:
        values = loss(outputs, targets)
    if not isinstance(values, Tensor):
        raise InvalidArgument(f"loss must return a tensor. Got {type(values).__name__}.")
    if values.dim() == 0:
        return _one_by_one(loss, outputs, targets, values, size)
    if values.shape[0] != size:
        raise InvalidArgument(
            f"loss returned {tuple(values.shape)} for a lot of {size} examples. Return one value per example, "
            "or the mean or sum of such values."
        )
    if values.dim() == 1:
        return values
    return values.flatten(1).sum(1) if reduction in ("sum", "batchmean") else values.flatten(1).mean(1)


def _reduction(loss: Loss) -> str | None:
    """What the loss does with several values unless told otherwise; None if it cannot be told."""
    try:
        return _known_reduction(loss)
    except TypeError:
        # Not every callable can be hashed.
        return _known_reduction.__wrapped__(loss)


@lru_cache(maxsize=64)
def _known_reduction(loss: Loss) -> str | None:
    try:
        parameters = inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return None
    return str(parameters["reduction"].default) if "reduction" in parameters else None


def _without_reduction(loss: nn.Module) -> nn.Module:
    bare = copy.copy(loss)
    vars(bare)["reduction"] = "none"
    return bare


def _one_by_one(loss: Loss, outputs: Any, targets: Any, total: Tensor, size: int) -> Tensor:
    """The loss of every example alone; refused if the lot's loss is neither their mean nor their sum."""

    def alone(output: Any, target: Any) -> Tensor:
        return loss(_unsqueezed(output), _unsqueezed(target))

    values = torch.func.vmap(alone, randomness="different")(outputs, targets) if size else total.new_zeros(0)
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
