"""Recurrent layers and cells as torch computes them, taken apart into the linear maps that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.engine import full_precision
from tacit.gradients.recurrences import Given, Gru, Lstm, Recurrence, Simple, Trace, Way, Weights, back, run

_NAMES = (
    "input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first",
)  # fmt: skip
_CELL_NAMES = ("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh")


class Watcher(Protocol):
    """Who wants to know which operation used which parameter."""

    def note(self, function: Callable[..., Any], args: tuple[Any, ...], result: Tensor) -> Tensor: ...
    def is_tracked(self, values: Iterable[Any]) -> bool: ...


def two_linears(
    x: Tensor, state: Tensor, weight: Tensor, state_weight: Tensor, bias: Tensor | None, state_bias: Tensor | None
) -> Tensor:
    """What goes into a recurrence: of the input, and of the state before. Both have one and the same gradient."""
    return F.linear(x, weight, bias) + F.linear(state, state_weight, state_bias)


def recurrent_layers(recurrence: Recurrence, args: tuple[Any, ...], kwargs: dict[str, Any], watcher: Watcher) -> Any:
    """What torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu give; None for their rarer forms.

    Under autocast everything is done in full precision.
    """
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    # Packed sequences come with other arguments, and projections with one weight more.
    if given.keys() != set(_NAMES) or not isinstance(given["has_biases"], bool):
        return None
    x, weights, layers, ways = given["input"], given["params"], given["num_layers"], 2 if given["bidirectional"] else 1
    count = 4 if given["has_biases"] else 2
    first = _states(recurrence, given["hx"])
    is_whole = x.dim() == 3 and 0 not in x.shape and len(weights) == layers * ways * count
    if not is_whole or not _is_usual([x, *first], weights[0], watcher):
        return None
    each = [Weights(*weights[i : i + count]) for i in range(0, len(weights), count)]
    with full_precision(x.device.type):
        x, first = x.to(each[0].input.dtype), [state.to(each[0].input.dtype) for state in first]
        x = (x.transpose(0, 1) if given["batch_first"] else x).contiguous()
        lasts = []
        for layer in range(layers):
            if layer and given["dropout"] and given["train"]:
                x = F.dropout(x, given["dropout"])
            outputs = []
            for place in range(layer * ways, (layer + 1) * ways):
                starts = tuple(state[place] for state in first)
                way = Way(x.shape[0], is_reversed=place % ways == 1)
                output, *last = _one_way(recurrence, x, each[place], starts, way, watcher)
                outputs.append(output)
                lasts.append(last)
            x = torch.cat(outputs, 2) if ways == 2 else outputs[0]
    x = x.transpose(0, 1) if given["batch_first"] else x
    return x, *(torch.stack(last) for last in zip(*lasts, strict=True))


def _states(recurrence: Recurrence, given: Any) -> list[Tensor]:
    return list(given) if isinstance(recurrence, Lstm) else [given]


def _is_usual(values: list[Tensor], weight: Tensor, watcher: Watcher) -> bool:
    """Inputs and states are of one kind of numbers, and none is made of parameters only."""
    is_autocast = torch.is_autocast_enabled(weight.device.type)
    return (is_autocast or all(value.dtype == weight.dtype for value in values)) and not watcher.is_tracked(values)


def _one_way(
    recurrence: Recurrence, x: Tensor, weights: Weights, first: tuple[Tensor, ...], way: Way, watcher: Watcher
) -> tuple[Tensor, ...]:
    """All states [T, B, H] of one layer in one direction, the last one, and the last cell."""
    with torch.no_grad():
        trace = run(recurrence, x, weights, first, way)
    before = way.before(trace.states)
    of_inputs = _linear(x.detach(), weights.input, weights.input_bias)
    of_states = _linear(before, weights.state, weights.state_bias)
    if isinstance(recurrence, Gru):
        of_inputs = watcher.note(F.linear, (x, weights.input, weights.input_bias), of_inputs)
        of_states = watcher.note(F.linear, (before, weights.state, weights.state_bias), of_states)
    else:
        args = (x, before, weights.input, weights.state, weights.input_bias, weights.state_bias)
        # Both have the same gradient; it comes where one is needed.
        watcher.note(two_linears, args, of_states if of_states.requires_grad else of_inputs)
    cell = first[1] if len(first) > 1 else None
    found = _recurrence(of_inputs, of_states, x, first[0], cell, recurrence, weights, trace, way)
    return tuple(value for value in found if value is not None)


class _Linear(torch.autograd.Function):
    """A linear map of all times, after the fact: its values were used already, the gradients of its weights are due."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        return x.new_empty(*x.shape[:2], weight.shape[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        flat = grads.flatten(0, 1)
        return None, flat.t() @ x.flatten(0, 1), flat.sum(0) if ctx.needs_input_grad[2] else None


class _Recurrence(torch.autograd.Function):
    """What a recurrence went through as a function of what it was given: the gradients are found by hand."""

    @staticmethod
    def forward(
        ctx: Any,
        of_inputs: Tensor,
        of_states: Tensor,
        x: Tensor,
        first: Tensor,
        cell: Tensor | None,
        recurrence: Recurrence,
        weights: Weights,
        trace: Trace,
        way: Way,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.recurrence, ctx.way = recurrence, way
        ctx.save_for_backward(weights.input, weights.state, trace.inputs, trace.states, trace.cells, trace.more)
        # Copies: whoever overwrites a result must not overwrite what is kept.
        last = None if trace.cells is None else way.last(trace.cells).clone()
        return way.after(trace.states).clone(), way.last(trace.states).clone(), last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        weights, trace = Weights(*ctx.saved_tensors[:2]), Trace(*ctx.saved_tensors[2:])
        found = back(ctx.recurrence, trace, weights, Given(*grads), ctx.way, is_x_wanted=ctx.needs_input_grad[2])
        return found.slopes.inputs, found.slopes.recurrent, found.x, found.state, found.cell, None, None, None, None


# The autograd functions of this package: their backward passes are known to keep examples apart.
OWN_FUNCTIONS = frozenset({_Linear, _Recurrence})
_linear: Callable[..., Tensor] = _Linear.apply
_recurrence: Callable[..., tuple[Tensor | None, ...]] = _Recurrence.apply


def recurrent_cell(recurrence: Recurrence, args: tuple[Any, ...], kwargs: dict[str, Any], watcher: Watcher) -> Any:
    """What torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell or torch.rnn_relu_cell give; None for rarer forms."""
    given = dict(zip(_CELL_NAMES, args, strict=False)) | kwargs
    x, state = given["input"], _states(recurrence, given["hx"])
    if x.dim() != 2 or not _is_usual([x, *state], given["w_ih"], watcher):
        return None
    weights = Weights(given["w_ih"], given["w_hh"], given.get("b_ih"), given.get("b_hh"))
    if isinstance(recurrence, Gru):
        return _gru_cell(x, state[0], weights, watcher)
    args = (x, state[0], weights.input, weights.state, weights.input_bias, weights.state_bias)
    inputs = watcher.note(two_linears, args, two_linears(*args))
    if isinstance(recurrence, Simple):
        return inputs.tanh() if recurrence.is_tanh else inputs.relu()
    i, f, g, o = inputs.chunk(4, 1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru_cell(x: Tensor, state: Tensor, weights: Weights, watcher: Watcher) -> Tensor:
    args = (x, weights.input, weights.input_bias)
    inputs = watcher.note(F.linear, args, F.linear(*args)).chunk(3, 1)
    args = (state, weights.state, weights.state_bias)
    recurrent = watcher.note(F.linear, args, F.linear(*args)).chunk(3, 1)
    r, z = ((inputs[i] + recurrent[i]).sigmoid() for i in (0, 1))
    n = torch.tanh(inputs[2] + r * recurrent[2])
    return n + z * (state - n)


RECURRENT: dict[Callable[..., Any], tuple[Callable[..., Any], Recurrence]] = {
    torch.lstm: (recurrent_layers, Lstm()),
    torch.gru: (recurrent_layers, Gru()),
    torch.rnn_tanh: (recurrent_layers, Simple(is_tanh=True)),
    torch.rnn_relu: (recurrent_layers, Simple(is_tanh=False)),
    torch.lstm_cell: (recurrent_cell, Lstm()),
    torch.gru_cell: (recurrent_cell, Gru()),
    torch.rnn_tanh_cell: (recurrent_cell, Simple(is_tanh=True)),
    torch.rnn_relu_cell: (recurrent_cell, Simple(is_tanh=False)),
}
