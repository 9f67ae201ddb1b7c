"""Figures 2 to 5 and 7 with a learning rate of its own for every curve, chosen on training images that are in no run.

Sigma is the scale of the noise, as the paper has it: of nine degrees of freedom, Student-t noise of scale 1 has
standard deviation 1.134. Denoising is run by the paper's literal rule and relative to pure noise. The two differ by a
constant factor of the learning rate, 0.87 over the root of the dimension: at its best rate each does the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import Schedule, split, train

from tacit import Poisson, methods
from tacit.accounting import Event, curve
from tacit.stages.bounds import DrawnVectors, Profile
from tacit.stages.mechanism import Mechanism
from tacit.stages.post import KSDenoise
from tacit.workflows.defaults import network_for

from . import as_published

# The standard deviation of Student-t noise with 9 degrees of freedom and scale 1.
STD_OF_SCALE_ONE = math.sqrt(9 / 7)
NAMES = {"dpsgd": "DP-SGD", "gaussian": "encoded, Gaussian", "student_t": "encoded, Student-t"}
DENOISED = {"no": "no", "literal": "literal rule", "relative": "relative rule"}
Values = Mapping[str, Any]


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """The learning rates of every curve; then what is run at the best of them."""
    about = order.settings["tuned"]
    for form, denoise in curves():
        for rate in about["rates"][denoise]:
            yield _cell(order, "figures 4, 5 and 7", form, denoise, rate)
    done = records.read()
    pair = about["counterexamples"]
    yield Cell("counterexamples", pair, partial(as_published.counterexamples, **pair))
    plain = best_rate(done, "gaussian", "no")
    if plain is not None:
        for changed in ({"vectors": about["vectors"]}, {"micro_batch": 2}, {"lots": "with replacement"}):
            yield _cell(order, "as published", "gaussian", "no", plain, **changed)
    for form in NAMES:
        denoise = shown_denoising(form)
        rate = best_rate(done, form, denoise)
        if rate is None:
            continue
        for scale in about["scales"][form]:
            if scale != about["compared"][form]:
                yield _cell(order, "figure 2", form, denoise, rate, scale=scale)
        for lot_size in about["lot_sizes"]:
            if lot_size != about["lot_size"]:
                yield _cell(order, "figure 3", form, denoise, rate, lot_size=lot_size)


def curves() -> list[tuple[str, str]]:
    """Every method with every kind of denoising."""
    return [("dpsgd", "no"), *((form, denoise) for form in ("gaussian", "student_t") for denoise in DENOISED)]


def shown_denoising(form: str) -> str:
    """The paper denoises its own methods; the relative rule has the more usual learning rates."""
    return "no" if form == "dpsgd" else "relative"


def _cell(order: Order, part: str, form: str, denoise: str, rate: float, **changed: Any) -> Cell:
    about = order.settings["tuned"]
    sizes = {name: about[name] for name in ("data", "examples", "lot_size", "epochs", "held_out", "test_examples")}
    asked = {"form": form, "denoise": denoise, "rate": rate, "scale": about["compared"][form], **sizes, **changed}
    return Cell(part, asked, partial(_run, order, asked))


def mechanism(asked: Values, clip: float) -> Mechanism:
    """The method of a run; `scale` is that of the noise over the clip norm."""
    form, scale = asked["form"], asked["scale"]
    if form == "dpsgd":
        return methods.dpsgd(clip, scale)
    vectors = DrawnVectors(asked["vectors"]) if asked.get("vectors", 1) > 1 else Profile()
    std = scale * STD_OF_SCALE_ONE if form == "student_t" else scale
    plain = methods.encoded(clip, std, noise=form, vectors=vectors, denoise=False)
    if asked["denoise"] == "no":
        return plain
    return replace(plain, post=(KSDenoise(is_relative=asked["denoise"] == "relative"),))


def _run(order: Order, asked: Values) -> dict[str, Any]:
    data, held_out = split(order.load(asked["data"]), asked["examples"], asked["held_out"], asked["test_examples"])
    seed = order.settings["seed"]
    torch.manual_seed(seed)
    model = network_for("cnn", data)
    made = mechanism(asked, order.settings["clip_norm"])
    schedule = Schedule(asked["lot_size"], asked["epochs"], asked["rate"])
    population, sampling = asked["examples"], None
    if "micro_batch" in asked:
        made = as_published.micro_batches(made, asked["micro_batch"])
    if "lots" in asked:
        sampling = as_published.WithReplacement(asked["lot_size"], population)
    found = train(model, data, made, schedule, seed=seed, population=population, sampling=sampling, held_out=held_out)
    if sampling is not None or "micro_batch" in asked:
        return {"scores": found.scores, "held_out": found.held_out}
    dimension = sum(parameter.numel() for parameter in model.parameters())
    # The box around a thousand vectors is wide, and no example fills it: the cost shown is that of one vector.
    counted = mechanism({**asked, "vectors": 1}, order.settings["clip_norm"])
    step = Poisson(asked["lot_size"], asked["examples"]).amplify(counted.noise.event(dimension))
    certified = [_epsilon(step, steps, order.settings["delta"]) for steps in found.scored_at]
    return {"scores": found.scores, "held_out": found.held_out, "certified": certified}


@lru_cache(maxsize=64)
def _epsilon(step: Event, steps: int, delta: float) -> float:
    return round(curve(step * steps).epsilon(delta), 4)


def runs_of(records: list[Record], form: str, denoise: str) -> list[Record]:
    """The runs of a curve of figures 4, 5 and 7, at every learning rate."""
    wanted = {"form": form, "denoise": denoise}
    return [one for one in records if one.part == "figures 4, 5 and 7" and wanted.items() <= one.asked.items()]


def best_run(records: list[Record], form: str, denoise: str) -> Record | None:
    """The run with the best last score on the images held out."""
    return max(runs_of(records, form, denoise), key=lambda run: run.found["held_out"][-1], default=None)


def best_rate(records: list[Record], form: str, denoise: str) -> float | None:
    """The learning rate of that run."""
    found = best_run(records, form, denoise)
    return None if found is None else float(found.asked["rate"])


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Figures 4, 5 and 7; figures 2 and 3; what the proof does not cover."""
    found = {
        "Figures 4, 5 and 7": _curves(order, records),
        "Levels and rates": _levels(order, records),
        "As published": _published(order, records),
    }
    return {name: table for name, table in found.items() if table.count("\n") > 1}


def _curves(order: Order, records: list[Record]) -> str:
    wanted = order.settings["tuned"]["accuracies"]
    head = ("method", "denoised", "learning rate: accuracy held out", "test accuracy", "certified ε")
    rows = [(*head, *(f"epochs to {100 * accuracy:.0f} %" for accuracy in wanted))]
    for form, denoise in curves():
        best = best_run(records, form, denoise)
        if best is None:
            continue
        tried = sorted(runs_of(records, form, denoise), key=lambda run: run.asked["rate"])
        shown = ", ".join(f"{run.asked['rate']:g}: {100 * run.found['held_out'][-1]:.1f}" for run in tried)
        scores = best.found["scores"]
        first = [next((str(n) for n, score in enumerate(scores, 1) if score >= w), "–") for w in wanted]
        last = (f"{100 * scores[-1]:.1f} %", f"{best.found['certified'][-1]:.2f}")
        rows.append((f"{NAMES[form]}, σ = {best.asked['scale']:g}", DENOISED[denoise], shown, *last, *first))
    return markdown_table(rows)


def _levels(order: Order, records: list[Record]) -> str:
    rows = [("figure", "method", "σ", "lots of", "test accuracy", "certified ε")]
    for part in ("figure 2", "figure 3"):
        for form in NAMES:
            runs = [one for one in records if one.part == part and one.asked["form"] == form]
            best = best_run(records, form, shown_denoising(form))
            for run in sorted([*runs, *([best] if best and runs else [])], key=_place):
                asked, found = run.asked, run.found
                shown = (f"{asked['scale']:g}", f"{asked['lot_size']:g}", f"{100 * found['scores'][-1]:.1f} %")
                rows.append((part.removeprefix("figure "), NAMES[form], *shown, f"{found['certified'][-1]:.2f}"))
    return markdown_table(rows)


def _place(run: Record) -> tuple[float, float]:
    return run.asked["scale"], run.asked["lot_size"]


def _published(order: Order, records: list[Record]) -> str:
    """Runs with what the proof does not cover, beside the one that it does."""
    rows = [("encoded, Gaussian, not denoised", "test accuracy", "certified ε")]
    best = best_run(records, "gaussian", "no")
    runs = [one for one in records if one.part == "as published"]
    for run in [*([best] if best and runs else []), *runs]:
        asked, found = run.asked, run.found
        name = "one vector, one example an encoding, Poisson lots"
        name = f"{asked['vectors']} vectors" if "vectors" in asked else name
        name = f"micro-batches of {asked['micro_batch']}" if "micro_batch" in asked else name
        name = "lots with replacement" if "lots" in asked else name
        certified = f"{found['certified'][-1]:.2f}" if "certified" in found else "nothing"
        rows.append((name, f"{100 * found['scores'][-1]:.1f} %", certified))
    return markdown_table(rows)
