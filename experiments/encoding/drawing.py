"""The figures of Nasr et al., with certified epsilons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from experiments.library import Record
from experiments.library.plots import name_axes
from matplotlib.figure import Figure

LAWS = ("gaussian", "student_t", "laplace", "variance_gamma", "sech", "cauchy")
COLOURS = {"dpsgd": "#777777", "gaussian": "#0072B2", "student_t": "#D55E00"}
MORE = {"laplace": "#009E73", "variance_gamma": "#AA4499", "sech": "#B8860B"}


def gradients(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Figure 1: how coordinates of gradients are spread, beside the normal law of the same size."""
    figure = Figure(figsize=(4.6 * len(found), 3.6), layout="constrained")
    middles = np.linspace(-3.95, 3.95, 80)
    for axes, (name, values) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        axes.semilogy(middles, np.maximum(values["density"], 1e-6), color=COLOURS["gaussian"], label="gradients")
        normal = np.exp(-(middles**2) / 2) / np.sqrt(2 * np.pi)
        axes.semilogy(middles, normal, color=COLOURS["student_t"], linestyle="--", label="normal law")
        zero = 100 * values["share_at_zero"]
        name_axes(axes, f"{name}: {zero:.0f} % as good as zero", "coordinate / root mean square", "density")
        axes.set_ylim(1e-4, 20)
        axes.legend(frameon=False)
    return figure


def laws(panels: Mapping[str, Mapping[float, Mapping[str, float | None]]]) -> Figure:
    """Figure 6: the L1 error of a release relative to that of Gaussian noise, on two axes of privacy."""
    shown = {axis: found for axis, found in panels.items() if found}
    figure = Figure(figsize=(5 * len(shown), 4), layout="constrained")
    grid = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, (axis, found) in zip(grid, shown.items(), strict=True):
        places = sorted(found)
        for law in LAWS:
            ratios = [(place, _ratio(found[place], law)) for place in places if found[place][law]]
            if ratios:
                style = {"color": {**COLOURS, **MORE}[law], "label": law.replace("_", "-")}
                axes.semilogx(*zip(*ratios, strict=True), marker="o", markersize=4, **style)
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
        name_axes(axes, "One release, by the law of its noise", axis, "L1 error, Gaussian noise = 1")
        axes.legend(frameon=False)
    return figure


def _ratio(errors: Mapping[str, float | None], law: str) -> float:
    return (errors[law] or 0.0) / (errors["gaussian"] or 1.0)


def tradeoffs(runs: list[Record], names: Mapping[str, str]) -> Figure:
    """Figures 2 and 3: accuracy over certified epsilon, at the last epoch and over all epochs."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for form, name in names.items():
        here = [run for run in runs if run.asked["form"] == form and run.asked["denoise"] == (form != "dpsgd")]
        last = sorted((run.found["certified"][-1], 100 * run.found["scores"][-1]) for run in here)
        if last:
            left.plot(*zip(*last, strict=True), marker="o", color=COLOURS[form], label=name)
        for run in here:
            scores = [100 * score for score in run.found["scores"]]
            right.plot(run.found["certified"], scores, marker=".", color=COLOURS[form], alpha=0.8)
    name_axes(left, "MNIST, after the last epoch", "certified ε", "test accuracy, %")
    name_axes(right, "MNIST, after every epoch of every run", "certified ε", "test accuracy, %")
    left.legend(frameon=False)
    return figure


def trajectories(best: Mapping[tuple[str, str], Record]) -> Figure:
    """Figures 4, 5 and 7: accuracy over epochs. The last score may be a few steps after the last epoch."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    styles = {"no": "-", "literal": ":", "relative": "--"}
    for (form, denoise), run in best.items():
        scores = [100 * score for score in run.found["scores"]]
        name = {"dpsgd": "DP-SGD", "gaussian": "Gaussian", "student_t": "Student-t"}[form]
        label = name if denoise == "no" else f"{name}, denoised ({denoise})"
        style = {"linestyle": styles[denoise], "color": COLOURS[form], "label": label}
        epochs = [min(number, run.asked["epochs"]) for number in range(1, len(scores) + 1)]
        axes.plot(epochs, scores, marker="." if len(scores) < 10 else "", **style)
    name_axes(axes, "MNIST, comparable noise", "epochs", "test accuracy, %")
    axes.legend(frameon=False, fontsize=8)
    return figure
