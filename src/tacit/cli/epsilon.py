"""`tacit epsilon`: what a planned run costs."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import options


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
        typer.Option(parser=options.parse_number, metavar="K", help="Protect any K examples together, not one."),
    ] = 1,
    json: options.Json = False,
    plot: options.Plot = None,
) -> None:
    """Compute the epsilon of a run, with certified bounds.

    \b
    tacit epsilon --multiplier 1.1 --lot-size 256 --population 60000 \\
                  --steps 14062 --delta 1e-5
    """
    from tacit.cli.output import say, say_json
    from tacit.errors import InvalidArgument
    from tacit.workflows.epsilon import find, paragraphs
    from tacit.workflows.numbers import RunNumbers, read_event
    from tacit.workflows.progress import show_status
    from tacit.workflows.text import refuse_unless_drawable, save_picture

    refuse_unless_drawable(plot)
    plan = RunNumbers(multiplier, rate, lot_size, population, steps, epochs, adjacency)
    if event is not None and plan.given():
        raise InvalidArgument(
            f"--event describes the whole run. Leave out {', '.join(plan.given())}, or leave out --event."
        )
    planned = plan.event() if event is None else read_event(event)
    with show_status("Accounting"):
        findings = find(planned, delta=delta, by=by, group=group)
    if plot is not None:
        with show_status("Drawing"):
            save_picture(findings.draw(), plot)
    if json:
        say_json(findings.as_json())
    else:
        say(paragraphs(findings, population=None if population is None else int(population)))
