"""Gain and offset of layers that normalise each example by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Contribution, DenseContribution, widen
from tacit.gradients.rules import Front, argument, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call


@rule(F.layer_norm)
def layer_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise the last dimensions."""
    x, shape = argument(call, 0, "input"), argument(call, 1, "normalized_shape")
    normal = front(F.layer_norm(x.detach(), shape, None, None, argument(call, 4, "eps", 1e-5)))
    parameters = argument(call, 2, "weight"), argument(call, 3, "bias")
    return _sum_over(parameters, grads, normal, range(1, grads.dim() - len(shape)))


@rule(F.rms_norm)
def rms_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Divide the last dimensions by their root mean square."""
    x, shape = argument(call, 0, "input"), argument(call, 1, "normalized_shape")
    normal = front(F.rms_norm(x.detach(), shape, None, argument(call, 3, "eps")))
    return _sum_over((argument(call, 2, "weight"), None), grads, normal, range(1, grads.dim() - len(shape)))


@rule(F.group_norm)
def group_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise groups of channels."""
    x, groups = argument(call, 0, "input"), argument(call, 1, "num_groups")
    normal = front(F.group_norm(x.detach(), groups, None, None, argument(call, 4, "eps", 1e-5)))
    return _sum_over((argument(call, 2, "weight"), argument(call, 3, "bias")), grads, normal, range(2, grads.dim()))


@rule(F.instance_norm)
def instance_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise every channel by itself."""
    if not argument(call, 5, "use_input_stats", True) or argument(call, 1, "running_mean") is not None:
        return {}
    normal = front(F.instance_norm(argument(call, 0, "input").detach(), eps=argument(call, 7, "eps", 1e-5)))
    return _sum_over((argument(call, 3, "weight"), argument(call, 4, "bias")), grads, normal, range(2, grads.dim()))


def _sum_over(parameters: tuple[Any, Any], grads: Tensor, normal: Tensor, axes: range) -> dict[int, Contribution]:
    """The contributions of gain and offset: output gradients, times the normalised input for the gain, summed."""
    found: dict[int, Contribution] = {}
    for parameter, factor in zip(parameters, (normal, None), strict=True):
        if parameter is not None and parameter.requires_grad:
            values = grads.to(widen(parameter.dtype))
            values = values if factor is None else values * factor.to(values.dtype)
            found[id(parameter)] = DenseContribution(values.sum(tuple(axes)) if axes else values)
    return found
