"""Small perceptrons by hand, in numpy.

Their forward and backward pass is a handful of products of small matrices, and takes less time than torch needs to
record them. Without this file the private step of the benchmark's logistic regression takes 117 % more time, and that
of its perceptron 116 %. The first lots are checked against torch's own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules import module as hooks

from tacit.gradients.contributions import Contribution, DenseContribution, LotGradients, OuterProduct, Tensors
from tacit.gradients.losses import Loss, Reals, differentiate_cross_entropy, differentiate_losses, is_cross_entropy
from tacit.gradients.models import is_hooked
from tacit.gradients.trace import Call, OperationLog

# With more numbers in a tensor than this, arithmetic takes longer than calls.
_FEW = 100_000
# The least normal number of a type: asking numpy takes as long as a small sum.
_TINY = {np.dtype(kind): np.finfo(kind).tiny for kind in (np.float32, np.float64)}
# Rows no longer than this are squared at once and summed by a product with ones.
_SHORT = 128
_ONES = {kind: np.ones(_SHORT, dtype=kind) for kind in _TINY}
# An activation, and the factor of its output's gradient as a function of that output.
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Reals], Reals], Callable[[Reals], Any]]] = {
    nn.ReLU: (lambda x: np.maximum(x, 0), lambda y: y > 0),
    nn.Tanh: (np.tanh, lambda y: 1 - y * y),
    nn.Sigmoid: (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
}
# The weight and the bias of a Linear.
_Affine = tuple[Tensor, Tensor | None]
# By the identity of a parameter: its address, its shape and an array on its memory.
Views = dict[int, tuple[int, torch.Size, Reals]]


# Not frozen, as making a frozen one takes as long as a small sum.
@dataclass(eq=False, slots=True)
class LinearLayer:
    """A Linear of a small perceptron, in numpy: the names of its trained parameters, its inputs [B, d] and the
    gradients of its outputs, a column per example [p, B]."""

    weight: str | None
    bias: str | None
    inputs: Reals
    grads: Reals

    def contributions(self) -> dict[str, Contribution]:
        """The same in torch."""
        grads = torch.from_numpy(self.grads.T)
        found: dict[str, Contribution] = {}
        if self.weight is not None:
            found[self.weight] = OuterProduct(grads, torch.from_numpy(self.inputs))
        if self.bias is not None:
            found[self.bias] = DenseContribution(grads)
        return found

    def squared_norms(self) -> Reals:
        """[B]: each example's squared norm over weight and bias, a little more where squares vanish."""
        tiny, columns = _TINY[self.grads.dtype], self.grads.T
        bias = np.maximum(_square_rows(columns), columns.shape[1] * tiny)
        if self.weight is None:
            return bias if self.bias is not None else np.zeros_like(bias)
        inputs = _square_rows(self.inputs)
        if self.bias is not None:
            inputs += 1
        else:
            np.maximum(inputs, self.inputs.shape[1] * tiny, out=inputs)
        inputs *= bias
        return inputs

    def without(self, rows: NDArray[np.bool_]) -> LinearLayer:
        """Zeros for these examples, even if their values are not finite."""
        inputs = np.where(rows[:, None], 0, self.inputs).astype(self.inputs.dtype)
        return replace(self, inputs=inputs, grads=np.where(rows, 0, self.grads).astype(self.grads.dtype))

    def weighted_sum(self, weights: Reals) -> Tensors:
        """Sum over examples of weight times contribution, by parameter."""
        grads, sums = self.grads * weights, Tensors()
        if self.weight is not None:
            sums[self.weight] = torch.from_numpy(grads @ self.inputs)
        if self.bias is not None:
            sums[self.bias] = torch.from_numpy(np.add.reduce(grads, axis=1))
        return sums


def _square_rows(rows: Reals) -> Reals:
    """The squared norm of each row."""
    width = rows.shape[1]
    squares: Reals = np.vecdot(rows, rows) if width > _SHORT else (rows * rows) @ _ONES[rows.dtype][:width]
    return squares


def find_chain(model: nn.Module) -> list[nn.Module] | None:
    """The layers of a Linear, or of a Sequential of Linears and activations; None for other models and with hooks."""
    if type(model) is nn.Linear:
        chain: list[nn.Module] = [model]
    elif type(model) is nn.Sequential and not is_hooked(model) and "forward" not in model.__dict__:
        chain = list(model._modules.values())
    else:
        return None
    before, after = hooks._global_forward_pre_hooks, hooks._global_forward_hooks
    is_watched = any((before, after, hooks._global_backward_pre_hooks, hooks._global_backward_hooks))
    if is_watched or not all(_is_plain(layer) for layer in chain):
        return None
    return chain


def _is_plain(layer: nn.Module) -> bool:
    kind = type(layer)
    return (kind is nn.Linear or kind in _ACTIVATIONS) and not is_hooked(layer) and "forward" not in layer.__dict__


def is_chain(model: nn.Module, calls: list[Call]) -> bool:
    """Whether these calls are those of the Linears of a chain, each on one row an example."""
    linears = [layer for layer in find_chain(model) or () if type(layer) is nn.Linear]
    if not linears or len(linears) != len(calls):
        return False
    pairs = zip(linears, calls, strict=True)
    return all(call.args[1] is layer.weight and call.args[0].dim() == 2 for layer, call in pairs)


def differentiate_perceptron(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, examined: OperationLog, views: Views
) -> LotGradients | None:
    """The gradients of a chain; None where it is too large or where it takes autograd to find them.

    `views` keeps the parameters as arrays from one lot to the next.
    """
    chain = find_chain(model) if isinstance(inputs, Tensor) else None
    affine = None if chain is None else _list_affine(chain, inputs)
    if chain is None or affine is None:
        return None
    names = {id(parameter): name for name, parameter in parameters.items()}
    back: list[tuple[Reals, Any]] = []
    layers: list[LinearLayer] = []
    x = inputs.numpy()
    with np.errstate(all="ignore"):
        for layer, linear in zip(chain, affine, strict=True):
            given = x
            if linear is None:
                activate, slope = _ACTIVATIONS[type(layer)]
                x = activate(given)
                back.append((x, slope))
            else:
                weight, bias = linear
                matrix = _view(weight, views)
                # A row is an output here: cross-entropy and the sums want this order.
                x = (matrix @ given.T).T
                if bias is not None:
                    x += _view(bias, views)
                back.append((given, matrix))
        # The scores are overwritten, but the slope of an activation is taken from its output.
        found = _differentiate(loss, x if affine[-1] is not None else x.copy(), targets, examined)
        if found is None:
            return None
        losses, grad = found
        count = len(affine) - affine.count(None)
        for linear, (known, pull) in zip(reversed(affine), reversed(back), strict=True):
            if linear is None:
                grad = grad * pull(known)
                continue
            layers.append(LinearLayer(names.get(id(linear[0])), names.get(id(linear[1])), known, grad.T))
            if len(layers) == count:
                break
            grad = grad @ pull
        # Here and not later, as telling numpy not to warn takes as long as a small sum.
        total = layers[0].squared_norms()
        for each in layers[1:]:
            total += each.squared_norms()
        norms = np.sqrt(total, out=total)
    return LotGradients(parameters, {}, losses, tuple(layers), torch.from_numpy(norms), norms)


def _view(parameter: Tensor, views: Views) -> Reals:
    """The parameter as an array on the same memory. Making one takes as long as a small sum, so it is kept."""
    known = views.get(id(parameter))
    is_same = known is not None and known[0] == parameter.data_ptr() and known[1] == parameter.shape
    if known is None or not is_same or not parameter.is_contiguous():
        known = views[id(parameter)] = (parameter.data_ptr(), parameter.shape, parameter.detach().numpy())
    return known[2]


def _differentiate(loss: Loss, scores: Reals, targets: Any, examined: OperationLog) -> tuple[Tensor, Reals] | None:
    """The losses and their gradients with respect to the scores; None where torch has to find them or to refuse.

    The scores may be overwritten.
    """
    size = len(scores)
    if is_cross_entropy(loss, targets, size):
        by_hand = differentiate_cross_entropy(np.ascontiguousarray(scores.T), targets.numpy())
        return None if by_hand is None else (torch.from_numpy(by_hand[0]), by_hand[1])
    # A copy, as a loss may overwrite what it is given.
    outputs = torch.from_numpy(scores).requires_grad_().clone(memory_format=torch.contiguous_format)
    edge = get_gradient_edge(outputs)
    losses, (grad,) = differentiate_losses(loss, outputs, targets, size, [edge], examined, keeps_graph=False)
    return None if grad is None else (losses.detach(), grad.numpy())


def _list_affine(chain: list[nn.Module], inputs: Tensor) -> list[_Affine | None] | None:
    """The parameters of each layer, if all are small, on a CPU, of one precision and used once; otherwise None."""
    dtype, shape = inputs.dtype, inputs.shape
    if (dtype is not torch.float32 and dtype is not torch.float64) or len(shape) != 2 or not inputs.is_cpu:
        return None
    size = shape[0]
    if not 0 < size * shape[1] <= _FEW or inputs.requires_grad:
        return None
    if not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    found: list[_Affine | None] = []
    used: list[int] = []
    for layer in chain:
        if type(layer) is not nn.Linear:
            found.append(None)
            continue
        # Looked up directly: asking the module takes as long as a small sum.
        held = layer._parameters
        weight, bias = held.get("weight"), held.get("bias")
        if weight is None or "bias" not in held or weight.dtype is not dtype or not weight.is_cpu:
            return None
        if weight.shape[0] * size > _FEW or weight._backward_hooks:
            return None
        used.append(id(weight))
        if bias is not None:
            if bias._backward_hooks:
                return None
            used.append(id(bias))
        found.append((weight, bias))
    return found if used and len(set(used)) == len(used) else None
