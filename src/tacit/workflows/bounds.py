"""Write a template of the bounds of a table, from its column names alone: what `tacit bounds` calls."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._files import expand_home, name_of, write_atomic
from tacit.datasets import Bounds, is_table
from tacit.datasets._bounds import TODO, write_template
from tacit.datasets._columns import shorten, suggest
from tacit.datasets._read import name_source, read_header
from tacit.errors import InvalidArgument
from tacit.workflows.text import Paragraph, join_paragraphs

_SHOWN = 8


@dataclass(frozen=True)
class BoundsTemplate:
    """A bounds file that is still to be filled in. `path` is where it was written; None if it was not."""

    text: str
    columns: tuple[str, ...]
    target: str
    path: Path | None = None

    def paragraphs(self) -> list[Paragraph]:
        """What was written, and what to do next."""
        marked = [line.partition(" = ")[0] for line in self.text.split("[columns]")[1].splitlines() if TODO in line]
        more = f", and {len(marked) - _SHOWN:,} more" if len(marked) > _SHOWN else ""
        lines = [
            f"Only the header was read: {len(self.columns):,} columns, target {self.target}.",
            f"Replace each {TODO}: rows, {', '.join(marked[:_SHOWN])}{more}.",
            "Declare what you know about such data. Do not look it up in the table.",
        ]
        return [(f"Template of bounds: {self.path}", lines)]

    def __str__(self) -> str:
        return self.text if self.path is None else join_paragraphs(self.paragraphs())


def bounds(table: Any, *, target: str, out: str | Path | None = None) -> BoundsTemplate:
    """A template for the bounds of a table: a file, or a DataFrame. It is written to `out`, if that is given.

    Costs no privacy: only the names of the columns are read, which are taken as public, and no value. Names that look
    like identifiers are declared as ignored, names that look like dates as dates; check both. A table without a header,
    and a file `out` that exists already, are refused.
    """
    names = read_header(table)
    if target not in names:
        raise InvalidArgument(
            f"{name_source(table)} has no column {target!r}.{suggest(target, names)} Its columns are "
            f"{shorten(names, _SHOWN)}."
        )
    source = name_source(table)
    text = write_template("the table" if isinstance(source, str) else name_of(source), names, target)
    if out is None:
        return BoundsTemplate(text, names, target)
    path = Path(out)
    if path.exists():
        raise InvalidArgument(f"{path} exists already, and is not overwritten. Choose another --out, or move it away.")
    try:
        write_atomic(path, text.encode(), is_private=False)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}. Choose another --out.") from error
    return BoundsTemplate(text, names, target, path)


def check_table(table: str | Path | None, target: str | None, bounds: Path | None) -> None:
    """Refuse bounds with problems, a target that they lack, and a table that is not there, before any row is read.

    It checks nothing if `table` is no table or an option is missing: loading the data refuses those.
    """
    if table is None or not is_table(str(table)) or target is None or bounds is None:
        return
    Bounds.read(bounds).features(target)
    if not expand_home(table).exists():
        raise InvalidArgument(f"There is no file {table}. Give the path of your table.")
