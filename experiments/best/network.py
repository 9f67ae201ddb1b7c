"""A small network from scratch, beside the linear models: what it reaches, how long it takes, and what does it good.

What is compared is scored on training examples that are held out. The network itself is scored on test examples.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from experiments.library import Cell, Order, Record, markdown_table
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tacit
from tacit.datasets import Data
from tacit.gradients import per_example_gradients
from tacit.gradients.views import Shifts, Views
from tacit.models.networks import tempered_cnn
from tacit.training.fit import fit

NETWORK, INGREDIENTS = "network", "ingredients"


def network_cells(order: Order) -> Iterator[Cell]:
    """The network with every seed, then shorter runs with and without each ingredient."""
    about = order.settings[NETWORK]
    for seed in range(about["seeds"]):
        asked = {**_asked(about), "seed": seed, "size": order.size}
        yield Cell(NETWORK, asked, partial(_tested, order, about, seed))
    for seed in range(order.settings[INGREDIENTS]["seeds"]):
        for name, form in _forms(order).items():
            asked = {"form": name, **_asked(form), "seed": seed, "size": order.size}
            yield Cell(INGREDIENTS, asked, partial(_held_out, order, form, seed))


def _asked(about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that decides a run: another number is another run."""
    return {name: value for name, value in about.items() if name not in ("data", "seeds")}


def _forms(order: Order) -> dict[str, dict[str, Any]]:
    """The network's settings in short runs, with those of each form laid over them."""
    short = {name: value for name, value in order.settings[INGREDIENTS].items() if name not in ("forms", "last")}
    forms: dict[str, dict[str, Any]] = order.settings[INGREDIENTS]["forms"]
    return {name: {**order.settings[NETWORK], **short, **form} for name, form in forms.items()}


def _tested(order: Order, about: Mapping[str, Any], seed: int) -> dict[str, Any]:
    return train_network(order.load(about["data"]), about, order.settings["delta"], seed)


def _held_out(order: Order, about: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The same, scored on the last examples to train on, which are left out."""
    data, last = order.load(about["data"]), order.settings[INGREDIENTS]["last"]
    rows, labels = data.train
    kept = replace(data, train=(rows[:-last], labels[:-last]), test=(rows[-last:], labels[-last:]))
    return train_network(replace(kept, population=data.population - last), about, order.settings["delta"], seed)


def train_network(data: Data, about: Mapping[str, Any], delta: float, seed: int) -> dict[str, Any]:
    """The last weights, and their running mean, which costs nothing: both are functions of what was released."""
    torch.manual_seed(seed)
    choices = {name: about[name] for name in ("groups", "hidden", "is_standardised")}
    model = tempered_cnn(data.shape, data.classes or 2, **choices)
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(about["averaging"]))
    views = about["views"]
    run = tacit.PrivateRun(
        model,
        torch.nn.functional.cross_entropy,
        data=data.train,
        mechanism=tacit.methods.dpsgd(clip_norm=about["clip_norm"]),
        sampling=tacit.Poisson(lot_size=about["lot_size"], population=data.population),
        steps=about["steps"],
        budget=tacit.Budget(epsilon=about["epsilon"], delta=delta),
        gradients=Views(Shifts(about["pixels"]), views) if views > 1 else per_example_gradients,
        micro_batch=about["micro_batch"],
        seed=seed,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=about["learning_rate"], momentum=about["momentum"])
    fit(run, optimizer, [lambda _: mean.update_parameters(model)])
    certified = run.guarantee().epsilon(delta)
    return {"accuracy": _accuracy(model, data), "averaged": _accuracy(mean, data), "certified": certified}


def _accuracy(model: torch.nn.Module, data: Data) -> float:
    inputs, labels = (torch.from_numpy(part) for part in data.test)
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).sum() for x, y in zip(inputs.split(2000), labels.split(2000), strict=True)]
    return float(torch.stack(hits).sum()) / len(labels)


def network_tables(order: Order, records: list[Record]) -> dict[str, str]:
    """What the network reaches, and what each ingredient gives."""
    return {NETWORK: _words(records), INGREDIENTS: _ingredients(order, records)}


def _words(records: list[Record]) -> str:
    here = [each for each in records if each.part == NETWORK]
    if not here:
        return "Not run."
    minutes = statistics.mean((each.seconds or 0) / 60 for each in here)
    return (
        f"{_over_seeds(here, 'averaged')} % with the running mean of the weights and {_over_seeds(here, 'accuracy')} % "
        f"with the last ones, on test images, at a certified ε of {max(each.found['certified'] for each in here):.3g}, "
        f"in {minutes:.1f} minutes of processor time ({len(here)} seed{'s' * (len(here) > 1)})."
    )


def _ingredients(order: Order, records: list[Record]) -> str:
    rows = []
    for name in order.settings[INGREDIENTS]["forms"]:
        here = [each for each in records if each.part == INGREDIENTS and each.asked["form"] == name]
        cells = ("not run", "", "", "0")
        if here:
            minutes = statistics.mean((each.seconds or 0) / 60 for each in here)
            cells = (_over_seeds(here, "accuracy"), _over_seeds(here, "averaged"), f"{minutes:.1f}", str(len(here)))
        rows.append((name, *cells))
    return markdown_table([("network", "last weights", "running mean", "minutes a run", "seeds"), *rows])


def _over_seeds(records: list[Record], what: str) -> str:
    found = [100 * each.found[what] for each in records]
    spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.2f}{spread}"
