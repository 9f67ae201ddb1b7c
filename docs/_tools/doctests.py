"""Show the doctests of docstrings as code: in Markdown, `>>>` would begin a quotation."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^(?P<indent>[ ]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fence(text: str) -> str:
    """Put each example, up to the next empty line, between fences."""

    def write(found: re.Match[str]) -> str:
        indent = found["indent"]
        return f"{indent}```pycon\n{found[0]}\n{indent}```"

    return EXAMPLE.sub(write, text)


class FencedDoctests(griffe.Extension):
    """Fences the examples of every docstring when it is collected."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object once its docstring is known."""
        if obj.docstring:
            obj.docstring.value = fence(obj.docstring.value)
