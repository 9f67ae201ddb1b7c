"""A comparison as facts: every method at every epsilon, beside the model without privacy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import InvalidArgument
from tacit.methods.registry import METHODS, entry
from tacit.report.facts import Facts
from tacit.report.run import made
from tacit.report.spread import interval_in_words, interval_of_errors, interval_of_shares, scored_words
from tacit.report.verdicts import NON_PRIVATE, missing_words, refusals, words_of
from tacit.report.wording import near, up

SCHEMA = "tacit-comparison/2"
PLAN, CELLS = "comparison.json", "cells"
# Of rows that are missing, so many are named on the page.
_NAMED = 8
_ADJACENCIES = {"add_remove": "add/remove", "replace_one": "replace one"}


def is_comparison(folder: Path) -> bool:
    """Whether `tacit compare` has written a comparison there."""
    return (folder / PLAN).is_file()


def read_comparison(folder: Path) -> Facts:
    """Everything that the cells in the folder say together."""
    try:
        plan = dict(json.loads((folder / PLAN).read_text(encoding="utf-8")))
        cells = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((folder / CELLS).glob("*.json"))]
        command, data, settings = plan["command"], plan["data"], plan["settings"]
        planned = [_key(cell) for cell in plan["planned"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{folder} holds no comparison that this tacit compare wrote: {error!r}.") from error
    if not cells:
        raise InvalidArgument(f"{folder} holds no finished cell yet. Go on with: {command}")
    rows = _rows(cells, data)
    private = [row for row in rows if row["method"] != NON_PRIVATE]
    if private and all(row["refused"] for row in private):
        raise InvalidArgument(f"No method could be trained. {' '.join(dict.fromkeys(refusals(rows)))}")
    found = {_key(cell) for cell in cells}
    missing = [key for key in planned if key not in found]
    how = next((cell["how"] for cell in cells if "how" in cell), None)
    measure, seeds = _measure(cells), len({cell["seed"] for cell in cells})
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "title": f"Methods compared on {data['name']}",
        "made": made(),
        "progress": _progress(planned, missing, command),
        "measure": measure,
        "delta": settings["delta"],
        "data": data,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "seeds": seeds,
        "interval_in_words": interval_in_words(seeds),
        "baseline_in_words": how,
        "rows": rows,
        "words": words_of(rows, measure, data, is_finished=not missing),
        "methods": _methods({row["method"] for row in rows}),
        "command": command,
    }


Key = tuple[str, str, float | None, int]


def _key(cell: Facts) -> Key:
    """What tells a cell from all others."""
    return cell["method"], cell["mode"], cell["epsilon"], cell["seed"]


def _progress(planned: list[Key], missing: list[Key], command: str) -> Facts:
    """How many of the cells that were asked for are there, and in words which are not."""
    by_row: dict[tuple[str, str, float | None], int] = defaultdict(int)
    for method, mode, epsilon, _ in missing:
        by_row[method, mode, epsilon] += 1
    named = [missing_words(label_of(method, mode), at, seeds) for (method, mode, at), seeds in by_row.items()]
    done = len(planned) - len(missing)
    more = f" and {len(named) - _NAMED} rows more" if len(named) > _NAMED else ""
    caveat = (
        f"{done:,} of {len(planned):,} cells are trained; missing: {', '.join(named[:_NAMED])}{more}. So nothing here "
        f"says which method is best. Go on with: {command}"
    )
    whole = {"cells": len(planned), "done": done, "missing": named}
    return {**whole, "is_finished": not missing, "caveat": caveat if missing else None}


def progress_words(facts: Facts) -> str:
    """How whole it is, in few words."""
    progress = facts["progress"]
    if progress["is_finished"]:
        return f"{len(facts['rows'])} rows, all {progress['cells']} cells trained"
    return f"UNFINISHED, {progress['done']} of {progress['cells']} cells trained"


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
        "label": label_of(first["method"], first["mode"], first.get("choices", [])),
        "mode": first["mode"],
        "epsilon": first["epsilon"],
        "seeds": len(cells),
        "seconds": float(np.mean([cell.get("seconds", 0.0) for cell in cells])),
        "refused": first.get("refused"),
        "learning_rate": first.get("learning_rate"),
        "multiplier": first.get("multiplier"),
        "details": first.get("details"),
    }
    if row["refused"]:
        return {**row, "measure": None, "mean": None, "interval": None, "is_idle": False, **_nothing()}
    scored = [cell for cell in cells if "score" in cell]
    (measure,) = scored[0]["score"]
    values = [cell["score"][measure] for cell in scored]
    mean, constant = float(np.mean(values)), data.get("constant")
    is_idle = constant is not None and (mean <= constant if measure == "accuracy" else mean >= constant)
    about = _nothing() if first["method"] == NON_PRIVATE else _guarantee(first["guarantee"], _is_repaired(row))
    interval = (
        interval_of_shares(values, data["test_examples"])
        if measure == "accuracy"
        else interval_of_errors(values, [cell["interval"] for cell in scored])
    )
    return {**row, "measure": measure, "mean": mean, "interval": interval, "is_idle": is_idle, **about}


def label_of(method: str, mode: str, choices: Sequence[str] = ()) -> str:
    """What a row is called: its method, what was chosen of it, and in which form."""
    if method == NON_PRIVATE:
        return "without privacy"
    named = " ".join([method, *choices])
    if mode == "paper":
        return f"{named} (as published)"
    return f"{named} (repaired)" if entry(method).status == "refuted" else named


def _is_repaired(row: Facts) -> bool:
    """Whether the claim is refuted as published, and this is the form that has a proof."""
    return row["mode"] == "rigorous" and entry(row["method"]).status == "refuted"


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
