"""Every ERM method on one of the tables of Kang et al.: accuracy, optimality gap, and what is certified.

In paper form a method gets the noise that its authors prescribe for epsilon. In rigorous form it gets the noise that is
certified for epsilon. The optimality gap is the regularised training objective less that of the model without noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import mean_and_spread
from matplotlib.figure import Figure

from .contenders import CONTENDERS, LOGISTIC
from .curves import asked_for, data_table, fits, found_by
from .curves import cells as curve_cells


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every table, method and epsilon, for logistic regression."""
    yield from curve_cells(order, records)
    for name in order.settings["tables"]:
        for contender in CONTENDERS:
            for epsilon in order.settings["epsilons"]:
                asked = {**asked_for(order, LOGISTIC, contender.name), "epsilon": epsilon}
                yield Cell(name, asked, partial(fits, order, name, LOGISTIC, contender.name, epsilon))


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """As published, by claim; with a proof, by certified epsilon; and the data."""
    return {
        "As published": _table(order, records, published=True),
        "With a proof": _table(order, records, published=False),
        "Data": data_table(order, records),
    }


def _table(order: Order, records: list[Record], *, published: bool) -> str:
    kind, names = "claimed" if published else "certified", list(order.settings["tables"])
    shown = "accuracy, gap, certified ε" if published else "accuracy, gap"
    heads = [f"{name}, {kind} ε = {e:g}: {shown}" for name in names for e in order.settings["epsilons"]]
    rows = [("method", *heads)]
    for contender in CONTENDERS:
        if contender.is_published == published:
            found = {name: found_by(records, name, LOGISTIC, contender.name) for name in names}
            texts = [_text(found[name].get(e), published) for name in names for e in order.settings["epsilons"]]
            rows.append((contender.name, *texts))
    return markdown_table(rows)


def _text(found: Mapping[str, Any] | None, published: bool) -> str:
    if found is None:
        return "–"
    gap = "diverged" if None in found["gap"] else f"{statistics.mean(found['gap']):.2g}"
    shown = f"{mean_and_spread(found['accuracy'])}, {gap}"
    return f"{shown}, {_certified(found)}" if published else shown


def _certified(found: Mapping[str, Any]) -> str:
    if found["certified"] is None:
        return "nothing"
    return f"{found['certified']:.2g}{' (not labels)' if found['unprotected'] else ''}"


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: the curves over epsilon are drawn in data_perturbation and input_perturbation."""
    return {}
