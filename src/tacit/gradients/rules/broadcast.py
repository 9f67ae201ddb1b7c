"""Parameters that are added to or multiplied with every example's values: gains, offsets, learned positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tacit.gradients.contributions import Contribution, DenseContribution, widen
from tacit.gradients.rules import Front, rule

if TYPE_CHECKING:
    from tacit.gradients.trace import Call


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
