"""Xiang et al. 2023 again: directional noise as published, at its claimed epsilon, and what has a proof.

As published, noise follows the paper's own rule, and the certified epsilon of that noise stands beside the claim; for
the full method nothing is certified. With a proof, every method gets the noise that is certified for epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from experiments.library import Cell, Order, Record, Records, finite, markdown_table, summary_table
from experiments.library.training import Schedule, Trained, train, train_without_noise, with_channels_last
from matplotlib.figure import Figure

from tacit import Budget
from tacit.accounting import Gaussian, curve, multiplier_for
from tacit.methods.directional import tau

from . import by_chance, drawing, summary, tiny, tuned
from .forms import (
    ADACLIP,
    FEW_ORDERS,
    LARGE,
    NO_NOISE,
    PRUNED,
    PRUNED_RIGOROUS,
    PUBLISHED,
    RIGOROUS,
    few_orders_multiplier,
    forms_of,
    mechanism,
)
from .networks import network

# Large networks take much memory for each example.
MICRO_BATCH = 64


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """What takes no time first, then the runs."""
    settings = order.settings
    for about in settings["published"]:
        for epsilon in about["epsilons"]:
            asked = {**{name: value for name, value in about.items() if name != "epsilons"}, "epsilon": epsilon}
            yield Cell("table 1", asked, partial(_published, about, epsilon, settings["delta"]))
    yield Cell("figure 1", settings["figure1"], partial(tiny.surfaces, **settings["figure1"], seed=settings["seed"]))
    yield Cell("orders", settings["orders"], partial(_orders, **settings["orders"]))
    for choice in settings["rates"]:
        for rate in choice["tried"]:
            yield _rate_cell(order, choice, rate)
    for name, about in settings["sets"].items():
        yield from _set_cells(order, name, about)
    for sweep in settings["sweeps"]:
        yield from _swept_cells(order, sweep)
    yield from _timed_cells(order)
    yield from tuned.cells(order, records)


def _timed_cells(order: Order) -> Iterator[Cell]:
    """Only the full method depends on how many images there are."""
    about = order.settings["table2"]
    for form in (NO_NOISE, *PUBLISHED):
        for examples in about["examples"] if form == "ours" else about["examples"][:1]:
            asked = {**about, "form": form, "examples": examples}
            yield Cell("table 2", asked, partial(_seconds, order, form, examples))


def _rate_cell(order: Order, choice: Mapping[str, Any], rate: float) -> Cell:
    """Some images have to be left out: where a set takes all of them, the choice takes `at_most` so many."""
    usual = order.settings["sets"][choice["set"]]
    about = {**usual, "examples": min(usual["examples"], choice["at_most"])}
    asked = {"form": choice["form"], "epsilon": choice["epsilon"], "rate": rate}
    # Runs on MNIST are on record from when there was no other set.
    if choice["set"] != "mnist":
        asked |= {
            "set": choice["set"],
            **{name: about[name] for name in ("examples", "lot_size", "epochs", "clip_norm")},
        }
    return Cell("learning rates", asked, partial(_held_out, order, about, choice["form"], choice["epsilon"], rate))


def _set_cells(order: Order, name: str, about: Mapping[str, Any]) -> Iterator[Cell]:
    if about["epsilons"]:
        yield _cell(order, name, about, NO_NOISE, None)
    for form in forms_of(about):
        for epsilon in about["epsilons"]:
            yield _cell(order, name, about, form, epsilon)
    for epsilon in about.get("few_orders", []):
        yield _cell(order, name, about, FEW_ORDERS, epsilon)


def _swept_cells(order: Order, sweep: Mapping[str, Any]) -> Iterator[Cell]:
    """Other lot sizes, clip norms and pruning than a set has of its own: those runs are among the set's."""
    usual, varied = order.settings["sets"][sweep["set"]], sweep["varied"]
    for form in sweep["forms"]:
        for value in sweep["values"]:
            if value != usual[varied]:
                about = {**usual, varied: value}
                if varied == "clip_norm":
                    # One learning rate for all clip norms, as one reads the paper: noise grows with the clip norm.
                    about["rate_times_clip"] = _learning_rate(order, usual, form) * value
                yield _cell(order, sweep["figure"], about, form, sweep["epsilon"])


def _cell(order: Order, part: str, about: Mapping[str, Any], form: str, epsilon: float | None) -> Cell:
    own_rates = {"rate_adaclip": form in ADACLIP, "rate_without_noise": form == NO_NOISE}
    asked = {
        name: value
        for name, value in about.items()
        if name not in ("epsilons", "left_out", "only", "few_orders") and own_rates.get(name, True)
    }
    return Cell(part, {**asked, "form": form, "epsilon": epsilon}, partial(_run, order, about, form, epsilon))


def _published(about: Mapping[str, Any], epsilon: float, delta: float) -> dict[str, Any]:
    """The noise of the paper's rule with w = 1, what is certified of it, and the noise that would do."""
    rate = about["lot_size"] / about["population"]
    steps = round(about["epochs"] / rate)
    multiplier = 1 / math.sqrt(tau(epsilon / rate, delta / rate, steps))
    certified = curve(Gaussian(multiplier).sampled(rate) * steps).epsilon(delta)
    enough = multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=steps)
    return {"multiplier": round(multiplier, 4), "certified": round(certified, 4), "enough": round(enough, 4)}


def _orders(lot_size: float, population: int, epochs: float, epsilon: float, delta: float) -> dict[str, float]:
    """The noise of the moments accountant with orders up to 63 and up to 512, and that of the rule with w = 1."""
    rate = lot_size / population
    steps = round(epochs / rate)
    many = multiplier_for(epsilon=epsilon, delta=delta, rate=rate, steps=steps, by="moments")
    few = few_orders_multiplier(Budget(epsilon, delta), rate, steps)
    rule = 1 / math.sqrt(tau(epsilon / rate, delta / rate, steps))
    return {"few": round(few, 3), "many": round(many, 3), "rule": round(rule, 3)}


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
    if epsilon is None:
        torch.manual_seed(settings["seed"])
        model = network(about["model"], data.classes)
        schedule = Schedule(about["lot_size"], about["epochs"], about.get("rate_without_noise", 0.1))
        return {"scores": train_without_noise(model, data, schedule, seed=settings["seed"])}
    schedule = Schedule(about["lot_size"], about["epochs"], _learning_rate(order, about, form))
    found = _trained(order, about, form, epsilon, data, schedule)
    return {
        "scores": found.scores,
        "certified": finite(found.guarantee.epsilon(settings["delta"])),
        "status": str(found.guarantee.status),
    }


def _trained(
    order: Order, about: Mapping[str, Any], form: str, epsilon: float, data: Any, schedule: Schedule
) -> Trained:
    seed, population = order.settings["seed"], len(data.train[0])
    torch.manual_seed(seed)
    model = network(about["model"], data.classes)
    rate, steps = about["lot_size"] / population, schedule.steps(population)
    budget = Budget(epsilon, order.settings["delta"])
    by, found_by = mechanism(form, about, budget, rate=rate, steps=steps, seed=seed)
    micro_batch = MICRO_BATCH if about["model"] in LARGE else None
    return train(model, data, by, schedule, seed=seed, budget=found_by, micro_batch=micro_batch)


def _held_out(order: Order, about: Mapping[str, Any], form: str, epsilon: float, rate: float) -> dict[str, Any]:
    """The best accuracy on training images that are left out, over the epochs of one run."""
    whole, examples = order.load(about["data"]), about["examples"]
    end = examples + about["test_examples"] if "test_examples" in about else None
    kept, left = ([part[where] for part in whole.train] for where in (slice(examples), slice(examples, end)))
    data = replace(whole, train=tuple(kept), test=tuple(left))
    schedule = Schedule(about["lot_size"], about["epochs"], rate / about["clip_norm"])
    return {"held_out": max(_trained(order, about, form, epsilon, data, schedule).scores)}


def _seconds(order: Order, form: str, examples: int) -> dict[str, Any]:
    """Processor seconds of one step, everything included."""
    about, mnist = order.settings["table2"], order.settings["sets"]["mnist"]
    data = _part(order, "mnist", examples)
    torch.manual_seed(order.settings["seed"])
    model = with_channels_last(network("lenet", data.classes))
    epochs = about["steps"] * about["lot_size"] / len(data.train[0])
    schedule = Schedule(about["lot_size"], epochs, 0.1)
    if form == NO_NOISE:
        return {"seconds": round(tiny.plain_step_seconds(model, data, about["lot_size"], about["steps"]), 4)}
    budget = Budget(1.0, order.settings["delta"])
    found = train(
        model, data, PUBLISHED[form](mnist["clip_norm"]), schedule, seed=order.settings["seed"], budget=budget
    )
    return {"seconds": round(found.seconds_per_step, 4)}


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Tables 1 and 2; figures 1 and 3 to 6 as tables."""
    rows = order.expected["summary"]
    return {
        "Summary": summary_table(rows, summary.values(order, records), order.size),
        "Table 1": _table_1(records),
        "Table 2": _table_2(order, records),
        "Learning rates": _rates(records),
        "By chance": _by_chance(order),
        "Figures 3 and 4, one learning rate": _accuracies(order, records),
        "Figures 5 and 6, one learning rate": _sensitivity(order, records),
        "Figure 1": _figure_1(order, records),
        **tuned.tables(order, records),
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
    paper, runs = order.expected["table2"], _of(records, "table 2")
    ours = {(run.asked["form"], run.asked["examples"]): run.found["seconds"] for run in runs}
    few = order.settings["table2"]["examples"][0]
    rows = [("method", "images", "paper: beside Gaussian", "here: seconds a lot of 512", "beside Gaussian")]
    for form, seconds in paper.items():
        beside = f"{seconds / paper['Gaussian']:.2f}"
        for examples in [size for name, size in ours if name == form] or [few]:
            here = ("not run", "–")
            if {(form, examples), ("Gaussian", few)} <= ours.keys():
                found = ours[form, examples]
                here = (f"{found:.3f}", f"{found / ours['Gaussian', few]:.1f}")
            rows.append((form, f"{examples:,}" if form == "ours" else "any", beside, *here))
    return markdown_table(rows)


def _figure_1(order: Order, records: list[Record]) -> str:
    """The ranges of the derivatives, beside the paper's."""
    paper, runs = order.expected["figure1"], _of(records, "figure 1")
    rows = [("network", "∂C/∂θ₁", "∂C/∂b₃", "∂C/∂θ₆", "∂C/∂b₃")]
    if not runs:
        return "Not run."
    names = ("theta_1", "b_3", "theta_6", "b_3_with_theta_6")
    rows.append(("paper", *(_range(paper[name]) for name in names)))
    for run in runs:
        shown = (*tiny.ranges(run.found["theta_1"]), *tiny.ranges(run.found["theta_6"]))
        rows.append(("here", *(_range(each) for each in shown)))
    return markdown_table(rows)


def _range(pair: Sequence[float]) -> str:
    return f"{pair[0]:.3f} to {pair[1]:.3f}"


def _rates(records: list[Record]) -> str:
    rows = [("set", "learning rate times clip norm", "method", "ε", "best accuracy on images left out")]
    for record in _of(records, "learning rates"):
        asked, score = record.asked, record.found["held_out"]
        about = (asked.get("set", "mnist"), f"{asked['rate']:g}", asked["form"], f"{asked['epsilon']:g}")
        rows.append((*about, f"{100 * score:.1f} %"))
    return markdown_table(rows)


def _by_chance(order: Order) -> str:
    """How little a w without its mean changes."""
    delta = order.settings["delta"]
    rows = [
        ("set", "claimed ε", "noise on w over the length of its mean, at least", "total variation of a run, at most")
    ]
    for name, about in order.settings["sets"].items():
        if about.get("w") == "by chance" and {"ours", "ours, pruned"} & set(forms_of(about)):
            steps = round(about["epochs"] * about["examples"] / about["lot_size"])
            for epsilon in about["epsilons"]:
                multiplier = by_chance.noise_on_w(steps, epsilon, delta)
                distance = by_chance.distance(steps, epsilon, delta)
                rows.append((name, f"{epsilon:g}", f"{multiplier:,.0f}", f"{distance:.4f}"))
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


def _sensitivity(order: Order, records: list[Record]) -> str:
    rows = [("figure", "set", "varied", "method", "claimed ε", "best accuracy", "certified ε")]
    for sweep, runs in _sweeps(order, records):
        varied, forms = sweep["varied"], sweep["forms"]
        for record in sorted(runs, key=lambda run: (forms.index(run.asked["form"]), run.asked[varied])):
            asked, found = record.asked, record.found
            about = (f"{drawing.VARIED[varied]} {asked[varied]:g}", asked["form"], f"{asked['epsilon']:g}")
            score = f"{100 * max(found['scores']):.1f} %"
            rows.append((sweep["figure"].removeprefix("figure "), sweep["set"], *about, score, _certified(found)))
    return markdown_table(rows) if len(rows) > 1 else "Not run."


def _sweeps(order: Order, records: list[Record]) -> list[tuple[Mapping[str, Any], list[Record]]]:
    """The runs of figures 5 and 6, each figure with those that are among its set's."""
    swept = []
    for sweep in order.settings["sweeps"]:
        varied = _of(records, sweep["figure"])
        shared = [
            run
            for run in _of(records, sweep["set"])
            if run.asked["form"] in sweep["forms"] and run.asked["epsilon"] == sweep["epsilon"]
        ]
        if varied:
            swept.append((sweep, [*varied, *shared]))
    return swept


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Figures 1 to 6."""
    drawn = {"figure_2": drawing.water_filling()}
    for record in _of(records, "figure 1"):
        drawn["figure_1"] = drawing.surfaces(record.found)
    if runs := _of(records, "mnist"):
        epsilon = max(order.settings["sets"]["mnist"]["epsilons"])
        drawn["figure_3"] = drawing.over_epochs({f"MNIST, ε = {epsilon:g}": (runs, epsilon)})
        drawn["figure_4"] = drawing.over_epsilon("MNIST", runs, tuple(PUBLISHED), tuple(RIGOROUS))
    large = {name: about for name, about in order.settings["sets"].items() if about["model"] in LARGE}
    panels = {}
    for name, about in large.items():
        if runs := _of(records, name):
            epsilon = max(about["epsilons"])
            panels[f"{drawing.as_written(name)}, ε = {epsilon:g}"] = (runs, epsilon)
    if panels:
        drawn["figure_3_cifar10"] = drawing.over_epochs(panels)
    several = [name for name, about in large.items() if len(about["epsilons"]) > 1 and _of(records, name)]
    for name in several:
        drawn["figure_4_cifar10"] = drawing.over_epsilon(
            drawing.as_written(name), _of(records, name), PRUNED, PRUNED_RIGOROUS
        )
    for data in ("mnist", "cifar10"):
        swept = [each for each in _sweeps(order, records) if each[0]["set"].startswith(data)]
        if swept:
            drawn["figure_5_and_6" + ("" if data == "mnist" else f"_{data}")] = drawing.sensitivity(swept)
    return {**drawn, **tuned.pictures(order, records)}
