"""Networks from scratch with independent noise and with noise that cancels between steps, at equal certified epsilon.

Bands are chosen from public numbers, as `tacit plan` chooses them; learning rates on training examples that are held
out, from the same few for both noises. All else is equal.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import choose_rate, difference_by_seed, mean_and_spread, select
from matplotlib.figure import Figure

from tacit import Budget, CyclicPoisson, Poisson
from tacit.accounting.factors import BandPlan, best_band, compare_bands
from tacit.methods import dpsgd

from .training import new_model, prepare, train

RATES, PLANNER = "learning rates", "planner"
INDEPENDENT, BANDED = "independent", "banded"
# What decides a run beside noise, epsilon, learning rate and seed: another number is another run.
_DECIDING = ("lot_size", "steps", "clip_norm", "optimizer", "most_rows")


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """The planner's answers, learning rates on held-out examples, then every setting with every seed."""
    yield from _planner_cells(order)
    settings = [
        (name, epsilon, noise)
        for name in order.settings["data"]
        for epsilon in order.settings["epsilons"]
        for noise in order.settings["noises"]
    ]
    for name in order.settings["data"]:
        for noise in order.settings["noises"]:
            for rate in order.settings["data"][name]["rates"]:
                for seed in order.settings["tuning_seeds"]:
                    yield _cell(order, RATES, name, order.settings["tuning_epsilon"], noise, rate, seed)
    for seed in range(order.settings["seeds"]):
        for name, epsilon, noise in settings:
            rate = best_rate(order, records.read(), name, noise)
            if rate is not None:
                yield _cell(order, name, name, epsilon, noise, rate, seed)


def _cell(order: Order, part: str, name: str, epsilon: float, noise: str, rate: float, seed: int) -> Cell:
    about = order.settings["data"][name]
    asked = {"data": name, "epsilon": epsilon, "noise": noise, "rate": rate, "seed": seed, "size": order.size}
    asked |= {each: about[each] for each in _DECIDING}
    return Cell(part, asked, partial(_run, order, about, part == RATES, epsilon, noise, rate, seed))


def _run(
    order: Order, about: Mapping[str, Any], is_held_out: bool, epsilon: float, noise: str, rate: float, seed: int
) -> dict[str, Any]:
    data = prepare(order.load(about["data"]), about["most_rows"], about["last"] if is_held_out else 0)
    delta, lot_size, steps = order.settings["delta"], about["lot_size"], about["steps"]
    plan = plan_bands(lot_size, data.population, steps, epsilon, delta)
    bands = plan.bands if noise == BANDED else 1
    mechanism = dpsgd(about["clip_norm"])
    if bands > 1:
        mechanism = mechanism.with_bands(bands, steps=steps)
        sampling = CyclicPoisson(lot_size, data.population, groups=bands)
    else:
        sampling = Poisson(lot_size, data.population)
    model = new_model(data, about, seed)
    found = train(model, data, about, mechanism, sampling, budget=Budget(epsilon, delta), rate=rate, seed=seed)
    return {**found, "bands": bands, "expected": plan.relative_error if bands > 1 else 1.0}


def plan_bands(lot_size: float, population: int, steps: int, epsilon: float, delta: float) -> BandPlan:
    """The best number of bands for these public numbers."""
    return best_band(compare_bands(lot_size=lot_size, population=population, steps=steps, epsilon=epsilon, delta=delta))


def best_rate(order: Order, records: list[Record], name: str, noise: str) -> float | None:
    """The learning rate with the best mean accuracy on held-out examples; None until all were tried."""
    about = order.settings["data"][name]
    wanted = {"data": name, "epsilon": order.settings["tuning_epsilon"], "noise": noise, "size": order.size}
    wanted |= {each: about[each] for each in _DECIDING}
    return choose_rate(records, RATES, about["rates"], order.settings["tuning_seeds"], **wanted)


def _planner_cells(order: Order) -> Iterator[Cell]:
    about = order.settings[PLANNER]
    for steps in about["steps"]:
        for lot_size in about["lot_sizes"]:
            for epsilon in order.settings["epsilons"]:
                asked = {"lot_size": lot_size, "steps": steps, "population": about["population"], "epsilon": epsilon}
                yield Cell(PLANNER, asked, partial(_plan, asked, order.settings["delta"]))


def _plan(asked: Mapping[str, Any], delta: float) -> dict[str, Any]:
    plan = plan_bands(asked["lot_size"], asked["population"], asked["steps"], asked["epsilon"], delta)
    return {"bands": plan.bands, "relative_error": plan.relative_error if plan.bands > 1 else 1.0}


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Accuracy, what the runs were made with, and where a gain is to be expected."""
    return {
        "accuracy": _accuracy_table(order, records),
        "settings": _settings_table(order, records),
        "rates": _rate_table(order, records),
        PLANNER: _planner_table(order, records),
    }


def _accuracy_table(order: Order, records: list[Record]) -> str:
    epsilons = order.settings["epsilons"]
    rows: list[tuple[str, ...]] = [("data", "noise", *(f"ε = {epsilon:g}" for epsilon in epsilons))]
    for name in order.settings["data"]:
        if not select(records, name):
            continue
        for noise in order.settings["noises"]:
            found = [select(records, name, noise=noise, epsilon=epsilon) for epsilon in epsilons]
            scores = ([each.found["accuracy"] for each in some] for some in found)
            rows.append((name, noise, *(_show(some, order.settings["seeds"]) for some in scores)))
        differences = (
            difference_by_seed(
                *(select(records, name, noise=noise, epsilon=epsilon) for noise in (BANDED, INDEPENDENT))
            )
            for epsilon in epsilons
        )
        rows.append((name, "difference", *differences))
    return markdown_table(rows)


def _show(scores: list[float], seeds: int) -> str:
    if not scores:
        return "–"
    left_out = f", {len(scores)} of {seeds} seeds" if len(scores) < seeds else ""
    return mean_and_spread(scores, unit="", digits=2) + left_out


def _settings_table(order: Order, records: list[Record]) -> str:
    head = ("data", "ε", "noise", "bands", "multiplier", "learning rate", "noise of sums", "certified ε", "seconds")
    rows: list[tuple[str, ...]] = [head]
    for name in order.settings["data"]:
        for epsilon in order.settings["epsilons"]:
            for noise in order.settings["noises"]:
                found = select(records, name, noise=noise, epsilon=epsilon)
                if not found:
                    continue
                first, certified = found[0], max(each.found["certified"] for each in found)
                seconds = statistics.median(each.seconds or 0 for each in found)
                rows.append(
                    (
                        name,
                        f"{epsilon:g}",
                        noise,
                        str(first.found["bands"]),
                        f"{first.found['multiplier']:.3f}",
                        f"{first.asked['rate']:g}",
                        f"{first.found['expected']:.2f}",
                        f"{certified:.4f}",
                        f"{seconds:.0f}",
                    )
                )
    return markdown_table(rows)


def _rate_table(order: Order, records: list[Record]) -> str:
    """Accuracy on held-out examples, by learning rate."""
    rows: list[tuple[str, ...]] = [("data", "noise", "learning rate: accuracy")]
    for name, about in order.settings["data"].items():
        for noise in order.settings["noises"]:
            found = [(rate, select(records, RATES, data=name, noise=noise, rate=rate)) for rate in about["rates"]]
            texts = [f"{rate:g}: {_show([each.found['accuracy'] for each in some], 1)}" for rate, some in found if some]
            if texts:
                rows.append((name, noise, ", ".join(texts)))
    return markdown_table(rows)


def _planner_table(order: Order, records: list[Record]) -> str:
    epsilons = order.settings["epsilons"]
    rows: list[tuple[str, ...]] = [("lots of", "steps", *(f"ε = {epsilon:g}" for epsilon in epsilons))]
    about = order.settings[PLANNER]
    for steps in about["steps"]:
        for lot_size in about["lot_sizes"]:
            found = [select(records, PLANNER, lot_size=lot_size, steps=steps, epsilon=epsilon) for epsilon in epsilons]
            if any(found):
                rows.append((f"{lot_size:,}", f"{steps:,}", *(_planned(some) for some in found)))
    return markdown_table(rows)


def _planned(found: list[Record]) -> str:
    if not found:
        return "–"
    bands = found[0].found["bands"]
    return f"{found[0].found['relative_error']:.2f} ({bands} band{'s' * (bands > 1)})"


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: the tables say it."""
    return {}
