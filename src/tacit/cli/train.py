"""`tacit train`: a private model, with its guarantee beside it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.cli import options
from tacit.datasets import SHIPPED

if TYPE_CHECKING:
    from tacit.datasets import Data
    from tacit.workflows.settings import Typed
    from tacit.workflows.training import Training

Mode = Literal["rigorous", "paper"]


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help=f"Your own table, such as patients.csv; or {', '.join(SHIPPED)}.",
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
            help="auto: features, lots, steps and rates from public facts, as with a data set by name and an epsilon "
            "alone; or none.",
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
    epsilon: Annotated[
        float | None, options.numeric("The epsilon that the run may cost; the noise is found from it.")
    ] = None,
    delta: Annotated[
        float | None,
        options.numeric("Probability with which epsilon may fail (1e-5, or less if the population asks for it)."),
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
    seed: Annotated[
        float | None, options.numeric("Fix the noise, to repeat a run: what it trains is not for release.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="Charge the run to this ledger; made if it is not there.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where model, guarantee and metrics go (runs/DATA-1, ...).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Go on with the run in this folder; says all about it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Train a private model: weights, guarantee and test accuracy.

    With a data set by name and an epsilon alone, a recipe chooses all else from public facts. Otherwise a network is
    trained as you say; Ctrl-C saves the run, and says how to go on.

    \b
    tacit train mnist --epsilon 1
    tacit train digits --epsilon 3 --steps 200 --out runs/first
    tacit train mnist --epsilon 3 --model tempered
    tacit train mnist --data-path ~/mnist --multiplier 1.1 --epochs 15
    tacit train patients.csv --target outcome --bounds bounds.toml --epsilon 1
    tacit train wine --epsilon 1 --ledger wine.ledger
    tacit train digits --epsilon 3 --method directional --set objective=l2 --set grain=parameter
    tacit train --resume runs/first
    """
    from tacit.cli.output import before_the_first_step
    from tacit.workflows.settings import Typed

    typed = Typed(
        data_path,
        method,
        mode,
        model,
        epsilon,
        delta,
        multiplier,
        lot_size,
        population,
        steps,
        epochs,
        clip_norm,
        learning_rate,
        micro_batch,
        seed,
        out,
        ledger,
        target,
        bounds,
        tuple(chosen) if chosen else None,
        momentum,
        views,
        averaging,
    )
    if resume is None:
        with before_the_first_step():
            loaded, table = _loaded(data, typed)

            from tacit.workflows.by_recipe import takes_recipe, train_as_typed

            is_by_recipe = takes_recipe(recipe, typed, loaded, is_own=table is not None)
        if is_by_recipe:
            train_as_typed(loaded, table, typed, json)
            return
    elif _goes_on_by_recipe(data, typed, resume, json):
        return
    with before_the_first_step(is_resumed=resume is not None):
        training = _begun(loaded, table, typed) if resume is None else _resumed(typed, resume)
        if resume is None:
            _caution(training)
        _announce(training, json)
    _finish(training, json)


def _loaded(data: str | None, typed: "Typed") -> "tuple[Data, dict[str, str] | None]":
    from tacit.cli.output import working
    from tacit.workflows.settings import load_typed, refuse_unless_free

    refuse_unless_free(typed.out)
    with working("Reading data"):
        return load_typed(data, typed)


def _begun(loaded: "Data", table: dict[str, str] | None, typed: "Typed") -> "Training":
    from tacit.cli.output import working
    from tacit.workflows.settings import settle

    with working("Accounting"):
        settings = settle(loaded, typed, table)

        from tacit.workflows.scoring import refuse_unless_fitting
        from tacit.workflows.training import Training

        refuse_unless_fitting(settings.model, loaded)
        return Training.begin(loaded, settings, typed.out)


def _goes_on_by_recipe(data: str | None, typed: "Typed", folder: Path, json: bool) -> bool:
    """Go on with the run in the folder, if it is one by recipe."""
    from tacit.errors import InvalidArgument
    from tacit.workflows.settings import Settings

    movable = ("--data-path", "--ledger")
    said = [*([data] if data is not None else []), *(name for name in typed.given() if name not in movable)]
    if said:
        raise InvalidArgument(
            f"--resume goes on with a run as it was planned, but {', '.join(said)} came with it. Leave that out; "
            "only --data-path and --ledger, if the files have moved, and --json can be given."
        )
    settings = Settings.read(folder)
    if settings.recipe is None:
        return False

    from tacit.workflows.by_recipe import go_on

    go_on(folder, settings, typed.data_path, typed.ledger, json)
    return True


def _resumed(typed: "Typed", folder: Path) -> "Training":
    from tacit.cli.output import working
    from tacit.workflows.training import Training

    with working("Reading the saved run"):
        return Training.resume(folder, typed.data_path, typed.ledger)


def _caution(training: "Training") -> None:
    from tacit.cli.output import note
    from tacit.workflows.cautions import cautions

    for line in cautions(training.data, training.settings):
        note(line)


def _announce(training: "Training", json: bool) -> None:
    from tacit.cli.outcome import plan, warning
    from tacit.cli.output import note, say

    warned = warning(training)
    if warned is not None:
        note(warned)
    if not json:
        say([plan(training)])


def _finish(training: "Training", json: bool) -> None:
    from tacit.cli.outcome import as_json, outcome, stopped
    from tacit.cli.output import note, say, say_json

    command = shlex.join(["tacit", "train", "--resume", str(training.folder), *(["--json"] if json else [])])
    try:
        is_finished = training.go()
    except KeyboardInterrupt:
        note(f"Stopped at once. Steps since the last save are charged when the run goes on: {command}")
        raise typer.Exit(130) from None
    if not is_finished:
        note(stopped(training, command))
        raise typer.Exit(130)
    if json:
        say_json(as_json(training))
    else:
        print()
        say(outcome(training))
