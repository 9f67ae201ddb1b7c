"""The figures of both papers of Kang et al., at equal claimed and at equal certified epsilon, and their tables.

A pair is a method as published and its form with a proof. At equal claimed epsilon every method gets the noise of its
authors; at equal certified epsilon it gets what is proven. Every epsilon is for one example replaced by another.
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

from tacit.accounting import gdp

from .bounded import bound_cells, bounds_table
from .contenders import BY_NAME, CANDIDATES, NETWORK
from .fitting import fit_over_seeds, without_noise
from .tables import read, repeated_share

NO_NOISE = "without noise"
NAMES = {"logistic": "LR", "network": "MLP"}
FORMS = ("claimed", "certified")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#777777", "#56B4E9", "#000000")
MARKERS = "osD^vXP*"
# A gap below this is a solver's rounding.
LEAST_GAP = 1e-6
# From this share of the comparisons on a statement holds, or holds in part.
_HOLDS, _IN_PART = 0.9, 0.5


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Bounds first, then every table, model, pair, form and epsilon; networks, which take longest, last."""
    if "bounds" in order.settings:
        yield from bound_cells(order)
    for name, model in panels(order):
        yield Cell(name, asked_for(order, model, NO_NOISE), partial(_bare, order, name, model))
        for method, epsilons in _methods(order, model).items():
            for epsilon in epsilons:
                asked = {**asked_for(order, model, method), "epsilon": epsilon}
                yield Cell(name, asked, partial(fits, order, name, model, method, epsilon))


def asked_for(order: Order, model: str, method: str) -> dict[str, Any]:
    """The settings that identify a run, but for its epsilon."""
    return {"model": model, "method": method, "size": order.size}


def _bare(order: Order, name: str, model: str) -> dict[str, Any]:
    rows = read(order, name)
    first = rows.split(0)
    return {
        **without_noise(rows, model, order.settings["seeds"]),
        "train": len(first.train[0]),
        "test": len(first.test[0]),
        "columns": first.train[0].shape[1],
        "repeated": round(repeated_share(first), 4),
        "majority": round(float(np.bincount(rows.y).max() / len(rows.y)), 4),
    }


def fits(order: Order, name: str, model: str, method: str, epsilon: float) -> dict[str, Any]:
    """One method on one table, tuned and fitted on every split."""
    settings = order.settings
    return fit_over_seeds(BY_NAME[method], read(order, name), model, epsilon, settings["delta"], settings["seeds"])


def _methods(order: Order, model: str) -> dict[str, list[float]]:
    """Each method that allows the model, with its epsilons. A pair may have fewer for its form with a proof."""
    epsilons = order.settings["network_epsilons" if model == NETWORK else "epsilons"]
    named: dict[str, list[float]] = {}
    for pair in order.settings["pairs"]:
        for form in FORMS:
            if pair.get(form) and model in pair.get("models", NAMES) and model in BY_NAME[pair[form]].models:
                fewer = pair.get("certified_epsilons", epsilons) if form == "certified" else epsilons
                named.setdefault(pair[form], [each for each in epsilons if each in fewer])
    return named


def panels(order: Order) -> list[tuple[str, str]]:
    """Every table with each of its models, networks last."""
    return [(name, model) for model in NAMES for name, t in order.settings["tables"].items() if model in t["models"]]


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """What the paper says, judged; its bounds; what is certified of its noise; what tuning would cost; the data."""
    shown = {
        "Summary": _summary(order, records),
        "Bounds": bounds_table(order, records),
        "Certified": _certified(order, records),
        "Tuning": tuning_table(order),
    }
    # The data are those of both papers, and described once.
    return {**shown, "Data": data_table(order, records)} if order.settings["describes_data"] else shown


def found_by(records: list[Record], name: str, model: str, method: str) -> dict[float, dict[str, Any]]:
    """By epsilon, what was fitted."""
    return {
        each.asked["epsilon"]: each.found
        for each in records
        if each.part == name
        and (each.asked.get("model"), each.asked.get("method")) == (model, method)
        and "accuracy" in each.found
        and "epsilon" in each.asked
    }


def _summary(order: Order, records: list[Record]) -> str:
    rows = [("figure or table", "paper says of its method", "we find", "at certified ε", "verdict")]
    for one in order.expected["statements"]:
        claimed, certified = (_comparisons(order, records, one, form) for form in FORMS)
        rows.append((one["figure"], one["text"], _share(claimed), _share(certified), _verdict(claimed)))
    rows += [tuple(one[key] for key in ("figure", "text", "found", "certified", "verdict")) for one in _fixed(order)]
    # What the comparisons above are about.
    for model, text in NAMES.items():
        wanted = [name for name, each in panels(order) if each == model]
        run = [name for name in wanted if _is_run(order, records, name, model)]
        verdict = "run" if run == wanted else "in part run" if run else "not run"
        rows.append(("tables", f"{text} on {len(wanted)} tables", ", ".join(run) or "none", "", verdict))
    return markdown_table(rows)


def _is_run(order: Order, records: list[Record], name: str, model: str) -> bool:
    """Whether all published methods of this panel were run, at every epsilon."""
    methods = [method for method in _methods(order, model).items() if BY_NAME[method[0]].is_published]
    tried = {(r.asked["method"], r.asked.get("epsilon")) for r in records if _is_of(r, name, model)}
    return all((method, epsilon) in tried for method, epsilons in methods for epsilon in epsilons)


def _is_of(record: Record, name: str, model: str) -> bool:
    return record.part == name and record.asked.get("model") == model


def _fixed(order: Order) -> list[Mapping[str, str]]:
    """Rows about theorems, whose counterexamples are tests."""
    return list(order.expected.get("theorems", ()))


def _share(held: list[bool]) -> str:
    return f"{sum(held)} of {len(held)}" if held else "–"


def _verdict(held: list[bool]) -> str:
    if not held:
        return "not run"
    share = sum(held) / len(held)
    return "holds" if share >= _HOLDS else "holds in part" if share >= _IN_PART else "does not hold"


def _comparisons(order: Order, records: list[Record], one: Mapping[str, Any], form: str) -> list[bool]:
    """For every table, model and epsilon in the statement's range, whether it holds."""
    named = {pair["label"]: pair.get(form, "") for pair in order.settings["pairs"]}
    measure, scale = ("accuracy", 100) if one["measure"] == "accuracy" else ("gap", 1)
    held = []
    for name, model in panels(order):
        first, second = (found_by(records, name, model, named[one[side]]) for side in ("first", "second"))
        for epsilon in sorted(first.keys() & second.keys()):
            values = [each[epsilon][measure] for each in (first, second)]
            if epsilon < one.get("from", 0) or None in values[0] or None in values[1]:
                continue
            ours, theirs = (scale * statistics.mean(value) for value in values)
            better = ours - theirs if measure == "accuracy" else theirs - ours
            held.append(abs(better) <= one["margin"] if one["relation"] == "similar" else better >= -one["margin"])
    return held


def _certified(order: Order, records: list[Record]) -> str:
    """The range over tables and models of what is certified of the noise that is published for an epsilon."""
    epsilons = order.settings["epsilons"]
    rows = [("noise as published for a claim of", *(f"{epsilon:g}" for epsilon in epsilons))]
    for method in dict.fromkeys(pair["claimed"] for pair in order.settings["pairs"] if pair.get("claimed")):
        found = [found_by(records, name, model, method) for name, model in panels(order)]
        if any(found):
            rows.append((method, *(_range([each[e] for each in found if e in each]) for e in epsilons)))
    return markdown_table(rows)


def _range(found: list[dict[str, Any]]) -> str:
    proven = [each["certified"] for each in found if each["certified"] is not None]
    if not found:
        return "–"
    if not proven:
        return "nothing"
    low, high = f"{min(proven):.2g}", f"{max(proven):.2g}"
    exposed = ", not labels" if any(each["unprotected"] for each in found) else ""
    return f"{low}{exposed}" if low == high else f"{low} to {high}{exposed}"


def data_table(order: Order, records: list[Record]) -> str:
    """The rows of each table, as they were split."""
    rows = [("table", "rows: train, test", "test rows equal to a training row", "larger class", "no noise: LR", "MLP")]
    for name in order.settings["tables"]:
        bare = {r.asked["model"]: r.found for r in records if r.part == name and r.asked.get("method") == NO_NOISE}
        if bare:
            one = next(iter(bare.values()))
            scores = (mean_and_spread(bare[m]["accuracy"]) if m in bare else "–" for m in NAMES)
            share, most = (f"{100 * one[key]:.1f} %" for key in ("repeated", "majority"))
            rows.append((name, f"{one['train']:,}, {one['test']:,}", share, most, *scores))
    return markdown_table(rows)


def tuning_table(order: Order) -> str:
    """What the candidates and the final fit would cost together."""
    delta, fitted = order.settings["delta"], CANDIDATES + 1
    rows = [("ε of one fit", *(f"{epsilon:g}" for epsilon in order.settings["epsilons"]))]
    spent = [gdp.epsilon(delta, fitted**0.5 * gdp.mu(e, delta)) for e in order.settings["epsilons"]]
    rows.append((f"all {fitted} fits, Gaussian noise", *(f"{each:.2g}" for each in spent)))
    rows.append(
        (
            f"all {fitted} fits, any method (δ = {fitted * delta:.0e})",
            *(f"{fitted * e:g}" for e in order.settings["epsilons"]),
        )
    )
    return markdown_table(rows)


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Accuracy and gap, each at equal claimed and at equal certified epsilon: different pictures."""
    return {
        f"{measure}_at_equal_{form}_epsilon": _draw(order, records, measure, form)
        for measure in ("accuracy", "gap")
        for form in FORMS
    }


def _draw(order: Order, records: list[Record], measure: str, form: str) -> Figure:
    shown = [(n, m) for n, m in panels(order) if any(r.part == n and r.asked.get("model") == m for r in records)]
    rows = max(1, -(-len(shown) // 3))
    figure = Figure(figsize=(11, 3.1 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, 3, squeeze=False).ravel()
    for axes, (name, model) in zip(grid, shown, strict=False):
        for place, pair in enumerate(order.settings["pairs"]):
            found = found_by(records, name, model, pair.get(form, ""))
            points = [(e, found[e][measure]) for e in sorted(found) if None not in found[e][measure]]
            if points:
                style = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4, "label": pair["label"]}
                axes.plot([e for e, _ in points], [_height(measure, v) for _, v in points], linewidth=1.4, **style)
        bare = [r.found for r in records if r.part == name and r.asked == asked_for(order, model, NO_NOISE)]
        if measure == "accuracy" and bare:
            axes.axhline(
                _height(measure, bare[0]["accuracy"]), color="black", linewidth=0.8, linestyle=":", label="no noise"
            )
            axes.axhline(
                100 * bare[0]["majority"], color="#999999", linewidth=0.8, linestyle="--", label="larger class"
            )
        _finish(axes, order, measure, f"{name}, {NAMES[model]}")
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    _legend(figure, grid, order, measure, form)
    return figure


def _finish(axes: Any, order: Order, measure: str, title: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(order.settings["epsilons"], [f"{epsilon:g}" for epsilon in order.settings["epsilons"]])
    axes.minorticks_off()
    axes.set_yscale("linear" if measure == "accuracy" else "log")
    axes.set_title(title, loc="left", fontsize=9)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _height(measure: str, values: list[float]) -> float:
    return 100 * float(np.mean(values)) if measure == "accuracy" else max(LEAST_GAP, float(np.mean(values)))


def _legend(figure: Figure, grid: Any, order: Order, measure: str, form: str) -> None:
    figure.supxlabel(f"{form} ε for one example replaced (δ = {order.settings['delta']:g})")
    figure.supylabel("test accuracy, %" if measure == "accuracy" else "optimality gap")
    known = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
