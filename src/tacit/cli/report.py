"""`tacit report`: one page that says what was trained, what is proven about it, and how to do it again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options

if TYPE_CHECKING:
    from tacit.reports.facts import Facts


def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A run of tacit train, or a comparison of tacit compare."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where report.html and report.json go (the same folder).")
    ] = None,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Train a model without privacy beside it, on public data.")
    ] = True,
    data_path: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Your copy of the data, if it has moved.")
    ] = None,
    json: options.Json = False,
) -> None:
    """One page about a run or a comparison, and the same for machines.

    The page is a single file that needs no network: it can be mailed, printed and read on a phone.

    \b
    tacit report runs/first
    tacit report comparisons/iris --out reports/iris
    """
    from tacit.cli.output import say, say_json
    from tacit.reports.comparison import is_comparison

    made = _comparison if is_comparison(folder) else _run
    facts, written, headline = made(folder, out or folder, baseline, data_path)
    if json:
        say_json(facts)
    else:
        caveat = facts.get("progress", {}).get("caveat")
        said = [*([caveat] if caveat else []), f"The report: {written[0]}", f"For machines: {written[1]}"]
        say([(headline, said)])


def _run(folder: Path, out: Path, baseline: bool, data_path: Path | None) -> tuple["Facts", tuple[Path, ...], str]:
    from tacit.cli.output import working
    from tacit.reports.page import write_run
    from tacit.reports.run import is_run, read_run
    from tacit.reports.wording import up
    from tacit.workflows.baseline import keep_baseline
    from tacit.workflows.settings import Settings

    if is_run(folder):
        # Settings that somebody has edited are refused before anything is made of them.
        Settings.read(folder)
        if baseline:
            keep_baseline(folder, data_path)
    with working("Accounting and drawing"):
        facts = read_run(folder)
        facts["ledger"] = _ledger(folder, facts)
        written = write_run(facts, out)
    epsilon, delta = facts["guarantee"]["epsilon"]["upper"], facts["guarantee"]["delta"]
    proven = "nothing finite is proven" if epsilon is None else f"epsilon {up(epsilon)} at delta {delta:g}"
    return facts, written, f"{facts['title']}: {proven}"


def _comparison(
    folder: Path, out: Path, _baseline: bool, _data_path: Path | None
) -> tuple["Facts", tuple[Path, ...], str]:
    from tacit.cli.output import working
    from tacit.reports.comparison import describe_progress
    from tacit.reports.page import write_comparison

    with working("Drawing"):
        facts, written = write_comparison(folder, out)
    return facts, written, f"{facts['title']}: {describe_progress(facts)}"


def _ledger(folder: Path, facts: "Facts") -> str | None:
    """Where the data set stands, if the run was charged to a ledger that can be read."""
    from tacit.cli.balance import find
    from tacit.errors import TacitError
    from tacit.ledger import Ledger
    from tacit.ledger.storage import storage_at
    from tacit.reports.wording import neighbours, up
    from tacit.workflows.settings import Settings

    settings: Any = Settings.read(folder)
    if settings.ledger is None:
        return None
    try:
        if not storage_at(settings.ledger).exists():
            return None
        [balance] = find(Ledger(settings.ledger), settings.data, None, most=1)
    except (TacitError, ValueError):
        return None
    runs = len(balance.account.charges)
    return (
        f"A ledger is kept of this data set. With {runs:,} {'run' if runs == 1 else 'runs'} so far it stands at "
        f"epsilon {up(balance.epsilon)} at delta {balance.delta:g} ({neighbours(balance.account.adjacency)}, PLD)."
    )
