"""Figures 3(a), 4(a), 5 and 6 with a learning rate and an epoch for every point, chosen on images that are in no run.

The moments accountant of "Gaussian" has orders up to 512. The full method has its w drawn by chance, which `by_chance`
justifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from experiments.library import Cell, Order, Record, Records, finite, markdown_table
from experiments.library.training import Schedule, split, train, train_without_noise
from matplotlib.figure import Figure

from tacit import Budget

from . import drawing
from .forms import ADACLIP, LARGE, NO_NOISE, mechanism
from .networks import network

MICRO_BATCH = 64
Values = Mapping[str, Any]
# What is named in a run, besides its method and what is varied.
SIZES = ("data", "model", "width", "examples", "held_out", "test_examples", "lot_size", "clip_norm", "epochs", "keep")


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every point at every learning rate. A point of two figures is run for the first of them only."""
    known = set()
    for part, about in order.settings["tuned"].items():
        for form in about["forms"]:
            for asked in _asked(about, form):
                cell = Cell(part, asked, partial(_run, order, asked))
                if str(asked) not in known:
                    known.add(str(asked))
                    yield cell


def _asked(about: Values, form: str) -> Iterator[dict[str, Any]]:
    for value in about["values"]:
        for rate in _rates(about, form):
            if form != NO_NOISE or value == about["values"][0]:
                yield {**_wanted(about, form, value), "rate": rate}


def _wanted(about: Values, form: str, value: float) -> dict[str, Any]:
    """A point of a figure: everything that a run is asked for but the learning rate."""
    sizes = {name: about[name] for name in SIZES if name in about}
    varied = {"epsilon": about.get("epsilon"), **sizes, "form": form, about["varied"]: value}
    return {**varied, "epsilon": None} if form == NO_NOISE else varied


def _rates(about: Values, form: str) -> list[float]:
    if form == NO_NOISE:
        return list(about["rates_without_noise"])
    return list(about["rates_adaclip"] if form in ADACLIP else about["rates"])


def _run(order: Order, asked: Values) -> dict[str, Any]:
    """`rate` is the learning rate times the clip norm; that of AdaClip and of no noise is the learning rate."""
    settings, seed, form = order.settings, order.settings["seed"], asked["form"]
    data, held_out = split(order.load(asked["data"]), asked["examples"], asked["held_out"], asked["test_examples"])
    torch.manual_seed(seed)
    model = network(asked["model"], data.classes, asked.get("width", 1.0))
    if asked["epsilon"] is None:
        schedule = Schedule(asked["lot_size"], asked["epochs"], asked["rate"])
        scores = train_without_noise(model, data, schedule, seed=seed)
        # The last epoch is shown.
        return {"scores": scores, "held_out": list(range(len(scores)))}
    rate = asked["rate"] if form in ADACLIP else asked["rate"] / asked["clip_norm"]
    schedule = Schedule(asked["lot_size"], asked["epochs"], rate)
    about = {**asked, "w": "by chance"}
    budget = Budget(asked["epsilon"], settings["delta"])
    steps = schedule.steps(asked["examples"])
    made, found_by = mechanism(form, about, budget, rate=asked["lot_size"] / asked["examples"], steps=steps, seed=seed)
    micro_batch = MICRO_BATCH if asked["model"] in LARGE else None
    found = train(model, data, made, schedule, seed=seed, budget=found_by, micro_batch=micro_batch, held_out=held_out)
    return {
        "scores": found.scores,
        "held_out": found.held_out,
        "certified": finite(found.guarantee.epsilon(settings["delta"])),
    }


def best_run(records: list[Record], about: Values, form: str, value: float) -> Record | None:
    """The run of a point with the best score on the images held out, at any epoch and learning rate."""
    wanted = _wanted(about, form, value)
    runs = [one for one in records if "held_out" in one.found and wanted.items() <= one.asked.items()]
    return max((run for run in runs if len(run.asked) == len(wanted) + 1), key=_held_out, default=None)


def _held_out(run: Record) -> float:
    found = run.found["held_out"]
    return float(max(found)) if isinstance(found, list) else 0.0


def accuracy(run: Record) -> float:
    """The test accuracy at the epoch that is best on the images held out, in per cent."""
    held_out = run.found["held_out"]
    return float(100 * run.found["scores"][held_out.index(max(held_out))])


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """A table for every figure of which something was run, by the name of its part."""
    found = {part: _table(records, about) for part, about in order.settings["tuned"].items()}
    return {part[:1].upper() + part[1:]: table for part, table in found.items() if table.count("\n") > 1}


def _table(records: list[Record], about: Values) -> str:
    rows = [("method", *(f"{about['name']} {value:.3g}" for value in about["values"]))]
    for form in about["forms"]:
        cells = [_shown(best_run(records, about, form, value)) for value in about["values"]]
        if any(cell != "–" for cell in cells):
            rows.append((form, *cells))
    return markdown_table(rows)


def _shown(run: Record | None) -> str:
    return "–" if run is None else f"{accuracy(run):.1f} %"


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Figures 3(a) and 4(a): over epochs at the least epsilon, and over epsilon; then a panel for all else."""
    drawn, parts = {}, order.settings["tuned"]
    first, *others = parts
    panels = {part: _points(parts[part], records) for part in parts}
    if panels[first]:
        drawn["figure_3a_and_4a"] = drawing.epochs_and_epsilons(_curves(parts[first], records), panels[first])
    rest = {part: (parts[part]["name"], panels[part]) for part in others if panels[part]}
    if rest:
        drawn["figure_5_and_6_tuned"] = drawing.sensitivities(rest)
    return drawn


def _points(about: Values, records: list[Record]) -> dict[str, list[tuple[float, float]]]:
    """(value, accuracy) by method."""
    found = {}
    for form in about["forms"]:
        best = ((value, best_run(records, about, form, value)) for value in about["values"])
        points = [(value, accuracy(run)) for value, run in best if run is not None]
        if points and form != NO_NOISE:
            found[form] = points
    return found


def _curves(about: Values, records: list[Record]) -> dict[str, list[float]]:
    """Test accuracy over epochs at the least epsilon, in per cent."""
    best = {form: best_run(records, about, form, min(about["values"])) for form in about["forms"]}
    return {form: [100 * score for score in run.found["scores"]] for form, run in best.items() if run is not None}
