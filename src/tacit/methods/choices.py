"""A method's further arguments as text, NAME=VALUE, parsed by the type of the argument."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tacit.errors import InvalidArgument
from tacit.methods.registry import find_method

Value = str | int | float | bool
_OPTIONS_OF_THEIR_OWN = ("clip_norm", "multiplier", "mode", "return")
_EXAMPLE = "--set takes NAME=VALUE, such as --set variant=w1 with --method directional"
_WORDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a name"}


@dataclass(frozen=True)
class MethodChoice:
    """An argument that text can set: one of `allowed`, if there are any, or a value of type `kind`."""

    name: str
    kind: type
    allowed: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The allowed values, in words."""
        *first, last = self.allowed or [_WORDS[self.kind]]
        return " or ".join(filter(None, (", ".join(first), last)))

    def read(self, text: str) -> Value:
        """The value of the text; `InvalidArgument` with the allowed values."""
        refusal = InvalidArgument(f"--set {self.name} must be {self.words}. Got {text!r}.")
        if self.allowed or self.kind is bool:
            known: dict[str, Value] = dict(zip(self.allowed, self.allowed, strict=True))
            known = known or {"true": True, "false": False}
            if text not in known:
                raise refusal
            return known[text]
        try:
            value: Value = self.kind(text)
        except ValueError:
            raise refusal from None
        return value


def choices_of(method: str) -> dict[str, MethodChoice]:
    """Every choice of the method, by name. Arguments that are objects, such as a rule, can be set in Python only, and
    so can all of a method for linear models.
    """
    entry = find_method(method)
    if entry.kind == "linear":
        return {}
    hints = get_type_hints(entry.load())
    found = (_choice(name, hint) for name, hint in hints.items() if name not in _OPTIONS_OF_THEIR_OWN)
    return {choice.name: choice for choice in found if choice is not None}


def read_choices(method: str, texts: Iterable[str]) -> dict[str, Value]:
    """The values that the texts NAME=VALUE set; unknown names and values are refused.

    >>> read_choices("pruned", ["keep=0.2", "select_by=past", "refresh=5"])
    {'keep': 0.2, 'select_by': 'past', 'refresh': 5}
    """
    chosen: dict[str, Value] = {}
    known = choices_of(method)
    for text in texts:
        name, is_given, value = (part.strip() for part in text.partition("="))
        if not is_given or not name:
            raise InvalidArgument(f"{_EXAMPLE}. Got {text!r}.")
        if name not in known:
            offered = "; ".join(f"{choice.name} ({choice.words})" for choice in known.values()) or "none for it"
            raise InvalidArgument(f"{method} has no choice {name!r}. --set takes: {offered}.")
        if name in chosen:
            raise InvalidArgument(f"--set {name} was given twice, for {method}. Leave one out.")
        chosen[name] = known[name].read(value)
    return chosen


def as_texts(chosen: Mapping[str, Value]) -> list[str]:
    """The texts from which `read_choices` reads the same values.

    >>> as_texts({"keep": 0.2, "denoise": True})
    ['keep=0.2', 'denoise=true']
    """
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in chosen.items()]


def _choice(name: str, hint: Any) -> MethodChoice | None:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for kind in kinds:
        if get_origin(kind) is Literal:
            return MethodChoice(name, str, get_args(kind))
    # A bool is an int, and an int a float: the narrowest is meant.
    return next((MethodChoice(name, kind) for kind in (bool, int, float, str) if kind in kinds), None)
