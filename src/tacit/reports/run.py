"""The facts of a run's report, read from its folder. Only what may be published is read."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from tacit.accounting import curve
from tacit.datasets import Bounds
from tacit.errors import InvalidArgument, TacitError
from tacit.guarantee import Guarantee, finite
from tacit.ledger import is_secret_salt
from tacit.reports.curves import Spending, Tradeoff
from tacit.reports.facts import (
    Facts,
    describe_release,
    describe_sampling,
    describe_versions,
    find_certified_curve,
    list_guarantee,
)
from tacit.reports.scores import read_utility
from tacit.reports.settings import (
    collect_settings,
    command_of,
    describe_bounds,
    describe_plan_settings,
    describe_settings,
    explain_command,
    read_bounds,
)
from tacit.reports.wording import up
from tacit.training.folder import RunFolder, read_checkpoint

SCHEMA = "tacit-report/1"
_TUNING = (
    "Not included: this page is about one run. If settings were chosen by looking at other runs on the same "
    "data, those runs cost privacy too; a ledger adds them up."
)

_FINGERPRINT = (
    "The fingerprint identifies the data without revealing them: it is a SHA-256 of the data and of a secret that "
    "stays in the run's folder."
)
_OWN_PROGRAM = (
    "This run was made by a program that calls PrivateRun. To repeat it, run that program again: everything that "
    "decides the guarantee is listed above. How the model scores is not known to tacit."
)
_PREPARATIONS = {
    "centring": ("the mean of the features, which is subtracted from every row", 1),
    "whitening": ("the mean and then the second moments of the features, which partly whiten every row", 2),
    "whitening and counts": (
        "the mean and the second moments of the features, which partly whiten every row, and the counts of cells",
        3,
    ),
    "word weights": ("the mean of the features, which gives frequent words less weight", 1),
}


def read_run(folder: Path) -> Facts:
    """The facts of the report of the run in this folder."""
    run, tree = RunFolder(folder), dict[str, Any]()
    # Nothing may be saved, or stages of the user's own.
    with suppress(TacitError):
        tree = read_checkpoint(folder)
    if "plan" in tree and run.guarantee.is_file() and not run.settings.exists():
        return _read_own_program(folder, tree, run.read_guarantee())
    settings, guarantee, metrics = _read_files(run)
    plan, bounds = tree.get("plan"), read_bounds(settings)
    is_held_out = _is_held_out(metrics, bounds)
    preparation = _describe_preparation(settings, metrics)
    whole = collect_settings(settings, metrics.get("multiplier"), is_tuned=bool(metrics.get("tuning")))
    return {
        "title": f"{guarantee.method}{' by recipe' if settings.get('recipe') else ''} on {settings['data']}",
        **_describe_proof(guarantee, tree, is_test_public=not is_held_out),
        "release": describe_release(
            guarantee, is_held_out=is_held_out, is_prepared=preparation, is_scored=bool(metrics.get("test"))
        ),
        "tuning": metrics.get("tuning") or _TUNING,
        "preparation": preparation,
        "settings": whole,
        "settings_in_words": [*describe_settings(whole), *_describe_backend(tree)],
        "progress": _describe_progress(guarantee, whole, metrics, plan),
        "data": _describe_data(settings, metrics, bounds, is_held_out),
        "utility": read_utility(
            metrics, _read_json(run.baseline), is_held_out=is_held_out, delta=guarantee.delta, unit=guarantee.unit
        ),
        "audit": _read_audit(run),
        "command": command_of(settings),
        "command_in_words": explain_command(
            settings, metrics, is_proven=math.isfinite(guarantee.epsilon(guarantee.delta))
        ),
    }


def _read_files(run: RunFolder) -> tuple[Facts, Guarantee, Facts]:
    try:
        return dict(json.loads(run.settings.read_text(encoding="utf-8"))), run.read_guarantee(), run.read_metrics()
    except OSError as error:
        raise InvalidArgument(
            f"There is no run in {run.path}: {Path(str(error.filename)).name} cannot be read ({error.strerror}). Give "
            "a folder that tacit train --out or tacit compare --out has written."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"{run.path} holds no run written by tacit train: {error}.") from error


def _is_held_out(metrics: Facts, bounds: Bounds | None) -> bool:
    """Whether test examples are private rows of the user's own table."""
    written = (metrics.get("data") or {}).get("test")
    return written == "held out" or (written is None and bounds is not None and bounds.test is None)


def _describe_preparation(settings: Facts, metrics: Facts) -> Facts | None:
    """The releases of a recipe before the first step; None for other runs."""
    recipe, multiplier = settings.get("recipe"), metrics.get("preparation_multiplier")
    if recipe is None or multiplier is None:
        return None
    words, count = _PREPARATIONS[recipe["preparation"]]
    return {"words": words, "multiplier": multiplier, "releases": count}


def _describe_backend(tree: Facts) -> list[list[str]]:
    """How gradients of single examples were computed, and why, if the save says so."""
    return [["Gradients of single examples", tree["backend"]]] if tree.get("backend") else []


def _read_own_program(folder: Path, tree: Facts, guarantee: Guarantee) -> Facts:
    """The facts of a `PrivateRun` of the user's own program, which saved it into this folder: its plan and its cost."""
    plan, steps, seed = tree["plan"], sum(times for _, times in tree["events"]), tree["seed"]
    units = "people" if guarantee.unit == "person" else "examples"
    about, sampling = plan.mechanism.method, plan.sampling
    budget = None if plan.budget is None else plan.budget.epsilon
    settings = {
        "method": about.name, "mode": about.mode, "epsilon": budget, "delta": guarantee.delta, "units": units,
        "multiplier": plan.mechanism.noise.multiplier, "population": sampling.population,
        "population_is": "declared", "lot_size": sampling.lot_size, "rate": sampling.lot_size / sampling.population,
        "steps": plan.steps, "micro_batch": tree["micro_batch"], "seed": seed, "is_in_ledger": bool(tree["ledger"]),
    }  # fmt: skip
    metrics = {"steps": steps, "is_finished": steps >= plan.steps}
    return {
        "title": f"{about.name}, a run of your own program",
        **_describe_proof(guarantee, tree, is_test_public=False),
        "release": describe_release(guarantee, is_held_out=False, is_prepared=None, is_scored=False),
        "tuning": _TUNING,
        "preparation": None,
        "settings": settings,
        "settings_in_words": [*describe_plan_settings(settings), *_describe_backend(tree)],
        "progress": _describe_progress(guarantee, settings, metrics, plan),
        "data": {
            "name": "given to PrivateRun", "population": sampling.population, "population_is": "declared",
            "test": "none", **dict.fromkeys(
                ("target", "bounds", "test_examples", "example", "scaling", "source", "classes", "shape",
                 "fingerprint", "fingerprint_in_words")
            ),
        },
        "utility": read_utility({}, None, is_held_out=False),
        "audit": None,
        "command": None,
        "command_in_words": [_OWN_PROGRAM],
    }  # fmt: skip


def _describe_proof(guarantee: Guarantee, tree: Facts, *, is_test_public: bool) -> Facts:
    """What follows from the guarantee and from the saved plan, of any run."""
    certified, plan = find_certified_curve(guarantee.event), tree.get("plan")
    spent = None if certified is None else Spending.of(guarantee.event, guarantee.delta)
    implemented = None if plan is None else describe_sampling(plan.sampling)
    return {
        "schema": SCHEMA,
        "kind": "run",
        "made": describe_versions(),
        "guarantee": list_guarantee(guarantee, spent, implemented=implemented, is_test_public=is_test_public),
        "tradeoff": None if certified is None else asdict(Tradeoff.of(certified, guarantee.delta)),
        "epsilon_over_steps": None if spent is None else asdict(spent),
        "mechanism": None if plan is None else _describe_mechanism(plan),
        "backend": tree.get("backend"),
    }


def _describe_progress(guarantee: Guarantee, settings: Facts, metrics: Facts, plan: Any) -> Facts:
    """How many steps were made; for a run stopped early, also the cost if intermediate results were the reason."""
    steps, planned, is_finished = metrics.get("steps"), settings["steps"], metrics.get("is_finished")
    about = {"steps": steps, "planned": planned, "is_finished": is_finished, "caveat": None}
    if is_finished is not False or not math.isfinite(guarantee.epsilon(guarantee.delta)):
        return about
    whole = settings["epsilon"]
    if settings["mode"] == "paper":
        # The budget of a published form is a claim, not a proof.
        whole = None if plan is None else finite(curve(plan.total(plan.steps)).epsilon(guarantee.delta))
    amount = "" if whole is None else f", ε = {up(whole)}"
    caveat = (
        f"The run stopped after {steps:,} of {planned:,} planned steps, and ε covers those. If intermediate results "
        f"made you stop, count the full planned budget{amount}."
    )
    return {**about, "caveat": caveat}


def _describe_mechanism(plan: Any) -> Facts:
    """The saved stages with their settings."""
    mechanism = plan.mechanism
    return {
        "stages": [
            _describe_stage("bound", mechanism.bound),
            *([] if mechanism.guide is None else [_describe_stage("guide", mechanism.guide)]),
            _describe_stage("noise", mechanism.noise),
            *(_describe_stage("post", post) for post in mechanism.post),
        ],
        "sampling": _describe_stage("sampling", plan.sampling),
        "numbers_released_per_step": plan.dimension,
        "method": mechanism.method.name,
        "paper": mechanism.method.source,
        "mode": mechanism.method.mode,
    }


def _describe_stage(place: str, stage: Any) -> Facts:
    settings = {field.name: _to_plain(getattr(stage, field.name)) for field in fields(stage) if field.init}
    return {"place": place, "name": type(stage).__name__, "settings": settings}


def _to_plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return repr(value) if is_dataclass(value) or len(repr(value)) < 200 else type(value).__name__


def _describe_data(settings: Facts, metrics: Facts, bounds: Bounds | None, is_held_out: bool) -> Facts:
    written = metrics.get("data") or {}
    # Earlier versions derived the salt from the seed, and this page names the seed.
    fingerprint = written.get("fingerprint") if is_secret_salt(settings.get("salt"), settings.get("seed")) else None
    return {
        "name": settings["data"],
        "target": (settings.get("table") or {}).get("target"),
        "bounds": None if bounds is None else describe_bounds(bounds),
        "population": settings["population"],
        "population_is": "declared" if settings.get("is_declared") else "published",
        "test_examples": metrics.get("test_examples"),
        "test": "held out" if is_held_out else "public",
        **{name: written.get(name) for name in ("example", "scaling", "source", "classes", "shape")},
        "fingerprint": fingerprint,
        "fingerprint_in_words": None if fingerprint is None else _FINGERPRINT,
    }


def _read_audit(run: RunFolder) -> Facts | None:
    """The result with canaries. That of attacks on the real members depends on private data, and is left out."""
    written = (_read_json(run.audit_result) or {}).get("audit")
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


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
