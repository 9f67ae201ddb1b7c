"""One panel of a comparison's picture: the scores of every row over its certified epsilon, and beside them those of
rows about which nothing is proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter, NullLocator

from tacit.reports.facts import Facts
from tacit.reports.verdicts import NON_PRIVATE, is_proven

TITLES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
# Colours and markers both differ, so that neither colour vision nor a copier matters.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777", "#C1272D", "#2AA7C9", "#7A5230")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
_FAR = 100.0
_LEAST = 0.001
# The share of the way to the next epsilon that marks at one epsilon take up.
_SPREAD = 0.62
# Where accuracies are, a linear scale shows them all; errors of which one is so many times another need another scale.
_WIDE = 6.0


def panels_of(facts: Facts) -> list[str]:
    """The adjacencies that there is something to draw for."""
    return [kind for kind in TITLES if any(row["adjacency"] == kind for row in _drawn(facts))]


def is_level_drawn(facts: Facts) -> bool:
    """Whether there is a line for the model without privacy."""
    return bool(_levels(facts))


def _levels(facts: Facts) -> list[float]:
    """Where the model without privacy stands, if there is one."""
    return [row["mean"] for row in facts["rows"] if row["method"] == NON_PRIVATE and row["mean"] is not None]


def _drawn(facts: Facts) -> list[Facts]:
    """Every row of the table that has a score and a guarantee."""
    return [row for row in facts["rows"] if row["mean"] is not None and row["adjacency"] is not None]


@dataclass(frozen=True)
class _Places:
    """Where rows stand on the axis, whose logarithm they are given in.

    What has no certified epsilon, or one that says nothing, stands beyond the others by the epsilon that was asked for.
    """

    ticks: tuple[float, ...]
    asked: tuple[float, ...]
    methods: tuple[str, ...]

    @staticmethod
    def of(rows: Sequence[Facts]) -> _Places:
        ticks = {float(f"{_shown(row):.2g}") for row in rows if _has_place(row) and row["mode"] == "rigorous"}
        ticks = ticks or {float(f"{_shown(row):.2g}") for row in rows if _has_place(row)}
        asked = {row["epsilon"] for row in rows if not _has_place(row)}
        return _Places(tuple(sorted(ticks)), tuple(sorted(asked)), tuple(dict.fromkeys(row["method"] for row in rows)))

    @property
    def gap(self) -> float:
        """The least way from one tick to the next."""
        gaps = np.diff(np.log(self.ticks))
        return float(np.min(gaps)) if gaps.size else math.log(2)

    def beyond(self, rows: Sequence[Facts]) -> float:
        """Where those without a certified epsilon begin."""
        certified = [_shown(row) for row in rows if _has_place(row)]
        return math.log(max([*certified, *self.ticks, 1e-9])) + 1.35 * self.gap if certified else 0.0

    def place(self, row: Facts, beyond: float) -> float:
        """Marks at the same epsilon are set apart, each method by its own amount."""
        count = len(self.methods)
        aside = (self.methods.index(row["method"]) - (count - 1) / 2) / max(count, 8) * _SPREAD * self.gap
        if _has_place(row):
            return math.exp(math.log(_shown(row)) + aside)
        return math.exp(beyond + self.asked.index(row["epsilon"]) * self.gap + aside)


def draw_panel(figure: FigureBase, facts: Facts, panel: str) -> None:
    """The scores of every row of this adjacency, with a legend below."""
    axes = figure.subplots()
    rows = [row for row in _drawn(facts) if row["adjacency"] == panel]
    places = _Places.of(rows)
    beyond = places.beyond(rows)
    axes.set_xscale("log")
    for number, method in enumerate(places.methods):
        for mode in ("rigorous", "paper"):
            those = [row for row in rows if (row["method"], row["mode"]) == (method, mode)]
            for part in ([row for row in those if _has_place(row)], [row for row in those if not _has_place(row)]):
                _draw_rows(axes, part, [places.place(row, beyond) for row in part], look(number))
    # Lines across all of it come last: before the axis has its ends, matplotlib looks for them at zero too.
    _mark_epsilons(axes, places, [places.place(row, beyond) for row in rows], beyond)
    _draw_levels(axes, facts)
    _scale(axes, facts, rows)
    axes.set_title(TITLES[panel], loc="left", fontsize=10)
    _legend(figure, axes, rows)


def look(place: int) -> dict[str, Any]:
    """For each method of a panel another; colours come again only when there are more methods than colours."""
    around, once = divmod(place, len(_COLOURS))
    return {"color": _COLOURS[once], "marker": _MARKERS[(once + around) % len(_MARKERS)]}


def _draw_rows(axes: Axes, rows: Sequence[Facts], places: Sequence[float], look: dict[str, Any]) -> None:
    """Marks with bars, joined by a line; hollow and dotted for what was published."""
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


def _draw_levels(axes: Axes, facts: Facts) -> None:
    for mean in _levels(facts):
        axes.axhline(mean, color="#000000", linewidth=1.0, linestyle=(0, (4, 3)), label="without privacy")
    if facts["data"].get("constant") is not None:
        level = facts["data"]["constant"]
        axes.axhline(level, color="#777777", linewidth=1.0, linestyle=":", label="one answer for all")


def _mark_epsilons(axes: Axes, places: _Places, taken: Sequence[float], beyond: float) -> None:
    """A tick for every epsilon that was certified or, in brackets, asked for; room for whatever lies elsewhere."""
    ticks, names = list(places.ticks), [_tick_words(tick) for tick in places.ticks]
    # Published forms may cost much less; they get a tick of their own, if it is far from the others.
    low = max(float(f"{min(taken):.0e}"), _LEAST)
    if ticks and low < 0.6 * ticks[0]:
        ticks, names = [low, *ticks], [_tick_words(low), *names]
    if places.asked:
        ticks += [math.exp(beyond + place * places.gap) for place in range(len(places.asked))]
        names += [f"({epsilon:g})" for epsilon in places.asked]
        if places.ticks:
            axes.axvline(math.exp(beyond - 0.6 * places.gap), color="#777777", linewidth=0.6)
    axes.set_xticks(ticks, names)
    axes.xaxis.set_minor_locator(NullLocator())
    room = math.exp(0.25 * places.gap)
    axes.set_xlim(min(taken) / room, max(taken) * room)
    axes.set_xlabel("certified ε" + (f";  (asked ε) where none up to {_FAR:g} is" if places.asked else ""))


def _scale(axes: Axes, facts: Facts, rows: Sequence[Facts]) -> None:
    """Room for every mark, bar and line."""
    seen = [end for row in rows for end in (row["mean"], *(row["interval"] or []))]
    seen += _levels(facts)
    if facts["data"].get("constant") is not None:
        seen.append(facts["data"]["constant"])
    low, high = float(np.min(seen)), float(np.max(seen))
    axes.set_ylabel(f"test {facts['measure']}")
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    if facts["measure"] == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    elif high > _WIDE * float(np.median(seen)):
        # Bars of a few seeds may reach far, and must not make the rest a line.
        axes.set_yscale("symlog", linthresh=float(np.median(seen)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    room = 0.03 * (high - low) or 0.05 * abs(high) or 0.1
    axes.set_ylim(low - room, high + room)


def _legend(figure: FigureBase, axes: Axes, rows: Sequence[Facts]) -> None:
    """Every method once; its hollow form is said for all of them together."""
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    ours = {row["method"] for row in rows if row["mode"] == "rigorous"}
    again = {row["label"].replace("_", " ") for row in rows if row["mode"] == "paper" and row["method"] in ours}
    for label in again:
        named.pop(label, None)
    if again:
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


def _shown(row: Facts) -> float:
    """Where a certified epsilon is drawn: a logarithm has no place for zero, which a large delta may give."""
    return max(float(row["certified"]), _LEAST)


def _tick_words(epsilon: float) -> str:
    return f"≤ {epsilon:g}" if epsilon <= _LEAST else f"{epsilon:g}"


def _has_place(row: Facts) -> bool:
    """Whether there is a certified epsilon to draw it at, of a size that says anything."""
    return is_proven(row) and bool(row["certified"] <= _FAR)
