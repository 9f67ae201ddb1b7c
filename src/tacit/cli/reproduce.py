"""`tacit reproduce`: a paper's tables and figures again, with what is proven beside what was published."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.experiments.order import Size
    from tacit.experiments.running import Reproduction


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="Such as gaussian_dp; without a name, list all.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In minutes: fewer epochs, seeds and examples.")] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="In an hour or two on two cores, where the paper's size takes days.")
    ] = False,
    part: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This part only, such as 'table 1'; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where results go (reproductions/PAPER).")] = None,
    experiments: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The experiments of a clone, if tacit does not run from it.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Run a paper's experiments again: our tables and figures beside the published numbers.

    Every run is kept when it ends; after Ctrl-C the same command goes on. Seeds are fixed: nothing is for release.
    Data sets are read from the folder of TACIT_DATA, or downloaded; what cannot be had is left out and named.

    \b
    tacit reproduce
    tacit reproduce gaussian_dp --quick
    tacit reproduce gaussian_dp --part "table 1" --out experiments/gaussian_dp
    """
    from tacit.experiments.targets import all_targets, find_folder, find_target

    folder = find_folder(experiments)
    if paper is None:
        from tacit.cli.output import say

        known = all_targets(folder)
        width = max(len(target.name) for target in known) + 2
        lines = [f"{target.name:<{width}}{target.title}" for target in known]
        say([("What can be reproduced", lines), ("How", ["tacit reproduce NAME --quick"])])
        return
    target = find_target(folder, paper)
    size = _size(quick, reduced)
    where = out or Path("reproductions") / (target.name if size == "full" else f"{target.name}_{size}")
    found = _reproduced(target.name, folder, size, where, tuple(part or ()))
    _show(found, json)
    # Of all parts, some may be left out. One that was asked for by its name was not made.
    if part and found.without_data:
        raise typer.Exit(1)


def _size(quick: bool, reduced: bool) -> "Size":
    from tacit.errors import InvalidArgument

    if quick and reduced:
        raise InvalidArgument("--quick and --reduced are two sizes. Give one of them.")
    return "quick" if quick else "reduced" if reduced else "full"


def _reproduced(name: str, folder: Path, size: "Size", out: Path, parts: tuple[str, ...]) -> "Reproduction":
    from tacit.cli.output import note
    from tacit.experiments.running import reproduce as run
    from tacit.experiments.targets import find_target
    from tacit.workflows.cautions import said_plainly

    try:
        with said_plainly():
            return run(find_target(folder, name), size, out, parts, note)
    except KeyboardInterrupt:
        note(f"Stopped. All finished runs are kept in {out}; the same command goes on.")
        raise typer.Exit(130) from None


def _show(found: "Reproduction", json: bool) -> None:
    from tacit.cli.output import note, say_json

    for sentence in found.without_data:
        note(f"Left out: {sentence}")
    if found.not_run:
        note(f"Nothing was run for: {'; '.join(found.not_run)}.")
    if json:
        pictures = [str(path) for path in found.pictures]
        say_json({"tables": dict(found.tables), "page": str(found.page), "pictures": pictures})
        return
    for name, table in found.tables.items():
        typer.echo(f"{name}\n\n{table}\n")
    typer.echo(f"The tables: {found.page}")
    for path in found.pictures:
        typer.echo(f"A picture: {path}")
