"""What a model keeps of the examples it has seen: private, and not to be released with its weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples

# What torch itself keeps in a module; parameters, buffers and layers are looked at apart.
_TORCH_OWN = frozenset(vars(nn.Module()))
_PLAIN = (int, float, complex, str, bytes, bool, type(None))
# Deeper nesting than this is not looked into.
_DEEPEST = 4


def held_tensors(model: nn.Module, loss: object) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that model and loss hold on to, with its name: parameters, buffers, plain attributes, closures."""
    for name, value in _held(model, loss):
        if isinstance(value, Tensor):
            yield name, value


def attributes(model: nn.Module, loss: object) -> Iterator[tuple[str, object]]:
    """Every number or text that model and loss hold on to, with its name. What tensors hold is told by an examiner."""
    for name, value in _held(model, loss, registered=False):
        if not isinstance(value, Tensor):
            yield name, value


def _held(model: nn.Module, loss: object, *, registered: bool = True) -> Iterator[tuple[str, Any]]:
    for prefix, root in (("", model), ("loss", loss)):
        if isinstance(root, nn.Module):
            for path, module in root.named_modules():
                yield from _held_by(".".join(filter(None, (prefix, path))), module, registered=registered)
        else:
            for cell, name in zip(
                getattr(root, "__closure__", None) or (), getattr(root, "__code__", _NO_CODE).co_freevars, strict=False
            ):
                with _no_content():
                    yield from _inside(f"{prefix}: {name}", cell.cell_contents, 1)


class _NO_CODE:  # noqa: N801 - stands for the code of what has none
    co_freevars = ()


@contextmanager
def _no_content() -> Iterator[None]:
    """A cell of a closure may be empty."""
    try:
        yield
    except ValueError:
        return


def _held_by(path: str, module: nn.Module, *, registered: bool) -> Iterator[tuple[str, Any]]:
    if registered:
        for key, value in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            yield f"{path}.{key}".removeprefix("."), value
    for key, value in list(vars(module).items()):
        if key not in _TORCH_OWN:
            yield from _inside(f"{path}.{key}".removeprefix("."), value, 1)


def _inside(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The tensors and plain values in nested containers and simple objects."""
    if isinstance(value, (Tensor, *_PLAIN)):
        yield name, value
    elif depth >= _DEEPEST or isinstance(value, nn.Module):
        return
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from _inside(f"{name}[{key!r}]", item, depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for index, item in enumerate(list(value)):
            yield from _inside(f"{name}[{index}]", item, depth + 1)
    elif type(value).__module__ not in ("builtins", "torch") and isinstance(getattr(value, "__dict__", None), dict):
        for key, item in list(vars(value).items()):
            yield from _inside(f"{name}.{key}", item, depth + 1)


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Whatever happens to the buffers meanwhile is undone."""
    before = {
        (module, key): (value, value.detach().clone())
        for module in model.modules()
        for key, value in module.named_buffers(recurse=False)
    }
    try:
        yield
    finally:
        for (module, key), (value, held) in before.items():
            if getattr(module, key) is not value:
                setattr(module, key, value)
            if not is_same(value, held):
                with torch.no_grad():
                    value.copy_(held)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, NaN included."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.allclose(one, other, 0.0, 0.0, equal_nan=True) if one.is_floating_point() else torch.equal(one, other)


@contextmanager
def unchanged(model: nn.Module, loss: object) -> Iterator[None]:
    """Raise `MixesExamples` if model or loss hold something else afterwards: of an example, or how many there were."""
    before = {name: _copied(value) for name, value in _held(model, loss)}
    yield
    after = dict(_held(model, loss))
    names = [name for name, value in before.items() if name not in after or not _is_equal(value, after[name])]
    refuse_changed(names + [name for name in after if name not in before])


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and is_same(one, other.detach())
    return type(one) is type(other) and (one == other or one != one)


def refuse_changed(names: list[str]) -> None:
    """Raise `MixesExamples` with the names of what the forward pass has changed."""
    if names:
        raise MixesExamples(
            f"The forward pass keeps something of the examples in {', '.join(map(repr, names))}, which would be "
            "released with the model, without noise. Leave such statistics out, or compute them on public data and "
            "keep them fixed."
        )
