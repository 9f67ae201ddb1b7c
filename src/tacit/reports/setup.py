"""How a run was set up, whole: every setting with its default, in words too, and what was declared of its table."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.datasets import Bounds, Number
from tacit.methods.choices import choices_of
from tacit.methods.registry import find_method
from tacit.reports.facts import Facts
from tacit.reports.wording import near

_GIVEN = "as given"
_OPTIMIZERS = {"noisy_adam": "Adam"}


def settings_facts(settings: Facts, multiplier: float | None, *, is_tuned: bool = False) -> Facts:
    """Every setting, as kept in the run's folder, but for paths and the salt; `multiplier` is the one that was used.

    A run by recipe follows what is released with the recipe's momentum. With `is_tuned` the noise was found together
    with other settings by a search, and the budget is that of all of it.
    """
    recipe, population = settings.get("recipe"), settings["population"]
    return {
        "data": settings["data"],
        "target": (settings.get("table") or {}).get("target"),
        "method": settings["method"],
        "mode": settings.get("mode", "rigorous"),
        "choices": all_choices(settings["method"], settings.get("choices") or {}),
        "recipe": recipe and {name: value for name, value in recipe.items() if name not in settings},
        "model": Path(settings["model"]).name,
        "epsilon": settings["epsilon"],
        "delta": settings["delta"],
        "multiplier": multiplier,
        "multiplier_is": _origin(settings, is_tuned),
        "population": population,
        "population_is": "declared" if settings.get("is_declared") else "published",
        "lot_size": settings["lot_size"],
        "rate": settings["lot_size"] / population,
        "steps": settings["steps"],
        "clip_norm": settings["clip_norm"],
        "optimizer": _OPTIMIZERS.get(settings["method"], "SGD"),
        "learning_rate": settings["learning_rate"],
        "momentum": (recipe or settings).get("momentum", 0.0),
        "views": settings.get("views", 1),
        "averaging": settings.get("averaging", 0.0),
        "micro_batch": settings.get("micro_batch"),
        "seed": settings.get("seed"),
        "is_in_ledger": settings.get("ledger") is not None,
    }


def _origin(settings: Facts, is_tuned: bool) -> str:
    if is_tuned:
        return "found by the search"
    if settings["multiplier"] is not None:
        return _GIVEN
    return "by the paper's own rule" if settings.get("mode") == "paper" else "found from the budget"


def all_choices(method: str, chosen: Facts) -> Facts:
    """What the method was told beside clip norm, noise and mode; what nobody chose has its default.

    >>> all_choices("dpsgd", {"clipping": "per_layer"})
    {'clipping': 'per_layer', 'denominator': 'public'}
    """
    arguments = inspect.signature(find_method(method).load()).parameters
    return {name: chosen.get(name, arguments[name].default) for name in choices_of(method)}


def in_words(settings: Facts) -> list[list[str]]:
    """The same settings for a reader: each with its name and what it says."""
    return [[name, words] for name, words in (*_what(settings), *_how(settings)) if words]


def _what(settings: Facts) -> Iterator[tuple[str, str]]:
    """What was trained, and for what budget."""
    mode = "as published" if settings["mode"] == "paper" else "in the form with a proof"
    yield "Data", settings["data"]
    yield "Target", settings["target"] or ""
    yield "Method", f"{settings['method']}, {mode}"
    yield "The method's own choices", _listed(settings["choices"]) or "it has none"
    yield "Recipe", _recipe(settings["recipe"])
    yield "Model", settings["model"]
    yield "Budget", _budget(settings)
    multiplier, origin = settings["multiplier"], settings["multiplier_is"]
    yield "Noise multiplier", "" if multiplier is None else f"{near(multiplier)} times the sensitivity, {origin}"


def _how(settings: Facts) -> Iterator[tuple[str, str]]:
    """How it was trained."""
    rate, steps = settings["rate"], settings["steps"]
    yield "Population", f"{settings['population']:,}, {settings['population_is']}, not counted from the data"
    yield "Lots", f"{settings['lot_size']:g} examples expected, each with a probability of {rate:.4g}"
    yield "Steps planned", f"{steps:,}, which is {steps * rate:.3g} epochs"
    yield "Clip norm", f"{settings['clip_norm']:g}"
    yield "Optimizer", "Adam" if settings["optimizer"] == "Adam" else "gradient steps (SGD)"
    yield "Learning rate", f"{settings['learning_rate']:.4g}"
    of_its_own = "Adam's own" if settings["optimizer"] == "Adam" else "none"
    yield "Momentum", f"{settings['momentum']:g}" if settings["momentum"] else of_its_own
    yield "Views of every image", str(settings["views"]) if settings["views"] > 1 else "one, as it is"
    averaging = settings["averaging"]
    yield "Running mean of the weights", f"with decay {averaging:g}" if averaging else "none"
    held = settings["micro_batch"]
    yield "Examples held at once", "a whole lot" if held is None else f"{held:,}"
    seed = settings["seed"]
    yield "Seed", "none: the noise is fresh in every run" if seed is None else f"{seed}, from which all noise follows"
    yield "Ledger", "charged" if settings["is_in_ledger"] else "none"


def _budget(settings: Facts) -> str:
    if settings["epsilon"] is None:
        return "none: no finite ε is proven of this noise"
    budget = f"ε = {settings['epsilon']:.6g} at δ = {settings['delta']:g}"
    if settings["multiplier_is"] == _GIVEN:
        return f"{budget}, which is what the given noise costs"
    return f"{budget}, as the paper claims to keep it" if settings["mode"] == "paper" else budget


def _recipe(recipe: Facts | None) -> str:
    if recipe is None:
        return "none: a network was trained as typed"
    spent = f"a share of {recipe['share']:g} of the squared budget pays for that"
    prepared = "features as they are" if recipe["preparation"] == "none" else f"{recipe['preparation']} first, {spent}"
    return f"automatic, for data of the kind {recipe['kind']}: {prepared}"


def _listed(choices: Facts) -> str:
    """Each with its value; None is for the method itself to decide."""
    return ", ".join(
        f"{name.replace('_', ' ')} {'by default' if value is None else str(value).replace('_', ' ')}"
        for name, value in choices.items()
    )


def bounds_of(settings: Facts) -> Bounds | None:
    """What was declared of a table of one's own; None for a data set by name."""
    table = settings.get("table")
    return None if table is None else Bounds.parse(table["bounds"])


def declared(bounds: Bounds) -> Facts:
    """What was declared public. Paths stay with whoever trained, and so do remarks in their file."""
    columns = [
        {"name": name, "low": column.low, "high": column.high, "is_logarithmic": column.logarithmic}
        if isinstance(column, Number)
        else {"name": name, "categories": list(column.values)}
        for name, column in bounds.columns.items()
    ]
    test = None if bounds.test is None else Path(bounds.test).name
    about = {"rows": bounds.rows, "held_out": bounds.held_out, "test": test, "example": bounds.example}
    return {**about, "columns": columns, "file": as_toml({**about, "columns": columns})}


def as_toml(found: Facts) -> str:
    """A bounds file that declares the same.

    >>> columns = [{"name": "age", "low": 0.0, "high": 99.5, "is_logarithmic": False}]
    >>> columns += [{"name": "a b", "categories": ["no", "yes"]}]
    >>> print(as_toml({"rows": 9, "held_out": 0.2, "test": None, "example": "row", "columns": columns}))
    rows = 9
    held_out = 0.2
    example = "row"
    <BLANKLINE>
    [columns]
    "age" = { low = 0.0, high = 99.5 }
    "a b" = ["no", "yes"]
    """
    heads = [
        f"{name} = {_quoted(found[name])}"
        for name in ("rows", "held_out", "test", "example")
        if found[name] is not None
    ]
    return "\n".join([*heads, "", "[columns]", *(_line(column) for column in found["columns"])])


def _line(column: Facts) -> str:
    if "categories" in column:
        return f"{_quoted(column['name'])} = {_quoted(column['categories'])}"
    scale = ", log = true" if column["is_logarithmic"] else ""
    return f"{_quoted(column['name'])} = {{ low = {column['low']!r}, high = {column['high']!r}{scale} }}"


def _quoted(value: Any) -> str:
    """Text, numbers and lists of text are written alike in JSON and in TOML, but for DEL, which TOML escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
