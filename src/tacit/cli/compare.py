"""`tacit compare`: every method that fits the data, at each epsilon, beside the model without privacy."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.workflows.compare import Comparison

Modes = Literal["rigorous", "paper", "both"]


def compare(
    data: Annotated[str, typer.Argument(help="A data set such as iris, digits or adult; or your own table.")],
    epsilon: Annotated[str, typer.Option(metavar="LIST", help="Budgets to compare at, such as 0.5,1,3.")] = "0.5,1,3",
    methods: Annotated[
        str | None, typer.Option(metavar="LIST", help="Such as dpsgd,adaclip; all that fit, if left out.")
    ] = None,
    mode: Annotated[
        Modes, typer.Option("--mode", help="rigorous has a proof; paper is as published, at equal claimed epsilon.")
    ] = "rigorous",
    chosen: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.NAME=VALUE", help="A choice of one of the methods; repeatable."),
    ] = None,
    model: options.Model = None,
    seeds: Annotated[float, options.numeric("How often each cell is repeated.")] = 3,
    delta: Annotated[float | None, options.numeric("Probability with which epsilon may fail.")] = None,
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
    workers: Annotated[float | None, options.numeric("Processes that train at once (one for each core).")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where cells and the report go (comparisons/DATA).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Train every method at each epsilon, and compare them.

    Ctrl-C keeps all finished cells; the same command goes on. Seeds are fixed, so that a comparison can be repeated:
    nothing that it trains is for release.

    \b
    tacit compare iris
    tacit compare breast-cancer --epsilon 0.5,1,3 --seeds 5
    tacit compare digits --methods dpsgd,adaclip --mode both
    tacit compare digits --methods dpsgd,directional --set directional.variant=w1
    """
    import shlex

    from tacit.cli.output import say_json
    from tacit.workflows.arguments import check_methods, check_numbers

    budgets = [options.number(part) for part in epsilon.split(",") if part.strip()]
    names = None if methods is None else [part.strip() for part in methods.split(",") if part.strip()]
    for one in budgets:
        check_numbers(epsilon=one)
    check_numbers(
        delta=delta, lot_size=lot_size, population=population, steps=steps, epochs=epochs, clip_norm=clip_norm,
        micro_batch=micro_batch, seeds=seeds, workers=workers,
    )  # fmt: skip
    check_methods(names or ())
    from tacit.workflows.bounds import check_table

    check_table(data_path or data, target, bounds)
    from tacit.workflows.compare import compare as run

    compared = run(
        data,
        epsilon=budgets,
        methods=names,
        mode=mode,
        seeds=seeds,
        workers=workers,
        choices=chosen or (),
        command=shlex.join(["tacit", *sys.argv[1:]]),
        model=model,
        delta=delta,
        lot_size=lot_size,
        population=population,
        steps=steps,
        epochs=epochs,
        clip_norm=clip_norm,
        learning_rate=learning_rate,
        micro_batch=micro_batch,
        data_path=data_path,
        target=target,
        bounds=bounds,
        out=out,
    )
    if json:
        say_json(compared.facts)
    else:
        _print(compared)


def _print(compared: "Comparison") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    facts, (head, *lines) = compared.facts, compared.table()
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(width=190, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=facts["title"], title_justify="left")
    for column in head:
        table.add_column(column, overflow="fold", no_wrap=column == "method")
    for line in lines:
        table.add_row(*line)
    console.print(table)
    about = [facts["interval_in_words"], facts["baseline_in_words"], facts["progress"]["caveat"]]
    files = [f"Report: {compared.page}", f"Picture: {compared.picture}"]
    for words in filter(None, [*facts["words"], *about, *files, str(compared.answer)]):
        console.print(words, soft_wrap=True, markup=False)
