"""Whether the file of a cell holds all that its row, its picture and its part of the page are made of.

Files may be cut off or edited: what is damaged is to be found where the file is known, not where it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit.reports.facts import Facts
from tacit.reports.series import Tradeoff
from tacit.reports.verdicts import NON_PRIVATE

# A share is the sum of many numbers, and may be beyond its ends by so much.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Or:
    """A shape, or None; if it `may_lack`, nothing may be said at all."""

    shape: Any
    may_lack: bool = False


# A condition; the parts of a dictionary; in a list, what all items of a list are.
_Shape = Callable[[Any], bool] | dict[str, Any] | list[Any] | _Or


def refuse_unless_whole(cell: Facts) -> None:
    """Raise `ValueError`, with the name of the part, unless all is there and of its kind."""
    is_plain = cell["method"] == NON_PRIVATE
    _refuse_unless(_KEY | {"epsilon": _is_nothing if is_plain else _is_positive}, cell)
    if cell.get("refused"):
        return
    _refuse_unless(_SCORED if is_plain else _SCORED | _PRIVATE, cell)
    ((measure, value),) = cell["score"].items()
    if measure not in _SCORES or not (value is None or _SCORES[measure](value)):
        raise ValueError(f"{measure} {value!r} is no score")
    if not is_plain:
        drawn, spent = cell["details"].get("tradeoff"), cell["details"]["epsilon_over_steps"]
        _refuse_uneven(drawn, ("false_alarms", "missed_lower", "missed_upper"))
        _refuse_uneven(spent, ("steps", "lower", "upper"))
        if drawn is not None:
            Tradeoff(**drawn)


def _refuse_unless(shape: _Shape, value: Any, name: str = "") -> None:
    if isinstance(shape, _Or):
        if value is None or (shape.may_lack and value is ...):
            return
        shape = shape.shape
    if value is ...:
        raise ValueError(f"nothing is said of {name}")
    if not (shape(value) if callable(shape) else isinstance(value, type(shape))):
        raise ValueError(f"{name} cannot be {repr(value)[:60]}")
    if isinstance(shape, dict):
        for part, inner in shape.items():
            _refuse_unless(inner, value.get(part, ...), f"{name}.{part}".removeprefix("."))
    elif isinstance(shape, list):
        for place, item in enumerate(value):
            _refuse_unless(shape[0], item, f"{name}[{place}]")


def _refuse_uneven(curves: Facts | None, names: tuple[str, ...]) -> None:
    if curves is not None and len({len(curves[name]) for name in names}) > 1:
        raise ValueError(f"{', '.join(names)} are not as many")


def _is_nothing(value: Any) -> bool:
    return value is None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not _is_flag(value) and math.isfinite(value)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_share(value: Any) -> bool:
    return _is_number(value) and -_ROUNDING <= value <= 1 + _ROUNDING


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_amount(value)


# Where training diverged, earlier versions wrote what it came to: infinite, or no number, and so is the interval.
def _is_error(value: Any) -> bool:
    return isinstance(value, float) and not value < 0


def _is_interval(value: Any) -> bool:
    return isinstance(value, list) and [type(end) for end in value] == [float, float] and not value[0] > value[1]


def _are_amounts(value: Any) -> bool:
    """The epsilons of other accountants by name; None for one that refuses the event."""
    return isinstance(value, dict) and all(epsilon is None or _is_amount(epsilon) for epsilon in value.values())


def _is_mode(value: Any) -> bool:
    return value in ("rigorous", "paper")


def _is_adjacency(value: Any) -> bool:
    return value in ("add_remove", "replace_one")


_SCORES = {"accuracy": _is_share, "rmse": _is_error}
_KEY: dict[str, Any] = {
    "method": _is_text,
    "mode": _is_mode,
    "seed": _is_count,
    "choices": _Or([_is_text], may_lack=True),
    "refused": _Or(_is_text, may_lack=True),
}
_SCORED: dict[str, Any] = {
    "score": {},
    "interval": _Or(_is_interval),
    "seconds": _is_amount,
    "how": _Or(_is_text, may_lack=True),
    "learning_rate": _Or(_is_positive, may_lack=True),
    "multiplier": _Or(_is_amount, may_lack=True),
}
_BOUND = {"lower": _Or(_is_amount), "upper": _Or(_is_amount)}
_FOUND = {"false_alarms": _is_share, "members_found": _is_share}
_ATTACKER = {"found": [_FOUND], "advantage": _is_share, "mu": _Or(_is_amount), "mu_regret": _is_share}
_TOLD = {
    "statement": _is_text,
    "sentences": [_is_text],
    "is_proven": _is_flag,
    "delta": _is_share,
    "profile": [{"delta": _is_share, **_BOUND}],
    "attacker": _Or(_ATTACKER),
    "adjacency": {"words": _is_text},
    "unit": _is_text,
    "trusted": _is_text,
    "sampling": {"implemented": _Or(_is_text), "assumed": _Or(_is_text)},
    "accountant": _Or({"name": _is_text, "version": _is_text, "others": _are_amounts}),
    "unprotected": [_is_text],
    "assumptions": [{"key": _is_text, "text": _is_text}],
    "notes": [_is_text],
}
_CURVE = {"false_alarms": [_is_share], "missed_lower": [_is_share], "missed_upper": [_is_share]}
_SPENT = {"steps": [_is_count], "lower": [_Or(_is_amount)], "upper": [_Or(_is_amount)]}
_PRIVATE: dict[str, Any] = {
    "guarantee": {
        "proven": {"epsilon_upper": _Or(_is_amount)},
        "claim": _Or({"epsilon": _Or(_is_amount)}),
        "status": _is_text,
        "adjacency": _is_adjacency,
        "unprotected": [_is_text],
    },
    "details": {
        "guarantee": _TOLD,
        "tradeoff": _Or(_CURVE, may_lack=True),
        "released": [_is_text],
        "not_released": [_is_text],
        "noise_from": _Or(_is_text),
        "epsilon_over_steps": _Or(_SPENT),
    },
}
