"""`tacit tune`: settings by random search, of which only the best outcome is released, at its true cost."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import options


def _accept(meaning: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="VALUES", help=meaning)
    return option


def tune(
    data: Annotated[str, typer.Argument(help="A data set such as iris, digits or adult; or your own table.")],
    epsilon: Annotated[float, options.accept("Budget of the whole search.")],
    delta: Annotated[float | None, options.accept("Probability with which epsilon may fail.")] = None,
    learning_rate: Annotated[
        str | None, _accept("A range 0.1:10 or a list 0.1,1,10 (a quarter to four times the default).")
    ] = None,
    clip_norm: Annotated[str | None, _accept("Largest norm of one example's gradient: a range or a list (1).")] = None,
    lot_size: Annotated[str | None, _accept("Expected examples per lot: a list.")] = None,
    epochs: Annotated[str | None, _accept("Passes over the data: a list.")] = None,
    steps: Annotated[str | None, _accept("Or the number of lots: a list.")] = None,
    trials: Annotated[float, options.accept("Average number of trials; the actual number stays secret.")] = 10,
    shape: Annotated[
        float,
        options.accept("1: the number of trials is geometric. A smaller shape costs less and tries less."),
    ] = 1,
    method: Annotated[str | None, typer.Option(metavar="NAME", help="As for tacit train (dpsgd).")] = None,
    chosen: options.Set = None,
    model: options.Model = None,
    population: options.PublishedPopulation = None,
    micro_batch: options.MicroBatch = None,
    data_path: options.DataPath = None,
    target: options.Target = None,
    bounds: options.Bounds = None,
    seed: Annotated[float | None, options.accept("Make the search reproducible: the model is not for release.")] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="Charge the search to this ledger; it is made if missing.")
    ] = None,
    cluster: options.Cluster = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the best model goes (runs/DATA-1, ...).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Find good settings and train with them, within one budget.

    Each trial draws its settings at random. Only the best trial is kept and shown. The others, and their number, stay
    secret, so the search costs little more than a single run. If you compare runs of tacit train instead, you pay for
    all of them.

    \b
    tacit tune iris --epsilon 3
    tacit tune digits --epsilon 3 --learning-rate 0.1:10 --clip-norm 0.1,1
    tacit tune digits --epsilon 3 --lot-size 128,512 --trials 20
    tacit tune patients.csv --target outcome --bounds bounds.toml --epsilon 1
    """
    given = dict(locals())
    options.check(given, [method] if method else [])
    from tacit.cli.output import say, say_result
    from tacit.workflows.tune import tune as search

    # Every other option is a keyword of `tacit.tune`.
    del given["chosen"], given["json"]
    tuned = search(**given, set=chosen or None, announce=None if json else say)
    if not json:
        print()
    say_result(tuned, json)
