"""`tacit epsilon`: what a planned run costs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.accounting import Event
    from tacit.workflows.numbers import Plan


def epsilon(
    delta: options.Delta,
    multiplier: options.Multiplier = None,
    lot_size: options.LotSize = None,
    population: options.Population = None,
    rate: options.Rate = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    event: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An event written by Event.to_json, instead of the options above."),
    ] = None,
    by: options.By = "pld",
    adjacency: options.AdjacencyOption = None,
    group: Annotated[
        float,
        typer.Option(parser=options.number, metavar="K", help="Protect any K examples together, not one."),
    ] = 1,
    json: options.Json = False,
    plot: options.Plot = None,
) -> None:
    """What a run costs: epsilon, with certified bounds.

    \b
    tacit epsilon --multiplier 1.1 --lot-size 256 --population 60000 \\
                  --steps 14062 --delta 1e-5
    """
    from tacit import _validate
    from tacit.cli.output import refuse_unless_drawable, save, say, say_json, working
    from tacit.cli.statement import paragraphs
    from tacit.workflows.findings import find
    from tacit.workflows.numbers import Plan

    refuse_unless_drawable(plot)
    plan = Plan(multiplier, rate, lot_size, population, steps, epochs, adjacency)
    planned = _planned(plan, event)
    delta, size = _validate.open_unit("delta", delta), _validate.count("group", group)
    with working("Accounting"):
        findings = find(planned, delta=delta, by=by, group=size)
    if plot is not None:
        with working("Drawing"):
            from tacit.reports.plots import draw_privacy

            save(draw_privacy(planned, delta=delta, group=size), plot)
    if json:
        say_json(findings.as_json())
    else:
        say(paragraphs(findings, population=None if population is None else int(population)))


def _planned(plan: "Plan", file: Path | None) -> "Event":
    from tacit.errors import InvalidArgument
    from tacit.workflows.numbers import read_event

    if file is None:
        return plan.event()
    if plan.given():
        raise InvalidArgument(
            f"--event says all about the run, but {', '.join(plan.given())} came with it. Give one or the other."
        )
    return read_event(file)
