"""Plots of audits: the proven trade-off curve, and the errors that the attack reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import special

from tacit.accounting import gdp
from tacit.audit.evidence import AuditReport, Kind, LowerBound, Verdict
from tacit.audit.separation import Roc
from tacit.audit.statistics import Floats
from tacit.reports.plots import add_grid, add_legend, draw_tradeoff, show_percent
from tacit.reports.wording import down

_ATTACK: dict[str, Any] = {"color": "#AA4499", "linewidth": 1.6, "marker": "o", "markersize": 2.5}
_CLAIM: dict[str, Any] = {"color": "#B8860B", "linewidth": 1.8, "linestyle": (0, (3, 1.5, 1, 1.5))}
_GUESSING: dict[str, Any] = {"color": "#777777", "linewidth": 1.0}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B")
_PROVEN: dict[str, Any] = {"color": "#0072B2", "linewidth": 1.8}
_VERDICTS = {Verdict.STANDS: "#117733", Verdict.BROKEN: "#AA4499", Verdict.CONFLICT: "#CC3311"}
_LEAST_RATE = 1e-4
# Panels in a row, and letters in one line of a title.
_ACROSS, _FOLD = 6, 26
_LEAST_ALARMS = 1e-7


def draw_audit(report: AuditReport) -> Figure:
    """Draw the proven trade-off curve, if there is one, and the attack's empirical errors.

    A single point below the curve does not contradict it, because errors were counted on few runs; the verdict in the
    title allows for that.
    """
    figure = Figure(figsize=(6.4, 7.4), layout="constrained")
    axes = figure.subplots()
    delta = report.finding.bound.delta
    if report.curve is not None:
        draw_tradeoff(report.curve, delta=delta, axes=axes)
    else:
        axes.plot([0, 1], [1, 0], label="random guessing", **_GUESSING)
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xlabel="false alarms α", ylabel="members missed β")
        axes.set_box_aspect(1)
        add_grid(axes)
        show_percent(axes.xaxis, axes.yaxis)
    # A claim above the proven epsilon is implied by the proof.
    if report.claimed is not None and report.claimed < report.proven:
        alphas = np.linspace(0, 1, 501)
        claimed = gdp.epsilon_delta_tradeoff(alphas, report.claimed, delta)
        axes.plot(alphas, claimed, label=f"claimed: ε = {report.claimed:.4g}, δ = {delta:g}", **_CLAIM)
    points = np.array(report.finding.points)
    if points.size:
        axes.plot(points[:, 0], points[:, 1], label=f"attack: {report.finding.attack}", **_ATTACK)
        for inset in axes.child_axes:
            assert isinstance(inset, Axes)
            inset.plot(*_drop_zeros(points), **_ATTACK)
    axes.set_title("What the attack reached", loc="left", fontsize=11)
    add_legend(axes)
    figure.suptitle(_write_headline(report), fontsize=12)
    return figure


def _write_headline(report: AuditReport) -> str:
    bound = report.finding.bound
    sign = {Verdict.CONFLICT: "✗", Verdict.BROKEN: "✗", Verdict.STANDS: "✓"}[report.verdict]
    proven = f"proven ε ≤ {report.proven:.4g}, " if math.isfinite(report.proven) else ""
    return f"{proven}audited {_format_bound(bound)} ({100 * bound.confidence:g} %)\n{sign} {report.verdict}"


def draw_claims(rows: Sequence[tuple[str, str, AuditReport]]) -> Figure:
    """Draw a panel for every attack (method, name, report): claim and proof as curves, and the attack's points.

    Scales are logarithmic, because claims break where false alarms are rare. An attack above a curve breaks that claim
    or proof. Measured attacks are drawn as counted; computed ones as they can do, or as a line that some test reaches.
    """
    high = -(-len(rows) // _ACROSS)
    figure = Figure(figsize=(2.4 * _ACROSS, 2.85 * high + 1.3), layout="constrained")
    panels = figure.subplots(high, _ACROSS, squeeze=False).ravel()
    for axes, (method, name, report) in zip(panels, rows, strict=False):
        _draw_panel(axes, report)
        title = method.replace(" (paper), ", " (paper),\n") if len(method) > _FOLD else method
        axes.set_title(f"{title}\n{name}", loc="left", fontsize=7.5)
    for axes in panels[len(rows) :]:
        axes.set_axis_off()
    figure.supxlabel("false alarms", fontsize=11)
    figure.supylabel("members found", fontsize=11)
    figure.legend(handles=_make_legend_entries(), loc="outside upper left", ncols=3, frameon=False, fontsize=9.5)
    return figure


def _draw_panel(axes: Axes, report: AuditReport) -> None:
    bound, colour = report.finding.bound, _VERDICTS[report.verdict]
    alarms = np.geomspace(_LEAST_ALARMS, 1, 300)
    axes.plot(alarms, alarms, **_GUESSING)
    for epsilon, style in ((report.proven, _PROVEN), (report.claimed, _CLAIM)):
        if epsilon is not None and math.isfinite(epsilon):
            axes.plot(alarms, 1 - gdp.epsilon_delta_tradeoff(alarms, epsilon, bound.delta), **style)
    if report.finding.points:
        axes.plot(
            *_drop_zeros(np.array(report.finding.points)), color=colour, linewidth=0.8, marker="o", markersize=2.2
        )
    else:
        axes.plot(alarms, _find_members_found(bound, alarms), color=colour, linewidth=2.2, linestyle=(0, (1, 1.2)))
    axes.set(xscale="log", yscale="log", xlim=(_LEAST_ALARMS, 1), ylim=(_LEAST_ALARMS, 1.5))
    ticks = (1e-6, 1e-4, 1e-2, 1)
    axes.set(xticks=ticks, yticks=ticks)
    axes.minorticks_off()
    axes.tick_params(labelsize=6.5, length=2)
    axes.set_box_aspect(1)
    lines = [] if report.claimed is None else [f"claimed {report.claimed:.3g}"]
    lines.append(f"proven {report.proven:.3g}" if math.isfinite(report.proven) else "nothing proven")
    text = "\n".join([*lines, f"shown {_format_bound(bound)}"])
    axes.text(0.97, 0.03, text, ha="right", va="bottom", fontsize=7, transform=axes.transAxes)


def _drop_zeros(points: Floats) -> Floats:
    """False alarms and members found, without points that have none of one: a logarithm cannot show them."""
    kept = points[(points[:, 0] > 0) & (points[:, 1] < 1)]
    return np.stack([kept[:, 0], 1 - kept[:, 1]])


def _find_members_found(bound: LowerBound, alarms: Floats) -> Floats:
    """The members that a computed attack finds; if only its epsilon is known, a line that it reaches at some point."""
    if bound.gap is not None:
        return np.full(alarms.shape, bound.gap)
    if bound.kind is Kind.GAUSSIAN_SHIFT:
        return np.asarray(special.ndtr(special.ndtri(alarms) + gdp.mu(bound.epsilon, bound.delta)))
    return np.minimum(bound.delta + np.exp(np.minimum(bound.epsilon + np.log(alarms), 0.0)), 1.0)


def _format_bound(bound: LowerBound) -> str:
    if math.isinf(bound.epsilon):
        return "no finite ε" if bound.gap is None else f"δ ≥ {bound.gap:.2g}"
    return f"ε ≥ {down(bound.epsilon, 4)}"


def _make_legend_entries() -> list[Line2D]:
    lines = [
        Line2D([], [], label="claimed upper limit of any attack", **_CLAIM),
        Line2D([], [], label="proven upper limit of any attack", **_PROVEN),
        Line2D([], [], label="random guessing", **_GUESSING),
    ]
    for verdict, colour in _VERDICTS.items():
        lines.append(Line2D([], [], color=colour, linewidth=0.8, marker="o", markersize=3, label=f"attack: {verdict}"))
    dotted = Line2D(
        [], [], color="#555555", linewidth=2.2, linestyle=(0, (1, 1.2)), label="attack: computed, not measured"
    )
    return [*lines, dotted]


def draw_membership(rocs: dict[str, Roc]) -> Figure:
    """Draw members found over false alarms, on logarithmic scales, which show attacks with few false alarms."""
    figure = Figure(figsize=(6.4, 7.4), layout="constrained")
    axes = figure.subplots()
    for number, ((name, one), colour) in enumerate(zip(rocs.items(), _COLOURS, strict=False)):
        found = f"{100 * one.found_at[0.01].value:.2f} %"
        label = f"{name}: AUC {one.area.value:.3f}, {found} found at 1 % false alarms"
        seen = _drop_zeros(np.stack([one.alarms, 1 - one.found], axis=1))
        # Scores with the same ranking overlap, so the first line is the widest.
        axes.plot(*seen, color=colour, linewidth=4.5 - 0.8 * number, label=label)
    line = np.geomspace(_LEAST_RATE, 1, 50)
    axes.plot(line, line, label="random guessing", **_GUESSING)
    axes.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1.2))
    axes.set(xlabel="false alarms", ylabel="members found")
    figure.suptitle("Membership inference", fontsize=12)
    axes.set_box_aspect(1)
    add_grid(axes)
    add_legend(axes)
    return figure
