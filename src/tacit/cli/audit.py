"""`tacit audit`: attack a run, or every method in every form."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli import options

_COLUMNS = ("claim", "proven", "audited lower bound", "verdict")


def audit(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="The folder of a run: --out of tacit train.", show_default=False),
    ] = None,
    claims: Annotated[bool, typer.Option("--claims", help="Attack every method, in every form, instead.")] = False,
    canaries: Annotated[
        float | None, options.accept("Gradient canaries in the repeated training; 0 leaves it out (1000).")
    ] = None,
    steps: Annotated[float | None, options.accept("Repeat only the first steps of the training, this many.")] = None,
    shadows: Annotated[float | None, options.accept("Shadow models for the likelihood-ratio attack (0: none).")] = None,
    confidence: Annotated[float | None, options.accept("Confidence of the lower bound on epsilon (0.99).")] = None,
    data_path: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Your copy of the data, if it has moved.")
    ] = None,
    seed: Annotated[float | None, options.accept("Fix canaries and noise, to repeat an audit.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the picture goes (RUN/audit/audit.png).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --claims: folder of results (audits/claims).")
    ] = None,
    workers: Annotated[
        float | None, options.accept("Processes that attack at once, for --claims and --shadows (one for each core).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Attack a run and compare the result with the proof.

    First a few steps are made again, and their lots, sums, noise and charges compared with what is accounted for. Then
    the audit repeats the training with canaries in the data, so it takes as long as the training. After Ctrl-C the same
    command continues. The verdict is written into the run's guarantee. The exit code is 1 if an attack contradicts the
    proof. A model of your own first gets the neighbour test, which takes seconds: removing one example may change a
    release by at most one clip norm. If it changes more, the proof does not apply, and the audit stops there.

    With --claims, every method is attacked on small pairs of data sets made for it, which takes some minutes. The exit
    code is then 1 if a refuted claim holds or a proven one does not.

    \b
    tacit audit runs/first
    tacit audit runs/first --canaries 0 --shadows 16
    tacit audit --claims
    """
    from tacit.errors import InvalidArgument

    if claims == (run is not None):
        what = "Nothing to audit." if run is None else "Two things to audit were given."
        raise InvalidArgument(f"{what} Give the folder of a run, or --claims for published claims.")
    asked = {
        "canaries": canaries, "steps": steps, "shadows": shadows, "confidence": confidence, "data_path": data_path,
        "seed": seed,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if run is None:
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise InvalidArgument(f"{names} is for the audit of a run, and --claims audits none. Leave it out.")
        _audit_claims(out, workers, plot, json)
    else:
        if out is not None:
            raise InvalidArgument("--out is the folder of --claims; the results of a run go into RUN/audit.")
        _audit_run(run, given, workers, plot, json)


def _audit_run(run: Path, given: dict[str, Any], workers: float | None, plot: Path | None, json: bool) -> None:
    from tacit.cli.output import say_result
    from tacit.workflows.audit import audit_run

    with _explain_stop(run / "audit"):
        audit = audit_run(run, workers=workers, plot=plot, **given)
    if not json and audit.report is not None:
        _print_table(("method", *_COLUMNS), [(audit.target.name, *audit.describe())])
    say_result(audit, json)
    if audit.is_refuted:
        raise typer.Exit(1)


def _audit_claims(out: Path | None, workers: float | None, plot: Path | None, json: bool) -> None:
    from tacit.cli.output import say, say_json
    from tacit.workflows.audit import CLAIMS, audit_claims

    with _explain_stop(out or CLAIMS):
        audit = audit_claims(out, workers=workers, plot=plot)
    if json:
        say_json(audit.to_json())
    else:
        _print_table(("method", "neighbouring data sets", *_COLUMNS), [attack.describe() for attack in audit.attacks])
        say([(audit.summary(), [f"Written: {path}" for path in audit.files])])
    if not audit.is_as_expected:
        raise typer.Exit(1)


@contextmanager
def _explain_stop(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        from tacit.cli.output import note

        note(f"Stopped. Finished parts are kept in {folder}; the same command continues.")
        raise typer.Exit(130) from None


def _print_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        Console(width=170).print(table)
    elif console.measure(table).maximum <= console.width:
        console.print(table)
    else:
        # Too wide: each row as a paragraph, its first cell and the others below it with their columns.
        width = max(map(len, columns)) + 2
        for first, *others in rows:
            console.print(first, style="bold", highlight=False)
            for column, cell in zip(columns[1:], others, strict=True):
                console.print(f"  {column:<{width}}{cell}", soft_wrap=True, highlight=False)
            console.print()
