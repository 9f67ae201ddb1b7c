"""What a run's folder says, as the facts of its report. Only what may be given away is read into them."""

from __future__ import annotations

import json
import math
import platform
import shlex
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tacit
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import FIXED_SEED, Guarantee
from tacit.methods.choices import as_texts
from tacit.report.facts import Facts, certified_curve, epsilon_over_steps, finite, guarantee_facts, tradeoff_facts

SCHEMA = "tacit-report/1"
BASELINE = "baseline.json"
_FILES = ("settings.json", "guarantee.json", "metrics.json")
_TUNING = (
    "Not accounted for: the guarantee is about this one run. Settings that were chosen by looking at other runs on the "
    "same data cost what those runs cost; a ledger adds them up."
)


_PREPARATIONS = {
    "centring": ("the mean of the features, which is taken off every row", 1),
    "whitening": ("the mean and then the second moments of the features, by which every row is whitened in part", 2),
    "word weights": ("the mean of the features, by which frequent words count less", 1),
}


def is_run(folder: Path) -> bool:
    """Whether `tacit train` has written a run there."""
    return (folder / _FILES[0]).is_file() and (folder / _FILES[1]).is_file()


def read_run(folder: Path) -> tuple[Guarantee, Facts]:
    """The guarantee of the run in the folder, and everything that its report says."""
    settings, guarantee, metrics = _files(folder)
    certified = certified_curve(guarantee.event)
    facts: Facts = {
        "schema": SCHEMA,
        "kind": "run",
        "title": f"{guarantee.method}{' by recipe' if settings.get('recipe') else ''} on {settings['data']}",
        "made": made(),
        "release": _release(guarantee, metrics),
        "guarantee": guarantee_facts(guarantee),
        "tradeoff": None if certified is None else tradeoff_facts(certified),
        "epsilon_over_steps": None if certified is None else epsilon_over_steps(guarantee.event, guarantee.delta),
        "tuning": metrics.get("tuning") or _TUNING,
        "preparation": _preparation(metrics),
        "mechanism": _mechanism(folder),
        "settings": _settings(metrics["settings"]),
        "progress": {"steps": metrics.get("steps"), "is_finished": metrics.get("is_finished")},
        "data": _data(settings, metrics),
        "utility": _utility(folder, metrics),
        "audit": _audit(folder),
        "command": command_of(settings),
    }
    return guarantee, facts


def _files(folder: Path) -> tuple[Facts, Guarantee, Facts]:
    try:
        texts = [(folder / name).read_text(encoding="utf-8") for name in _FILES]
        return json.loads(texts[0]), Guarantee.from_json(texts[1]), json.loads(texts[2])
    except OSError as error:
        raise InvalidArgument(
            f"There is no run in {folder}: {Path(str(error.filename)).name} cannot be read ({error.strerror}). Give a "
            "folder that tacit train --out or tacit compare --out has written."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{folder} holds no run that tacit train wrote: {error}.") from error


def made() -> Facts:
    """When and with what the report was made."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "tacit": tacit.__version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "torch")},
    }


def _release(guarantee: Guarantee, metrics: Facts) -> Facts:
    is_held_out = metrics.get("data", {}).get("test") == "held out"
    score = (
        "One score, on rows held out from training, with noise of its own."
        if is_held_out
        else "Scores on test examples, which are public."
    )
    noise = (
        "a fixed seed" if FIXED_SEED in guarantee.violations else "the operating system's secure source, never stored"
    )
    return {
        "released": [
            *([] if _preparation(metrics) is None else ["What prepared the features, once, before the first step."]),
            "The weights after every step, not only the last ones: the guarantee covers all of them.",
            score,
            "The settings, which were fixed before training.",
        ],
        "not_released": ["Losses, gradient norms, sizes of lots and durations: they tell about private examples."],
        "noise_from": noise,
        "is_for_release": not guarantee.violations and math.isfinite(guarantee.epsilon(guarantee.delta)),
    }


def _settings(settings: Facts) -> Facts:
    """All settings, each once: a recipe says some of them over again."""
    recipe = settings.get("recipe")
    if recipe is None:
        return settings
    return {**settings, "recipe": {name: value for name, value in recipe.items() if name not in settings}}


def _preparation(metrics: Facts) -> Facts | None:
    """What was released before the first step, as a recipe does; None for other runs."""
    recipe, multiplier = metrics["settings"].get("recipe"), metrics.get("preparation_multiplier")
    if recipe is None or multiplier is None:
        return None
    words, count = _PREPARATIONS[recipe["preparation"]]
    return {"words": words, "multiplier": multiplier, "releases": count}


def _mechanism(folder: Path) -> Facts | None:
    """The stages with their settings, as the run saved them; None for stages of the user's own."""
    from tacit import checkpoint

    try:
        plan = checkpoint.read(folder)["plan"]
    except (TacitError, KeyError):
        return None
    mechanism = plan.mechanism
    return {
        "stages": [
            _stage("bound", mechanism.bound),
            *([] if mechanism.guide is None else [_stage("guide", mechanism.guide)]),
            _stage("noise", mechanism.noise),
            *(_stage("post", post) for post in mechanism.post),
        ],
        "sampling": _stage("sampling", plan.sampling),
        "numbers_released_per_step": plan.dimension,
        "method": mechanism.method.name,
        "paper": mechanism.method.source,
        "mode": mechanism.method.mode,
    }


def _stage(place: str, stage: Any) -> Facts:
    settings = {field.name: _plain(getattr(stage, field.name)) for field in fields(stage) if field.init}
    return {"place": place, "name": type(stage).__name__, "settings": settings}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return repr(value) if is_dataclass(value) or len(repr(value)) < 200 else type(value).__name__


def _data(settings: Facts, metrics: Facts) -> Facts:
    told = metrics.get("data") or {}
    return {
        "name": settings["data"],
        "population": settings["population"],
        "population_is": "declared" if settings.get("is_declared") else "published",
        "test_examples": metrics.get("test_examples"),
        **{
            name: told.get(name) for name in ("example", "scaling", "source", "classes", "shape", "test", "fingerprint")
        },
    }


def _utility(folder: Path, metrics: Facts) -> Facts:
    scores = metrics.get("test") or []
    name = next((key for key in (scores[0] if scores else {}) if key not in ("step", "interval")), None)
    final = scores[-1][name] if name else None
    count = metrics.get("test_examples")
    return {
        "measure": name,
        "final": final,
        "interval": wilson(final, count) if name == "accuracy" and final is not None and count else None,
        "by_step": [[row["step"], row[name]] for row in scores] if name else [],
        "non_private": _json_or_none(folder / BASELINE),
    }


def wilson(share: float, count: int) -> list[float]:
    """A 95 % interval for a share that was seen among so many (Wilson 1927).

    >>> [round(end, 4) for end in wilson(0.9, 100)]
    [0.8256, 0.9448]
    """
    z = 1.959964
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def _audit(folder: Path) -> Facts | None:
    """What canaries showed. How well the members themselves were recognised is about private data, and is left out."""
    written = (_json_or_none(folder / "audit" / "audit.json") or {}).get("audit")
    if not written:
        return None
    bound = written["bound"]
    return {
        "attack": written["attack"],
        "epsilon_at_least": finite(bound["epsilon"]),
        "delta": bound["delta"],
        "confidence": bound["confidence"],
        "verdict": written["verdict"],
    }


def _json_or_none(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def command_of(settings: Facts, *, with_paths: bool = False) -> str:
    """The command that repeats the run, with fresh noise; where the data lie is for the reader to say.

    >>> command_of({"data": "iris", "method": "dpsgd", "epsilon": 3.0, "delta": 1e-4, "steps": 12})
    'tacit train iris --method dpsgd --epsilon 3 --delta 0.0001 --steps 12'
    >>> command_of({"data": "iris", "method": "dpsgd", "epsilon": 3.0, "delta": 1e-4, "recipe": {"kind": "table"}})
    'tacit train iris --recipe auto --epsilon 3 --delta 0.0001'
    """
    settings = {**settings, "model": Path(settings.get("model") or "").name or None}
    words = ["tacit", "train", *_data_words(settings, with_paths)]
    if settings.get("recipe"):
        words += ["--recipe", "auto"]
    for name in _options(settings):
        value = settings.get(name)
        if value is not None:
            shown = f"{value:.10g}" if isinstance(value, float) else str(value)
            words += [f"--{name.replace('_', '-')}", shown]
    for text in as_texts(settings.get("choices") or {}):
        words += ["--set", text]
    return shlex.join(words)


def _data_words(settings: Facts, with_paths: bool) -> list[str]:
    """Which data; of a table also its target and bounds."""
    table, path = settings.get("table"), settings.get("data_path")
    if table is not None:
        place = table["path"] if with_paths else Path(table["path"]).name
        return [place, "--target", table["target"], "--bounds", "bounds.toml"]
    return [settings["data"], *(["--data-path", path if with_paths else "DATA"] if path else [])]


def _options(settings: Facts) -> list[str]:
    """The options that a run is repeated with; a recipe chooses all but the budget."""
    noise = "multiplier" if settings.get("multiplier") is not None else "epsilon"
    chosen = ["lot_size", "steps", "clip_norm", "learning_rate", "momentum", "views", "averaging", "micro_batch"]
    names = ["epsilon", "delta"] if settings.get("recipe") else ["method", "mode", "model", noise, "delta", *chosen]
    return [*names, *(["population"] if settings.get("is_declared") else [])]
