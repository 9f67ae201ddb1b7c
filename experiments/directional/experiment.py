"""Xiang et al. 2023 again: directional noise as published, at its claimed epsilon, and what has a proof.

As published, noise follows the paper's own rule, and the certified epsilon of that noise stands beside the claim; for
the full method nothing is certified. With a proof, every method gets the noise that is certified for epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from experiments.training import Schedule, train, train_without_noise, with_channels_last
from matplotlib.figure import Figure

from tacit import Budget, methods
from tacit.accounting import Gaussian, curve, multiplier_for
from tacit.experiments import Cell, Order, Record, Records, finite, markdown_table
from tacit.mechanism import Mechanism
from tacit.methods.directional import tau

from . import by_chance, drawing, tiny
from .networks import network

NO_NOISE = "without noise"
# In AdaClip the paper clips 99 % of all gradients, by a gamma of 0.01. Here gamma is the squared length that a whitened
# gradient is expected to have, clipped at 1: with 100 next to all are clipped, with 0.01 next to none would be.
GAMMA = 100.0
PUBLISHED = {
    "Gaussian": partial(methods.dpsgd, mode="paper"),
    "ours, w = 1": partial(methods.directional, mode="paper", variant="w1"),
    "AdaClip": partial(methods.adaclip, mode="paper", gamma=GAMMA),
    # Takes the gradient of all data before every step, unless a set says that w is drawn by chance.
    "ours": partial(methods.directional, mode="paper"),
}
RIGOROUS = {
    "Gaussian, certified (and w = 1)": methods.dpsgd,
    "directional, certified": partial(methods.directional, grain="parameter", objective="l2"),
    "AdaClip, certified": partial(methods.adaclip, gamma=GAMMA),
}
# On ResNet-18 nine tenths of a gradient are set to zero.
PRUNED = {"Gaussian, pruned": partial(methods.pruned, mode="paper"), "pruned, certified": methods.pruned}
# Large networks need much memory for each gradient, and more time than the full method leaves.
LARGE = {
    "alexnet": ("Gaussian, certified (and w = 1)", "Gaussian", "ours, w = 1", "AdaClip"),
    "resnet18": tuple(PRUNED),
}
ADACLIP = ("AdaClip, certified", "AdaClip")
MICRO_BATCH = 16
# Learning rates are chosen by this one.
RATED = "Gaussian, certified (and w = 1)"
SWEPT = ("Gaussian", "ours, w = 1", "ours")


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """What takes no time first, then the runs."""
    settings = order.settings
    for about in settings["published"]:
        for epsilon in about["epsilons"]:
            asked = {**{name: value for name, value in about.items() if name != "epsilons"}, "epsilon": epsilon}
            yield Cell("table 1", asked, partial(_published, about, epsilon, settings["delta"]))
    yield Cell("figure 1", settings["figure1"], partial(tiny.surfaces, **settings["figure1"], seed=settings["seed"]))
    for choice in settings["rates"]:
        for rate in choice["tried"]:
            asked = {"form": RATED, "epsilon": choice["epsilon"], "rate": rate}
            yield Cell("learning rates", asked, partial(_held_out, order, **asked))
    for name, about in settings["sets"].items():
        yield from _set_cells(order, name, about)
    yield from _swept_cells(order, settings["sensitivity"])
    for form in (NO_NOISE, *PUBLISHED):
        asked = {"form": form, **settings["table2"]}
        yield Cell("table 2", asked, partial(_seconds, order, form))


def _set_cells(order: Order, name: str, about: Mapping[str, Any]) -> Iterator[Cell]:
    every = LARGE.get(about["model"], (*RIGOROUS, *PUBLISHED))
    forms = [form for form in every if form not in about.get("left_out", ())]
    if about["epsilons"]:
        yield _cell(order, name, about, NO_NOISE, None)
    for form in forms:
        for epsilon in about["epsilons"]:
            yield _cell(order, name, about, form, epsilon)


def _swept_cells(order: Order, sweep: Mapping[str, Any]) -> Iterator[Cell]:
    """Other lot sizes and clip norms than a set has of its own: those runs are among the set's."""
    usual = order.settings["sets"][sweep["set"]]
    rate = _learning_rate(order, usual, "Gaussian")
    for form in SWEPT:
        for lot_size in sweep["lot_sizes"]:
            if lot_size != usual["lot_size"]:
                yield _cell(order, "figure 5", {**usual, "lot_size": lot_size}, form, sweep["lot_epsilon"])
        for clip_norm in sweep["clip_norms"]:
            if clip_norm != usual["clip_norm"]:
                # One learning rate for all clip norms, as one reads the paper: noise grows with the clip norm.
                about = {**usual, "clip_norm": clip_norm, "rate_times_clip": rate * clip_norm}
                yield _cell(order, "figure 6", about, form, sweep["clip_epsilon"])


def _cell(order: Order, part: str, about: Mapping[str, Any], form: str, epsilon: float | None) -> Cell:
    unused = ("epsilons", "left_out", *(() if form in ADACLIP else ("rate_adaclip",)))
    asked = {name: value for name, value in about.items() if name not in unused}
    return Cell(part, {**asked, "form": form, "epsilon": epsilon}, partial(_run, order, about, form, epsilon))


def _published(about: Mapping[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
    """The noise of the paper's rule with w = 1, what is certified of it, and the noise that would do."""
    rate = about["lot_size"] / about["population"]
    steps = round(about["epochs"] / rate)
    multiplier = 1 / math.sqrt(tau(epsilon / rate, delta / rate, steps))
    certified = curve(Gaussian(multiplier).sampled(rate) * steps).epsilon(delta)
    enough = multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=steps)
    return {"multiplier": round(multiplier, 4), "certified": round(certified, 4), "enough": round(enough, 4)}


def _mechanism(form: str, clip_norm: float) -> Mechanism:
    return {**PUBLISHED, **RIGOROUS, **PRUNED}[form](clip_norm)


def _learning_rate(order: Order, about: Mapping[str, Any], form: str) -> float:
    if form in ADACLIP and "rate_adaclip" in about:
        return float(about["rate_adaclip"])
    return float(about.get("rate_times_clip", order.settings["rate_times_clip"]) / about["clip_norm"])


def _part(order: Order, name: str, examples: int, test_examples: int | None = None) -> Any:
    data = order.load(name)
    kept, tested = slice(examples), slice(test_examples)
    train, test = tuple(part[kept] for part in data.train), tuple(part[tested] for part in data.test)
    return replace(data, train=train, test=test)


def _run(order: Order, about: Mapping[str, Any], form: str, epsilon: float | None) -> dict[str, Any]:
    data, settings = _part(order, about["data"], about["examples"], about.get("test_examples")), order.settings
    torch.manual_seed(settings["seed"])
    model = network(about["model"], data.classes)
    if epsilon is None:
        schedule = Schedule(about["lot_size"], about["epochs"], 0.1)
        return {"scores": train_without_noise(model, data, schedule, seed=settings["seed"])}
    schedule = Schedule(about["lot_size"], about["epochs"], _learning_rate(order, about, form))
    mechanism: Mechanism = _mechanism(form, about["clip_norm"])
    budget: Budget | None = Budget(epsilon, settings["delta"])
    if form == "ours" and about.get("w") == "by chance":
        rate, steps = about["lot_size"] / len(data.train[0]), schedule.steps(len(data.train[0]))
        mechanism = by_chance.full_method(
            about["clip_norm"], rate, steps, epsilon, settings["delta"], seed=settings["seed"]
        )
        budget = None
    micro_batch = MICRO_BATCH if about["model"] in LARGE else None
    found = train(model, data, mechanism, schedule, seed=settings["seed"], budget=budget, micro_batch=micro_batch)
    return {
        "scores": found.scores,
        "certified": finite(found.guarantee.epsilon(settings["delta"])),
        "status": str(found.guarantee.status),
    }


def _held_out(order: Order, form: str, epsilon: float, rate: float) -> dict[str, Any]:
    """The best accuracy on training images that are left out, over the epochs of one run."""
    about, settings = order.settings["sets"]["mnist"], order.settings
    whole = order.load(about["data"])
    kept, left = ([part[where] for part in whole.train] for where in _around(about["examples"]))
    data = replace(whole, train=tuple(kept), test=tuple(left))
    torch.manual_seed(settings["seed"])
    schedule = Schedule(about["lot_size"], about["epochs"], rate / about["clip_norm"])
    budget, mechanism = Budget(epsilon, settings["delta"]), _mechanism(form, about["clip_norm"])
    model = network(about["model"], data.classes)
    found = train(model, data, mechanism, schedule, seed=settings["seed"], budget=budget)
    return {"held_out": max(found.scores)}


def _around(place: int) -> tuple[slice, slice]:
    return slice(place), slice(place, None)


def _seconds(order: Order, form: str) -> dict[str, Any]:
    """Processor seconds of one step, everything included."""
    about, mnist = order.settings["table2"], order.settings["sets"]["mnist"]
    data = _part(order, "mnist", about["examples"])
    torch.manual_seed(order.settings["seed"])
    model = with_channels_last(network("lenet", data.classes))
    epochs = about["steps"] * about["lot_size"] / len(data.train[0])
    schedule = Schedule(about["lot_size"], epochs, 0.1)
    if form == NO_NOISE:
        return {"seconds": round(tiny.plain_step_seconds(model, data, about["lot_size"], about["steps"]), 4)}
    mechanism = _mechanism(form, mnist["clip_norm"])
    budget = Budget(1.0, order.settings["delta"])
    found = train(model, data, mechanism, schedule, seed=order.settings["seed"], budget=budget)
    return {"seconds": round(found.seconds_per_step, 4)}


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Tables 1 and 2; figures 3 to 6 as tables; what the paper says of them, judged."""
    return {
        "Table 1": _table_1(records),
        "Table 2": _table_2(order, records),
        "Learning rates": _rates(records),
        "By chance": _by_chance(order),
        "Figures 3 and 4": _accuracies(order, records),
        "Statements": _statements(order, records),
        "Figures 5 and 6": _sensitivity(order, records),
    }


def _of(records: list[Record], part: str) -> list[Record]:
    return [record for record in records if record.part == part]


def _table_1(records: list[Record]) -> str:
    head = ("set", "lots", "epochs", "claimed ε", "multiplier of the rule", "certified ε", "multiplier that would do")
    rows = [head]
    for record in _of(records, "table 1"):
        asked, found = record.asked, record.found
        lots = f"{asked['lot_size']} of {asked['population']:,}"
        about = (asked["set"], lots, f"{asked['epochs']}", f"{asked['epsilon']:g}", f"{found['multiplier']:.3f}")
        rows.append((*about, f"{found['certified']:.4f}", f"{found['enough']:.3f}"))
    return markdown_table(rows)


def _table_2(order: Order, records: list[Record]) -> str:
    paper, ours = order.expected["table2"], {r.asked["form"]: r.found["seconds"] for r in _of(records, "table 2")}
    rows = [("method", "paper, seconds a batch", "beside Gaussian", "here, seconds a lot of 512", "beside Gaussian")]
    for form, seconds in paper.items():
        here = ("not run", "–")
        if form in ours and "Gaussian" in ours:
            here = (f"{ours[form]:.3f}", f"{ours[form] / ours['Gaussian']:.2f}")
        rows.append((form, f"{seconds:.2f}", f"{seconds / paper['Gaussian']:.2f}", *here))
    return markdown_table(rows)


def _rates(records: list[Record]) -> str:
    rows = [("learning rate times clip norm", "method", "ε", "best accuracy on images left out")]
    for record in _of(records, "learning rates"):
        asked, score = record.asked, record.found["held_out"]
        rows.append((f"{asked['rate']:g}", asked["form"], f"{asked['epsilon']:g}", f"{100 * score:.1f} %"))
    return markdown_table(rows)


def _by_chance(order: Order) -> str:
    """How little a w without its mean changes."""
    about, delta = order.settings["sets"]["mnist"], order.settings["delta"]
    steps = round(about["epochs"] * about["examples"] / about["lot_size"])
    rows = [
        ("claimed ε", "noise on w over the length of its mean, at least", "total variation of a whole run, at most")
    ]
    for epsilon in about["epsilons"]:
        multiplier = by_chance.noise_on_w(steps, epsilon, delta)
        rows.append((f"{epsilon:g}", f"{multiplier:,.0f}", f"{by_chance.distance(steps, epsilon, delta):.4f}"))
    return markdown_table(rows)


def _accuracies(order: Order, records: list[Record]) -> str:
    rows = [("set", "method", "ε asked for", "last accuracy", "best accuracy", "certified ε")]
    for name in order.settings["sets"]:
        for record in _of(records, name):
            asked, found = record.asked, record.found
            epsilon = "–" if asked["epsilon"] is None else f"{asked['epsilon']:g}"
            scores = (f"{100 * found['scores'][-1]:.1f} %", f"{100 * max(found['scores']):.1f} %")
            rows.append((f"{name}, {asked['epochs']} epochs", asked["form"], epsilon, *scores, _certified(found)))
    return markdown_table(rows)


def _certified(found: Mapping[str, Any]) -> str:
    if "certified" not in found:
        return "–"
    return "nothing" if found["certified"] is None else f"{found['certified']:.4f}"


def _statements(order: Order, records: list[Record]) -> str:
    """By the best accuracy during training, which is what the paper reports. Large networks learn nothing here."""
    best = {
        (r.part, r.asked["form"], r.asked.get("epsilon")): max(r.found["scores"])
        for r in records
        if "scores" in r.found
    }
    rows = [("what the paper says", "holds here at equal claimed ε")]
    for one in order.expected["statements"]:
        held = [
            best[name, one["first"], epsilon] > best[name, one["second"], epsilon]
            for name in one["sets"]
            for epsilon in order.settings["sets"][name]["epsilons"]
            if {(name, one["first"], epsilon), (name, one["second"], epsilon)} <= best.keys()
        ]
        rows.append((one["text"], f"{sum(held)} of {len(held)}" if held else "not run"))
    return markdown_table(rows)


def _sensitivity(order: Order, records: list[Record]) -> str:
    rows = [("varied", "method", "claimed ε", "best accuracy", "certified ε")]
    lots, clips = _sweeps(order, records)
    for runs, name, word in ((lots, "lot_size", "lot size"), (clips, "clip_norm", "clip norm")):
        for record in sorted(runs, key=lambda run: (SWEPT.index(run.asked["form"]), run.asked[name])):
            asked, found = record.asked, record.found
            about = (f"{word} {asked[name]:g}", asked["form"], f"{asked['epsilon']:g}")
            rows.append((*about, f"{100 * max(found['scores']):.1f} %", _certified(found)))
    return markdown_table(rows) if len(rows) > 1 else "Not run."


def _sweeps(order: Order, records: list[Record]) -> tuple[list[Record], list[Record]]:
    """The runs of figures 5 and 6, with those that are among their set's."""
    sweep = order.settings["sensitivity"]
    return (
        _sweep(records, "figure 5", sweep["set"], sweep["lot_epsilon"]),
        _sweep(records, "figure 6", sweep["set"], sweep["clip_epsilon"]),
    )


def _sweep(records: list[Record], part: str, usual: str, epsilon: float) -> list[Record]:
    varied = _of(records, part)
    shared = [run for run in _of(records, usual) if run.asked["form"] in SWEPT and run.asked["epsilon"] == epsilon]
    return [*varied, *shared] if varied else []


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Figures 1 to 6."""
    drawn = {"figure_2": drawing.water_filling()}
    for record in _of(records, "figure 1"):
        drawn["figure_1"] = drawing.surfaces(record.found)
    if _of(records, "mnist"):
        drawn["figure_3"] = drawing.over_epochs(_of(records, "mnist"), max(order.settings["sets"]["mnist"]["epsilons"]))
        drawn["figure_4"] = drawing.over_epsilon(_of(records, "mnist"), tuple(PUBLISHED), tuple(RIGOROUS))
    lots, clips = _sweeps(order, records)
    if lots or clips:
        drawn["figure_5_and_6"] = drawing.sensitivity(lots, clips)
    return drawn
