"""What a run's folder says, as the facts of its report. Only what may be given away is read into them."""

from __future__ import annotations

import json
import math
import platform
import shlex
from dataclasses import asdict, fields, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tacit
from tacit.accounting import curve
from tacit.datasets import Bounds
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import FIXED_SEED, VIOLATIONS, Guarantee
from tacit.ledger import is_secret_salt
from tacit.methods.choices import as_texts
from tacit.reports.facts import Facts, certified_curve, guarantee_facts
from tacit.reports.scores import utility_facts
from tacit.reports.series import Spending, Tradeoff, finite
from tacit.reports.setup import bounds_of, declared, in_words, settings_facts
from tacit.reports.wording import up

SCHEMA = "tacit-report/1"
BASELINE = "baseline.json"
_FILES = ("settings.json", "guarantee.json", "metrics.json")
_TUNING = (
    "Not accounted for: what is said here is about this one run. Settings that were chosen by looking at other runs "
    "on the same data cost what those runs cost; a ledger adds them up."
)

_SEEDED = (
    "The noise came from a fixed seed, and this page says which: whoever knows it can take the noise off again, so "
    "that neither the model nor this page may be given away."
)
_SCORES = {
    False: "Scores on test examples, which are public.",
    True: "One score, on rows held out from training, with noise of its own.",
}
_FINGERPRINT = (
    "The fingerprint commits whoever trained to the data without telling about them: it is a SHA-256 of the data and "
    "of a secret that stays in the run's folder."
)
_SAMPLED = {
    "Poisson": "Poisson: for every lot a coin is tossed for each example, with probability {rate:.4g}",
    "FullBatch": "every example is in every lot",
    "Shuffled": "Shuffled epochs: every example is in one lot of each",
}
_PREPARATIONS = {
    "centring": ("the mean of the features, which is taken off every row", 1),
    "whitening": ("the mean and then the second moments of the features, by which every row is whitened in part", 2),
    "word weights": ("the mean of the features, by which frequent words count less", 1),
}


def is_run(folder: Path) -> bool:
    """Whether `tacit train` has written a run there."""
    return (folder / _FILES[0]).is_file() and (folder / _FILES[1]).is_file()


def read_run(folder: Path) -> Facts:
    """Everything that the report of the run in the folder says."""
    settings, guarantee, metrics = _files(folder)
    certified, plan, bounds = certified_curve(guarantee.event), _plan(folder), bounds_of(settings)
    spent = None if certified is None else Spending.of(guarantee.event, guarantee.delta)
    is_held_out = _is_held_out(metrics, bounds)
    implemented = None if plan is None else drawn_words(plan.sampling)
    whole = settings_facts(settings, metrics.get("multiplier"), is_tuned=bool(metrics.get("tuning")))
    return {
        "schema": SCHEMA,
        "kind": "run",
        "title": f"{guarantee.method}{' by recipe' if settings.get('recipe') else ''} on {settings['data']}",
        "made": made(),
        "release": release_facts(
            guarantee,
            is_held_out=is_held_out,
            is_prepared=_preparation(settings, metrics),
            is_scored=bool(metrics.get("test")),
        ),
        "guarantee": guarantee_facts(guarantee, spent, implemented=implemented, is_test_public=not is_held_out),
        "tradeoff": None if certified is None else asdict(Tradeoff.of(certified, guarantee.delta)),
        "epsilon_over_steps": None if spent is None else asdict(spent),
        "tuning": metrics.get("tuning") or _TUNING,
        "preparation": _preparation(settings, metrics),
        "mechanism": None if plan is None else _mechanism(plan),
        "settings": whole,
        "settings_in_words": in_words(whole),
        "progress": _progress(guarantee, whole, metrics, plan),
        "data": _data(settings, metrics, bounds, is_held_out),
        "utility": utility_facts(
            metrics, _json_or_none(folder / BASELINE), is_held_out=is_held_out, delta=guarantee.delta
        ),
        "audit": _audit(folder),
        "command": command_of(settings),
        "command_in_words": again(settings, metrics, is_proven=math.isfinite(guarantee.epsilon(guarantee.delta))),
    }


def _files(folder: Path) -> tuple[Facts, Guarantee, Facts]:
    try:
        texts = [(folder / name).read_text(encoding="utf-8") for name in _FILES]
        return dict(json.loads(texts[0])), Guarantee.from_json(texts[1]), dict(json.loads(texts[2]))
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


def release_facts(
    guarantee: Guarantee, *, is_held_out: bool, is_prepared: Facts | None, is_scored: bool = True
) -> Facts:
    """What leaves the hands of whoever trained, what does not, and what keeps all of it from being released."""
    is_proven, is_seeded = math.isfinite(guarantee.epsilon(guarantee.delta)), FIXED_SEED in guarantee.violations
    others = [VIOLATIONS.get(one, one) for one in guarantee.violations if one != FIXED_SEED]
    return {
        "released": [
            *([] if is_prepared is None else ["What prepared the features, once, before the first step."]),
            f"The weights after every step, not only the last ones{': the guarantee covers all of them' * is_proven}.",
            *([_SCORES[is_held_out]] if is_scored else []),
            "The settings, which were fixed before training.",
        ],
        "not_released": ["Losses, gradient norms, sizes of lots and durations: they tell about private examples."],
        "noise_from": "a fixed seed" if is_seeded else "the operating system's secure source, never stored",
        "is_for_release": is_proven and not guarantee.violations,
        "warnings": [
            *([] if is_proven else ["Nothing finite is proven about this run."]),
            *([_SEEDED] if is_seeded else []),
            *(f"{one[0].upper()}{one[1:]}." for one in others),
        ],
    }


def _is_held_out(metrics: Facts, bounds: Bounds | None) -> bool:
    """Whether test examples are private: rows of the user's own table."""
    told = (metrics.get("data") or {}).get("test")
    return told == "held out" or (told is None and bounds is not None and bounds.test is None)


def _preparation(settings: Facts, metrics: Facts) -> Facts | None:
    """What was released before the first step, as a recipe does; None for other runs."""
    recipe, multiplier = settings.get("recipe"), metrics.get("preparation_multiplier")
    if recipe is None or multiplier is None:
        return None
    words, count = _PREPARATIONS[recipe["preparation"]]
    return {"words": words, "multiplier": multiplier, "releases": count}


def _plan(folder: Path) -> Any:
    """What the run saved of its plan; None for stages of the user's own, and where nothing is saved."""
    from tacit.training import checkpoint

    try:
        return checkpoint.read(folder)["plan"]
    except (TacitError, KeyError):
        return None


def drawn_words(sampling: Any) -> str:
    """How lots are drawn, in words."""
    name = type(sampling).__name__
    return _SAMPLED.get(name, name).format(rate=sampling.lot_size / sampling.population)


def _progress(guarantee: Guarantee, settings: Facts, metrics: Facts, plan: Any) -> Facts:
    """How far the run came; where it was stopped, what is to be counted if that was for what was seen."""
    steps, planned, is_finished = metrics.get("steps"), settings["steps"], metrics.get("is_finished")
    told = {"steps": steps, "planned": planned, "is_finished": is_finished, "caveat": None}
    if is_finished is not False or not math.isfinite(guarantee.epsilon(guarantee.delta)):
        return told
    whole = settings["epsilon"]
    if settings["mode"] == "paper":
        # There the budget is what the paper claims, and not what is proven.
        whole = None if plan is None else finite(curve(plan.total(plan.steps)).epsilon(guarantee.delta))
    amount = "" if whole is None else f", ε = {up(whole)}"
    caveat = (
        f"Stopped after {steps:,} of {planned:,} planned steps, and ε is of those. That holds if the reason had "
        f"nothing to do with the data. If it was stopped for what was seen of it, count all of it{amount}."
    )
    return {**told, "caveat": caveat}


def _mechanism(plan: Any) -> Facts:
    """The stages with their settings, as the run saved them."""
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


def _data(settings: Facts, metrics: Facts, bounds: Bounds | None, is_held_out: bool) -> Facts:
    told = metrics.get("data") or {}
    # Runs of old versions with a seed have a salt that the seed gives away, and this page names the seed.
    fingerprint = told.get("fingerprint") if is_secret_salt(settings.get("salt"), settings.get("seed")) else None
    return {
        "name": settings["data"],
        "target": (settings.get("table") or {}).get("target"),
        "bounds": None if bounds is None else declared(bounds),
        "population": settings["population"],
        "population_is": "declared" if settings.get("is_declared") else "published",
        "test_examples": metrics.get("test_examples"),
        "test": "held out" if is_held_out else "public",
        **{name: told.get(name) for name in ("example", "scaling", "source", "classes", "shape")},
        "fingerprint": fingerprint,
        "fingerprint_in_words": None if fingerprint is None else _FINGERPRINT,
    }


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
    """The command that repeats the run, with its seed if it had one; where the data lie is for the reader to say.

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
            # Every digit, or a seed would not give the same numbers.
            words += [f"--{name.replace('_', '-')}", str(value).removesuffix(".0")]
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
    return [*names, *(["population"] if settings.get("is_declared") else []), "seed"]


def again(settings: Facts, metrics: Facts, *, is_proven: bool) -> list[str]:
    """What to know before the command is used: what will be the same, and what the reader has to bring along."""
    said, is_stopped = [], metrics.get("is_finished") is False
    if settings.get("seed") is not None:
        until = "; it goes to the last step, before which this run was stopped" if is_stopped else ""
        said.append(f"It has the run's seed, so it gives the same numbers with the same versions of everything{until}.")
    elif not is_proven:
        said.append("With fresh noise, so that the numbers differ a little. Nothing is proven about that run either.")
    elif metrics.get("tuning"):
        said.append("It trains once with the settings that were found; the guarantee above is of the whole search.")
    elif is_stopped:
        said.append("With fresh noise, and to the last step: this run was stopped before, so it costs more than this.")
    else:
        said.append("With fresh noise, so that the numbers differ a little; the guarantee does not.")
    if settings.get("table") is not None:
        said.append("The table stays with whoever has it; bounds.toml says what was declared public about it:")
    elif settings.get("data_path"):
        said.append("DATA is your copy of the data.")
    if ":" in (settings.get("model") or ""):
        said.append(f"{Path(settings['model'].rpartition(':')[0]).name} is a file of whoever trained.")
    return said
