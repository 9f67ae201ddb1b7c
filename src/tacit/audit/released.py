"""What a training function gave away: as one vector of numbers, or as something that can be asked about examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.errors import InvalidArgument

_HUGE = 1e30


def released_numbers(released: Any) -> NDArray[np.float64]:
    """Everything that was released as one vector, and after it the log of its root mean square.

    What is not finite is huge: that a training broke down is told to whoever looks, too.
    """
    flat = np.concatenate([np.zeros(0), *(np.ravel(part) for part in _arrays(released))]).astype(np.float64)
    if flat.size == 0:
        raise InvalidArgument(
            f"train returned {type(released).__name__}, in which no numbers were found. Give features=."
        )
    flat = np.nan_to_num(flat, nan=_HUGE, posinf=_HUGE, neginf=-_HUGE)
    return np.append(flat, 0.5 * math.log(float(np.mean(flat**2)) + 1e-300))


def _arrays(released: Any) -> list[NDArray[Any]]:
    if isinstance(released, nn.Module):
        # Its buffers too: running statistics are as much of a release as weights, and have no noise.
        return _arrays(released.state_dict())
    if isinstance(released, Tensor):
        # Numpy knows no bfloat16.
        values = released.detach().cpu()
        return [(values.double() if values.is_floating_point() else values).numpy()]
    if isinstance(released, Mapping):
        return [part for value in released.values() for part in _arrays(value)]
    if isinstance(released, (list, tuple)):
        return [part for value in released for part in _arrays(value)]
    if isinstance(released, (np.ndarray, float, int, np.generic)):
        return [np.asarray(released)]
    fitted = [getattr(released, name) for name in ("coef_", "intercept_") if hasattr(released, name)]
    return [np.asarray(one) for one in fitted]


def minus_loss(released: Any, inputs: Any, targets: Any) -> NDArray[np.float64]:
    """Minus the loss of a torch module or of a scikit-learn estimator on each example."""
    if isinstance(released, nn.Module):
        return _minus_module_loss(released, inputs, targets)
    if hasattr(released, "predict_proba"):
        places = np.searchsorted(released.classes_, targets).clip(max=len(released.classes_) - 1)
        share = released.predict_proba(inputs)[np.arange(len(targets)), places]
        # A class that no example had is one that the model gives no probability.
        known = np.asarray(released.classes_)[places] == np.asarray(targets)
        return np.asarray(np.log(np.maximum(np.where(known, share, 0.0), 1e-300)))
    if hasattr(released, "predict"):
        missed: NDArray[np.float64] = np.asarray(released.predict(inputs), dtype=np.float64) - targets
        return -np.square(missed)
    raise InvalidArgument(
        f"How to score canaries by {type(released).__name__}? Give score=, a function of what train returned, inputs "
        "and targets."
    )


def _minus_module_loss(model: nn.Module, inputs: Any, targets: Any) -> NDArray[np.float64]:
    first = next(model.parameters())
    rows = torch.as_tensor(inputs)
    rows = (rows.to(first.dtype) if rows.is_floating_point() else rows).to(first.device)
    wanted = torch.as_tensor(targets).to(first.device)
    model.eval()
    with torch.no_grad():
        outputs = model(rows)
        if outputs.dim() == 2 and outputs.shape[1] > 1 and not wanted.is_floating_point():
            losses = F.cross_entropy(outputs, wanted, reduction="none")
        else:
            losses = (outputs.reshape(len(rows), -1) - wanted.reshape(len(rows), -1)).square().mean(1)
    found: NDArray[np.float64] = -losses.double().cpu().numpy()
    return found
