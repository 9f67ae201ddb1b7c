"""`tacit compare`: every method that fits the data, at each epsilon, beside the model without privacy."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.reports.facts import Facts
    from tacit.workflows.comparing import Comparison
    from tacit.workflows.settings import Typed

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
    """Train every method at each epsilon: one table, one picture, one report.

    Ctrl-C keeps all finished cells; the same command goes on. Seeds are fixed, so that a comparison can be repeated:
    nothing that it trains is for release.

    \b
    tacit compare iris
    tacit compare breast-cancer --epsilon 0.5,1,3 --seeds 5
    tacit compare digits --methods dpsgd,adaclip --mode both
    tacit compare digits --methods dpsgd,directional --set directional.variant=w1
    """
    from tacit.workflows.settings import Typed

    typed = Typed(
        data_path=data_path,
        method=None,
        mode=None,
        model=model,
        epsilon=None,
        delta=delta,
        multiplier=None,
        lot_size=lot_size,
        population=population,
        steps=steps,
        epochs=epochs,
        clip_norm=clip_norm,
        learning_rate=learning_rate,
        micro_batch=micro_batch,
        seed=None,
        out=out,
        ledger=None,
        target=target,
        bounds=bounds,
    )
    asked = (
        _epsilons(epsilon),
        _names(methods),
        ("rigorous", "paper") if mode == "both" else (mode,),
        seeds,
        chosen or [],
    )
    loaded, comparison = _planned(data, typed, asked)
    folder = out or Path("comparisons") / loaded.name
    _compare(loaded, comparison, folder, workers, json)


def _epsilons(text: str) -> tuple[float, ...]:
    from tacit import _validate
    from tacit.cli.options import number

    return tuple(sorted({_validate.positive("epsilon", number(part)) for part in text.split(",") if part.strip()}))


def _names(text: str | None) -> tuple[str, ...] | None:
    from tacit.errors import InvalidArgument
    from tacit.methods.registry import find_method

    if text is None:
        return None
    names = tuple(dict.fromkeys(find_method(part.strip()).name for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidArgument("Which methods? Give --methods dpsgd,adaclip, or leave it out for all that fit.")
    return names


def _planned(name: str, typed: "Typed", asked: tuple[Any, ...]) -> tuple["Data", "Comparison"]:
    from dataclasses import replace

    from tacit import _validate
    from tacit.cli.output import working
    from tacit.errors import InvalidArgument
    from tacit.workflows.comparing import Comparison, methods_that_fit
    from tacit.workflows.scoring import refuse_unless_fitting
    from tacit.workflows.settings import load_typed, settle

    epsilons, methods, modes, seeds, chosen = asked
    if not epsilons:
        raise InvalidArgument("Which budgets? Give --epsilon 0.5,1,3.")
    with working("Reading data"):
        data, table = load_typed(name, typed)
    if not len(data.test[1]):
        raise InvalidArgument(
            "Methods are compared by their scores, and there are no rows to score: the bounds declare held_out = 0, or "
            "the table is so small that none was held out. Declare a larger share, or a file of public rows as test."
        )
    settings = settle(data, replace(typed, epsilon=epsilons[0]), table)
    refuse_unless_fitting(settings.model, data)
    fitting = methods_that_fit(data, settings.model)
    unfit = [each for each in methods or () if each not in fitting]
    if unfit:
        raise InvalidArgument(
            f"{', '.join(unfit)} is for linear models of features, and does not fit --model {settings.model} on "
            f"{data.name}. Fitting are {', '.join(fitting)}."
        )
    count = _validate.count("seeds", seeds)
    choices = _choices(chosen, methods or fitting)
    for method, texts in choices.items():
        for mode in modes:
            # What a method does not take is refused now, and not in every one of its cells.
            settle(data, replace(typed, epsilon=epsilons[0], method=method, mode=mode, set=texts))
    return data, Comparison(typed, settings, methods or fitting, modes, epsilons, count, choices)


def _choices(texts: list[str], methods: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """What was chosen of each method; of those only that are compared."""
    from tacit.errors import InvalidArgument

    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        method, dot, choice = text.partition(".")
        if not dot or "=" in method:
            raise InvalidArgument(
                f"Of which method? --set takes METHOD.NAME=VALUE here, such as directional.variant=w1. Got {text!r}."
            )
        if method not in methods:
            raise InvalidArgument(f"--set {text} is for {method!r}, and compared are {', '.join(methods)}.")
        found[method] = (*found.get(method, ()), choice)
    return found


def _compare(data: "Data", comparison: "Comparison", folder: Path, workers: float | None, json: bool) -> None:
    import shlex

    from tacit import _validate
    from tacit.cli.output import note, say_json, working
    from tacit.cli.warned import warnings
    from tacit.reports.page import write_comparison
    from tacit.workflows.cautions import cautions
    from tacit.workflows.comparing import available_cores, counted, run

    command = shlex.join(["tacit", *sys.argv[1:]])
    count = available_cores() if workers is None else _validate.count("workers", workers)
    comparison.keep(data, folder, command)
    for line in [*cautions(data, comparison.settings), *warnings(comparison)]:
        note(line)
    if not run(comparison, data, folder, count):
        done, total = counted(comparison, folder)
        note(f"Stopped. {done} of {total} cells are trained and kept in {folder}. Go on with: {command}")
        raise typer.Exit(130)
    with working("Drawing"):
        facts, written = write_comparison(folder, folder)
    if json:
        say_json(facts)
    else:
        _print(facts, written)


def _print(facts: "Facts", written: tuple[Path, ...]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tacit.reports.comparison import columns, lines

    console = Console(highlight=False)
    console = console if console.is_terminal else Console(width=190, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=facts["title"], title_justify="left")
    for column in columns(facts):
        table.add_column(column, overflow="fold", no_wrap=column == "method")
    for line in lines(facts):
        table.add_row(*line)
    console.print(table)
    about = [facts["interval_in_words"], facts["baseline_in_words"], facts["progress"]["caveat"]]
    for words in filter(None, [*facts["words"], *about, f"The report: {written[0]}", f"The picture: {written[2]}"]):
        console.print(words, soft_wrap=True, markup=False)
