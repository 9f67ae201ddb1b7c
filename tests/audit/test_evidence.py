"""Findings as sentences, and as a verdict in a guarantee; and what loads without torch."""

import subprocess
import sys

import numpy as np
import pytest

import tacit.audit
from tacit.accounting import Gaussian, curve
from tacit.audit import AuditReport, Finding, Kind, LowerBound, Verdict, record_audit
from tacit.guarantee import Guarantee

GUARANTEE = Guarantee(Gaussian(1.0), delta=1e-5, notes=("3 of 3 steps.",))


def report(contradicts: bool, claimed: float | None = None, proven: bool = True) -> AuditReport:
    bound = LowerBound(2.0, 1e-5, 0.99, Kind.SIMULATED)
    finding = Finding("an attack", bound, bound, contradicts, ((0.0, 1.0), (0.1, 0.5), (1.0, 0.0)), ("A note.",))
    certified = curve(Gaussian(1.0)) if proven else None
    return AuditReport(finding, claimed, certified.epsilon(1e-5) if certified else np.inf, certified)


def test_a_verdict_enters_the_guarantee_as_a_note_and_replaces_the_one_before():
    once = record_audit(GUARANTEE, report(contradicts=False))
    twice = record_audit(once, report(contradicts=False))
    assert once == twice
    assert once.notes[0] == "3 of 3 steps."
    assert once.notes[1].startswith("Audited (an attack): epsilon at least 2 at delta 1e-05")
    assert once.epsilon(1e-5) == GUARANTEE.epsilon(1e-5)


def test_a_contradiction_enters_it_as_an_error_that_a_person_resolves():
    found = record_audit(record_audit(GUARANTEE, report(contradicts=False)), report(contradicts=True))
    assert found.notes == GUARANTEE.notes
    assert "Audit again." in found.errors[0]
    # A measured bound takes no proven number back.
    assert found.epsilon(1e-5) == GUARANTEE.epsilon(1e-5)
    assert Guarantee.from_json(found.to_json()) == found


def test_a_report_reads_as_sentences():
    text = str(report(contradicts=False, claimed=0.5))
    assert "claimed 0.5, proven 4.377. Verdict: claim broken." in text
    assert text.endswith("A note.")
    assert "nothing proven" in str(report(contradicts=False, proven=False))
    assert report(contradicts=True).verdict is Verdict.CONFLICT


def test_every_public_name_is_there_and_in_order():
    assert tacit.audit.__all__ == sorted(tacit.audit.__all__)
    for name in tacit.audit.__all__:
        assert getattr(tacit.audit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        tacit.audit.adit  # noqa: B018


@pytest.mark.slow
def test_the_statistics_load_without_torch():
    modules = ", ".join(
        f"tacit.audit.{name}" for name in ("statistics", "guessing", "separation", "evidence", "fixtures")
    )
    program = f"import sys, {modules}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
