"""The facts of a comparison: every method at every epsilon beside the baseline without privacy, and the conclusions."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tacit.errors import InvalidArgument
from tacit.methods.registry import list_methods
from tacit.reports.answer import Answer, align
from tacit.reports.cells import RECIPE, Key, key_of, label_of, make_rows, read_cell
from tacit.reports.facts import Facts, describe_versions
from tacit.reports.scores import describe_seeds, explain_intervals
from tacit.reports.settings import explain_placeholders, remove_paths
from tacit.reports.wording import title_measure

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
_BY_RECIPE = (
    "The recipe without privacy is trained in the same way, on the recipe's features, without their private "
    "preparation. What privacy costs is the distance to the better of the two."
)
# The page names at most so many missing rows.
_NAMED = 8
_ABOUT_METHOD = ("name", "paper", "idea", "status", "verdict", "rigorous", "protects")
_ABOUT_DATA = ("name", "source", "example", "scaling", "test", "test_examples", "fingerprint")


def is_comparison(folder: Path) -> bool:
    """Whether `tacit compare` has written a comparison there."""
    return (folder / PLAN).is_file()


def read_comparison(folder: Path) -> Facts:
    """The facts of the comparison in a folder, from its plan and its cells."""
    data, settings, given, plans = _read_plan(folder)
    cells = _read_cells(folder, _join_commands([plan.typed for plan in plans]))
    commands = [plan.command for plan in plans]
    rows = make_rows(cells, data)
    private = [row for row in rows if row["epsilon"] is not None]
    if private and all(row["refused"] for row in private):
        raise InvalidArgument(f"No method could be trained. {' '.join(dict.fromkeys(_list_refusals(rows)))}")
    progress = _describe_progress(plans, {key_of(cell) for cell in cells})
    measure = next((name for cell in cells for name in cell.get("score", ())), "accuracy")
    names = {row["method"] for row in rows}
    seeds = {row["seeds"] for row in rows if not row["refused"]}
    facts = {
        "schema": SCHEMA,
        "kind": "comparison",
        "title": f"Methods compared on {data['name']}",
        "made": describe_versions(),
        "release": _describe_release(data),
        "progress": progress,
        "measure": measure,
        "delta": settings["delta"],
        "data": data,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "given": given,
        "seeds": sorted(seeds),
        "seeds_in_words": describe_seeds(seeds),
        "interval_in_words": explain_intervals(seeds),
        "baseline_in_words": _describe_baselines(cells),
        "rows": rows,
        "words": list_notes(rows, measure, data, given),
        "methods": [
            {name: getattr(one, name) for name in _ABOUT_METHOD} for one in list_methods() if one.name in names
        ],
        "commands": commands,
        "commands_in_words": explain_placeholders(commands),
    }
    return {**facts, "answer": asdict(Answer.of(facts))}


def _describe_baselines(cells: list[Facts]) -> str | None:
    how = next((cell["how"] for cell in cells if cell.get("how")), None)
    if how is None or not any(cell["method"] == RECIPE and cell["epsilon"] is None for cell in cells):
        return how
    return f"{how} {_BY_RECIPE}"


def _describe_release(data: Facts) -> Facts:
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


def _describe_progress(plans: list[_Plan], found: set[Key]) -> Facts:
    """How many of the planned cells are trained, which are missing, and the commands that train them."""
    planned = {key: plan.command for plan in plans for key in plan.cells}
    missing = [key for key in planned if key not in found]
    by_row: dict[tuple[str, str, float | None], int] = defaultdict(int)
    for method, mode, epsilon, _ in missing:
        by_row[method, mode, epsilon] += 1
    named = [
        _describe_missing(label_of(method, mode, is_private=at is not None), at, seeds)
        for (method, mode, at), seeds in by_row.items()
    ]
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


def write_table(facts: Facts) -> str:
    """Every method with its scores at all epsilons, as text of at most 80 columns: a table for each adjacency."""
    epsilons = sorted({row["epsilon"] for row in facts["rows"] if row["epsilon"] is not None})
    head = ("method", *(f"epsilon {epsilon:g}" for epsilon in epsilons), "seconds")
    parts = []
    for adjacency in dict.fromkeys(row["adjacency"] for row in facts["rows"] if row["adjacency"]):
        groups: dict[str, dict[float, Facts]] = defaultdict(dict)
        for row in facts["rows"]:
            if row["adjacency"] == adjacency:
                groups[row["label"]][row["epsilon"]] = row
        rows = []
        for label, found in groups.items():
            seconds = f"{np.mean([row['seconds'] for row in found.values()]):.2g}"
            rows.append((label, *(_describe_briefly(found[at]) if at in found else "" for at in epsilons), seconds))
        title = f"{title_measure(facts['measure'])}, {_ADJACENCIES[adjacency]}:"
        parts.append("\n".join([title, *align([head, *rows])]))
    return "\n\n".join(parts)


def _describe_briefly(row: Facts) -> str:
    """A score with half the width of its interval.

    >>> _describe_briefly({"measure": "accuracy", "mean": 0.8482, "interval": [0.8432, 0.8536]})
    '84.8 ± 0.5'
    """
    if row["mean"] is None:
        return "diverged"
    scale, digits = (100, ".1f") if row["measure"] == "accuracy" else (1, ".3g")
    ends = row["interval"]
    half = "" if ends is None else f" ± {scale * (ends[1] - ends[0]) / 2:{digits}}"
    return f"{scale * row['mean']:{digits}}{half}"


def list_notes(rows: list[Facts], measure: str, data: Facts, given: Facts) -> list[str]:
    """The limits of the results, in sentences. `given` are the settings that the user gave."""
    words = []
    constant = data["constant"]
    if any(row["is_idle"] for row in rows):
        answer = f"{100 * constant:.1f} %" if measure == "accuracy" else f"{constant:.4g}"
        words.append(f"No better than {_CONSTANTS[measure]} ({answer}): {_list_at(rows, 'is_idle')}.")
    if any(row["diverged"] for row in rows):
        words.append(
            f"Training diverged: {_list_at(rows, 'diverged')}. There is no score and no mark in the picture. A smaller "
            "--learning-rate may help."
        )
    words += dict.fromkeys(_list_refusals(rows))
    used = "private held-out rows, which no guarantee here covers" if data["test"] == "held out" else "test examples"
    words.append(f"{_describe_settings(given)} Choosing a method by these scores uses the {used}.")
    return words


def _list_at(rows: list[Facts], fact: str) -> str:
    """The rows of which this is true, with their epsilons.

    >>> rows = [{"label": "dpsgd", "epsilon": at, "is_idle": at < 3} for at in (0.5, 1, 3)]
    >>> _list_at(rows, "is_idle")
    'dpsgd at ε = 0.5, 1'
    """
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row[fact]:
            found[row["label"]].append("" if row["epsilon"] is None else f"{row['epsilon']:g}")
    return "; ".join(label if at == [""] else f"{label} at ε = {', '.join(at)}" for label, at in found.items())


def _describe_settings(given: Facts) -> str:
    """Which settings the methods had.

    >>> _describe_settings({"steps": 20, "learning_rate": 0.1})
    'Every method used these settings, if it takes them: steps 20, learning rate 0.1. All others are defaults, ...'
    """
    if not given:
        return "Every method used its default settings, except those beside its name. None was tuned here."
    listed = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in given.items())
    return (
        f"Every method used these settings, if it takes them: {listed}. All others are defaults, except those beside "
        "its name. None was tuned, and the given settings may suit one method better than another."
    )


def _list_refusals(rows: list[Facts]) -> list[str]:
    return [f"{row['label']} does not fit: {row['refused']}" for row in rows if row["refused"]]
