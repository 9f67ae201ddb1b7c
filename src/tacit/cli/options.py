"""The options that commands share: how each is spelt, and what it means."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Accountant = Literal["pld", "rdp", "moments", "clt"]
AdjacencyName = Literal["add_remove", "replace_one"]


def number(text: str) -> float:
    """A number as typed; whether it lies in its range, the library says.

    >>> number("14_062"), number("1e-5")
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


Delta = Annotated[
    float,
    typer.Option(parser=number, metavar="NUMBER", help="Probability with which epsilon may fail: below 1/population."),
]
Multiplier = Annotated[
    float | None,
    typer.Option(
        parser=number, metavar="NUMBER", help="Standard deviation of the noise over the sensitivity of the sum."
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="NUMBER",
        help="Probability with which an example enters a lot (instead of lot size and population).",
    ),
]
LotSize = Annotated[
    float | None,
    typer.Option(parser=number, metavar="NUMBER", help="Expected number of examples in a Poisson lot."),
]
Population = Annotated[
    float | None,
    typer.Option(parser=number, metavar="NUMBER", help="Public number of examples that lots are drawn from."),
]
Steps = Annotated[
    float | None, typer.Option(parser=number, metavar="NUMBER", help="Number of noisy releases, one per lot.")
]
Epochs = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="NUMBER",
        help="Passes over the data (instead of steps): epochs * population / lot size, rounded up.",
    ),
]
By = Annotated[
    Accountant,
    typer.Option(
        "--by",
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
Json = Annotated[
    bool,
    typer.Option("--json", help='Print JSON instead: infinity is the string "inf", what is refused is null.'),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw the trade-off curve and epsilon over steps: .png, .svg or .pdf."),
]
