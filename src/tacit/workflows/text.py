"""What results print and draw: titles with lines below them, JSON without infinities, pictures in files."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    # Checks must not wait for it.
    from matplotlib.figure import Figure

# A title and the lines below it.
Paragraph = tuple[str, list[str]]
_SUFFIXES = (".png", ".svg", ".pdf")


def join_paragraphs(paragraphs: Iterable[Paragraph]) -> str:
    """One text, with a blank line between paragraphs and lines indented below their title."""
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in paragraphs)


class ShownAsText:
    """A result that a notebook shows as the text that `print` would write."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class Printable(ShownAsText, ABC):
    """A result that is printed as titles with lines below them."""

    @abstractmethod
    def paragraphs(self) -> list[Paragraph]:
        """All that it says."""

    def __str__(self) -> str:
        return join_paragraphs(self.paragraphs())


def replace_infinity(value: Any) -> Any:
    """The same values with the string "inf" for infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: replace_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_infinity(inner) for inner in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def refuse_unless_drawable(path: Path | None) -> None:
    """Raise `InvalidArgument`, before anything is computed, if no picture could be written to `path`."""
    if path is None:
        return
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidArgument(
            f"--plot must end in {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]}, which sets the format. "
            f"Got {str(path)!r}. Try {path.with_suffix('.png') if path.name else 'epsilon.png'}."
        )
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InvalidArgument(f"--plot cannot write {path}: there is no folder {folder}. Create it first.")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise InvalidArgument(f"--plot cannot write {path}: it is not writable. Choose another folder.")


def save_picture(figure: Figure, path: Path) -> None:
    """Write the picture in the format that its suffix names."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot cannot write {path}: {error.strerror or error}. Choose another file.") from error
