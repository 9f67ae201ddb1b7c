"""`tacit.audit_run`: what attacks on a run find, beside what is proven."""

import json

import pytest

import tacit
from tacit.audit import Verdict
from tacit.audit.releases import ReleaseTest
from tacit.errors import CannotResume, InvalidArgument
from tacit.guarantee import Guarantee
from tacit.stages.noise import GaussianNoise

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


@pytest.fixture
def run():
    return tacit.train("iris", epsilon=1, steps=10, lot_size=119, seed=0, out="first")


@pytest.mark.slow
def test_an_audit_finds_no_more_than_is_proven_and_notes_it_in_the_guarantee(run):
    audit = tacit.audit_run(run.folder, canaries=60, seed=1, plot="audit.png")
    assert (audit.is_refuted, audit.report.verdict) == (False, Verdict.STANDS)
    proven = run.guarantee.epsilon(run.guarantee.delta)
    assert audit.report.finding.bound.epsilon <= audit.report.proven == pytest.approx(proven)
    assert set(audit.membership) == {"loss", "entropy", "confidence", "gradient norm"}
    assert audit.neighbours is None
    assert all(path.exists() for path in audit.files)
    saved = json.loads((run.folder / "audit" / "audit.json").read_text())
    assert saved["audit"]["proven"] == audit.report.proven
    notes = Guarantee.from_json((run.folder / "guarantee.json").read_text()).notes
    assert any("60 gradient canaries" in note for note in notes)
    assert "60 gradient canaries" in str(audit)


@pytest.mark.slow
def test_a_run_whose_noise_was_forgotten_is_refuted(monkeypatch):
    # Canaries do not hide each other: there are more weights than canaries.
    run = tacit.train("digits", epsilon=1, steps=5, lot_size=300, seed=0)
    monkeypatch.setattr(GaussianNoise, "add", lambda self, bounded, rng: dict(bounded.values))
    audit = tacit.audit_run(run.folder, canaries=200, seed=1)
    assert audit.is_refuted
    assert not audit.releases.passed
    assert audit.report is None
    # As if the release test had not seen it, so that the attack is made.
    monkeypatch.setattr(ReleaseTest, "passed", True)
    audit = tacit.audit_run(run.folder, canaries=200, seed=1)
    assert audit.is_refuted
    assert audit.report.finding.bound.epsilon > audit.report.proven


@pytest.mark.slow
def test_without_canaries_only_the_model_is_asked(run):
    audit = tacit.audit_run(str(run.folder), canaries=0)
    assert audit.report is None
    assert audit.to_json()["audit"] is None
    assert not audit.is_refuted


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"canaries": -1}, {"confidence": 2}, {"plot": "audit.txt"}])
def test_nonsense_is_refused(run, options):
    with pytest.raises(InvalidArgument):
        tacit.audit_run(run.folder, **options)


def test_a_folder_without_a_run_is_refused():
    with pytest.raises(CannotResume):
        tacit.audit_run("nothing")
