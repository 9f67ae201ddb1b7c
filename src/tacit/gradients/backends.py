"""Two ways to per-example gradients: book-keeping (one backward pass, rules per operation) and vmap (any model)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import MixesExamples
from tacit.gradients.chains import chain_gradients, chain_of
from tacit.gradients.derived import leaves_of, parameters_of, pulled, replay, to_parameters
from tacit.gradients.engine import Unclear, full_precision, precise, refuse_constant
from tacit.gradients.entropy import losses_and_gradients
from tacit.gradients.layout import CallLayout, Layout, apply, layout_of
from tacit.gradients.losses import Loss, per_example_losses
from tacit.gradients.lot import LotGradients, Tensors
from tacit.gradients.memory import is_same, unchanged, undone
from tacit.gradients.models import eagerly
from tacit.gradients.pieces import DensePiece, Piece
from tacit.gradients.proof import refuse_unless_proven
from tacit.gradients.recording import Call, Record, Recorder
from tacit.gradients.recurrent import two_linears
from tacit.gradients.rules import RULES, Batched
from tacit.gradients.sequence import Different, Follower
from tacit.gradients.trees import replaced, tensors_in

# On so many examples gradients are checked before a layout is trusted, and so many ways through a model are tried.
_ENOUGH, _TRIES = 32, 3


def bookkeeping(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, layout: Layout | None = None
) -> LotGradients:
    """One forward pass that is watched, one backward pass to the outputs of what was seen, and a rule for each."""
    if lot_size_of(inputs) == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    if layout is None or layout.doubt:
        layout = layout_of(model, loss, parameters, inputs, targets)
    with nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
        for _ in range(_TRIES):
            if layout.writes_inputs:
                inputs, targets = (replaced(tree, torch.clone) for tree in (inputs, targets))
            try:
                if layout.proofs < _ENOUGH:
                    _prove(model, loss, inputs, targets, parameters, layout)
                return _by_rules(model, loss, inputs, targets, parameters, layout)
            except Different:
                # Another way through the model: examined before anything is released from it.
                layout.doubt = "the model did something else on a later lot"
                layout = layout_of(model, loss, parameters, inputs, targets, anew=True)
        raise Unclear("the model does different things for different lots")


def _prove(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, layout: Layout) -> None:
    """Check gradients made by the layout on the first examples of a lot; `Unclear`, for good, if they are wrong.

    Examples whose gradients are not finite are left out: they prove nothing, and count zero later.
    """

    def check(kept: Any) -> Tensor:
        # Copies: some models change their inputs in place.
        some, wanted = (replaced(tree, lambda tensor: tensor[kept].clone()) for tree in (inputs, targets))
        with torch.random.fork_rng(devices=[]), undone(model):
            return _by_rules(model, loss, some, wanted, parameters, layout, is_proof=True).norms()

    try:
        finite = check(slice(0, _ENOUGH)).isfinite()
        if bool(finite.any()) and not bool(finite.all()):
            check(finite.nonzero().flatten())
    except Different:
        raise
    except Unclear as reason:
        layout.doubt = str(reason)
        raise
    layout.proofs += int(finite.sum())


def _by_rules(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    parameters: Tensors,
    layout: Layout,
    *,
    is_proof: bool = False,
) -> LotGradients:
    chain = chain_of(model) if layout.is_chain and isinstance(inputs, Tensor) else None
    if chain is not None:
        return chain_gradients(chain, loss, inputs, targets, parameters, layout.loss, is_proof=is_proof)
    size = lot_size_of(inputs)
    follower = Follower(layout.forward, size)
    # In the order of the examination: what else a parameter met was the same for all examples, or not.
    constants = iter(layout.constants)
    recorder = Recorder(
        parameters, lambda _, number: number in layout.spread, lambda _: next(constants, False), follower.see
    )
    with eagerly(layout.is_compiled), recorder:
        outputs = apply(model, inputs)
    follower.finish()
    record = recorder.record
    if len(record.calls) != len(layout.calls) or not all(
        places.fits(call, size) for call, places in zip(record.calls, layout.calls, strict=True)
    ):
        raise Unclear("the model did not do the same as in the examination")
    edges = [edge for call in record.calls for edge in call.edges if edge is not None]
    values, found = losses_and_gradients(loss, outputs, targets, size, edges, layout.loss, is_proof=is_proof)
    # Taken away one by one: of many, less is kept than was found.
    waiting = [*reversed(found)]
    del found
    pieces: dict[str, list[Piece]] = {}
    with torch.no_grad(), full_precision(values.device.type):
        for call, places in zip(record.calls, layout.calls, strict=True):
            given = [waiting.pop() if edge is not None else None for edge in call.edges]
            if any(grad is not None for grad in given):
                _collect(record, call, places, given, pieces, size)
    gradients = LotGradients.of(parameters, pieces, values.detach())
    if is_proof:
        refuse_unless_proven(values, gradients)
    return gradients


def _collect(
    record: Record,
    call: Call,
    layout: CallLayout,
    grads: list[Tensor | None],
    pieces: dict[str, list[Piece]],
    size: int,
) -> None:
    """Put what one call contributes into `pieces`."""
    if not call.is_untouched():
        raise Unclear("an input was overwritten in place after it was used")
    rule = RULES.get(call.function)
    found: dict[int, Piece] = {}
    place = layout.outputs[0]
    if rule is not None and place is not None and len(grads) == 1 and grads[0] is not None:
        x = layout.arguments[0]
        if x is not None and (place.axis == x.axis == 0 or call.function in _ANY_AXIS):
            found = rule(call, place.front(grads[0]), x.front)
    if found:
        for key, piece in found.items():
            if key in record.names:
                pieces.setdefault(record.names[key], []).append(piece)
            elif key in record.derived:
                derived = record.derived[key].value
                _add_dense(_vectorised(call, to_parameters, record, derived, piece.dense()), pieces)
        return
    by_example = _by_vmap if any(place is not None for place in layout.arguments) else _by_cotangent
    _add_dense(_vectorised(call, by_example, record, call, layout, grads, size), pieces)


def _add_dense(found: Tensors, pieces: dict[str, list[Piece]]) -> None:
    for name, values in found.items():
        pieces.setdefault(name, []).append(DensePiece(values.to(precise(values.dtype))))


def _vectorised(call: Call, by_example: Callable[..., Tensors], *rest: Any) -> Tensors:
    # The recurrent cells of oneDNN cannot be vectorised, those of torch can.
    is_enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with _quiet():
            return by_example(*rest)
    except RuntimeError as error:
        raise Unclear(f"{call.function} cannot be vectorised") from error
    finally:
        torch._C._set_mkldnn_enabled(is_enabled)


# Operations on the last dimension or on single tokens do not mind where the examples are.
_ANY_AXIS = {torch.nn.functional.linear, torch.nn.functional.embedding, two_linears}


def _by_vmap(record: Record, call: Call, layout: CallLayout, grads: list[Tensor | None], size: int) -> Tensors:
    """Per-example gradients of any operation: its own vector-Jacobian product, vectorised over the examples."""
    leaves = leaves_of(record, call.tensors)
    places = dict(zip((id(t) for t in call.tensors), layout.arguments, strict=True))
    batched = {id(t): t for t in call.tensors if places[id(t)] is not None}
    cotangents = [(i, g, layout.outputs[i]) for i, g in enumerate(grads) if g is not None]
    if any(place is None for _, _, place in cotangents):
        raise Unclear("an output without examples depends on a parameter")

    def alone(examples: dict[int, Tensor], cotangent: tuple[Tensor, ...]) -> Tensors:
        lot = {key: _alone(value, places[key]) for key, value in examples.items()}
        wanted = [_alone(value, place) for value, (_, _, place) in zip(cotangent, cotangents, strict=True)]

        def run(given: Tensors) -> tuple[Tensor, ...]:
            swap = {key: given[name] for name, key in leaves.items()} | lot
            result = list(tensors_in(replay(record, call.function, call.args, call.kwargs, swap)))
            return tuple(result[i] for i, _, _ in cotangents)

        return pulled(run, parameters_of(record, call.tensors), tuple(wanted))

    stacked = {key: _front(value.detach(), places[key]) for key, value in batched.items()}
    cotangent = tuple(_front(g, place) for _, g, place in cotangents)
    gradients: Tensors = torch.func.vmap(alone, randomness="same")(stacked, cotangent)
    return gradients


def _by_cotangent(record: Record, call: Call, layout: CallLayout, grads: list[Tensor | None], size: int) -> Tensors:
    """A parameter spread over the examples: each example's share of the output's gradient, pulled back by itself."""
    leaves = leaves_of(record, call.tensors)
    cotangents = [(i, g, layout.outputs[i]) for i, g in enumerate(grads) if g is not None]

    def run(given: Tensors) -> tuple[Tensor, ...]:
        swap = {key: given[name] for name, key in leaves.items()}
        result = list(tensors_in(replay(record, call.function, call.args, call.kwargs, swap)))
        return tuple(result[i] for i, _, _ in cotangents)

    values = parameters_of(record, call.tensors)

    def alone(example: Tensor) -> Tensors:
        masked = []
        for _, grad, place in cotangents:
            if place is None or place.fold > 1:
                raise Unclear("a parameter is spread over the examples in an unusual way")
            shape = [-1 if axis == place.axis else 1 for axis in range(grad.dim())]
            # Not a product: another example's gradient may be NaN.
            masked.append(torch.where(example.view(shape), grad, 0.0))
        return pulled(run, values, tuple(masked))

    gradients: Tensors = torch.func.vmap(alone)(torch.eye(size, dtype=torch.bool))
    return gradients


def _front(value: Tensor, place: Batched | None) -> Tensor:
    assert place is not None
    return place.front(value)


def _alone(value: Tensor, place: Batched | None) -> Tensor:
    """One example's part as a lot of one, in the layout that the operation expects."""
    assert place is not None
    if place.fold > 1:
        return value.movedim(0, place.axis) if place.axis else value
    return value.unsqueeze(place.axis)


def by_vmap(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """torch.func over the whole model: for models whose examples cannot be followed. Dense, hence heavy."""
    size = lot_size_of(inputs)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    rest = {k: v.detach() for k, v in (*model.named_parameters(), *model.named_buffers()) if k not in parameters}

    def value(given: Tensors, example: Any, target: Any) -> tuple[Tensor, Tensor]:
        lot, wanted = replaced(example, lambda t: t.unsqueeze(0)), replaced(target, lambda t: t.unsqueeze(0))
        arguments = lot if isinstance(lot, tuple) else () if isinstance(lot, dict) else (lot,)
        outputs = torch.func.functional_call(
            model, {**rest, **given}, arguments, lot if isinstance(lot, dict) else None
        )
        result = per_example_losses(loss, outputs, wanted, 1)[0]
        refuse_constant(result)
        return result, result.detach()

    gradient = torch.func.grad(value, has_aux=True)
    given = {name: parameter.detach() for name, parameter in parameters.items()}
    vectorised = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
    with _quiet(), unchanged(model, loss):
        dense, losses = vectorised(given, *(replaced(tree, torch.clone) for tree in (inputs, targets)))
    if any(values.requires_grad for values in dense.values()):
        raise Unclear("it uses a tensor that was made from its parameters before, whose share torch.func cannot see")
    pieces: dict[str, list[Piece]] = {
        name: [DensePiece(values.to(precise(values.dtype)))] for name, values in dense.items()
    }
    return LotGradients.of(parameters, pieces, losses)


def one_by_one(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """A backward pass for every example alone: slow, and right for whatever runs at all and keeps nothing.

    The first example goes through twice, before and after the others: what it gives must not depend on them.
    """
    size = lot_size_of(inputs)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    random = torch.get_rng_state()
    with unchanged(model, loss):
        found = [_alone_pass(model, loss, inputs, targets, parameters, index) for index in range(size)]
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random)
            again = _alone_pass(model, loss, inputs, targets, parameters, 0)
    if size > 1 and not all(map(is_same, again, found[0])):
        raise MixesExamples(
            "An example has another gradient when other examples have gone through the model or the loss before it, "
            "so something of them is kept. Store nothing of an example."
        )
    losses, *rows = zip(*found, strict=True)
    pieces: dict[str, list[Piece]] = {
        name: [DensePiece(torch.stack(values).to(precise(values[0].dtype)))]
        for name, values in zip(parameters, rows, strict=True)
    }
    return LotGradients.of(parameters, pieces, torch.stack(losses))


def _alone_pass(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors, index: int
) -> list[Tensor]:
    """The loss of one example and its gradients, parameter by parameter."""

    def pick(value: Tensor) -> Tensor:
        return value[index : index + 1].clone()

    with torch.enable_grad():
        outputs = apply(model, replaced(inputs, pick))
        value = per_example_losses(loss, outputs, replaced(targets, pick), 1)[0]
        # The loss of an example may be a constant, where the model or the loss has cases: its gradient is zero.
        found: tuple[Tensor | None, ...] = (None,) * len(parameters)
        if value.requires_grad:
            found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
    gradients = [
        torch.zeros_like(parameter) if grad is None else grad
        for parameter, grad in zip(parameters.values(), found, strict=True)
    ]
    return [value.detach(), *gradients]


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.func warns where it has to loop; the answer is the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


def lot_size_of(inputs: Any) -> int:
    """How many examples there are: the first dimension of the first tensor."""
    return (inputs if isinstance(inputs, Tensor) else next(tensors_in(inputs))).shape[0]
