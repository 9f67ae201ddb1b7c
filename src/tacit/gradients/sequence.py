"""The sequence of operations of a forward pass: noted when it is examined, compared on every later lot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.gradients.engine import Unclear

# What is compared of an argument: axes, sizes, options. Tensors and fractions may differ from lot to lot.
_COMPARED = (int, str, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None), type(...))
_ANY: Any = object()


class Different(Unclear):
    """A lot went through other operations than those that were examined."""


@dataclass(eq=False)
class Sequence:
    """The operations of a pass on a lot of this size, each with those of its arguments that are compared."""

    size: int
    operations: list[tuple[Callable[..., Any], Any]] = field(default_factory=list)

    def note(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Take down one operation."""
        known = (_told(args), _told(kwargs) if kwargs else None)
        self.operations.append((function, None if known == (None, None) else known))


@dataclass(eq=False)
class Follower:
    """Compares a pass on a lot of this size with the sequence that was examined, operation by operation."""

    sequence: Sequence
    size: int
    at: int = 0

    def see(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Raise `Different` if this is not the operation that was examined at this place."""
        operations = self.sequence.operations
        if self.at >= len(operations):
            raise Different("the forward pass has more operations than when it was examined")
        expected, told = operations[self.at]
        self.at += 1
        if expected is not function and expected != function:
            raise Different(f"the forward pass calls {_name(function)} where it called {_name(expected)} before")
        if told is not None and not self._fits(told, args, kwargs):
            raise Different(f"{_name(function)} is called with other arguments than when it was examined")

    def finish(self) -> None:
        """Raise `Different` if operations are missing at the end."""
        if self.at != len(self.sequence.operations):
            raise Different("the forward pass has fewer operations than when it was examined")

    def _fits(self, told: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
        by_place, by_name = told
        if by_place is not None and not self._is_alike(by_place, args):
            return False
        return by_name is None or (kwargs is not None and self._is_alike(by_name, kwargs))

    def _is_alike(self, known: Any, value: Any) -> bool:
        if known is _ANY or known is None:
            return True
        if isinstance(known, tuple):
            items = tuple(value.values()) if isinstance(value, dict) else value
            if not isinstance(items, (tuple, list)) or len(items) != len(known):
                return False
            return all(map(self._is_alike, known, items))
        wanted = known[0] if isinstance(known, list) else known
        if wanted == value:
            return True
        if isinstance(wanted, slice) and isinstance(value, slice):
            pairs = ((wanted.start, value.start), (wanted.stop, value.stop), (wanted.step, value.step))
            return all(self._is_alike([one], other) for one, other in pairs)
        # A size that grows with the lot.
        is_size = type(wanted) is int and type(value) is int
        return is_size and wanted * self.size == value * self.sequence.size


def _told(value: Any) -> Any:
    """What is compared of the arguments of an operation; None if that is nothing."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        items = tuple(_told(item) for item in value)
        return items if any(item is not None and item is not _ANY for item in items) else None
    if isinstance(value, (Tensor, float, complex)) or not isinstance(value, _COMPARED):
        return _ANY
    return [value]


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


class Followed(TorchFunctionMode):
    """Notes, or compares, every operation that torch is asked for while it is active."""

    def __init__(self, see: Callable[..., None]) -> None:
        super().__init__()
        self._see = see

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._see(func, args, kwargs)
        return func(*args, **kwargs) if kwargs else func(*args)
