"""`tacit noise`: what a budget allows."""

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.accounting.curve import AccountantName


def noise(
    epsilon: Annotated[
        float, typer.Option(parser=options.number, metavar="NUMBER", help="The epsilon that is allowed.")
    ],
    delta: options.Delta,
    lot_size: options.LotSize = None,
    population: options.Population = None,
    rate: options.Rate = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    multiplier: options.Multiplier = None,
    by: options.By = "pld",
    adjacency: options.AdjacencyOption = None,
    allow_asymptotic: Annotated[
        bool, typer.Option("--allow-asymptotic", help="Let --by clt decide, though it can exceed the budget.")
    ] = False,
    json: options.Json = False,
    plot: options.Plot = None,
) -> None:
    """What a budget allows: noise, steps or lot size.

    Without --multiplier it finds the least noise; with --multiplier and without --steps, the most steps; with
    --multiplier, --steps and --population, the largest lots.

    \b
    tacit noise --epsilon 3 --delta 1e-5 --lot-size 256 --population 60000 \\
                --steps 14062
    """
    from tacit.cli.allowance import Allowance
    from tacit.cli.output import refuse_unless_drawable, save, say, say_json, working
    from tacit.cli.plan import Plan
    from tacit.cli.search import search_for

    refuse_unless_drawable(plot)
    _refuse_asymptotic(by, allow_asymptotic)
    plan = Plan(multiplier, rate, lot_size, population, steps, epochs, adjacency)
    search = search_for(plan, epsilon=epsilon, delta=delta)
    with working("Searching"):
        allowance = Allowance.of(search, by)
    if plot is not None:
        with working("Drawing"):
            from tacit.report.plots import draw_privacy

            save(draw_privacy(allowance.findings.event, delta=search.delta, budget=search.epsilon), plot)
    if json:
        say_json(allowance.as_json())
    else:
        say(allowance.paragraphs())


def _refuse_asymptotic(by: "AccountantName", allowed: bool) -> None:
    from tacit.errors import Asymptotic

    if by == "clt" and not allowed:
        raise Asymptotic(
            "A budget kept by the central limit theorem can be exceeded: it is an approximation that usually "
            "under-reports epsilon. Use --by pld, or add --allow-asymptotic if the budget is not a promise."
        )
