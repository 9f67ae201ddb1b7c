"""Where the examples are in every tensor of a forward pass: found once per model, by a few runs on two or three."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.chains import chain_of
from tacit.gradients.engine import Unclear
from tacit.gradients.memory import Buffers, refuse_memory, undone, unwritten
from tacit.gradients.models import eagerly, is_compiled, mixes, refuse_mixing, suspects
from tacit.gradients.recording import Call, Record, Recorder, replaced, tensors_in
from tacit.gradients.rules import Batched

Places = tuple[Batched | None, ...]

_MIXED = (
    "What the model computes for one example changes when another example of the lot does, so its gradient is not its "
    "own. Look for statistics over the first dimension (a mean, a norm, a softmax over the lot) and compute them per "
    "example."
)


@dataclass(frozen=True, eq=False)
class CallLayout:
    """Where the examples are in each argument and each output of one call; None where they are not."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    arguments: Places
    outputs: Places

    _sized: dict[int, tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = field(default_factory=dict)

    def fits(self, call: Call, size: int) -> bool:
        """Whether a call on a lot of this size is the one that the layout is of."""
        expected = self._sized.get(size)
        if expected is None:
            places = zip(self.shapes, self.arguments + self.outputs, strict=True)
            shapes = [shape if place is None else place.resized(shape, size) for shape, place in places]
            expected = shapes[: len(self.arguments)], shapes[len(self.arguments) :]
            # One size is enough to remember: that of the run whose lots are all alike.
            self._sized.clear()
            self._sized[size] = expected
        return call.function is self.function and (call.shapes, call.outputs) == expected


@dataclass(eq=False)
class Layout:
    """One entry a call, and which derived tensors hold a copy per example.

    `suspects` are the layers that would mix examples if someone switched them to. `is_chain` says that every call is
    one of the Linears of a chain, on one row an example, and `is_compiled` that torch.compile has a hand in the model.
    `weight` is how many numbers go in and out of its calls for one example: about what must be kept until all norms are
    known. A layout has a `doubt` if gradients that were made by it turned out wrong.
    """

    calls: tuple[CallLayout, ...]
    spread: frozenset[int] = frozenset()
    suspects: tuple[nn.Module, ...] = ()
    is_chain: bool = False
    is_compiled: bool = False
    weight: int = 0
    doubt: str = ""
    _proofs: dict[int, tuple[Callable[[], object], int]] = field(default_factory=dict)

    def proofs(self, loss: object) -> int:
        """On how many examples the gradients of this loss were checked."""
        known, count = self._proofs.get(id(loss), (None, 0))
        return count if known is not None and known() is loss else 0

    def prove(self, loss: object, examples: int) -> None:
        """Note that some more were. The loss is not kept alive: it may hold the model."""
        # What cannot be referred to weakly is checked every time.
        with suppress(TypeError):
            self._proofs[id(loss)] = (weakref.ref(loss), self.proofs(loss) + examples)


@dataclass(frozen=True, eq=False)
class _Found:
    """A layout, and the size of the lot that it was found with."""

    layout: Layout
    size: int


_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[Any, _Found]] = weakref.WeakKeyDictionary()


def layout_of(model: nn.Module, parameters: dict[str, Tensor], inputs: Any) -> Layout:
    """The layout, remembered per model, mode and input shapes (without the lot size).

    It is looked for again when a lot comes that is more than twice as large: from one example, or from a few that are
    alike, nobody can tell whether they mix.
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(tensors_in(inputs))
    key = (model.training, *parameters, *[(tensor.shape[1:], tensor.dtype) for tensor in tensors])
    size = tensors[0].shape[0]
    known = _KNOWN.setdefault(model, {})
    found = known.get(key)
    if found is None or size > 2 * found.size:
        refuse_mixing(model)
        try:
            layout = _find(model, parameters, inputs)
        except Unclear as reason:
            layout = Layout((), doubt=str(reason))
        found = known[key] = _Found(layout, size)
    layout = found.layout
    if layout.doubt:
        raise Unclear(layout.doubt)
    if any(mixes(module) for module in layout.suspects):
        refuse_mixing(model)
    return layout


def _find(model: nn.Module, parameters: dict[str, Tensor], inputs: Any) -> Layout:
    spread: frozenset[int] = frozenset()
    other = _other(inputs)
    with unwritten(model):
        left, left_by_other = (_probe(model, parameters, inputs, [i, 1], spread).left for i in (0, other))
    refuse_memory(model, left, left_by_other)
    for _ in range(4):
        small, large = (_probe(model, parameters, inputs, examples, spread) for examples in ([0, 1], [0, 1, 2]))
        two, three = small.record, large.record
        found = _spread(two, three)
        if found == spread:
            break
        spread = found
    replaced_by_other = _probe(model, parameters, inputs, [other, 1], spread)
    changed = replaced_by_other.record
    _refuse_hidden_mixing(small.outputs, large.outputs, replaced_by_other.outputs)
    if not len(two.calls) == len(three.calls) == len(changed.calls):
        raise Unclear("the model does different things for different lots")
    layouts = tuple(_layout(*calls) for calls in zip(two.calls, three.calls, changed.calls, strict=True))
    for places, one, more, another in zip(layouts, two.calls, three.calls, changed.calls, strict=True):
        _refuse_mixed_arguments(places, one, another)
        _refuse_statistics(places, one, more, another)
    weight = _numbers(three) - _numbers(two)
    return Layout(layouts, spread, suspects(model), _is_chain(model, two), is_compiled(model), weight)


def _numbers(record: Record) -> int:
    return sum(math.prod(shape) for call in record.calls for shape in (*call.shapes, *call.outputs))


def _other(inputs: Any) -> int:
    """An example to put in the place of the first: one that differs from it, if there is one."""
    leaves = list(tensors_in(inputs))
    differ = (i for i in range(2, len(leaves[0])) if any(not torch.equal(leaf[i], leaf[0]) for leaf in leaves))
    return next(differ, 1)


def _is_chain(model: nn.Module, record: Record) -> bool:
    linears = [layer for layer in chain_of(model) or () if type(layer) is nn.Linear]
    if not linears or len(linears) != len(record.calls):
        return False
    pairs = zip(linears, record.calls, strict=True)
    return all(call.args[1] is layer.weight and call.args[0].dim() == 2 for layer, call in pairs)


@dataclass(frozen=True, eq=False)
class _Probe:
    """What a forward pass on a few examples did, gave, and left in the model's buffers."""

    record: Record
    outputs: Any
    left: Buffers


def _probe(
    model: nn.Module, parameters: dict[str, Tensor], inputs: Any, examples: list[int], spread: frozenset[int]
) -> _Probe:
    """A forward pass on a few examples, with the same random numbers each time. The model is left as it was."""

    def pick(value: Tensor) -> Tensor:
        return value[torch.tensor(examples, device=value.device) % value.shape[0]]

    recorder = Recorder(parameters, spread)
    with undone(model) as left, torch.random.fork_rng(devices=[]), torch.no_grad(), eagerly(is_compiled(model)):
        torch.manual_seed(0)
        with recorder:
            outputs = apply(model, replaced(inputs, pick))
    return _Probe(recorder.record, outputs, left)


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """model(inputs); a tuple or dictionary of inputs is spread over the arguments."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(inputs)


def _refuse_hidden_mixing(outputs: Any, of_three: Any, others: Any) -> None:
    """With example 0 changed, the output for example 1 must stay what it was."""
    for one, large, other in zip(*map(tensors_in, (outputs, of_three, others)), strict=True):
        place = _place(one.shape, large.shape)
        if place is None or place.fold > 1 or one.shape != other.shape:
            continue
        if not _is_same(place.front(one)[1], place.front(other)[1]):
            raise MixesExamples(_MIXED)


def _refuse_mixed_arguments(layout: CallLayout, one: Call, another: Call) -> None:
    """Nor must what it is made of change: an output can hide it, if only because the last layer starts at zero."""
    for place, before, after in zip(layout.arguments, one.tensors, another.tensors, strict=True):
        if place is None:
            continue
        rows, others = place.front(before), place.front(after)
        if _is_same(rows[1], others[1]):
            continue
        if not any(_is_same(rows[i], others[j]) for i in (0, 1) for j in (0, 1)):
            raise MixesExamples(_MIXED)
        raise Unclear("the model changes the order of the examples")


def _refuse_statistics(layout: CallLayout, one: Call, more: Call, another: Call) -> None:
    """Nor must an argument without examples change with them: a gate at zero hides it until the first step opens it."""
    each = zip(layout.arguments, one.tensors, more.tensors, another.tensors, strict=True)
    for place, before, of_three, after in each:
        if place is not None or not before.is_floating_point() or _is_same(before, after):
            continue
        if not _is_same(before, of_three):
            raise MixesExamples(_MIXED)
        # An example too few to tell: some of the rows, picked by what they hold, look like this too.
        raise Unclear("an argument without examples depends on one")


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding, beside the largest number."""
    if not one.is_floating_point() or not one.numel():
        return torch.equal(one, other)
    largest = float(one.detach().abs().nan_to_num(0.0, posinf=0.0).max())
    error = 1e-2 if one.dtype in (torch.float16, torch.bfloat16) else 1e-5
    return torch.allclose(one, other, rtol=error, atol=error * largest, equal_nan=True)


def _spread(two: Record, three: Record) -> frozenset[int]:
    if len(two.derived_shapes) != len(three.derived_shapes):
        raise Unclear("the model does different things for different lots")
    pairs = zip(two.derived_shapes, three.derived_shapes, strict=True)
    return frozenset(number for number, (small, large) in enumerate(pairs) if small != large)


def _layout(small: Call, large: Call, changed: Call) -> CallLayout:
    is_alike = small.function is large.function is changed.function
    # Six rows for two examples and nine for three can be chance, as where packed sequences are of different lengths.
    if not is_alike or (small.shapes, small.outputs) != (changed.shapes, changed.outputs):
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
    shapes = tuple(tuple(shape) for shape in (*small.shapes, *small.outputs))
    return CallLayout(small.function, shapes, tuple(arguments), tuple(outputs))


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
    rows = (value != changed).movedim(place.axis, 0).reshape(value.shape[place.axis], -1).any(1)
    first_half = torch.arange(rows.numel()) < place.fold
    every_other = torch.arange(rows.numel()) % 2 == 0
    if bool(rows.any()) and not bool((rows & ~first_half.to(rows.device)).any()):
        return False
    if bool(rows.any()) and not bool((rows & ~every_other.to(rows.device)).any()):
        return True
    raise Unclear("the order of examples and entries in a flattened dimension cannot be told")
