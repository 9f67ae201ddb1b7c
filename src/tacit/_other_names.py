"""Arguments of Opacus, JAX-privacy, TF-Privacy and diffprivlib: refused with the name of our own argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from tacit.errors import InvalidArgument

# Our arguments, in the order in which they are looked for, and what others call them.
_THEIRS = {
    "bands": "num_bands",
    "by": "accountant",
    "clip_norm": "clip clipping_norm l2_clip_norm l2_norm_clip max_grad_norm",
    "data": "data_loader",
    "delta": "target_delta",
    "epochs steps": "num_epochs",
    "epsilon": "eps target_epsilon",
    "learning_rate": "lr",
    "loss": "criterion",
    "lot_size": "batch_size expected_batch_size",
    "micro_batch": "max_physical_batch_size microbatch_size",
    "model": "module",
    "multiplier": "noise_multiplier sigma",
    "population": "dataset_size num_examples number_of_examples num_samples",
    "rate lot_size": "sample_rate sampling_prob sampling_probability",
    "steps": "iterations num_iterations num_steps",
}
_SAME = {name: ours.split() for ours, theirs in _THEIRS.items() for name in theirs.split()}
# Where an argument is given that the called function does not take.
_PLACES = {
    "clip_norm": "mechanism=tacit.methods.dpsgd(clip_norm=...)",
    "delta": "budget=tacit.Budget(epsilon=..., delta=...)",
    "epochs": "steps=..., and one epoch is population / lot_size steps",
    "epsilon": "budget=tacit.Budget(epsilon=..., delta=...)",
    "lot_size": "sampling=tacit.Poisson(lot_size=..., population=...)",
    "multiplier": "mechanism=tacit.methods.dpsgd(multiplier=...), or leave it out and give a budget",
    "population": "sampling=tacit.Poisson(lot_size=..., population=...)",
    "rate": "lot_size=..., and the rate is lot_size / population",
}
T = TypeVar("T", bound=Callable[..., Any])


def explain_other_name(name: str, known: Iterable[str]) -> str | None:
    """The sentence that names our counterpart of `name`; None if no library that we know has such an argument.

    >>> explain_other_name("max_grad_norm", ["clip_norm", "multiplier"])
    'In tacit it is called clip_norm.'
    >>> explain_other_name("max_grad_norm", ["mechanism"])
    'In tacit it is given by mechanism=tacit.methods.dpsgd(clip_norm=...).'
    """
    ours = _SAME.get(name)
    if ours is None:
        return None
    same = next((each for each in ours if each in set(known)), None)
    if same is not None:
        return f"In tacit it is called {same}."
    return f"In tacit it is given by {_PLACES.get(ours[0], f'{ours[0]}=...')}."


def refuse_other_names(target: T) -> T:
    """Decorate a function or a class: arguments of other libraries raise `InvalidArgument` and name ours.

    >>> @refuse_other_names
    ... def clip(clip_norm): ...
    >>> clip(max_grad_norm=1.0)
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidArgument: clip has no argument max_grad_norm. In tacit it is called clip_norm. Got ...
    """
    if isinstance(target, type):
        target.__init__ = _wrap(target.__init__, target.__name__)  # type: ignore[misc]
        return target
    return _wrap(target, target.__name__)  # type: ignore[return-value]


def _wrap(function: Callable[..., Any], called: str) -> Callable[..., Any]:
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in named.items():
            if name not in known and (told := explain_other_name(name, known)) is not None:
                raise InvalidArgument(f"{called} has no argument {name}. {told} Got {name}={value!r}.")
        return function(*given, **named)

    return call
