"""`tacit bounds`: a template of the bounds file of a table."""

from pathlib import Path
from typing import Annotated

import typer


def bounds(
    table: Annotated[str, typer.Argument(help="Your own table, such as patients.csv.", show_default=False)],
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the template is written.")] = Path("bounds.toml"),
) -> None:
    """Write a template of bounds.toml from the header of a table.

    No value of the table is read. Fill in the template, then train with it.

    \b
    tacit bounds patients.csv --target outcome
    """
    from tacit.cli.output import say
    from tacit.workflows.bounds import bounds as write

    say(write(table, target=target, out=out).paragraphs())
