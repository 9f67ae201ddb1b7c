"""The options that commands share: how each is spelt, and what it means."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

AdjacencyName = Literal["add_remove", "replace_one"]


def parse_number(text: str) -> float:
    """A number as typed; whether it lies in its range, the library says.

    >>> parse_number("14_062"), parse_number("1e-5")
    (14062, 1e-05)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number. Write it like 14062, 1.1 or 1e-5.") from None


def accept(meaning: str) -> typer.models.OptionInfo:
    """An option that takes a number."""
    option: typer.models.OptionInfo = typer.Option(parser=parse_number, metavar="NUMBER", help=meaning)
    return option


def check(given: Mapping[str, Any], methods: Iterable[str] = ()) -> None:
    """Refuse wrong numbers, unknown methods and bounds with problems, before anything heavy is loaded."""
    from tacit.workflows.arguments import check_methods, check_numbers

    check_numbers(**given)
    check_methods(methods)
    if given["bounds"] is not None:
        from tacit.workflows.bounds import check_table

        check_table(given["data_path"] or given["data"], given["target"], given["bounds"])


Delta = Annotated[float, accept("Probability with which epsilon may fail: below 1/population.")]
Multiplier = Annotated[float | None, accept("Standard deviation of the noise over the sensitivity of the sum.")]
Rate = Annotated[
    float | None, accept("Probability with which an example enters a lot (instead of lot size and population).")
]
LotSize = Annotated[float | None, accept("Expected number of examples in a Poisson lot.")]
Population = Annotated[float | None, accept("Public number of examples that lots are drawn from.")]
Steps = Annotated[float | None, accept("Number of noisy releases, one per lot.")]
Epochs = Annotated[
    float | None, accept("Passes over the data (instead of steps): epochs * population / lot size, rounded up.")
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Accountant: pld is certified on both sides, rdp and moments from above; clt is an approximation.",
    ),
]
AdjacencyOption = Annotated[
    AdjacencyName | None,
    typer.Option(
        "--adjacency",
        help="Which data sets are compared: one example added or removed (the default), or one replaced.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Train on the workers of a cluster: tcp://HOST:8786 of Dask, ray://HOST:10001 of Ray (local processes).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help='Print JSON; infinity is the string "inf".')]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the trade-off curve and epsilon over steps: .png, .svg or .pdf."),
]
PublishedPopulation = Annotated[
    float | None, accept("Public number of examples that lots are drawn from (the published size).")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of the method (see tacit methods NAME); repeatable."),
]
ClipNorm = Annotated[float | None, accept("Largest norm of one example's gradient (1).")]
LearningRate = Annotated[float | None, accept("Learning rate of the optimizer.")]
Momentum = Annotated[float | None, accept("Momentum of the optimizer (0).")]
Views = Annotated[float | None, accept("Shifted views of each image; their gradients are averaged, then clipped (1).")]
Averaging = Annotated[
    float | None, accept("Decay of a running mean of the weights, such as 0.98; 0: the last weights (0).")
]
MicroBatch = Annotated[float | None, accept("Most examples that go through the model at once.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="linear, mlp, cnn, embedding or tempered; your own: net.py:make_model."),
]
DataSetName = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="Name of the data set in the ledger (that of the data).")
]
DataPath = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Your copy of a data set by name: a folder or a file.")
]
Target = Annotated[str | None, typer.Option(metavar="COLUMN", help="For your own table: the column to predict.")]
Bounds = Annotated[
    Path | None, typer.Option(metavar="FILE", help="For your own table: what is public about its columns (TOML).")
]
