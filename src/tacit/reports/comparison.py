"""A comparison as facts: every method at every epsilon, beside the model without privacy."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.errors import InvalidArgument
from tacit.methods.registry import list_methods
from tacit.reports.commands import places_in_words, without_places
from tacit.reports.facts import Facts
from tacit.reports.rows import Key, key_of, label_of, read_cell, rows_of
from tacit.reports.run import made
from tacit.reports.spread import interval_in_words, seeds_in_words
from tacit.reports.verdicts import NON_PRIVATE, missing_words, refusals, words_of
from tacit.reports.wording import near, up

SCHEMA = "tacit-comparison/3"
_SEEDED = (
    "A comparison trains many models with fixed seeds, so that it can be repeated; whoever knows a seed can take its "
    "noise off again."
)
# Whose page it is, by what it is about; a copy of a data set that has a name may still be one that nobody else has.
_ON_PUBLIC = "This page itself may be given away, if the data are public."
_ON_HELD_OUT = (
    "Its scores are about private rows, and no guarantee covers them: this page is for whoever holds the data."
)
_ON_OWN = "Its scores are those of such models, trained on private rows: this page is for whoever holds the data."
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
    cells = _cells(folder, _in_turn([plan.typed for plan in plans]))
    commands = [plan.command for plan in plans]
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
        "release": _release(data),
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
        "commands_in_words": places_in_words(commands),
    }


def _release(data: Facts) -> Facts:
    """That no model is for release, and of somebody's own table nothing else either."""
    if not data["is_own"]:
        words, whose = "The models are not for release.", _ON_PUBLIC
    else:
        words, whose = "Not for release.", _ON_HELD_OUT if data["test"] == "held out" else _ON_OWN
    return {"is_for_release": False, "in_words": words, "warnings": [_SEEDED, whose]}


def _cells(folder: Path, remedy: str) -> list[Facts]:
    """All cells that are there; none may count twice, or a copy would pass for another seed."""
    found: dict[Key, Path] = {}
    cells = []
    for file in sorted((folder / CELLS).glob("*.json")):
        cell = read_cell(file, remedy=remedy)
        other = found.setdefault(key_of(cell), file)
        if other is not file:
            raise InvalidArgument(
                f"{other} and {file} hold the same cell, and a seed counts once. Delete the one that is a copy."
            )
        cells.append(cell)
    if not cells:
        raise InvalidArgument(f"{folder} holds no finished cell yet. Go on with: {remedy}")
    if len({name for cell in cells for name in cell.get("score", ())}) > 1:
        raise InvalidArgument(
            f"Some cells in {folder / CELLS} are scored by accuracy and some by rmse, so some are of other data. "
            f"Delete these, and train again: {remedy}"
        )
    return cells


@dataclass(frozen=True)
class _Plan:
    """A command as it was typed, as it may be told, and the cells that it asked for."""

    typed: str
    command: str
    cells: tuple[Key, ...]

    @staticmethod
    def of(written: Facts) -> _Plan:
        cells = tuple(key_of(cell) for cell in written["cells"])
        return _Plan(written["command"], without_places(written["command"]), cells)


def _plan(folder: Path) -> tuple[Facts, Facts, Facts, list[_Plan]]:
    """The data, what all cells share, which of that was no default, and what was asked for."""
    try:
        plan = dict(json.loads((folder / PLAN).read_text(encoding="utf-8")))
        known = {name: plan["data"][name] for name in _ABOUT_DATA}
        # Somebody's own table may be tested on public rows; before that was kept, the test alone said whose it is.
        data = {"is_own": known["test"] == "held out", **known, **plan["data"]}
        settings = {**{name: plan["settings"][name] for name in ("model", "delta")}, **plan["settings"]}
        # A plan was one command before others could add to it.
        plans = plan["plans"] if "plans" in plan else [{"command": plan["command"], "cells": plan["planned"]}]
        return data, settings, dict(plan.get("given", {})), [_Plan.of(each) for each in plans]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{folder} holds no comparison that this tacit compare wrote: {error!r}.") from error


def _in_turn(commands: list[str]) -> str:
    return "; and with: ".join(commands)


def _progress(plans: list[_Plan], found: set[Key]) -> Facts:
    """How many of the cells that were asked for are there, and in words which are not and what trains them."""
    planned = {key: plan.command for plan in plans for key in plan.cells}
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
        for one in list_methods()
        if one.name in names
    ]
