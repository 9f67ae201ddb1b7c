"""Every ERM method on the six tables of Kang et al.: accuracy and optimality gap, by claim and by certified epsilon.

In paper form a method gets the noise that its authors prescribe for epsilon: the comparison by claim. In rigorous form
it gets the noise that is certified for epsilon. The optimality gap is the regularised training objective less that of
the model without noise; accuracy is on test rows that are taken as public.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from experiments.library import Cell, Order, Record, Records, markdown_table
from experiments.library.training import mean_and_spread
from matplotlib.figure import Figure

from .contenders import CONTENDERS, Contender
from .fitting import fit_over_seeds, without_noise
from .tables import read

NO_NOISE = "without noise"
NAMES = {"logistic": "logistic regression", "network": "one hidden layer"}


def seeds_for(order: Order, rows: int) -> int:
    """Small tables are fitted more often."""
    seeds: dict[str, int] = order.settings["seeds"]
    return seeds["large"] if rows > seeds["large_from"] else seeds["small"]


def cells(order: Order, records: Records) -> Iterator[Cell]:
    """Every table, model, method and epsilon."""
    for name in order.settings["tables"]:
        for model in order.settings["models"]:
            yield _cell(order, name, model, {"method": NO_NOISE}, lambda table, m=model: without_noise(table, m))
            for contender in (each for each in CONTENDERS if each.fits(name, model)):
                for epsilon in order.settings["epsilons"]:
                    asked = {"method": contender.name, "epsilon": epsilon}
                    make = partial(_fits, order=order, contender=contender, model=model, epsilon=epsilon)
                    yield _cell(order, name, model, asked, make)


def _cell(order: Order, name: str, model: str, asked: dict[str, Any], make: Any) -> Cell:
    asked = {"model": model, **asked, "size": order.size}
    return Cell(name, asked, lambda: make(read(order, name)))


def _fits(table: Any, *, order: Order, contender: Contender, model: str, epsilon: float) -> dict[str, Any]:
    seeds = seeds_for(order, len(table.train[0]))
    return fit_over_seeds(contender, table, model, epsilon, order.settings["delta"], seeds)


def tables(order: Order, records: list[Record]) -> dict[str, str]:
    """Two tables per data set and model: as published, by claim; and with a proof, by certified epsilon."""
    shown = {}
    for name in order.settings["tables"]:
        parts = []
        for model in order.settings["models"]:
            here = [each for each in records if each.part == name and each.asked["model"] == model]
            bare = [each.found["accuracy"][0] for each in here if each.asked["method"] == NO_NOISE]
            if bare:
                parts.append(f"**{NAMES[model].capitalize()}**; without noise: accuracy {100 * bare[0]:.1f} %.")
                parts += [_table(order, here, name, model, published) for published in (True, False)]
        shown[name] = "\n\n".join(parts) or "Not run."
    return shown


def _table(order: Order, records: list[Record], name: str, model: str, published: bool) -> str:
    epsilons = order.settings["epsilons"]
    title = "noise as published: ε is claimed" if published else "noise with a proof: ε is certified"
    rows = [(title, *(f"ε = {epsilon:g}: accuracy, gap, certified ε" for epsilon in epsilons))]
    for contender in CONTENDERS:
        if contender.is_published == published and contender.fits(name, model):
            found = {r.asked["epsilon"]: r.found for r in records if r.asked["method"] == contender.name}
            rows.append((contender.name, *(cell_text(found.get(epsilon)) for epsilon in epsilons)))
    return markdown_table(rows)


def cell_text(found: dict[str, Any] | None) -> str:
    """Means over seeds, and what is proven."""
    if found is None:
        return "–"
    if "refused" in found:
        return "refused"
    gap = "diverged" if None in found["gap"] else f"{statistics.mean(found['gap']):.2g}"
    return f"{mean_and_spread(found['accuracy'])}, {gap}, {certified(found)}"


def certified(found: Mapping[str, Any]) -> str:
    """What is proven, and of what it is not."""
    if found["certified"] is None:
        return "nothing"
    exposed = f", not {' and '.join(found['unprotected'])}" if found["unprotected"] else ""
    return f"{found['certified']:.3g}{exposed}"


def pictures(order: Order, records: list[Record]) -> dict[str, Figure]:
    """None: the curves over epsilon are drawn in data_perturbation and input_perturbation."""
    return {}
