"""Where results go: sentences or JSON to standard output, complaints to standard error, pictures to files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = (".png", ".svg", ".pdf")


def say(paragraphs: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print titles, each with its lines; a paragraph's lines are indented under its title."""
    console = Console(highlight=False, soft_wrap=True)
    for index, (title, lines) in enumerate(paragraphs):
        if index:
            console.print()
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Text(f"  {line}"))


def complain(message: str) -> None:
    """Print what went wrong to standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("Error: ", "bold red"), message))


def note(message: str) -> None:
    """Print what is worth knowing, and is not the result, to standard error."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))


def working(what: str) -> AbstractContextManager[object]:
    """A sign of life on standard error while something is being worked out, if someone is watching."""
    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else nullcontext()


@contextmanager
def before_the_first_step(*, is_resumed: bool = False) -> Iterator[None]:
    """Reading and planning: Ctrl-C in here ends with 130, and is told that it cost nothing."""
    try:
        yield
    except KeyboardInterrupt:
        more = "more " if is_resumed else ""
        note(f"Stopped before the first step: nothing {more}was released, and nothing {more}was spent.")
        raise typer.Exit(130) from None


def say_json(values: dict[str, Any]) -> None:
    """Print valid JSON: infinity, for which it has no number, is the string "inf"."""
    print(json.dumps(without_infinity(values), indent=2, allow_nan=False))


def without_infinity(value: Any) -> Any:
    """The same values with a string for infinity."""
    if isinstance(value, dict):
        return {key: without_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinity(inner) for inner in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def refuse_unless_drawable(path: Path | None) -> None:
    """Raise `InvalidArgument`, before anything is worked out, if no picture could be written to `path`."""
    if path is None:
        return
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidArgument(
            f"--plot must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}, which says the kind of picture. "
            f"Got {str(path)!r}. Try {path.with_suffix('.png') if path.name else 'epsilon.png'}."
        )
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InvalidArgument(f"--plot cannot write {path}: there is no folder {folder}. Create it first.")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidArgument(f"--plot cannot write {path}: it is not writable. Choose another folder.")


def refuse_unless_writable(folder: Path) -> None:
    """Raise `InvalidArgument`, before anything is spent, if nothing can be written to the folder, which may be new."""
    try:
        place = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
        with TemporaryDirectory(dir=place):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidArgument(
            f"The run cannot be written to {folder}: {why}. --out must be a folder, old or new. Choose another."
        ) from error


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format that its suffix names."""
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot cannot write {path}: {error.strerror or error}. Choose another file.") from error
