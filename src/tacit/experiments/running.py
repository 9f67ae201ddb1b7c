"""An experiment from its order to its tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tacit.datasets.cache import VARIABLE
from tacit.errors import DataMissing, InvalidArgument
from tacit.experiments.order import Order, Size
from tacit.experiments.pages import tables_in, with_tables, write_page
from tacit.experiments.records import Record, Records, missing
from tacit.experiments.targets import Experiment, Target

RESULTS = "results.jsonl"
_HEAD_LINES = 2
_OWN_COPIES = f"Or set {VARIABLE} to the folder in which your copies lie, each in a folder with its name."


@dataclass(frozen=True)
class Reproduction:
    """What came out: the tables, where everything lies, and what could not be run for want of data.

    Tables in which nothing was run, because of `--part` or the size, have their names in `not_run`.
    """

    tables: Mapping[str, str]
    not_run: tuple[str, ...]
    page: Path
    pictures: tuple[Path, ...]
    without_data: tuple[str, ...]


def reproduce(
    target: Target, size: Size, out: Path, parts: Collection[str] = (), say: Callable[[str], None] = print
) -> Reproduction:
    """Run what is missing in `out`, then write tables and pictures there.

    Each run is kept when it ends, so an interruption loses only the one under way. If `out` is the target's own
    folder, its README is written anew, and so are its tables in pages that the settings name (`also_in`).
    """
    order, experiment, records = target.order(size), target.experiment(), Records(out / RESULTS)
    _refuse_unknown(parts, target, order)
    without_data = run_missing(experiment, order, records, parts, say)
    return show(target, order, experiment, out, without_data)


def _refuse_unknown(parts: Collection[str], target: Target, order: Order) -> None:
    # Later cells may look at what earlier ones found, so what is on file decides which parts there are.
    known = dict.fromkeys(cell.part for cell in target.experiment().cells(order, Records(target.folder / RESULTS)))
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise InvalidArgument(f"{target.name} has no part {', '.join(map(repr, unknown))}. Known: {', '.join(known)}.")


def run_missing(
    experiment: Experiment, order: Order, records: Records, parts: Collection[str], say: Callable[[str], None]
) -> tuple[str, ...]:
    """Run what no record answers. A data set that is not there costs its own cells only."""
    lacking: dict[str, None] = {}
    for cell in missing(experiment.cells(order, records), records):
        if parts and cell.part not in parts:
            continue
        say(f"{cell} ...")
        try:
            record = records.make(cell)
        except DataMissing as error:
            lacking[f"{error.missing} {_OWN_COPIES}"] = None
            continue
        say(f"  {record.seconds or 0:.0f} s of processor time")
    return tuple(lacking)


def show(
    target: Target, order: Order, experiment: Experiment, out: Path, without_data: tuple[str, ...] = ()
) -> Reproduction:
    """Tables and pictures of what has been run."""
    found = answered(experiment, order, Records(out / RESULTS))
    if not found:
        raise InvalidArgument(f"Nothing of {target.name} has been run in {out}. " + " ".join(without_data))
    every, figures = experiment.tables(order, found), experiment.pictures(order, found)
    not_run = tables_without_runs(every, experiment.tables(order, []))
    tables = {name: table for name, table in every.items() if name not in not_run}
    pictures = []
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        pictures.append(out / "pictures" / f"{name}.png")
        figure.savefig(pictures[-1], dpi=120)
    if out.resolve() == target.folder.resolve():
        page = target.folder / "README.md"
        page.write_text(with_tables(page.read_text(encoding="utf-8"), every), encoding="utf-8")
        for name in order.settings.get("also_in", ()):
            other = target.folder / name
            text = other.read_text(encoding="utf-8")
            shown = {each: table for each, table in every.items() if each in tables_in(text)}
            other.write_text(with_tables(text, shown), encoding="utf-8")
    else:
        page = write_page(out, target.title, tables, figures)
    return Reproduction(tables, not_run, page, tuple(pictures), without_data)


def tables_without_runs(tables: Mapping[str, str], of_nothing: Mapping[str, str]) -> tuple[str, ...]:
    """Names of tables that would be the same if nothing had been run, and show it: no rows, or some "not run".

    >>> tables_without_runs({"1": "| a |\\n|---|", "2": "| a |\\n|---|\\n| known without |"}, {"1": "| a |\\n|---|"})
    ('1',)
    """
    return tuple(
        name
        for name, table in tables.items()
        if table == of_nothing.get(name) and ("not run" in table.lower() or table.count("\n") < _HEAD_LINES)
    )


def answered(experiment: Experiment, order: Order, records: Records) -> list[Record]:
    """The records of this order, in its order; those of another size are left out."""
    known = {record.key: record for record in records.read()}
    return [known[cell.key] for cell in experiment.cells(order, records) if cell.key in known]
