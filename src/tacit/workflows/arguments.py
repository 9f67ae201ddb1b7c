"""Check what was typed before anything heavy is imported: a wrong number is refused within a second. Loads no torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from tacit import _validate
from tacit.errors import Caution
from tacit.methods.registry import find_method

_POSITIVE = ("epsilon", "multiplier", "lot_size", "epochs", "clip_norm")
_COUNTS = ("population", "steps", "views", "micro_batch", "seeds", "workers", "features", "classes")


def list_given(options: Any) -> list[str]:
    """The fields of a dataclass that are not None, as the command line spells them."""
    return [f"--{one.name.replace('_', '-')}" for one in fields(options) if getattr(options, one.name) is not None]


def check_numbers(**given: Any) -> None:
    """Refuse a number that is out of its range. Other options, lists as text and None are not looked at."""
    for name, value in given.items():
        if value is None or isinstance(value, str):
            continue
        if name in _POSITIVE:
            _validate.positive(name, value)
        elif name in _COUNTS:
            _validate.count(name, value)
        elif name == "delta":
            _validate.open_unit(name, value)
        elif name == "seed":
            _validate.count(name, value, at_least=0)


def check_methods(names: Iterable[str]) -> None:
    """Refuse an unknown method."""
    for name in names:
        find_method(name)


def warn_about_delta(delta: float, population: int) -> None:
    """Give a `Caution` if delta is so large that the guarantee says little."""
    if delta * population >= 1:
        warnings.warn(
            f"delta {delta:g} is not below 1/{population:,}, one over the population: publishing one example in full "
            "would satisfy it, whatever epsilon is. Leave --delta out, or choose one far below.",
            Caution,
            stacklevel=3,
        )
