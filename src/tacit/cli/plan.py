"""`tacit plan`: what a budget buys before any data are touched: lots, steps, noise, signal and time."""

from typing import Annotated, Any, Literal

import typer

from tacit.cli import options

Kind = Literal["handwriting", "image", "table", "text"]


def plan(
    population: Annotated[float, options.accept("Public number of examples to train on.")],
    epsilon: Annotated[float, options.accept("Budget.")],
    delta: Annotated[float | None, options.accept("Probability with which epsilon may fail (1e-5, or less).")] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="Kind of data; each has a recipe of its own.")] = "image",
    features: Annotated[float, options.accept("Features of an example (3969: scattering of 28 x 28 pixels).")] = 3969,
    classes: Annotated[float, options.accept("Classes to tell apart.")] = 10,
    lot_size: Annotated[float | None, options.accept("Expected examples in a lot: compares samplings.")] = None,
    steps: Annotated[float | None, options.accept("Steps, with --lot-size.")] = None,
    json: options.Json = False,
) -> None:
    """Show what a budget buys, before any data are read.

    It lists lot size, steps, noise, signal to noise and time for a linear model over features.

    The row with a star is the automatic recipe. The time is estimated from two matrix products on this machine.

    \b
    tacit plan --population 60000 --epsilon 1
    tacit plan --population 30000 --epsilon 0.5 --kind table --classes 2

    With --lot-size and --steps, compare samplings and noises for such a run of any model instead.

    \b
    tacit plan --population 60000 --epsilon 3 --lot-size 256 --steps 3072
    """
    given = dict(locals())
    from tacit.cli.output import say_result
    from tacit.workflows.arguments import check_numbers

    check_numbers(**given)
    from tacit.workflows.plan import plan as find_plans
    from tacit.workflows.plan import plan_samplings

    task: dict[str, Any] = {"population": population, "epsilon": epsilon, "delta": delta}
    if lot_size is not None or steps is not None:
        say_result(plan_samplings(**task, lot_size=lot_size, steps=steps), json)
    else:
        say_result(find_plans(**task, kind=kind, features=features, classes=classes), json)
