"""The picture of an audit: the curve below which no attack may get, and how far the attack got."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tacit.accounting import gdp
from tacit.audit.audits import AuditReport
from tacit.audit.evidence import Verdict
from tacit.audit.separation import Roc
from tacit.report.plots import draw_tradeoff

_ATTACK: dict[str, Any] = {"color": "#AA4499", "linewidth": 1.6, "marker": "o", "markersize": 2.5}
_CLAIM: dict[str, Any] = {"color": "#B8860B", "linewidth": 1.8, "linestyle": (0, (3, 1.5, 1, 1.5))}
_GUESSING: dict[str, Any] = {"color": "#777777", "linewidth": 1.0}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B")
_LEAST_RATE = 1e-4


def draw_audit(report: AuditReport) -> Figure:
    """The trade-off curve, if there is a proven one, with the attack's errors as counted.

    A point below the curve is no contradiction by itself, for it was counted, and luck plays its part; the verdict in
    the title allows for that.
    """
    figure = Figure(figsize=(6.4, 7.4), layout="constrained")
    axes = figure.subplots()
    delta = report.finding.bound.delta
    if report.curve is not None:
        draw_tradeoff(report.curve, delta=delta, axes=axes)
    else:
        _draw_plain(axes)
    # A claim above what is proven is on the safe side, and of no interest here.
    if report.claimed is not None and report.claimed < report.proven:
        alphas = np.linspace(0, 1, 501)
        claimed = gdp.epsilon_delta_tradeoff(alphas, report.claimed, delta)
        axes.plot(alphas, claimed, label=f"claimed: ε = {report.claimed:.4g}, δ = {delta:g}", **_CLAIM)
    points = np.array(report.finding.points)
    if points.size:
        axes.plot(points[:, 0], points[:, 1], label=f"the attack: {report.finding.attack}", **_ATTACK)
        for inset in axes.child_axes:
            assert isinstance(inset, Axes)
            inset.plot(np.maximum(points[:, 0], 1e-12), np.maximum(1 - points[:, 1], 1e-12), **_ATTACK)
    axes.set_title("What the attack could do", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.11), frameon=False, fontsize=9.5, handlelength=3.2)
    figure.suptitle(_headline(report), fontsize=12)
    return figure


def _draw_plain(axes: Axes) -> None:
    axes.plot([0, 1], [1, 0], label="guessing: no privacy lost", **_GUESSING)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="false alarms α", ylabel="members missed β")
    axes.set_box_aspect(1)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    percent = FuncFormatter(lambda value, _: f"{100 * value:g} %")
    axes.xaxis.set_major_formatter(percent)
    axes.yaxis.set_major_formatter(percent)


def _headline(report: AuditReport) -> str:
    bound = report.finding.bound
    shown = "no finite ε" if math.isinf(bound.epsilon) else f"ε ≥ {math.floor(1e3 * bound.epsilon) / 1e3:g}"
    sign = {Verdict.CONFLICT: "✗", Verdict.BROKEN: "✗", Verdict.STANDS: "✓"}[report.verdict]
    proven = f"proven ε ≤ {report.proven:.4g}, " if math.isfinite(report.proven) else ""
    return f"{proven}audited {shown} ({100 * bound.confidence:g} %)\n{sign} {report.verdict}"


def draw_membership(rocs: dict[str, Roc]) -> Figure:
    """Members found over false alarms, on logarithmic scales, where an attacker who is seldom wrong is seen."""
    figure = Figure(figsize=(6.4, 7.4), layout="constrained")
    axes = figure.subplots()
    for (name, one), colour in zip(rocs.items(), _COLOURS, strict=False):
        label = f"{name}: AUC {one.area.value:.3f}, {one.found_at[0.01].value:.2%} found at 1 % false alarms"
        axes.plot(one.alarms, one.found, color=colour, linewidth=1.6, label=label)
    line = np.geomspace(_LEAST_RATE, 1, 50)
    axes.plot(line, line, label="guessing", **_GUESSING)
    axes.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1.2))
    axes.set(xlabel="false alarms", ylabel="members found")
    figure.suptitle("Membership inference", fontsize=12)
    axes.set_box_aspect(1)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.11), frameon=False, fontsize=9.5)
    return figure
