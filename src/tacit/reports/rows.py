"""From the cells of a comparison to the rows of its table: a method in one form at one epsilon, over all its seeds."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit._old_names import key_of as key_of_sentence
from tacit.errors import InvalidArgument
from tacit.methods.registry import find_method, list_methods
from tacit.reports.facts import Facts
from tacit.reports.spread import interval_of_errors, interval_of_shares, scored_words, seeds_in_words
from tacit.reports.verdicts import NON_PRIVATE
from tacit.reports.whole import refuse_unless_whole
from tacit.reports.wording import near, up

_ADJACENCIES = {"add_remove": "add/remove", "replace_one": "replace one"}

Key = tuple[str, str, float | None, int]


def key_of(cell: Facts) -> Key:
    """What tells a cell from all others."""
    return cell["method"], cell["mode"], cell["epsilon"], cell["seed"]


def read_cell(path: Path, *, remedy: str) -> Facts:
    """What the file of a cell says; `InvalidArgument` names the file, and the remedy, if it does not say all."""
    try:
        cell = _updated(dict(json.loads(path.read_text(encoding="utf-8"))))
        method, mode, _, _ = key_of(cell)
        label_of(method, mode)
        refuse_unless_whole(cell)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{path} is damaged: {error!r}. Delete it, and train it again: {remedy}") from error
    return cell


def _updated(cell: Facts) -> Facts:
    """A cell as it is written now: earlier ones had assumptions without keys, and listed them among the sentences."""
    match cell:
        case {"guarantee": {"version": 1}, "details": {"guarantee": {"assumptions": [*assumed]}}}:
            told = cell["details"]["guarantee"]
            repeated = [f"It rests on this: {' '.join(assumed)}", *told["notes"]]
            updated = {
                **told,
                "assumptions": [{"key": key_of_sentence(each), "text": each} for each in assumed],
                "sentences": [each for each in told["sentences"] if each not in repeated],
            }
            return {**cell, "details": {**cell["details"], "guarantee": updated}}
    return cell


def rows_of(cells: list[Facts], data: Facts) -> list[Facts]:
    """The rows, in the order of the methods."""
    groups: dict[tuple[Any, ...], list[Facts]] = defaultdict(list)
    for cell in cells:
        groups[cell["method"], cell["mode"], cell["epsilon"]].append(cell)
    order = {one.name: place for place, one in enumerate(list_methods())}
    rows = [_row(group, data) for group in groups.values()]
    is_uneven = len({row["seeds"] for row in rows if not row["refused"]}) > 1
    for row in rows:
        seeds = f", {seeds_in_words([row['seeds']])}" if is_uneven and row["mean"] is not None else ""
        row["score_words"] = None if row["refused"] else f"{scored_words(row)}{seeds}"
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
        return {**row, "measure": None, **_unscored(0), **_nothing()}
    about = _nothing() if first["method"] == NON_PRIVATE else _guarantee(first["guarantee"], _is_repaired(row))
    return {**row, **_scored([cell for cell in cells if "score" in cell], data), **about}


def _scored(cells: list[Facts], data: Facts) -> Facts:
    """The mean over the seeds with its interval; neither if one of them ended at no finite number."""
    (measure,) = cells[0]["score"]
    values = [cell["score"][measure] for cell in cells]
    diverged = sum(value is None or not math.isfinite(value) for value in values)
    if diverged:
        return {"measure": measure, **_unscored(diverged)}
    mean, constant = float(np.mean(values)), data.get("constant")
    is_idle = constant is not None and (mean <= constant if measure == "accuracy" else mean >= constant)
    interval = (
        interval_of_shares(values, data["test_examples"])
        if measure == "accuracy"
        else interval_of_errors(values, [cell["interval"] for cell in cells])
    )
    return {"measure": measure, "mean": mean, "interval": interval, "is_idle": is_idle, "diverged": 0}


def _unscored(diverged: int) -> Facts:
    return {"mean": None, "interval": None, "is_idle": False, "diverged": diverged}


def label_of(method: str, mode: str, choices: Sequence[str] = ()) -> str:
    """What a row is called: its method, what was chosen of it, and in which form."""
    if method == NON_PRIVATE:
        return "without privacy"
    named = " ".join([method, *choices])
    if mode == "paper":
        return f"{named} (as published)"
    return f"{named} (repaired)" if find_method(method).status == "refuted" else named


def _is_repaired(row: Facts) -> bool:
    """Whether the claim is refuted as published, and this is the form that has a proof."""
    return row["mode"] == "rigorous" and find_method(row["method"]).status == "refuted"


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
