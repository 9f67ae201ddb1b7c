"""Pictures of a guarantee: what an attacker can do, and how epsilon grows with the steps.

Every function draws on the axes that it is given, or on a new figure, and returns the axes; none touches pyplot,
so no display is needed and nothing is left open. Certified bounds are drawn as bands between solid lines, the
central limit theorem dashed, because it promises nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit import arguments
from tacit.accounting import Event, PrivacyCurve, curve, gdp
from tacit.accounting.curve import AccountantName
from tacit.accounting.densities import Floats
from tacit.errors import NotAccountable
from tacit.report.schedule import Schedule
from tacit.report.wording import near, neighbours, percent_up, step_words, up

# After Okabe and Ito, whose colours every kind of colour vision tells apart (thin lines darker); styles differ as well.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#D55E00", "#009E73"
_PURPLE, _YELLOW, _GREY = "#AA4499", "#B8860B", "#777777"

CERTIFIED: dict[str, Any] = {"color": _BLUE, "linewidth": 2.2}
ASYMPTOTIC: dict[str, Any] = {"color": _ORANGE, "linewidth": 1.8, "linestyle": (0, (5, 2.5))}
EPSILON_DELTA: dict[str, Any] = {"color": _GREEN, "linewidth": 1.6, "linestyle": (0, (1, 1.5))}
_OTHERS: dict[AccountantName, dict[str, Any]] = {
    "clt": ASYMPTOTIC,
    "rdp": {"color": _PURPLE, "linewidth": 1.0},
    "moments": {"color": _YELLOW, "linewidth": 1.0, "linestyle": (0, (7, 1.5, 1, 1.5))},
}
_NAMES = {"clt": "central limit theorem (no guarantee)", "rdp": "RDP", "moments": "moments accountant"}
_LIMIT: dict[str, Any] = {"color": _GREY, "linewidth": 1.0}
_LEAST_ALARMS = 1e-5
_POINTS = 18
_MARKED_ALARMS = 0.01


def draw_privacy(event: Event, *, delta: float, group: int = 1, budget: float | None = None) -> Figure:
    """Both pictures side by side: the trade-off curve of `event`, and its epsilon over the steps.

    >>> from tacit.accounting import Gaussian
    >>> figure = draw_privacy(Gaussian(multiplier=5.0) * 10, delta=1e-5)
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['What an attacker can do', 'What the steps cost']
    """
    figure = Figure(figsize=(11.0, 6.7), layout=ConstrainedLayoutEngine(compress=True, h_pad=0.1))
    left, right = figure.subplots(1, 2)
    certified = curve(event).group(group)
    draw_tradeoff(certified, delta=delta, axes=left)
    draw_epsilon_over_steps(event, delta=delta, group=group, budget=budget, axes=right)
    figure.suptitle(_headline(certified, delta), fontsize=13)
    return figure


def draw_tradeoff(curve: PrivacyCurve, *, delta: float | None = None, axes: Axes | None = None) -> Axes:
    """The smallest share of members that an attacker misses, over the share of false alarms.

    The band holds the true curve for certain. With `delta`, what (epsilon, delta)-DP alone would promise is dotted.
    An inset shows, on logarithmic scales, how many members are found with few false alarms.
    """
    axes = axes if axes is not None else Figure(layout="constrained").subplots()
    alphas = np.concatenate([[0.0], np.geomspace(_LEAST_ALARMS, 0.02, 120), np.linspace(0.02, 1.0, 181)[1:]])
    inset = axes.inset_axes((0.615, 0.62, 0.34, 0.36))
    _draw_curves(axes, curve, alphas, delta, found=False)
    _draw_curves(inset, curve, alphas[1:], delta, found=True)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="false alarms α", ylabel="members missed β")
    axes.set_title("What an attacker can do", loc="left", fontsize=11)
    axes.set_box_aspect(1)
    _percent(axes)
    _grid(axes)
    _legend(axes)
    _finish_inset(inset, curve.true_positive_rate(_MARKED_ALARMS))
    return axes


def _finish_inset(inset: Axes, found: float) -> None:
    inset.set(xscale="log", yscale="log", xlim=(_LEAST_ALARMS, 1), ylim=(_LEAST_ALARMS, 1.5))
    inset.set_xlabel("false alarms α", fontsize=8, labelpad=1)
    inset.set_ylabel("members found 1 − β", fontsize=8, labelpad=1)
    inset.tick_params(labelsize=7)
    inset.set_xticks([1e-5, 1e-3, 1e-1])
    inset.minorticks_off()
    _percent(inset)
    _grid(inset)
    inset.plot([_MARKED_ALARMS], [found], marker="o", markersize=5, **CERTIFIED)
    marked = f"{100 * _MARKED_ALARMS:g} % → {percent_up(found)}"
    # Under the diagonal, where no curve goes.
    inset.text(0.96, 0.06, marked, transform=inset.transAxes, ha="right", fontsize=8, color=_BLUE)


def _draw_curves(axes: Axes, curve: PrivacyCurve, alphas: Floats, delta: float | None, *, found: bool) -> None:
    """Every curve of the picture; as members found instead of missed if `found`."""

    def shown(missed: float | Floats) -> Floats:
        return 1 - np.asarray(missed) if found else np.asarray(missed)

    lower, upper = (shown(bound) for bound in curve.tradeoff_bounds(alphas))
    axes.fill_between(alphas, lower, upper, color=_BLUE, alpha=0.3, linewidth=0)
    axes.plot(alphas, lower, label="certified: no attack is below", **CERTIFIED)
    try:
        asymptotic = _same(curve, "clt").tradeoff(alphas)
        axes.plot(alphas, shown(asymptotic), label=_NAMES["clt"], **ASYMPTOTIC)
    except NotAccountable:
        pass  # The central limit theorem does not speak of this event: there is nothing to draw.
    epsilon = math.inf if delta is None else curve.epsilon(delta)
    if delta is not None and math.isfinite(epsilon):
        implied = gdp.epsilon_delta_tradeoff(alphas, epsilon, delta)
        axes.plot(
            alphas, shown(implied), label=f"what ε = {up(epsilon)}, δ = {delta:g} alone promises", **EPSILON_DELTA
        )
    axes.plot(alphas, shown(1 - alphas), label="guessing: no privacy lost", **_LIMIT)


def draw_epsilon_over_steps(
    event: Event, *, delta: float, group: int = 1, budget: float | None = None, axes: Axes | None = None
) -> Axes:
    """Epsilon at `delta` over the number of steps, up to all of them, by every accountant that has an answer."""
    axes = axes if axes is not None else Figure(layout="constrained").subplots()
    delta = arguments.open_unit("delta", delta)
    schedule = Schedule.of(event)
    # Epsilon grows like the square root of the steps: more points where it bends.
    places = np.ceil(schedule.steps * np.linspace(0.0, 1.0, _POINTS) ** 2).astype(int)
    steps = np.unique(np.maximum(places, min(schedule.steps, 1)))
    curves = [curve(schedule.until(int(step))).group(group) for step in steps]
    bounds = np.array([one.epsilon_bounds(delta) for one in curves])
    bounds[~np.isfinite(bounds)] = math.nan
    axes.fill_between(steps, bounds[:, 0], bounds[:, 1], color=_BLUE, alpha=0.3, linewidth=0)
    axes.plot(steps, bounds[:, 1], label=f"certified: {_finite(bounds[-1, 1])}", marker=_marker(steps), **CERTIFIED)
    _draw_others(axes, steps, curves, delta)
    if budget is not None:
        axes.axhline(budget, color="black", linewidth=1.2, linestyle=(0, (1, 1)))
        axes.annotate(f"budget {budget:g}", (0.02 * schedule.steps, budget), xytext=(0, 4), textcoords="offset points")
    axes.set(xlim=(0, 1.02 * max(schedule.steps, 1)), xlabel="steps", ylabel=f"ε at δ = {delta:g}")
    axes.set_ylim(bottom=0)
    axes.set_title("What the steps cost", loc="left", fontsize=11)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_box_aspect(1)
    _grid(axes)
    _legend(axes)
    return axes


def _draw_others(axes: Axes, steps: Floats, curves: list[PrivacyCurve], delta: float) -> None:
    """The accountants that are not certified on both sides; one that refuses the event is left out."""
    for by, style in _OTHERS.items():
        try:
            values = np.array([_same(one, by).epsilon(delta) for one in curves])
        except NotAccountable:
            continue
        values[~np.isfinite(values)] = math.nan
        if not math.isnan(values[-1]):
            shown = near(values[-1]) if by == "clt" else up(values[-1])
            axes.plot(steps, values, label=f"{_NAMES[by]}: {shown}", marker=_marker(steps), **style)


def _marker(steps: Floats) -> str:
    """A dot per step where there are so few that each is drawn."""
    return "." if steps.size < _POINTS else ""


def _finite(epsilon: float) -> str:
    return "no finite ε" if math.isnan(epsilon) else up(epsilon)


def _same(curve: PrivacyCurve, by: AccountantName) -> PrivacyCurve:
    """The same question, put to another accountant."""
    return replace(curve, by=by)


def _headline(curve: PrivacyCurve, delta: float) -> str:
    epsilon = curve.epsilon(delta)
    promise = f"ε ≤ {up(epsilon)} at δ = {delta:g}" if math.isfinite(epsilon) else f"No finite ε at δ = {delta:g}"
    compared = neighbours(curve.adjacency, curve.group_size)
    return f"{promise}, certified ({compared}, {step_words(Schedule.of(curve.event).steps)})"


def _legend(axes: Axes) -> None:
    """Below the axes, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.11), frameon=False, fontsize=9.5, handlelength=3.2)


def _grid(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(color="#DDDDDD", linewidth=0.6)


def _percent(axes: Axes) -> None:
    shown = FuncFormatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_formatter(shown)
    axes.yaxis.set_major_formatter(shown)
