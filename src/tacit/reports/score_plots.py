"""Plots of scores: over the steps of a run, and over the certified epsilon of every row of a comparison.

A comparison has a panel for each adjacency. Rows without a certified epsilon are drawn at the right, at their target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from tacit.reports.cells import NON_PRIVATE, is_proven
from tacit.reports.facts import Facts

TITLES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
# Both colours and markers differ, for readers who cannot see colours, and for print in black and white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777", "#C1272D", "#2AA7C9", "#7A5230")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
_FAR = 100.0
_LEAST = 0.001
# The share of the distance to the next epsilon over which marks at one epsilon are spread.
_SPREAD = 0.62
# Errors whose largest exceeds the median by this factor need a logarithmic scale; accuracies never do.
_WIDE = 6.0


def panels_of(facts: Facts) -> list[str]:
    """The adjacencies with something to draw."""
    return [kind for kind in TITLES if any(row["adjacency"] == kind for row in _drawable(facts))]


def has_baseline(facts: Facts) -> bool:
    """Whether a line shows the baseline without privacy."""
    return bool(_baselines(facts))


def constant_label(facts: Facts) -> str:
    """The name of the best constant answer."""
    return "majority class" if facts["measure"] == "accuracy" else "constant prediction"


def _baselines(facts: Facts) -> list[float]:
    return [row["mean"] for row in facts["rows"] if row["method"] == NON_PRIVATE and row["mean"] is not None]


def _drawable(facts: Facts) -> list[Facts]:
    """The rows with a score and a guarantee."""
    return [row for row in facts["rows"] if row["mean"] is not None and row["adjacency"] is not None]


@dataclass(frozen=True)
class _Places:
    """Positions on the logarithmic axis.

    Rows without a certified epsilon, or with a very large one, are drawn at the right, at their target epsilon.
    """

    ticks: tuple[float, ...]
    targets: tuple[float, ...]
    methods: tuple[str, ...]

    @staticmethod
    def of(rows: Sequence[Facts]) -> _Places:
        ticks = {float(f"{_position(row):.2g}") for row in rows if _has_place(row) and row["mode"] == "rigorous"}
        ticks = ticks or {float(f"{_position(row):.2g}") for row in rows if _has_place(row)}
        targets = {row["epsilon"] for row in rows if not _has_place(row)}
        return _Places(
            tuple(sorted(ticks)), tuple(sorted(targets)), tuple(dict.fromkeys(row["method"] for row in rows))
        )

    @property
    def gap(self) -> float:
        """The smallest distance between ticks."""
        gaps = np.diff(np.log(self.ticks))
        return float(np.min(gaps)) if gaps.size else math.log(2)

    def beyond(self, rows: Sequence[Facts]) -> float:
        """The first position of rows without a certified epsilon."""
        certified = [_position(row) for row in rows if _has_place(row)]
        return math.log(max([*certified, *self.ticks, 1e-9])) + 1.35 * self.gap if certified else 0.0

    def place(self, row: Facts, beyond: float) -> float:
        """The position of a row; marks at the same epsilon are shifted, each method by its own amount."""
        count = len(self.methods)
        aside = (self.methods.index(row["method"]) - (count - 1) / 2) / max(count, 8) * _SPREAD * self.gap
        if _has_place(row):
            return math.exp(math.log(_position(row)) + aside)
        return math.exp(beyond + self.targets.index(row["epsilon"]) * self.gap + aside)


def draw_scores(facts: Facts) -> Figure:
    """Draw the scores of a comparison over the certified epsilon, all panels in a row."""
    panels = panels_of(facts)
    figure = Figure(figsize=(max(1, len(panels)) * 6.2, 6.6), layout="constrained")
    parts = figure.subfigures(1, max(1, len(panels)), squeeze=False, wspace=0.03)[0]
    for part, panel in zip(parts, panels, strict=False):
        draw_panel(part, facts, panel)
    progress = facts["progress"]
    unfinished = "" if progress["is_finished"] else f", unfinished: {progress['done']} of {progress['cells']} cells"
    figure.suptitle(f"{facts['title']} (δ = {facts['delta']:g}, {facts['seeds_in_words']}{unfinished})", fontsize=12)
    return figure


def draw_scores_over_steps(points: Sequence[Sequence[float]], measure: str, baseline: float | None, axes: Axes) -> None:
    """Draw test scores over the steps of a run; the final score of the baseline is a dashed line."""
    steps, values = zip(*points, strict=True)
    marker = "o" if len(steps) < 3 else ""
    axes.plot(steps, values, label="private", marker=marker, color="#0072B2", linewidth=2.0)
    if baseline is not None:
        axes.plot(
            steps, [baseline] * len(steps), label="without privacy", marker=marker, color="#777777", linestyle="--"
        )
    axes.set(xlabel="steps", ylabel=measure)
    axes.set_title("Test scores", loc="left", fontsize=11)
    if measure == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="best", frameon=False, fontsize=9)


def draw_panel(figure: FigureBase, facts: Facts, panel: str) -> None:
    """Draw the scores of every row of this adjacency, with a legend below."""
    axes = figure.subplots()
    rows = [row for row in _drawable(facts) if row["adjacency"] == panel]
    places = _Places.of(rows)
    beyond = places.beyond(rows)
    axes.set_xscale("log")
    for number, method in enumerate(places.methods):
        for mode in ("rigorous", "paper"):
            those = [row for row in rows if (row["method"], row["mode"]) == (method, mode)]
            for part in ([row for row in those if _has_place(row)], [row for row in those if not _has_place(row)]):
                _draw_rows(axes, part, [places.place(row, beyond) for row in part], look(number))
    # Horizontal lines come last: before the axis has its limits, matplotlib would include zero.
    _mark_epsilons(axes, places, [places.place(row, beyond) for row in rows], beyond)
    _draw_references(axes, facts)
    _scale(axes, facts, rows)
    axes.set_title(TITLES[panel], loc="left", fontsize=10)
    _legend(figure, axes, rows)


def look(place: int) -> dict[str, Any]:
    """Colour and marker of a method; colours repeat only if there are more methods than colours."""
    around, once = divmod(place, len(_COLOURS))
    return {"color": _COLOURS[once], "marker": _MARKERS[(once + around) % len(_MARKERS)]}


def _draw_rows(axes: Axes, rows: Sequence[Facts], places: Sequence[float], look: dict[str, Any]) -> None:
    """Marks with error bars, joined by a line; hollow and dotted for published forms."""
    if not rows:
        return
    means = np.array([row["mean"] for row in rows])
    ends = np.array([row["interval"] or [row["mean"]] * 2 for row in rows])
    is_ours = rows[0]["mode"] == "rigorous"
    axes.errorbar(
        places,
        means,
        yerr=np.maximum([means - ends[:, 0], ends[:, 1] - means], 0.0),
        label=rows[0]["label"].replace("_", " "),
        linestyle="-" if is_ours else ":",
        linewidth=1.1 if is_ours else 0.9,
        elinewidth=0.6,
        capsize=1.5,
        markersize=5.0,
        fillstyle="full" if is_ours else "none",
        **look,
    )


def _draw_references(axes: Axes, facts: Facts) -> None:
    for mean in _baselines(facts):
        axes.axhline(mean, color="#000000", linewidth=1.0, linestyle=(0, (4, 3)), label="without privacy")
    if facts["data"].get("constant") is not None:
        level = facts["data"]["constant"]
        axes.axhline(level, color="#777777", linewidth=1.0, linestyle=":", label=constant_label(facts))


def _mark_epsilons(axes: Axes, places: _Places, positions: Sequence[float], beyond: float) -> None:
    """A tick for every certified epsilon and, in brackets, every target epsilon of rows without one."""
    ticks, names = list(places.ticks), [_tick_label(tick) for tick in places.ticks]
    # Published forms may cost much less; they get their own tick if it is far from the others.
    low = max(float(f"{min(positions):.0e}"), _LEAST)
    if ticks and low < 0.6 * ticks[0]:
        ticks, names = [low, *ticks], [_tick_label(low), *names]
    if places.targets:
        ticks += [math.exp(beyond + place * places.gap) for place in range(len(places.targets))]
        names += [f"({epsilon:g})" for epsilon in places.targets]
        if places.ticks:
            axes.axvline(math.exp(beyond - 0.6 * places.gap), color="#777777", linewidth=0.6)
    axes.set_xticks(ticks, names)
    axes.xaxis.set_minor_locator(NullLocator())
    room = math.exp(0.25 * places.gap)
    axes.set_xlim(min(positions) / room, max(positions) * room)
    axes.set_xlabel("certified ε" + (f";  (target ε) if none below {_FAR:g} is certified" if places.targets else ""))


def _scale(axes: Axes, facts: Facts, rows: Sequence[Facts]) -> None:
    """Limits that include every mark, bar and line."""
    seen = [end for row in rows for end in (row["mean"], *(row["interval"] or []))]
    seen += _baselines(facts)
    if facts["data"].get("constant") is not None:
        seen.append(facts["data"]["constant"])
    low, high = float(np.min(seen)), float(np.max(seen))
    axes.set_ylabel(f"test {facts['measure']}")
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    if facts["measure"] == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    elif high > _WIDE * float(np.median(seen)):
        # A few wide bars must not squeeze the rest into a line.
        axes.set_yscale("symlog", linthresh=float(np.median(seen)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    room = 0.03 * (high - low) or 0.05 * abs(high) or 0.1
    axes.set_ylim(low - room, high + room)


def _legend(figure: FigureBase, axes: Axes, rows: Sequence[Facts]) -> None:
    """Every method once; one entry explains all hollow marks."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    ours = {row["method"] for row in rows if row["mode"] == "rigorous"}
    published = {row["label"].replace("_", " ") for row in rows if row["mode"] == "paper" and row["method"] in ours}
    for label in published:
        named.pop(label, None)
    if published:
        (mark,) = axes.plot([], [], "o:", color="#777777", fillstyle="none", markersize=5.0, linewidth=0.9)
        named["hollow: as published"] = mark
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=8,
        columnspacing=0.8,
        handlelength=2.2,
    )


def _position(row: Facts) -> float:
    """Where a certified epsilon is drawn: not at zero, which a large delta may give and a logarithm cannot show."""
    return max(float(row["certified"]), _LEAST)


def _tick_label(epsilon: float) -> str:
    return f"≤ {epsilon:g}" if epsilon <= _LEAST else f"{epsilon:g}"


def _has_place(row: Facts) -> bool:
    """Whether its certified epsilon is small enough to be drawn."""
    return is_proven(row) and bool(row["certified"] <= _FAR)
