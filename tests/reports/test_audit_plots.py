"""Plots of audits: the attack beside the curve and the claim, claims in panels, membership on logarithmic scales."""

import numpy as np
import pytest

from tacit.accounting import Gaussian, curve
from tacit.audit import AuditReport, Finding, Kind, LowerBound, roc
from tacit.reports.audit_plots import draw_audit, draw_claims, draw_membership


def report(contradicts: bool, claimed: float | None = None, proven: bool = True) -> AuditReport:
    bound = LowerBound(2.0, 1e-5, 0.99, Kind.SIMULATED)
    finding = Finding("an attack", bound, bound, contradicts, ((0.0, 1.0), (0.1, 0.5), (1.0, 0.0)), ("A note.",))
    certified = curve(Gaussian(1.0)) if proven else None
    return AuditReport(finding, claimed, certified.epsilon(1e-5) if certified else np.inf, certified)


def test_the_picture_has_the_attack_beside_the_curve_and_the_claim_if_it_is_below():
    figure = draw_audit(report(contradicts=False, claimed=0.5))
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    attack = lines["attack: an attack"]
    np.testing.assert_array_equal(attack.get_xydata(), report(contradicts=False).finding.points)
    assert "claimed: ε = 0.5, δ = 1e-05" in lines
    assert "claim broken" in figure.get_suptitle()
    safe = draw_audit(report(contradicts=False, claimed=100.0)).axes[0]
    assert not any("claimed" in line.get_label() for line in safe.get_lines())


@pytest.mark.parametrize("claimed", [None, 0.5])
def test_a_picture_without_a_proven_curve_has_guessing_to_compare_with(claimed):
    axes = draw_audit(report(contradicts=False, claimed=claimed, proven=False)).axes[0]
    assert "random guessing" in [line.get_label() for line in axes.get_lines()]


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
