"""`tacit report`: one page that says what was trained, what is proven about it, and how to do it again."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli import options


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="A run of tacit train, a comparison of tacit compare, or what PrivateRun.save wrote."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where report.html and report.json go (the same folder).")
    ] = None,
    baseline: Annotated[
        bool,
        typer.Option("--baseline/--no-baseline", help="Also train a model without privacy, on public data."),
    ] = True,
    data_path: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Your copy of the data, if it has moved.")
    ] = None,
    format: Annotated[
        Literal["html", "registry"], typer.Option(help="A page, or a draft for the public registry of deployments.")
    ] = "html",
    json: options.Json = False,
) -> None:
    """Write a report of a run or a comparison: HTML and JSON.

    The page is a single file that needs no network: it can be mailed, printed and read on a phone.

    \b
    tacit report runs/first
    tacit report comparisons/iris --out reports/iris
    tacit report runs/first --format registry
    """
    from tacit.cli.output import say, say_json
    from tacit.workflows.report import report as write
    from tacit.workflows.report import write_registry

    if format == "registry":
        path = write_registry(folder, out)
        print(path.read_text(encoding="utf-8") if json else f"Draft for the registry of deployments: {path}")
        return
    written = write(folder, out, baseline=baseline, data_path=data_path)
    if json:
        say_json(written.facts)
    elif written.facts["kind"] == "comparison":
        print(written)
    else:
        caveat = [written.caveat] if written.caveat else []
        say([(written.headline, [*caveat, f"Report: {written.page}", f"For machines: {written.json}"])])
