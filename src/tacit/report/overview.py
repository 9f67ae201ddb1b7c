"""The picture and the page of a comparison: scores over certified epsilon, one panel for each adjacency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
    figure = Figure(figsize=(4.8 * len(panels) + 0.4, 5.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, facts, panel)
        axes.label_outer()
        axes.xaxis.set_tick_params(labelbottom=True)
    seeds = "1 seed" if facts["seeds"] == 1 else f"{facts['seeds']} seeds"
    figure.suptitle(f"{facts['title']} (δ = {facts['delta']:g}, {seeds})", fontsize=12)
    return figure


def panels_of(facts: Facts) -> list[str]:
    """The adjacencies that there is something to draw for."""
    return [kind for kind in _TITLES if any(row["adjacency"] == kind for row in facts["rows"])]


def _draw_panel(axes: Axes, facts: Facts, panel: str) -> None:
    there = [row for row in facts["rows"] if row["adjacency"] == panel]
    labels = list(dict.fromkeys(row["label"] for row in facts["rows"]))
    beyond = 2.2 * max([row["certified"] for row in there if _has_place(row)] or [1.0])
    shown = list(dict.fromkeys(row["label"] for row in there))
    for place, label in enumerate(shown):
        # Points at the same epsilon are set apart a little, or their bars would hide each other.
        apart = 1.013 ** (place - len(shown) / 2)
        _draw_method(axes, [row for row in there if row["label"] == label], labels.index(label), apart, beyond)
    _draw_levels(axes, facts)
    _mark_epsilons(axes, there, beyond)
    axes.set_ylim(*_limits(facts))
    axes.set_ylabel(f"test {facts['measure']}")
    axes.set_title(_TITLES[panel], loc="left", fontsize=10)
    if facts["measure"] == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="upper left", bbox_to_anchor=(-0.1, -0.14), frameon=False, fontsize=8, ncols=2, columnspacing=1.0)


def _draw_method(axes: Axes, rows: Sequence[Facts], number: int, apart: float, beyond: float) -> None:
    """A line over the epsilons that are certified; hollow marks at the edge where nothing is."""
    colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
    style = {"color": colour, "marker": marker, "markersize": 5, "label": rows[0]["label"].replace("_", " ")}
    certified = [row for row in rows if _has_place(row)]
    if certified:
        axes.errorbar(
            [row["certified"] * apart for row in certified],
            [row["mean"] for row in certified],
            yerr=[row["half"] for row in certified],
            linewidth=1.4,
            elinewidth=0.7,
            capsize=2,
            linestyle="-" if certified[0]["mode"] == "rigorous" else ":",
            **style,
        )
        style.pop("label")
    others = [row for row in rows if not _has_place(row)]
    if others:
        places = [beyond * apart] * len(others)
        axes.plot(places, [row["mean"] for row in others], linestyle="", fillstyle="none", **style)


def _draw_levels(axes: Axes, facts: Facts) -> None:
    for row in facts["rows"]:
        if row["label"] == "without privacy":
            axes.axhline(row["mean"], color="#000000", linewidth=1.0, linestyle=(0, (4, 3)), label="without privacy")
    if facts["data"].get("constant") is not None:
        level = facts["data"]["constant"]
        axes.axhline(level, color="#777777", linewidth=1.0, linestyle=":", label="one answer for all")


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


def _has_place(row: Facts) -> bool:
    """Whether there is a certified epsilon to draw it at, of a size that says anything."""
    return is_proven(row) and bool(row["certified"] <= _FAR)


def comparison_page(facts: Facts) -> str:
    """The page, with a figure for each adjacency."""
    shown = []
    for panel in panels_of(facts):
        figure = Figure(figsize=(4.6, 5.6), layout="constrained")
        _draw_panel(figure.subplots(), facts, panel)
        title = f"What privacy costs: {_TITLES[panel]}"
        words = (
            f"The {facts['measure']} on test examples over the certified epsilon, for {_TITLES[panel]}. Bars are 95 % "
            "intervals; the dashed line is the model without privacy, the dotted one the same answer for all. "
            "Every number is in the table below."
        )
        svg = figures.as_svg(figure, key=panel.replace("_", "-"), title=title, description=words)
        shown.append({"key": panel, "svg": svg, "title": title, "words": words})
    return page.render("comparison.html", facts, figures=shown)
