"""A plot of noise laws: the error of a release at each certified epsilon, as in figure 6 of Nasr et al. 2020."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tacit.accounting.densities import Floats
from tacit.reports.plots import add_grid
from tacit.stages.noise import find_family
from tacit.stages.noise.compare import FamilyError, Setting, trace

# Colours of Okabe and Ito, for all kinds of colour vision; markers differ too.
_STYLES: dict[str, dict[str, Any]] = {
    "gaussian": {"color": "#000000", "linewidth": 2.2},
    "student_t": {"color": "#0072B2", "linewidth": 1.8, "marker": "o"},
    "laplace": {"color": "#D55E00", "linewidth": 1.8, "marker": "s"},
    "variance_gamma": {"color": "#009E73", "linewidth": 1.8, "marker": "^"},
    "sech": {"color": "#AA4499", "linewidth": 1.8, "marker": "D"},
}
# Laws that are not listed above are drawn in these.
_OTHERS = ("#56B4E9", "#E69F00", "#882255", "#999933")
_FACTORS = np.geomspace(0.45, 2.6, 7)


def draw_families(setting: Setting, found: Sequence[FamilyError], *, epsilon: float, delta: float) -> Figure:
    """Draw errors over certified epsilon on the left, and relative to Gaussian noise of the same epsilon on the right.

    `found` gives the multiplier around which each law is drawn. A law without finite expected errors is left out.
    """
    figure = Figure(figsize=(11.0, 5.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    named = {one.name: one for one in found if math.isfinite(one.l1)}
    others = sorted(name for name in named if name not in _STYLES)
    order = [*(name for name in _STYLES if name in named), *others]
    more = {name: {"color": _OTHERS[i % len(_OTHERS)], "marker": "v"} for i, name in enumerate(others)}
    curves = {name: trace(setting, name, _FACTORS * named[name].multiplier, delta) for name in order}
    gaussian = curves["gaussian"]
    for name, (spent, l1, l2) in curves.items():
        style = _STYLES.get(name) or more[name]
        left.plot(spent, l1, label=find_family(name).label, markersize=5, **style)
        _draw_ratio(right, style, spent, l1 / _interpolate(gaussian[0], gaussian[1], spent), "-")
        _draw_ratio(right, style, spent, l2 / _interpolate(gaussian[0], gaussian[2], spent), (0, (4, 2)))
    left.set_ylabel("expected L1 error, in clip norms")
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    left.yaxis.set_minor_formatter(NullFormatter())
    left.set_title("Error of a release", loc="left", fontsize=11)
    right.set_ylabel("error relative to Gaussian noise")
    right.set_title("Relative to Gaussian noise of the same ε: L1 solid, L2 dashed", loc="left", fontsize=11)
    for axes in (left, right):
        _finish(axes, epsilon, delta)
    left.legend(frameon=False, fontsize=9.5)
    figure.suptitle(_write_headline(setting), fontsize=13)
    return figure


def _draw_ratio(axes: Axes, style: dict[str, Any], spent: Floats, ratio: Floats, line: Any) -> None:
    known = np.isfinite(ratio)
    axes.plot(spent[known], ratio[known], markersize=5, **{**style, "linestyle": line})


def _interpolate(spent: Floats, errors: Floats, epsilons: Floats) -> Floats:
    """Gaussian errors at other epsilons, interpolated on logarithmic scales; NaN outside the drawn range."""
    logs = np.interp(np.log(epsilons), np.log(spent[::-1]), np.log(errors[::-1]), left=math.nan, right=math.nan)
    return np.asarray(np.exp(logs))


def _finish(axes: Axes, epsilon: float, delta: float) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"certified ε at δ = {delta:g}")
    axes.axvline(epsilon, color="#777777", linewidth=1.0, linestyle=(0, (1, 1.5)))
    axes.annotate(
        f"ε = {epsilon:g}",
        (epsilon, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
    )
    add_grid(axes)


def _write_headline(setting: Setting) -> str:
    releases = "one release" if setting.steps == 1 else f"{setting.steps:,} releases"
    sampled = "" if setting.rate == 1 else f" at rate {setting.rate:.4g}"
    return f"Noise laws on {setting.dimension:,} encoded coordinates, {releases}{sampled}"
