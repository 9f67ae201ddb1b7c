"""Where the examples are in every tensor of a forward pass: found once per model, by a few runs on two or three."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.chains import chain_of
from tacit.gradients.engine import Unclear
from tacit.gradients.models import eagerly, is_compiled, mixes, refuse_mixing, suspects
from tacit.gradients.recording import Call, Record, Recorder, replaced, tensors_in
from tacit.gradients.rules import Batched

Places = tuple[Batched | None, ...]


@dataclass(frozen=True, eq=False)
class CallLayout:
    """Where the examples are in each argument and each output of one call; None where they are not."""

    arguments: Places
    outputs: Places


@dataclass(frozen=True, eq=False)
class Layout:
    """One entry a call, and which derived tensors hold a copy per example.

    `suspects` are the layers that would mix examples if someone switched them to. `is_chain` says that every call is
    one of the Linears of a chain, on one row an example, and `is_compiled` that torch.compile has a hand in the model.
    """

    calls: tuple[CallLayout, ...]
    spread: frozenset[int]
    suspects: tuple[nn.Module, ...] = ()
    is_chain: bool = False
    is_compiled: bool = False


_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[Any, Layout | Unclear]] = weakref.WeakKeyDictionary()


def layout_of(model: nn.Module, parameters: dict[str, Tensor], inputs: Any) -> Layout:
    """The layout, remembered per model, mode and input shapes (without the lot size)."""
    shapes = tuple((tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors_in(inputs))
    key = (model.training, tuple(parameters), shapes)
    known = _KNOWN.setdefault(model, {})
    if key not in known:
        refuse_mixing(model)
        try:
            known[key] = _find(model, parameters, inputs)
        except Unclear as reason:
            known[key] = reason
    layout = known[key]
    if isinstance(layout, Unclear):
        raise layout
    if any(mixes(module) for module in layout.suspects):
        refuse_mixing(model)
    return layout


def _find(model: nn.Module, parameters: dict[str, Tensor], inputs: Any) -> Layout:
    spread: frozenset[int] = frozenset()
    for _ in range(4):
        two, outputs = _probe(model, parameters, inputs, [0, 1], spread)
        three, _ = _probe(model, parameters, inputs, [0, 1, 2], spread)
        found = _spread(two, three)
        if found == spread:
            break
        spread = found
    changed, other_outputs = _probe(model, parameters, inputs, [2, 1], spread)
    _refuse_hidden_mixing(outputs, other_outputs)
    if not len(two.calls) == len(three.calls) == len(changed.calls):
        raise Unclear("the model does different things for different lots")
    layouts = (_layout(*calls) for calls in zip(two.calls, three.calls, changed.calls, strict=True))
    return Layout(tuple(layouts), spread, suspects(model), _is_chain(model, two), is_compiled(model))


def _is_chain(model: nn.Module, record: Record) -> bool:
    linears = [layer for layer in chain_of(model) or () if type(layer) is nn.Linear]
    if not linears or len(linears) != len(record.calls):
        return False
    pairs = zip(linears, record.calls, strict=True)
    return all(call.args[1] is layer.weight and call.args[0].dim() == 2 for layer, call in pairs)


def _probe(
    model: nn.Module, parameters: dict[str, Tensor], inputs: Any, examples: list[int], spread: frozenset[int]
) -> tuple[Record, Any]:
    """A forward pass on a few examples, with the same random numbers each time."""

    def pick(value: Tensor) -> Tensor:
        return value[torch.tensor(examples, device=value.device) % value.shape[0]]

    recorder = Recorder(parameters, spread)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), eagerly(is_compiled(model)), recorder:
        torch.manual_seed(0)
        outputs = apply(model, replaced(inputs, pick))
    return recorder.record, outputs


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """model(inputs); a tuple or dictionary of inputs is spread over the arguments."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(inputs)


def _refuse_hidden_mixing(outputs: Any, others: Any) -> None:
    """With example 0 changed, the output for example 1 must stay what it was."""
    for one, other in zip(tensors_in(outputs), tensors_in(others), strict=True):
        if one.dim() == 0 or one.shape != other.shape or one.shape[0] != 2 or not one.is_floating_point():
            continue
        if not torch.allclose(one[1], other[1], rtol=1e-3, atol=1e-5, equal_nan=True):
            raise MixesExamples(
                "The model's output for one example changes when another example of the lot does, so its gradient is "
                "not its own. Look for statistics over the first dimension (a mean, a norm, a softmax over the lot) "
                "and compute them per example."
            )


def _spread(two: Record, three: Record) -> frozenset[int]:
    if len(two.derived_shapes) != len(three.derived_shapes):
        raise Unclear("the model does different things for different lots")
    pairs = zip(two.derived_shapes, three.derived_shapes, strict=True)
    return frozenset(number for number, (small, large) in enumerate(pairs) if small != large)


def _layout(small: Call, large: Call, changed: Call) -> CallLayout:
    if not small.function is large.function is changed.function:
        raise Unclear("the model does different things for different lots")
    arguments = []
    for shape, other, a, b in zip(small.shapes, large.shapes, small.tensors, changed.tensors, strict=True):
        place = _place(shape, other)
        if place is not None and place.fold > 1:
            place = replace(place, is_minor=_is_minor(a, b, place))
        arguments.append(place)
    outputs = [_place(shape, other) for shape, other in zip(small.outputs, large.outputs, strict=True)]
    folded = [place for place in arguments if place is not None and place.fold > 1]
    for index, place in enumerate(outputs):
        if place is not None and place.fold > 1:
            if not folded:
                raise Unclear("an operation lays the examples out anew")
            outputs[index] = replace(place, is_minor=folded[0].is_minor)
    return CallLayout(tuple(arguments), tuple(outputs))


def _place(small: tuple[int, ...], large: tuple[int, ...]) -> Batched | None:
    """The dimension that grew from 2k to 3k."""
    if small == large:
        return None
    if len(small) != len(large):
        raise Unclear("the number of dimensions depends on the lot size")
    changed = [axis for axis, (a, b) in enumerate(zip(small, large, strict=True)) if a != b]
    axis = changed[0]
    if len(changed) > 1 or small[axis] % 2 or large[axis] % 3 or small[axis] // 2 != large[axis] // 3:
        raise Unclear("a tensor's size is not proportional to the lot size in exactly one dimension")
    return Batched(axis, small[axis] // 2)


def _is_minor(value: Tensor, changed: Tensor, place: Batched) -> bool:
    """Which entries of the folded dimension belong to example 0: the first half, or every other one."""
    rows = (value != changed).movedim(place.axis, 0).flatten(1).any(1)
    first_half = torch.arange(rows.numel()) < place.fold
    every_other = torch.arange(rows.numel()) % 2 == 0
    if bool(rows.any()) and not bool((rows & ~first_half.to(rows.device)).any()):
        return False
    if bool(rows.any()) and not bool((rows & ~every_other.to(rows.device)).any()):
        return True
    raise Unclear("the order of examples and entries in a flattened dimension cannot be told")
