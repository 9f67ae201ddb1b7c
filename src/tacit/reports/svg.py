"""Figures as SVG elements of a page: text stays text, with names for screen readers and the page's colours.

`as_svg` converts a figure of matplotlib; its colours become variables, so it follows the light or dark theme.
`sketch_tradeoff` writes the SVG itself: a comparison has one per row, and matplotlib is too slow for that.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from tacit.reports.curves import Tradeoff

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
# The square of a sketch: its left and upper edge, and the length of its sides.
_LEFT, _TOP, _SIDE = 62.0, 10.0, 270.0
_WIDE, _HIGH = 352.0, 322.0
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


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


def sketch_tradeoff(found: Tradeoff, *, key: str, description: str) -> str:
    """The trade-off curve as an element of a page; `key` makes its ids unique on the page."""
    lower = list(zip(found.false_alarms, found.missed_lower, strict=True))
    upper = list(zip(found.false_alarms, found.missed_upper, strict=True))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE:g} {_HIGH:g}" font-size="12" role="img" '
        f'aria-labelledby="{key}-title {key}-words">',
        f'<title id="{key}-title">What an attacker can do</title><desc id="{key}-words">{escape(description)}</desc>',
        *(_tick(share) for share in _TICKS),
        _text(_LEFT + _SIDE / 2, _HIGH - 4, "false alarms α", "middle"),
        f'<g transform="rotate(-90)">{_text(-_TOP - _SIDE / 2, 13, "members missed β", "middle")}</g>',
        _line([(0.0, 1.0), (1.0, 0.0)], "var(--faint)", 1.0),
        f'<polygon points="{_points([*lower, *reversed(upper)])}" fill="var(--blue)" fill-opacity="0.3"/>',
        _line(lower, "var(--blue)", 2.2),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts)


def _legend() -> list[str]:
    """Above the line of random guessing, where there is no curve."""
    right = _LEFT + _SIDE - 6
    entries = [("var(--blue)", "certified: no attack goes below"), ("var(--faint)", "random guessing")]
    return [_text(right, _TOP + 18 + 17 * place, words, "end", ink) for place, (ink, words) in enumerate(entries)]


def _tick(share: float) -> str:
    """A tick in percent on both axes, with grid lines."""
    (x, y), name = _place(share, share), f"{100 * share:g} %"
    across = [[(share, 0.0), (share, 1.0)], [(0.0, share), (1.0, share)]]
    lines = "".join(_line(ends, "var(--grid)", 0.6) for ends in across)
    return lines + _text(x, _TOP + _SIDE + 17, name, "middle") + _text(_LEFT - 6, y + 4, name, "end")


def _line(points: Iterable[tuple[float, float]], ink: str, wide: float) -> str:
    return f'<polyline points="{_points(points)}" fill="none" stroke="{ink}" stroke-width="{wide:g}"/>'


def _text(x: float, y: float, words: str, anchor: str, ink: str = "currentColor") -> str:
    # The page sets one colour for all text of figures; only an inline style overrides it.
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="fill: {ink}">{escape(words)}</text>'


def _points(points: Iterable[tuple[float, float]]) -> str:
    places = (_place(alarms, missed) for alarms, missed in points)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _place(alarms: float, missed: float) -> tuple[float, float]:
    return _LEFT + alarms * _SIDE, _TOP + (1 - missed) * _SIDE
