"""The facts of a comparison: every method at every epsilon beside the baseline without privacy, and the conclusions."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.errors import InvalidArgument
from tacit.methods.registry import list_methods
from tacit.reports.cells import NON_PRIVATE, Key, is_proven, key_of, label_of, read_cell, rows_of
from tacit.reports.facts import Facts, describe_versions
from tacit.reports.scores import describe_mean, describe_seeds, explain_intervals, is_better
from tacit.reports.settings import explain_placeholders, remove_paths
from tacit.reports.wording import near, up

SCHEMA = "tacit-comparison/3"
PLAN, CELLS = "comparison.json", "cells"
_SEEDED = (
    "A comparison trains many models with fixed seeds, so that it can be repeated; anyone who knows a seed can remove "
    "its noise."
)
# A copy of a named data set may still be private.
_ON_PUBLIC = "You may publish this page if the data are public."
_ON_HELD_OUT = "No guarantee covers the scores, which were measured on private rows: keep this page private."
_ON_OWN = "The scores are those of models trained on private rows with fixed seeds: keep this page private."
_ADJACENCIES = {"add_remove": "one example added or removed", "replace_one": "one example replaced"}
_CONSTANTS = {"accuracy": "the majority class", "rmse": "a constant prediction"}
# The page names at most so many missing rows.
_NAMED = 8
# The multiplier is found from the target epsilon up to this relative error.
_ROUNDING = 1e-6
_ABOUT_DATA = ("name", "source", "example", "scaling", "test", "test_examples", "fingerprint")


def is_comparison(folder: Path) -> bool:
    """Whether `tacit compare` has written a comparison there."""
    return (folder / PLAN).is_file()


def read_comparison(folder: Path) -> Facts:
    """The facts of the comparison in a folder, from its plan and its cells."""
    data, settings, given, plans = _read_plan(folder)
    cells = _read_cells(folder, _join_commands([plan.typed for plan in plans]))
    commands = [plan.command for plan in plans]
    rows = rows_of(cells, data)
    private = [row for row in rows if row["method"] != NON_PRIVATE]
    if private and all(row["refused"] for row in private):
        raise InvalidArgument(f"No method could be trained. {' '.join(dict.fromkeys(_refusals(rows)))}")
    progress = _progress(plans, {key_of(cell) for cell in cells})
    measure = next((name for cell in cells for name in cell.get("score", ())), "accuracy")
    seeds = {row["seeds"] for row in rows if not row["refused"]}
    return {
        "schema": SCHEMA,
        "kind": "comparison",
        "title": f"Methods compared on {data['name']}",
        "made": describe_versions(),
        "release": _release(data),
        "progress": progress,
        "measure": measure,
        "delta": settings["delta"],
        "data": data,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "given": given,
        "seeds": sorted(seeds),
        "seeds_in_words": describe_seeds(seeds),
        "interval_in_words": explain_intervals(seeds),
        "baseline_in_words": next((cell["how"] for cell in cells if "how" in cell), None),
        "rows": rows,
        "words": conclusions(rows, measure, data, given, is_finished=progress["is_finished"]),
        "methods": _methods({row["method"] for row in rows}),
        "commands": commands,
        "commands_in_words": explain_placeholders(commands),
    }


def _release(data: Facts) -> Facts:
    """Why no model may be released, and whether the page may."""
    if not data["is_own"]:
        words, page = "Do not release these models.", _ON_PUBLIC
    else:
        words, page = "Not for release.", _ON_HELD_OUT if data["test"] == "held out" else _ON_OWN
    return {"is_for_release": False, "in_words": words, "warnings": [_SEEDED, page]}


def _read_cells(folder: Path, remedy: str) -> list[Facts]:
    """All cells in the folder. Two files with the same cell are an error: a copy would pass for another seed."""
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
        raise InvalidArgument(f"{folder} holds no finished cell yet. Resume with: {remedy}")
    if len({name for cell in cells for name in cell.get("score", ())}) > 1:
        raise InvalidArgument(
            f"Some cells in {folder / CELLS} are scored by accuracy and some by rmse, so some belong to other data. "
            f"Delete these, and train again: {remedy}"
        )
    return cells


@dataclass(frozen=True)
class _Plan:
    """A command as typed and without paths, and the cells that it asked for."""

    typed: str
    command: str
    cells: tuple[Key, ...]

    @staticmethod
    def of(written: Facts) -> _Plan:
        cells = tuple(key_of(cell) for cell in written["cells"])
        return _Plan(written["command"], remove_paths(written["command"]), cells)


def _read_plan(folder: Path) -> tuple[Facts, Facts, Facts, list[_Plan]]:
    """The data, the settings that all cells share, those that the user gave, and the commands."""
    try:
        plan = dict(json.loads((folder / PLAN).read_text(encoding="utf-8")))
        known = {name: plan["data"][name] for name in _ABOUT_DATA}
        # Earlier versions did not write is_own.
        data = {"is_own": known["test"] == "held out", **known, **plan["data"]}
        settings = {**{name: plan["settings"][name] for name in ("model", "delta")}, **plan["settings"]}
        # Earlier versions wrote a single command.
        plans = plan["plans"] if "plans" in plan else [{"command": plan["command"], "cells": plan["planned"]}]
        return data, settings, dict(plan.get("given", {})), [_Plan.of(each) for each in plans]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"{folder} holds no comparison written by tacit compare: {error!r}.") from error


def _join_commands(commands: list[str]) -> str:
    return "; and with: ".join(commands)


def _progress(plans: list[_Plan], found: set[Key]) -> Facts:
    """How many of the planned cells are trained, which are missing, and the commands that train them."""
    planned = {key: plan.command for plan in plans for key in plan.cells}
    missing = [key for key in planned if key not in found]
    by_row: dict[tuple[str, str, float | None], int] = defaultdict(int)
    for method, mode, epsilon, _ in missing:
        by_row[method, mode, epsilon] += 1
    named = [_describe_missing(label_of(method, mode), at, seeds) for (method, mode, at), seeds in by_row.items()]
    done = len(planned) - len(missing)
    more = f" and {len(named) - _NAMED} more rows" if len(named) > _NAMED else ""
    caveat = (
        f"{done:,} of {len(planned):,} cells are trained, so this page does not say which method is best. Missing: "
        f"{', '.join(named[:_NAMED])}{more}. Resume with: "
        f"{_join_commands(list(dict.fromkeys(planned[key] for key in missing)))}"
    )
    whole = {"cells": len(planned), "done": done, "missing": named}
    return {**whole, "is_finished": not missing, "caveat": caveat if missing else None}


def _describe_missing(label: str, epsilon: float | None, seeds: int) -> str:
    """A row with missing cells.

    >>> _describe_missing("dpsgd", 0.5, 2), _describe_missing("without privacy", None, 1)
    ('dpsgd at ε = 0.5 (2 seeds)', 'without privacy (1 seed)')
    """
    at = "" if epsilon is None else f" at ε = {epsilon:g}"
    return f"{label}{at} ({describe_seeds([seeds])})"


def describe_progress(facts: Facts) -> str:
    """How many cells are trained, in a few words."""
    progress = facts["progress"]
    if progress["is_finished"]:
        return f"{len(facts['rows'])} rows, all {progress['cells']} cells trained"
    return f"UNFINISHED, {progress['done']} of {progress['cells']} cells trained"


def columns(facts: Facts) -> list[str]:
    """The head of the table with one line per method."""
    scored = "accuracy" if facts["measure"] == "accuracy" else "error (rmse)"
    targets = [f"{scored} at ε {epsilon:g}" for epsilon in _epsilons(facts)]
    return ["method", *(targets or [scored]), "certified ε", "adjacency", "the paper's claim", "seconds"]


def lines(facts: Facts) -> list[list[str]]:
    """The lines of that table: every method with its scores at all epsilons."""
    groups: dict[str, dict[float | None, Facts]] = defaultdict(dict)
    for row in facts["rows"]:
        groups[row["label"]][row["epsilon"]] = row
    return [_line(label, rows, _epsilons(facts)) for label, rows in groups.items()]


def _epsilons(facts: Facts) -> list[float]:
    return sorted({row["epsilon"] for row in facts["rows"] if row["epsilon"] is not None})


def _line(label: str, rows: dict[float | None, Facts], epsilons: list[float]) -> list[str]:
    every = list(rows.values())
    seconds = f"{np.mean([row['seconds'] for row in every]):.2g}"
    if label == "without privacy":
        return [label, *[every[0]["score_words"]] * max(1, len(epsilons)), "", "", "", seconds]
    at = [rows.get(epsilon) for epsilon in epsilons]
    scores = ["" if row is None else "does not fit" if row["refused"] else row["score_words"] for row in at]
    known = [row for row in every if not row["refused"]]
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


def _methods(names: set[str]) -> list[Facts]:
    about = ("name", "paper", "idea", "status", "verdict", "rigorous", "protects")
    return [{name: getattr(one, name) for name in about} for one in list_methods() if one.name in names]


def conclusions(rows: list[Facts], measure: str, data: Facts, given: Facts, *, is_finished: bool) -> list[str]:
    """The conclusions and their limits, in sentences. `given` are the settings that the user gave."""
    targets = sorted({row["epsilon"] for row in rows if competes(row)})
    words = [part for epsilon in targets for part in _best(rows, epsilon, measure)] if is_finished else []
    idle = list(dict.fromkeys(row["label"] for row in rows if row["is_idle"]))
    if idle:
        constant = data["constant"]
        answer = f"{100 * constant:.1f} %" if measure == "accuracy" else f"{constant:.4g}"
        words.append(f"No better than {_CONSTANTS[measure]} ({answer}) at some ε or at all: {', '.join(idle)}.")
    diverged = list(dict.fromkeys(row["label"] for row in rows if row["diverged"]))
    if diverged:
        words.append(
            f"Training diverged at some ε or at all: {', '.join(diverged)}. There is no score and no mark in the "
            "picture. A smaller --learning-rate may help."
        )
    words += dict.fromkeys(_refusals(rows))
    repaired = list(dict.fromkeys(row["method"] for row in rows if row["is_repaired"]))
    if repaired:
        beside = "" if any(row["mode"] == "paper" for row in rows) else " --mode both adds the published forms."
        words.append(f"Refuted as published, and repaired to have a proof: {', '.join(repaired)}.{beside}")
    words.append(
        "The same ε means different things for one example added or removed and for one replaced: do not compare them."
    )
    used = "private held-out rows, which no guarantee here covers" if data["test"] == "held out" else "test examples"
    words.append(
        f"{_describe_settings(given)} Seeds were fixed, so no model trained here is for release. Choosing a method by "
        f"these scores uses the {used}."
    )
    return words


def _describe_settings(given: Facts) -> str:
    """Which settings the methods had.

    >>> _describe_settings({"steps": 20, "learning_rate": 0.1})
    'Every method had these settings, if it takes them: steps 20, learning rate 0.1. All others are defaults, ...'
    """
    if not given:
        return "Every method had its default settings, except those beside its name. None was tuned."
    listed = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in given.items())
    return (
        f"Every method had these settings, if it takes them: {listed}. All others are defaults, except those beside "
        "its name. None was tuned, and the given settings may suit one method better than another."
    )


def _refusals(rows: list[Facts]) -> list[str]:
    return [f"{row['label']} does not fit: {row['refused']}" for row in rows if row["refused"]]


def _keeps_target(row: Facts) -> bool:
    """Whether the certified epsilon is at most the target: that of a published form may be larger."""
    return is_proven(row) and bool(row["certified"] <= row["epsilon"] * (1 + _ROUNDING))


def competes(row: Facts) -> bool:
    """Whether it keeps its target and has a score: a row that diverged has none."""
    return row["mean"] is not None and _keeps_target(row)


def _best(rows: list[Facts], epsilon: float, measure: str) -> list[str]:
    """For each adjacency the best method at this epsilon, or the methods among which none is clearly best."""
    best, parts = (max if measure == "accuracy" else min), []
    for adjacency, words in _ADJACENCIES.items():
        at = [row for row in rows if (row["epsilon"], row["adjacency"]) == (epsilon, adjacency)]
        competing = [row for row in at if competes(row)]
        if competing:
            winner = best(competing, key=lambda row: row["mean"])
            unscored = sum(map(_keeps_target, at)) - len(competing)
            parts.append(f"At ε = {epsilon:g} ({words}), {_standing(winner, competing, measure, unscored)}.")
    return parts


def _standing(winner: Facts, rows: list[Facts], measure: str, unscored: int) -> str:
    """How the row with the best mean compares with the others that keep this epsilon; `unscored` more have no score."""
    label, score = winner["label"], describe_mean(winner)
    if len(rows) == 1:
        return f"{label} is the only method {'with a score ' if unscored else ''}proven at this ε: {score}"
    leads = f"{label} has the {'highest accuracy' if measure == 'accuracy' else 'smallest error'}, {score}"
    single = [row["label"] for row in rows if row["seeds"] == 1]
    if single:
        of_some = "" if len(single) == len(rows) else f" for {', '.join(single)}"
        return f"one seed{of_some} cannot show which method is best: among those proven at this ε, {leads}"
    close = [row["label"] for row in rows if row is not winner and not is_better(winner, row)]
    if not close:
        return f"{label} is the best of the methods proven at this ε: {score}"
    *most, last = close
    names = f"{', '.join(most)} and {last} are" if most else f"{last} is"
    return f"no method proven at this ε is clearly best: {leads}, and {names} not significantly worse"
