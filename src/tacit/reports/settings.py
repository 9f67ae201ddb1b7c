"""The settings of a run as facts and in words, what was declared about its table, and the command that repeats it."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit.datasets import Bounds, Category, Date, Number
from tacit.methods.choices import as_texts, choices_of
from tacit.methods.registry import find_method
from tacit.reports.facts import Facts
from tacit.reports.wording import near

_GIVEN = "as given"
_OPTIONS_OF_STEPS = (
    *("lot_size", "steps", "clip_norm", "learning_rate"),
    *("momentum", "views", "averaging", "micro_batch"),
)
_OPTIMIZERS = {"noisy_adam": "Adam"}


def collect_settings(settings: Facts, multiplier: float | None, *, is_tuned: bool = False) -> Facts:
    """Every setting in the run's folder, except paths and the salt; `multiplier` is the one that was used.

    The momentum of a run by recipe is the recipe's. With `is_tuned` a search found the noise together with other
    settings, and the budget is that of the whole search.
    """
    recipe, population, bounds = settings.get("recipe"), settings["population"], read_bounds(settings)
    return {
        "data": settings["data"],
        "target": (settings.get("table") or {}).get("target"),
        "method": settings["method"],
        "mode": settings.get("mode", "rigorous"),
        "choices": list_all_choices(settings["method"], settings.get("choices") or {}),
        "recipe": recipe and {name: value for name, value in recipe.items() if name not in settings},
        "model": Path(settings["model"]).name,
        "epsilon": settings["epsilon"],
        "delta": settings["delta"],
        "multiplier": multiplier,
        "multiplier_is": _describe_origin(settings, is_tuned),
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
        # What lots hold and the population counts.
        "units": "examples" if bounds is None or bounds.unit is None else "people",
    }


def _describe_origin(settings: Facts, is_tuned: bool) -> str:
    if is_tuned:
        return "found by the search"
    if settings["multiplier"] is not None:
        return _GIVEN
    return "by the paper's own rule" if settings.get("mode") == "paper" else "found from the budget"


def list_all_choices(method: str, chosen: Facts) -> Facts:
    """The method's own choices, besides clip norm, noise and mode; those not given have their default.

    >>> list_all_choices("dpsgd", {"clipping": "per_layer"})
    {'clipping': 'per_layer', 'denominator': 'public', 'noise': 'gaussian', 'bands': 8}
    """
    arguments = inspect.signature(find_method(method).load()).parameters
    return {name: chosen.get(name, arguments[name].default) for name in choices_of(method)}


def describe_settings(settings: Facts) -> list[list[str]]:
    """The same settings for a reader: pairs of name and text."""
    return [[name, words] for name, words in (*_describe_model(settings), *_describe_training(settings)) if words]


def _describe_model(settings: Facts) -> Iterator[tuple[str, str]]:
    mode = "as published" if settings["mode"] == "paper" else "in the form with a proof"
    yield "Data", settings["data"]
    yield "Target", settings["target"] or ""
    yield "Method", f"{settings['method']}, {mode}"
    yield "Method settings", _list_choices(settings["choices"]) or "none"
    yield "Recipe", _describe_recipe(settings["recipe"])
    yield "Model", settings["model"]
    yield "Budget", _describe_budget(settings)
    multiplier, origin = settings["multiplier"], settings["multiplier_is"]
    yield "Noise multiplier", "" if multiplier is None else f"{near(multiplier)} ({origin})"


def describe_plan_settings(settings: Facts) -> list[list[str]]:
    """The same of a run of the user's own program, whose optimizer and model are not known."""
    rate, steps, seed, held = (settings[name] for name in ("rate", "steps", "seed", "micro_batch"))
    budget = settings["epsilon"]
    return [
        ["Method", settings["method"]],
        ["Budget", "none" if budget is None else f"ε = {budget:.6g} at δ = {settings['delta']:g}"],
        ["Noise multiplier", f"{near(settings['multiplier'])}"],
        ["Population", _describe_population(settings)],
        ["Lots", f"{settings['lot_size']:g} {settings['units']} on average (sampling rate {rate:.4g})"],
        ["Steps planned", f"{steps:,} ({steps * rate:.3g} epochs)"],
        ["Micro-batch", "chosen for memory" if held is None else f"{held:,} examples"],
        ["Seed", "none: fresh noise in every run" if seed is None else f"{seed} (determines all noise)"],
        ["Ledger", "charged" if settings["is_in_ledger"] else "none"],
    ]


def _describe_population(settings: Facts) -> str:
    people = " people" if settings["units"] == "people" else ""
    return f"{settings['population']:,}{people} ({settings['population_is']}, not counted from the data)"


def _describe_training(settings: Facts) -> Iterator[tuple[str, str]]:
    yield "Population", _describe_population(settings)
    if find_method(settings["method"]).kind == "gradient":
        yield from _describe_steps(settings)
    else:
        yield "Rows", "every row is divided by its own norm; all of them take part in one release"
    seed = settings["seed"]
    yield "Seed", "none: fresh noise in every run" if seed is None else f"{seed} (determines all noise)"
    yield "Ledger", "charged" if settings["is_in_ledger"] else "none"


def _describe_steps(settings: Facts) -> Iterator[tuple[str, str]]:
    rate, steps = settings["rate"], settings["steps"]
    yield "Lots", f"{settings['lot_size']:g} {settings['units']} on average (sampling rate {rate:.4g})"
    yield "Steps planned", f"{steps:,} ({steps * rate:.3g} epochs)"
    yield "Clip norm", f"{settings['clip_norm']:g}"
    yield "Optimizer", settings["optimizer"]
    yield "Learning rate", f"{settings['learning_rate']:.4g}"
    default = "Adam's default" if settings["optimizer"] == "Adam" else "none"
    yield "Momentum", f"{settings['momentum']:g}" if settings["momentum"] else default
    yield "Augmented views per image", str(settings["views"]) if settings["views"] > 1 else "none"
    averaging = settings["averaging"]
    yield "Weight averaging", f"decay {averaging:g}" if averaging else "none"
    held = settings["micro_batch"]
    yield "Micro-batch", "a whole lot" if held is None else f"{held:,} examples"


def _describe_budget(settings: Facts) -> str:
    if settings["epsilon"] is None:
        return "none: no finite ε is proven for this noise"
    budget = f"ε = {settings['epsilon']:.6g} at δ = {settings['delta']:g}"
    if settings["multiplier_is"] == _GIVEN:
        return f"{budget}, the cost of the given noise"
    return f"{budget}, as the paper claims it" if settings["mode"] == "paper" else budget


def _describe_recipe(recipe: Facts | None) -> str:
    if recipe is None:
        return "none"
    spent = f"at {100 * recipe['share']:g} % of the squared budget"
    prepared = "no preparation" if recipe["preparation"] == "none" else f"{recipe['preparation']} first, {spent}"
    return f"automatic, for {recipe['kind']} data: {prepared}"


def _list_choices(choices: Facts) -> str:
    """Each choice with its value; None means that the method decides. Bands are for correlated noise only."""
    shown = {name: value for name, value in choices.items() if name != "bands" or choices.get("noise") == "banded"}
    return ", ".join(
        f"{name.replace('_', ' ')} {'by default' if value is None else str(value).replace('_', ' ')}"
        for name, value in shown.items()
    )


def read_bounds(settings: Facts) -> Bounds | None:
    """The bounds declared for the user's own table; None for a named data set."""
    table = settings.get("table")
    return None if table is None else Bounds.parse(table["bounds"])


def describe_bounds(bounds: Bounds) -> Facts:
    """What was declared public, without paths and comments."""
    columns = [_describe_column(name, column) for name, column in bounds.columns.items()]
    columns += [{"name": name, "is_unit" if name == bounds.unit else "is_ignored": True} for name in bounds.ignored]
    columns += [{"name": bounds.text_column, "is_text": True}] if bounds.text_column else []
    test = None if bounds.test is None else Path(bounds.test).name
    about = {"rows": bounds.rows, "held_out": bounds.held_out, "test": test, "example": bounds.example}
    if bounds.unit is not None:
        about |= {"people": bounds.people, "rows_per_unit": bounds.rows_per_unit}
    return {**about, "columns": columns, "file": format_bounds({**about, "columns": columns})}


def _describe_column(name: str, column: Number | Date | Category) -> Facts:
    missing = {"missing": "indicator", "fill": column.fill} if column.missing == "indicator" else {}
    if isinstance(column, Category):
        return {"name": name, "categories": list(column.values), **missing}
    if isinstance(column, Date):
        ends = {"low": column.low, "high": column.high, "format": column.format}
        return {"name": name, "is_date": True, **ends, **missing}
    return {"name": name, "low": column.low, "high": column.high, "is_logarithmic": column.logarithmic, **missing}


def format_bounds(found: Facts) -> str:
    """A bounds file with the same declarations.

    >>> columns = [{"name": "age", "low": 0.0, "high": 99.5, "is_logarithmic": False}]
    >>> columns += [{"name": "a b", "categories": ["no", "yes"]}]
    >>> print(format_bounds({"rows": 9, "held_out": 0.2, "test": None, "example": "row", "columns": columns}))
    rows = 9
    held_out = 0.2
    example = "row"
    <BLANKLINE>
    [columns]
    "age" = { low = 0.0, high = 99.5 }
    "a b" = ["no", "yes"]
    """
    names = ("rows", "people", "rows_per_unit", "held_out", "test", "example")
    heads = [f"{name} = {_quote(found[name])}" for name in names if found.get(name) is not None]
    return "\n".join([*heads, "", "[columns]", *(_format_column(column) for column in found["columns"])])


def _format_column(column: Facts) -> str:
    if "categories" in column and "missing" not in column:
        return f"{_quote(column['name'])} = {_quote(column['categories'])}"
    parts = {
        "ignore": column.get("is_ignored") or None,
        "type": next((kind for kind in ("date", "unit", "text") if column.get(f"is_{kind}")), None),
        "values": column.get("categories"),
        **{name: column.get(name) for name in ("low", "high", "format")},
        "log": column.get("is_logarithmic") or None,
        **{name: column.get(name) for name in ("missing", "fill")},
    }
    inside = ", ".join(f"{name} = {_quote(value)}" for name, value in parts.items() if value is not None)
    return f"{_quote(column['name'])} = {{ {inside} }}"


def _quote(value: Any) -> str:
    """Text, numbers and lists of text are written alike in JSON and in TOML, but for DEL, which TOML escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def command_of(settings: Facts, *, with_paths: bool = False) -> str:
    """The command that repeats the run, with its seed if it had one; paths, and the ledger, are left to the reader.

    >>> command_of({"data": "iris", "method": "dpsgd", "epsilon": 3.0, "delta": 1e-4, "steps": 12})
    'tacit train iris --method dpsgd --epsilon 3 --delta 0.0001 --steps 12'
    >>> command_of({"data": "iris", "method": "dpsgd", "epsilon": 3.0, "delta": 1e-4, "recipe": {"kind": "table"}})
    'tacit train iris --recipe auto --epsilon 3 --delta 0.0001'
    """
    settings = {**settings, "model": Path(settings.get("model") or "").name or None}
    words = ["tacit", "train", *_list_data_arguments(settings, with_paths)]
    if settings.get("recipe"):
        words += ["--recipe", "auto"]
        if settings["recipe"].get("features") == "efficientnet_lite0":
            words += ["--features", "efficientnet_lite0"]
    for name in _list_options(settings):
        value = settings.get(name)
        if value is not None:
            # Every digit, or a seed would not give the same numbers.
            words += [f"--{name.replace('_', '-')}", str(value).removesuffix(".0")]
    for text in as_texts(settings.get("choices") or {}):
        words += ["--set", text]
    if with_paths:
        for name in ("ledger", "dataset"):
            words += [f"--{name}", settings[name]] if settings.get(name) else []
    return shlex.join(words)


def _list_data_arguments(settings: Facts, with_paths: bool) -> list[str]:
    """The data set, or the table with its target and bounds."""
    table, path = settings.get("table"), settings.get("data_path")
    if table is not None:
        place = table["path"] if with_paths else Path(table["path"]).name
        return [place, "--target", table["target"], "--bounds", "bounds.toml"]
    if settings.get("side") is not None:
        return [path if with_paths and path else settings["data"]]
    return [settings["data"], *(["--data-path", path if with_paths else "DATA"] if path else [])]


def _list_options(settings: Facts) -> list[str]:
    """The options that repeat a run; a recipe chooses all but the budget."""
    noise = "multiplier" if settings.get("multiplier") is not None else "epsilon"
    is_linear = settings.get("method") is not None and find_method(settings["method"]).kind == "linear"
    chosen = [] if is_linear else _OPTIONS_OF_STEPS
    names = ["epsilon", "delta"] if settings.get("recipe") else ["method", "mode", "model", noise, "delta", *chosen]
    return [*names, *(["population"] if settings.get("is_declared") else []), "seed"]


def explain_command(settings: Facts, metrics: Facts, *, is_proven: bool) -> list[str]:
    """What the command repeats exactly, and what the reader must supply."""
    said, is_stopped = [], metrics.get("is_finished") is False
    if settings.get("seed") is not None:
        until = ". It runs all steps; this run was stopped early" if is_stopped else ""
        said.append(f"The command has the run's seed, so the same versions give the same numbers{until}.")
    elif not is_proven:
        said.append("It draws fresh noise, so the numbers differ slightly. Nothing is proven about that run either.")
    elif metrics.get("tuning"):
        said.append(
            "It trains once with the settings that the search found; the guarantee above covers the whole search."
        )
    elif is_stopped:
        said.append("It draws fresh noise and runs all steps; this run was stopped early, so the new one costs more.")
    else:
        said.append("It draws fresh noise, so the numbers differ slightly; the guarantee is the same.")
    if settings.get("table") is not None:
        said.append("You need the table; bounds.toml declares what is public about it:")
    elif settings.get("side") is not None:
        said.append(f"{settings['data']} is your folder of images.")
    elif settings.get("data_path"):
        said.append("DATA is your copy of the data.")
    if ":" in (settings.get("model") or ""):
        said.append(f"You need the file {Path(settings['model'].rpartition(':')[0]).name}, which defines the model.")
    return said


# Replacements for the values of these options; other paths are cut to their last part.
_PLACEHOLDERS = {"--data-path": "DATA", "--out": "FOLDER", "--bounds": "bounds.toml"}
_EXPLANATIONS = {
    "DATA": "DATA is your copy of the data.",
    "FOLDER": "FOLDER is the folder of the comparison.",
}


def remove_paths(command: str) -> str:
    """The command with placeholders in place of paths, so that it does not reveal who typed it.

    >>> remove_paths("tacit compare adult --data-path /home/ann/adult.zip --out=../tried --epsilon 0.5,1")
    'tacit compare adult --data-path DATA --out=FOLDER --epsilon 0.5,1'
    >>> remove_paths("tacit compare ann/patients.csv --bounds ann/b.toml --model ~/net.py:make")
    'tacit compare patients.csv --bounds bounds.toml --model net.py:make'
    """
    kept: list[str] = []
    for word in shlex.split(command):
        option, equals, value = word.partition("=")
        if equals and option.startswith("--"):
            kept.append(f"{option}={_replace_path(option, value)}")
        else:
            kept.append(_replace_path(kept[-1] if kept else "", word))
    return shlex.join(kept)


def _replace_path(option: str, value: str) -> str:
    return _PLACEHOLDERS.get(option, Path(value).name or value)


def explain_placeholders(commands: Sequence[str]) -> list[str]:
    """What the placeholders in these commands stand for.

    >>> explain_placeholders(["tacit compare adult --data-path DATA", "tacit compare iris"])
    ['DATA is your copy of the data.']
    """
    words = {word.rpartition("=")[2] for command in commands for word in shlex.split(command)}
    return [said for name, said in _EXPLANATIONS.items() if name in words]
