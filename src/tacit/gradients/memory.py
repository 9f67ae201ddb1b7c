"""What a model keeps of the examples it has seen: private, and not to be released with its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples

# What every buffer of every module holds.
Buffers = dict[tuple[nn.Module, str], Tensor]


@contextmanager
def undone(model: nn.Module) -> Iterator[Buffers]:
    """Whatever happens to the buffers meanwhile is undone; the dictionary says afterwards what it was."""
    before, left = _buffers(model), Buffers()
    held = _copied(before)
    try:
        yield left
    finally:
        left.update(_copied(_buffers(model)))
        for (module, key), value in before.items():
            module._buffers[key] = value
            if not _is_equal(value, held[module, key]):
                with torch.no_grad():
                    value.copy_(held[module, key])


@contextmanager
def unwritten(model: nn.Module) -> Iterator[None]:
    """Raise `MixesExamples` if parameters are written to meanwhile."""
    before = {name: parameter._version for name, parameter in model.named_parameters()}
    yield
    written = [name for name, parameter in model.named_parameters() if parameter._version != before[name]]
    if written:
        raise MixesExamples(
            f"The forward pass overwrites parameters ({_listed(written)}): what it writes can depend on the examples, "
            "and has no noise. Leave out max_norm of embeddings, and change weights after optimizer.step() instead."
        )


def refuse_memory(model: nn.Module, left: Buffers, left_by_other: Buffers) -> None:
    """Raise `MixesExamples` if two lots left different things in the buffers.

    A counter, or what spectral normalisation keeps of the weights, is the same for both.
    """
    names = {module: name for name, module in model.named_modules()}
    kept = [
        f"{names[module]}.{key}".removeprefix(".")
        for (module, key), value in left.items()
        if not _is_equal(value, left_by_other.get((module, key)))
    ]
    if kept:
        raise MixesExamples(
            f"The forward pass keeps something of the examples in the model ({_listed(kept)}), which would be released "
            "with the weights, and has no noise. Leave such statistics out, or compute them on public data and keep "
            "them fixed."
        )


def _buffers(model: nn.Module) -> Buffers:
    return {
        (module, key): value
        for module in model.modules()
        for key, value in module._buffers.items()
        if value is not None
    }


def _copied(buffers: Buffers) -> Buffers:
    return {place: value.detach().clone() for place, value in buffers.items()}


def _is_equal(one: Tensor, other: Tensor | None) -> bool:
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, 0.0, 0.0, equal_nan=True) if one.is_floating_point() else torch.equal(one, other)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))
