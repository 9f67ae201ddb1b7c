"""What becomes of a finding: sentences, a guarantee with a verdict in it, a picture; and what loads without torch."""

import subprocess
import sys

import numpy as np
import pytest

import tacit.audit
from tacit.accounting import Gaussian, curve
from tacit.audit import AuditReport, Finding, Kind, LowerBound, Verdict, recorded, roc
from tacit.guarantee import Guarantee
from tacit.reports.audit_plots import draw_audit, draw_claims, draw_membership

GUARANTEE = Guarantee(Gaussian(1.0), delta=1e-5, notes=("3 of 3 steps.",))


def report(contradicts: bool, claimed: float | None = None, proven: bool = True) -> AuditReport:
    bound = LowerBound(2.0, 1e-5, 0.99, Kind.SIMULATED)
    finding = Finding("an attack", bound, bound, contradicts, ((0.0, 1.0), (0.1, 0.5), (1.0, 0.0)), ("A note.",))
    certified = curve(Gaussian(1.0)) if proven else None
    return AuditReport(finding, claimed, certified.epsilon(1e-5) if certified else np.inf, certified)


def test_a_verdict_enters_the_guarantee_as_a_note_and_replaces_the_one_before():
    once = recorded(GUARANTEE, report(contradicts=False))
    twice = recorded(once, report(contradicts=False))
    assert once == twice
    assert once.notes[0] == "3 of 3 steps."
    assert once.notes[1].startswith("Audited (an attack): epsilon at least 2 at delta 1e-05")
    assert once.epsilon(1e-5) == GUARANTEE.epsilon(1e-5)


def test_a_contradiction_enters_it_as_an_error_that_a_person_resolves():
    found = recorded(recorded(GUARANTEE, report(contradicts=False)), report(contradicts=True))
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


def test_the_picture_has_the_attack_beside_the_curve_and_the_claim_if_it_is_below():
    figure = draw_audit(report(contradicts=False, claimed=0.5))
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    attack = lines["the attack: an attack"]
    np.testing.assert_array_equal(attack.get_xydata(), report(contradicts=False).finding.points)
    assert "claimed: ε = 0.5, δ = 1e-05" in lines
    assert "claim broken" in figure.get_suptitle()
    safe = draw_audit(report(contradicts=False, claimed=100.0)).axes[0]
    assert not any("claimed" in line.get_label() for line in safe.get_lines())


@pytest.mark.parametrize("claimed", [None, 0.5])
def test_a_picture_without_a_proven_curve_has_guessing_to_compare_with(claimed):
    axes = draw_audit(report(contradicts=False, claimed=claimed, proven=False)).axes[0]
    assert "guessing: no privacy lost" in [line.get_label() for line in axes.get_lines()]


def test_claims_are_drawn_one_beside_the_other_with_attacks_under_what_is_proven():
    broken = AuditReport(Finding("exact", gap := LowerBound.of_gap(0.1, 1e-5), gap, None), 0.25)
    measured = report(contradicts=False)
    figure = draw_claims([("one (paper), of a long name indeed", "a pair", broken), ("two", "another", measured)])
    first, second = (axes for axes in figure.axes if axes.axison)
    assert "nothing proven\nshown δ ≥ 0.1" in first.texts[0].get_text()
    assert "shown ε ≥ 2.000" in second.texts[0].get_text()
    assert first.get_lines()[-1].get_ydata() == pytest.approx(np.full(300, 0.1))
    alarms, found = second.get_lines()[-1].get_data()
    kept = [(one, 1 - other) for one, other in measured.finding.points if one > 0 and other < 1]
    np.testing.assert_allclose(np.stack([alarms, found], axis=1), kept)
    assert first.get_xscale() == first.get_yscale() == "log"


def test_membership_is_drawn_on_logarithmic_scales():
    rng = np.random.default_rng(0)
    axes = draw_membership({"loss": roc(rng.normal(1, 1, 200), rng.normal(0, 1, 200))}).axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_lines()[0].get_label().startswith("loss: AUC 0.7")


def test_every_public_name_is_there_and_in_order():
    assert tacit.audit.__all__ == sorted(tacit.audit.__all__)
    for name in tacit.audit.__all__:
        assert getattr(tacit.audit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        tacit.audit.adit  # noqa: B018


def test_the_statistics_load_without_torch():
    modules = ", ".join(
        f"tacit.audit.{name}"
        for name in ("statistics", "guessing", "weighing", "separation", "composed", "reports", "fixtures")
    )
    program = f"import sys, {modules}; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
