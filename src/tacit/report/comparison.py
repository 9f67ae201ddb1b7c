"""A comparison as facts: every method at every epsilon, beside the model without privacy."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tacit.errors import InvalidArgument
from tacit.methods.registry import METHODS, entry
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


def read_comparison(folder: Path) -> Facts:
    """Everything that the cells in the folder say together."""
    try:
        plan = dict(json.loads((folder / PLAN).read_text(encoding="utf-8")))
        cells = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / CELLS).glob("*.json"))]
        command, data, settings = plan["command"], plan["data"], plan["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{folder} holds no comparison that tacit compare wrote: {error}.") from error
    if not cells:
        raise InvalidArgument(f"{folder} holds no finished cell yet. Go on with: {command}")
    rows = _rows(cells, data)
    if all(row["refused"] for row in rows if row["method"] != NON_PRIVATE):
        raise InvalidArgument(f"No method could be trained. {' '.join(dict.fromkeys(_refusals(rows)))}")
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
        "command": command,
    }


def columns(facts: Facts) -> list[str]:
    """The heads of the table that has a line for each method."""
    scored = "accuracy" if facts["measure"] == "accuracy" else "error (rmse)"
    asked = [f"{scored} at ε {epsilon:g}" for epsilon in epsilons_of(facts)]
    return ["method", *(asked or [scored]), "certified ε", "compares", "the paper's claim", "seconds"]


def epsilons_of(facts: Facts) -> list[float]:
    """The budgets that were asked for."""
    return sorted({row["epsilon"] for row in facts["rows"] if row["epsilon"] is not None})


def lines(facts: Facts) -> list[list[str]]:
    """The lines of that table: every method with its scores at all epsilons."""
    groups: dict[str, dict[float | None, Facts]] = defaultdict(dict)
    for row in facts["rows"]:
        groups[row["label"]][row["epsilon"]] = row
    return [_line(label, rows, epsilons_of(facts)) for label, rows in groups.items()]


def _line(label: str, rows: dict[float | None, Facts], epsilons: list[float]) -> list[str]:
    those = list(rows.values())
    seconds = f"{np.mean([row['seconds'] for row in those]):.2g}"
    if label == "without privacy":
        return [label, *[scored_words(those[0])] * max(1, len(epsilons)), "", "", "", seconds]
    at = [rows.get(epsilon) for epsilon in epsilons]
    scores = ["" if row is None else "does not fit" if row["refused"] else scored_words(row) for row in at]
    known = [row for row in those if not row["refused"]]
    if not known:
        return [label, *scores, "", "", "", ""]
    certified = dict.fromkeys("none" if row["certified"] is None else up(row["certified"], 3) for row in known)
    left_out = " and ".join(known[0]["unprotected"]) if known[0]["certified"] is not None else ""
    claims = ", ".join(near(row["claim"]["epsilon"], 3) for row in known if row["claim"])
    status = "as published: refuted" if known[0]["is_repaired"] and not claims else known[0]["status"]
    also = "; as published: refuted" if known[0]["is_repaired"] and claims else ""
    return [
        label,
        *scores,
        ", ".join(certified) + (f" without {left_out}" if left_out else ""),
        known[0]["compares"],
        f"{claims} {status}{also}".strip(),
        seconds,
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
    row = {
        "method": first["method"],
        "label": _label(first["method"], first["mode"], first.get("choices", [])),
        "mode": first["mode"],
        "epsilon": first["epsilon"],
        "seeds": len(cells),
        "seconds": float(np.mean([cell.get("seconds", 0.0) for cell in cells])),
        "refused": first.get("refused"),
    }
    if row["refused"]:
        return {**row, "measure": None, "mean": None, "half": None, "is_idle": False, **_nothing()}
    scores = [next(iter(cell["score"].items())) for cell in cells if "score" in cell]
    measure, values = scores[0][0], np.array([value for _, value in scores])
    mean, constant = float(values.mean()), data.get("constant")
    is_idle = constant is not None and (mean <= constant if measure == "accuracy" else mean >= constant)
    about = _nothing() if first["method"] == NON_PRIVATE else _guarantee(first["guarantee"], _is_repaired(row))
    half = _half(values, measure, data["test_examples"])
    return {**row, "measure": measure, "mean": mean, "half": half, "is_idle": is_idle, **about}


def _label(method: str, mode: str, choices: list[str]) -> str:
    if method == NON_PRIVATE:
        return "without privacy"
    named = " ".join([method, *choices])
    if mode == "paper":
        return f"{named} (as published)"
    return f"{named} (repaired)" if entry(method).status == "refuted" else named


def _is_repaired(row: Facts) -> bool:
    """Whether the claim is refuted as published, and this is the form that has a proof."""
    return row["mode"] == "rigorous" and entry(row["method"]).status == "refuted"


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
    words = {"certified_words": "", "compares": "", "claim_words": ""}
    return {**dict.fromkeys(empty), **words, "unprotected": [], "is_repaired": False}


def _guarantee(written: Facts, is_repaired: bool) -> Facts:
    certified, claim = written["proven"]["epsilon_upper"], written["claim"]
    left_out = written["unprotected"]
    proven = "nothing proven" if certified is None else up(certified, 4)
    said = [] if claim is None or claim["epsilon"] is None else [f"{near(claim['epsilon'], 4)}: {written['status']}"]
    if is_repaired:
        said.append("as published: refuted")
    return {
        "certified": certified,
        "certified_words": f"{proven} without {' and '.join(left_out)}" if left_out and certified else proven,
        "adjacency": written["adjacency"],
        "compares": _ADJACENCIES[written["adjacency"]],
        "claim": claim,
        "status": written["status"],
        "claim_words": "; ".join(said) or written["status"],
        "is_repaired": is_repaired,
        "unprotected": left_out,
    }


def _words(rows: list[Facts], measure: str, data: Facts) -> list[str]:
    """What to take from the table, and what not."""
    rigorous = {row["epsilon"] for row in rows if is_proven(row) and row["mode"] == "rigorous"}
    words = [_best(rows, epsilon, measure) for epsilon in sorted(rigorous)]
    idle = list(dict.fromkeys(row["label"] for row in rows if row["is_idle"]))
    if idle:
        constant = data["constant"]
        answer = f"{100 * constant:.1f} %" if measure == "accuracy" else f"{constant:.4g}"
        words.append(f"At some ε or at every one no better than one answer for all ({answer}): {', '.join(idle)}.")
    words += dict.fromkeys(_refusals(rows))
    repaired = list(dict.fromkeys(row["method"] for row in rows if row["is_repaired"]))
    if repaired:
        beside = "" if any(row["mode"] == "paper" for row in rows) else " --mode both shows them as published, too."
        words.append(f"Refuted as published, and repaired so that a proof holds: {', '.join(repaired)}.{beside}")
    words.append(
        "The same ε means different things for an example added or removed and for one replaced: do not compare across."
    )
    words.append(
        "Every method has its defaults, but for what stands beside its name, and none was tuned. Seeds were fixed, so "
        "nothing trained here is for release; "
        "and whoever chooses by these scores has used the "
        + ("private rows held out, which no guarantee here covers." if data["test"] == "held out" else "test examples.")
    )
    return words


def _refusals(rows: list[Facts]) -> list[str]:
    return [f"{row['label']} does not fit: {row['refused']}" for row in rows if row["refused"]]


def is_proven(row: Facts) -> bool:
    """Whether there is a proof for everything about an example: for what it leaves out, nothing is certified."""
    return row["certified"] is not None and not row["unprotected"]


def _best(rows: list[Facts], epsilon: float, measure: str) -> str:
    """The best at this epsilon for each adjacency, and how many others are not clearly worse."""
    best, parts = (max if measure == "accuracy" else min), []
    for adjacency, shown in _IN_WORDS.items():
        at = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency)]
        # Published forms cost more than the epsilon that they were asked for: they are no competitors.
        those = [row for row in at if is_proven(row) and row["mode"] == "rigorous"]
        if those:
            winner = best(those, key=lambda row: row["mean"])
            near_it = sum(abs(row["mean"] - winner["mean"]) <= max(row["half"], winner["half"]) for row in those) - 1
            others = f"; {near_it} more within the interval" if near_it else ""
            parts.append(f"{winner['label']} with {scored_words(winner)} ({shown}{others})")
    return f"At ε = {epsilon:g} the best with a proof: {', and '.join(parts)}."


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
