"""Watching a forward pass: which operation used which parameter, on what, and where its output's gradient will appear.

Nothing is attached to the model. A function mode sees every torch operation while the forward pass
runs, so a parameter is found however the model uses it: through a module, a functional, tied, reused or bare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from tacit.gradients.attention import self_attention
from tacit.gradients.recurrent import RECURRENT
from tacit.gradients.trees import tensors_in


@dataclass(eq=False, slots=True)
class Call:
    """One operation with a tracked parameter among its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # The tensor arguments, parameters included, in a fixed order.
    tensors: list[Tensor]
    shapes: list[torch.Size]
    versions: list[int]
    outputs: list[torch.Size]
    edges: list[GradientEdge | None]
    results: list[Tensor]

    def is_untouched(self) -> bool:
        """False if an argument was overwritten in place after this call."""
        return [tensor._version for tensor in self.tensors] == self.versions


def _tensors_among(values: Iterable[Any]) -> list[Tensor]:
    """The same of the arguments of a call, which are mostly not nested."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            found += tensors_in(value)
    return found


def _edge(output: Tensor) -> GradientEdge | None:
    node = output.grad_fn
    return None if node is None else GradientEdge(node, output.output_nr)


@dataclass(eq=False)
class Derived:
    """A tensor computed from parameters alone (a transpose, a slice, a normalised weight), and how.

    `number` counts them in the order of their making; its shape tells whether it depends on the lot.
    """

    value: Tensor
    number: int
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None


@dataclass(eq=False)
class Record:
    """What a forward pass did with the tracked parameters."""

    names: dict[int, str]
    calls: list[Call] = field(default_factory=list)
    derived: dict[int, Derived] = field(default_factory=dict)
    derived_shapes: list[tuple[int, ...]] = field(default_factory=list)


See = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any] | None], None]


class Recorder(TorchFunctionMode):
    """Records every operation that a tracked parameter, or something derived from one, takes part in.

    `is_spread` tells, of a derived tensor and its number, whether it holds a copy per example, such as an expanded
    token: making one is a call of its own, and what comes after it is ordinary. `is_constant` tells of tensors that a
    parameter meets whether no example has a part in them. `see` is told of every operation.
    Results of calls are kept only if asked, as they take memory.
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        is_spread: Callable[[Tensor, int], bool],
        is_constant: Callable[[list[Tensor]], bool],
        see: See,
        *,
        keeps_results: bool = False,
    ) -> None:
        super().__init__()
        self._is_constant = is_constant
        self.keeps_results = keeps_results
        self.record = Record({id(parameter): name for name, parameter in parameters.items()})
        self._is_spread, self._see = is_spread, see
        # The identities of parameters and of what is derived from them: all alive, so that nothing else has one.
        self._tracked = set(self.record.names)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self._see(func, args, kwargs)
        if func is F.multi_head_attention_forward:
            taken_apart = self_attention(args, kwargs or {}, self._linear)
            if taken_apart is not None:
                return taken_apart
        is_tracked = self.is_tracked(args) or (kwargs and self.is_tracked(kwargs.values()))
        if is_tracked and func in RECURRENT:
            take_apart, recurrence = RECURRENT[func]
            taken_apart = take_apart(recurrence, args, kwargs or {}, self)
            if taken_apart is not None:
                return taken_apart
        result = func(*args, **kwargs) if kwargs else func(*args)
        return self._seen(func, args, kwargs or {}, result) if is_tracked else result

    def _seen(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Note what an operation with something tracked did; its result."""
        tensors = _tensors_among(args)
        if kwargs:
            tensors += _tensors_among(kwargs.values())
        others = [tensor for tensor in tensors if id(tensor) not in self._tracked]
        outputs = [result] if isinstance(result, Tensor) else list(tensors_in(result))
        if not any(output.grad_fn is not None for output in outputs):
            return result
        is_derived = not others or self._is_constant(others)
        if isinstance(result, Tensor):
            if not is_derived and result._is_view():
                # An operation in place on a view would rewrite the history that the gradient edge points into.
                result = torch.ops.aten._unsafe_view(result, result.shape)
            outputs = [result]
        edges = [_edge(output) for output in outputs]
        if not is_derived or self._derive(func, args, kwargs, result):
            shapes, versions = [tensor.shape for tensor in tensors], [tensor._version for tensor in tensors]
            made = [output.shape for output in outputs]
            results = outputs if self.keeps_results else []
            self.record.calls.append(Call(func, args, kwargs, tensors, shapes, versions, made, edges, results))
        return result

    def note(self, function: Callable[..., Any], args: tuple[Any, ...], result: Tensor) -> Tensor:
        """The result of an operation, noted if a parameter took part: for what is taken apart."""
        noted: Tensor = self._seen(function, args, {}, result) if self.is_tracked(args) else result
        return noted

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self.note(F.linear, (x, weight, bias), F.linear(x, weight, bias))

    def is_tracked(self, values: Iterable[Any]) -> bool:
        """Whether a parameter, or something that is made of parameters only, is among them."""
        tracked = self._tracked
        for value in values:
            if id(value) in tracked or (isinstance(value, (tuple, list)) and self.is_tracked(value)):
                return True
        return False

    def _derive(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
        """Note derived tensors; True if the result holds a copy per example, which makes this a call."""
        is_several = isinstance(result, (tuple, list))
        is_spread = False
        for index, value in enumerate(result if is_several else [result]):
            if not isinstance(value, Tensor):
                continue
            number = len(self.record.derived_shapes)
            self.record.derived_shapes.append(tuple(value.shape))
            if self._is_spread(value, number):
                is_spread = True
            else:
                position = index if is_several else None
                self.record.derived[id(value)] = Derived(value, number, func, args, kwargs, position)
                self._tracked.add(id(value))
        return is_spread
