"""Plots of a guarantee: the trade-off curve, and epsilon over the steps.

Functions draw on the given axes, or on a new figure, and return the axes; none uses pyplot, so no display is needed.
Certified bounds are bands between solid lines; the central limit theorem is dashed, because it guarantees nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit.accounting import Event, PrivacyCurve, accountant_named, curve, gdp, other_accountants
from tacit.accounting.densities import Floats
from tacit.reports.curves import LEAST_ALARMS, POINTS, Numbers, Schedule, Spending, Tradeoff
from tacit.reports.wording import near, neighbours, percent_up, step_words, up

# Colours of Okabe and Ito, for all kinds of colour vision (thin lines are darker); line styles differ too.
_BLUE, _GREEN, _GREY = "#0072B2", "#009E73", "#777777"

CERTIFIED: dict[str, Any] = dict(accountant_named("pld").line)
ASYMPTOTIC: dict[str, Any] = dict(accountant_named("clt").line)
EPSILON_DELTA: dict[str, Any] = {"color": _GREEN, "linewidth": 1.6, "linestyle": (0, (1, 1.5))}
_LIMIT: dict[str, Any] = {"color": _GREY, "linewidth": 1.0}


def draw_privacy(event: Event, *, delta: float, group: int = 1, budget: float | None = None) -> Figure:
    """Draw both plots side by side: the trade-off curve of `event`, and its epsilon over the steps.

    >>> from tacit.accounting import Gaussian
    >>> figure = draw_privacy(Gaussian(multiplier=5.0) * 10, delta=1e-5)
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['Membership attacks', 'ε over the steps']
    """
    figure = Figure(figsize=(11.0, 6.7), layout=ConstrainedLayoutEngine(compress=True, h_pad=0.1))
    left, right = figure.subplots(1, 2)
    certified = curve(event).group(group)
    draw_tradeoff(certified, delta=delta, axes=left)
    draw_epsilon_over_steps(event, delta=delta, group=group, budget=budget, axes=right)
    figure.suptitle(_write_headline(certified, delta), fontsize=13)
    return figure


def draw_tradeoff(curve: PrivacyCurve, *, delta: float | None = None, axes: Axes | None = None) -> Axes:
    """Draw the smallest share of members that an attacker misses, over the share of false alarms.

    The true curve is inside the certified band. With `delta`, the curve of (epsilon, delta)-DP alone is dotted. An
    inset shows, on logarithmic scales, how many members are found with few false alarms.
    """
    axes = axes if axes is not None else Figure(layout="constrained").subplots()
    return draw_missed(Tradeoff.of(curve, delta), axes)


def draw_missed(found: Tradeoff, axes: Axes) -> Axes:
    """Draw a trade-off curve from its numbers."""
    inset = axes.inset_axes((0.615, 0.62, 0.34, 0.36))
    _draw_curves(axes, found, as_found=False)
    _draw_curves(inset, found, as_found=True)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="false alarms α", ylabel="members missed β")
    axes.set_title("Membership attacks", loc="left", fontsize=11)
    axes.set_box_aspect(1)
    show_percent(axes.xaxis, axes.yaxis)
    add_grid(axes)
    add_legend(axes)
    _finish_inset(inset, found.marked)
    return axes


def _finish_inset(inset: Axes, marked: list[list[float]]) -> None:
    inset.set(xscale="log", yscale="log", xlim=(LEAST_ALARMS, 1), ylim=(LEAST_ALARMS, 1.5))
    inset.set_xlabel("false alarms α", fontsize=8, labelpad=1)
    inset.set_ylabel("members found 1 − β", fontsize=8, labelpad=1)
    inset.tick_params(labelsize=7)
    inset.set_xticks([1e-5, 1e-3, 1e-1])
    inset.minorticks_off()
    show_percent(inset.xaxis, inset.yaxis)
    add_grid(inset)
    inset.plot(*zip(*marked, strict=True), marker="o", markersize=5, **{**CERTIFIED, "linestyle": ""})
    words = "\n".join(f"{100 * rate:g} % → {percent_up(share)}" for rate, share in marked)
    # Below the diagonal there is no curve.
    inset.text(0.96, 0.06, words, transform=inset.transAxes, ha="right", fontsize=7.5, color=_BLUE)


def _draw_curves(axes: Axes, drawn: Tradeoff, *, as_found: bool) -> None:
    """Draw every curve; with `as_found` as members found, without false alarms of 0, which a logarithm cannot show."""
    start = 1 if as_found else 0
    alphas = np.array(drawn.false_alarms[start:])

    def convert(missed: list[float] | Floats) -> Floats:
        values = np.asarray(missed)[-len(alphas) :]
        return 1 - values if as_found else values

    lower, upper = convert(drawn.missed_lower), convert(drawn.missed_upper)
    axes.fill_between(alphas, lower, upper, color=_BLUE, alpha=0.3, linewidth=0)
    axes.plot(alphas, lower, label="certified: no attack goes below", **CERTIFIED)
    if drawn.central_limit is not None:
        axes.plot(alphas, convert(drawn.central_limit), label=accountant_named("clt").full_label, **ASYMPTOTIC)
    if drawn.delta is not None and drawn.epsilon is not None:
        implied = convert(gdp.epsilon_delta_tradeoff(alphas, drawn.epsilon, drawn.delta))
        promised = f"implied by ε = {up(drawn.epsilon)}, δ = {drawn.delta:g} alone"
        axes.plot(alphas, implied, label=promised, **EPSILON_DELTA)
    axes.plot(alphas, convert(1 - alphas), label="random guessing", **_LIMIT)


def draw_epsilon_over_steps(
    event: Event, *, delta: float, group: int = 1, budget: float | None = None, axes: Axes | None = None
) -> Axes:
    """Draw epsilon at `delta` over the steps, by every accountant that accepts the event."""
    axes = axes if axes is not None else Figure(layout="constrained").subplots()
    return draw_spending(Spending.of(event, delta, group), axes, budget)


def draw_spending(spent: Spending, axes: Axes, budget: float | None = None) -> Axes:
    """Draw epsilon over the steps from its numbers."""
    steps, lower, upper = np.array(spent.steps), _replace_none(spent.lower), _replace_none(spent.upper)
    axes.fill_between(steps, lower, upper, color=_BLUE, alpha=0.3, linewidth=0)
    last = "no finite ε" if math.isnan(upper[-1]) else up(upper[-1])
    axes.plot(steps, upper, label=f"certified: {last}", marker=_choose_marker(steps), **CERTIFIED)
    for other in other_accountants():
        values = spent.others.get(other.name)
        # One that refuses the event is left out.
        if values is not None and values[-1] is not None:
            last, marker = (near if other.is_asymptotic else up)(values[-1]), _choose_marker(steps)
            axes.plot(steps, _replace_none(values), label=f"{other.full_label}: {last}", marker=marker, **other.line)
    if budget is not None:
        axes.axhline(budget, color="black", linewidth=1.2, linestyle=(0, (1, 1)))
        axes.annotate(f"budget {budget:g}", (0.02 * steps[-1], budget), xytext=(0, 4), textcoords="offset points")
    axes.set(xlim=(0, 1.02 * max(steps[-1], 1)), xlabel="steps", ylabel=f"ε at δ = {spent.delta:g}")
    axes.set_ylim(bottom=0)
    axes.set_title("ε over the steps", loc="left", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_box_aspect(1)
    add_grid(axes)
    add_legend(axes)
    return axes


def _replace_none(values: Numbers) -> Floats:
    """None, which means infinity, as NaN: it is not drawn."""
    return np.array([math.nan if value is None else value for value in values])


def _choose_marker(steps: Floats) -> str:
    """A dot per step if every step is drawn."""
    return "." if steps.size < POINTS else ""


def _write_headline(curve: PrivacyCurve, delta: float) -> str:
    epsilon = curve.epsilon(delta)
    promise = f"ε ≤ {up(epsilon)} at δ = {delta:g}" if math.isfinite(epsilon) else f"No finite ε at δ = {delta:g}"
    compared = neighbours(curve.adjacency, curve.group_size)
    return f"{promise}, certified ({compared}, {step_words(Schedule.of(curve.event).steps)})"


def add_legend(axes: Axes) -> None:
    """A legend below the axes, so that it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.11), frameon=False, fontsize=9.5, handlelength=3.2)


def add_grid(axes: Axes) -> None:
    """Light lines behind everything else."""
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)


def show_percent(*scales: Axis) -> None:
    """Write the ticks of these axes as percentages."""
    for one in scales:
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
