"""Audit a run, or every published claim: `audit_run` and `audit_claims` are what `tacit audit` calls."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import _validate
from tacit._files import write_atomic
from tacit.audit import AuditReport, NeighbourTest, ReleaseTest, Roc, Verdict
from tacit.audit import fixtures as published
from tacit.audit.claims import run_fixtures, write_report
from tacit.audit.fixtures import Fixture
from tacit.methods.registry import list_methods
from tacit.reports.audit_plots import draw_audit, draw_claims, draw_membership
from tacit.reports.wording import down
from tacit.workflows.audit_target import AuditTarget, load_target
from tacit.workflows.progress import show_status
from tacit.workflows.text import Paragraph, Printable, refuse_unless_drawable, replace_infinity, save_picture
from tacit.workflows.workers import count_cores

CLAIMS = Path("audits") / "claims"
_MODES = ("paper", "rigorous")


@dataclass(frozen=True, eq=False)
class RunAudit(Printable):
    """What attacks on a run found, beside what is proven. `str` shows all of it.

    `neighbours` is the neighbour test of a user's own model, and `releases` the release test; after one that failed
    nothing else was tried. `report` is None if the training was not repeated with canaries.
    """

    target: AuditTarget
    neighbours: NeighbourTest | None
    releases: ReleaseTest | None
    report: AuditReport | None
    membership: dict[str, Roc]
    files: tuple[Path, ...]

    @property
    def is_refuted(self) -> bool:
        """Whether an attack contradicts what is proven."""
        if any(test is not None and not test.passed for test in (self.neighbours, self.releases)):
            return True
        return self.report is not None and self.report.verdict is Verdict.CONFLICT

    def to_json(self) -> dict[str, Any]:
        """The findings for machines."""
        return {
            "folder": str(self.target.folder.path),
            "attacked": self.target.attacked,
            "neighbours": None if self.neighbours is None else self.neighbours.to_json(),
            "releases": None if self.releases is None else self.releases.to_json(),
            "audit": None if self.report is None else write_report(self.report),
            "membership": {name: _describe_roc(one) for name, one in self.membership.items()},
        }

    def describe(self) -> tuple[str, str, str, str]:
        """Claimed and proven epsilon, the audited lower bound and the verdict, as text."""
        assert self.report is not None
        return _describe_report(self.report)

    def paragraphs(self) -> list[Paragraph]:
        """The findings as titles with lines."""
        target, test = self.target, self.neighbours
        files = ("Files (private: computed from private examples)", [str(path) for path in self.files])
        if test is not None and not test.passed:
            return [("Neighbour test: failed", [str(test)]), files]
        if self.releases is not None and not self.releases.passed:
            return [("Release test: failed", [str(self.releases)]), files]
        attacked = {name: f"Attacked: {what}." for name, what in target.attacked.items()}
        members = f"Membership: {' against '.join(target.counted)}"
        tests = {"Neighbour test": test, "Release test": self.releases}
        found = [(name, [str(one)]) for name, one in tests.items() if one is not None]
        if self.report is not None:
            found.append(("Canaries", [attacked["canaries"], *str(self.report).splitlines()]))
        lines = [attacked["membership"], *(f"{name}: {one}" for name, one in self.membership.items())]
        return [*found, (members, lines), files]


def audit_run(
    folder: str | Path,
    *,
    canaries: float = 1000,
    steps: float | None = None,
    shadows: float = 0,
    confidence: float = 0.99,
    data_path: str | Path | None = None,
    seed: float | None = None,
    workers: float | None = None,
    plot: str | Path | None = None,
) -> RunAudit:
    """Attack the run in a folder and write what was found into its guarantee.

    A user's own model is first put to the neighbour test. Then a few steps are made again and compared with what was
    accounted for, the model is asked about members, and the training is
    repeated with gradient canaries in the data (`canaries=0` leaves that out; `steps` repeats the first steps only).
    `shadows` trains so many shadow models for the likelihood-ratio attack. What is done is kept, so that the same call
    continues after an interruption.
    """
    picture = None if plot is None else Path(plot)
    refuse_unless_drawable(picture)
    wanted = _validate.count("canaries", canaries, at_least=0)
    some_steps = None if steps is None else _validate.count("steps", steps)
    fixed = None if seed is None else _validate.count("seed", seed, at_least=0)
    sure, shadow_count = _validate.open_unit("confidence", confidence), _validate.count("shadows", shadows, at_least=0)
    processes = None if workers is None else _validate.count("workers", workers)
    target = load_target(Path(folder), None if data_path is None else Path(data_path))
    with show_status("Removing examples, one at a time"):
        test = target.neighbours()
    if test is not None and not test.passed:
        return _conclude(target, test, None, None, {}, ())
    with show_status("Comparing releases with what was accounted for"):
        releases = target.releases()
    if not releases.passed:
        return _conclude(target, test, releases, None, {}, ())
    with show_status("Asking the model about its examples"):
        membership = target.membership()
    if shadow_count:
        membership["likelihood ratio"] = target.shadows(shadow_count, fixed, processes)
    report = target.canaries(wanted, some_steps, sure, fixed) if wanted else None
    pictures = [target.folder.audit / "membership.png"]
    save_picture(draw_membership(membership), pictures[0])
    if report is not None:
        pictures.insert(0, picture or target.folder.audit / "audit.png")
        save_picture(draw_audit(report), pictures[0])
    return _conclude(target, test, releases, report, membership, tuple(pictures))


def _conclude(
    target: AuditTarget,
    test: NeighbourTest | None,
    releases: ReleaseTest | None,
    report: AuditReport | None,
    membership: dict[str, Roc],
    pictures: tuple[Path, ...],
) -> RunAudit:
    """Write the findings; those of earlier audits by other attacks stay."""
    audit = RunAudit(target, test, releases, report, membership, (*pictures, target.folder.audit_result))
    values, earlier = audit.to_json(), target.read_earlier_audits()
    kept = {
        "audit": values["audit"] or earlier.get("audit"),
        "membership": {**earlier.get("membership", {}), **values["membership"]},
    }
    target.folder.write_audit(replace_infinity({**values, **kept}))
    target.record(test, releases, report)
    return audit


def _describe_report(report: AuditReport) -> tuple[str, str, str, str]:
    """Claimed and proven epsilon, the audited lower bound and the verdict, as text."""
    bound = report.finding.bound
    sure = bound.kind.value if bound.is_certain else f"{100 * bound.confidence:g} % confidence"
    text = f"≥ {down(bound.epsilon, 4)} ({sure})"
    if bound.gap is not None and math.isinf(bound.epsilon):
        text = f"no finite epsilon: delta ≥ {bound.gap:.4g} ({sure})"
    claimed, proven = _write_epsilon(report.claimed, "none"), _write_epsilon(report.proven, "nothing")
    return claimed, proven, text, str(report.verdict)


def _write_epsilon(value: float | None, otherwise: str) -> str:
    return otherwise if value is None or math.isinf(value) else f"{value:.4g}"


def _describe_roc(one: Roc) -> dict[str, Any]:
    return {
        "area": asdict(one.area),
        "found_at": {f"fpr_{rate:g}": asdict(interval) for rate, interval in one.found_at.items()},
        "members": one.members,
        "others": one.others,
        "confidence": one.confidence,
    }


@dataclass(frozen=True)
class ClaimAttack:
    """One attack on one method in one form."""

    fixture: Fixture
    report: AuditReport

    @property
    def is_as_expected(self) -> bool:
        """Whether a refuted claim breaks and a proven one does not."""
        return self.fixture.is_as_expected(self.report)

    def describe(self) -> tuple[str, ...]:
        """Method, pair of data sets, claim, proof, lower bound and verdict, as text for a rich table."""
        *numbers, verdict = _describe_report(self.report)
        style = "bold red" if not self.is_as_expected else "red" if self.fixture.breaks else ""
        verdict += "" if self.is_as_expected else ", not as expected"
        shown = f"[{style}]{verdict}[/]" if style else verdict
        return str(self.fixture), self.fixture.name.replace("_", " "), *numbers, shown

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        fixture = self.fixture
        about = {"method": fixture.method, "mode": fixture.mode, "form": fixture.form, "fixture": fixture.name}
        return {**about, "pair": fixture.pair, **write_report(self.report), "as_expected": self.is_as_expected}


@dataclass(frozen=True)
class ClaimsAudit:
    """Attacks on every published method, in every form."""

    attacks: tuple[ClaimAttack, ...]
    files: tuple[Path, ...]

    @property
    def is_as_expected(self) -> bool:
        """Whether every refuted claim broke and no proven one did."""
        return all(attack.is_as_expected for attack in self.attacks)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {"claims": [attack.to_json() for attack in self.attacks]}

    def summary(self) -> str:
        """How many attacks ended in which verdict."""
        counts = Counter(str(attack.report.verdict) for attack in self.attacks)
        verdicts = ", ".join(f"{count} × {verdict}" for verdict, count in counts.most_common())
        odd = sum(not attack.is_as_expected for attack in self.attacks)
        least = min(attack.report.finding.bound.confidence for attack in self.attacks)
        sure = "" if math.isclose(least, 1) else f" A measured bound is wrong with probability at most {1 - least:.2g}."
        return (
            f"{len(self.attacks)} attacks: {verdicts}; {'all as expected' if not odd else f'{odd} NOT AS EXPECTED'}. "
            f"Epsilon is at delta 1e-05, or at the delta of the claim.{sure} Why a refuted claim breaks: "
            "docs/guarantees.md."
        )


def audit_claims(
    out: str | Path | None = None, *, workers: float | None = None, plot: str | Path | None = None
) -> ClaimsAudit:
    """Attack every method in every form, on pairs of small data sets made for it. Resumable; takes some minutes."""
    picture = None if plot is None else Path(plot)
    refuse_unless_drawable(picture)
    count = count_cores() if workers is None else _validate.count("workers", workers)
    folder = CLAIMS if out is None else Path(out)
    names = [one.name for one in list_methods()]
    order = {(name, mode): (place, _MODES.index(mode)) for place, name in enumerate(names) for mode in _MODES}
    fixtures = sorted(published.all_fixtures(), key=lambda one: order[one.method, one.mode])
    pairs = zip(fixtures, run_fixtures(fixtures, folder, count), strict=True)
    picture = picture or folder / "audit.png"
    audit = ClaimsAudit(tuple(ClaimAttack(*pair) for pair in pairs), (picture, folder / "audit.json"))
    found = json.dumps(replace_infinity(audit.to_json()), indent=1, allow_nan=False)
    write_atomic(folder / "audit.json", found.encode(), is_private=True)
    rows = [(str(one.fixture), one.fixture.name.replace("_", " "), one.report) for one in audit.attacks]
    save_picture(draw_claims(rows), picture)
    return audit
