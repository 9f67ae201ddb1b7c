"""Recurrent layers and cells, run as the linear maps that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tacit.gradients.contributions import Contribution, DenseContribution, leave_autocast, make_products, widen
from tacit.gradients.rules import Front, decompose, rule
from tacit.gradients.rules.recurrences import (
    Gru,
    LayerWeights,
    Lstm,
    Recurrence,
    Simple,
    Unrolled,
    run_backward,
    run_forward,
)

if TYPE_CHECKING:
    from tacit.gradients.trace import Call, Recorder

_LAYER_ARGUMENTS = (
    "input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first",
)  # fmt: skip
_CELL_ARGUMENTS = ("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh")


def add_two_linears(
    x: Tensor, state: Tensor, weight: Tensor, state_weight: Tensor, bias: Tensor | None, state_bias: Tensor | None
) -> Tensor:
    """The input of a recurrence: one linear map of x, one of the state before. Both have the same output gradient."""
    return F.linear(x, weight, bias) + F.linear(state, state_weight, state_bias)


@rule(add_two_linears, any_axis=True)
def two_linears(call: Call, grads: Tensor, front: Front) -> dict[int, Contribution]:
    """Two linear maps with one output gradient, whose Gram matrices serve both."""
    _, _, weight, state_weight, bias, state_bias = call.args
    if weight is state_weight or (bias is not None and bias is state_bias):
        return {}
    size, dtype = grads.shape[0], widen(weight.dtype)
    pairs = zip(call.args[2:4], call.args[:2], strict=True)
    trained = [(weight, factor) for weight, factor in pairs if weight.requires_grad]
    grads = (grads[:, None] if grads.dim() == 2 else grads).to(dtype)
    factors = [front(factor.detach()).reshape(size, -1, factor.shape[-1]).to(dtype) for _, factor in trained]
    products = zip(trained, make_products(grads, factors), strict=True)
    found: dict[int, Contribution] = {id(weight): product for (weight, _), product in products}
    biases = [bias for bias in (bias, state_bias) if bias is not None and bias.requires_grad]
    if biases:
        # One tensor for both, so that its norms are taken once.
        total = grads.sum(1)
        found |= {id(bias): DenseContribution(total) for bias in biases}
    return found


def run_layers(recurrence: Recurrence, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder) -> Any:
    """What torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu give, in full precision; None for rarer forms."""
    given = dict(zip(_LAYER_ARGUMENTS, args, strict=False)) | kwargs
    # Packed sequences have other arguments, and projections have one more weight.
    if given.keys() != set(_LAYER_ARGUMENTS) or not isinstance(given["has_biases"], bool):
        return None
    x, weights, layers, ways = given["input"], given["params"], given["num_layers"], 2 if given["bidirectional"] else 1
    count = 4 if given["has_biases"] else 2
    first = _list_states(recurrence, given["hx"])
    is_whole = x.dim() == 3 and 0 not in x.shape and len(weights) == layers * ways * count
    if not is_whole or not _is_usual([x, *first], weights[0], recorder):
        return None
    each = [LayerWeights(*weights[i : i + count]) for i in range(0, len(weights), count)]
    with leave_autocast(x.device.type):
        x, first = x.to(each[0].input.dtype), [state.to(each[0].input.dtype) for state in first]
        x = (x.transpose(0, 1) if given["batch_first"] else x).contiguous()
        lasts = []
        for layer in range(layers):
            if layer and given["dropout"] and given["train"]:
                x = F.dropout(x, given["dropout"])
            outputs = []
            for place in range(layer * ways, (layer + 1) * ways):
                starts, is_reversed = tuple(state[place] for state in first), place % ways == 1
                inputs = x.flip(0) if is_reversed else x
                output, *last = _run_direction(recurrence, inputs, each[place], starts, recorder)
                outputs.append(output.flip(0) if is_reversed else output)
                lasts.append(last)
            x = torch.cat(outputs, 2) if ways == 2 else outputs[0]
    x = x.transpose(0, 1) if given["batch_first"] else x
    return x, *(torch.stack(last) for last in zip(*lasts, strict=True))


def _list_states(recurrence: Recurrence, given: Any) -> list[Tensor]:
    return list(given) if isinstance(recurrence, Lstm) else [given]


def _is_usual(values: list[Tensor], weight: Tensor, recorder: Recorder) -> bool:
    """Whether inputs and states have the precision of the weight, and none is made of parameters only."""
    is_autocast = torch.is_autocast_enabled(weight.device.type)
    return (is_autocast or all(value.dtype == weight.dtype for value in values)) and not recorder.is_tracked(values)


def _run_direction(
    recurrence: Recurrence, x: Tensor, weights: LayerWeights, first: tuple[Tensor, ...], recorder: Recorder
) -> tuple[Tensor, ...]:
    """All states [T, B, H] of one layer in one direction, the last one, and the last cell."""
    with torch.no_grad():
        steps = run_forward(recurrence, x, weights, first)
    before = steps.states[:-1]
    of_inputs = _linear(x.detach(), weights.input, weights.input_bias)
    of_states = _linear(before, weights.state, weights.state_bias)
    if isinstance(recurrence, Gru):
        of_inputs = recorder.note(F.linear, (x, weights.input, weights.input_bias), of_inputs)
        of_states = recorder.note(F.linear, (before, weights.state, weights.state_bias), of_states)
    else:
        args = (x, before, weights.input, weights.state, weights.input_bias, weights.state_bias)
        # Both outputs have the same gradient; note one that has a gradient.
        recorder.note(add_two_linears, args, of_states if of_states.requires_grad else of_inputs)
    cell = first[1] if len(first) > 1 else None
    found = _recurrence(of_inputs, of_states, x, first[0], cell, recurrence, weights, steps)
    return tuple(value for value in found if value is not None)


class _LinearMap(torch.autograd.Function):
    """A linear map of all times whose values were used already: only its backward pass is needed."""

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
    """The states of a recurrence as a function of its inputs, with the backward pass by hand."""

    @staticmethod
    def forward(
        ctx: Any,
        of_inputs: Tensor,
        of_states: Tensor,
        x: Tensor,
        first: Tensor,
        cell: Tensor | None,
        recurrence: Recurrence,
        weights: LayerWeights,
        steps: Unrolled,
    ) -> tuple[Tensor | None, ...]:
        ctx.set_materialize_grads(False)
        ctx.recurrence = recurrence
        ctx.save_for_backward(weights.input, weights.state, steps.inputs, steps.states, steps.cells, steps.more)
        # Copies: a user may overwrite the results in place.
        last = None if steps.cells is None else steps.cells[-1].clone()
        return steps.states[1:].clone(), steps.states[-1].clone(), last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        weights, steps = LayerWeights(*ctx.saved_tensors[:2]), Unrolled(*ctx.saved_tensors[2:])
        found = run_backward(ctx.recurrence, steps, weights, grads, is_x_wanted=ctx.needs_input_grad[2])
        return *found, None, None, None


# The autograd functions of this package: their backward passes keep examples apart.
OWN_FUNCTIONS = frozenset({_LinearMap, _Recurrence})
_linear: Callable[..., Tensor] = _LinearMap.apply
_recurrence: Callable[..., tuple[Tensor | None, ...]] = _Recurrence.apply


def run_cell(recurrence: Recurrence, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder) -> Any:
    """What torch.lstm_cell, torch.gru_cell, torch.rnn_tanh_cell or torch.rnn_relu_cell give; None for rarer forms."""
    given = dict(zip(_CELL_ARGUMENTS, args, strict=False)) | kwargs
    x, state = given["input"], _list_states(recurrence, given["hx"])
    if x.dim() != 2 or not _is_usual([x, *state], given["w_ih"], recorder):
        return None
    weights = LayerWeights(given["w_ih"], given["w_hh"], given.get("b_ih"), given.get("b_hh"))
    if isinstance(recurrence, Gru):
        return _run_gru_cell(x, state[0], weights, recorder)
    args = (x, state[0], weights.input, weights.state, weights.input_bias, weights.state_bias)
    inputs = recorder.note(add_two_linears, args, add_two_linears(*args))
    if isinstance(recurrence, Simple):
        return inputs.tanh() if recurrence.is_tanh else inputs.relu()
    i, f, g, o = inputs.chunk(4, 1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _run_gru_cell(x: Tensor, state: Tensor, weights: LayerWeights, recorder: Recorder) -> Tensor:
    args = (x, weights.input, weights.input_bias)
    inputs = recorder.note(F.linear, args, F.linear(*args)).chunk(3, 1)
    args = (state, weights.state, weights.state_bias)
    recurrent = recorder.note(F.linear, args, F.linear(*args)).chunk(3, 1)
    r, z = ((inputs[i] + recurrent[i]).sigmoid() for i in (0, 1))
    n = torch.tanh(inputs[2] + r * recurrent[2])
    return n + z * (state - n)


_KINDS: dict[str, Recurrence] = {
    "lstm": Lstm(),
    "gru": Gru(),
    "rnn_tanh": Simple(is_tanh=True),
    "rnn_relu": Simple(is_tanh=False),
}
for _name, _kind in _KINDS.items():
    decompose(getattr(torch, _name))(partial(run_layers, _kind))
    decompose(getattr(torch, f"{_name}_cell"))(partial(run_cell, _kind))
