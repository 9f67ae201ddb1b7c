"""Small perceptrons under cross-entropy, by hand and in numpy.

Their forward and backward pass is a handful of products of small matrices, and takes less time than torch needs to
note what it would have to do. As everywhere, the first lots are checked against torch's own gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.gradients.entropy import cross_entropy, is_cross_entropy
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients, Tensors
from tacit.gradients.models import is_hooked
from tacit.gradients.small import FEW, Layer

Reals = NDArray[np.floating]

# Each layer's output, and by what its output's gradient is multiplied, as a function of that output.
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Reals], Reals], Callable[[Reals], Any]]] = {
    nn.ReLU: (lambda x: np.maximum(x, 0), lambda y: y > 0),
    nn.Tanh: (np.tanh, lambda y: 1 - y * y),
}


def perceptron_gradients(
    chain: list[nn.Module], loss: Loss, inputs: Tensor, targets: Any, parameters: Tensors
) -> LotGradients | None:
    """The gradients of such a model; None where it takes autograd to find them."""
    if not (_is_simple(chain, inputs) and is_cross_entropy(loss, targets, inputs.shape[0])):
        return None
    linears = {layer: layer.weight.detach().numpy() for layer in chain if type(layer) is nn.Linear}
    names = {id(parameter): name for name, parameter in parameters.items()}
    layers: list[Layer] = []
    with np.errstate(all="ignore"):
        outputs = _outputs(chain, linears, inputs.numpy())
        found = cross_entropy(outputs[-1], targets.numpy())
        if found is None:
            return None
        losses, grad = found
        for layer, given, output in zip(reversed(chain), outputs[-2::-1], reversed(outputs), strict=True):
            if type(layer) is not nn.Linear:
                grad = grad * _ACTIVATIONS[type(layer)][1](output)
                continue
            layers.append(Layer(names.get(id(layer.weight)), names.get(id(layer.bias)), given, grad.T))
            if len(layers) == len(linears):
                break
            grad = grad @ linears[layer]
    return LotGradients(parameters, {}, torch.from_numpy(losses), layers=tuple(layers))


def _outputs(chain: list[nn.Module], linears: dict[nn.Linear, Reals], x: Reals) -> list[Reals]:
    """What goes into the first layer and comes out of each."""
    outputs = [x]
    for layer in chain:
        if type(layer) is nn.Linear:
            x = x @ linears[layer].T
            if layer.bias is not None:
                x += layer.bias.detach().numpy()
        else:
            x = _ACTIVATIONS[type(layer)][0](x)
        outputs.append(x)
    return outputs


def _is_simple(chain: list[nn.Module], inputs: Tensor) -> bool:
    """Whether all is small, on a CPU, of one precision and used once."""
    dtype = inputs.dtype
    if dtype not in (torch.float32, torch.float64) or inputs.dim() != 2 or not inputs.is_cpu or inputs.requires_grad:
        return False
    if not 0 < inputs.numel() <= FEW or torch.is_autocast_enabled("cpu"):
        return False
    known: set[int] = set()
    for layer in chain:
        if type(layer) is nn.Linear:
            weight, bias = layer.weight, layer.bias
            if id(weight) in known or id(bias) in known:
                return False
            known.add(id(weight))
            if bias is not None:
                known.add(id(bias))
            if weight.dtype != dtype or not weight.is_cpu or weight.shape[0] * inputs.shape[0] > FEW:
                return False
        elif type(layer) not in _ACTIVATIONS or is_hooked(layer) or "forward" in layer.__dict__:
            return False
    return True
