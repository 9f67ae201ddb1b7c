"""Write the report of a run or a comparison: `report` is what `tacit report` calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._files import write_atomic
from tacit.errors import TacitError
from tacit.ledger import Ledger
from tacit.ledger.storage import storage_at
from tacit.reports.answer import Answer
from tacit.reports.comparison import is_comparison
from tacit.reports.page import write_comparison, write_run
from tacit.reports.registry import describe_deployment
from tacit.reports.run import read_run
from tacit.reports.wording import neighbours, up
from tacit.training.folder import RunFolder
from tacit.workflows.baseline import keep_baseline
from tacit.workflows.ledger import find
from tacit.workflows.progress import show_status
from tacit.workflows.saved import read_settings


@dataclass(frozen=True)
class Report:
    """A written report: one HTML page, and the same facts as JSON. As text, a comparison is its answer."""

    headline: str
    page: Path
    json: Path
    facts: dict[str, Any]

    @property
    def caveat(self) -> str | None:
        """What an unfinished comparison lacks."""
        caveat: str | None = self.facts.get("progress", {}).get("caveat")
        return caveat

    def __str__(self) -> str:
        if self.facts["kind"] == "comparison":
            return "\n".join(Answer.of(self.facts).lines(self.page))
        return "\n  ".join(filter(None, [self.headline, self.caveat, f"Report: {self.page}", f"JSON: {self.json}"]))


def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    baseline: bool = True,
    data_path: str | Path | None = None,
) -> Report:
    """Write the report of the run or comparison in the folder, into `out` or the same folder.

    The run may also be one of your own program, which `PrivateRun.save` has saved there.

    With `baseline`, the same model is first trained without privacy beside a run on public data. `data_path` says
    where the data have moved.
    """
    folder, target = Path(folder), Path(folder if out is None else out)
    if is_comparison(folder):
        with show_status("Drawing"):
            facts, written = write_comparison(folder, target)
        return Report(facts["title"], written[0], written[1], facts)
    if RunFolder(folder).is_run:
        # Settings that somebody has edited are refused before anything is computed from them.
        read_settings(folder)
        if baseline:
            keep_baseline(folder, None if data_path is None else Path(data_path))
    with show_status("Accounting and drawing"):
        facts = read_run(folder)
        facts["ledger"] = _describe_ledger(folder)
        files = write_run(facts, target)
    epsilon, delta = facts["guarantee"]["epsilon"]["upper"], facts["guarantee"]["delta"]
    proven = "no finite epsilon is proven" if epsilon is None else f"epsilon {up(epsilon)} at delta {delta:g}"
    return Report(f"{facts['title']}: {proven}", *files, facts)


def write_registry(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the run in the folder as a draft for the public registry of deployments; return the file, registry.yaml."""
    folder, target = Path(folder), Path(folder if out is None else out)
    path = target / "registry.yaml"
    text = json.dumps(describe_deployment(read_run(folder)), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text.encode(), is_private=False)
    return path


def _describe_ledger(folder: Path) -> str | None:
    """The state of the data set's budget, if the run was charged to a ledger that can be read."""
    if not RunFolder(folder).settings.exists():
        return None
    settings = read_settings(folder)
    if settings.ledger is None:
        return None
    try:
        if not storage_at(settings.ledger).exists():
            return None
        [balance] = find(Ledger(settings.ledger), settings.ledger_name, None, most=1)
    except (TacitError, ValueError):
        return None
    runs, compared = len(balance.account.charges), neighbours(balance.account.adjacency, unit=balance.account.unit)
    return (
        f"This data set has a ledger. After {runs:,} {'run' if runs == 1 else 'runs'} it has spent epsilon "
        f"{up(balance.epsilon)} at delta {balance.delta:g} ({compared}, PLD)."
    )
