"""The cells of a comparison, one trained model each: their files are checked, and become the rows of its table."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from tacit._old_names import key_of as key_of_sentence
from tacit.errors import InvalidArgument
from tacit.methods.registry import find_method, list_methods
from tacit.reports.curves import Tradeoff
from tacit.reports.facts import Facts
from tacit.reports.scores import describe_mean, describe_seeds, interval_of_errors, interval_of_shares
from tacit.reports.wording import near, up

NON_PRIVATE, RECIPE = "non_private", "recipe"
# A share is a sum of many numbers, so rounding may take it this far out of [0, 1].
_ROUNDING = 1e-9
# Marks a form with a proof, where the published claim is refuted.
_REPAIRED = " (repaired)"
_ADJACENCIES = {"add_remove": "add/remove", "replace_one": "replace one"}

Key = tuple[str, str, float | None, int]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_share(value: Any) -> bool:
    return _is_number(value) and -_ROUNDING <= value <= 1 + _ROUNDING


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_amount(value)


# Earlier versions wrote an infinite error, or NaN, where training diverged, and an interval of such numbers.
_SCORES: dict[str, Callable[[Any], bool]] = {
    "accuracy": _is_share,
    "rmse": lambda value: isinstance(value, float) and not value < 0,
}


def _is_interval(value: Any) -> bool:
    return isinstance(value, list) and [type(end) for end in value] == [float, float] and not value[0] > value[1]


def _are_amounts(value: Any) -> bool:
    return isinstance(value, dict) and all(each is None or _is_amount(each) for each in value.values())


# Forms that `_check` compares with what a file holds. A form is a type, a condition, a list of items of one form, or a
# dict of parts; (form, None) allows None, and a part with a question mark may be missing.
_AMOUNT = _is_amount, None
_SPENDING = {"steps": [_is_count], "lower": [_AMOUNT], "upper": [_AMOUNT]}
_CURVE = {"false_alarms": [_is_share], "missed_lower": [_is_share], "missed_upper": [_is_share]}
_ATTACKER = {
    "found": [{"false_alarms": _is_share, "members_found": _is_share}],
    "advantage": _is_share,
    "mu": _AMOUNT,
    "mu_regret": _is_share,
}
# The parts of `facts.list_guarantee` that the page of a comparison shows.
_GUARANTEE_FACTS = {
    "statement": str,
    "sentences": [str],
    "is_proven": bool,
    "delta": _is_share,
    "profile": [{"delta": _is_share, "lower": _AMOUNT, "upper": _AMOUNT}],
    "attacker": (_ATTACKER, None),
    "adjacency": {"words": str},
    "unit": str,
    "trusted": str,
    "sampling": {"implemented": (str, None), "assumed": (str, None)},
    "accountant": ({"name": str, "version": str, "others": _are_amounts}, None),
    "unprotected": [str],
    "assumptions": [{"key": str, "text": str}],
    "notes": [str],
}
# A row's guarantee in full. Earlier versions also wrote a trade-off curve.
_DETAILS = {
    "guarantee": _GUARANTEE_FACTS,
    "tradeoff?": (_CURVE, None),
    "released": [str],
    "not_released": [str],
    "noise_from": (str, None),
    "epsilon_over_steps": (_SPENDING, None),
}
# The parts of a guarantee's JSON that a row shows.
_GUARANTEE = {
    "proven": {"epsilon_upper": _AMOUNT},
    "claim": ({"epsilon": _AMOUNT}, None),
    "status": str,
    "adjacency": lambda value: value in ("add_remove", "replace_one"),
    "unprotected": [str],
}
# What every cell's file holds. A cell with `refused` holds nothing else.
_KEY = {
    "method": str,
    "mode": lambda value: value in ("rigorous", "paper"),
    "epsilon": (_is_positive, None),
    "seed": _is_count,
    "choices?": ([str], None),
    "refused?": (str, None),
}
_SCORED = {
    "score": dict,
    "interval": (_is_interval, None),
    "seconds": _is_amount,
    "how?": (str, None),
    "auc?": (_is_share, None),
    "learning_rate?": (_is_positive, None),
    "multiplier?": _AMOUNT,
}
_PRIVATE = {**_SCORED, "guarantee": _GUARANTEE, "details": _DETAILS}


def key_of(cell: Facts) -> Key:
    """The method, mode, epsilon and seed of a cell, which identify it."""
    return cell["method"], cell["mode"], cell["epsilon"], cell["seed"]


def read_cell(path: Path, *, remedy: str) -> Facts:
    """The cell in a file. `InvalidArgument` names the file and the remedy if it is damaged or incomplete."""
    try:
        cell = _update(dict(json.loads(path.read_text(encoding="utf-8"))))
        method, mode, _, _ = key_of(cell)
        label_of(method, mode)
        _check_cell(cell)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{path} is damaged: {error!r}. Delete it, and train it again: {remedy}") from error
    return cell


def _update(cell: Facts) -> Facts:
    """Convert a cell of an earlier version, whose assumptions have no keys and are repeated among the sentences."""
    match cell:
        case {"guarantee": {"version": 1}, "details": {"guarantee": {"assumptions": [*assumed]}}}:
            written = cell["details"]["guarantee"]
            repeated = [f"It rests on this: {' '.join(assumed)}", *written["notes"]]
            updated = {
                **written,
                "assumptions": [{"key": key_of_sentence(each), "text": each} for each in assumed],
                "sentences": [each for each in written["sentences"] if each not in repeated],
            }
            return {**cell, "details": {**cell["details"], "guarantee": updated}}
    return cell


def _check_cell(cell: Facts) -> None:
    """Raise `ValueError` with the name of the part, unless the cell holds all that its row, plot and page show."""
    is_private = cell["epsilon"] is not None
    _check(_KEY, cell)
    if is_private != (cell["method"] != NON_PRIVATE) and (is_private or cell["method"] != RECIPE):
        raise ValueError(f"epsilon cannot be {cell['epsilon']} for {cell['method']}")
    if cell.get("refused"):
        return
    _check(_PRIVATE if is_private else _SCORED, cell)
    ((measure, value),) = cell["score"].items()
    if measure not in _SCORES or not (value is None or _SCORES[measure](value)):
        raise ValueError(f"{measure} {value!r} is not a score")
    if is_private:
        drawn, spent = cell["details"].get("tradeoff"), cell["details"]["epsilon_over_steps"]
        _check_lengths(drawn, ("false_alarms", "missed_lower", "missed_upper"))
        _check_lengths(spent, ("steps", "lower", "upper"))
        if drawn is not None:
            Tradeoff(**drawn)


def _check(form: Any, value: Any, name: str = "") -> None:
    """Raise `ValueError` unless a value read from JSON has this form."""
    if isinstance(form, tuple):
        if value is None:
            return
        form = form[0]
    if isinstance(form, FunctionType):
        is_valid = form(value)
    else:
        is_valid = isinstance(value, form if isinstance(form, type) else type(form))
    if not is_valid:
        raise ValueError(f"{name} cannot be {repr(value)[:60]}")
    if isinstance(form, dict):
        for part, inner in form.items():
            known = part.removesuffix("?")
            if known in value:
                _check(inner, value[known], f"{name}.{known}".removeprefix("."))
            elif known == part:
                raise ValueError(f"{name}.{part} is missing".removeprefix("."))
    elif isinstance(form, list):
        for place, item in enumerate(value):
            _check(form[0], item, f"{name}[{place}]")


def _check_lengths(curves: Facts | None, names: tuple[str, ...]) -> None:
    if curves is not None and len({len(curves[name]) for name in names}) > 1:
        raise ValueError(f"{', '.join(names)} differ in length")


def make_rows(cells: list[Facts], data: Facts) -> list[Facts]:
    """The rows of the table: a method in one form at one epsilon, over all its seeds; in the order of the methods."""
    groups: dict[tuple[Any, ...], list[Facts]] = defaultdict(list)
    for cell in cells:
        groups[cell["method"], cell["mode"], cell["epsilon"]].append(cell)
    order = {name: place for place, name in enumerate([NON_PRIVATE, RECIPE, *(one.name for one in list_methods())])}
    rows = [_make_row(group, data) for group in groups.values()]
    is_uneven = len({row["seeds"] for row in rows if not row["refused"]}) > 1
    for row in rows:
        seeds = f", {describe_seeds([row['seeds']])}" if is_uneven and row["mean"] is not None else ""
        row["score_words"] = None if row["refused"] else f"{describe_mean(row)}{seeds}"
    return sorted(rows, key=lambda row: (order[row["method"]], row["mode"] == "paper", row["epsilon"] or 0))


def _make_row(cells: list[Facts], data: Facts) -> Facts:
    first = cells[0]
    row = {
        "method": first["method"],
        "label": label_of(
            first["method"], first["mode"], first.get("choices") or [], is_private=bool(first["epsilon"])
        ),
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
        return {**row, "measure": None, **_make_no_score(0), **_make_no_guarantee()}
    about = (
        _make_no_guarantee()
        if first["epsilon"] is None
        else _describe_guarantee(first["guarantee"], row["label"].endswith(_REPAIRED))
    )
    return {**row, **_average([cell for cell in cells if "score" in cell], data), **about}


def _average(cells: list[Facts], data: Facts) -> Facts:
    """The mean over the seeds with its interval; neither if one seed diverged."""
    (measure,) = cells[0]["score"]
    values = [cell["score"][measure] for cell in cells]
    diverged = sum(value is None or not math.isfinite(value) for value in values)
    if diverged:
        return {"measure": measure, **_make_no_score(diverged)}
    mean, constant = float(np.mean(values)), data.get("constant")
    is_idle = constant is not None and (mean <= constant if measure == "accuracy" else mean >= constant)
    interval = (
        interval_of_shares(values, data["test_examples"])
        if measure == "accuracy"
        else interval_of_errors(values, [cell["interval"] for cell in cells])
    )
    # Earlier versions wrote no AUC.
    areas = [cell.get("auc") for cell in cells]
    auc = None if None in areas else float(np.mean([area for area in areas if area is not None]))
    return {"measure": measure, "mean": mean, "interval": interval, "auc": auc, "is_idle": is_idle, "diverged": 0}


def _make_no_score(diverged: int) -> Facts:
    return {"mean": None, "interval": None, "auc": None, "is_idle": False, "diverged": diverged}


def label_of(method: str, mode: str, choices: Sequence[str] = (), *, is_private: bool = True) -> str:
    """The name of a row: its method, the choices made for it, and its form."""
    if method == NON_PRIVATE:
        return "without privacy"
    if method == RECIPE:
        return RECIPE if is_private else f"{RECIPE}, without privacy"
    named = " ".join([method, *choices])
    if mode == "paper":
        return f"{named} (as published)"
    return named + _REPAIRED if find_method(method).status == "refuted" else named


def _make_no_guarantee() -> Facts:
    empty = ("certified", "adjacency", "claim", "status")
    words = {"certified_words": "", "compares": "", "claim_words": ""}
    return {**dict.fromkeys(empty), **words, "unprotected": [], "is_repaired": False}


def _describe_guarantee(written: Facts, is_repaired: bool) -> Facts:
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


def is_proven(row: Facts) -> bool:
    """Whether the certified epsilon covers everything about an example."""
    return row["certified"] is not None and not row["unprotected"]
