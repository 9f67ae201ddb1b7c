"""`tacit reproduce`: run a paper's experiments again, with the certified epsilon beside the published numbers."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from experiments.library.running import Reproduction


def reproduce(
    paper: Annotated[
        str | None, typer.Argument(help="Such as gaussian_dp; without a name, list all.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes: fewer epochs, seeds and examples.")] = False,
    reduced: Annotated[
        bool, typer.Option("--reduced", help="An hour or two on two cores, if the full size takes days.")
    ] = False,
    part: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This part only, such as 'table 1'; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder of results (reproductions/PAPER).")] = None,
    experiments: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder experiments/ of a clone of the repository.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Repeat a paper's experiments, beside its published numbers.

    Every run is saved when it ends. After Ctrl-C the same command resumes. Seeds are fixed, so the models are not for
    release. Data sets are read from the folder TACIT_DATA, or downloaded. Missing ones are skipped and named.

    \b
    tacit reproduce
    tacit reproduce gaussian_dp --quick
    tacit reproduce gaussian_dp --part "table 1" --out experiments/gaussian_dp
    """
    from tacit.cli.output import note, say
    from tacit.errors import InvalidArgument

    folder = find_experiments(experiments)
    targets = _import_library(folder, "targets")
    if paper is None:
        known = targets.all_targets(folder)
        width = max(len(target.name) for target in known) + 2
        lines = [f"{target.name:<{width}}{target.title}" for target in known]
        say([("What can be reproduced", lines), ("How", ["tacit reproduce NAME --quick"])])
        return
    if quick and reduced:
        raise InvalidArgument("--quick and --reduced are two sizes. Give one of them.")
    target = targets.find_target(folder, paper)
    size = "quick" if quick else "reduced" if reduced else "full"
    where = out or Path("reproductions") / (target.name if size == "full" else f"{target.name}_{size}")
    try:
        found = _import_library(folder, "running").reproduce(target, size, where, tuple(part or ()), note)
    except KeyboardInterrupt:
        note(f"Stopped. All finished runs are saved in {where}; the same command resumes.")
        raise typer.Exit(130) from None
    _print_results(found, json)
    # Without --part, missing data sets are expected. A part that was asked for by name must be made.
    if part and found.without_data:
        raise typer.Exit(1)


def find_experiments(given: Path | None = None) -> Path:
    """The experiments folder: as given, else of the clone that tacit runs from, else in the working folder."""
    from tacit.errors import InvalidArgument

    clone = Path(__file__).resolve().parents[3] / "experiments"
    candidates = [given] if given is not None else [clone, Path.cwd() / "experiments"]
    for folder in candidates:
        if folder.name == "experiments" and (folder / "library").is_dir():
            return folder.resolve()
    raise InvalidArgument(
        f"There are no experiments in {' or '.join(map(str, candidates))}. They come with the repository, not with the "
        "installed package: clone it, and run tacit reproduce in the clone, or give --experiments CLONE/experiments."
    )


def _import_library(folder: Path, module: str) -> Any:
    """A module of the clone's experiments/library, which the installed package does not have."""
    root = str(folder.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    return import_module(f"experiments.library.{module}")


def _print_results(found: "Reproduction", json: bool) -> None:
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
    typer.echo(f"Tables: {found.page}")
    for path in found.pictures:
        typer.echo(f"Picture: {path}")
