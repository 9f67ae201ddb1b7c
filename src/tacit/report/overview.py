"""The picture and the page of a comparison: scores over certified epsilon, one panel for each adjacency."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from tacit.report import figures, page
from tacit.report.facts import Facts

# Colours and markers both differ, so that neither colour vision nor a copier matters.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_TITLES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}


def draw_scores(facts: Facts, *, width: float = 9.0) -> Figure:
    """The score over the certified epsilon, for every method of which something is proven."""
    panels = [kind for kind in _TITLES if any(row["adjacency"] == kind for row in _drawn(facts))] or ["add_remove"]
    side_by_side = width > 6
    rows, across = (1, len(panels)) if side_by_side else (len(panels), 1)
    figure = Figure(figsize=(width, 4.6 * rows + 0.6), layout="constrained")
    all_axes = figure.subplots(rows, across, sharey=True, squeeze=False).ravel()
    for axes, panel in zip(all_axes, panels, strict=True):
        _draw_panel(axes, facts, panel)
    all_axes[0].set_ylabel(f"test {facts['measure']}")
    if side_by_side:
        figure.suptitle(f"{facts['title']} (δ = {facts['delta']:g}, {facts['seeds']} seeds)", fontsize=12)
    return figure


def _draw_panel(axes: Axes, facts: Facts, panel: str) -> None:
    there = [row for row in _drawn(facts) if row["adjacency"] == panel]
    labels = list(dict.fromkeys(row["label"] for row in facts["rows"]))
    for place, label in enumerate(dict.fromkeys(row["label"] for row in there)):
        points = [row for row in there if row["label"] == label]
        number = labels.index(label)
        # Points at the same epsilon are set apart a little, or their bars would hide each other.
        apart = 1.015 ** (place - 3)
        axes.errorbar(
            [row["certified"] * apart for row in points],
            [row["mean"] for row in points],
            yerr=_bars(points, facts["measure"]),
            label=label.replace("_", " "),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            linewidth=1.4,
            elinewidth=0.8,
            capsize=2,
        )
    for row in facts["rows"]:
        if row["label"] == "without privacy":
            axes.axhline(row["mean"], color="#000000", linewidth=1.0, linestyle=(0, (4, 3)), label="without privacy")
    axes.set_xscale("log")
    ticks = sorted({round(row["certified"], 2) for row in there if row["mode"] == "rigorous"})
    if ticks:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("certified ε")
    axes.set_title(_TITLES[panel], loc="left", fontsize=10)
    if facts["measure"] == "accuracy":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.13), frameon=False, fontsize=8.5, ncols=2)


def _bars(points: list[Facts], measure: str) -> list[list[float]]:
    """Below and above each mean; a share ends at 0 and at 1."""
    most = 1.0 if measure == "accuracy" else float("inf")
    below = [min(row["half"], row["mean"]) for row in points]
    return [below, [min(row["half"], most - row["mean"]) for row in points]]


def _drawn(facts: Facts) -> list[Facts]:
    """Rows with a proof of everything: what leaves labels out is no point beside those that do not."""
    return [row for row in facts["rows"] if row["certified"] is not None and not row["unprotected"]]


def comparison_page(facts: Facts) -> str:
    """The page, with one picture for wide pages and the same for phones."""
    words = (
        f"The {facts['measure']} on test examples over the certified epsilon, in one panel for each adjacency; bars "
        "are 95 % intervals, the dashed line is the model without privacy. Every number is in the table below."
    )
    figure = figures.as_svg(draw_scores(facts, width=4.6), key="scores", title="What privacy costs", description=words)
    return page.render("comparison.html", facts, figure=figure, words=words)
