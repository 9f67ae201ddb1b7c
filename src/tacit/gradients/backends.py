"""Two ways to per-example gradients: book-keeping (one backward pass, rules per operation) and vmap (any model)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from tacit.gradients.layout import CallLayout, Unclear, apply, layout_of
from tacit.gradients.losses import Loss, per_example_losses
from tacit.gradients.pieces import DensePiece, Piece, merged
from tacit.gradients.recording import Call, Derived, Record, Recorder, replaced, tensors_in
from tacit.gradients.rules import RULES, Batched

Tensors = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class LotGradients:
    """The gradients of one lot, example by example: private. Made of pieces, at most a few per parameter."""

    parameters: Tensors
    pieces: dict[str, list[Piece]]
    losses: Tensor

    def __len__(self) -> int:
        return self.losses.shape[0]

    @cached_property
    def _single(self) -> dict[str, Piece]:
        """One piece a parameter: several uses of one parameter are added up before their norm is taken."""
        return {name: merged(pieces, self.parameters[name].shape) for name, pieces in self.pieces.items()}

    @cached_property
    def _norms_by_name(self) -> Tensors:
        return {name: piece.norms() for name, piece in self._single.items()}

    def layer_norms(self) -> Tensors:
        """[B] for each parameter: the norm of its part of each example's gradient."""
        zero = self.losses.new_zeros(len(self))
        return {name: self._norms_by_name.get(name, zero) for name in self.parameters}

    @cached_property
    def _norms(self) -> Tensor:
        norms = list(self._norms_by_name.values())
        if not norms:
            return self.losses.new_zeros(len(self))
        return norms[0] if len(norms) == 1 else torch.stack(norms).square_().sum(0).sqrt_()

    @cached_property
    def _is_finite(self) -> bool:
        return math.isfinite(self._norms.sum().item())

    def norms(self) -> Tensor:
        """[B]: each example's gradient norm over all trainable parameters; NaN or infinite if it is not finite."""
        return self._norms

    def scaled_norms(self, scale: Mapping[str, Tensor]) -> Tensor:
        """[B]: the norms of gradients whose every coordinate is multiplied by its scale: a number for each coordinate
        of a parameter, or a single one. The gradients are not formed, or only some examples' at a time."""
        squares = self.losses.new_zeros(len(self))
        for name, piece in self._single.items():
            by, single = scale[name], self.parameters[name].numel() > scale[name].numel()
            norms = self._norms_by_name[name] * by.abs() if single else piece.scaled_norms(by)
            squares = squares + norms.square()
        return squares.sqrt_()

    def products(self, vectors: Mapping[str, Tensor]) -> Tensor:
        """[B]: the inner product of each example's gradient with one vector."""
        each = (piece.products(vectors[name]) for name, piece in self._single.items())
        return sum(each, self.losses.new_zeros(len(self)))

    def weighted_sum(self, weights: Tensor) -> Tensors:
        """Sum over examples of weight times gradient. At weight zero an example adds zero, even if not finite."""
        return self.weighted_sum_by_layer(dict.fromkeys(self.parameters, weights))

    def weighted_sum_by_layer(self, weights: Tensors) -> Tensors:
        """The same with weights for each parameter by itself."""
        result: Tensors = {}
        for name, parameter in self.parameters.items():
            piece = self._single.get(name)
            if piece is None or len(self) == 0:
                result[name] = torch.zeros_like(parameter)
                continue
            if not self._is_finite:
                piece = piece.without((weights[name] == 0) & ~self._norms.isfinite())
            result[name] = piece.weighted_sum(weights[name]).view_as(parameter)
        return result

    def dense(self) -> Tensors:
        """[B, ...] for each parameter: as much memory as B copies of the model."""
        result: Tensors = {}
        for name, parameter in self.parameters.items():
            piece = self._single.get(name)
            shape = (len(self), *parameter.shape)
            result[name] = parameter.new_zeros(shape) if piece is None else piece.dense().view(shape)
        return result


def bookkeeping(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """One forward pass that is watched, one backward pass to the outputs of what was seen, and a rule for each."""
    size = _lot_size(inputs)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    layout = layout_of(model, parameters, inputs)
    recorder = Recorder(parameters, layout.spread)
    with torch.enable_grad():
        with recorder:
            outputs = apply(model, inputs)
        values = per_example_losses(loss, outputs, targets, size)
        record = recorder.record
        if len(record.calls) != len(layout.calls):
            raise Unclear("the model did not do the same as in the probe")
        edges = [edge for call in record.calls for edge in call.edges if edge is not None]
        grads = iter(_pulled_back(values, edges) if edges else ())
    pieces: dict[str, list[Piece]] = {}
    with torch.no_grad(), _full_precision(values.device.type):
        for call, places in zip(record.calls, layout.calls, strict=True):
            given = [next(grads) if edge is not None else None for edge in call.edges]
            if any(grad is not None for grad in given):
                _collect(record, call, places, given, pieces, size)
    return LotGradients(parameters, pieces, values.detach())


def _pulled_back(values: Tensor, edges: list[GradientEdge]) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of all losses; from ones, which spares the sum."""
    return torch.autograd.grad((values,), edges, (torch.ones_like(values),), allow_unused=True)


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Norms and sums are never taken in half precision. Leaving autocast takes time, so only if it is on."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


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
    is_plain = not any(id(t) in record.derived for t in call.tensors)
    if rule is not None and is_plain and place is not None and len(grads) == 1 and grads[0] is not None:
        x = layout.arguments[0]
        if x is not None and (place.axis == x.axis == 0 or call.function in _ANY_AXIS):
            found = rule(call, place.front(grads[0]), x.front)
    if found:
        for key, piece in found.items():
            if key in record.names:
                pieces.setdefault(record.names[key], []).append(piece)
        return
    by_example = _by_vmap if any(place is not None for place in layout.arguments) else _by_cotangent
    for name, values in by_example(record, call, layout, grads, size).items():
        pieces.setdefault(name, []).append(DensePiece(values))


# Operations on the last dimension or on single tokens do not mind where the examples are.
_ANY_AXIS = {torch.nn.functional.linear, torch.nn.functional.embedding}


def _by_vmap(record: Record, call: Call, layout: CallLayout, grads: list[Tensor | None], size: int) -> Tensors:
    """Per-example gradients of any operation: its own vector-Jacobian product, vectorised over the examples."""
    leaves = _leaves(record, call)
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
            result = list(tensors_in(_replay(record, call.function, call.args, call.kwargs, swap)))
            return tuple(result[i] for i, _, _ in cotangents)

        return _pulled(run, _values(record, call, leaves), tuple(wanted))

    stacked = {key: _front(value.detach(), places[key]) for key, value in batched.items()}
    cotangent = tuple(_front(g, place) for _, g, place in cotangents)
    with _quiet():
        gradients: Tensors = torch.func.vmap(alone, randomness="same")(stacked, cotangent)
    return gradients


def _by_cotangent(record: Record, call: Call, layout: CallLayout, grads: list[Tensor | None], size: int) -> Tensors:
    """A parameter spread over the examples: each example's share of the output's gradient, pulled back by itself."""
    leaves = _leaves(record, call)
    cotangents = [(i, g, layout.outputs[i]) for i, g in enumerate(grads) if g is not None]

    def run(given: Tensors) -> tuple[Tensor, ...]:
        swap = {key: given[name] for name, key in leaves.items()}
        result = list(tensors_in(_replay(record, call.function, call.args, call.kwargs, swap)))
        return tuple(result[i] for i, _, _ in cotangents)

    values = _values(record, call, leaves)

    def alone(example: Tensor) -> Tensors:
        masked = []
        for _, grad, place in cotangents:
            if place is None or place.fold > 1:
                raise Unclear("a parameter is spread over the examples in an unusual way")
            shape = [-1 if axis == place.axis else 1 for axis in range(grad.dim())]
            # Not a product: another example's gradient may be NaN.
            masked.append(torch.where(example.view(shape), grad, 0.0))
        return _pulled(run, values, tuple(masked))

    with _quiet():
        gradients: Tensors = torch.func.vmap(alone)(torch.eye(size, dtype=torch.bool))
    return gradients


def _values(record: Record, call: Call, leaves: dict[str, int]) -> Tensors:
    """The tracked parameters behind this call, by name."""
    found = {id(tensor): tensor.detach() for tensor in _ancestors(record, call)}
    return {name: found[key] for name, key in leaves.items()}


def _pulled(run: Callable[[Tensors], tuple[Tensor, ...]], values: Tensors, cotangents: tuple[Tensor, ...]) -> Tensors:
    """The vector-Jacobian product of `run`."""
    pull = torch.func.vjp(run, values)[1]
    gradients: Tensors = pull(cotangents)[0]
    return gradients


def _ancestors(record: Record, call: Call) -> list[Tensor]:
    """The tracked parameters from which this call's arguments come."""
    found: dict[int, Tensor] = {}
    waiting = list(call.tensors)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in record.names:
            found[id(tensor)] = tensor
        elif id(tensor) in record.derived:
            source = record.derived[id(tensor)]
            waiting += list(tensors_in((source.args, source.kwargs)))
    return list(found.values())


def _leaves(record: Record, call: Call) -> dict[str, int]:
    return {record.names[id(tensor)]: id(tensor) for tensor in _ancestors(record, call)}


def _replay(
    record: Record, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], swap: dict[int, Tensor]
) -> Any:
    """The same operation on other values; derived tensors are derived anew."""

    def change(tensor: Tensor) -> Any:
        if id(tensor) in swap:
            return swap[id(tensor)]
        source: Derived | None = record.derived.get(id(tensor))
        if source is None:
            return tensor.detach()
        value = _replay(record, source.function, source.args, source.kwargs, swap)
        return value if source.index is None else value[source.index]

    return function(*replaced(args, change), **replaced(kwargs, change))


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
    size = _lot_size(inputs)
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
        return result, result.detach()

    gradient = torch.func.grad(value, has_aux=True)
    given = {name: parameter.detach() for name, parameter in parameters.items()}
    vectorised = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
    with _quiet():
        dense, losses = vectorised(given, inputs, targets)
    pieces: dict[str, list[Piece]] = {name: [DensePiece(values)] for name, values in dense.items()}
    return LotGradients(parameters, pieces, losses)


def one_by_one(model: nn.Module, loss: Loss, inputs: Any, targets: Any, parameters: Tensors) -> LotGradients:
    """A backward pass for every example alone: slow, and right for whatever runs at all."""
    size = _lot_size(inputs)
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    losses = []
    for index in range(size):

        def pick(value: Tensor, index: int = index) -> Tensor:
            return value[index : index + 1]

        with torch.enable_grad():
            outputs = apply(model, replaced(inputs, pick))
            value = per_example_losses(loss, outputs, replaced(targets, pick), 1)[0]
            found: tuple[Tensor | None, ...] = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        losses.append(value.detach())
        for (name, parameter), grad in zip(parameters.items(), found, strict=True):
            rows[name].append(torch.zeros_like(parameter) if grad is None else grad)
    if size == 0:
        return LotGradients(parameters, {}, torch.zeros(0))
    pieces: dict[str, list[Piece]] = {name: [DensePiece(torch.stack(values))] for name, values in rows.items()}
    return LotGradients(parameters, pieces, torch.stack(losses))


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.func warns where it has to loop; the answer is the same."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


def _lot_size(inputs: Any) -> int:
    return next(tensors_in(inputs)).shape[0]
