"""A comparison as facts: every method at every epsilon, beside the model without privacy."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from tacit.errors import InvalidArgument
from tacit.methods.registry import METHODS
from tacit.report.facts import Facts
from tacit.report.rows import Key, key_of, label_of, read_cell, rows_of
from tacit.report.run import made
from tacit.report.spread import interval_in_words, seeds_in_words
from tacit.report.verdicts import NON_PRIVATE, missing_words, refusals, words_of
from tacit.report.wording import near, up

SCHEMA = "tacit-comparison/3"
_SEEDED = (
    "A comparison trains many models with fixed seeds, so that it can be repeated; whoever knows a seed can take its "
    "noise off again."
)
_OWN = "Its scores are about private rows, and no guarantee covers them: this page is for whoever holds the data."
PLAN, CELLS = "comparison.json", "cells"
# Of rows that are missing, so many are named on the page.
_NAMED = 8
_ABOUT_DATA = ("name", "source", "example", "scaling", "test", "test_examples", "fingerprint")


def is_comparison(folder: Path) -> bool:
    """Whether `tacit compare` has written a comparison there."""
    return (folder / PLAN).is_file()


def read_comparison(folder: Path) -> Facts:
    """Everything that the cells in the folder say together."""
    data, settings, given, plans = _plan(folder)
    commands = [command for command, _ in plans]
    cells = [read_cell(file, remedy=_in_turn(commands)) for file in sorted((folder / CELLS).glob("*.json"))]
    if not cells:
        raise InvalidArgument(f"{folder} holds no finished cell yet. Go on with: {_in_turn(commands)}")
    rows = rows_of(cells, data)
    private = [row for row in rows if row["method"] != NON_PRIVATE]
    if private and all(row["refused"] for row in private):
        raise InvalidArgument(f"No method could be trained. {' '.join(dict.fromkeys(refusals(rows)))}")
    progress = _progress(plans, {key_of(cell) for cell in cells})
    how = next((cell["how"] for cell in cells if "how" in cell), None)
    measure, seeds = _measure(cells), {row["seeds"] for row in rows if not row["refused"]}
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "title": f"Methods compared on {data['name']}",
        "made": made(),
        "release": {"is_for_release": False, "warnings": [_SEEDED, *([_OWN] if data["is_own"] else [])]},
        "progress": progress,
        "measure": measure,
        "delta": settings["delta"],
        "data": data,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "given": given,
        "seeds": sorted(seeds),
        "seeds_in_words": seeds_in_words(seeds),
        "interval_in_words": interval_in_words(seeds),
        "baseline_in_words": how,
        "rows": rows,
        "words": words_of(rows, measure, data, given, is_finished=progress["is_finished"]),
        "methods": _methods({row["method"] for row in rows}),
        "commands": commands,
    }


# Commands, each with the cells that it asked for.
Plans = list[tuple[str, list[Key]]]


def _plan(folder: Path) -> tuple[Facts, Facts, Facts, Plans]:
    """The data, what all cells share, which of that was no default, and what was asked for."""
    try:
        plan = dict(json.loads((folder / PLAN).read_text(encoding="utf-8")))
        known = {name: plan["data"][name] for name in _ABOUT_DATA}
        # Somebody's own table may be tested on public rows; before that was kept, the test alone said whose it is.
        data = {"is_own": known["test"] == "held out", **known, **plan["data"]}
        settings = {**{name: plan["settings"][name] for name in ("model", "delta")}, **plan["settings"]}
        # A plan was one command before others could add to it.
        plans = plan["plans"] if "plans" in plan else [{"command": plan["command"], "cells": plan["planned"]}]
        asked = [(each["command"], [key_of(cell) for cell in each["cells"]]) for each in plans]
        return data, settings, dict(plan.get("given", {})), asked
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{folder} holds no comparison that this tacit compare wrote: {error!r}.") from error


def _in_turn(commands: list[str]) -> str:
    return "; and with: ".join(commands)


def _progress(plans: Plans, found: set[Key]) -> Facts:
    """How many of the cells that were asked for are there, and in words which are not and what trains them."""
    planned = {key: command for command, keys in plans for key in keys}
    missing = [key for key in planned if key not in found]
    by_row: dict[tuple[str, str, float | None], int] = defaultdict(int)
    for method, mode, epsilon, _ in missing:
        by_row[method, mode, epsilon] += 1
    named = [missing_words(label_of(method, mode), at, seeds) for (method, mode, at), seeds in by_row.items()]
    done = len(planned) - len(missing)
    more = f" and {len(named) - _NAMED} rows more" if len(named) > _NAMED else ""
    caveat = (
        f"{done:,} of {len(planned):,} cells are trained; missing: {', '.join(named[:_NAMED])}{more}. So nothing here "
        f"says which method is best. Go on with: {_in_turn(list(dict.fromkeys(planned[key] for key in missing)))}"
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
        return [label, *[those[0]["score_words"]] * max(1, len(epsilons)), "", "", "", seconds]
    at = [rows.get(epsilon) for epsilon in epsilons]
    scores = ["" if row is None else "does not fit" if row["refused"] else row["score_words"] for row in at]
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
