"""`tacit audit --claims`: every method in every form, what is claimed and proven of it, and what an attack shows."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tacit import _validate
from tacit.audit import fixtures as every
from tacit.audit.claims import put_to_test, report_json
from tacit.audit.fixtures import Fixture
from tacit.audit.reports import AuditReport
from tacit.cli.output import note, refuse_unless_drawable, save, say_json
from tacit.cli.tables import audited, console, epsilon, table
from tacit.methods.registry import list_methods
from tacit.workflows.auditing import write_json
from tacit.workflows.comparing import available_cores

FOLDER = Path("audits") / "claims"
_MODES = ("paper", "rigorous")


@dataclass(frozen=True)
class Row:
    """One attack on one method in one form."""

    fixture: Fixture
    report: AuditReport

    @property
    def is_as_expected(self) -> bool:
        """Whether a refuted claim breaks and a proven one does not."""
        return self.fixture.is_as_expected(self.report)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        fixture = self.fixture
        about = {"method": fixture.method, "mode": fixture.mode, "form": fixture.form, "fixture": fixture.name}
        return {**about, "pair": fixture.pair, **report_json(self.report), "as_expected": self.is_as_expected}


def audit_claims(out: Path | None, workers: float | None, plot: Path | None, *, json: bool) -> None:
    """Attack everything, and say what broke; ends with 1 if that is not what was expected."""
    refuse_unless_drawable(plot)
    count = available_cores() if workers is None else _validate.count("workers", workers)
    folder = out or FOLDER
    try:
        rows = _attacked(folder, count)
    except KeyboardInterrupt:
        note(f"Stopped. What was done is kept in {folder}, and the same command goes on with it.")
        raise typer.Exit(130) from None
    said = {"claims": [row.as_json() for row in rows]}
    write_json(folder / "audit.json", said)
    picture = plot or folder / "audit.png"
    _draw(rows, picture)
    if json:
        say_json(said)
    else:
        _print(rows, (picture, folder / "audit.json"))
    if not all(row.is_as_expected for row in rows):
        raise typer.Exit(1)


def _attacked(folder: Path, workers: int) -> list[Row]:
    """By method, as `tacit methods` lists them; first as published, then as it is run."""
    order = {
        (one.name, mode): (place, _MODES.index(mode)) for place, one in enumerate(list_methods()) for mode in _MODES
    }
    fixtures = sorted(every.all_fixtures(), key=lambda one: order[one.method, one.mode])
    return [Row(*pair) for pair in zip(fixtures, put_to_test(fixtures, folder, workers), strict=True)]


def _draw(rows: list[Row], path: Path) -> None:
    from tacit.reports.audit_plots import draw_claims

    save(draw_claims([(str(row.fixture), row.fixture.name.replace("_", " "), row.report) for row in rows]), path)


def _print(rows: list[Row], written: tuple[Path, ...]) -> None:
    shown = table(
        "method", "two data sets that differ in one example", "claim", "proven", "audited lower bound", "verdict"
    )
    for row in rows:
        report, verdict = row.report, str(row.report.verdict)
        style = "bold red" if not row.is_as_expected else "red" if row.fixture.breaks else ""
        shown.add_row(
            str(row.fixture),
            row.fixture.name.replace("_", " "),
            epsilon(report.claimed, "none"),
            epsilon(report.proven, "nothing"),
            audited(report.finding.bound),
            (f"[{style}]{verdict}[/]" if style else verdict) + ("" if row.is_as_expected else ", not as expected"),
        )
    out = console()
    out.print(shown)
    for words in (_summary(rows), *(f"Written: {path}" for path in written)):
        out.print(words, soft_wrap=True, markup=False)


def _summary(rows: list[Row]) -> str:
    counts = Counter(str(row.report.verdict) for row in rows)
    found = ", ".join(f"{count} × {verdict}" for verdict, count in counts.most_common())
    odd = sum(not row.is_as_expected for row in rows)
    least = min(row.report.finding.bound.confidence for row in rows)
    sure = (
        "" if math.isclose(least, 1) else f" A measured bound is wrong with a probability of {1 - least:.2g} at most."
    )
    return (
        f"Epsilon, at delta 1e-05 or at that of the claim. {len(rows)} attacks: {found}; "
        f"{'all as expected' if not odd else f'{odd} NOT AS EXPECTED'}.{sure} A claim that breaks is refuted: "
        "docs/guarantees.md says why."
    )
