"""The figures of Xiang et al."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from experiments.library import Record
from experiments.library.plots import name_axes
from matplotlib.figure import Figure

from tacit.accounting.information import distortion_rate

# Each method has the same one in every figure.
COLOURS = {
    "without noise": "#000000",
    "Gaussian, certified (and w = 1)": "#777777",
    "directional, certified": "#B8860B",
    "AdaClip, certified": "#7A5230",
    "Gaussian": "#D55E00",
    "ours, w = 1": "#0072B2",
    "Gaussian, orders up to 63": "#DDBB99",
    "AdaClip": "#AA4499",
    "ours": "#009E73",
    "Gaussian, pruned": "#D55E00",
    "ours, w = 1, pruned": "#0072B2",
    "ours, pruned": "#009E73",
    "pruned, certified": "#B8860B",
}
VARIED = {"lot_size": "lot size", "clip_norm": "clip norm", "keep": "share kept"}


def as_written(name: str) -> str:
    """The name of a set as one reads it.

    >>> as_written("cifar10, AlexNet")
    'CIFAR-10, AlexNet'
    """
    return name.replace("mnist", "MNIST").replace("cifar10", "CIFAR-10")


def surfaces(found: Mapping[str, Any]) -> Figure:
    """Figure 1: the cost while two parameters move."""
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    shifts = found["shifts"]
    for axes, name, shown in zip(figure.subplots(1, 2), ("theta_1", "theta_6"), ("θ₁", "θ₆"), strict=True):
        picture = axes.contourf(shifts, shifts, np.transpose(found[name]), levels=12, cmap="cividis")
        figure.colorbar(picture, ax=axes, label="cost")
        axes.set_xlabel(f"added to {shown}")
        axes.set_ylabel("added to b₃")
        axes.set_title(f"accuracy {100 * found['accuracy']:.1f} % before", loc="left", fontsize=10)
    return figure


def distortion_rate_example() -> tuple[np.ndarray, np.ndarray]:
    """Six normal coordinates of different sizes, and weights."""
    stds, weights = np.array([2.0, 1.5, 1.0, 0.7, 0.4, 0.2]), np.array([1.0, 0.6, 1.2, 1.0, 1.5, 1.0])
    return 0.5 * np.log(2 * np.pi * np.e * stds**2), weights


def water_filling() -> Figure:
    """Figure 2: reverse water-filling, and the least distortion over the rate."""
    entropies, weights = distortion_rate_example()
    figure = Figure(figsize=(9.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = distortion_rate(entropies, weights, 2.0)
    places = np.arange(1, len(weights) + 1)
    beta = weights**2 * np.exp(2 * entropies) / (2 * np.pi * np.e)
    left.bar(places, beta, color="#dddddd", label="β")
    left.bar(places, found.per_coordinate, color="#0072B2", width=0.5, label="distortion of each")
    left.axhline(found.water_level, color="#D55E00", linestyle="--", label="λ")
    name_axes(left, "rate 2 nats", "coordinate", "weighted squared error")
    left.legend(frameon=False)
    rates = np.linspace(0.05, 8, 40)
    right.plot(rates, [distortion_rate(entropies, weights, rate).distortion for rate in rates], color="#0072B2")
    name_axes(right, "below the curve nothing is possible", "mutual information, nats", "least distortion")
    return figure


def over_epochs(panels: Mapping[str, tuple[Sequence[Record], float]]) -> Figure:
    """Figure 3: accuracy over epochs at one epsilon, in a panel for each set."""
    figure = Figure(figsize=(1.6 + 5.2 * len(panels), 4.2), layout="constrained")
    shown: dict[str, Any] = {}
    for axes, (title, (runs, epsilon)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for run in runs:
            form = run.asked["form"]
            if run.asked["epsilon"] in (epsilon, None):
                scores = [100 * score for score in run.found["scores"]]
                dashes = "--" if "certified" in form else "-"
                (shown[form],) = axes.plot(_epochs(run), scores, color=COLOURS[form], linestyle=dashes, label=form)
        name_axes(axes, f"{title}: claimed (solid), certified (dashed)", "epochs", "test accuracy, %")
    figure.legend(handles=list(shown.values()), frameon=False, fontsize=8, loc="outside right center")
    return figure


def _epochs(run: Record) -> list[float]:
    """After how many epochs each score was taken: lots do not come out even, and the last one is at the last step."""
    count, lots = len(run.found["scores"]), run.asked["examples"] / run.asked["lot_size"]
    if run.asked["epsilon"] is None:
        return [float(number) for number in range(1, count + 1)]
    steps = round(run.asked["epochs"] * lots)
    return [min(number * round(lots), steps) / lots for number in range(1, count + 1)]


def over_epsilon(name: str, runs: Sequence[Record], published: Sequence[str], rigorous: Sequence[str]) -> Figure:
    """Figure 4: the best accuracy over epsilon, at equal claimed and at equal certified epsilon."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, forms in ((left, published), (right, rigorous)):
        for form in forms:
            points = [(r.asked["epsilon"], 100 * max(r.found["scores"])) for r in runs if r.asked["form"] == form]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), marker="o", color=COLOURS[form], label=form)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    name_axes(left, f"{name}, as published", "claimed ε", "best test accuracy, %")
    name_axes(right, f"{name}, with a proof", "certified ε", "")
    return figure


def sensitivity(swept: Sequence[tuple[Mapping[str, Any], Sequence[Record]]]) -> Figure:
    """Figures 5 and 6: the best accuracy over what is varied."""
    figure = Figure(figsize=(5 * len(swept), 4), layout="constrained")
    for axes, (sweep, runs) in zip(figure.subplots(1, len(swept), squeeze=False)[0], swept, strict=True):
        varied = sweep["varied"]
        for form in dict.fromkeys(run.asked["form"] for run in runs):
            points = [(r.asked[varied], 100 * max(r.found["scores"])) for r in runs if r.asked["form"] == form]
            axes.semilogx(*zip(*sorted(points), strict=True), marker="o", color=COLOURS[form], label=form)
        tried = sorted({run.asked[varied] for run in runs})
        axes.set_xticks(tried, [f"{each:g}" for each in tried])
        axes.minorticks_off()
        title = f"{as_written(sweep['set'])}, claimed ε = {sweep['epsilon']:g}"
        name_axes(axes, title, VARIED[varied], "best test accuracy, %")
        axes.legend(frameon=False)
    return figure


def epochs_and_epsilons(
    curves: Mapping[str, Sequence[float]], points: Mapping[str, Sequence[tuple[float, float]]]
) -> Figure:
    """Figures 3(a) and 4(a): accuracy over epochs at the least epsilon, and over epsilon."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for form, scores in curves.items():
        left.plot(range(1, len(scores) + 1), scores, marker=".", color=COLOURS[form], label=form)
    for form, found in points.items():
        right.plot(*zip(*found, strict=True), marker="o", color=COLOURS[form], label=form)
    name_axes(left, f"ε = {min(next(iter(points.values())))[0]:g}", "epochs", "test accuracy, %")
    name_axes(right, "at the best learning rate", "ε", "")
    figure.legend(*left.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    return figure


def sensitivities(panels: Mapping[str, tuple[str, Mapping[str, Sequence[tuple[float, float]]]]]) -> Figure:
    """Figures 5 and 6: the accuracy over what is varied, in a panel for each."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, (name, points)) in zip(grid, panels.items(), strict=False):
        for form, found in points.items():
            axes.plot(*zip(*found, strict=True), marker="o", color=COLOURS[form], label=form)
        tried = sorted({place for found in points.values() for place, _ in found})
        if min(tried) > 0 and max(tried) > 4 * min(tried):
            axes.set_xscale("log")
        axes.set_xticks(tried, [f"{each:.3g}" for each in tried])
        axes.minorticks_off()
        name_axes(axes, title, name, "test accuracy, %")
        axes.legend(frameon=False, fontsize=7)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return figure
