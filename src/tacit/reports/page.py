"""The pages of runs and comparisons: one HTML file that needs nothing else, and its JSON twin with the same facts."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tacit._files import write_atomic
from tacit.accounting import other_accountants
from tacit.errors import InvalidArgument
from tacit.reports.answer import Answer
from tacit.reports.comparison import read_comparison
from tacit.reports.curves import Spending, Tradeoff
from tacit.reports.facts import Facts
from tacit.reports.plots import draw_missed, draw_spending
from tacit.reports.score_plots import OTHERS, TITLES, draw_lines, draw_scores, draw_scores_over_steps, list_panels
from tacit.reports.scores import format_interval, format_score
from tacit.reports.wording import down, name_measure, near, percent_up, title_measure, up

# The width of a phone: text keeps its size there, and grows on wider pages.
_WIDTH = 4.6
# Colours of figures become variables of the page, so that they follow its light or dark theme.
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


def write_run(facts: Facts, out: Path) -> tuple[Path, Path]:
    """Write the page of a run and its twin."""
    return _write(out, _make_files(facts, _render("run.html", facts, facts, figures=_draw_run(facts))))


def write_comparison(folder: Path, out: Path) -> tuple[Facts, tuple[Path, Path, Path]]:
    """Write the page, twin and picture of the comparison in `folder`; those of the user's own table are private."""
    facts, picture = read_comparison(folder), io.BytesIO()
    draw_scores(facts).savefig(picture, dpi=150)
    files = {"comparison.png": picture.getvalue(), **_make_files(facts, render_comparison(facts))}
    png, html, twin = _write(out, files, is_private=facts["data"]["is_own"])
    return facts, (html, twin, png)


def _make_files(facts: Facts, page: str) -> dict[str, bytes]:
    return {"report.html": page.encode(), "report.json": json.dumps(facts, indent=1, allow_nan=False).encode()}


def _write(folder: Path, files: dict[str, bytes], *, is_private: bool = False) -> tuple[Any, ...]:
    """Write the files into the folder; if they are private, only their owner can read them."""
    try:
        for name, content in files.items():
            write_atomic(folder / name, content, is_private=is_private)
    except OSError as error:
        raise InvalidArgument(
            f"The report cannot be written to {folder}: {error.strerror or error}. Choose another --out."
        ) from error
    return tuple(folder / name for name in files)


def render_comparison(facts: Facts) -> str:
    """The page of a comparison. Its source holds the facts without the guarantees of the rows, which are long."""
    figures = []
    for panel in list_panels(facts):
        title = f"{title_measure(facts['measure'])} over ε: {TITLES[panel]}"
        words = (
            f"Test {name_measure(facts['measure'])} over the certified ε, for {TITLES[panel]}. The best methods have "
            "their names beside their lines, with bars for 95 % confidence intervals. All others are grey, and in the "
            "table."
        )
        # The names of the best methods are at the right of the axes.
        figures.append(_draw(panel, 3.7, title, words, partial(draw_lines, facts=facts, panel=panel), wide=4.9))
    brief = {**facts, "rows": [{name: row[name] for name in row if name != "details"} for row in facts["rows"]]}
    groups: dict[str, list[Facts]] = {}
    for row in facts["rows"]:
        if row["details"]:
            groups.setdefault(row["label"], []).append(row)
    answer = Answer.of(facts)
    claims = {one["name"]: one["status"] for one in facts["methods"]}
    values = {"figures": figures, "answer": answer, "groups": groups, "titles": TITLES, "claims": claims}
    shared = facts["settings"].items()
    values["settings"] = [(_to_words(name), _format_setting(value)) for name, value in shared if value is not None]
    values["has_others"] = any(f'id="{one["key"]}-{OTHERS}-' in one["svg"] for one in figures)
    return _render("comparison.html", facts, brief, **values)


def _render(template: str, facts: Facts, embedded: Facts, **values: Any) -> str:
    # "</script" would end the element that holds the facts, and after "<!--<script" nothing would. In JSON, "<" is only
    # ever a part of a text.
    twin = json.dumps(embedded, allow_nan=False).replace("<", "\\u003c")
    return _make_environment().get_template(template).render(facts=facts, twin=twin, **values)


@lru_cache(maxsize=1)
def _make_environment() -> jinja2.Environment:
    """Templates are compiled once: that takes longer than to fill them in."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tacit.reports", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(up=_allow(up), down=_allow(down), near=_allow(near), percent_up=percent_up)
    environment.filters.update(words=_to_words, setting=_format_setting, accountants=_list_accountants)
    environment.filters.update(name_measure=name_measure, title_measure=title_measure)
    environment.globals.update(score=format_score, ends=format_interval)
    return environment


def _draw_run(facts: Facts) -> list[Facts]:
    guarantee, utility, figures = facts["guarantee"], facts["utility"], []
    if guarantee["is_proven"]:
        few, more = (one["members_found"] for one in guarantee["attacker"]["found"])
        curve, spent = Tradeoff(**facts["tradeoff"]), Spending(**facts["epsilon_over_steps"])
        words = (
            "Members missed over false alarms. No attack goes below the solid curve: it finds at most "
            f"{percent_up(few)} of members with 0.1 % false alarms, and at most {percent_up(more)} with 1 %."
        )
        figures.append(_draw("tradeoff", 6.3, "Membership attacks", words, lambda axes: draw_missed(curve, axes)))
        words = (
            f"Epsilon at delta {spent.delta:g} over the steps, certified and by other accountants; after "
            f"{_count_steps(facts)} it is at most {up(guarantee['epsilon']['upper'])}."
        )
        budget = facts["settings"]["epsilon"]
        figures.append(_draw("steps", 6.0, "ε over the steps", words, lambda axes: draw_spending(spent, axes, budget)))
    points, measure, baseline = utility["by_step"], utility["measure"], utility["non_private"]
    # A single score is in the text, and is not drawn.
    if len(points) > 1:
        level = None if baseline is None else baseline["final"]
        words = (
            f"Test {name_measure(measure)} over the steps; at the end it is {format_score(measure, utility['final'])}."
        )
        figures.append(
            _draw(
                "scores", 3.6, "Test scores", words, lambda axes: draw_scores_over_steps(points, measure, level, axes)
            )
        )
    return figures


def _draw(
    key: str, height: float, title: str, words: str, draw: Callable[[Axes], object], *, wide: float = _WIDTH
) -> Facts:
    figure = Figure(figsize=(wide, height), layout="constrained")
    draw(figure.subplots())
    return {"key": key, "svg": to_svg(figure, key=key, title=title, description=words), "title": title, "words": words}


def to_svg(figure: Figure, *, key: str, title: str, description: str) -> str:
    """The figure as an SVG element with text, and names for screen readers; `key` makes its ids unique on the page."""
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


def _count_steps(facts: Facts) -> str:
    """The number of steps; on the axis, the releases that prepare features come first."""
    steps, before = facts["epsilon_over_steps"]["steps"][-1], facts.get("preparation")
    if before is None:
        return f"{steps:,} steps"
    count = before["releases"]
    return f"{count} preparing {'release' if count == 1 else 'releases'} and {steps - count:,} steps"


def _allow(show: Callable[[float, int], str]) -> Callable[..., str]:
    """The same filter, with "none" for None."""

    def apply(value: float | None, digits: int = 5) -> str:
        return "none" if value is None else show(value, digits)

    return apply


def _list_accountants(epsilons: dict[str, float | None]) -> str:
    """The epsilons of other accountants, each with its label."""
    listed = [other for other in other_accountants() if other.name in epsilons]
    return ", ".join(
        f"{other.full_label} {_allow(near if other.is_asymptotic else up)(epsilons[other.name])}" for other in listed
    )


def _format_setting(value: Any) -> str:
    """A setting as text, with at most six digits.

    >>> _format_setting(2.4534010630), _format_setting(True), _format_setting({"variant": "w1", "keep": 0.2})
    ('2.4534', 'yes', 'variant w1, keep 0.2')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{_to_words(name)} {_format_setting(inner)}" for name, inner in value.items()) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _to_words(name: str) -> str:
    """A name of the code as words.

    >>> _to_words("lot_size")
    'lot size'
    """
    return name.replace("_", " ")
