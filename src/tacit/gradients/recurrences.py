"""The recurrence of one layer in one direction, forwards and backwards by hand: the gradients of every time are kept.

Torch adds the gradients of recurrent weights up over the examples before anyone sees them. Here the backward pass gives
the gradients of what goes into the recurrence at every time, from which per-example gradients follow as for any linear
map. Times are in the first dimension, examples in the second. Some times are done together, few enough that what is
computed for them is still in the cache when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# So many numbers go into the times that are done together.
_TOGETHER = 2**18

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


@dataclass(frozen=True)
class Way:
    """Forwards or backwards through so many times. States are kept as [T + 1, ...], the first where time begins."""

    times: int
    is_reversed: bool = False

    def parts(self, numbers: int) -> list[range]:
        """The times as they come, some together; so many numbers go into each."""
        count, step = max(1, _TOGETHER // max(numbers, 1)), -1 if self.is_reversed else 1
        order = range(self.times)[::step]
        return [order[i : i + count] for i in range(0, self.times, count)]

    def before(self, states: Tensor) -> Tensor:
        """[T, ...]: what each time starts from."""
        return states[1:] if self.is_reversed else states[:-1]

    def after(self, states: Tensor) -> Tensor:
        """[T, ...]: what each time ends with."""
        return states[:-1] if self.is_reversed else states[1:]

    def around(self, states: Tensor, part: range) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What each time of a part starts from, and what it ends with."""
        each = states[min(part) : max(part) + 2].unbind(0)
        return (each[1:], each[:-1]) if self.is_reversed else (each[:-1], each[1:])

    def last(self, states: Tensor) -> Tensor:
        """What the last time ends with."""
        return states[0 if self.is_reversed else -1]

    def room(self, first: Tensor) -> Tensor:
        """[T + 1, ...]: the first state, and room for all others."""
        states = first.new_empty(self.times + 1, *first.shape)
        states[-1 if self.is_reversed else 0] = first
        return states


def span(part: range) -> slice:
    """Where the times of a part are."""
    return slice(min(part), max(part) + 1)


@dataclass(frozen=True, eq=False)
class Weights:
    """Those of one layer in one direction."""

    input: Tensor
    state: Tensor
    input_bias: Tensor | None = None
    state_bias: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """What a recurrence went through: `inputs` [T, B, p], overwritten by what it made of them, its states, its cells
    if it has any, and what else it needs to go back."""

    inputs: Tensor
    states: Tensor
    cells: Tensor | None = None
    more: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Slopes:
    """Gradients of the inputs of all times, and of their recurrent parts: the same tensor where only the sum of both is
    ever seen."""

    inputs: Tensor
    recurrent: Tensor


class Recurrence(Protocol):
    """How a state [B, H] follows from the one before, and from what goes in at its time."""

    def joined(self, bias: Tensor) -> Tensor:
        """As much of the recurrent bias as may be added to the inputs."""

    def trace(self, size: int, weights: Weights, first: tuple[Tensor, ...], way: Way) -> Trace:
        """Room for all times."""

    def forward(self, trace: Trace, weights: Weights, way: Way, part: range) -> None:
        """Through some times, whose inputs are there."""

    def slopes(self, trace: Trace) -> Slopes:
        """Room for the gradients of all times."""

    def backward(self, tour: Tour, part: range, state: Tensor, cell: Tensor | None) -> Tensor:
        """Back through some times, from the gradient of the state after them to that of the state before.

        The gradient of the cell is changed in place.
        """


@dataclass(frozen=True, eq=False)
class Tour:
    """On the way back: for every time, `given` is the gradient from outside of the state before it; None is zero."""

    trace: Trace
    slopes: Slopes
    weight: Tensor
    given: list[Tensor | None]
    way: Way


@dataclass(frozen=True)
class Simple:
    """h' = tanh(x + W h), or its positive part."""

    is_tanh: bool

    def joined(self, bias: Tensor) -> Tensor:
        """All of it."""
        return bias

    def trace(self, size: int, weights: Weights, first: tuple[Tensor, ...], way: Way) -> Trace:
        """Inputs become states."""
        states = way.room(first[0])
        return Trace(way.after(states), states)

    def forward(self, trace: Trace, weights: Weights, way: Way, part: range) -> None:
        """One product a time."""
        before, after, turned = way.before(trace.states), trace.inputs, weights.state.t()
        for t in part:
            state = after[t].addmm_(before[t], turned)
            if self.is_tanh:
                tanh(state, state)
            else:
                state.relu_()

    def slopes(self, trace: Trace) -> Slopes:
        """One tensor."""
        grads = torch.empty_like(trace.inputs)
        return Slopes(grads, grads)

    def backward(self, tour: Tour, part: range, state: Tensor, cell: Tensor | None) -> Tensor:
        """The gradient of each state, times the slope there."""
        states, grads = tour.trace.inputs[span(part)], tour.slopes.inputs
        if self.is_tanh:
            _tanh_backward(torch.ones_like(states), states, grad_input=grads[span(part)])
        else:
            torch.gt(states, 0.0, out=grads[span(part)])
        for t in reversed(part):
            state = pulled(grads[t].mul_(state), tour.weight, tour.given[t])
        return state


@dataclass(frozen=True)
class Lstm:
    """c' = f c + i g and h' = o tanh(c'): the gates i, f and o are sigmoids, and g is a tanh, of x + W h."""

    def joined(self, bias: Tensor) -> Tensor:
        """All of it."""
        return bias

    def trace(self, size: int, weights: Weights, first: tuple[Tensor, ...], way: Way) -> Trace:
        """Inputs become gates; the tanh of each cell is kept too."""
        inputs = first[0].new_empty(way.times, size, weights.state.shape[0])
        return Trace(inputs, way.room(first[0]), way.room(first[1]), first[0].new_empty(way.times, *first[0].shape))

    def forward(self, trace: Trace, weights: Weights, way: Way, part: range) -> None:
        """One product a time, and then one number after the other."""
        assert trace.cells is not None
        assert trace.more is not None
        turned, gates = weights.state.t(), trace.inputs[span(part)].view(len(part), -1, 4, weights.state.shape[1])
        each = (trace.inputs[span(part)], trace.more[span(part)], gates[:, :, :2], *gates.unbind(2))
        states, cells = way.around(trace.states, part), way.around(trace.cells, part)
        together = zip(*states, *cells, *(values.unbind(0) for values in each), strict=True)
        for before, after, cell_before, cell, row, bounded, pair, i, f, g, o in in_order(together, part):
            row.addmm_(before, turned)
            pair.sigmoid_()
            o.sigmoid_()
            tanh(g, g)
            torch.mul(f, cell_before, out=cell).addcmul_(i, g)
            torch.mul(o, tanh(cell, bounded), out=after)

    def slopes(self, trace: Trace) -> Slopes:
        """One tensor."""
        grads = torch.empty_like(trace.inputs)
        return Slopes(grads, grads)

    def backward(self, tour: Tour, part: range, state: Tensor, cell: Tensor | None) -> Tensor:
        """First how the inputs move cell and state; then times how these move the loss."""
        trace, weight, these = tour.trace, tour.weight, span(part)
        assert cell is not None
        assert trace.cells is not None
        assert trace.more is not None
        shape = (len(part), -1, 4, weight.shape[1])
        rows, bounded = tour.slopes.inputs[these], trace.more[these]
        i, f, g, o = trace.inputs[these].view(shape).unbind(2)
        grads = rows.view(shape)
        _sigmoid_backward(g, i, grad_input=grads[:, :, 0])
        _sigmoid_backward(tour.way.before(trace.cells)[these], f, grad_input=grads[:, :, 1])
        _tanh_backward(i, g, grad_input=grads[:, :, 2])
        _sigmoid_backward(bounded, o, grad_input=grads[:, :, 3])
        by_state = torch.ops.aten.tanh_backward(o, bounded)
        each = (rows, by_state, grads[:, :, :3], grads[:, :, 3], f)
        together, of_three = zip(*(values.unbind(0) for values in each), tour.given[these], strict=True), cell[:, None]
        for row, slope, to_cell, to_state, share, outside in in_order(together, part[::-1]):
            cell.addcmul_(state, slope)
            to_cell.mul_(of_three)
            to_state.mul_(state)
            cell.mul_(share)
            state = pulled(row, weight, outside)
        return state


@dataclass(frozen=True)
class Gru:
    """h' = n + z (h - n): r and z are sigmoids of x + W h + b, and n = tanh(x + r (W h + b))."""

    def joined(self, bias: Tensor) -> Tensor:
        """That of n is multiplied by r first."""
        return torch.cat([bias[: bias.shape[0] // 3 * 2], bias.new_zeros(bias.shape[0] // 3)])

    def trace(self, size: int, weights: Weights, first: tuple[Tensor, ...], way: Way) -> Trace:
        """Inputs become r, z and n; the recurrent part of n is kept too."""
        inputs = first[0].new_empty(way.times, size, weights.state.shape[0])
        return Trace(inputs, way.room(first[0]), None, first[0].new_empty(way.times, *first[0].shape))

    def forward(self, trace: Trace, weights: Weights, way: Way, part: range) -> None:
        """Two products a time: r is needed before the second is."""
        assert trace.more is not None
        width, before, after = weights.state.shape[1], way.before(trace.states), way.after(trace.states)
        to_gates, to_new = weights.state[: 2 * width].t(), weights.state[2 * width :].t()
        bias = weights.state_bias
        for t in part:
            row, recurrent = trace.inputs[t], trace.more[t]
            row[:, : 2 * width].addmm_(before[t], to_gates).sigmoid_()
            r, z, n = row.view(-1, 3, width).unbind(1)
            torch.mm(before[t], to_new, out=recurrent)
            if bias is not None:
                recurrent += bias[2 * width :]
            tanh(n.addcmul_(r, recurrent), n)
            torch.lerp(n, before[t], z, out=after[t])

    def slopes(self, trace: Trace) -> Slopes:
        """Two tensors: they differ in n."""
        return Slopes(torch.empty_like(trace.inputs), torch.empty_like(trace.inputs))

    def backward(self, tour: Tour, part: range, state: Tensor, cell: Tensor | None) -> Tensor:
        """First how the inputs, and the recurrent parts, move the state; then times how that moves the loss."""
        trace, slopes, weight, these = tour.trace, tour.slopes, tour.weight, span(part)
        assert trace.more is not None
        shape = (len(part), -1, 3, weight.shape[1])
        rows, recurrent = slopes.recurrent[these], slopes.recurrent[these].view(shape)
        grads, (r, z, n) = slopes.inputs[these].view(shape), trace.inputs[these].view(shape).unbind(2)
        new = grads[:, :, 2]
        _tanh_backward(1.0 - z, n, grad_input=new)
        _sigmoid_backward(new * trace.more[these], r, grad_input=recurrent[:, :, 0])
        _sigmoid_backward(tour.way.before(trace.states)[these] - n, z, grad_input=recurrent[:, :, 1])
        torch.mul(new, r, out=recurrent[:, :, 2])
        for t in reversed(part):
            place, outside = t - these.start, tour.given[t]
            recurrent[place].mul_(state[:, None])
            new[place].mul_(state)
            directly = state * z[place] if outside is None else torch.addcmul(outside, state, z[place])
            state = pulled(rows[place], weight, directly)
        grads[:, :, :2] = recurrent[:, :, :2]
        return state


def run(recurrence: Recurrence, x: Tensor, weights: Weights, first: tuple[Tensor, ...], way: Way) -> Trace:
    """Through all times: `x` [T, B, d] goes in, `first` are the first state and cell."""
    trace = recurrence.trace(x.shape[1], weights, first, way)
    bias = weights.input_bias
    if bias is not None and weights.state_bias is not None:
        bias = bias + recurrence.joined(weights.state_bias)
    with np.errstate(all="ignore"):
        for part in way.parts(trace.inputs[0].numel()):
            inputs, turned = trace.inputs[span(part)].flatten(0, 1), weights.input.t()
            torch.mm(x[span(part)].flatten(0, 1), turned, out=inputs)
            if bias is not None:
                inputs += bias
            recurrence.forward(trace, weights, way, part)
    return trace


@dataclass(frozen=True, eq=False)
class Given:
    """The gradients that come from outside: of all states, of the last one, of the last cell. None is zero."""

    states: Tensor | None
    last: Tensor | None
    cell: Tensor | None


@dataclass(frozen=True, eq=False)
class Returned:
    """The gradients of what a recurrence was given."""

    slopes: Slopes
    x: Tensor | None
    state: Tensor
    cell: Tensor | None


def back(
    recurrence: Recurrence, trace: Trace, weights: Weights, given: Given, way: Way, *, is_x_wanted: bool
) -> Returned:
    """Back through all times."""
    slopes = recurrence.slopes(trace)
    x = slopes.inputs.new_empty(*slopes.inputs.shape[:2], weights.input.shape[1]) if is_x_wanted else None
    state = torch.zeros_like(trace.states[0]) if given.last is None else given.last
    cell = None if trace.cells is None else torch.zeros_like(state) if given.cell is None else given.cell.clone()
    tour = Tour(trace, slopes, weights.state, _before(given.states, way), way)
    if given.states is not None:
        state = state + way.last(given.states)
    for part in reversed(way.parts(trace.inputs[0].numel())):
        state = recurrence.backward(tour, part, state, cell)
        if x is not None:
            torch.mm(slopes.inputs[span(part)].flatten(0, 1), weights.input, out=x[span(part)].flatten(0, 1))
    return Returned(slopes, x, state, cell)


def _before(grads: Tensor | None, way: Way) -> list[Tensor | None]:
    """For every time, the gradient from outside of the state that it starts from; none of the very first."""
    if grads is None:
        return [None] * way.times
    each = grads.unbind(0)
    return [*each[1:], None] if way.is_reversed else [None, *each[:-1]]


def pulled(grads: Tensor, weight: Tensor, outside: Tensor | None) -> Tensor:
    """The gradient of a state, from that of the recurrent part [B, p] that is made of it, and from outside."""
    return grads @ weight if outside is None else torch.addmm(outside, grads, weight)


def tanh(values: Tensor, out: Tensor) -> Tensor:
    """Into `out`. On a CPU numpy's is five times as fast as torch's."""
    if values.is_cpu and values.dtype in (torch.float32, torch.float64):
        np.tanh(values.numpy(), out=out.numpy())
        return out
    return torch.tanh(values, out=out)


def in_order(each: Iterable[tuple[Tensor, ...]], part: range) -> Iterable[tuple[Tensor, ...]]:
    """What stands in the order of the times, in that of the part."""
    return each if part.step > 0 else reversed([*each])
