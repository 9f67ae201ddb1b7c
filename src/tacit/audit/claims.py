"""Test every claim: run all fixtures in several processes, and save each result when it is ready."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit.audit.evidence import AuditReport, Finding, Kind, LowerBound
from tacit.audit.fixtures import Fixture
from tacit.audit.runs import Runs

_RESULTS = "claims"


def run_fixtures(fixtures: Sequence[Fixture], folder: Path, workers: int = 1) -> list[AuditReport]:
    """The report of every fixture, in order. Results in the folder are reused, so an interrupted call can resume.

    Fixtures have fixed seeds, so results are always the same. Results of another version of the program, or of other
    fixtures, are made again.
    """
    _remove_others(folder, {"program": _fingerprint_program(), "fixtures": [f"{one}: {one.name}" for one in fixtures]})
    runs = Runs(folder, workers, seed=0)
    paths = runs.results(_RESULTS, _FixtureJob(tuple(fixtures)), len(fixtures))
    return [read_report(json.loads(np.load(path).tobytes())) for path in paths]


@dataclass(frozen=True)
class _FixtureJob:
    """Runs one fixture, and returns the bytes of its report. Importable, so that processes can run it."""

    fixtures: tuple[Fixture, ...]

    def __call__(self, index: int) -> NDArray[np.uint8]:
        return np.frombuffer(json.dumps(write_report(self.fixtures[index].run())).encode(), dtype=np.uint8)


def _remove_others(folder: Path, about: dict[str, Any]) -> None:
    path = folder / "claims.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) == about:
        return
    for old in folder.glob(f"{_RESULTS}-*.npy"):
        old.unlink()
    path.write_text(json.dumps(about), encoding="utf-8")


def _fingerprint_program() -> str:
    """A fingerprint of this version of tacit."""
    found = hashlib.sha256()
    root = Path(tacit.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def write_report(report: AuditReport) -> dict[str, Any]:
    """An audit as JSON values; null if nothing is claimed or proven."""
    finding = report.finding
    return {
        "attack": finding.attack,
        "claimed": report.claimed,
        "source": report.source,
        "proven": report.proven if math.isfinite(report.proven) else None,
        "bound": asdict(finding.bound),
        "gaussian": asdict(finding.gaussian),
        "contradicts": finding.contradicts,
        "verdict": str(report.verdict),
        "notes": list(finding.notes),
        "points": [list(point) for point in finding.points],
    }


def read_report(written: dict[str, Any]) -> AuditReport:
    """The audit of `write_report`, without its proven curve."""
    finding = Finding(
        written["attack"],
        _read_bound(written["bound"]),
        _read_bound(written["gaussian"]),
        written["contradicts"],
        tuple((alarms, missed) for alarms, missed in written["points"]),
        tuple(written["notes"]),
    )
    proven = math.inf if written["proven"] is None else written["proven"]
    return AuditReport(finding, written["claimed"], proven, source=written["source"])


def _read_bound(written: dict[str, Any]) -> LowerBound:
    return LowerBound(**{**written, "kind": Kind(written["kind"])})
