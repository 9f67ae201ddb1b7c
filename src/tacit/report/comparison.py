"""A comparison as facts, picture and page: every method at every epsilon, beside the model without privacy."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tacit.errors import InvalidArgument
from tacit.methods.registry import METHODS
from tacit.report import page
from tacit.report.facts import Facts
from tacit.report.run import made, wilson
from tacit.report.wording import near, up

SCHEMA = "tacit-comparison/1"
PLAN, CELLS = "comparison.json", "cells"
NON_PRIVATE = "non_private"
_ADJACENCIES = {"add_remove": "add/remove", "replace_one": "replace one"}
_IN_WORDS = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
_SURE = 0.95


def is_comparison(folder: Path) -> bool:
    """Whether `tacit compare` has written a comparison there."""
    return (folder / PLAN).is_file()


def write_comparison(folder: Path, out: Path) -> tuple[Facts, tuple[Path, Path, Path]]:
    """The page, its twin and the picture of the comparison in the folder."""
    from tacit.report import overview

    facts = read_comparison(folder)
    figure = overview.draw_scores(facts)
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "comparison.png"
    figure.savefig(picture, dpi=150)
    html, twin = page.write(facts, overview.comparison_page(facts), out)
    return facts, (html, twin, picture)


def read_comparison(folder: Path) -> Facts:
    """Everything that the cells in the folder say together."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        cells = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / CELLS).glob("*.json"))]
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{folder} holds no comparison that tacit compare wrote: {error}.") from error
    if not cells:
        raise InvalidArgument(f"{folder} holds no finished cell yet. Go on with: {plan['command']}")
    data, settings = plan["data"], plan["settings"]
    rows = _rows(cells, data)
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "title": f"Every method on {data['name']}",
        "made": made(),
        "measure": _measure(cells),
        "delta": settings["delta"],
        "data": data,
        "settings": settings,
        "seeds": len({cell["seed"] for cell in cells}),
        "rows": rows,
        "words": _words(rows, _measure(cells), data),
        "methods": _methods({row["method"] for row in rows}),
        "command": plan["command"],
    }


def columns(facts: Facts) -> list[str]:
    """The heads of the table."""
    scored = "accuracy" if facts["measure"] == "accuracy" else "error (rmse)"
    return ["method", "asked ε", scored, "certified ε", "compares", "the paper's claim", "seconds"]


def row_words(row: Facts) -> list[str]:
    """One row of the table, as text."""
    asked = "" if row["epsilon"] is None else f"{row['epsilon']:g}"
    if row["refused"]:
        return [row["label"], asked, "does not fit", "", "", row["refused"], ""]
    return [
        row["label"],
        asked,
        scored_words(row),
        row["certified_words"],
        row["compares"],
        row["claim_words"],
        f"{row['seconds']:.2g}",
    ]


def scored_words(row: Facts) -> str:
    """A score with its interval.

    >>> scored_words({"measure": "accuracy", "mean": 0.9474, "half": 0.012})
    '94.7 ± 1.2 %'
    """
    if row["measure"] == "accuracy":
        return f"{100 * row['mean']:.1f} ± {100 * row['half']:.1f} %"
    return f"{row['mean']:.4g} ± {row['half']:.2g}"


def _measure(cells: list[Facts]) -> str:
    return next((name for cell in cells for name in cell.get("score", ())), "accuracy")


def _rows(cells: list[Facts], data: Facts) -> list[Facts]:
    groups: dict[tuple[Any, ...], list[Facts]] = defaultdict(list)
    for cell in cells:
        groups[cell["method"], cell["mode"], cell["epsilon"]].append(cell)
    order = {one.name: place for place, one in enumerate(METHODS)}
    rows = [_row(group, data) for group in groups.values()]
    return sorted(rows, key=lambda row: (order.get(row["method"], -1), row["mode"] == "paper", row["epsilon"] or 0))


def _row(cells: list[Facts], data: Facts) -> Facts:
    first = cells[0]
    label = first["method"] + (" (as published)" if first["mode"] == "paper" else "")
    row = {
        "method": first["method"],
        "label": "without privacy" if first["method"] == NON_PRIVATE else label,
        "mode": first["mode"],
        "epsilon": first["epsilon"],
        "seeds": len(cells),
        "seconds": float(np.mean([cell.get("seconds", 0.0) for cell in cells])),
        "refused": first.get("refused"),
    }
    if row["refused"]:
        return {**row, "measure": None, "mean": None, "half": None, **_nothing()}
    scores = [next(iter(cell["score"].items())) for cell in cells if "score" in cell]
    values = np.array([value for _, value in scores])
    about = _nothing() if first["method"] == NON_PRIVATE else _guarantee(first["guarantee"])
    half = _half(values, scores[0][0], data["test_examples"])
    return {**row, "measure": scores[0][0], "mean": float(values.mean()), "half": half, **about}


def _half(values: Any, measure: str, tested: int) -> float:
    """Half a 95 % interval: over seeds by Student's t, or, for one seed, over the test examples."""
    if len(values) > 1:
        half = float(stats.t.ppf((1 + _SURE) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
        # Two or three seeds say little; that a share lies between 0 and 1 is known without them.
        return min(half, max(values.mean(), 1 - values.mean())) if measure == "accuracy" else half
    if measure != "accuracy":
        return 0.0
    low, high = wilson(float(values[0]), tested)
    return (high - low) / 2


def _nothing() -> Facts:
    empty = ("certified", "adjacency", "claim", "status")
    return {**dict.fromkeys(empty), "certified_words": "", "compares": "", "claim_words": "", "unprotected": []}


def _guarantee(written: Facts) -> Facts:
    certified, claim = written["proven"]["epsilon_upper"], written["claim"]
    left_out = written["unprotected"]
    proven = "nothing proven" if certified is None else up(certified, 4)
    said = "none" if claim is None or claim["epsilon"] is None else near(claim["epsilon"], 4)
    return {
        "certified": certified,
        "certified_words": f"{proven} without {' and '.join(left_out)}" if left_out and certified else proven,
        "adjacency": written["adjacency"],
        "compares": _ADJACENCIES[written["adjacency"]],
        "claim": claim,
        "status": written["status"],
        "claim_words": f"{said} ({written['status']})",
        "unprotected": left_out,
    }


def _words(rows: list[Facts], measure: str, data: Facts) -> list[str]:
    """What to take from the table, and what not."""
    best = max if measure == "accuracy" else min
    words = []
    usable = [row for row in rows if row["certified"] is not None and not row["unprotected"]]
    for epsilon in sorted({row["epsilon"] for row in usable}):
        parts = []
        for adjacency, shown in _IN_WORDS.items():
            those = [row for row in usable if row["epsilon"] == epsilon and row["adjacency"] == adjacency]
            if those:
                winner = best(those, key=lambda row: row["mean"])
                parts.append(f"{winner['label']} with {scored_words(winner)} ({shown})")
        words.append(f"At ε = {epsilon:g} the best that is proven: {'; '.join(parts)}.")
    words.append(
        "The same ε means different things for an example added or removed and for one replaced: do not compare across."
    )
    words.append(
        "Seeds were fixed, so nothing trained here is for release; and whoever chooses by these scores has used the "
        + ("private rows held out, which no guarantee here covers." if data["test"] == "held out" else "test examples.")
    )
    return words


def _methods(names: set[str]) -> list[Facts]:
    return [
        {
            "name": one.name,
            "paper": one.paper,
            "idea": one.idea,
            "status": one.status,
            "verdict": one.verdict,
            "rigorous": one.rigorous,
            "protects": one.protects,
        }
        for one in METHODS
        if one.name in names
    ]
