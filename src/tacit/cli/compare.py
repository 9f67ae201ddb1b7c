"""`tacit compare`: every method that fits the data, at each epsilon, beside the model without privacy."""

import shlex
import sys
from typing import Annotated, Literal

import typer

from tacit.cli import options

Modes = Literal["rigorous", "paper", "both"]


def compare(
    data: Annotated[str, typer.Argument(help="A data set such as iris, digits or adult; or your own table.")],
    epsilon: Annotated[str, typer.Option(metavar="LIST", help="Budgets to compare at, such as 0.5,1,3.")] = "0.5,1,3",
    methods: Annotated[
        str | None, typer.Option(metavar="LIST", help="Such as recipe,dpsgd,adaclip; all that fit, if left out.")
    ] = None,
    mode: Annotated[
        Modes, typer.Option("--mode", help="rigorous: forms with a proof; paper: as published; both.")
    ] = "rigorous",
    chosen: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.NAME=VALUE", help="A choice of one of the methods; repeatable."),
    ] = None,
    model: options.Model = None,
    seeds: Annotated[float, options.accept("How often each cell is repeated.")] = 3,
    delta: Annotated[float | None, options.accept("Probability with which epsilon may fail.")] = None,
    lot_size: options.LotSize = None,
    population: options.Population = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    clip_norm: options.ClipNorm = None,
    learning_rate: options.LearningRate = None,
    micro_batch: options.MicroBatch = None,
    data_path: options.DataPath = None,
    target: options.Target = None,
    bounds: options.Bounds = None,
    workers: Annotated[float | None, options.accept("Processes that train at once (one for each core).")] = None,
    cluster: options.Cluster = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Where cells and the report go (comparisons/DATA); or an address such as s3://B/F."
        ),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Print every score before the answer.")] = False,
    json: options.Json = False,
) -> None:
    """Which method to use at each epsilon, and what privacy costs.

    Trains every method, the automatic recipe and models without privacy. After Ctrl-C, finished results are
    kept and the same command continues. Seeds are fixed, so that a comparison can be repeated: no model that it trains
    is for release.

    \b
    tacit compare iris
    tacit compare breast-cancer --epsilon 0.5,1,3 --seeds 5
    tacit compare digits --methods dpsgd,adaclip --mode both
    tacit compare digits --methods dpsgd,directional --set directional.variant=w1
    """
    given = dict(locals())
    from tacit.cli.output import say_json
    from tacit.workflows.arguments import check_numbers

    budgets = [options.parse_number(part) for part in epsilon.split(",") if part.strip()]
    names = None if methods is None else [part.strip() for part in methods.split(",") if part.strip()]
    for one in budgets:
        check_numbers(epsilon=one)
    options.check(given, (name for name in names or () if name != "recipe"))
    from tacit.workflows.compare import compare as run

    # Every other option is a keyword of `tacit.compare`.
    del given["chosen"], given["json"], given["table"]
    typed = shlex.join(["tacit", *sys.argv[1:]])
    compared = run(**{**given, "epsilon": budgets, "methods": names}, choices=chosen or (), command=typed)
    if json:
        say_json(compared.facts)
    else:
        print(*([compared.table(), ""] if table else []), compared, sep="\n")
