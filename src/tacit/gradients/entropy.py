"""From losses back to the outputs of what was watched. Cross-entropy of few scores is done by hand: autograd would take
several times as long."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from tacit.gradients.engine import pulled_back
from tacit.gradients.losses import Loss, per_example_losses
from tacit.gradients.models import is_hooked
from tacit.gradients.sequence import Follower, Sequence

Reals = NDArray[np.floating]

# Above this many scores arithmetic outweighs calls.
_FEW = 100_000


def losses_and_gradients(
    loss: Loss,
    outputs: Any,
    targets: Any,
    size: int,
    edges: list[GradientEdge],
    examined: Sequence,
    *,
    is_proof: bool,
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The loss of each example, and the gradients of their sum at the edges. A proof needs the losses' graph too.

    The loss must do what it did when it was `examined`.
    """
    by_hand = _entropy_and_gradient(loss, outputs, targets, size)
    if is_proof or by_hand is None:
        follower = Follower(examined, size)
        values = per_example_losses(loss, outputs, targets, size, follower)
    else:
        values = by_hand[0]
    if not edges:
        return values, ()
    if by_hand is None:
        return values, pulled_back(values, edges, keep_graph=is_proof)
    return values, pulled_back(outputs, edges, by_hand[1], keep_graph=is_proof)


def _entropy_and_gradient(loss: Loss, outputs: Any, targets: Any, size: int) -> tuple[Tensor, Tensor] | None:
    """The losses of a lot, and their gradients with respect to the outputs. None for what is not a plain cross-entropy
    of few scores in single or double precision."""
    if not isinstance(outputs, Tensor) or outputs.dim() != 2 or not 0 < outputs.numel() <= _FEW:
        return None
    if not outputs.is_cpu or outputs.dtype not in (torch.float32, torch.float64) or outputs.shape[0] != size:
        return None
    if not is_cross_entropy(loss, targets, size) or torch.is_autocast_enabled("cpu"):
        return None
    with np.errstate(all="ignore"):
        found = cross_entropy(outputs.detach().numpy(), targets.numpy())
    return None if found is None else (torch.from_numpy(found[0]), torch.from_numpy(np.ascontiguousarray(found[1])))


def is_cross_entropy(loss: Loss, targets: Any, size: int) -> bool:
    """Whether the loss is torch's cross-entropy with nothing added to it, and the targets are classes."""
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


def cross_entropy(scores: Reals, classes: NDArray[np.int64]) -> tuple[Reals, Reals] | None:
    """The losses, and their gradients with respect to the scores; None for classes that there are not."""
    size, count = scores.shape
    # Without a sign, what is below zero is huge.
    if np.maximum.reduce(classes.view(np.uint64)) >= count:
        return None
    # Classes are few and examples many, so a row is a class here.
    rows = np.array(scores.T, order="C")
    rows -= np.maximum.reduce(rows, axis=0)
    flat, places = rows.reshape(-1), classes * size
    places += _counted(size)
    wanted = flat[places]
    np.exp(rows, out=rows)
    totals = np.add.reduce(rows, axis=0)
    rows /= totals
    flat[places] -= 1
    return np.log(totals) - wanted, rows.T


@lru_cache(maxsize=8)
def _counted(size: int) -> NDArray[np.int64]:
    return np.arange(size)
