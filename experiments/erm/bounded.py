"""The papers' bounds with the numbers of one table, beside the excess risk of our runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

from experiments.library import Cell, Order, Record, markdown_table

from tacit.erm import Minimiser, prepare

from .bounds import TABLE_2020, TABLE_2021, Constants, lone_example, small_steps, theorem_2_proof, theorem_3
from .fitting import DATA_NORM, loss_for
from .tables import read

PART = "bounds"
_TABLES = {"2020": TABLE_2020, "2021": TABLE_2021}


def bound_cells(order: Order) -> Iterator[Cell]:
    """The constants of the table, and the counterexample of the paper's theorem."""
    about = order.settings["bounds"]
    yield Cell(PART, {"table": about["table"], "size": order.size}, partial(_constants, order))
    yield Cell(PART, {"counterexample": about["paper"], "size": order.size}, partial(_counterexample, about["paper"]))


def _constants(order: Order) -> dict[str, Any]:
    table = read(order, order.settings["bounds"]["table"]).split(0)
    problem = prepare(*table.train, loss=loss_for(table), regularisation=table.regularisation, data_norm=DATA_NORM)
    theta = Minimiser().fit(problem)
    return {
        "n": problem.n,
        "parameters": problem.dimension,
        "columns": problem.columns,
        "lipschitz": problem.lipschitz,
        "smooth": problem.smoothness,
        "strong": problem.regularisation,
        "radius": float((theta**2).sum() ** 0.5),
    }


def _counterexample(paper: str) -> dict[str, Any]:
    # The number of steps of theorem 3 is log(n^2 epsilon^2 / log(1/delta)), here 12.
    bound, found = small_steps(1e-4) if paper == "2020" else lone_example(1000, 12)
    return {"bound": bound, "found": found}


def bounds_table(order: Order, records: list[Record]) -> str:
    """A row of table 1 each: the noise, the bound with the constant 1, and the gap of our run."""
    about, found = order.settings["bounds"], [r for r in records if r.part == PART]
    known = [r.found for r in found if "table" in r.asked]
    epsilon, name = about["epsilon"], about["table"]
    head = "noise std by table 1", "excess risk bound (constant 1)", f"gap of our run, {name}, LR, ε = {epsilon:g}"
    rows = [("method", *head)]
    if known:
        c = Constants(
            steps=about["steps"],
            step_size=about["step_size"],
            epsilon=epsilon,
            delta=order.settings["delta"],
            **known[0],
        )
        for row in _TABLES[about["paper"]]:
            std = "–" if row.variance is None else f"{row.variance(c) ** 0.5:.2g}"
            bound = "not given" if row.excess is None else f"{row.excess(c):.2g}"
            rows.append((row.method, std, bound, _gap(records, name, row.method, epsilon)))
        if about["paper"] == "2020":
            rows.append(("the proof of theorem 2, equation 48", "", f"{theorem_2_proof(c):.2g}", ""))
        else:
            rows.append(("theorem 3, equation 19, from the optimum", "", f"{theorem_3(c, 0.0):.2g}", ""))
    for record in found:
        if "counterexample" in record.asked:
            rows.append(("counterexample", "", f"{record.found['bound']:.2g}", f"{record.found['found']:.2g}"))
    return markdown_table(rows)


def _gap(records: list[Record], name: str, method: str, epsilon: float) -> str:
    asked = {"model": "logistic", "method": method, "epsilon": epsilon}
    for record in records:
        if record.part == name and asked.items() <= record.asked.items():
            gaps = record.found.get("gap", [None])
            return "diverged" if None in gaps else f"{statistics.mean(gaps):.2g}"
    return "not run"
