"""The recurrence of one layer through all times, forwards and backwards by hand.

Torch's own backward pass sums the gradients of recurrent weights over the examples. This one keeps the gradient of the
recurrence's input at every time, from which per-example gradients follow as for any linear map. Times are the first
dimension, examples the second. Several times are handled together, few enough to stay in the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# The number of values that are handled together.
_TOGETHER = 2**18

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The weights of one layer in one direction."""

    input: Tensor
    state: Tensor
    input_bias: Tensor | None = None
    state_bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Unrolled:
    """All times of a recurrence.

    `inputs` [T, B, p] are overwritten by the gates. `states` and `cells` are [T + 1, B, H], the first ones included;
    `more` is what else the backward pass needs.
    """

    inputs: Tensor
    states: Tensor
    cells: Tensor | None = None
    more: Tensor | None = None


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """The gradients of the inputs of all times and of the recurrent parts: one tensor where only their sum is used.

    `outside` is, for every time, the gradient of the state before it that comes from outside; None is zero.
    """

    steps: Unrolled
    weight: Tensor
    inputs: Tensor
    recurrent: Tensor
    outside: list[Tensor | None]


class Recurrence(Protocol):
    """How a state [B, H] follows from the one before and from the input at its time."""

    def allocate(self, shape: tuple[int, int], weights: LayerWeights, first: tuple[Tensor, ...]) -> Unrolled:
        """Memory for all times and examples."""

    def forward(self, steps: Unrolled, weights: LayerWeights, part: slice) -> None:
        """Run some times, whose inputs are there."""

    def backward(self, going: BackwardPass, part: slice, state: Tensor, cell: Tensor | None) -> Tensor:
        """Run some times backwards, from the gradient of the state after them to that of the state before.

        The gradient of the cell is changed in place.
        """


@dataclass(frozen=True)
class Simple:
    """h' = tanh(x + W h), or its positive part."""

    is_tanh: bool

    def allocate(self, shape: tuple[int, int], weights: LayerWeights, first: tuple[Tensor, ...]) -> Unrolled:
        """Inputs become states."""
        states = _allocate(shape[0], first[0])
        return Unrolled(states[1:], states)

    def forward(self, steps: Unrolled, weights: LayerWeights, part: slice) -> None:
        """One product a time."""
        turned = weights.state.t()
        for before, state in zip(steps.states[:-1][part].unbind(0), steps.inputs[part].unbind(0), strict=True):
            state.addmm_(before, turned)
            if self.is_tanh:
                tanh(state, state)
            else:
                state.relu_()

    def backward(self, going: BackwardPass, part: slice, state: Tensor, cell: Tensor | None) -> Tensor:
        """The gradient of each state, times the slope there."""
        states, grads = going.steps.inputs[part], going.inputs[part]
        if self.is_tanh:
            _tanh_backward(torch.ones_like(states), states, grad_input=grads)
        else:
            torch.gt(states, 0.0, out=grads)
        for row, outside in reversed([*zip(grads.unbind(0), going.outside[part], strict=True)]):
            state = pull_back(row.mul_(state), going.weight, outside)
        return state


@dataclass(frozen=True)
class Lstm:
    """c' = f c + i g and h' = o tanh(c'): the gates i, f and o are sigmoids, and g is a tanh, of x + W h."""

    def allocate(self, shape: tuple[int, int], weights: LayerWeights, first: tuple[Tensor, ...]) -> Unrolled:
        """Inputs become gates; the tanh of each cell is kept too."""
        states, cells = (_allocate(shape[0], each) for each in first)
        return Unrolled(states.new_empty(*shape, weights.state.shape[0]), states, cells, torch.empty_like(states[1:]))

    def forward(self, steps: Unrolled, weights: LayerWeights, part: slice) -> None:
        """One product a time, then the gates."""
        assert steps.cells is not None
        assert steps.more is not None
        rows, turned = steps.inputs[part], weights.state.t()
        gates = rows.view(*rows.shape[:2], 4, -1)
        states, cells = ((kept[:-1][part], kept[1:][part]) for kept in (steps.states, steps.cells))
        each = (*states, *cells, rows, steps.more[part], gates[:, :, :2], *gates.unbind(2))
        together = zip(*(values.unbind(0) for values in each), strict=True)
        for before, after, cell_before, cell, row, bounded, pair, i, f, g, o in together:
            row.addmm_(before, turned)
            pair.sigmoid_()
            o.sigmoid_()
            tanh(g, g)
            torch.mul(f, cell_before, out=cell).addcmul_(i, g)
            torch.mul(o, tanh(cell, bounded), out=after)

    def backward(self, going: BackwardPass, part: slice, state: Tensor, cell: Tensor | None) -> Tensor:
        """First how the inputs move cell and state; then times how these move the loss."""
        steps, weight = going.steps, going.weight
        assert cell is not None
        assert steps.cells is not None
        assert steps.more is not None
        rows, bounded = going.inputs[part], steps.more[part]
        shape = (*rows.shape[:2], 4, -1)
        i, f, g, o = steps.inputs[part].view(shape).unbind(2)
        grads = rows.view(shape)
        _sigmoid_backward(g, i, grad_input=grads[:, :, 0])
        _sigmoid_backward(steps.cells[:-1][part], f, grad_input=grads[:, :, 1])
        _tanh_backward(i, g, grad_input=grads[:, :, 2])
        _sigmoid_backward(bounded, o, grad_input=grads[:, :, 3])
        by_state = torch.ops.aten.tanh_backward(o, bounded)
        each = (rows, by_state, grads[:, :, :3], grads[:, :, 3], f)
        together = [*zip(*(values.unbind(0) for values in each), going.outside[part], strict=True)]
        of_three = cell[:, None]
        for row, slope, to_cell, to_state, share, outside in reversed(together):
            cell.addcmul_(state, slope)
            to_cell.mul_(of_three)
            to_state.mul_(state)
            cell.mul_(share)
            state = pull_back(row, weight, outside)
        return state


@dataclass(frozen=True)
class Gru:
    """h' = n + z (h - n): r and z are sigmoids of x + W h + b, and n = tanh(x + r (W h + b))."""

    def allocate(self, shape: tuple[int, int], weights: LayerWeights, first: tuple[Tensor, ...]) -> Unrolled:
        """Inputs become r, z and n; the recurrent part of n is kept too."""
        states = _allocate(shape[0], first[0])
        return Unrolled(states.new_empty(*shape, weights.state.shape[0]), states, None, torch.empty_like(states[1:]))

    def forward(self, steps: Unrolled, weights: LayerWeights, part: slice) -> None:
        """Two products a time: r is needed before the second is."""
        assert steps.more is not None
        width, bias = weights.state.shape[1], weights.state_bias
        to_gates, to_new = weights.state[: 2 * width].t(), weights.state[2 * width :].t()
        each = (steps.states[:-1][part], steps.states[1:][part], steps.inputs[part], steps.more[part])
        for before, after, row, recurrent in zip(*(values.unbind(0) for values in each), strict=True):
            row[:, : 2 * width].addmm_(before, to_gates).sigmoid_()
            r, z, n = row.view(-1, 3, width).unbind(1)
            torch.mm(before, to_new, out=recurrent)
            if bias is not None:
                recurrent += bias[2 * width :]
            tanh(n.addcmul_(r, recurrent), n)
            torch.lerp(n, before, z, out=after)

    def backward(self, going: BackwardPass, part: slice, state: Tensor, cell: Tensor | None) -> Tensor:
        """First how the inputs, and the recurrent parts, move the state; then times how that moves the loss."""
        steps, weight, rows = going.steps, going.weight, going.recurrent[part]
        assert steps.more is not None
        shape = (*rows.shape[:2], 3, -1)
        recurrent, grads = rows.view(shape), going.inputs[part].view(shape)
        r, z, n = steps.inputs[part].view(shape).unbind(2)
        new = grads[:, :, 2]
        _tanh_backward(1.0 - z, n, grad_input=new)
        _sigmoid_backward(new * steps.more[part], r, grad_input=recurrent[:, :, 0])
        _sigmoid_backward(steps.states[:-1][part] - n, z, grad_input=recurrent[:, :, 1])
        torch.mul(new, r, out=recurrent[:, :, 2])
        each = (rows, recurrent, new, z)
        for row, gates, last, share, outside in reversed(
            [*zip(*(values.unbind(0) for values in each), going.outside[part], strict=True)]
        ):
            gates.mul_(state[:, None])
            last.mul_(state)
            directly = state * share if outside is None else torch.addcmul(outside, state, share)
            state = pull_back(row, weight, directly)
        grads[:, :, :2] = recurrent[:, :, :2]
        return state


def run_forward(recurrence: Recurrence, x: Tensor, weights: LayerWeights, first: tuple[Tensor, ...]) -> Unrolled:
    """Run all times on the inputs `x` [T, B, d]; `first` are the first state and cell."""
    steps = recurrence.allocate((x.shape[0], x.shape[1]), weights, first)
    bias, more = weights.input_bias, weights.state_bias
    if bias is not None and more is not None:
        count = len(more) // 3
        # The recurrent bias of a GRU's n is multiplied by r first.
        bias = bias + (torch.cat([more[: 2 * count], more.new_zeros(count)]) if isinstance(recurrence, Gru) else more)
    with np.errstate(all="ignore"):
        for part in _split(steps.inputs):
            inputs, turned = steps.inputs[part].flatten(0, 1), weights.input.t()
            torch.mm(x[part].flatten(0, 1), turned, out=inputs)
            if bias is not None:
                inputs += bias
            recurrence.forward(steps, weights, part)
    return steps


def run_backward(
    recurrence: Recurrence,
    steps: Unrolled,
    weights: LayerWeights,
    outside: tuple[Tensor | None, ...],
    *,
    is_x_wanted: bool,
) -> tuple[Tensor | None, ...]:
    """Run all times backwards, from the gradients of all states, of the last one and of the last cell; None is zero.

    Returns the gradients of inputs, recurrent parts, x, first state and first cell.
    """
    states, last, last_cell = outside
    inputs = torch.empty_like(steps.inputs)
    recurrent = torch.empty_like(inputs) if isinstance(recurrence, Gru) else inputs
    x = inputs.new_empty(*inputs.shape[:2], weights.input.shape[1]) if is_x_wanted else None
    state = torch.zeros_like(steps.states[0]) if last is None else last
    cell = None if steps.cells is None else torch.zeros_like(state) if last_cell is None else last_cell.clone()
    before: list[Tensor | None] = [None] * len(inputs)
    if states is not None:
        before[1:] = states[:-1].unbind(0)
        state = state + states[-1]
    going = BackwardPass(steps, weights.state, inputs, recurrent, before)
    for part in reversed(_split(inputs)):
        state = recurrence.backward(going, part, state, cell)
        if x is not None:
            torch.mm(inputs[part].flatten(0, 1), weights.input, out=x[part].flatten(0, 1))
    return inputs, recurrent, x, state, cell


def _split(inputs: Tensor) -> list[slice]:
    """Parts of the times that are handled together."""
    count = max(1, _TOGETHER // max(inputs[0].numel(), 1))
    return [slice(start, start + count) for start in range(0, len(inputs), count)]


def _allocate(times: int, first: Tensor) -> Tensor:
    """[T + 1, ...]: the first state, and memory for all others."""
    states = first.new_empty(times + 1, *first.shape)
    states[0] = first
    return states


def pull_back(grads: Tensor, weight: Tensor, outside: Tensor | None) -> Tensor:
    """The gradient of a state: from the recurrent part [B, p] that was computed from it, plus that from outside."""
    return grads @ weight if outside is None else torch.addmm(outside, grads, weight)


def tanh(values: Tensor, out: Tensor) -> Tensor:
    """Compute tanh into `out`. On a CPU numpy is five times as fast as torch."""
    if values.is_cpu and values.dtype in (torch.float32, torch.float64):
        np.tanh(values.numpy(), out=out.numpy())
        return out
    return torch.tanh(values, out=out)
