"""What an argument must be, and the sentence that says so.

Every function returns the value as a plain float, int or array of floats, or raises `InvalidArgument` with
the argument's name, its value, the allowed range and, for the words of the trade, what to do. NaN, text,
None, booleans and complex numbers are always refused; infinity is, unless `infinite=True` admits it.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidArgument

Array = NDArray[np.float64]

_HINTS = {
    "alpha": "It is the attacker's probability of a false alarm.",
    "delta": "With delta 0 no Gaussian mechanism is private, with delta 1 every mechanism is; "
    "a common choice is below 1/(number of examples).",
    "epsilon": "One example may change the odds of any outcome by a factor of e^epsilon; "
    "common budgets lie between 0.1 and 10.",
    "mu": "mu-GDP means: as hard as telling N(0, 1) from N(mu, 1) by one draw.",
    "multiplier": "It is the noise's standard deviation over the sensitivity; common values are 0.5 to 20.",
    "population": "It is the public number of examples that lots are drawn from.",
    "rate": "It is the probability with which an example enters a lot: lot_size / population.",
    "steps": "It counts the noisy releases: epochs * population / lot_size, rounded up.",
}


def positive(name: str, value: Any, *, below: float = math.inf, infinite: bool = False) -> float:
    """A number above 0 and below `below`.

    >>> positive("multiplier", -1)
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidArgument: multiplier must be a finite number above 0. Got -1. It is the noise's \
standard deviation over the sensitivity; common values are 0.5 to 20.
    """
    if infinite:
        return _check_number(name, value, "a number above 0", lambda v: v > 0)
    allowed = f"a number above 0 and below {below:g}" if below < math.inf else "a finite number above 0"
    return _check_number(name, value, allowed, lambda v: 0 < v < below)


def non_negative(name: str, value: Any, *, infinite: bool = False) -> float:
    """A number of at least 0."""
    if infinite:
        return _check_number(name, value, "a number of at least 0", lambda v: v >= 0)
    return _check_number(name, value, "a finite number of at least 0", lambda v: 0 <= v < math.inf)


def open_unit(name: str, value: Any) -> float:
    """A number strictly between 0 and 1, as delta must be.

    >>> open_unit("delta", 0)
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidArgument: delta must be a number strictly between 0 and 1. Got 0. With delta 0 no \
Gaussian mechanism is private, with delta 1 every mechanism is; a common choice is below 1/(number of \
examples).
    """
    return _check_number(name, value, "a number strictly between 0 and 1", lambda v: 0 < v < 1)


def rate(name: str, value: Any) -> float:
    """A probability above 0; as a sampling rate, 1 means that every example enters every lot.

    >>> rate("rate", 256 / 60_000)
    0.004266666666666667
    """
    return _check_number(name, value, "a number above 0 and at most 1", lambda v: 0 < v <= 1)


def unit(name: str, value: Any) -> float:
    """A number from 0 to 1, both included."""
    return _check_number(name, value, "a number from 0 to 1", lambda v: 0 <= v <= 1)


def count(name: str, value: Any, *, at_least: int = 1) -> int:
    """A whole number of at least `at_least`.

    >>> count("steps", 3.0)
    3
    >>> count("steps", 2.5)
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidArgument: steps must be a whole number of at least 1. Got 2.5. It counts the noisy \
releases: epochs * population / lot_size, rounded up.
    """
    allowed = f"a whole number of at least {at_least}"
    number = _check_number(name, value, allowed, lambda v: v >= at_least and v.is_integer())
    # Through the float, integers beyond 2**53 would change.
    return int(value) if isinstance(value, numbers.Integral) else int(number)


def units(name: str, values: Any) -> Array:
    """`unit`, for a number or for every entry of an array."""
    return _check_numbers(name, values, "a number from 0 to 1", lambda v: (v >= 0) & (v <= 1))


def reals(name: str, values: Any, *, infinite: bool = False) -> Array:
    """Any number, or an array of them."""
    if infinite:
        return _check_numbers(name, values, "a number", lambda v: ~np.isnan(v))
    return _check_numbers(name, values, "a finite number", np.isfinite)


def non_negatives(name: str, values: Any) -> Array:
    """`non_negative`, for a number or for every entry of an array."""
    return _check_numbers(name, values, "a finite number of at least 0", lambda v: (v >= 0) & np.isfinite(v))


def _check_number(name: str, value: Any, allowed: str, fits: Callable[[float], bool]) -> float:
    number = _as_float(value)
    if not fits(number):
        raise _make_refusal(name, value, allowed)
    return number


def _check_numbers(name: str, values: Any, allowed: str, fits: Callable[[Array], NDArray[np.bool_]]) -> Array:
    array = np.asarray(values)
    if array.ndim == 0:
        array = np.asarray(_as_float(array.item()))
    # Text and booleans would turn into floats without a word.
    elif array.dtype.kind not in "iuf":
        raise _make_refusal(name, values, allowed)
    array = array.astype(np.float64)
    bad = ~fits(array)
    if np.any(bad):
        raise _make_refusal(name, array[bad][0] if array.ndim else values, allowed)
    return array


def kind(name: str, value: object, wanted: type, example: str) -> None:
    """Raise unless the value is of this kind; the class itself is not."""
    if isinstance(value, type) or not isinstance(value, wanted):
        raise InvalidArgument(f"{name} must be one such as {example}. Got {value!r}.")


def check_fields(instance: Any, **names: str | tuple[str, ...]) -> None:
    """Check fields of a frozen dataclass, each by the function of this module that is named, and store plain numbers.

    None is accepted for a field whose default it is. Use in `__post_init__`:
    `check_fields(self, positive=("norm", "gamma"), count="steps")`.
    """
    optional = {one.name for one in dataclasses.fields(instance) if one.default is None}
    for check, chosen in names.items():
        for name in (chosen,) if isinstance(chosen, str) else chosen:
            value = getattr(instance, name)
            if value is not None or name not in optional:
                object.__setattr__(instance, name, globals()[check](name, value))


def flag(name: str, value: Any) -> bool:
    """True or False.

    >>> flag("intercept", "no")
    Traceback (most recent call last):
    ...
    tacit.errors.InvalidArgument: intercept must be True or False. Got 'no'.
    """
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(f"{name} must be True or False. Got {value!r}.")
    return bool(value)


def _as_float(value: Any) -> float:
    """NaN, which fits nowhere, for what is not a real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer of more than 308 digits
        return math.inf if value == abs(value) else -math.inf


def _make_refusal(name: str, value: Any, allowed: str) -> InvalidArgument:
    shown = value.item() if isinstance(value, np.generic) else value
    return InvalidArgument(f"{name} must be {allowed}. Got {shown!r}. {_HINTS.get(name, '')}".rstrip())
