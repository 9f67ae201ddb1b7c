"""Which function of `tacit.methods` a name stands for, and what else it may be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import Any

from tacit.erm import Loss
from tacit.errors import InvalidArgument

# Noise on the objective, the output, the gradients or the data of a model that the function itself trains.
LINEAR_METHODS = ("objective", "output", "gradient", "input", "data", "influence")
# Those of them that train networks too.
DATA_METHODS = ("input", "data", "influence")
# What `options` may not set: the estimators have arguments of their own for these, or none at all.
_OWN = ("x", "y", "loss", "regularisation", "epsilon", "delta", "data_norm", "mode", "intercept", "module", "seed")
_OWN_OF_GRADIENTS = ("clip_norm", "multiplier", "mode")


def perturbation(name: object) -> Callable[..., Any]:
    """The function of that short name, as "input" for `input_perturbation`."""
    if name not in LINEAR_METHODS:
        raise InvalidArgument(f"method must be one of {', '.join(map(repr, LINEAR_METHODS))}. Got {name!r}.")
    home = f"{name}_perturbation"
    method: Callable[..., Any] = getattr(import_module(f"tacit.methods.{home}"), home)
    return method


def options_of(given: Any, method: Callable[..., Any]) -> dict[str, Any]:
    """Further arguments of the method, as they were given; refused where it has none of that name."""
    if given is None:
        return {}
    names = tuple(signature(method).parameters)
    own = _OWN if names[0] == "x" else _OWN_OF_GRADIENTS
    known = [name for name in names if name not in own]
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InvalidArgument(
            f"options must map names to values, and {method.__name__} takes {', '.join(known) or 'none'}. What an "
            f"estimator has an argument for is set there. Got {given!r}."
        )
    return dict(given)


def called(
    estimator: Any, x: Any, y: Any, loss: Loss, *, regularisation: float, epsilon: float, data_norm: float, **more: Any
) -> Any:
    """What the estimator's method makes of the data; `more` is what not all methods take."""
    return perturbation(estimator.method)(
        x,
        y,
        loss=loss,
        regularisation=regularisation,
        epsilon=epsilon,
        delta=estimator.delta,
        data_norm=data_norm,
        mode=estimator.mode,
        **more,
    )
