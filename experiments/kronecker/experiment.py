"""Networks from scratch by DP-SGD, with gradients clipped as they are and in the metric of public Kronecker factors.

The factors come from images of noise with random labels at the first weights, so both forms cost the same epsilon.
Learning rates are chosen on training examples that are held out, from the same few for both forms. All else is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from experiments.correlated_noise.training import new_model, prepare, train
from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import choose_rate, difference_by_seed, mean_and_spread, select
from matplotlib.figure import Figure

from tacit import Budget, Poisson
from tacit.methods import dpsgd
from tacit.stages.mechanism import Mechanism
from tacit.stages.noise import GaussianNoise

from .factors import KroneckerClip, find_factors, noise_images

RATES, PLAIN, FACTORS = "learning rates", "plain", "factors"
# What decides a run beside form, epsilon, learning rate and seed: another number is another run.
_DECIDING = ("lot_size", "steps", "clip_norm", "optimizer", "most_rows")
_OF_FACTORS = ("probes", "alpha", "damping", "back")


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Learning rates on held-out examples, then every setting with every seed."""
    names, forms = order.settings["data"], order.settings["forms"]
    for name in names:
        for form in forms:
            for rate in names[name]["rates"]:
                for seed in order.settings["tuning_seeds"]:
                    yield _cell(order, RATES, name, order.settings["tuning_epsilon"], form, rate, seed)
    for epsilon in order.settings["epsilons"]:
        for seed in range(order.settings["seeds"]):
            for name in names:
                for form in forms:
                    rate = best_rate(order, records.read(), name, form)
                    if rate is not None:
                        yield _cell(order, name, name, epsilon, form, rate, seed)


def _cell(order: Order, part: str, name: str, epsilon: float, form: str, rate: float, seed: int) -> Cell:
    about = order.settings["data"][name]
    asked = {"data": name, "epsilon": epsilon, "form": form, "rate": rate, "seed": seed, "size": order.size}
    asked |= _decide(order, about, form)
    return Cell(part, asked, partial(_run, order, about, part == RATES, epsilon, form, rate, seed))


def _decide(order: Order, about: Mapping[str, Any], form: str) -> dict[str, Any]:
    of_factors = {each: order.settings[each] for each in _OF_FACTORS} if form == FACTORS else {}
    return {each: about[each] for each in _DECIDING} | of_factors


def _run(
    order: Order, about: Mapping[str, Any], is_held_out: bool, epsilon: float, form: str, rate: float, seed: int
) -> dict[str, Any]:
    data = prepare(order.load(about["data"]), about["most_rows"], about["last"] if is_held_out else 0)
    budget, sampling = Budget(epsilon, order.settings["delta"]), Poisson(about["lot_size"], data.population)
    model = new_model(data, about, seed)
    mechanism = dpsgd(about["clip_norm"])
    if form == FACTORS:
        probes, alpha = order.settings["probes"], order.settings["alpha"]
        images = noise_images(data.shape, probes, alpha=alpha, low=about["low"], high=about["high"], seed=seed)
        images = images.to(memory_format=torch.channels_last)
        factors = find_factors(model, images, data.classes or 2, damping=order.settings["damping"], seed=seed)
        bound = KroneckerClip(factors, about["clip_norm"], order.settings["back"])
        mechanism = Mechanism(bound, GaussianNoise())
    return train(model, data, about, mechanism, sampling, budget=budget, rate=rate, seed=seed)


def best_rate(order: Order, records: list[Record], name: str, form: str) -> float | None:
    """The learning rate with the best mean accuracy on held-out examples; None until all were tried."""
    about = order.settings["data"][name]
    wanted = {"data": name, "epsilon": order.settings["tuning_epsilon"], "form": form, "size": order.size}
    wanted |= _decide(order, about, form)
    return choose_rate(records, RATES, about["rates"], order.settings["tuning_seeds"], **wanted)


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Accuracy, and what the runs were made with."""
    return {"accuracy": _accuracy_table(order, records), "rates": _rate_table(order, records)}


def _accuracy_table(order: Order, records: list[Record]) -> str:
    epsilons = sorted(order.settings["epsilons"])
    rows: list[tuple[str, ...]] = [("data", "clipped", *(f"ε = {e:g}" for e in epsilons), "largest certified / asked")]
    words = {PLAIN: "as they are", FACTORS: "in the metric of the factors"}
    for name in order.settings["data"]:
        if not select(records, name):
            continue
        for form in order.settings["forms"]:
            found = [select(records, name, form=form, epsilon=epsilon) for epsilon in epsilons]
            shares = [each.found["certified"] / each.asked["epsilon"] for some in found for each in some]
            scores = (_show([each.found["accuracy"] for each in some]) for some in found)
            rows.append((name, words[form], *scores, f"{max(shares):.5f}" if shares else "–"))
        differences = (
            difference_by_seed(*(select(records, name, form=form, epsilon=epsilon) for form in (FACTORS, PLAIN)))
            for epsilon in epsilons
        )
        rows.append((name, "difference", *differences, ""))
    return markdown_table(rows)


def _show(scores: list[float]) -> str:
    seeds = f", {len(scores)} seed{'s' * (len(scores) > 1)}"
    return f"{mean_and_spread(scores, unit='', digits=2)}{seeds}" if scores else "–"


def _rate_table(order: Order, records: list[Record]) -> str:
    """Accuracy on held-out examples, by learning rate."""
    rates = sorted({rate for about in order.settings["data"].values() for rate in about["rates"]})
    rows: list[tuple[str, ...]] = [("data", "clipped", *(f"rate {rate:g}" for rate in rates))]
    for name in order.settings["data"]:
        for form in order.settings["forms"]:
            found = [select(records, RATES, data=name, form=form, rate=rate) for rate in rates]
            if any(found):
                rows.append(
                    (
                        name,
                        form,
                        *(mean_and_spread([r.found["accuracy"] for r in some], "") if some else "–" for some in found),
                    )
                )
    return markdown_table(rows)


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: the tables say it."""
    return {}
