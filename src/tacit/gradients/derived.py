"""What is derived from parameters alone, such as a standardised or transposed weight: made again, and pulled back.

An operation that has a rule is given a derived weight as readily as a parameter. The rule then finds every example's
gradient with respect to the derived weight, and one vector-Jacobian product, vectorised over the examples, takes these
back to the parameters: the derivation is the same for all examples, so it is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.recording import Derived, Record
from tacit.gradients.trees import replaced, tensors_in

Tensors = dict[str, Tensor]


def to_parameters(record: Record, derived: Tensor, gradients: Tensor) -> Tensors:
    """By name, every example's gradient of the parameters, from that with respect to what is derived from them."""
    leaves = leaves_of(record, [derived])

    def derivation(given: Tensors) -> Tensor:
        value: Tensor = _value(record, derived, {key: given[name] for name, key in leaves.items()})
        return value

    value, pull = torch.func.vjp(derivation, parameters_of(record, [derived]))[:2]
    found: tuple[Tensors] = torch.func.vmap(pull)(gradients.reshape(-1, *value.shape).to(value.dtype))
    return found[0]


def parameters_of(record: Record, tensors: list[Tensor]) -> Tensors:
    """The tracked parameters that these are, or are derived from, by name."""
    return {record.names[id(tensor)]: tensor.detach() for tensor in _ancestors(record, tensors)}


def leaves_of(record: Record, tensors: list[Tensor]) -> dict[str, int]:
    """The identities of the same, by name."""
    return {record.names[id(tensor)]: id(tensor) for tensor in _ancestors(record, tensors)}


def _ancestors(record: Record, tensors: list[Tensor]) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in record.names:
            found[id(tensor)] = tensor
        elif id(tensor) in record.derived:
            source = record.derived[id(tensor)]
            waiting += list(tensors_in((source.args, source.kwargs)))
    return list(found.values())


def pulled(run: Callable[[Tensors], tuple[Tensor, ...]], values: Tensors, cotangents: tuple[Tensor, ...]) -> Tensors:
    """The vector-Jacobian product of `run`."""
    pull = torch.func.vjp(run, values)[1]
    gradients: Tensors = pull(cotangents)[0]
    return gradients


def replay(
    record: Record, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], swap: dict[int, Tensor]
) -> Any:
    """The same operation on other values; derived tensors are derived anew."""

    def change(tensor: Tensor) -> Any:
        return _value(record, tensor, swap)

    return function(*replaced(args, change), **replaced(kwargs, change))


def _value(record: Record, tensor: Tensor, swap: dict[int, Tensor]) -> Any:
    """What stands in for a tensor; derived anew at most once."""
    if id(tensor) in swap:
        return swap[id(tensor)]
    source: Derived | None = record.derived.get(id(tensor))
    if source is None:
        return tensor.detach()
    value = replay(record, source.function, source.args, source.kwargs, swap)
    swap[id(tensor)] = value = value if source.index is None else value[source.index]
    return value
