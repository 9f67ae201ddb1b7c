"""Bu et al. 2019 again: what they trained, and what the central limit theorem says beside what can be certified.

Lots are Poisson samples and sums are divided by the expected lot size, which is public; the paper prints the size of
the lot that came, which is refuted. Every epsilon here is about one example added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from experiments.library import Cell, Order, Record, Records, markdown_table, summary_table
from experiments.library.training import Schedule, mean_and_spread, train, train_without_noise
from matplotlib.figure import Figure

from tacit import methods
from tacit.workflows.defaults import network_for

from . import baselines, drawing, summary
from .accounting import Steps, accounted, least_error_sums
from .data import adult, classified, expected_star_error, last_words, likeliest_star_error, network

PUBLISHED = ("mu", "clt", "moments")


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Accounting first, which takes no time; then what trains, small things first."""
    for row in order.settings["mnist"]["rows"]:
        yield _accounting("table 1", _mnist_steps(order, row), order.settings["delta"])
    tables = [
        (f"table {number}", about)
        for number, base in order.settings["tables"].items()
        for about in _chosen(order, records, f"table {number}", base)
    ]
    steps = {(part, _table_steps(about), about["delta"]): None for part, about in tables}
    yield from (_accounting(*each) for each in steps)
    yield Cell("figure 3", {}, lambda: least_error_sums(_mnist_steps(order, order.settings["mnist"]["rows"][-1])))
    for run in range(order.settings["runs_of_small"]):
        for part, about in tables:
            yield from _table_cells(order, part, about, run)
    for row in order.settings["mnist"]["rows"]:
        for run in range(order.settings["runs"]):
            asked = {**row, "run": run}
            yield Cell("table 1", asked, partial(_train_mnist, order, row, row["multiplier"], run))
    for row in order.settings["figure4"]:
        for multiplier in (row["multiplier"], row["lower_multiplier"]):
            asked = {**row, "trained_with": multiplier}
            yield Cell("figure 4", asked, partial(_train_mnist, order, row, multiplier, 0))


def _all_of(about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A table as it is set, and what may be run beside it or in its place."""
    others = [{**about, **each} for each in about.get("also", [])]
    if "larger" not in about:
        return [about, *others]
    label = about["larger"]["label"]
    larger = [
        {**each, **about["larger"], "label": each["label"].replace(about["label"], label)} for each in (about, *others)
    ]
    return [about, *others, *larger]


def _chosen(order: Order, records: Records, part: str, base: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A larger edition of the data for whoever has it, in place of the other unless that was run before."""
    every = _all_of(base)
    if "larger" not in base:
        return every
    usual = [each for each in every if each["data"] == base["data"]]
    larger = [each for each in every if each["data"] != base["data"]]
    if not any(order.has(each["data"]) or records.where(part, data=each["data"]) for each in larger):
        return usual
    return every if records.where(part, data=base["data"]) else larger


def _accounting(part: str, steps: Steps, delta: float) -> Cell:
    asked = {"multiplier": steps.multiplier, "rate": steps.rate, "steps": steps.steps, "delta": delta}
    return Cell(part, asked, lambda: accounted(steps, delta))


def _mnist_steps(order: Order, row: Mapping[str, Any]) -> Steps:
    return Steps.of(row["multiplier"], order.settings["mnist"]["lot_size"], 60_000, row["epochs"])


def _population(about: Mapping[str, Any]) -> int:
    """Published sizes: accounting needs no data."""
    return {"a9a": 29_305, "imdb": 25_000, "movielens-100k": 80_000, "movielens-1m": 800_167}[about["data"]]


def _table_steps(about: Mapping[str, Any]) -> Steps:
    return Steps.of(about["multiplier"], about["lot_size"], _population(about), about["epochs"])


def _train_mnist(order: Order, row: Mapping[str, Any], multiplier: float, run: int) -> dict[str, Any]:
    data = order.load(order.settings["mnist"]["data"])
    torch.manual_seed(run)
    schedule = Schedule(order.settings["mnist"]["lot_size"], row["epochs"], row["learning_rate"])
    found = train(network_for("cnn", data), data, methods.noisy_sgd(row["clip_norm"], multiplier), schedule, seed=run)
    return {"scores": found.scores, "certified": found.guarantee.epsilon(order.settings["delta"])}


def _table_cells(order: Order, part: str, about: Mapping[str, Any], run: int) -> Iterator[Cell]:
    data = {name: value for name, value in _which(about).items() if value is not None}
    yield Cell(part, {**data, "epochs": about["epochs"], "run": run}, partial(_train_table, order, about, run))
    if about["adam"] != "printed":
        asked = {**data, "bare_epochs": about["bare_epochs"], "run": run}
        yield Cell(part, asked, partial(_train_bare, order, about, run))
        for name in about.get("baselines", []):
            yield Cell(part, {**data, "baseline": name, "run": run}, partial(_baseline, order, about, name, run))


def _which(about: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a run, and how it was cut, if in a way of its own."""
    adam = "printed" if about["adam"] == "printed" else None
    return {**{name: about.get(name) for name in ("data", "words", "predicts")}, "adam": adam}


def _train_table(order: Order, about: Mapping[str, Any], run: int) -> dict[str, Any]:
    data, model = _prepared(order, about, run)
    schedule = Schedule(about["lot_size"], about["epochs"], about["learning_rate"], about["adam"])
    method = methods.noisy_adam if about["adam"] else methods.noisy_sgd
    mechanism, score = method(about["clip_norm"], about["multiplier"]), _score(about)
    found = train(model, data, mechanism, schedule, seed=run, population=_population(about), score_by=score)
    certified = found.guarantee.epsilon(about["delta"])
    return {"scores": found.scores, "certified": certified, **_likeliest(about, model, data)}


def _train_bare(order: Order, about: Mapping[str, Any], run: int) -> dict[str, Any]:
    data, model = _prepared(order, about, run)
    schedule = Schedule(about["lot_size"], about["bare_epochs"], about["bare_rate"], about["adam"])
    scores = train_without_noise(model, data, schedule, seed=run, score_by=_score(about))
    return {"scores": scores, **_likeliest(about, model, data)}


def _score(about: Mapping[str, Any]) -> Callable[[torch.nn.Module, Any], float] | None:
    return expected_star_error if about.get("predicts") == "classes" else None


def _likeliest(about: Mapping[str, Any], model: torch.nn.Module, data: Any) -> dict[str, float]:
    return {"likeliest": likeliest_star_error(model, data)} if about.get("predicts") == "classes" else {}


def _baseline(order: Order, about: Mapping[str, Any], name: str, run: int) -> dict[str, Any]:
    data, _ = _prepared(order, about, run)
    if about.get("predicts") != "classes":
        return {"scores": [baselines.accuracy(name, data, run)]}
    (pairs, classes), (tested, truth) = data.train, data.test
    return {"scores": [baselines.rmse(name, pairs, classes + 1, tested, truth + 1, data.vocabulary)]}


def _prepared(order: Order, about: Mapping[str, Any], run: int) -> tuple[Any, torch.nn.Module]:
    data = order.load(about["data"])
    data = adult(data, about["test_share"], run) if "test_share" in about else data
    data = last_words(data) if about.get("words") == "last" else data
    data = classified(data) if about.get("predicts") == "classes" else data
    torch.manual_seed(run)
    return data, network(data, about.get("hidden"))


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Tables 1 to 4, and the numbers that figures 3 and 4 are quoted for."""
    rows = summary_table(order.expected["summary"], summary.values(order, records), order.size)
    shown = {"Summary": rows, "Table 1": _table_1(order, records)}
    for number, about in order.settings["tables"].items():
        shown[f"Table {number}"] = _table(order, records, number, about)
    return {
        **shown,
        "Figure 3": _figure_3(order, records),
        "Figure 4": _figure_4(order, records),
        "Epochs": _epochs(order, records),
    }


def _found(records: list[Record], part: str, **asked: Any) -> list[dict[str, Any]]:
    return [
        each.found
        for each in records
        if each.part == part and all(each.asked.get(name) == value for name, value in asked.items())
    ]


def _table_1(order: Order, records: list[Record]) -> str:
    head = ("η", "R", "σ", "epochs", "accuracy, paper", "accuracy, here", "μ, paper", "μ, here")
    rows = [(*head, "ε by CLT, paper", "here", "ε by MA, paper", "here", "certified ε")]
    for row in order.settings["mnist"]["rows"]:
        paper = next(each for each in order.expected["table1"] if each["multiplier"] == row["multiplier"])
        ours = _accounted(records, "table 1", _mnist_steps(order, row), order.settings["delta"])
        trained = [each["scores"][-1] for each in _found(records, "table 1", **row)]
        about = [f"{row[name]:g}" for name in ("learning_rate", "clip_norm", "multiplier", "epochs")]
        rows.append((*about, f"{paper['accuracy']} %", _scores(trained), *_epsilons(paper, ours)))
    return markdown_table(rows)


def _accounted(records: list[Record], part: str, steps: Steps, delta: float) -> dict[str, Any]:
    """What is on file, or worked out now: it takes no time."""
    found = _found(records, part, multiplier=steps.multiplier, rate=steps.rate, steps=steps.steps, delta=delta)
    return found[0] if found else accounted(steps, delta)


def _scores(values: list[float], is_error: bool = False) -> str:
    if not values:
        return "not run"
    shown = mean_and_spread(values, "", 1.0, 3) if is_error else mean_and_spread(values, " %", 100.0, 2)
    return f"{shown} ({len(values)} run{'s' if len(values) > 1 else ''})"


def _epsilons(paper: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    pairs = [text for name in PUBLISHED for text in (f"{paper[name]:.2f}", f"{ours[name]:.2f}")]
    return [*pairs, f"{ours['certified_low']:.3f} to {ours['certified']:.3f}"]


def _table(order: Order, records: list[Record], number: str, about: Mapping[str, Any]) -> str:
    part, paper = f"table {number}", order.expected[f"table{number}"]
    is_error = about["data"].startswith("movielens")
    score, unit = ("RMSE", "") if is_error else ("accuracy", " %")
    head = ("model", "epochs", f"{score}, paper", f"{score}, here", "μ, paper", "μ, here", "ε by CLT, paper", "here")
    rows = [(*head, "ε by MA, paper", "here", "certified ε")]
    shown = [each for each in _all_of(about) if _found(records, part, **_which(each), epochs=each["epochs"])]
    shown = shown or [about]
    for each in shown:
        told = f", {each['label']}" if "label" in each else ""
        private = [one["scores"][-1] for one in _found(records, part, **_which(each), epochs=each["epochs"])]
        bare = [one["scores"][-1] for one in _found(records, part, **_which(each), bare_epochs=each["bare_epochs"])]
        ours = _accounted(records, part, _table_steps(each), each["delta"])
        scores = (f"{each['epochs']}", f"{paper['score']}{unit}", _scores(private, is_error))
        rows.append((f"private{told}", *scores, *_epsilons(paper, ours)))
        found = _found(records, part, **_which(each), epochs=each["epochs"])
        likeliest = [one["likeliest"] for one in found if "likeliest" in one]
        if likeliest:
            rows.append((f"private{told}: most likely star", "", "–", _scores(likeliest, is_error), *["–"] * 7))
        if each["adam"] != "printed":
            scores = (f"{each['bare_epochs']}", f"{paper['bare']}{unit}", _scores(bare, is_error))
            rows.append((f"not private{told}", *scores, *["–"] * 7))
        for name in each.get("baselines", []) if each["adam"] != "printed" else ():
            ours = [one["scores"][-1] for one in _found(records, part, **_which(each), baseline=name)]
            told = f"{paper['others'][name]}{unit}" if name in paper["others"] else "–"
            rows.append((f"{name}, scikit-learn", "–", told, _scores(ours, is_error), *["–"] * 7))
    quoted = ((name, value) for name, value in paper["others"].items() if name not in about.get("baselines", []))
    return markdown_table([*rows, *((f"{name} (quoted)", "–", f"{value}{unit}", *["–"] * 8) for name, value in quoted)])


def _figure_3(order: Order, records: list[Record]) -> str:
    found = _found(records, "figure 3")
    if not found:
        return "Not run."
    ours, paper = found[0], order.expected["figure3"]
    rows = [
        ("least sum of both errors, σ = 1.1", "paper", "here"),
        ("central limit theorem", f"{paper['least_error_sum_clt']:.3f}", f"{ours['clt']:.3f}"),
        ("one (ε, δ) by the moments accountant", f"{paper['least_error_sum_moments']:.3f}", f"{ours['moments']:.3f}"),
        ("all (ε, δ) of the moments accountant", "–", f"{ours['all_moments']:.3f}"),
        ("certified: at least", "–", f"{ours['certified']:.3f}"),
    ]
    return markdown_table(rows)


def _figure_4(order: Order, records: list[Record]) -> str:
    rows = [("σ", "epochs", "accountant that chose σ", "ε, paper", "ε, here", "certified ε", "accuracy, here")]
    for row, paper in zip(order.settings["figure4"], order.expected["figure4"], strict=False):
        for name, multiplier in (("moments", row["multiplier"]), ("clt", row["lower_multiplier"])):
            steps = Steps.of(multiplier, order.settings["mnist"]["lot_size"], 60_000, row["epochs"])
            ours = accounted(steps, order.settings["delta"])
            trained = [each["scores"][-1] for each in _found(records, "figure 4", **row, trained_with=multiplier)]
            about = (f"{multiplier:g}", f"{row['epochs']}", name, f"{paper['epsilon']}", f"{ours[name]:.2f}")
            rows.append((*about, f"{ours['certified']:.3f}", _scores(trained)))
    return markdown_table(rows)


def _epochs(order: Order, records: list[Record]) -> str:
    """Epochs until test accuracies that the paper quotes for its last pair of noise levels."""
    rows = [("σ", *(f"{accuracy} %: {whose}" for accuracy in (95, 96, 97) for whose in ("paper", "here")))]
    for row, paper in zip(order.settings["figure4"], order.expected["figure4"], strict=False):
        for name, multiplier in (("lower_epochs", row["lower_multiplier"]), ("epochs", row["multiplier"])):
            for trained in _found(records, "figure 4", **row, trained_with=multiplier) if name in paper else ():
                first = [_first_epoch(trained["scores"], accuracy / 100) for accuracy in (95, 96, 97)]
                pairs = [text for pair in zip(map(str, paper[name]), first, strict=True) for text in pair]
                rows.append((f"{multiplier:g}", *pairs))
    return markdown_table(rows)


def _first_epoch(scores: Sequence[float], accuracy: float) -> str:
    return next((str(number) for number, score in enumerate(scores, 1) if score >= accuracy), "not reached")


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """Figures 2 to 5, each with the certified curve that the paper did not have."""
    settings, delta = order.settings, order.settings["delta"]
    published = {
        row["trained_with"]: each["scores"]
        for record in records
        if record.part == "figure 4"
        for row, each in [(record.asked, record.found)]
    }
    return {
        "figure_2": drawing.figure_2(settings["figure2"], delta),
        "figure_3": drawing.figure_3([_mnist_steps(order, row) for row in settings["mnist"]["rows"]], delta),
        "figure_4": drawing.figure_4(settings["figure4"], settings["mnist"]["lot_size"], delta, published),
        "figure_5": drawing.figure_5(settings["figure5"]),
    }
