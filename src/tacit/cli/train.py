"""`tacit train`: a private model, with its guarantee beside it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli import options
from tacit.workflows import SHIPPED

Mode = Literal["rigorous", "paper"]


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help=f"Your own table, such as patients.csv, or folder of images; or {', '.join(SHIPPED)}.",
            show_default=False,
        ),
    ] = None,
    data_path: options.DataPath = None,
    target: options.Target = None,
    bounds: options.Bounds = None,
    recipe: Annotated[
        Literal["auto", "none"] | None,
        typer.Option(
            "--recipe",
            help="auto: features, lots, steps and rates from public facts (the default for classes with --epsilon "
            "alone); or none.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Features of images by a network trained on public ones: efficientnet_lite0."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="dpsgd (the default) or another one of `tacit methods`.")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option("--mode", help="rigorous has a proof (the default); paper is as published.")
    ] = None,
    chosen: options.Set = None,
    model: options.Model = None,
    epsilon: Annotated[float | None, options.accept("Budget: the noise is computed from it.")] = None,
    delta: Annotated[
        float | None, options.accept("Probability with which epsilon may fail (1e-5, or 0.1 / population).")
    ] = None,
    multiplier: options.Multiplier = None,
    lot_size: options.LotSize = None,
    population: options.PublishedPopulation = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    clip_norm: options.ClipNorm = None,
    learning_rate: options.LearningRate = None,
    momentum: options.Momentum = None,
    views: options.Views = None,
    averaging: options.Averaging = None,
    micro_batch: options.MicroBatch = None,
    seed: Annotated[float | None, options.accept("Make the noise reproducible: the model is not for release.")] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="Charge the run to this ledger; it is made if missing.")
    ] = None,
    dataset: options.DataSetName = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Read a Parquet table in pieces that fit into this memory, such as 2GB."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of model, guarantee and metrics (runs/DATA-1, ...).")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Resume the run in this folder.")] = None,
    json: options.Json = False,
) -> None:
    """Train a private model: weights, guarantee and test accuracy.

    With --epsilon alone, a recipe trains a classifier and chooses everything else from public facts. With other
    options, or if the target is a number, a network is trained. Ctrl-C saves the run and prints the command that
    resumes it.

    \b
    tacit train mnist --epsilon 1
    tacit train digits --epsilon 3 --steps 200 --out runs/first
    tacit train mnist --epsilon 3 --model tempered
    tacit train mnist --data-path ~/mnist --multiplier 1.1 --epochs 15
    tacit train patients.csv --target outcome --bounds bounds.toml --epsilon 1
    tacit train photos/ --epsilon 1 --population 5000
    tacit train wine --epsilon 1 --ledger wine.ledger
    tacit train adult --epsilon 1 --method objective_perturbation
    tacit train digits --epsilon 3 --method directional --set objective=l2
    tacit train --resume runs/first
    """
    given = dict(locals())
    options.check(given, [method] if method else [])
    from tacit.cli.output import say, say_result
    from tacit.workflows.train import train as run

    # Every other option is a keyword of `tacit.train`.
    del given["chosen"], given["json"]
    trained = run(**given, set=chosen or None, announce=None if json else say)
    if not json:
        print()
    say_result(trained, json)
