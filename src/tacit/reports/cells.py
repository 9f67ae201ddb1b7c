"""The cells of a comparison, one trained model each: their files are checked, and become the rows of its table."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

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
def _is_error(value: Any) -> bool:
    return isinstance(value, float) and not value < 0


def _is_interval(value: Any) -> bool:
    return isinstance(value, list) and [type(end) for end in value] == [float, float] and not value[0] > value[1]


def _are_amounts(value: Any) -> bool:
    return isinstance(value, dict) and all(each is None or _is_amount(each) for each in value.values())


_Amount = Annotated[float, _is_amount]
_Positive = Annotated[float, _is_positive]
_Share = Annotated[float, _is_share]
_Count = Annotated[int, _is_count]
_Epsilons = Annotated[dict[str, float | None], _are_amounts]
_Interval = Annotated[list[float], _is_interval]
_SCORES = {"accuracy": _is_share, "rmse": _is_error}


class _Profile(TypedDict):
    delta: _Share
    lower: _Amount | None
    upper: _Amount | None


class _MembersFound(TypedDict):
    false_alarms: _Share
    members_found: _Share


class _Attacker(TypedDict):
    found: list[_MembersFound]
    advantage: _Share
    mu: _Amount | None
    mu_regret: _Share


class _Accountant(TypedDict):
    name: str
    version: str
    others: _Epsilons


class _Adjacency(TypedDict):
    words: str


class _Sampling(TypedDict):
    implemented: str | None
    assumed: str | None


class _Assumption(TypedDict):
    key: str
    text: str


class _GuaranteeFacts(TypedDict):
    """The parts of `facts.guarantee_facts` that the page of a comparison shows."""

    statement: str
    sentences: list[str]
    is_proven: bool
    delta: _Share
    profile: list[_Profile]
    attacker: _Attacker | None
    adjacency: _Adjacency
    unit: str
    trusted: str
    sampling: _Sampling
    accountant: _Accountant | None
    unprotected: list[str]
    assumptions: list[_Assumption]
    notes: list[str]


class _Curve(TypedDict):
    false_alarms: list[_Share]
    missed_lower: list[_Share]
    missed_upper: list[_Share]


class _Spending(TypedDict):
    steps: list[_Count]
    lower: list[_Amount | None]
    upper: list[_Amount | None]


class _Details(TypedDict):
    """A row's guarantee in full. Earlier versions also wrote a trade-off curve."""

    guarantee: _GuaranteeFacts
    tradeoff: NotRequired[_Curve | None]
    released: list[str]
    not_released: list[str]
    noise_from: str | None
    epsilon_over_steps: _Spending | None


class _Proven(TypedDict):
    epsilon_upper: _Amount | None


class _Claim(TypedDict):
    epsilon: _Amount | None


class _WrittenGuarantee(TypedDict):
    """The parts of a guarantee's JSON that a row shows."""

    proven: _Proven
    claim: _Claim | None
    status: str
    adjacency: Literal["add_remove", "replace_one"]
    unprotected: list[str]


class _CellKey(TypedDict):
    """What every cell's file holds. A cell with `refused` holds nothing else."""

    method: str
    mode: Literal["rigorous", "paper"]
    epsilon: _Positive | None
    seed: _Count
    choices: NotRequired[list[str] | None]
    refused: NotRequired[str | None]


class _ScoredCell(_CellKey):
    score: dict[str, Any]
    interval: _Interval | None
    seconds: _Amount
    how: NotRequired[str | None]
    auc: NotRequired[_Share | None]
    learning_rate: NotRequired[_Positive | None]
    multiplier: NotRequired[_Amount | None]


class _PrivateCell(_ScoredCell):
    guarantee: _WrittenGuarantee
    details: _Details


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
    _check(_CellKey, cell)
    if is_private != (cell["method"] != NON_PRIVATE) and (is_private or cell["method"] != RECIPE):
        raise ValueError(f"epsilon cannot be {cell['epsilon']} for {cell['method']}")
    if cell.get("refused"):
        return
    _check(_PrivateCell if is_private else _ScoredCell, cell)
    ((measure, value),) = cell["score"].items()
    if measure not in _SCORES or not (value is None or _SCORES[measure](value)):
        raise ValueError(f"{measure} {value!r} is not a score")
    if is_private:
        drawn, spent = cell["details"].get("tradeoff"), cell["details"]["epsilon_over_steps"]
        _check_lengths(drawn, ("false_alarms", "missed_lower", "missed_upper"))
        _check_lengths(spent, ("steps", "lower", "upper"))
        if drawn is not None:
            Tradeoff(**drawn)


def _check(kind: Any, value: Any, name: str = "") -> None:
    """Raise `ValueError` unless a value read from JSON is of this type, `Annotated` with a condition or not."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is not None:
            _check(next(each for each in arguments if each is not type(None)), value, name)
        return
    if origin is Annotated:
        is_valid = arguments[1](value)
    elif origin is Literal:
        is_valid = value in arguments
    else:
        is_valid = isinstance(value, dict if is_typeddict(kind) else origin or kind)
    if not is_valid:
        raise ValueError(f"{name} cannot be {repr(value)[:60]}")
    if is_typeddict(kind):
        for part, inner in get_type_hints(kind, include_extras=True).items():
            is_optional = get_origin(inner) is NotRequired
            if part in value:
                _check(get_args(inner)[0] if is_optional else inner, value[part], f"{name}.{part}".removeprefix("."))
            elif not is_optional:
                raise ValueError(f"{name}.{part} is missing".removeprefix("."))
    elif origin is list:
        for place, item in enumerate(value):
            _check(arguments[0], item, f"{name}[{place}]")


def _check_lengths(curves: Facts | None, names: tuple[str, ...]) -> None:
    if curves is not None and len({len(curves[name]) for name in names}) > 1:
        raise ValueError(f"{', '.join(names)} differ in length")


def rows_of(cells: list[Facts], data: Facts) -> list[Facts]:
    """The rows of the table: a method in one form at one epsilon, over all its seeds; in the order of the methods."""
    groups: dict[tuple[Any, ...], list[Facts]] = defaultdict(list)
    for cell in cells:
        groups[cell["method"], cell["mode"], cell["epsilon"]].append(cell)
    order = {name: place for place, name in enumerate([NON_PRIVATE, RECIPE, *(one.name for one in list_methods())])}
    rows = [_row(group, data) for group in groups.values()]
    is_uneven = len({row["seeds"] for row in rows if not row["refused"]}) > 1
    for row in rows:
        seeds = f", {describe_seeds([row['seeds']])}" if is_uneven and row["mean"] is not None else ""
        row["score_words"] = None if row["refused"] else f"{describe_mean(row)}{seeds}"
    return sorted(rows, key=lambda row: (order[row["method"]], row["mode"] == "paper", row["epsilon"] or 0))


def _row(cells: list[Facts], data: Facts) -> Facts:
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
        return {**row, "measure": None, **_no_score(0), **_no_guarantee()}
    about = _no_guarantee() if first["epsilon"] is None else _guarantee(first["guarantee"], _is_repaired(row))
    return {**row, **_score([cell for cell in cells if "score" in cell], data), **about}


def _score(cells: list[Facts], data: Facts) -> Facts:
    """The mean over the seeds with its interval; neither if one seed diverged."""
    (measure,) = cells[0]["score"]
    values = [cell["score"][measure] for cell in cells]
    diverged = sum(value is None or not math.isfinite(value) for value in values)
    if diverged:
        return {"measure": measure, **_no_score(diverged)}
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


def _no_score(diverged: int) -> Facts:
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
    return f"{named} (repaired)" if find_method(method).status == "refuted" else named


def _is_repaired(row: Facts) -> bool:
    """Whether the published claim is refuted, and this is the form with a proof."""
    return row["mode"] == "rigorous" and row["method"] != RECIPE and find_method(row["method"]).status == "refuted"


def _no_guarantee() -> Facts:
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


def is_proven(row: Facts) -> bool:
    """Whether the certified epsilon covers everything about an example."""
    return row["certified"] is not None and not row["unprotected"]
