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
from tacit.gradients.small import FEW, Layer, layer_norms

Reals = NDArray[np.floating]

# Each layer's output, and by what its output's gradient is multiplied, as a function of that output.
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Reals], Reals], Callable[[Reals], Any]]] = {
    nn.ReLU: (lambda x: np.maximum(x, 0), lambda y: y > 0),
    nn.Tanh: (np.tanh, lambda y: 1 - y * y),
}


# The weight and the bias of a Linear; None stands for a layer without parameters.
_Affine = tuple[Tensor, Tensor | None]


def perceptron_gradients(
    chain: list[nn.Module], loss: Loss, inputs: Tensor, targets: Any, parameters: Tensors
) -> LotGradients | None:
    """The gradients of such a model; None where it takes autograd to find them."""
    affine = _affine(chain, inputs) if is_cross_entropy(loss, targets, inputs.shape[0]) else None
    if affine is None:
        return None
    names = {id(parameter): name for name, parameter in parameters.items()}
    back: list[tuple[Reals, Any]] = []
    layers: list[Layer] = []
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
                matrix = weight.detach().numpy()
                # A row is an output here, in which order cross-entropy and the sums want them.
                x = (matrix @ given.T).T
                if bias is not None:
                    x += bias.detach().numpy()
                back.append((given, matrix))
        found = cross_entropy(x, targets.numpy())
        if found is None:
            return None
        losses, grad = found
        count = sum(linear is not None for linear in affine)
        for linear, (known, pull) in zip(reversed(affine), reversed(back), strict=True):
            if linear is None:
                grad = grad * pull(known)
                continue
            layers.append(Layer(names.get(id(linear[0])), names.get(id(linear[1])), known, grad.T))
            if len(layers) == count:
                break
            grad = grad @ pull
        # In the same breath, as asking numpy not to warn takes as long as a small sum.
        norms = layer_norms(tuple(layers))
    return LotGradients(parameters, {}, torch.from_numpy(losses), layers=tuple(layers), _norms=norms)


def _affine(chain: list[nn.Module], inputs: Tensor) -> list[_Affine | None] | None:
    """The parameters of each layer, if all is small, on a CPU, of one precision and used once; otherwise None."""
    dtype, size = inputs.dtype, inputs.shape[0]
    if dtype not in (torch.float32, torch.float64) or inputs.dim() != 2 or not inputs.is_cpu or inputs.requires_grad:
        return None
    if not 0 < inputs.numel() <= FEW or torch.is_autocast_enabled("cpu"):
        return None
    found: list[_Affine | None] = []
    known, uses = set[int](), 0
    for layer in chain:
        if type(layer) is nn.Linear:
            # Looked up by itself: asking the module takes as long as a small sum.
            held = layer._parameters
            weight, bias = held.get("weight"), held.get("bias")
            if (
                weight is None
                or "bias" not in held
                or weight.dtype != dtype
                or not weight.is_cpu
                or weight.shape[0] * size > FEW
            ):
                return None
            found.append((weight, bias))
            known.add(id(weight))
            uses += 1
            if bias is not None:
                known.add(id(bias))
                uses += 1
        elif type(layer) not in _ACTIVATIONS or is_hooked(layer) or "forward" in layer.__dict__:
            return None
        else:
            found.append(None)
    return found if uses and len(known) == uses else None
