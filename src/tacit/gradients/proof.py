"""Gradients checked on a whole lot, the first time that a layout is used.

Per-example gradients are right if, with any weights, they add up to the gradient of the losses with these weights.
Torch computes the latter by itself, for whatever the model and its loss are made of. So one more backward pass, with
weights drawn at random, finds what was overlooked: parameters used out of sight, examples that were put in another
order or that meet in the backward pass, random numbers drawn again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tacit.errors import MixesExamples
from tacit.gradients.engine import Unclear, refuse_constant
from tacit.gradients.losses import Loss, per_example_losses
from tacit.gradients.lot import LotGradients
from tacit.gradients.recording import replaced, tensors_in

# Times the median norm.
_FARTHEST = 100.0
_HALF = (torch.float16, torch.bfloat16)


def refuse_unless_proven(loss: Loss, outputs: Any, targets: Any, values: Tensor, gradients: LotGradients) -> None:
    """Raise `MixesExamples` for a loss that looks at the lot, and `Unclear` for gradients that do not add up.

    The graph of the losses, `values`, is still needed. A lot with numbers that are not finite proves nothing.
    """
    if bool(gradients.norms().isfinite().all()):
        _refuse_lot_losses(loss, outputs, targets, values)
        _refuse_unless_sums(values, gradients)


def _refuse_unless_sums(values: Tensor, gradients: LotGradients) -> None:
    refuse_constant(values)
    weights = _weights(gradients.norms())
    wanted: tuple[Tensor | None, ...] = torch.autograd.grad(
        values, list(gradients.parameters.values()), weights.to(values), allow_unused=True
    )
    found = gradients.weighted_sum(weights)
    lengths = {name: _length(norms * weights) for name, norms in gradients.layer_norms().items()}
    whole = math.hypot(*lengths.values())
    is_rough = values.dtype in _HALF or torch.is_autocast_enabled(values.device.type)
    relative, absolute = (0.1, 0.01) if is_rough else (1e-3, 1e-5)
    for name, expected in zip(gradients.parameters, wanted, strict=True):
        difference = found[name] if expected is None else found[name] - expected
        if not _length(difference) <= relative * lengths[name] + absolute * whole:
            raise Unclear(f"what was seen of the use of {name!r} does not add up to its gradient")


def _weights(norms: Tensor) -> Tensor:
    """Random weights, and none for those examples beside whose rounding errors all others would vanish."""
    generator = torch.Generator().manual_seed(0)
    # Not only signs: what divides by a norm over the lot would not mind them.
    sizes, signs = torch.rand(2, len(norms), generator=generator)
    weights = torch.where(signs < 0.5, -0.5 - 1.5 * sizes, 0.5 + 1.5 * sizes).to(norms)
    return torch.where(norms <= _FARTHEST * norms.median(), weights, 0.0)


def _length(values: Tensor) -> float:
    return float(values.detach().double().norm())


def _refuse_lot_losses(loss: Loss, outputs: Any, targets: Any, values: Tensor) -> None:
    """With half of the lot gone, the losses of the others must stay what they were."""
    size = len(values)
    if size < 2 or not all(tensor.dim() and tensor.shape[0] == size for tensor in tensors_in((outputs, targets))):
        return
    some, wanted = (replaced(tree, lambda tensor: tensor[: size // 2]) for tree in (outputs, targets))
    with torch.no_grad():
        # A loss with random numbers in it cannot be compared.
        if not _is_close(per_example_losses(loss, outputs, targets, size), values):
            return
        if _is_close(per_example_losses(loss, some, wanted, size // 2), values[: size // 2]):
            return
    raise MixesExamples(
        "The loss of an example changes when others leave the lot, so it depends on which they are, or how many, and "
        "has no gradient of its own. Divide by no number of examples and by no sum over them: the sum of all gradients "
        "is divided by the public lot size later."
    )


def _is_close(one: Tensor, other: Tensor) -> bool:
    error = 2e-2 if one.dtype in _HALF else 1e-3
    return torch.allclose(one.detach(), other.detach(), rtol=error, atol=1e-6, equal_nan=True)
