"""Nasr et al. 2020 again: encoded gradients with Gaussian and Student-t noise, with and without denoising.

Every example is encoded by itself and lots are Poisson samples, so that there is something to certify; there is one
preselected vector and not a thousand, whose box is smaller. Every run is tested after each epoch, where its epsilon is
known too: the same runs give figures 2 (the last epoch), 3 (the best of all), 4, 5 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from experiments.library import Cell, Order, Record, Records, finite, markdown_table, summary_table
from experiments.library.training import Schedule, train, train_without_noise
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from tacit import Poisson, methods
from tacit.accounting import curve
from tacit.accounting.densities import Density
from tacit.gradients import per_example_gradients
from tacit.methods.encoded import sampled_divergences, vector_moments
from tacit.stages.bounds.encode import EncodingBox, Profile
from tacit.stages.noise import BoxNoise
from tacit.stages.noise.compare import Setting, compare_families
from tacit.stages.noise.laws import find_family
from tacit.workflows.defaults import network_for

from . import drawing, summary, tuned

LAWS = ("gaussian", "student_t")
STD_OF_SCALE_ONE = tuned.STD_OF_SCALE_ONE
# Weights of the network that is trained on MNIST.
PARAMETERS = 26_010
ORDERS = np.arange(2, 65)
# Of a law with a mean, x² times the density is next to nothing at 1e9.
_HEAVY = 1e-3
NAMES = tuned.NAMES


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Accounting and figures 6 and 1 first, which are quick; then the runs."""
    settings = order.settings
    for form, multiplier in _accounted(order):
        about = settings["sets"]["mnist"]
        steps = Schedule(about["lot_size"], about["epochs"], 1.0).steps(about["examples"])
        asked = {"form": form, "multiplier": multiplier, "delta": settings["delta"], "steps": steps}
        sampling = Poisson(about["lot_size"], about["examples"])
        yield Cell("accounting", asked, partial(_account, form, multiplier, sampling, steps, settings["delta"]))
    for epsilon in settings["figure6"]["epsilons"]:
        asked = {"epsilon": epsilon, "dimension": settings["figure6"]["dimension"]}
        yield Cell("figure 6", asked, partial(_families, epsilon, settings["figure6"]["dimension"], settings["delta"]))
    for divergence in settings["figure6"]["divergences"]:
        asked = {"divergence": divergence, "dimension": settings["figure6"]["dimension"]}
        yield Cell("figure 6, order 2", asked, partial(_at_divergence, **asked))
    for name, about in settings["sets"].items():
        asked = {"set": name, **settings["figure1"], "trained_on": about["examples"]}
        yield Cell("figure 1", asked, partial(_gradients, order, about))
    yield from tuned.cells(order, records)
    for name, about in settings["sets"].items():
        for form, multiplier, denoise in _forms(order, name):
            asked = {"form": form, "multiplier": multiplier, "denoise": denoise, **about}
            yield Cell(name, asked, partial(_run, order, about, form, multiplier, denoise))


def _accounted(order: Order) -> list[tuple[str, float]]:
    """Every law and noise on MNIST, and Student-t noise whose scale, not standard deviation, is the paper's sigma."""
    compared = order.settings["compared"]
    levels = [(law, multiplier) for law in LAWS for multiplier in order.settings["multipliers"][law]]
    return [*levels, ("student_t", round(compared["student_t"] * STD_OF_SCALE_ONE, 4))]


def _account(form: str, multiplier: float, sampling: Poisson, steps: int, delta: float) -> dict[str, Any]:
    """Epsilon by the paper's formula (Lemmas 4 and 5, Theorem 1, orders up to 64) and certified, at the same delta."""
    mechanism = methods.encoded(1.0, multiplier, noise=form)
    noise, rate = mechanism.noise, sampling.lot_size / sampling.population
    assert isinstance(noise, BoxNoise)
    moments = vector_moments(noise.family, Profile(), multiplier, PARAMETERS)
    divergences = sampled_divergences(moments, rate).max(axis=0)
    claimed = float(np.min(steps * divergences - math.log(delta) / (ORDERS - 1)))
    certified = curve(sampling.amplify(noise.event(PARAMETERS)) * steps).epsilon(delta)
    return {"claimed": claimed, "certified": certified}


def _forms(order: Order, name: str) -> list[tuple[str, float, bool]]:
    """DP-SGD, encoding with denoising at every noise, and without it at the one that is compared."""
    compared = order.settings["compared"]
    if name != "mnist":
        return [(form, compared[form], form != "dpsgd") for form in NAMES]
    levels = order.settings["multipliers"]
    all_levels = [(form, multiplier, form != "dpsgd") for form in NAMES for multiplier in levels[form]]
    return [*all_levels, *((law, compared[law], False) for law in LAWS)]


def _families(epsilon: float, dimension: int, delta: float) -> dict[str, Any]:
    """The expected L1 error of one release, and the noise that is certified for it, by law."""
    box = EncodingBox(Profile()).corner(dimension)
    found = compare_families(Setting(tuple(box.tolist()), 1.0, 1), epsilon=epsilon, delta=delta)
    return {one.name: {"l1": finite(one.l1), "l2": finite(one.l2), "multiplier": one.multiplier} for one in found}


def _at_divergence(divergence: float, dimension: int) -> dict[str, Any]:
    """The expected L1 error of one release whose Renyi divergence of order 2 is this, by law: the paper's own axis."""
    found = {}
    for law in drawing.LAWS:
        family, low, high = find_family(law), 0.1, 1e2
        while high / low > 1 + 1e-5:
            middle = math.sqrt(low * high)
            is_less = vector_moments(family, Profile(), middle, dimension)[0, 2] <= divergence
            low, high = (low, middle) if is_less else (middle, high)
        found[law] = finite(high * _mean_size(family.density(1.0)) * dimension)
    return found


def _mean_size(density: Density) -> float:
    """E|X|, by quadrature; infinite for the Cauchy law."""
    x = np.concatenate([np.linspace(0, 50, 200_001), np.geomspace(50, 1e9, 100_001)[1:]])
    half = np.exp(density.log_density(x)) * x
    whole, tail = 2 * float(np.trapezoid(half, x)), float(half[-1] * x[-1])
    return math.inf if tail > _HEAVY else whole


def _part(order: Order, about: Mapping[str, Any]) -> Any:
    data = order.load(about["data"])
    kept, tested = (slice(about[name]) for name in ("examples", "test_examples"))
    return replace(
        data, train=(data.train[0][kept], data.train[1][kept]), test=(data.test[0][tested], data.test[1][tested])
    )


def _gradients(order: Order, about: Mapping[str, Any]) -> dict[str, Any]:
    """How the coordinates of gradients are spread after some ordinary training: quantiles, and the normal ones."""
    data, figure = _part(order, about), order.settings["figure1"]
    torch.manual_seed(order.settings["seed"])
    model = network_for(about["model"], data)
    train_without_noise(model, data, Schedule(about["lot_size"], figure["epochs"], 0.1), seed=order.settings["seed"])
    inputs, targets = (torch.from_numpy(part[: figure["examples"]]) for part in data.train)
    dense = per_example_gradients(model, cross_entropy, inputs, targets).dense()
    values = torch.cat([each.detach().reshape(-1) for each in dense.values()])
    scale = float(values.square().mean().sqrt())
    edges = torch.linspace(-4, 4, 81)
    counts = torch.histogram(values / scale, edges).hist / len(values)
    return {
        "root_mean_square": scale,
        "share_at_zero": float((values.abs() < 1e-3 * scale).double().mean()),
        "density": [round(float(each), 6) for each in counts / 0.1],
    }


def _run(order: Order, about: Mapping[str, Any], form: str, multiplier: float, denoise: bool) -> dict[str, Any]:
    data, clip = _part(order, about), order.settings["clip_norm"]
    torch.manual_seed(order.settings["seed"])
    model = network_for(about["model"], data)
    if form == "dpsgd":
        mechanism = methods.dpsgd(clip, multiplier)
    else:
        mechanism = methods.encoded(clip, multiplier, noise=form, denoise=denoise)
    rate = about["denoised_rate"] if denoise else about["learning_rate"]
    schedule = Schedule(about["lot_size"], about["epochs"], rate)
    population = len(data.train[0])
    found = train(model, data, mechanism, schedule, seed=order.settings["seed"], population=population)
    dimension = sum(parameter.numel() for parameter in model.parameters())
    step = Poisson(about["lot_size"], population).amplify(mechanism.noise.event(dimension))
    epsilons = [curve(step * steps).epsilon(order.settings["delta"]) for steps in found.scored_at]
    return {"scores": found.scores, "certified": [round(epsilon, 4) for epsilon in epsilons]}


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Every figure as a table, with the paper's numbers where its text has them."""
    rows = order.expected["summary"]
    return {
        "Summary": summary_table(rows, summary.values(order, records), order.size),
        "Paper and ours": _beside_paper(order, records),
        "Accounting": _accounting(order, records),
        "Figure 2, one learning rate": _runs(order, records),
        "Figure 3": _best(order, records),
        "Figure 6": _laws(order, records),
        **tuned.tables(order, records),
    }


def _of(records: list[Record], name: str) -> list[Record]:
    return [record for record in records if record.part == name]


def _beside_paper(order: Order, records: list[Record]) -> str:
    """At each accuracy that the paper quotes: its epsilons, and the least certified ones of our runs."""
    rows = [("figure", "data", "accuracy", "paper: Student-t", "paper: DP-SGD", *(f"ours: {NAMES[f]}" for f in NAMES))]
    for figure in ("figure2", "figure3"):
        for said in order.expected[figure]:
            runs = _of(records, said["set"])
            ours = [_least(runs, form, said["accuracy"] / 100) for form in NAMES]
            about = (figure[-1], said["set"], f"{said['accuracy']:g} %")
            rows.append((*about, f"{said['student_t']:g}", f"{said['dpsgd']:g}", *ours))
    return markdown_table(rows)


def _accounting(order: Order, records: list[Record]) -> str:
    rows = [("noise", "standard deviation", "scale", "ε by the paper's formula", "certified ε")]
    for record in _of(records, "accounting"):
        form, std = record.asked["form"], record.asked["multiplier"]
        scale = "–" if form == "gaussian" else f"{std / STD_OF_SCALE_ONE:.3f}"
        law = "Gaussian" if form == "gaussian" else "Student-t"
        rows.append((law, f"{std:g}", scale, f"{record.found['claimed']:.2f}", f"{record.found['certified']:.3f}"))
    return markdown_table(rows)


def _runs(order: Order, records: list[Record]) -> str:
    rows = [("data", "method", "noise", "denoised", "accuracy", "certified ε")]
    for name in order.settings["sets"]:
        for record in _of(records, name):
            asked, found = record.asked, record.found
            denoised = "–" if asked["form"] == "dpsgd" else "yes" if asked["denoise"] else "no"
            about = (f"{name}, {asked['epochs']} epochs", NAMES[asked["form"]], f"{asked['multiplier']:g}", denoised)
            rows.append((*about, f"{100 * found['scores'][-1]:.1f} %", f"{found['certified'][-1]:.3f}"))
    return markdown_table(rows)


def _best(order: Order, records: list[Record]) -> str:
    """The least certified epsilon at which each method was ever seen at an accuracy."""
    rows = [("data", "accuracy", *(f"{NAMES[form]}: certified ε" for form in NAMES))]
    for name in order.settings["sets"]:
        runs = _of(records, name)
        plain = [score for run in runs if run.asked["form"] == "dpsgd" for score in run.found["scores"]]
        for accuracy in sorted({round(max(plain) * share, 3) for share in (0.9, 0.95, 0.98)} if plain else ()):
            rows.append((name, f"{100 * accuracy:.1f} %", *(_least(runs, form, accuracy) for form in NAMES)))
    return markdown_table(rows)


def _least(runs: list[Record], form: str, accuracy: float) -> str:
    points = [
        epsilon
        for run in runs
        if run.asked["form"] == form
        for score, epsilon in zip(run.found["scores"], run.found["certified"], strict=True)
        if score >= accuracy
    ]
    return f"{min(points):.3f}" if points else "not reached"


def _laws(order: Order, records: list[Record]) -> str:
    """L1 errors over that of Gaussian noise, on the paper's axis and at equal certified epsilon."""
    rows = [("at equal", *drawing.LAWS)]
    for record in _of(records, "figure 6, order 2"):
        ratios = _ratios({law: record.found[law] for law in drawing.LAWS})
        rows.append((f"divergence of order 2: {record.asked['divergence']:g}", *ratios))
    for record in _of(records, "figure 6"):
        ratios = _ratios({law: record.found[law]["l1"] for law in drawing.LAWS})
        rows.append((f"certified ε: {record.asked['epsilon']:g}", *ratios))
    return markdown_table(rows)


def _ratios(errors: Mapping[str, float | None]) -> list[str]:
    gaussian = errors["gaussian"]
    assert gaussian is not None
    return ["infinite" if value is None else f"{value / gaussian:.4f}" for value in errors.values()]


def _compared(order: Order, records: list[Record]) -> dict[tuple[str, str], Record]:
    """The runs at comparable noise and one learning rate, by method and denoising."""
    found = {}
    for run in _of(records, "mnist"):
        form = run.asked["form"]
        if run.asked["multiplier"] == order.settings["compared"][form]:
            found[form, "relative" if run.asked["denoise"] else "no"] = run
    return found


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """The paper's figures, with certified epsilons."""
    drawn = {}
    if gradients := _of(records, "figure 1"):
        drawn["figure_1"] = drawing.gradients({record.asked["set"]: record.found for record in gradients})
    if releases := _of(records, "figure 6"):
        certified = {r.asked["epsilon"]: {law: r.found[law]["l1"] for law in drawing.LAWS} for r in releases}
        of_order_2 = {r.asked["divergence"]: r.found for r in _of(records, "figure 6, order 2")}
        drawn["figure_6"] = drawing.laws({"Renyi divergence of order 2": of_order_2, "certified ε": certified})
    if runs := _of(records, "mnist"):
        drawn["figure_2_and_3"] = drawing.tradeoffs(runs, NAMES)
    best = {(form, denoise): tuned.best_run(records, form, denoise) for form, denoise in tuned.curves()}
    if compared := _compared(order, records):
        drawn["figure_4_and_5"] = drawing.trajectories(compared)
    if any(best.values()):
        drawn["figure_4_5_and_7"] = drawing.trajectories({each: run for each, run in best.items() if run})
    return drawn
