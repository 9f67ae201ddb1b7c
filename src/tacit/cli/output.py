"""Where output goes: results to standard output as text or JSON, errors and warnings to standard error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tacit.errors import Caution


def say(paragraphs: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print titles, each with its lines indented below; in a terminal, long lines are wrapped at words."""
    console = Console(highlight=False)
    for index, (title, lines) in enumerate(paragraphs):
        if index:
            console.print()
        _print(console, Text(title, style="bold"), 0)
        for line in lines:
            _print(console, Text(line), 2)


def _print(console: Console, text: Text, indent: int) -> None:
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(Text(" " * indent) + text, soft_wrap=True)


def complain(message: str) -> None:
    """Print an error to standard error."""
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("Error: ", "bold red"), message), soft_wrap=not console.is_terminal)


def note(message: str) -> None:
    """Print a message that is not the result to standard error."""
    console = Console(stderr=True, highlight=False)
    console.print(Text(message), soft_wrap=not console.is_terminal)


@contextmanager
def print_cautions() -> Iterator[None]:
    """Print every `Caution` as one sentence on standard error, without a place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Caution)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, Caution):
                note(f"WARNING: {message}")
            else:
                usual(message, category, *place, **more)

        warnings.showwarning = show
        yield


def say_json(values: dict[str, Any]) -> None:
    """Print valid JSON; infinity is the string "inf"."""
    from tacit.workflows.text import replace_infinity

    print(json.dumps(replace_infinity(values), indent=2, allow_nan=False))
