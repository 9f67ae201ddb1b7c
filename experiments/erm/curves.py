"""Accuracy and optimality gap over epsilon, once at equal claimed and once at equal certified epsilon.

A pair is a method as published and its form with a proof. At equal claimed epsilon every method gets the noise of its
authors; at equal certified epsilon it gets what is proven, and the order of the methods is another one.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import mean_and_spread
from matplotlib.figure import Figure

from .contenders import BY_NAME
from .experiment import NAMES, NO_NOISE, certified, seeds_for
from .fitting import fit_over_seeds, without_noise
from .tables import read

FORMS = ("claimed", "certified")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777")
MARKERS = "osD^vX"
# A gap below this is a solver's rounding.
LEAST_GAP = 1e-6


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every table, model, pair, form and epsilon; networks, which take longest, last."""
    for name, model in _panels(order):
        asked = {"model": model, "method": NO_NOISE, "size": order.size}
        yield Cell(name, asked, lambda n=name, m=model: without_noise(read(order, n), m))
        for method in _methods(order, model):
            for epsilon in order.settings["epsilons"]:
                asked = {"model": model, "method": method, "epsilon": epsilon, "size": order.size}
                yield Cell(name, asked, partial(_fits, order, name, model, method, epsilon))


def _methods(order: Order, model: str) -> list[str]:
    """Each once, as published and with a proof, if it fits the model."""
    named = [pair[form] for pair in order.settings["pairs"] for form in FORMS if pair[form]]
    return [name for name in dict.fromkeys(named) if model in BY_NAME[name].models]


def _fits(order: Order, name: str, model: str, method: str, epsilon: float) -> dict[str, Any]:
    table = read(order, name)
    seeds = seeds_for(order, len(table.train[0]))
    return fit_over_seeds(BY_NAME[method], table, model, epsilon, order.settings["delta"], seeds)


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """What the paper says in words, judged; and every accuracy with what is certified of it."""
    return {
        "Statements": _statements(order, records),
        "At equal claimed epsilon": _accuracies(order, records, "claimed"),
        "At equal certified epsilon": _accuracies(order, records, "certified"),
    }


def _tried(records: list[Record], name: str, model: str, method: str) -> dict[float, dict[str, Any]]:
    """By epsilon, what was fitted or refused."""
    return {
        each.asked["epsilon"]: each.found
        for each in records
        if each.part == name
        and (each.asked["model"], each.asked["method"]) == (model, method)
        and "epsilon" in each.asked
    }


def _found(records: list[Record], name: str, model: str, method: str) -> dict[float, dict[str, Any]]:
    """By epsilon, what was fitted."""
    tried = _tried(records, name, model, method)
    return {epsilon: found for epsilon, found in tried.items() if "accuracy" in found}


def _panels(order: Order) -> list[tuple[str, str]]:
    return [(name, model) for model in NAMES for name, t in order.settings["tables"].items() if model in t["models"]]


def _accuracies(order: Order, records: list[Record], form: str) -> str:
    epsilons = order.settings["epsilons"]
    what = "accuracy (certified ε of that noise)" if form == "claimed" else "accuracy"
    rows = [("table, model", "method", *(f"ε = {epsilon:g}: {what}" for epsilon in epsilons))]
    for name, model in _panels(order):
        for pair in order.settings["pairs"]:
            found = _tried(records, name, model, pair[form])
            if found:
                cells = (_cell(found.get(epsilon), form) for epsilon in epsilons)
                rows.append((f"{name}, {NAMES[model]}", pair[form], *cells))
    return markdown_table(rows)


def _cell(found: Mapping[str, Any] | None, form: str) -> str:
    if found is None:
        return "–"
    if "refused" in found:
        return "refused"
    shown = mean_and_spread(found["accuracy"])
    return shown if form == "certified" else f"{shown} ({certified(found)})"


def _statements(order: Order, records: list[Record]) -> str:
    rows = [("what the paper says", "at equal claimed ε", "at equal certified ε")]
    for one in order.expected["statements"]:
        rows.append((one["text"], *(_share(order, records, one, form) for form in FORMS)))
    return markdown_table(rows)


def _share(order: Order, records: list[Record], one: Mapping[str, Any], form: str) -> str:
    """In how many of the comparisons a statement about two methods holds."""
    named = {pair["label"]: pair[form] for pair in order.settings["pairs"]}
    measure, scale = ("accuracy", 100) if one["measure"] == "accuracy" else ("gap", 1)
    held = []
    for name, model in _panels(order):
        first, second = (_found(records, name, model, named[one[side]]) for side in ("first", "second"))
        for epsilon in sorted(first.keys() & second.keys()):
            values = [each[epsilon][measure] for each in (first, second)]
            if None in values[0] or None in values[1]:
                continue
            ours, theirs = (scale * statistics.mean(value) for value in values)
            better = ours - theirs if measure == "accuracy" else theirs - ours
            held.append(abs(better) <= one["margin"] if one["relation"] == "similar" else better >= -one["margin"])
    return f"{sum(held)} of {len(held)}" if held else "not run"


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Accuracy and gap, each at equal claimed and at equal certified epsilon: different pictures."""
    return {
        f"{measure}_at_equal_{form}_epsilon": _draw(order, records, measure, form)
        for measure in ("accuracy", "gap")
        for form in FORMS
    }


def _draw(order: Order, records: list[Record], measure: str, form: str) -> Figure:
    panels = [(n, m) for n, m in _panels(order) if any(r.part == n and r.asked["model"] == m for r in records)]
    rows = -(-len(panels) // 3)
    figure = Figure(figsize=(11, 3.1 * rows + 0.7), layout="constrained")
    grid = figure.subplots(rows, 3, squeeze=False).ravel()
    for axes, (name, model) in zip(grid, panels, strict=False):
        for place, pair in enumerate(order.settings["pairs"]):
            found = _found(records, name, model, pair[form])
            points = [(e, found[e][measure]) for e in sorted(found) if None not in found[e][measure]]
            if points:
                style = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4, "label": pair["label"]}
                epsilons, heights = [e for e, _ in points], [_height(measure, v) for _, v in points]
                axes.plot(epsilons, heights, linewidth=1.4, **style)
                between = zip(*(_between(measure, v) for _, v in points), strict=True)
                axes.fill_between(epsilons, *between, color=COLOURS[place], alpha=0.12, linewidth=0)
        bare = [r.found["accuracy"][0] for r in records if r.part == name and r.asked == _bare(order, model)]
        if measure == "accuracy" and bare:
            axes.axhline(100 * bare[0], color="black", linewidth=0.8, linestyle=":", label="without noise")
        axes.set_xscale("log")
        axes.set_xticks(order.settings["epsilons"], [f"{epsilon:g}" for epsilon in order.settings["epsilons"]])
        axes.minorticks_off()
        axes.set_yscale("linear" if measure == "accuracy" else "log")
        axes.set_title(f"{name}, {NAMES[model]}", loc="left", fontsize=9)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    _legend(figure, grid, measure, form)
    return figure


def _bare(order: Order, model: str) -> dict[str, Any]:
    return {"model": model, "method": NO_NOISE, "size": order.size}


def _height(measure: str, values: list[float]) -> float:
    return 100 * float(np.mean(values)) if measure == "accuracy" else max(LEAST_GAP, float(np.mean(values)))


def _between(measure: str, values: list[float]) -> tuple[float, float]:
    """A standard deviation over seeds on either side of the mean."""
    scale, least, most = (100, 0.0, 100.0) if measure == "accuracy" else (1, LEAST_GAP, np.inf)
    mean, spread = scale * float(np.mean(values)), scale * float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return max(least, mean - spread), min(most, mean + spread)


def _legend(figure: Figure, grid: Any, measure: str, form: str) -> None:
    figure.supxlabel(f"{form} ε (δ = 1e-5)")
    figure.supylabel("test accuracy, %" if measure == "accuracy" else "optimality gap")
    known = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=6, frameon=False, fontsize=9)
