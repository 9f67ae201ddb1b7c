"""What results print: titles with lines below them, and JSON without infinities."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

# A title and the lines below it.
Paragraph = tuple[str, list[str]]


def join_paragraphs(paragraphs: Iterable[Paragraph]) -> str:
    """One text, with a blank line between paragraphs and lines indented below their title."""
    return "\n\n".join("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in paragraphs)


def replace_infinity(value: Any) -> Any:
    """The same values with the string "inf" for infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: replace_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_infinity(inner) for inner in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value
