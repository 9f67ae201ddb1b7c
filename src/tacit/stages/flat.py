"""Parameters as one long row of numbers, and back; and the largest numbers in it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


def flatten(values: Mapping[str, Tensor]) -> Tensor:
    """All numbers in a row, in the order of the parameters."""
    return torch.cat([value.reshape(-1) for value in values.values()]) if values else torch.zeros(0)


def unflatten(flat: Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The row as parameters of these shapes."""
    pieces = flat.split_with_sizes([math.prod(shape) for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def unflatten_like(flat: Tensor, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The row as parameters with the shapes and the precision of `values`."""
    pieces = unflatten(flat, {name: value.shape for name, value in values.items()})
    return {name: piece.to(values[name].dtype) for name, piece in pieces.items()}


def mark_largest(values: Mapping[str, Tensor], keep: float) -> dict[str, Tensor]:
    """One where a number is among the share `keep` of the largest in size over all parameters, zero elsewhere.

    At least one number is marked, and torch.topk decides between equal sizes.
    """
    flat = flatten(values)
    mask = torch.zeros_like(flat)
    if flat.numel():
        mask[flat.abs().topk(max(1, round(keep * flat.numel())), sorted=False).indices] = 1
    return unflatten_like(mask, values)


def put(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by parameter, as entries of a state."""
    return {prefix + name: value for name, value in values.items()}


def select(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that `put` stored with this prefix."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
