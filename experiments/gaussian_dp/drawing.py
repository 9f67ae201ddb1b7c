"""Figures 2 to 5 of Bu et al., each with the certified curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from experiments.library.plots import name_axes
from matplotlib.figure import Figure

from tacit.accounting import curve, gdp

from .accounting import Steps

CERTIFIED = {"color": "#0072B2", "linewidth": 2.2, "label": "certified (PLD)"}
LIMIT = {"color": "#D55E00", "linewidth": 1.6, "linestyle": (0, (5, 2.5)), "label": "CLT (no guarantee)"}
MOMENTS = {"color": "#B8860B", "linewidth": 1.2, "linestyle": (0, (7, 1.5, 1, 1.5)), "label": "moments accountant"}
ONE_PAIR = {**MOMENTS, "color": "#999999", "label": "one (ε, δ) of the moments accountant"}
STYLES = {"clt": LIMIT, "moments": MOMENTS, "pld": CERTIFIED}


def figure_2(about: Mapping[str, Any], delta: float) -> Figure:
    """Epsilon and delta by three accountants: over each other, over epochs, and over the noise."""
    figure = Figure(figsize=(10, 7.6), layout="constrained")
    (first, second), (third, fourth) = figure.subplots(2, 2)
    sizes = about["multiplier"], about["lot_size"], about["population"]
    deltas = np.geomspace(1e-10, 1e-2, 17)
    for axes, epochs in zip((first, second), about["epochs"], strict=True):
        event = Steps.of(*sizes, epochs).event
        for by, style in STYLES.items():
            axes.semilogy([curve(event, by=by).epsilon(each) for each in deltas], deltas, **style)
        name_axes(axes, f"σ = {about['multiplier']}, {epochs} epochs", "ε", "δ")
    epochs = np.linspace(1, about["most_epochs"], 15)
    for by, style in STYLES.items():
        third.plot(epochs, [curve(Steps.of(*sizes, each).event, by=by).epsilon(delta) for each in epochs], **style)
        noisy = [Steps.of(each, *sizes[1:], about["epochs_over_multipliers"]).event for each in about["multipliers"]]
        fourth.semilogy(about["multipliers"], [curve(event, by=by).epsilon(delta) for event in noisy], **style)
    name_axes(third, f"σ = {about['multiplier']}, δ = {delta:g}", "epochs", "ε")
    name_axes(fourth, f"{about['epochs_over_multipliers']} epochs, δ = {delta:g}", "σ", "ε")
    first.legend(frameon=False)
    return figure


def figure_3(rows: Sequence[Steps], delta: float) -> Figure:
    """Trade-off functions: what an attacker may reach, by four views of the same training."""
    columns = min(3, len(rows))
    figure = Figure(figsize=(3.6 * columns, 3.6 * -(-len(rows) // columns)), layout="constrained")
    grid = np.atleast_1d(figure.subplots(-(-len(rows) // columns), columns, squeeze=False)).ravel()
    alphas = np.concatenate([np.geomspace(1e-5, 1e-2, 12), np.linspace(0.02, 1, 40)])
    for axes, steps in zip(grid, rows, strict=False):
        certified, moments = curve(steps.event), curve(steps.event, by="moments")
        axes.plot(alphas, gdp.epsilon_delta_tradeoff(alphas, moments.epsilon(delta), delta), **ONE_PAIR)
        axes.plot(alphas, moments.tradeoff(alphas), **MOMENTS)
        axes.plot(alphas, gdp.tradeoff(alphas, steps.mu), **LIMIT)
        axes.plot(alphas, certified.tradeoff(alphas), **CERTIFIED)
        axes.set_ylim(-0.03, 1.03)
        name_axes(
            axes,
            f"σ = {steps.multiplier:g}: ε {certified.epsilon(delta):.2f} certified",
            "type I error",
            "type II error",
        )
    grid[0].legend(frameon=False, fontsize=8)
    return figure


def figure_4(
    rows: Sequence[Mapping[str, Any]], lot_size: float, delta: float, scores: Mapping[float, Sequence[float]]
) -> Figure:
    """Two noise levels that two accountants hold for equally private: accuracy, and epsilon over epochs."""
    figure = Figure(figsize=(10, 4 * len(rows)), layout="constrained")
    for row, (left, right) in zip(rows, figure.subplots(len(rows), 2, squeeze=False), strict=True):
        for multiplier, style in ((row["multiplier"], MOMENTS), (row["lower_multiplier"], LIMIT)):
            named = {**style, "label": f"σ = {multiplier:g}"}
            if multiplier in scores:
                reached = [100 * score for score in scores[multiplier]]
                # The last steps, fewer than an epoch, have a score of their own.
                places = [min(number, row["epochs"]) for number in range(1, len(reached) + 1)]
                left.plot(places, reached, **named)
            epochs = np.linspace(1, max(2, row["epochs"]), 12)
            events = [Steps.of(multiplier, lot_size, 60_000, each).event for each in epochs]
            by = "moments" if style is MOMENTS else "clt"
            right.plot(
                epochs,
                [curve(event, by=by).epsilon(delta) for event in events],
                **{**style, "label": f"σ = {multiplier:g}, {style['label']}"},
            )
            dashes = "-" if style is LIMIT else (0, (1, 1))
            right.plot(
                epochs,
                [curve(event).epsilon(delta) for event in events],
                **{**CERTIFIED, "linestyle": dashes, "label": f"σ = {multiplier:g}, certified"},
            )
        if not left.lines:
            left.set_axis_off()
            left.text(0.5, 0.5, "training was not run here", ha="center", transform=left.transAxes)
        name_axes(left, "NoisySGD on MNIST", "epochs", "test accuracy, %")
        name_axes(right, f"what it costs, δ = {delta:g}", "epochs", "ε")
        right.legend(frameon=False, fontsize=8)
        if left.lines:
            left.legend(frameon=False)
    return figure


def figure_5(about: Mapping[str, Any]) -> Figure:
    """The composition of one epoch's steps at a higher rate, and the limit it is said to have reached."""
    whole = Steps.of(about["multiplier"], about["lot_size"], about["population"], about["epochs"])
    rate = whole.rate * (whole.steps / about["steps"]) ** 0.5
    steps = Steps(about["multiplier"], rate, about["steps"])
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    for axes, alphas in zip(figure.subplots(1, 2), (np.linspace(0, 1, 101), np.geomspace(1e-6, 1e-2, 41)), strict=True):
        axes.plot(alphas, gdp.tradeoff(alphas, steps.mu), **LIMIT)
        low, high = curve(steps.event).tradeoff_bounds(alphas)
        axes.plot(alphas, low, **CERTIFIED)
        axes.fill_between(alphas, low, high, color=CERTIFIED["color"], alpha=0.2)
        name_axes(
            axes,
            f"σ = {about['multiplier']}, {about['steps']} steps at rate {rate:.3f}",
            "type I error",
            "type II error",
        )
    figure.axes[1].set_xscale("log")
    figure.axes[0].legend(frameon=False)
    return figure
