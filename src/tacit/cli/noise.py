"""`tacit noise`: what a budget allows."""

from typing import Annotated, Literal

import typer

from tacit.cli import options

Encoding = Literal["profile", "flat", "drawn"]


def noise(
    epsilon: Annotated[float, options.accept("The budget.")],
    delta: options.Delta,
    lot_size: options.LotSize = None,
    population: options.Population = None,
    rate: options.Rate = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    multiplier: options.Multiplier = None,
    by: options.By = "pld",
    adjacency: options.AdjacencyOption = None,
    families: Annotated[
        bool, typer.Option("--families", help="Compare laws of noise on encoded gradients, at equal certified epsilon.")
    ] = False,
    dimension: Annotated[float | None, options.accept("With --families: how many numbers a release has.")] = None,
    encoding: Annotated[
        Encoding | None,
        typer.Option(
            "--encoding",
            help="With --families: profile (sorted normal sizes, the default), flat (all alike) or drawn (1000).",
        ),
    ] = None,
    allow_asymptotic: Annotated[
        bool, typer.Option("--allow-asymptotic", help="Allow --by clt, which can exceed the budget.")
    ] = False,
    json: options.Json = False,
    plot: options.Plot = None,
) -> None:
    """Find the noise, steps or lot size that a budget allows.

    Without --multiplier it finds the least noise. With --multiplier and without --steps it finds the most steps. With
    --multiplier, --steps and --population it finds the largest lots.

    \b
    tacit noise --epsilon 3 --delta 1e-5 --lot-size 256 --population 60000 \\
                --steps 14062
    tacit noise --families --dimension 1000 --epsilon 1 --delta 1e-5
    """
    from tacit.accounting import accountant_named
    from tacit.cli.output import say, say_json
    from tacit.errors import Asymptotic, InvalidArgument
    from tacit.workflows.arguments import check_numbers, warn_about_delta

    check_numbers(epsilon=epsilon, delta=delta, multiplier=multiplier, lot_size=lot_size, population=population)
    from tacit.workflows.noise import Allowance, NoiseComparison, search_for, setting_for
    from tacit.workflows.numbers import RunNumbers
    from tacit.workflows.progress import show_status
    from tacit.workflows.text import refuse_unless_drawable, save_picture

    refuse_unless_drawable(plot)
    if accountant_named(by).is_asymptotic and not allow_asymptotic:
        raise Asymptotic(
            f"A budget kept by the accountant {by!r} can be exceeded: it is an approximation that may report too small "
            "an epsilon. Use --by pld, or add --allow-asymptotic if the budget is not a promise."
        )
    plan = RunNumbers(multiplier, rate, lot_size, population, steps, epochs, adjacency)
    found: Allowance | NoiseComparison
    if families:
        with show_status("Comparing laws of noise"):
            setting = setting_for(plan, by, dimension=dimension, encoding=encoding or "profile")
            found = NoiseComparison.of(setting, encoding or "profile", epsilon=epsilon, delta=delta)
    else:
        only = [name for name, value in (("--dimension", dimension), ("--encoding", encoding)) if value is not None]
        if only:
            raise InvalidArgument(f"{' and '.join(only)} needs --families. Add it, or leave this out.")
        search = search_for(plan, epsilon=epsilon, delta=delta)
        with show_status("Searching"):
            found = Allowance.of(search, by)
        if population is not None:
            warn_about_delta(search.delta, int(population))
    if plot is not None:
        with show_status("Drawing"):
            save_picture(found.draw(), plot)
    if json:
        say_json(found.as_json())
    else:
        say(found.paragraphs())
