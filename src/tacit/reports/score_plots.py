"""Plots of scores: over the steps of a run, and over the certified epsilon of a comparison.

A comparison has a panel for each adjacency. The few best methods have colours and their names beside their lines; all
others are grey. Forms without a certified epsilon have no place on the axis, and are in the table only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from tacit.reports.answer import Answer, competes, short_label
from tacit.reports.cells import is_proven
from tacit.reports.facts import Facts
from tacit.reports.plots import add_grid, show_percent
from tacit.reports.wording import name_measure

TITLES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
# Elements whose id begins with this are shown on a page only if its reader asks for them.
OTHERS = "others"
# Both colours and markers differ, for readers who cannot see colours, and for print in black and white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499")
_MARKERS = ("o", "s", "^", "D")
_GREY, _FAR, _LEAST = "#777777", 100.0, 0.001
# A certified epsilon above this share of its target has the tick of the target.
_NEAR = 0.9
# The height of a name, as a share of the height of the axes.
_LINE = 0.055


def list_panels(facts: Facts) -> list[str]:
    """The adjacencies with something to draw."""
    return [kind for kind in TITLES if any(row["adjacency"] == kind for row in _list_drawable(facts))]


def _list_drawable(facts: Facts) -> list[Facts]:
    """The rows with a score and a certified epsilon of a usual size."""
    return [row for row in facts["rows"] if row["mean"] is not None and is_proven(row) and row["certified"] <= _FAR]


def choose_best_methods(facts: Facts, panel: str) -> list[str]:
    """The labels of the few methods to name: those that the answer chooses, then those with the best scores."""
    rows = [row for row in _list_drawable(facts) if row["adjacency"] == panel]
    sign = 1 if facts["measure"] == "accuracy" else -1
    chosen = [choice.method for choice in Answer.of(facts).choices_for(panel)]
    means: dict[str, list[float]] = {}
    for row in rows:
        if competes(row) and not row["is_idle"]:
            means.setdefault(row["label"], []).append(sign * row["mean"])
    order = sorted(means, key=lambda label: -float(np.mean(means[label])))
    first = [label for label in order if label.removesuffix(" (repaired)") in chosen]
    return list(dict.fromkeys([*first, *order]))[: max(len(_COLOURS) - 1, min(len(first), len(_COLOURS)))]


def draw_scores(facts: Facts) -> Figure:
    """Draw the scores of a comparison over the certified epsilon, all panels in a row."""
    panels = list_panels(facts)
    figure = Figure(figsize=(max(1, len(panels)) * 5.6, 4.4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False):
        draw_lines(axes, facts, panel)
        axes.set_title(TITLES[panel], loc="left", fontsize=10)
    progress = facts["progress"]
    unfinished = "" if progress["is_finished"] else f", unfinished: {progress['done']} of {progress['cells']} cells"
    figure.suptitle(f"{facts['title']} (δ = {facts['delta']:.2g}, {facts['seeds_in_words']}{unfinished})", fontsize=11)
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
    axes.set(xlabel="steps", ylabel=name_measure(measure))
    axes.set_title("Test scores", loc="left", fontsize=11)
    if measure == "accuracy":
        show_percent(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    add_grid(axes)
    axes.legend(loc="best", frameon=False, fontsize=9)


def draw_lines(axes: Axes, facts: Facts, panel: str) -> None:
    """Draw the scores of every method of this adjacency: the best with their names, the others grey."""
    rows = [row for row in _list_drawable(facts) if row["adjacency"] == panel]
    best = choose_best_methods(facts, panel)
    axes.set_xscale("log")
    groups: dict[str, list[Facts]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    for number, (label, those) in enumerate(groups.items()):
        if label not in best:
            places, means = [_find_position(row) for row in those], [row["mean"] for row in those]
            look_other: dict[str, Any] = {"color": _GREY, "linewidth": 0.9, "marker": ".", "alpha": 0.55, "zorder": 1}
            axes.plot(places, means, gid=f"{OTHERS}-{number}", **look_other)
    for place, label in enumerate(best):
        _draw_best(axes, groups[label], place, len(best))
    _mark_epsilons(axes, rows)
    _set_limits(axes, facts, [row for label in best or groups for row in groups[label]])
    ends = [
        (short_label(groups[label][-1]), groups[label][-1]["mean"], look(n)["color"]) for n, label in enumerate(best)
    ]
    _write_names(axes, [*_draw_levels(axes, Answer.of(facts)), *ends])


def look(place: int) -> dict[str, Any]:
    """Colour and marker of one of the best methods."""
    return {"color": _COLOURS[place], "marker": _MARKERS[place]}


def _draw_best(axes: Axes, rows: Sequence[Facts], place: int, count: int) -> None:
    """Marks with error bars, joined by a line; methods are moved aside a little, so that no bar hides another."""
    aside = math.exp(0.035 * (place - (count - 1) / 2))
    means = np.array([row["mean"] for row in rows])
    ends = np.array([row["interval"] or [row["mean"]] * 2 for row in rows])
    axes.errorbar(
        [aside * _find_position(row) for row in rows],
        means,
        yerr=np.maximum([means - ends[:, 0], ends[:, 1] - means], 0.0),
        label=short_label(rows[0]),
        linewidth=1.8,
        elinewidth=0.9,
        capsize=2.0,
        markersize=5.5,
        zorder=3,
        **look(place),
    )


def _draw_levels(axes: Axes, answer: Answer) -> list[tuple[str, float, str]]:
    """Lines for the model without privacy and for a constant prediction; their names, heights and colours."""
    levels = []
    if answer.baseline is not None:
        levels.append((answer.baseline.score, "without privacy", "#000000", (0, (4, 3))))
    if answer.constant is not None:
        levels.append((answer.constant, answer.constant_label.lower(), _GREY, (0, (1, 2))))
    for score, _, colour, style in levels:
        axes.axhline(score, color=colour, linewidth=1.1, linestyle=style, zorder=2)
    return [(f"{name} {answer.describe_score(score)}", score, colour) for score, name, colour, _ in levels]


def _write_names(axes: Axes, named: Sequence[tuple[str, float, str]]) -> None:
    """Write each name at the right of its line, moved down where two would overlap."""
    low, high = axes.get_ylim()
    above = math.inf
    for name, height, colour in sorted(named, key=lambda one: -one[1]):
        above = min((height - low) / (high - low), above - _LINE)
        place: dict[str, Any] = {"xy": (1.01, above), "xycoords": "axes fraction", "va": "center"}
        axes.annotate(name, color=colour, fontsize=9, annotation_clip=False, **place)


def _mark_epsilons(axes: Axes, rows: Sequence[Facts]) -> None:
    """A tick for every target epsilon that some method comes near; if there is none, for every certified one."""
    ticks = sorted({row["epsilon"] for row in rows if row["certified"] > _NEAR * row["epsilon"]})
    ticks = ticks or sorted({float(f"{_find_position(row):.2g}") for row in rows})
    places = [_find_position(row) for row in rows]
    axes.set_xticks(ticks, [f"≤ {tick:g}" if tick <= _LEAST else f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(places) / 1.25, max(places) * 1.25)
    axes.set_xlabel("certified ε (smaller: more privacy)")


def _set_limits(axes: Axes, facts: Facts, rows: Sequence[Facts]) -> None:
    """Limits that include the named methods with their bars, and both levels."""
    answer = Answer.of(facts)
    seen = [end for row in rows for end in (row["mean"], *(row["interval"] or []))]
    seen += [] if answer.baseline is None else [answer.baseline.score]
    seen += [] if answer.constant is None else [answer.constant]
    low, high = float(np.min(seen)), float(np.max(seen))
    axes.set_ylabel("test accuracy" if facts["measure"] == "accuracy" else "test error (RMSE)")
    add_grid(axes)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if facts["measure"] == "accuracy":
        show_percent(axes.yaxis)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.1
    axes.set_ylim(low - room, high + room)


def _find_position(row: Facts) -> float:
    """Where a certified epsilon is drawn: not at zero, which a large delta may give and a logarithm cannot show."""
    return max(float(row["certified"]), _LEAST)
