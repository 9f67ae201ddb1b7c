"""The picture and the page of a comparison: scores over certified epsilon, one panel for each adjacency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, NullLocator

from tacit.report import figures, page
from tacit.report.comparison import is_proven, read_comparison
from tacit.report.facts import Facts

# Colours and markers both differ, so that neither colour vision nor a copier matters.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_TITLES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
_FAR = 100.0


def write_comparison(folder: Path, out: Path) -> tuple[Facts, tuple[Path, Path, Path]]:
    """The page, its twin and the picture of the comparison in the folder."""
    facts = read_comparison(folder)
    with page.writing(out):
        out.mkdir(parents=True, exist_ok=True)
        picture = out / "comparison.png"
        draw_scores(facts).savefig(picture, dpi=150)
    html, twin = page.write(facts, comparison_page(facts), out)
    return facts, (html, twin, picture)


def draw_scores(facts: Facts) -> Figure:
    """The score over the certified epsilon, all panels in a row."""
    panels = panels_of(facts)
    figure = Figure(figsize=(4.6 * len(panels), 5.6), layout="constrained")
    parts = figure.subfigures(1, len(panels), squeeze=False)[0]
    for part, panel in zip(parts, panels, strict=True):
        _draw_panel(part, facts, panel)
    seeds = "1 seed" if facts["seeds"] == 1 else f"{facts['seeds']} seeds"
    figure.suptitle(f"{facts['title']} (δ = {facts['delta']:g}, {seeds})", fontsize=12)
    return figure


def panels_of(facts: Facts) -> list[str]:
    """The adjacencies that there is something to draw for."""
    return [kind for kind in _TITLES if any(row["adjacency"] == kind and _is_drawn(row) for row in facts["rows"])]


def _draw_panel(figure: FigureBase, facts: Facts, panel: str) -> None:
    axes = figure.subplots()
    there = [row for row in facts["rows"] if row["adjacency"] == panel and _is_drawn(row)]
    beyond = 2.0 * max([row["certified"] for row in there if _has_place(row)] or [1.0])
    methods = list(dict.fromkeys(row["method"] for row in there))
    for place, method in enumerate(methods):
        # Points at the same epsilon are set apart a little, or their bars would hide each other.
        apart = 1.015 ** (place - len(methods) / 2)
        look = {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKERS[place % len(_MARKERS)]}
        _draw_method(axes, [row for row in there if row["method"] == method], look, apart, beyond)
    _draw_levels(axes, facts)
    _mark_epsilons(axes, there, beyond)
    axes.set_ylim(*_limits(facts))
    axes.set_ylabel(f"test {facts['measure']}")
    axes.set_title(_TITLES[panel], loc="left", fontsize=10)
    if facts["measure"] == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8, columnspacing=0.6, handlelength=1.6)


def _draw_method(axes: Axes, rows: Sequence[Facts], look: dict[str, Any], apart: float, beyond: float) -> None:
    """A line of filled marks with bars; hollow ones for the published form, at the edge where nothing is proven."""
    ours = [row for row in rows if row["mode"] == "rigorous"]
    if ours:
        axes.errorbar(
            [row["certified"] * apart for row in ours],
            [row["mean"] for row in ours],
            yerr=[row["half"] for row in ours],
            label=ours[0]["label"].replace("_", " "),
            linewidth=1.3,
            elinewidth=0.6,
            capsize=1.5,
            markersize=4.5,
            **look,
        )
    published = [row for row in rows if row["mode"] == "paper"]
    if published:
        places = [(row["certified"] if _has_place(row) else beyond) * apart for row in published]
        axes.plot(
            places,
            [row["mean"] for row in published],
            label=None if ours else published[0]["label"].replace("_", " "),
            linestyle=":" if all(map(_has_place, published)) else "",
            linewidth=1.0,
            markersize=5.5,
            fillstyle="none",
            **look,
        )


def _draw_levels(axes: Axes, facts: Facts) -> None:
    for row in facts["rows"]:
        if row["label"] == "without privacy":
            axes.axhline(row["mean"], color="#000000", linewidth=1.0, linestyle=(0, (4, 3)), label="without privacy")
    if facts["data"].get("constant") is not None:
        level = facts["data"]["constant"]
        axes.axhline(level, color="#777777", linewidth=1.0, linestyle=":", label="one answer for all")
    if any(_is_drawn(row) and row["mode"] == "paper" for row in facts["rows"]):
        axes.plot([], [], "o", color="#777777", fillstyle="none", markersize=5.5, label="hollow: as published, refuted")


def _mark_epsilons(axes: Axes, rows: Sequence[Facts], beyond: float) -> None:
    ticks = sorted({float(f"{row['certified']:.2g}") for row in rows if _has_place(row) and row["mode"] == "rigorous"})
    names = [f"{tick:g}" for tick in ticks]
    axes.set_xscale("log")
    if not all(_has_place(row) for row in rows):
        axes.axvline(beyond / 1.4, color="#777777", linewidth=0.6)
        ticks, names = [*ticks, beyond], [*names, "nothing\nproven"]
    if ticks:
        axes.set_xticks(ticks, names)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("certified ε")


def _limits(facts: Facts) -> tuple[float, float]:
    """Room for every mean; bars may go beyond it."""
    seen = [row["mean"] for row in facts["rows"] if row["mean"] is not None]
    if facts["data"].get("constant") is not None:
        seen.append(facts["data"]["constant"])
    low, high = float(np.min(seen)), float(np.max(seen))
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.1
    return low - room, high + room


def _is_drawn(row: Facts) -> bool:
    """Whatever has a proof; published forms only where they are refuted, for else they are the same with more noise."""
    return row["mean"] is not None and (
        row["status"] == "refuted" if row["mode"] == "paper" else row["certified"] is not None
    )


def _has_place(row: Facts) -> bool:
    """Whether there is a certified epsilon to draw it at, of a size that says anything."""
    return is_proven(row) and bool(row["certified"] <= _FAR)


def comparison_page(facts: Facts) -> str:
    """The page, with a figure for each adjacency."""
    shown = []
    for panel in panels_of(facts):
        figure = Figure(figsize=(4.6, 5.4), layout="constrained")
        _draw_panel(figure, facts, panel)
        title = f"What privacy costs: {_TITLES[panel]}"
        words = (
            f"The {facts['measure']} on test examples over the certified epsilon, for {_TITLES[panel]}. Bars are 95 % "
            "intervals; the dashed line is the model without privacy, the dotted one the same answer for all. "
            "Every number is in the table below."
        )
        svg = figures.as_svg(figure, key=panel.replace("_", "-"), title=title, description=words)
        shown.append({"key": panel, "svg": svg, "title": title, "words": words})
    return page.render("comparison.html", facts, figures=shown)
