"""Every claim put to the test: all fixtures, in as many processes as there are cores, each result kept as it comes."""

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
from tacit.audit.evidence import Finding, Kind, LowerBound
from tacit.audit.fixtures import Fixture
from tacit.audit.reports import AuditReport
from tacit.audit.runs import Runs

_RESULTS = "claims"


def put_to_test(fixtures: Sequence[Fixture], folder: Path, workers: int = 1) -> list[AuditReport]:
    """What every fixture shows, in order. Those in the folder are read: an interrupted call goes on where it was.

    Fixtures fix their own seeds, so results are always the same; those of another version of the program, or of
    other fixtures, are not taken for this one's, but made again.
    """
    _forget_others(folder, {"program": _program(), "fixtures": [f"{one}: {one.name}" for one in fixtures]})
    runs = Runs(folder, workers, seed=0)
    paths = runs.results(_RESULTS, _Attacked(tuple(fixtures)), len(fixtures))
    return [report_from(json.loads(np.load(path).tobytes())) for path in paths]


@dataclass(frozen=True)
class _Attacked:
    """One fixture after the other, each as the bytes of its report. Importable, so that processes can run it."""

    fixtures: tuple[Fixture, ...]

    def __call__(self, index: int) -> NDArray[np.uint8]:
        return np.frombuffer(json.dumps(report_json(self.fixtures[index].run())).encode(), dtype=np.uint8)


def _forget_others(folder: Path, about: dict[str, Any]) -> None:
    path = folder / "claims.json"
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) == about:
        return
    for old in folder.glob(f"{_RESULTS}-*.npy"):
        old.unlink()
    path.write_text(json.dumps(about), encoding="utf-8")


def _program() -> str:
    """A fingerprint of this version of tacit: what another one found says nothing of this one."""
    found = hashlib.sha256()
    root = Path(tacit.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def report_json(report: AuditReport) -> dict[str, Any]:
    """An audit for machines; null where nothing is claimed or proven."""
    finding = report.finding
    return {
        "attack": finding.attack,
        "claimed": report.claimed,
        "source": report.source,
        "proven": report.proven if math.isfinite(report.proven) else None,
        "bound": _bound_json(finding.bound),
        "gaussian": _bound_json(finding.gaussian),
        "contradicts": finding.contradicts,
        "verdict": str(report.verdict),
        "notes": list(finding.notes),
        "points": [list(point) for point in finding.points],
    }


def report_from(said: dict[str, Any]) -> AuditReport:
    """An audit read back; its proven curve is no part of what was written."""
    finding = Finding(
        said["attack"],
        _bound_from(said["bound"]),
        _bound_from(said["gaussian"]),
        said["contradicts"],
        tuple((alarms, missed) for alarms, missed in said["points"]),
        tuple(said["notes"]),
    )
    proven = math.inf if said["proven"] is None else said["proven"]
    return AuditReport(finding, said["claimed"], proven, source=said["source"])


def _bound_json(bound: LowerBound) -> dict[str, Any]:
    return {**asdict(bound), "kind": str(bound.kind)}


def _bound_from(said: dict[str, Any]) -> LowerBound:
    return LowerBound(**{**said, "kind": Kind(said["kind"])})
