"""Gradients checked on a whole lot, the first time that a layout is used.

Per-example gradients are right if, with any weights, they add up to the gradient of the losses with these weights.
Torch computes the latter by itself, for whatever the model and its loss are made of. So one more backward pass, with
weights drawn at random, finds what was overlooked: parameters used out of sight, examples that were put in another
order or that meet in the backward pass, random numbers drawn again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.gradients.engine import Unclear, refuse_constant
from tacit.gradients.lot import LotGradients

# Times the median norm.
_FARTHEST = 100.0
_HALF = (torch.float16, torch.bfloat16)


def refuse_unless_proven(values: Tensor, gradients: LotGradients) -> None:
    """Raise `Unclear` for gradients that do not add up.

    The graph of the losses, `values`, is still needed. A lot with numbers that are not finite proves nothing.
    """
    if not bool(gradients.norms().isfinite().all()):
        return
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
