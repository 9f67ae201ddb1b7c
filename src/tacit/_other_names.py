"""Arguments of Opacus, JAX-privacy, TF-Privacy and diffprivlib: refused with the name of our own argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from tacit.errors import InvalidArgument

_SAME = {
    "accountant": ("by",),
    "batch_size": ("lot_size",),
    "clip": ("clip_norm",),
    "clipping_norm": ("clip_norm",),
    "criterion": ("loss",),
    "data_loader": ("data",),
    "dataset_size": ("population",),
    "eps": ("epsilon",),
    "expected_batch_size": ("lot_size",),
    "iterations": ("steps",),
    "l2_clip_norm": ("clip_norm",),
    "l2_norm_clip": ("clip_norm",),
    "lr": ("learning_rate",),
    "max_grad_norm": ("clip_norm",),
    "max_physical_batch_size": ("micro_batch",),
    "microbatch_size": ("micro_batch",),
    "module": ("model",),
    "noise_multiplier": ("multiplier",),
    "num_bands": ("bands",),
    "num_epochs": ("epochs", "steps"),
    "num_examples": ("population",),
    "number_of_examples": ("population",),
    "num_iterations": ("steps",),
    "num_samples": ("population",),
    "num_steps": ("steps",),
    "sample_rate": ("rate", "lot_size"),
    "sampling_prob": ("rate", "lot_size"),
    "sampling_probability": ("rate", "lot_size"),
    "sigma": ("multiplier",),
    "target_delta": ("delta",),
    "target_epsilon": ("epsilon",),
}
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
