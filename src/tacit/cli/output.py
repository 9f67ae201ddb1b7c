"""Where output goes: results to standard output as text or JSON, errors and warnings to standard error."""

from __future__ import annotations

import io
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tacit.errors import Caution, break_command, split_command


def escape_unprintable() -> None:
    """Print as an escape what the encoding of the output lacks, such as ε without a locale. It would be an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(paragraphs: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print titles, each with its lines indented below; in a terminal, long lines are wrapped at words."""
    console = Console(highlight=False)
    for index, (title, lines) in enumerate(paragraphs):
        if index:
            console.print()
        _print(console, Text(title, style="bold"), 0)
        for line in lines:
            _print(console, Text(line), 2)


def complain(message: str) -> None:
    """Print an error to standard error."""
    _print_lines(Text.assemble(("Error: ", "bold red"), message))


def note(message: str) -> None:
    """Print a message that is not the result to standard error."""
    _print_lines(Text(message))


def _print_lines(text: Text) -> None:
    console = Console(stderr=True, highlight=False)
    for line in text.split("\n", allow_blank=True):
        _print(console, line, 0)


def _print(console: Console, text: Text, indent: int) -> None:
    """Print one line. A terminal gets it wrapped, below its last column; a word that is too long stays whole."""
    if not console.is_terminal:
        console.print(Text(" " * indent) + text, soft_wrap=True)
        return
    if (
        cell_len(text.plain) > console.width - indent
        and ": tacit " in text.plain
        and _print_command(console, text, indent)
    ):
        return
    below = _find_last_column(text.plain) if cell_len(text.plain) > console.width - indent else 0
    # The last column may begin too far to the right to hold any words.
    below = below if below <= console.width // 2 else 4
    head, rest = text[:below], text[below:]
    for place, line in enumerate(rest.divide(_find_breaks(rest.plain, console.width - indent - below))):
        line.rstrip()
        before = head if place == 0 else Text(" " * below)
        console.print(Text(" " * indent) + before + line, soft_wrap=True)


def _print_command(console: Console, text: Text, indent: int) -> bool:
    """Print a command in the text on lines of its own, which can be copied; False if there is none."""
    parts = split_command(text.plain)
    if parts is None:
        return False
    before, command, after = parts
    _print(console, text[: len(before)], indent)
    for line in break_command(command, console.width - indent - 2):
        console.print(Text(" " * (indent + 2) + line), soft_wrap=True)
    if after:
        _print(console, Text(after), indent)
    return True


def _find_breaks(line: str, width: int) -> list[int]:
    """Where lines after the first begin, so that each has at most `width` columns or a single word.

    >>> _find_breaks("one two three", 7)
    [8]
    """
    breaks, used = list[int](), 0
    for word in re.finditer(r"\s*(\S+)", line):
        if used and used + cell_len(word[0]) > width:
            breaks.append(word.start(1))
            used = cell_len(word[1])
        else:
            used += cell_len(word[0])
    return breaks


def _find_last_column(line: str) -> int:
    """Where the text after the last gap of two spaces, or after the mark of a list, begins.

    >>> [_find_last_column(line) for line in ("RDP      2.6  an upper bound", "- one of several", "a b")]
    [14, 2, 0]
    """
    found = re.match(r"\s*(- )?(.*\S {2,}(?=\S))?", line)
    assert found is not None
    return found.end()


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


def say_result(found: Any, as_json: bool) -> None:
    """Print what a workflow found, as paragraphs or as JSON."""
    if as_json:
        say_json(found.to_json())
    else:
        say(found.paragraphs())
