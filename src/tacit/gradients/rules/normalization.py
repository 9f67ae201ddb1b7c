"""Gain and offset of layers that normalise each example by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Contribution, DenseContribution, widen
from tacit.gradients.rules import Front, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call


@rule(F.layer_norm)
def layer_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise the last dimensions."""
    x, shape = call.argument(0, "input"), call.argument(1, "normalized_shape")
    normal = front(F.layer_norm(x.detach(), shape, None, None, call.argument(4, "eps", 1e-5)))
    parameters = call.argument(2, "weight"), call.argument(3, "bias")
    return _sum_over(parameters, grads, normal, range(1, grads.dim() - len(shape)))


@rule(F.rms_norm)
def rms_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Divide the last dimensions by their root mean square."""
    x, shape = call.argument(0, "input"), call.argument(1, "normalized_shape")
    normal = front(F.rms_norm(x.detach(), shape, None, call.argument(3, "eps")))
    return _sum_over((call.argument(2, "weight"), None), grads, normal, range(1, grads.dim() - len(shape)))


@rule(F.group_norm)
def group_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise groups of channels."""
    x, groups = call.argument(0, "input"), call.argument(1, "num_groups")
    normal = front(F.group_norm(x.detach(), groups, None, None, call.argument(4, "eps", 1e-5)))
    return _sum_over((call.argument(2, "weight"), call.argument(3, "bias")), grads, normal, range(2, grads.dim()))


@rule(F.instance_norm)
def instance_norm(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Normalise every channel by itself."""
    if not call.argument(5, "use_input_stats", True) or call.argument(1, "running_mean") is not None:
        return {}
    normal = front(F.instance_norm(call.argument(0, "input").detach(), eps=call.argument(7, "eps", 1e-5)))
    return _sum_over((call.argument(3, "weight"), call.argument(4, "bias")), grads, normal, range(2, grads.dim()))


def _sum_over(parameters: tuple[Any, Any], grads: Tensor, normal: Tensor, axes: range) -> dict[int, Contribution]:
    """The contributions of gain and offset: output gradients, times the normalised input for the gain, summed."""
    found: dict[int, Contribution] = {}
    for parameter, factor in zip(parameters, (normal, None), strict=True):
        if parameter is not None and parameter.requires_grad:
            values = grads.to(widen(parameter.dtype))
            values = values if factor is None else values * factor.to(values.dtype)
            found[id(parameter)] = DenseContribution(values.sum(tuple(axes)) if axes else values)
    return found
