"""Tables and pictures on pages: between their markers in a README, or in a file of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tacit.errors import InvalidArgument


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """A table of which the first row is the head.

    >>> print(markdown_table([("method", "epsilon"), ("dpsgd", "2.38")]))
    | method | epsilon |
    |---|---|
    | dpsgd | 2.38 |
    """
    head, *rest = rows
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rest)])


def tables_in(page: str) -> dict[str, str]:
    """What stands between the markers of a page, by name."""
    found = re.finditer(r"<!-- (?P<name>[^>]+): begin -->\n(?P<text>.*?)\n<!-- (?P=name): end -->", page, re.DOTALL)
    return {match["name"]: match["text"].strip() for match in found}


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with these tables between their markers. A table without markers would be lost: that is an error."""
    lost = [name for name in tables if name not in tables_in(page)]
    if lost:
        wanted = f"<!-- {lost[0]}: begin -->"
        raise InvalidArgument(f"The page has no place for {', '.join(lost)}. Put {wanted} and the same with end there.")
    for name, text in tables.items():
        begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


def write_page(folder: Path, title: str, tables: Mapping[str, str], pictures: Iterable[str]) -> Path:
    """The tables and pictures of a run in a folder of its own."""
    parts = [f"# {title}", *(f"## {name}\n\n{text}" for name, text in tables.items())]
    parts += [f"![{name}](pictures/{name}.png)" for name in pictures]
    path = folder / "tables.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
