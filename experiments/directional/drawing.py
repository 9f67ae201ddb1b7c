"""The figures of Xiang et al."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from experiments.plots import name_axes
from matplotlib.figure import Figure

from tacit.accounting.information import distortion_rate
from tacit.experiments import Record

# Each method has the same one in every figure.
COLOURS = {
    "without noise": "#000000",
    "Gaussian, certified (and w = 1)": "#777777",
    "directional, certified": "#B8860B",
    "AdaClip, certified": "#7A5230",
    "Gaussian": "#D55E00",
    "ours, w = 1": "#0072B2",
    "AdaClip": "#AA4499",
    "ours": "#009E73",
}


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


def over_epochs(runs: Sequence[Record], epsilon: float) -> Figure:
    """Figure 3: accuracy over epochs at one epsilon."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    here = [run for run in runs if run.asked["epsilon"] in (epsilon, None)]
    for run in here:
        scores = [100 * score for score in run.found["scores"]]
        dashes = "--" if "certified" in run.asked["form"] else "-"
        form = run.asked["form"]
        axes.plot(range(1, len(scores) + 1), scores, color=COLOURS[form], linestyle=dashes, label=form)
    name_axes(axes, f"MNIST, ε = {epsilon:g}: claimed (solid), certified (dashed)", "epochs", "test accuracy, %")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def over_epsilon(runs: Sequence[Record], published: Sequence[str], rigorous: Sequence[str]) -> Figure:
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
    name_axes(left, "MNIST, as published", "claimed ε", "best test accuracy, %")
    name_axes(right, "MNIST, with a proof", "certified ε", "")
    return figure


def sensitivity(lots: Sequence[Record], clips: Sequence[Record]) -> Figure:
    """Figures 5 and 6: the best accuracy over lot sizes and clip norms."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, runs, name in zip(figure.subplots(1, 2), (lots, clips), ("lot_size", "clip_norm"), strict=True):
        for form in dict.fromkeys(run.asked["form"] for run in runs):
            points = [(r.asked[name], 100 * max(r.found["scores"])) for r in runs if r.asked["form"] == form]
            axes.semilogx(*zip(*sorted(points), strict=True), marker="o", color=COLOURS[form], label=form)
        axes.set_visible(bool(runs))
        tried = sorted({run.asked[name] for run in runs})
        axes.set_xticks(tried, [f"{each:g}" for each in tried])
        axes.minorticks_off()
        epsilon = f", claimed ε = {runs[0].asked['epsilon']:g}" if runs else ""
        name_axes(axes, f"MNIST{epsilon}", name.replace("_", " "), "best test accuracy, %")
        if axes.lines:
            axes.legend(frameon=False)
    return figure
