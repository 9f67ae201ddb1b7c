"""Figures of matplotlib as SVG elements of a page: text stays text, with names for screen readers.

Colours become variables of the page, so a figure follows the light or dark theme.
"""

from __future__ import annotations

import io
import re
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

_COLOURS = {
    "#000000": "currentColor",
    "#dddddd": "var(--grid)",
    "#777777": "var(--faint)",
    "#0072b2": "var(--blue)",
    "#d55e00": "var(--orange)",
    "#009e73": "var(--green)",
    "#aa4499": "var(--purple)",
    "#b8860b": "var(--yellow)",
    "#c1272d": "var(--red)",
    "#2aa7c9": "var(--sky)",
    "#7a5230": "var(--brown)",
}
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
# A style for all elements would apply to the whole page, which has its own rule for figures.
_STYLE = re.compile(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>")


def as_svg(figure: Figure, *, key: str, title: str, description: str) -> str:
    """The figure as an element of a page; `key` makes its ids unique on the page."""
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(
            written,
            format="svg",
            transparent=True,
            bbox_inches="tight",
            pad_inches=0.04,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = _STYLE.sub("", _PROLOGUE.sub("", written.getvalue()))
    for colour, name in _COLOURS.items():
        svg = svg.replace(colour, name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{key}-", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    named = f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-words">{escape(description)}</desc>'
    return f'{head} role="img" aria-labelledby="{key}-title {key}-words">{named}{rest}'
