"""Run an experiment, then write its tables and pictures: into its README, or into a page in another folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.library.records import Record, Records, missing
from experiments.library.targets import Experiment, Order, Size, Target

from tacit.datasets import VARIABLE
from tacit.errors import DataMissing, InvalidArgument

RESULTS = "results.jsonl"
_HEAD_LINES = 2
_OWN_COPIES = f"Or set {VARIABLE} to the folder with your copies, each in a folder with the name of its data set."


@dataclass(frozen=True)
class Reproduction:
    """The tables, the paths of page and pictures, and the data sets that were missing.

    `not_run` names the tables without any run, because of `--part` or the size.
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

    Each run is saved when it ends, so an interruption loses only the current one. If `out` is the target's own
    folder, the tables in its README and in the pages that the settings name (`also_in`) are updated.
    """
    order, experiment, records = target.order(size), target.experiment(), Records(out / RESULTS)
    # Later cells may depend on earlier results, so the results in the target's folder decide which parts there are.
    known = dict.fromkeys(cell.part for cell in experiment.cells(order, Records(target.folder / RESULTS)))
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise InvalidArgument(f"{target.name} has no part {', '.join(map(repr, unknown))}. Known: {', '.join(known)}.")
    without_data = run_missing(experiment, order, records, parts, say)
    return write_results(target, order, experiment, out, without_data)


def run_missing(
    experiment: Experiment, order: Order, records: Records, parts: Collection[str], say: Callable[[str], None]
) -> tuple[str, ...]:
    """Run every cell without a record. If a data set is missing, only its own cells are left out."""
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


def write_results(
    target: Target, order: Order, experiment: Experiment, out: Path, without_data: tuple[str, ...] = ()
) -> Reproduction:
    """Write the tables and pictures of all runs so far."""
    found = records_of(experiment, order, Records(out / RESULTS))
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
        _put_in_pages([page, *(target.folder / name for name in order.settings.get("also_in", ()))], every)
    else:
        page = _write_page(out, target.title, tables, figures)
    return Reproduction(tables, not_run, page, tuple(pictures), without_data)


def records_of(experiment: Experiment, order: Order, records: Records) -> list[Record]:
    """The records of this order, sorted as its cells; records of other sizes are left out."""
    known = {record.key: record for record in records.read()}
    return [known[cell.key] for cell in experiment.cells(order, records) if cell.key in known]


def tables_without_runs(tables: Mapping[str, str], of_nothing: Mapping[str, str]) -> tuple[str, ...]:
    """Names of tables that are the same as without any run and have no rows, or say "not run".

    >>> tables_without_runs({"1": "| a |\\n|---|", "2": "| a |\\n|---|\\n| known without |"}, {"1": "| a |\\n|---|"})
    ('1',)
    """
    return tuple(
        name
        for name, table in tables.items()
        if table == of_nothing.get(name) and ("not run" in table.lower() or table.count("\n") < _HEAD_LINES)
    )


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first row is the head.

    >>> print(markdown_table([("method", "epsilon"), ("dpsgd", "2.38")]))
    | method | epsilon |
    |---|---|
    | dpsgd | 2.38 |
    """
    head, *rest = rows
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rest)])


def summary_table(rows: Iterable[Mapping[str, str]], values: Mapping[str, float], size: Size) -> str:
    """What the paper says, what we find, and the verdict; `find` names the values that go into it.

    A row whose values are missing was not run. A quick run has no verdict.

    >>> row = {"part": "Table 1", "says": "96 %", "find": "{first:.1f} %", "verdict": "holds"}
    >>> print(summary_table([row], {"first": 95.96}, "full").splitlines()[-1])
    | Table 1 | 96 % | 96.0 % | holds |
    >>> print(summary_table([row], {}, "full").splitlines()[-1])
    | Table 1 | 96 % | – | not run |
    """
    shown = [("in the paper", "it says", "we find", "verdict")]
    for row in rows:
        try:
            found = (row["find"].format_map(values), "–" if size == "quick" else row["verdict"])
        except KeyError:
            found = ("–", "not run")
        shown.append((row["part"], row["says"], *found))
    return markdown_table(shown)


def tables_in(page: str) -> dict[str, str]:
    """The text between each pair of markers of a page, by name."""
    found = re.finditer(r"<!-- (?P<name>[^>]+): begin -->\n(?P<text>.*?)\n<!-- (?P=name): end -->", page, re.DOTALL)
    return {match["name"]: match["text"].strip() for match in found}


def put_tables(page: str, tables: Mapping[str, str]) -> str:
    """The page with these tables between their markers. A table without markers is an error."""
    lost = [name for name in tables if name not in tables_in(page)]
    if lost:
        wanted = f"<!-- {lost[0]}: begin -->"
        raise InvalidArgument(
            f"The page has no markers for {', '.join(lost)}. Add {wanted} and the same line with end."
        )
    for name, text in tables.items():
        begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


def _put_in_pages(pages: Sequence[Path], tables: Mapping[str, str]) -> None:
    """Write every table into each page that has markers for it. A table without markers in any page is an error."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    everywhere = set().union(*(tables_in(text) for text in texts.values()))
    put_tables(texts[pages[0]], {name: table for name, table in tables.items() if name not in everywhere})
    for page, text in texts.items():
        known = {name: table for name, table in tables.items() if name in tables_in(text)}
        page.write_text(put_tables(text, known), encoding="utf-8")


def _write_page(folder: Path, title: str, tables: Mapping[str, str], pictures: Iterable[str]) -> Path:
    parts = [f"# {title}", *(f"## {name}\n\n{text}" for name, text in tables.items())]
    parts += [f"![{name}](pictures/{name}.png)" for name in pictures]
    path = folder / "tables.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
