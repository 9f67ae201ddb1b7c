"""The page of a comparison, and its picture: scores over certified epsilon, one panel for each adjacency."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure

from tacit._files import write_whole
from tacit.reports import figures, page, sketches
from tacit.reports.comparison import read_comparison
from tacit.reports.facts import Facts
from tacit.reports.panels import TITLES, draw_panel, is_level_drawn, panels_of
from tacit.reports.series import Tradeoff


def write_comparison(folder: Path, out: Path) -> tuple[Facts, tuple[Path, Path, Path]]:
    """The page, its twin and the picture of the comparison in the folder; of somebody's own table for them alone."""
    facts = read_comparison(folder)
    drawn, picture, is_private = io.BytesIO(), out / "comparison.png", facts["data"]["is_own"]
    draw_scores(facts).savefig(drawn, dpi=150)
    with page.writing(out):
        write_whole(picture, drawn.getvalue(), is_private=is_private)
    html, twin = page.write(facts, comparison_page(facts), out, is_private=is_private)
    return facts, (html, twin, picture)


def draw_scores(facts: Facts) -> Figure:
    """The score over the certified epsilon, all panels in a row."""
    panels = panels_of(facts)
    figure = Figure(figsize=(max(1, len(panels)) * 6.2, 6.6), layout="constrained")
    parts = figure.subfigures(1, max(1, len(panels)), squeeze=False, wspace=0.03)[0]
    for part, panel in zip(parts, panels, strict=False):
        draw_panel(part, facts, panel)
    progress = facts["progress"]
    unfinished = "" if progress["is_finished"] else f", unfinished: {progress['done']} of {progress['cells']} cells"
    figure.suptitle(f"{facts['title']} (δ = {facts['delta']:g}, {facts['seeds_in_words']}{unfinished})", fontsize=12)
    return figure


def comparison_page(facts: Facts) -> str:
    """The page, with a figure for each adjacency."""
    shown = []
    for panel in panels_of(facts):
        figure = Figure(figsize=(5.2, 6.4), layout="constrained")
        draw_panel(figure, facts, panel)
        title = f"What privacy costs: {TITLES[panel]}"
        svg = figures.as_svg(figure, key=panel.replace("_", "-"), title=title, description=_caption(facts, panel))
        shown.append({"key": panel, "svg": svg, "title": title, "words": _caption(facts, panel)})
    return page.render("comparison.html", facts, figures=shown, tradeoff=_tradeoff)


def _tradeoff(row: Facts, number: int) -> Facts | None:
    """The trade-off curve of a row; None where nothing is proven, or its cell was written before there was one."""
    if row["details"].get("tradeoff") is None:
        return None
    found = Tradeoff(**row["details"]["tradeoff"])
    words = (
        f"Members missed over false alarms, {row['label'].replace('_', ' ')} at ε = {row['epsilon']:g}. No attack "
        "comes below the blue curve."
    )
    key = f"tradeoff-{number}"
    return {"key": key, "svg": sketches.tradeoff(found, key=key, description=words), "words": words}


def _caption(facts: Facts, panel: str) -> str:
    """What is seen, and nothing that is not."""
    levels = ["the dashed line is the model without privacy"] if is_level_drawn(facts) else []
    levels += ["the dotted one is the same answer for all"] if facts["data"].get("constant") is not None else []
    return " ".join(
        [
            f"The {facts['measure']} on test examples over the certified epsilon, for {TITLES[panel]}. Bars are 95 % "
            "intervals; methods at one epsilon are set apart a little, so that each is seen.",
            *([f"{'; '.join(levels)}.".capitalize()] if levels else []),
            "Hollow marks are methods as published, those about which nothing is proven by the epsilon that was asked "
            "for. Every number is in the table below.",
        ]
    )
