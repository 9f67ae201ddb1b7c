"""The training loop: one lot, one noisy gradient, one optimizer step, then the caller's callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from tacit.training.lots import Lot


class Optimizer(Protocol):
    """Changes the weights after a release: a torch optimizer, or anything else with a `step`."""

    def step(self) -> Any: ...


class Run(Protocol):
    """A `PrivateRun`, or something that wraps one."""

    @property
    def step(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Lot]: ...
    def backward(self, lot: Lot) -> None: ...


@dataclass(frozen=True)
class Step:
    """A step that was just made. `lot` is private: what a callback computes from it must not leave the process."""

    run: Run
    lot: Lot

    @property
    def number(self) -> int:
        """How many steps were made so far, this one included."""
        return self.run.step


# Called after every optimizer step. Training stops after the step if a callback returns True.
Callback = Callable[[Step], bool | None]


def fit(run: Run, optimizer: Optimizer, callbacks: Sequence[Callback] = ()) -> bool:
    """Make all steps that are left; False if a callback stopped training before the last one.

    Progress bars, checkpoints, averages, learning-rate schedules and Ctrl-C are callbacks: functions of a `Step`. A
    callback that is a context manager too is entered before the first step and left after the last. Every callback
    sees every step, also the step after which another one stops training.

    >>> import torch, tacit
    >>> model = torch.nn.Linear(3, 2)
    >>> run = tacit.PrivateRun(model, torch.nn.functional.cross_entropy, mechanism=tacit.methods.dpsgd(multiplier=1.0),
    ...                  data=(torch.randn(100, 3), torch.randint(2, (100,))),
    ...                  sampling=tacit.Poisson(lot_size=10, population=100), steps=5)
    >>> fit(run, torch.optim.SGD(model.parameters(), lr=0.1), [lambda step: step.number == 3]), run.step
    (False, 3)
    """
    with ExitStack() as stack:
        for callback in callbacks:
            if isinstance(callback, AbstractContextManager):
                stack.enter_context(callback)
        for lot in run:
            run.backward(lot)
            optimizer.step()
            step = Step(run, lot)
            asked_to_stop = [callback(step) for callback in callbacks]
            if any(asked_to_stop):
                break
    return not len(run)
