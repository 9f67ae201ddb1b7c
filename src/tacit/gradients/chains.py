"""Chains of plain layers, which need no watching: what they do with their parameters is known.

Small models are bound by calls, and watching every operation would take as long as computing it.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules import module as hooks

from tacit.gradients.engine import Unclear, precise
from tacit.gradients.entropy import losses_and_gradients
from tacit.gradients.losses import Loss
from tacit.gradients.lot import LotGradients, Tensors
from tacit.gradients.models import is_hooked
from tacit.gradients.perceptrons import perceptron_gradients
from tacit.gradients.pieces import DensePiece, OuterPiece, Piece
from tacit.gradients.proof import refuse_unless_proven
from tacit.gradients.sequence import Sequence


def chain_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of a model that is one Linear, or a Sequential of Linears and of layers without parameters.

    None for every other model, and where hooks might do something else.
    """
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
    if type(layer) is nn.Linear:
        return not is_hooked(layer) and "forward" not in layer.__dict__
    # Torch's own layers without parameters act on each entry alone, or on the axes that they name: examined once.
    return type(layer).__module__.startswith("torch.nn.modules") and not layer._modules and not layer._parameters


def chain_gradients(
    chain: list[nn.Module],
    loss: Loss,
    inputs: Tensor,
    targets: Any,
    parameters: Tensors,
    examined: Sequence,
    *,
    is_proof: bool = False,
) -> LotGradients:
    """One forward pass, one backward pass to the outputs of the Linears, and an outer product an example for each."""
    by_hand = perceptron_gradients(chain, loss, inputs, targets, parameters)
    if by_hand is not None and not is_proof:
        return by_hand
    seen: list[tuple[Tensor, int]] = []
    edges: list[GradientEdge] = []
    x = inputs
    for layer in chain:
        if type(layer) is nn.Linear:
            seen.append((x, x._version))
            x = F.linear(x, layer.weight, layer.bias)
            edges.append(get_gradient_edge(x))
        else:
            x = layer(x)
    size = inputs.shape[0]
    values, grads = losses_and_gradients(loss, x, targets, size, edges, examined, is_proof=is_proof)
    if any(given._version != version for given, version in seen):
        raise Unclear("an input was overwritten in place after it was used")
    if any(grad is not None and (grad.shape[0] != size or grad.dim() != 2) for grad in grads):
        raise Unclear("the model did not do the same as in the examination")
    given = [(x, grad) for (x, _), grad in zip(seen, grads, strict=True)]
    gradients = by_hand
    if gradients is None:
        gradients = LotGradients.of(parameters, _pieces(chain, given, parameters), values.detach())
    if is_proof:
        refuse_unless_proven(values, gradients)
    return gradients


def _pieces(
    chain: list[nn.Module], pairs: list[tuple[Tensor, Tensor | None]], parameters: Tensors
) -> dict[str, list[Piece]]:
    """What each Linear contributes, from what it was given and the gradient of what it gave."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    pieces: dict[str, list[Piece]] = {}
    for layer, (given, grad) in zip((layer for layer in chain if type(layer) is nn.Linear), pairs, strict=True):
        if grad is None:
            continue
        weight, bias, dtype = layer.weight, layer.bias, precise(layer.weight.dtype)
        if grad.dtype != dtype:
            grad = grad.to(dtype)
        if id(weight) in names:
            given = given.detach() if given.requires_grad else given
            piece = OuterPiece(grad, given if given.dtype == grad.dtype else given.to(grad.dtype))
            pieces.setdefault(names[id(weight)], []).append(piece)
        if id(bias) in names:
            pieces.setdefault(names[id(bias)], []).append(DensePiece(grad))
    return pieces
