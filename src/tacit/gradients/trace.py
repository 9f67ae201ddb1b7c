"""The trace of a forward pass: which operation used which parameter, on which inputs, and in which order.

Nothing is attached to the model. A torch function mode sees every operation while the forward pass runs, so a parameter
is found however the model uses it: in a module, in a functional, tied, reused or bare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.overrides import TorchFunctionMode

from tacit.gradients.rules import DECOMPOSITIONS

Tensors = dict[str, Tensor]
Function = Callable[..., Any]
OnOperation = Callable[[Function, tuple[Any, ...], dict[str, Any] | None], None]

# The arguments that are compared between lots: axes, sizes, options. Tensors and fractions may differ.
_COMPARED = (int, str, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None), type(...))
_ANY: Any = object()


class Unclear(Exception):  # noqa: N818 - never leaves this package
    """The examples cannot be told apart in some tensor: the whole model must be treated example by example."""


class DifferentOperations(Unclear):
    """A lot went through other operations than those that were examined."""


def iter_tensors(tree: Any) -> Iterator[Tensor]:
    """Yield all tensors of nested tuples, lists and dictionaries, depth first."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from iter_tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from iter_tensors(item)


def map_tensors(tree: Any, change: Callable[[Tensor], Any]) -> Any:
    """Copy the nesting with every tensor put through `change`."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        items = [map_tensors(item, change) for item in tree]
        if hasattr(tree, "_fields"):
            return type(tree)(*items)
        return tuple(items) if isinstance(tree, tuple) else items
    if isinstance(tree, dict):
        named = {key: map_tensors(item, change) for key, item in tree.items()}
        return named if type(tree) is dict else _rebuild(tree, named)
    return tree


def _rebuild(tree: dict[Any, Any], named: dict[Any, Any]) -> Any:
    """Give outputs with attributes, such as `.logits`, their attributes back."""
    try:
        return type(tree)(**named)
    except TypeError:
        return named


@dataclass(eq=False, slots=True)
class Call:
    """One operation with a tracked parameter among its arguments.

    `tensors` are all its tensor arguments in a fixed order; `edges` are the places of its outputs in autograd's graph.
    """

    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    shapes: list[torch.Size]
    versions: list[int]
    outputs: list[torch.Size]
    edges: list[GradientEdge | None]
    results: list[Tensor]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, whether it was given by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def is_untouched(self) -> bool:
        """False if an argument was overwritten in place after this call."""
        return [tensor._version for tensor in self.tensors] == self.versions


@dataclass(eq=False)
class Derived:
    """A tensor computed from parameters alone (a transpose, a slice, a normalised weight), and how."""

    value: Tensor
    function: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    version: int


@dataclass(eq=False)
class Record:
    """What a forward pass did with the tracked parameters; `derived_count` counts all tensors made of them alone."""

    names: dict[int, str]
    calls: list[Call] = field(default_factory=list)
    derived: dict[int, Derived] = field(default_factory=dict)
    derived_count: int = 0

    def find_parameters(self, tensors: list[Tensor]) -> Tensors:
        """The tracked parameters among these tensors, and those that they are derived from, by name."""
        found: Tensors = {}
        waiting = list(tensors)
        while waiting:
            tensor = waiting.pop()
            if id(tensor) in self.names:
                found[self.names[id(tensor)]] = tensor
            elif id(tensor) in self.derived:
                source = self.derived[id(tensor)]
                waiting += iter_tensors((source.args, source.kwargs))
        return found

    def replay(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], swap: dict[int, Tensor]) -> Any:
        """Run an operation again with other values for some tensors, by identity; derived tensors are derived again."""

        def change(tensor: Tensor) -> Any:
            return self._replace(tensor, swap)

        return function(*map_tensors(args, change), **map_tensors(kwargs, change))

    def _replace(self, tensor: Tensor, swap: dict[int, Tensor]) -> Any:
        if id(tensor) in swap:
            return swap[id(tensor)]
        source = self.derived.get(id(tensor))
        if source is None:
            return tensor.detach()
        value = self.replay(source.function, source.args, source.kwargs, swap)
        swap[id(tensor)] = value = value if source.index is None else value[source.index]
        return value

    def pull_to_parameters(self, derived: Tensor, gradients: Tensor) -> Tensors:
        """Turn every example's gradient with respect to a derived tensor into that of the parameters, by name.

        The derivation is the same for all examples, so it runs once.
        """
        leaves = self.find_parameters([derived])

        def derive(given: Tensors) -> Any:
            return self._replace(derived, {id(leaf): given[name] for name, leaf in leaves.items()})

        value, pull = torch.func.vjp(derive, {name: leaf.detach() for name, leaf in leaves.items()})[:2]
        found: tuple[Tensors] = torch.func.vmap(pull)(gradients.reshape(-1, *value.shape).to(value.dtype))
        return found[0]


class Recorder(TorchFunctionMode):
    """Records every operation in which a tracked parameter, or something derived from one, takes part.

    `is_spread` says of a derived tensor and its number whether it holds a copy per example, such as an expanded token:
    making one is a call of its own. `is_constant` says of the other tensors that a parameter meets whether they depend
    on no example. `on_operation` is called before every operation. Results of calls are kept only on request, because
    they take memory.
    """

    def __init__(
        self,
        parameters: Tensors,
        is_spread: Callable[[Tensor, int], bool],
        is_constant: Callable[[list[Tensor]], bool],
        on_operation: OnOperation,
        *,
        keeps_results: bool = False,
    ) -> None:
        super().__init__()
        self.record = Record({id(parameter): name for name, parameter in parameters.items()})
        self._is_spread, self._is_constant, self._on_operation = is_spread, is_constant, on_operation
        self._keeps_results = keeps_results
        # The identities of parameters and derived tensors. All are alive, so no identity is used twice.
        self._tracked = set(self.record.names)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._on_operation(func, args, kwargs)
        is_tracked = self.is_tracked(args) or (kwargs and self.is_tracked(kwargs.values()))
        if is_tracked and func in DECOMPOSITIONS:
            result = DECOMPOSITIONS[func](args, kwargs or {}, self)
            if result is not None:
                return result
        result = func(*args, **kwargs) if kwargs else func(*args)
        return self._note(func, args, kwargs or {}, result) if is_tracked else result

    def note(self, function: Function, args: tuple[Any, ...], result: Tensor) -> Tensor:
        """Record one operation of a decomposition if a parameter took part; return its result."""
        noted: Tensor = self._note(function, args, {}, result) if self.is_tracked(args) else result
        return noted

    def is_tracked(self, values: Iterable[Any]) -> bool:
        """Whether a parameter, or something derived from parameters, is among these values."""
        tracked = self._tracked
        for value in values:
            if id(value) in tracked or (isinstance(value, (tuple, list)) and self.is_tracked(value)):
                return True
        return False

    def _note(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        if type(result) is Tensor:
            node = result.grad_fn
            outputs, nodes = [result], [node]
            if node is None:
                return result
        else:
            outputs = [result] if isinstance(result, Tensor) else list(iter_tensors(result))
            nodes = [output.grad_fn for output in outputs]
            if nodes.count(None) == len(nodes):
                return result
        tensors = _find_tensors(args)
        if kwargs:
            tensors += _find_tensors(kwargs.values())
        others = [tensor for tensor in tensors if id(tensor) not in self._tracked]
        is_derived = not others or self._is_constant(others)
        if not is_derived and isinstance(result, Tensor) and result._is_view():
            # An operation in place on a view would rewrite the history that the gradient edge points into.
            result = torch.ops.aten._unsafe_view(result, result.shape)
            outputs, nodes = [result], [result.grad_fn]
        if not is_derived or self._derive(func, args, kwargs, result):
            shapes, versions = [tensor.shape for tensor in tensors], [tensor._version for tensor in tensors]
            made = [output.shape for output in outputs]
            edges = [
                None if node is None else GradientEdge(node, output.output_nr)
                for node, output in zip(nodes, outputs, strict=True)
            ]
            results = outputs if self._keeps_results else []
            self.record.calls.append(Call(func, args, kwargs, tensors, shapes, versions, made, edges, results))
        return result

    def _derive(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
        """Note derived tensors; True if the result holds a copy per example, which makes this a call."""
        is_several = isinstance(result, (tuple, list))
        is_spread = False
        for index, value in enumerate(result if is_several else [result]):
            if not isinstance(value, Tensor):
                continue
            if id(value) in self._tracked:
                # Operations such as `contiguous` return their argument if there is nothing to do.
                self._refuse_rewritten(value)
                continue
            number = self.record.derived_count
            self.record.derived_count += 1
            if self._is_spread(value, number):
                is_spread = True
            else:
                self.record.derived[id(value)] = Derived(
                    value, func, args, kwargs, index if is_several else None, value._version
                )
                self._tracked.add(id(value))
        return is_spread

    def _refuse_rewritten(self, value: Tensor) -> None:
        derived = self.record.derived.get(id(value))
        if derived is not None and derived.version != value._version:
            raise Unclear("a tensor made of parameters is overwritten in place")


def _find_tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among the arguments of a call, which are mostly not nested."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            found += iter_tensors(value)
    return found


@dataclass(eq=False)
class OperationLog:
    """The operations of a pass on a lot of this size, each with those of its arguments that are compared."""

    size: int
    operations: list[tuple[Function, Any]] = field(default_factory=list)

    def note(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Add one operation."""
        known = (_pick_compared(args), _pick_compared(kwargs) if kwargs else None)
        compared = tuple(None if each is None else (each, _find_constants(each)) for each in known)
        self.operations.append((function, None if known == (None, None) else compared))


@dataclass(eq=False)
class LogComparison:
    """Compares a pass on a lot of this size with the log of the examined pass, operation by operation."""

    log: OperationLog
    size: int
    at: int = 0

    def see(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
        """Raise `DifferentOperations` if this is not the operation that was examined at this place."""
        operations = self.log.operations
        if self.at >= len(operations):
            raise DifferentOperations("the forward pass has more operations than when it was examined")
        expected, known = operations[self.at]
        self.at += 1
        if expected is not function and expected != function:
            names = [getattr(each, "__name__", str(each)) for each in (function, expected)]
            raise DifferentOperations(f"the forward pass calls {names[0]} where it called {names[1]} before")
        if known is None:
            return
        by_place, by_name = known
        is_alike = by_place is None or self._compare(by_place, args)
        if by_name is not None:
            is_alike = is_alike and kwargs is not None and self._compare(by_name, tuple(kwargs.values()))
        if not is_alike:
            name = getattr(function, "__name__", str(function))
            raise DifferentOperations(f"{name} is called with other arguments than when it was examined")

    def finish(self) -> None:
        """Raise `DifferentOperations` if operations are missing at the end."""
        if self.at != len(self.log.operations):
            raise DifferentOperations("the forward pass has fewer operations than when it was examined")

    def _compare(self, known: tuple[Any, _Constants | None], values: tuple[Any, ...]) -> bool:
        items, constants = known
        # Small models are bound by calls: most arguments are compared in one.
        if constants is not None and len(values) == constants.number:
            try:
                if constants.pick(values) == constants.wanted:
                    return True
            except RuntimeError:
                # A tensor where there was a number has no truth value.
                pass
        return self._is_alike(items, values)

    def _is_alike(self, known: Any, value: Any) -> bool:
        if known is _ANY or known is None:
            return True
        if isinstance(known, tuple):
            items = tuple(value.values()) if isinstance(value, dict) else value
            if not isinstance(items, (tuple, list)) or len(items) != len(known):
                return False
            return all(self._is_alike(expected, item) for expected, item in zip(known, items, strict=True))
        wanted = known[0]
        if wanted == value:
            return True
        if isinstance(wanted, slice) and isinstance(value, slice):
            pairs = ((wanted.start, value.start), (wanted.stop, value.stop), (wanted.step, value.step))
            return all(self._is_alike([one], other) for one, other in pairs)
        # A size may grow with the lot.
        is_size = type(wanted) is int and type(value) is int
        return is_size and wanted * self.size == value * self.log.size


def _pick_compared(value: Any) -> Any:
    """The part of an operation's arguments that is compared: a value in a list, `_ANY`, or None for nothing."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        items = tuple(_pick_compared(item) for item in value)
        return items if any(item is not None and item is not _ANY for item in items) else None
    if isinstance(value, (Tensor, float, complex)) or not isinstance(value, _COMPARED):
        return _ANY
    return [value]


class _Constants(NamedTuple):
    """Which of `number` arguments are compared, and their values in the examined pass."""

    number: int
    pick: Callable[[tuple[Any, ...]], Any]
    wanted: Any


def _find_constants(known: tuple[Any, ...]) -> _Constants | None:
    """The compared arguments as plain values; None if some are nested with others that are not compared."""
    places = [place for place, item in enumerate(known) if item is not None and item is not _ANY]
    values = [known[place] for place in places]
    nested = [value if isinstance(value, tuple) else (value,) for value in values]
    if any(not isinstance(each, list) for items in nested for each in items):
        return None
    wanted = tuple(tuple(each[0] for each in item) if isinstance(item, tuple) else item[0] for item in values)
    return _Constants(len(known), itemgetter(*places), wanted if len(wanted) > 1 else wanted[0])


class OperationWatcher(TorchFunctionMode):
    """Calls `on_operation` before every operation that torch is asked for while the watcher is active."""

    def __init__(self, on_operation: OnOperation) -> None:
        super().__init__()
        self._on_operation = on_operation

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._on_operation(func, args, kwargs)
        return func(*args, **kwargs) if kwargs else func(*args)


def count_examples(inputs: Any) -> int:
    """How many examples there are: the first dimension of the first tensor."""
    return (inputs if isinstance(inputs, Tensor) else next(iter_tensors(inputs))).shape[0]
