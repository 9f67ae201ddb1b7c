"""Examine a model and a loss: run copies on made-up examples, and find where the examples are in every tensor."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.checks.examiner import Examiner, Step, refuse_different
from tacit.gradients.checks.labels import (
    POSITIONS,
    PUBLIC,
    UNIFORM,
    CallLayout,
    Layout,
    Mixed,
    Rows,
    find_room,
    is_private,
)
from tacit.gradients.losses import Loss, apply_loss
from tacit.gradients.models import (
    call_model,
    find_suspects,
    is_compiled,
    iter_attributes,
    iter_held_tensors,
    mixes_examples,
    refuse_changes,
    refuse_inference_tensors,
    refuse_mixing,
    refuse_writes,
    restore_buffers,
    run_eagerly,
)
from tacit.gradients.perceptrons import is_chain
from tacit.gradients.rules.recurrent import OWN_FUNCTIONS
from tacit.gradients.trace import (
    Call,
    OperationLog,
    OperationWatcher,
    Record,
    Recorder,
    Unclear,
    iter_tensors,
    map_tensors,
)

Make = Callable[[Any, int], Any]

# Numbers of examples for an examination: one that divides no other size of the model is chosen.
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
# The number of made-up lots that are compared with their examples alone.
_DRAWS = 4
# Functions that take values out of torch, or reach into the backward pass.
_LEAVING = {
    getattr(Tensor, name)
    for name in ("numpy", "tolist", "__array__", "__dlpack__", "untyped_storage", "storage", "register_hook")
}
_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[Any, tuple[Callable[[], object], Layout]]] = (
    weakref.WeakKeyDictionary()
)


def find_layout(
    model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any, *, again: bool = False
) -> Layout:
    """The layout, remembered per model, loss, mode and shapes (without the lot size); examined `again` on request.

    Raises `MixesExamples` if examples influence each other, and `Unclear` if they cannot be followed.
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(iter_tensors(inputs))
    tensors += [targets] if isinstance(targets, Tensor) else iter_tensors(targets)
    key = (model.training, id(loss), *parameters, *[(tensor.shape[1:], tensor.dtype) for tensor in tensors])
    if tensors[0].is_inference():
        refuse_inference_tensors(inputs)
    known = _KNOWN.setdefault(model, {})
    of, layout = known.get(key, (None, None))
    if layout is None or of is None or of() is not loss or again:
        refuse_mixing(model)
        try:
            layout = examine(model, loss, parameters, inputs, targets)
        except Unclear as reason:
            layout = Layout((), doubt=str(reason))
        # A loss that cannot be referred to weakly is examined every time. It is not kept alive: it may hold the model.
        with suppress(TypeError):
            known[key] = (weakref.ref(loss), layout)
    if layout.doubt:
        raise Unclear(layout.doubt)
    if any(mixes_examples(module) for module in layout.suspects):
        refuse_mixing(model)
    return layout


def list_public_writes(model: nn.Module) -> frozenset[str]:
    """The buffers to which examined passes through the model write, without anything of the examples."""
    return frozenset().union(*(layout.writes for _, layout in _KNOWN.get(model, {}).values()))


def list_attributes_set_once(model: nn.Module) -> frozenset[str]:
    """The attributes that the first pass through the model sets once and for all."""
    return frozenset().union(*(layout.sets_once for _, layout in _KNOWN.get(model, {}).values()))


def make_examples_like(inputs: Any) -> Any:
    """Two made-up examples with the shapes and types of these."""
    return make_examples(inputs, 2)


def examine(model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any) -> Layout:
    """Examine passes on made-up examples; on some of the given ones where the model does not accept those."""
    refuse_inference_tensors((inputs, parameters))
    shapes = [tensor.shape[1:] for tensor in iter_tensors((inputs, targets))]
    shapes += [tensor.shape for tensor in (*model.parameters(), *model.buffers())]
    sizes = choose_sizes(length for shape in shapes for length in shape)
    examine_twice = partial(_examine_twice, model, loss, parameters, inputs, targets)

    def examine_on(some: list[int]) -> Layout:
        try:
            return examine_twice(some, make_examples)
        except (Unclear, MixesExamples, InvalidArgument):
            raise
        except Exception:
            return examine_twice(some, _repeat_examples)

    try:
        try:
            return examine_on(sizes[:2])
        except MixesExamples:
            # Again with other sizes: some axis could have the length of the lot by chance.
            return examine_on(sizes[2:])
    except Unclear as reason:
        _refuse_unless_alone(model, loss, inputs, targets, str(reason))
        raise


def choose_sizes(lengths: Iterable[int]) -> list[int]:
    """Four numbers of examples that divide none of these lengths, so that no axis is taken for another."""
    known = set(lengths)
    free = [prime for prime in _PRIMES if not any(length % prime == 0 for length in known)]
    return (free + list(_PRIMES[-4:]))[:4]


def make_examples(tree: Any, size: int, seed: int = 0) -> Any:
    """Make up examples with the shapes and types of the given ones that hold nothing of them."""
    # A generator of its own: the random numbers of the user's model must not depend on an examination.
    generator = torch.Generator().manual_seed(seed)

    def make(tensor: Tensor) -> Tensor:
        shape = (size, *tensor.shape[1:])
        if tensor.is_floating_point() or tensor.is_complex():
            # Between 0 and 1, like images, probabilities and scaled columns; with a seed, of both signs.
            draw = torch.randn if seed else torch.rand
            return draw(shape, generator=generator).to(tensor.device, tensor.dtype)
        # The two numbers that most tables and lists of classes have.
        return torch.randint(2, shape, generator=generator).to(tensor.device, tensor.dtype)

    return map_tensors(tree, make)


def _repeat_examples(tree: Any, size: int) -> Any:
    return map_tensors(tree, lambda tensor: tensor[torch.arange(size, device=tensor.device) % len(tensor)].clone())


def _pick(tree: Any, index: int) -> Any:
    return map_tensors(tree, lambda tensor: tensor[index : index + 1])


@contextmanager
def _copy(model: nn.Module, loss: Loss) -> Iterator[tuple[nn.Module, Loss, bool]]:
    """Copies of model and loss; where none can be made, the model itself, whose buffers are restored afterwards."""
    try:
        copied, criterion = (
            copy.deepcopy((model, loss)) if isinstance(loss, nn.Module) else (copy.deepcopy(model), loss)
        )
    except Exception:
        with restore_buffers(model):
            yield model, loss, False
    else:
        yield copied, criterion, True


def _examine_twice(
    model: nn.Module,
    loss: Loss,
    parameters: dict[str, Tensor],
    inputs: Any,
    targets: Any,
    sizes: list[int],
    make: Make,
) -> Layout:
    """Examine passes on two lots of different sizes, which must differ in nothing but the number of examples."""
    passes, changes = list[_Pass](), list[dict[str, object]]()
    for size in sizes:
        with _copy(model, loss) as (copied, criterion, is_copy):
            tracked = dict(copied.named_parameters()) if is_copy else parameters
            tracked = {name: tracked[name] for name in parameters}
            compiled = is_compiled(model)
            before = dict(iter_attributes(copied, criterion))
            lot = make(inputs, size), make(targets, size)
            passes.append(_examine_pass(copied, criterion, tracked, *lot, size, is_compiled=compiled))
            changed = {name: value for name, value in iter_attributes(copied, criterion) if before.get(name) != value}
            if changed:
                lot = make(inputs, size), make(targets, size)
                _refuse_counters(copied, criterion, *lot, size, is_compiled=compiled)
            changes.append(changed)
    one, other = passes
    refuse_writes([name for name in changes[0] | changes[1] if changes[0].get(name) != changes[1].get(name)])
    refuse_different(one.trail, other.trail)
    if one.values != other.values:
        raise Unclear("the examples meet values that depend on how many there are")
    if len(one.layout.calls) != len(other.layout.calls):
        raise Unclear("the model does different things for different lots")
    for call, its in zip(one.layout.calls, other.layout.calls, strict=True):
        if call.resize(sizes[1]) != list(its.shapes):
            raise Unclear("a tensor's size is not proportional to the lot size in exactly one dimension")
    one.layout.sets_once = frozenset(changes[0])
    return one.layout


def _refuse_counters(model: nn.Module, loss: Loss, inputs: Any, targets: Any, size: int, *, is_compiled: bool) -> None:
    """Raise `MixesExamples` if a second pass changes an attribute again: it would count the lots that are not empty."""
    before = dict(iter_attributes(model, loss))
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), run_eagerly(is_compiled):
        apply_loss(loss, call_model(model, inputs), targets, size)
    refuse_writes([name for name, value in iter_attributes(model, loss) if before.get(name) != value])


def _refuse_unless_alone(model: nn.Module, loss: Loss, inputs: Any, targets: Any, reason: str) -> None:
    """Raise `MixesExamples` if an example has another loss alone than in a lot: then the user means something else.

    Made-up examples only: a refusal that depended on the given ones would reveal something of them. Losses that cannot
    be compared, because they are random or need a whole lot, are left to single passes.
    """
    with _copy(model, loss) as (copied, criterion, _):
        _refuse_kept(copied, criterion, make_examples(inputs, 3), make_examples(targets, 3))
    if _draws_random_numbers(model, loss, inputs, targets):
        return
    for seed in range(1, 1 + _DRAWS):
        made, wanted = make_examples(inputs, 3, seed), make_examples(targets, 3, 0)
        try:
            whole = _try_losses(model, loss, made, wanted)
            alone = [_try_losses(model, loss, _pick(made, index), _pick(wanted, index)) for index in range(3)]
        except Exception:
            return
        if whole.dim() and not torch.allclose(whole, torch.cat(alone), 1e-3, 1e-6, equal_nan=True):
            raise MixesExamples(
                f"An example alone has another loss than in a lot ({reason}), so its gradient is not its own. Compute "
                "everything for each example by itself."
            )


def _refuse_kept(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> None:
    """Raise `MixesExamples` if made-up examples, one after the other, leave something in the model or the loss."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        suppress(RuntimeError, IndexError, ValueError, TypeError),
    ):
        for index in range(3):
            with refuse_changes(model, loss) if index else nullcontext():
                apply_loss(loss, call_model(model, _pick(inputs, index)), _pick(targets, index), 1)


def _try_losses(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> Tensor:
    size = next(iter_tensors(inputs)).shape[0]
    with _copy(model, loss) as (copied, criterion, _), torch.no_grad(), run_eagerly(is_compiled(model)):
        return apply_loss(criterion, call_model(copied, inputs), targets, size)[0]


def _draws_random_numbers(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> bool:
    """Whether a pass draws random numbers from torch's generator, or fails on made-up examples."""
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        try:
            _try_losses(model, loss, make_examples(inputs, 3), make_examples(targets, 3))
        except Exception:
            return True
        return not torch.equal(before, torch.get_rng_state())


@dataclass(frozen=True, eq=False)
class _Pass:
    """One examined pass: its layout, the numbers of its operations, and the public values combined with examples."""

    layout: Layout
    trail: list[Step]
    values: set[float]


def _examine_pass(
    model: nn.Module,
    loss: Loss,
    parameters: dict[str, Tensor],
    inputs: Any,
    targets: Any,
    size: int,
    *,
    is_compiled: bool,
) -> _Pass:
    """Run model and loss under an examiner."""
    lot = list(iter_tensors((inputs, targets)))
    examiner = Examiner(lot, size, {t.untyped_storage()._cdata: name for name, t in iter_held_tensors(model, loss)})
    forward, criterion = OperationLog(size), OperationLog(size)
    spread, constants = set[int](), list[bool]()

    def log_into(log: OperationLog) -> Callable[..., None]:
        def note(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
            examiner.calling = function
            if function in _LEAVING and any(is_private(examiner.label(t)) for t in iter_tensors(args)):
                raise Unclear(f"{function.__name__} takes values of the examples out of torch")
            log.note(function, args, kwargs)

        return note

    def is_spread(value: Tensor, number: int) -> bool:
        if isinstance(examiner.label(value), Rows):
            spread.add(number)
        return number in spread

    def is_constant(tensors: list[Tensor]) -> bool:
        constants.append(all(examiner.label(tensor) is PUBLIC for tensor in tensors))
        return constants[-1]

    recorder = Recorder(parameters, is_spread, is_constant, log_into(forward), keeps_results=True)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), run_eagerly(is_compiled), examiner:
            with recorder:
                outputs = call_model(model, inputs)
            steps = len(examiner.trail)
            with OperationWatcher(log_into(criterion)):
                values = apply_loss(loss, outputs, targets, size)[0]
        if not values.dim():
            # A single number for the lot: the loss is applied to every example alone.
            del examiner.trail[steps:]
        examiner.refuse_kept(iter_held_tensors(model, loss))
        if values.dim():
            label = examiner.label(values)
            refuse_mixed(label)
            if isinstance(label, Rows) and (label.axis, label.outer, label.inner) != (0, 1, 1):
                raise Unclear("the losses are not in the order of the examples")
        calls = tuple(_lay_out(call, examiner) for call in recorder.record.calls)
        _refuse_own_functions([values, *iter_tensors(outputs)])
        layout = Layout(
            calls,
            spread=frozenset(spread),
            constants=tuple(constants),
            forward=forward,
            loss=criterion,
            suspects=find_suspects(model),
            is_chain=is_chain(model, recorder.record.calls),
            is_compiled=is_compiled,
            weight=_weigh(calls, size),
            writes=frozenset(examiner.writes),
            writes_inputs=examiner.writes_lot,
        )
        recorder.record = Record({})
        del outputs, values
        examiner.refuse_survivors()
        return _Pass(layout, examiner.trail, examiner.values)
    except Exception as error:
        raise (examiner.stopped or error) from None
    finally:
        examiner.close()


def _weigh(calls: tuple[CallLayout, ...], size: int) -> int:
    return sum(
        math.prod(shape) // size
        for call in calls
        for shape, place in zip(call.shapes, call.arguments + call.outputs, strict=True)
        if place is not None
    )


def refuse_mixed(label: object) -> None:
    """Raise `MixesExamples` for a result of several examples, `Unclear` if they were only picked or reordered."""
    if isinstance(label, Mixed):
        if label.is_order:
            raise Unclear(label.because)
        raise MixesExamples(
            f"{label.because}, so one example's gradient is not its own. Compute it for each example by itself: the "
            "sum of all gradients is divided by the public lot size later."
        )


def _refuse_own_functions(tensors: list[Tensor]) -> None:
    """Raise `Unclear` for an autograd function of the user's own: its backward pass could do anything."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        own: Any = getattr(node, "_forward_cls", None)
        if own is not None and own not in OWN_FUNCTIONS:
            raise Unclear(f"the backward pass of {own.__name__} is not torch's own")
        fresh = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= fresh
        waiting += fresh


def _lay_out(call: Call, examiner: Examiner) -> CallLayout:
    shapes = tuple(tuple(shape) for shape in (*call.shapes, *call.outputs))
    arguments, outputs = (tuple(_find_place(t, examiner) for t in tensors) for tensors in (call.tensors, call.results))
    return CallLayout(call.function, shapes, arguments, outputs)


def _find_place(tensor: Tensor, examiner: Examiner) -> Rows | None:
    label = examiner.label(tensor)
    refuse_mixed(label)
    if label in (UNIFORM, POSITIONS):
        return find_room(tensor.shape, examiner.size)
    if isinstance(label, Rows) and label.outer > 1 and label.inner > 1:
        raise Unclear("the order of examples and entries in a flattened dimension is an unusual one")
    return label if isinstance(label, Rows) else None
