"""Where the examples are in every tensor of a forward pass: found once per model and loss, by one examined pass."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument, MixesExamples
from tacit.gradients.chains import chain_of
from tacit.gradients.engine import Unclear, refuse_inference_tensors
from tacit.gradients.examiner import Examiner, Step, refuse_different
from tacit.gradients.losses import Loss, whole_losses
from tacit.gradients.memory import attributes, held_tensors, refuse_changed, unchanged, undone
from tacit.gradients.models import eagerly, is_compiled, mixes, refuse_mixing, suspects
from tacit.gradients.places import POSITIONS, PUBLIC, UNIFORM, Mixed, Rows, is_private
from tacit.gradients.recording import Call, Record, Recorder
from tacit.gradients.recurrent import OWN_FUNCTIONS
from tacit.gradients.rules import Batched
from tacit.gradients.sequence import Followed, Sequence
from tacit.gradients.trees import replaced, tensors_in

Places = tuple[Batched | None, ...]

# So many examples are made for an examination: a number that divides no other size of the model.
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
# So many made lots are compared with their examples alone.
_DRAWS = 4
# What leaves torch, or comes back into the backward pass.
_LEAVING = {
    getattr(Tensor, name)
    for name in ("numpy", "tolist", "__array__", "__dlpack__", "untyped_storage", "storage", "register_hook")
}


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

    `forward` and `loss` are the sequences of operations that were examined. `suspects` are the layers that would mix
    examples if someone switched them to. `is_chain` says that every call is one of the Linears of a chain, on one row
    an example, and `is_compiled` that torch.compile has a hand in the model. `weight` is how many numbers go in and out
    of its calls for one example: about what must be kept until all norms are known. `writes` names the buffers that a
    pass writes to, with nothing of the examples in it, `settles` the attributes that the first pass sets once and for
    all, and `writes_inputs` says that a pass changes its inputs in place. `constants` tells, in their order, of the
    tensors that parameters met whether no example has a part in them. `proofs` counts the examples on which gradients
    were checked. A layout has a `doubt` if the examples cannot be followed, or if gradients that were made by it turned
    out wrong.
    """

    calls: tuple[CallLayout, ...]
    spread: frozenset[int] = frozenset()
    forward: Sequence = field(default_factory=lambda: Sequence(1))
    loss: Sequence = field(default_factory=lambda: Sequence(1))
    suspects: tuple[nn.Module, ...] = ()
    is_chain: bool = False
    is_compiled: bool = False
    weight: int = 0
    writes: frozenset[str] = frozenset()
    settles: frozenset[str] = frozenset()
    writes_inputs: bool = False
    constants: tuple[bool, ...] = ()
    doubt: str = ""
    proofs: int = 0


_KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[Any, tuple[Callable[[], object], Layout]]] = (
    weakref.WeakKeyDictionary()
)


def layout_of(
    model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any, *, anew: bool = False
) -> Layout:
    """The layout, remembered per model, loss, mode and shapes (without the lot size); examined `anew` if asked."""
    tensors = [inputs] if isinstance(inputs, Tensor) else list(tensors_in(inputs))
    tensors += [targets] if isinstance(targets, Tensor) else tensors_in(targets)
    key = (model.training, id(loss), *parameters, *[(tensor.shape[1:], tensor.dtype) for tensor in tensors])
    if tensors[0].is_inference():
        refuse_inference_tensors(inputs)
    known = _KNOWN.setdefault(model, {})
    of, layout = known.get(key, (None, None))
    if layout is None or of is None or of() is not loss or anew:
        refuse_mixing(model)
        try:
            layout = _examine(model, loss, parameters, inputs, targets)
        except Unclear as reason:
            layout = Layout((), doubt=str(reason))
        # What cannot be referred to weakly is examined every time. The loss is not kept alive: it may hold the model.
        with suppress(TypeError):
            known[key] = (weakref.ref(loss), layout)
    if layout.doubt:
        raise Unclear(layout.doubt)
    if any(mixes(module) for module in layout.suspects):
        refuse_mixing(model)
    return layout


def public_writes(model: nn.Module) -> frozenset[str]:
    """The buffers that passes through the model write to, with nothing of the examples: known once it was examined."""
    return frozenset().union(*(layout.writes for _, layout in _KNOWN.get(model, {}).values()))


def settled(model: nn.Module) -> frozenset[str]:
    """The attributes that the first pass through the model sets once and for all."""
    return frozenset().union(*(layout.settles for _, layout in _KNOWN.get(model, {}).values()))


def refuse_mixing_function(function: Callable[[Any], Any], inputs: Any) -> None:
    """Raise `MixesExamples` if what a function makes of one input depends on the others: examined on made ones."""
    size = next(prime for prime in _PRIMES if all(n % prime for t in tensors_in(inputs) for n in t.shape[1:]))
    made = _made(inputs, size)
    examiner = Examiner(list(tensors_in(made)), size, {})
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), examiner:
            results = list(tensors_in(function(made)))
        for result in results:
            _refuse_mixed(examiner.label(result))
    except Unclear:
        # Told apart by nobody: the guarantee lists it among its assumptions.
        return
    except Exception as error:
        if examiner.stopped is not None or isinstance(error, MixesExamples):
            raise
    finally:
        examiner.close()


def like_of(inputs: Any) -> Any:
    """Made inputs of the shapes and types of these."""
    return _made(inputs, 2)


def public_pass(model: nn.Module, inputs: Any) -> None:
    """Let a model update such buffers once, by a pass on made examples."""
    with torch.random.fork_rng(devices=[]), torch.no_grad(), eagerly(is_compiled(model)):
        apply(model, inputs)


def _examine(model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any) -> Layout:
    """Examine a pass on made examples; on some of the given ones where the model does not take those."""
    refuse_inference_tensors((inputs, parameters))
    sizes, more = _sizes(model, inputs, targets)
    try:
        try:
            return _examine_on(model, loss, parameters, inputs, targets, sizes)
        except MixesExamples:
            # Again with other sizes: some axis could have the length of the lot by chance.
            return _examine_on(model, loss, parameters, inputs, targets, more)
    except Unclear as reason:
        _refuse_unless_alone(model, loss, inputs, targets, str(reason))
        raise


def _examine_on(
    model: nn.Module, loss: Loss, parameters: dict[str, Tensor], inputs: Any, targets: Any, sizes: tuple[int, int]
) -> Layout:
    try:
        return _examine_twice(model, loss, parameters, inputs, targets, sizes, _made)
    except (Unclear, MixesExamples, InvalidArgument):
        raise
    except Exception:
        return _examine_twice(model, loss, parameters, inputs, targets, sizes, _tiled)


def _refuse_unless_alone(model: nn.Module, loss: Loss, inputs: Any, targets: Any, reason: str) -> None:
    """Raise `MixesExamples` if an example has another loss alone than in a lot: then the user means something else.

    Made examples only: a refusal that depended on the given ones would tell something of them. Losses that cannot be
    compared, because they are random or need a whole lot, are left to single passes.
    """
    with _copied(model, loss) as (copied, criterion, _):
        _refuse_kept(copied, criterion, _made(inputs, 3), _made(targets, 3))
    if _draws(model, loss, inputs, targets):
        return
    for seed in range(1, 1 + _DRAWS):
        made, wanted = _made(inputs, 3, seed), _made(targets, 3, 0)
        try:
            whole = _losses(model, loss, made, wanted)
            alone = [
                _losses(model, loss, *(replaced(tree, lambda t, i=i: t[i : i + 1]) for tree in (made, wanted)))  # type: ignore[misc]
                for i in range(3)
            ]
        except Exception:
            return
        if whole.dim() and not torch.allclose(whole, torch.cat(alone), 1e-3, 1e-6, equal_nan=True):
            raise MixesExamples(
                f"The loss of an example is another one when it is alone than in a lot ({reason}), so its gradient is "
                "not its own. Compute everything for each example by itself."
            )


def _refuse_kept(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> None:
    """Raise `MixesExamples` if made examples, one after the other, leave something in the model or the loss."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        suppress(RuntimeError, IndexError, ValueError, TypeError),
    ):
        for index in range(3):
            some, wanted = (replaced(tree, lambda t, i=index: t[i : i + 1]) for tree in (inputs, targets))  # type: ignore[misc]
            with unchanged(model, loss) if index else nullcontext():
                whole_losses(loss, apply(model, some), wanted, 1)


def _losses(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> Tensor:
    size = next(tensors_in(inputs)).shape[0]
    with _copied(model, loss) as (copied, criterion, _), torch.no_grad(), eagerly(is_compiled(model)):
        return whole_losses(criterion, apply(copied, inputs), targets, size)[0]


def _draws(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> bool:
    """Whether a pass draws random numbers from torch's generator, or fails on made examples."""
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        try:
            with _copied(model, loss) as (copied, criterion, _), torch.no_grad(), eagerly(is_compiled(model)):
                whole_losses(criterion, apply(copied, _made(inputs, 3)), _made(targets, 3), 3)
        except Exception:
            return True
        return not torch.equal(before, torch.get_rng_state())


def _examine_twice(
    model: nn.Module,
    loss: Loss,
    parameters: dict[str, Tensor],
    inputs: Any,
    targets: Any,
    sizes: tuple[int, int],
    make: Callable[[Any, int], Any],
) -> Layout:
    """Examine passes on two lots of different sizes, which must differ in nothing but the number of examples."""
    trails, left, layouts = list[list[Step]](), list[dict[str, object]](), list[Layout]()
    met = list[set[float]]()
    for size in sizes:
        with _copied(model, loss) as (copied, criterion, is_copy):
            tracked = dict(copied.named_parameters()) if is_copy else parameters
            before = dict(attributes(copied, criterion))
            layout, trail, values = _pass(
                copied,
                criterion,
                {name: tracked[name] for name in parameters},
                make(inputs, size),
                make(targets, size),
                size,
                is_compiled=is_compiled(model),
            )
            changed = {name: value for name, value in attributes(copied, criterion) if before.get(name) != value}
            if changed:
                _refuse_counters(copied, criterion, make(inputs, size), make(targets, size), size, is_compiled(model))
            left.append(changed)
            trails.append(trail)
            met.append(values)
            layouts.append(layout)
    refuse_changed([name for name in left[0] | left[1] if left[0].get(name) != left[1].get(name)])
    refuse_different(*trails)
    if met[0] != met[1]:
        raise Unclear("the examples meet values that depend on how many there are")
    _refuse_other_shapes(layouts[0], layouts[1], sizes[1])
    layouts[0].settles = frozenset(left[0])
    return layouts[0]


def _refuse_counters(model: nn.Module, loss: Loss, inputs: Any, targets: Any, size: int, is_compiled: bool) -> None:
    """Raise `MixesExamples` if a second pass changes an attribute again: it would count the lots that are not empty."""
    before = dict(attributes(model, loss))
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), eagerly(is_compiled):
        whole_losses(loss, apply(model, inputs), targets, size)
    refuse_changed([name for name, value in attributes(model, loss) if before.get(name) != value])


def _refuse_other_shapes(one: Layout, other: Layout, size: int) -> None:
    if len(one.calls) != len(other.calls):
        raise Unclear("the model does different things for different lots")
    for call, its in zip(one.calls, other.calls, strict=True):
        places = zip(call.shapes, call.arguments + call.outputs, strict=True)
        if [shape if place is None else place.resized(shape, size) for shape, place in places] != list(its.shapes):
            raise Unclear("a tensor's size is not proportional to the lot size in exactly one dimension")


def _sizes(model: nn.Module, inputs: Any, targets: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Pairs of numbers of examples that divide no other size of the model, so that no axis is taken for another."""
    shapes = [tensor.shape[1:] for tensor in tensors_in((inputs, targets))]
    shapes += [tensor.shape for tensor in (*model.parameters(), *model.buffers())]
    lengths = {length for shape in shapes for length in shape}
    free = [prime for prime in _PRIMES if not any(length % prime == 0 for length in lengths)]
    first, second, third, fourth = (free + list(_PRIMES[-4:]))[:4]
    return (first, second), (third, fourth)


def _made(tree: Any, size: int, seed: int = 0) -> Any:
    """Examples of the same shapes and types that hold nothing of the given ones."""
    # A generator of its own: what the user's models draw must not depend on whether there was an examination.
    generator = torch.Generator().manual_seed(seed)

    def make(tensor: Tensor) -> Tensor:
        shape = (size, *tensor.shape[1:])
        if tensor.is_floating_point() or tensor.is_complex():
            # Between 0 and 1, as images, probabilities and scaled columns are; with a seed, of both signs.
            draw = torch.randn if seed else torch.rand
            return draw(shape, generator=generator).to(tensor.device, tensor.dtype)
        # The two numbers that most tables and lists of classes have.
        return torch.randint(2, shape, generator=generator).to(tensor.device, tensor.dtype)

    return replaced(tree, make)


def _tiled(tree: Any, size: int) -> Any:
    return replaced(tree, lambda tensor: tensor[torch.arange(size, device=tensor.device) % len(tensor)].clone())


@contextmanager
def _copied(model: nn.Module, loss: Loss) -> Iterator[tuple[nn.Module, Loss, bool]]:
    """Copies to try things on; where there can be none, the model itself, whose buffers are put back afterwards."""
    try:
        copied, criterion = (
            copy.deepcopy((model, loss)) if isinstance(loss, nn.Module) else (copy.deepcopy(model), loss)
        )
    except Exception:
        with undone(model):
            yield model, loss, False
    else:
        yield copied, criterion, True


def _pass(
    model: nn.Module,
    loss: Loss,
    parameters: dict[str, Tensor],
    inputs: Any,
    targets: Any,
    size: int,
    *,
    is_compiled: bool,
) -> tuple[Layout, list[Step], set[float]]:
    """Run model and loss under examination; what was found out, and the trail of all operations."""
    lot = list(tensors_in((inputs, targets)))
    examiner = Examiner(lot, size, {t.untyped_storage()._cdata: name for name, t in held_tensors(model, loss)})
    forward, criterion, spread = Sequence(size), Sequence(size), set[int]()

    def see(sequence: Sequence) -> Callable[..., None]:
        def note(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
            examiner.calling = function
            if function in _LEAVING and any(is_private(examiner.label(t)) for t in tensors_in(args)):
                raise Unclear(f"{function.__name__} takes values of the examples out of torch")
            sequence.note(function, args, kwargs)

        return note

    def is_spread(value: Tensor, number: int) -> bool:
        if isinstance(examiner.label(value), Rows):
            spread.add(number)
        return number in spread

    def is_constant(tensors: list[Tensor]) -> bool:
        constants.append(all(examiner.label(tensor) is PUBLIC for tensor in tensors))
        return constants[-1]

    constants: list[bool] = []
    recorder = Recorder(parameters, is_spread, is_constant, see(forward), keeps_results=True)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), eagerly(is_compiled), examiner:
            with recorder:
                outputs = apply(model, inputs)
            steps = len(examiner.trail)
            with Followed(see(criterion)):
                values = whole_losses(loss, outputs, targets, size)[0]
        if not values.dim():
            # A single number for the lot: the loss is applied to every example alone.
            del examiner.trail[steps:]
        examiner.refuse_kept(held_tensors(model, loss))
        if values.dim():
            label = examiner.label(values)
            _refuse_mixed(label)
            if isinstance(label, Rows) and (label.axis, label.outer, label.inner) != (0, 1, 1):
                raise Unclear("the losses are not in the order of the examples")
        calls = tuple(_layout(call, examiner) for call in recorder.record.calls)
        _refuse_own_functions([values, *tensors_in(outputs)])
        layout = Layout(
            calls,
            frozenset(spread),
            forward,
            criterion,
            suspects(model),
            _is_chain(model, recorder.record.calls),
            is_compiled,
            _weight(calls, size),
            frozenset(examiner.writes),
            writes_inputs=examiner.writes_lot,
            constants=tuple(constants),
        )
        recorder.record = Record({})
        del outputs, values
        examiner.refuse_survivors({tensor.untyped_storage()._cdata for tensor in lot})
        return layout, examiner.trail, examiner.values
    except Exception as error:
        raise (examiner.stopped or error) from None
    finally:
        examiner.close()


def _weight(calls: tuple[CallLayout, ...], size: int) -> int:
    return sum(
        math.prod(shape) // size
        for call in calls
        for shape, place in zip(call.shapes, call.arguments + call.outputs, strict=True)
        if place is not None
    )


def _refuse_mixed(label: object) -> None:
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


def _layout(call: Call, examiner: Examiner) -> CallLayout:
    shapes = tuple(tuple(shape) for shape in (*call.shapes, *call.outputs))
    arguments = tuple(_place(tensor, examiner) for tensor in call.tensors)
    return CallLayout(call.function, shapes, arguments, tuple(_place(tensor, examiner) for tensor in call.results))


def _place(tensor: Tensor, examiner: Examiner) -> Batched | None:
    label = examiner.label(tensor)
    _refuse_mixed(label)
    if label in (UNIFORM, POSITIONS):
        axes = [axis for axis, length in enumerate(tensor.shape) if length % examiner.size == 0]
        return Batched(axes[0], tensor.shape[axes[0]] // examiner.size) if len(axes) == 1 else None
    if not isinstance(label, Rows):
        return None
    if label.outer > 1 and label.inner > 1:
        raise Unclear("the order of examples and entries in a flattened dimension is an unusual one")
    return Batched(label.axis, label.outer * label.inner, is_minor=label.outer > 1)


def _is_chain(model: nn.Module, calls: list[Call]) -> bool:
    linears = [layer for layer in chain_of(model) or () if type(layer) is nn.Linear]
    if not linears or len(linears) != len(calls):
        return False
    pairs = zip(linears, calls, strict=True)
    return all(call.args[1] is layer.weight and call.args[0].dim() == 2 for layer, call in pairs)


def apply(model: Callable[..., Any], inputs: Any) -> Any:
    """model(inputs); a tuple or dictionary of inputs is spread over the arguments."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(inputs)
