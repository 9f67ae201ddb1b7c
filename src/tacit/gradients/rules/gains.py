"""Gains and offsets: of layers that normalise each example by itself, or added to or multiplied with any values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
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


@rule(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, any_argument=True)
def mul(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """y = w * x, with w broadcast over the examples."""
    pair = _find_parameter(call, grads)
    if pair is None:
        return {}
    parameter, x = pair
    values = grads.to(widen(parameter.dtype))
    return {id(parameter): _sum_to(values * front(x.detach()).to(values.dtype), parameter)}


@rule(torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, any_argument=True)
def add(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """y = x + w, with w broadcast over the examples."""
    pair = _find_parameter(call, grads)
    if pair is None or call.kwargs.get("alpha", 1) != 1:
        return {}
    return {id(pair[0]): _sum_to(grads.to(widen(pair[0].dtype)), pair[0])}


def _find_parameter(call: Call, grads: Tensor) -> tuple[Tensor, Tensor] | None:
    """Tell the parameter from the examples' values, which alone have the shape of the result."""
    if len(call.tensors) != 2 or len(call.args) != 2 or grads.shape != call.outputs[0]:
        return None
    fits = [tensor.shape == grads.shape for tensor in call.tensors]
    if fits.count(True) != 1:
        return None
    x, parameter = call.tensors if fits[0] else reversed(call.tensors)
    is_shared = parameter.dim() < grads.dim() or parameter.shape[0] == 1
    return (parameter, x) if is_shared else None


def _sum_to(values: Tensor, parameter: Tensor) -> Contribution:
    """Sum what each example adds, over the axes along which the parameter is broadcast."""
    shape = (1,) * (values.dim() - parameter.dim()) + parameter.shape
    axes = [axis for axis in range(1, values.dim()) if shape[axis] == 1]
    summed = values.sum(axes) if axes else values
    return DenseContribution(summed.reshape(len(values), *parameter.shape))
