"""Figures as scalable vector graphics that stand in a page: readable text, named for screen readers, light and dark.

Matplotlib draws; colours then become those of the page, so that a figure follows its light or dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit.reports.plots import draw_missed, draw_spending
from tacit.reports.series import Spending, Tradeoff

# A column of a phone: text then keeps its size there, and grows on wider pages.
_WIDTH = 4.6
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
# A style for all elements would reach out of the figure into the page, which has a rule of its own for figures.
_STYLE = re.compile(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>")


@dataclass(frozen=True)
class Line:
    """A curve of the picture of scores: its points (step, score), and what it is."""

    points: Sequence[Sequence[float]]
    label: str
    is_private: bool = True


def as_svg(figure: Figure, *, key: str, title: str, description: str) -> str:
    """The figure as an element of a page; `key` keeps its names apart from those of other figures."""
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


def tradeoff(found: Tradeoff) -> Figure:
    """The trade-off curve."""
    figure, axes = _empty(6.3)
    draw_missed(found, axes)
    return figure


def epsilon_over_steps(spent: Spending, budget: float | None) -> Figure:
    """Epsilon over the steps, by every accountant."""
    figure, axes = _empty(6.0)
    draw_spending(spent, axes, budget)
    return figure


def scores(lines: Sequence[Line], name: str) -> Figure:
    """How well the model did on test examples, over the steps; without privacy dashed."""
    figure, axes = _empty(3.6)
    for line in lines:
        style = {"color": "#0072B2", "linewidth": 2.0} if line.is_private else {"color": "#777777", "linestyle": "--"}
        steps, values = zip(*line.points, strict=True)
        axes.plot(steps, values, label=line.label, marker="o" if len(steps) < 3 else "", **style)
    axes.set(xlabel="steps", ylabel=name)
    axes.set_title("What the model learnt", loc="left", fontsize=11)
    if name == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="best", frameon=False, fontsize=9)
    return figure


def _empty(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()
