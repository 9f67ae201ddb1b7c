"""`tacit audit`: what it says, what it writes, and how it ends when a proof and an attack disagree."""

import contextlib
import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from tacit.audit.evidence import LowerBound
from tacit.audit.fixtures import gradient, nasr, xiang
from tacit.audit.releases import ReleaseTest
from tacit.features import Knots
from tacit.guarantee import Guarantee
from tacit.stages.noise import GaussianNoise


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.fixture
def run(run_cli):
    """A short private run on the digits."""
    done = run_cli("train digits --epsilon 4 --steps 30 --lot-size 300 --out first --seed 0")
    assert done.code == 0, done.err


@pytest.mark.slow
def test_an_audit_says_what_is_claimed_proven_and_found(run_cli, run, tmp_path):
    done = run_cli("audit first --canaries 200 --seed 1")
    assert done.code == 0, done.err
    for word in ("method", "claim", "proven", "audited lower bound", "verdict", "dpsgd on digits", "not contradicted"):
        assert word in done.out
    assert "99 %" in done.out
    assert "gradient norm: AUC" in done.out
    assert "at 0.1% FPR" in done.out
    for name in ("audit.png", "membership.png", "audit.json"):
        assert (tmp_path / "first" / "audit" / name).stat().st_size > 0
    guarantee = Guarantee.from_json((tmp_path / "first" / "guarantee.json").read_text())
    assert any(
        note.startswith("Audited (one run, 200 gradient canaries): epsilon at least") for note in guarantee.notes
    )
    assert not guarantee.errors
    # Once more, the finished run is only read; its note is replaced, not repeated.
    again = run_cli("audit first --canaries 200 --seed 1")
    assert again.out == done.out
    notes = Guarantee.from_json((tmp_path / "first" / "guarantee.json").read_text()).notes
    assert sum(note.startswith("Audited") for note in notes) == 1


@pytest.mark.slow
def test_json_holds_the_same_and_shadow_models_add_a_score(run_cli, run, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    done = run_cli("audit first --canaries 0 --shadows 4 --seed 2 --json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["audit"] is None
    assert set(said["membership"]) == {"loss", "entropy", "confidence", "gradient norm", "likelihood ratio"}
    low, area, high = (said["membership"]["likelihood ratio"]["area"][end] for end in ("low", "value", "high"))
    assert low < area < high
    assert len(list((tmp_path / "first" / "audit").glob("shadow-models-*.npy"))) == 4


@pytest.mark.slow
def test_noise_that_is_forgotten_fails_the_release_test_and_is_written_down(run_cli, run, tmp_path, monkeypatch):
    monkeypatch.setattr(GaussianNoise, "add", lambda self, bounded, rng: dict(bounded.values))
    done = run_cli("audit first --canaries 1000 --seed 3")
    assert done.code == 1
    assert done.out.startswith("Release test: failed")
    guarantee = Guarantee.from_json((tmp_path / "first" / "guarantee.json").read_text())
    assert "To be resolved: Release test" in str(guarantee)


@pytest.mark.slow
def test_an_attack_that_contradicts_a_proof_ends_with_1_and_is_written_down(run_cli, run, tmp_path, monkeypatch):
    monkeypatch.setattr(GaussianNoise, "add", lambda self, bounded, rng: dict(bounded.values))
    # As if the release test had not seen that noise is forgotten, so that the attack is made.
    monkeypatch.setattr(ReleaseTest, "passed", True)
    done = run_cli("audit first --canaries 1000 --seed 3 --plot worse.png")
    assert done.code == 1
    assert "contradicts what is proven" in done.out
    assert (tmp_path / "worse.png").exists()
    guarantee = Guarantee.from_json((tmp_path / "first" / "guarantee.json").read_text())
    assert "To be resolved: Audited" in str(guarantee)


@pytest.mark.slow
def test_fewer_steps_are_held_against_what_fewer_steps_prove(run_cli, run):
    said = json.loads(run_cli("audit first --canaries 50 --steps 5 --seed 4 --json").out)
    assert said["audit"]["proven"] < 3
    assert said["audit"]["claimed"] is None
    assert said["audit"]["verdict"] == "not contradicted"


@pytest.fixture
def quick(monkeypatch):
    """Attacks that are computed, and one that is counted; the tests of their methods run all others."""
    counted = replace(gradient.FIXTURES[0], attack=partial(gradient.TRIALS[0].run, 60))
    chosen = (*nasr.FIXTURES, *xiang.FIXTURES, counted)
    monkeypatch.setattr("tacit.audit.fixtures.all_fixtures", lambda: chosen)
    return chosen


@pytest.mark.slow
def test_claims_are_put_to_the_test(run_cli, quick, tmp_path):
    said = json.loads(run_cli("audit --claims --workers 1 --json").out)["claims"]
    assert len(said) == len(quick)
    assert all(one["as_expected"] for one in said)
    assert {one["mode"] for one in said} == {"paper", "rigorous"}
    # Results are kept, so this only reads them.
    shown = run_cli("audit --claims --workers 1 --plot all.png")
    assert shown.code == 0, shown.err
    for word in (
        "claim broken",
        "not contradicted",
        "directional (paper), w = 1",
        "99 % confidence",
        "all as expected",
    ):
        assert word in shown.out
    assert (tmp_path / "all.png").stat().st_size > 0
    assert json.loads((tmp_path / "audits" / "claims" / "audit.json").read_text())["claims"] == said


def test_a_refuted_claim_that_holds_ends_with_1(run_cli, monkeypatch):
    weak = replace(nasr.FIXTURES[0], attack=lambda: LowerBound(0.0, 1e-5, kind=nasr.FIXTURES[0].kind))
    monkeypatch.setattr("tacit.audit.fixtures.all_fixtures", lambda: (weak,))
    done = run_cli("audit --claims --workers 1 --out elsewhere")
    assert done.code == 1
    assert "not contradicted, not as expected" in done.out
    assert "1 NOT AS EXPECTED" in done.out


def test_ctrl_c_keeps_the_claims_that_were_attacked(run_cli, monkeypatch, tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    stopped = replace(nasr.FIXTURES[1], attack=interrupted)
    monkeypatch.setattr("tacit.audit.fixtures.all_fixtures", lambda: (nasr.FIXTURES[0], stopped))
    done = run_cli("audit --claims --workers 1 --out kept")
    assert done.code == 130
    assert "same command" in done.err
    assert len(list((tmp_path / "kept").glob("claims-*.npy"))) == 1


@pytest.mark.parametrize(
    ("line", "words"), [("audit", "Nothing to audit."), ("audit first --claims", "Two things to audit were given.")]
)
def test_one_thing_is_audited_at_a_time(run_cli, line, words):
    done = run_cli(line)
    assert done.code == 2
    assert words in done.err


def test_what_says_how_to_audit_a_run_is_not_ignored_where_none_is_audited(run_cli):
    done = run_cli("audit --claims --canaries 20 --seed 1")
    assert done.code == 2
    assert "--canaries, --seed is for the audit of a run" in done.err
    done = run_cli("audit first --out there")
    assert done.code == 2
    assert "RUN/audit" in done.err
    assert run_cli("audit --claims --workers 0").code == 2
    assert run_cli("audit --claims --plot claims.txt").code == 2


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done_and_says_how_to_go_on(run_cli, run, tmp_path, monkeypatch):
    whole = run_cli("audit first --canaries 200 --seed 1 --json").out
    steps = iter(range(100))
    monkeypatch.setattr(
        "tacit.workflows.audit_target.stop_on_interrupt", lambda: contextlib.nullcontext(lambda: next(steps) == 10)
    )
    shutil.rmtree(tmp_path / "first" / "audit")
    done = run_cli("audit first --canaries 200 --seed 1")
    assert done.code == 130
    assert "same command" in done.err
    with np.load(tmp_path / "first" / "audit" / "canaries" / "scores.npz") as saved:
        assert int(saved["step"]) == 11
    assert run_cli("audit first --canaries 200 --seed 1 --json").out == whole


@pytest.fixture
def averaged(run_cli):
    """A run that hands out the running mean of its weights."""
    done = run_cli("train digits --model mlp --multiplier 4 --steps 8 --averaging 0.9 --out mean --seed 7")
    assert done.code == 0, done.err


@pytest.mark.slow
def test_the_output_says_which_weights_were_attacked(run_cli, averaged, run, tmp_path):
    done = run_cli("audit mean --canaries 20 --seed 1")
    assert done.code == 0, done.err
    assert "Attacked: the running mean of the weights (decay 0.9), as in model.safetensors." in done.out
    assert "Attacked: the noisy gradient of every step; the running mean of the weights is made of these." in done.out
    said = json.loads((tmp_path / "mean" / "audit" / "audit.json").read_text())["attacked"]
    assert said["membership"] == "the running mean of the weights (decay 0.9), as in model.safetensors"
    plain = run_cli("audit first --canaries 0 --json")
    assert json.loads(plain.out)["attacked"]["membership"] == "the weights after the last step, as in model.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "is_kept"), [("mean", False), ("first", True)])
def test_what_earlier_versions_found_by_other_weights_is_not_kept(run_cli, averaged, run, tmp_path, name, is_kept):
    path = tmp_path / name / "audit" / "audit.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"audit": None, "membership": {"likelihood ratio": {"area": 0.9}}}))
    assert run_cli(f"audit {name} --canaries 0").code == 0
    assert ("likelihood ratio" in json.loads(path.read_text())["membership"]) == is_kept


@pytest.mark.slow
def test_a_damaged_model_is_not_audited(run_cli, run, tmp_path):
    (tmp_path / "first" / "model.safetensors").write_bytes(b"torn")
    done = run_cli("audit first")
    assert done.code == 2
    assert "model.safetensors cannot be read as a model" in done.err


@pytest.fixture
def by_recipe(run_cli):
    """A run by recipe on iris, which is not for release."""
    assert run_cli("train iris --epsilon 5 --recipe auto --out by-recipe --seed 0").code == 0


@pytest.mark.slow
def test_a_run_by_recipe_is_audited_like_any_other(run_cli, by_recipe, tmp_path):
    done = run_cli("audit by-recipe --canaries 60 --seed 1")
    assert done.code == 0, done.err
    for word in (
        "dpsgd by recipe on iris",
        "not contradicted",
        "gradient norm: AUC",
        "119 training examples against 31 others",
    ):
        assert word in done.out
    assert "not the releases that prepared the features" in " ".join(done.out.split())
    said = json.loads((tmp_path / "by-recipe" / "audit" / "audit.json").read_text())
    guarantee = Guarantee.from_json((tmp_path / "by-recipe" / "guarantee.json").read_text())
    # What is proven is about the preparation and the steps together: what the guarantee says.
    assert said["audit"]["proven"] == pytest.approx(guarantee.epsilon(guarantee.delta), rel=1e-9)
    assert 4.9 < said["audit"]["proven"] <= 5
    assert any(note.startswith("Audited (one run, 60 gradient canaries)") for note in guarantee.notes)
    again = run_cli("audit by-recipe --canaries 60 --seed 1")
    assert again.out == done.out


@pytest.mark.slow
def test_noise_that_is_forgotten_is_found_in_a_run_by_recipe(run_cli, by_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(GaussianNoise, "add", lambda self, bounded, rng: dict(bounded.values))
    assert run_cli("audit by-recipe --canaries 120 --steps 1 --seed 1").out.startswith("Release test: failed")
    # As if the release test had not seen it, so that the attack is made.
    monkeypatch.setattr(ReleaseTest, "passed", True)
    done = run_cli("audit by-recipe --canaries 120 --steps 1 --seed 1 --json")
    assert done.code == 1, done.err
    assert json.loads(done.out)["audit"]["verdict"] == "contradicts what is proven"
    guarantee = Guarantee.from_json((tmp_path / "by-recipe" / "guarantee.json").read_text())
    assert "To be resolved: Audited" in str(guarantee)


@pytest.mark.slow
def test_shadow_models_are_trained_by_the_recipe_too(run_cli, by_recipe, tmp_path):
    assert run_cli("audit by-recipe --canaries 60 --seed 1 --steps 5").code == 0
    done = run_cli("audit by-recipe --canaries 0 --shadows 2 --workers 1 --seed 2 --json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["audit"] is None
    kept = json.loads((tmp_path / "by-recipe" / "audit" / "audit.json").read_text())
    assert "likelihood ratio" in kept["membership"]
    # The attack that was left out this time is not forgotten.
    assert kept["audit"]["attack"] == "one run, 60 gradient canaries"


@pytest.mark.slow
def test_a_recipe_of_other_features_is_refused(run_cli, by_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(Knots, "transform", lambda self, rows: np.ones((len(rows), 7), dtype=np.float32))
    done = run_cli("audit by-recipe")
    assert done.code == 2
    assert "features, and this version of tacit makes 7 of the same data" in done.err


def test_a_folder_without_a_run_is_refused(run_cli, tmp_path):
    done = run_cli("audit nothing")
    assert done.code == 2
    assert "nothing" in done.err
