"""`tacit train --method` and `--mode`: every gradient method trains, and none that is refuted does so in silence."""

import json
import math
from pathlib import Path

import pytest

from tacit.accounting import Gaussian, curve
from tacit.guarantee import Guarantee, Status
from tacit.methods.registry import list_methods
from tacit.stages.bounds import Whiten
from tacit.stages.noise import Laplace
from tacit.training.folder import read_checkpoint

GRADIENT = [one for one in list_methods() if one.kind == "gradient"]
SHORT = "train iris --steps 40 --lot-size 10 --seed 1"

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


def guarantee_in(folder):
    return Guarantee.from_json((folder / "guarantee.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("one", GRADIENT, ids=lambda one: one.name)
def test_every_gradient_method_trains_within_its_budget(run_cli, tmp_path, one):
    run = run_cli(f"{SHORT} --epsilon 3 --method {one.name} --out run")
    assert run.code == 0, run.err
    assert "WARNING" not in run.err
    assert run.out.startswith(f"Plan: {one.name} on iris\n  multiplier ")
    found = guarantee_in(tmp_path / "run")
    assert found.method == one.name
    assert 2.9 < found.epsilon(1e-5) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("one", [one for one in GRADIENT if one.status == "refuted"], ids=lambda one: one.name)
def test_a_refuted_method_is_trained_and_never_in_silence(run_cli, tmp_path, one):
    run = run_cli(f"{SHORT} --epsilon 3 --method {one.name} --mode paper --out run")
    assert run.code == 0
    assert run.err.startswith(f"WARNING: the claim of {one.paper} about {one.name} as published is refuted.")
    assert "Nothing is proven about this run." in run.err
    found = guarantee_in(tmp_path / "run")
    assert found.status is Status.REFUTED
    assert found.mode == "paper"
    assert found.epsilon(1e-5) == math.inf
    assert f"Plan: {one.name} as published on iris" in run.out
    assert "no finite epsilon is proven" in run.out
    assert "Proven: nothing." in run.out


@pytest.mark.slow
def test_machines_are_warned_too_and_told_what_is_not_protected(run_cli):
    run = run_cli(f"{SHORT} --multiplier 2 --method pruned --mode paper --json")
    assert run.err.startswith("WARNING")
    assert "Not protected: support, residual." in run.err
    assert json.loads(run.out)["guarantee"]["status"] == "refuted"


@pytest.mark.slow
def test_a_claim_that_is_proven_needs_no_warning(run_cli):
    run = run_cli(f"{SHORT} --epsilon 3 --method dp_lssgd --mode paper")
    assert "WARNING" not in run.err
    assert "by the paper's rule for a claimed epsilon of 3: epsilon " in run.out


@pytest.mark.slow
def test_noise_as_given_is_accounted_for_by_its_own_law(run_cli, tmp_path):
    run_cli(f"{SHORT} --multiplier 2 --method encoded --out run")
    laid_out = json.loads((tmp_path / "run" / "settings.json").read_text(encoding="utf-8"))
    found = guarantee_in(tmp_path / "run")
    assert laid_out["epsilon"] == found.epsilon(1e-5)
    assert laid_out["epsilon"] != curve(Gaussian(2.0).sampled(10 / 120) * 40).epsilon(1e-5)


@pytest.mark.slow
def test_without_a_finite_epsilon_a_multiplier_has_no_budget(run_cli, tmp_path):
    run_cli(f"{SHORT} --multiplier 2 --method pruned --mode paper --out run")
    assert json.loads((tmp_path / "run" / "settings.json").read_text(encoding="utf-8"))["epsilon"] is None


def test_noise_that_only_a_budget_gives_is_asked_for_by_its_option(run_cli):
    run = run_cli(f"{SHORT} --multiplier 2 --method directional --mode paper")
    assert run.code == 2
    assert "Give --epsilon in place of --multiplier." in run.err
    assert "PrivateRun" not in run.err


@pytest.mark.slow
def test_a_finished_run_of_any_method_can_be_read_back(run_cli):
    run_cli(f"{SHORT} --epsilon 3 --method encoded --out run")
    assert run_cli("train --resume run").code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--method sgd", "There is no method 'sgd'. Did you mean dpsgd?"),
        ("--method output_perturbation", "makes one release"),
        ("--mode published", "'rigorous', 'paper'"),
    ],
)
def test_other_names_are_refused(run_cli, line, words):
    run = run_cli(f"{SHORT} --epsilon 3 {line}")
    assert run.code == 2
    assert words in run.err


@pytest.mark.slow
def test_a_choice_is_trained_kept_reported_and_resumed(run_cli, tmp_path):
    run = run_cli(f"{SHORT} --epsilon 3 --method directional --set objective=l2 --set grain=parameter --out run")
    assert run.code == 0, run.err
    assert run.out.startswith("Plan: directional objective=l2 grain=parameter on iris\n")
    chosen = {"objective": "l2", "grain": "parameter"}
    assert json.loads((tmp_path / "run" / "settings.json").read_text(encoding="utf-8"))["choices"] == chosen
    assert read_checkpoint(tmp_path / "run")["plan"].mechanism.bound == Whiten(1.0, "l2", "parameter")
    assert run_cli("report run").code == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "objective l2, grain parameter" in page
    assert "--set objective=l2 --set grain=parameter" in page
    assert run_cli("train --resume run").code == 0
    assert "--set was given too" in run_cli("train --resume run --set objective=l1").err


@pytest.mark.slow
def test_the_chosen_noise_is_the_one_that_is_accounted_for(run_cli, tmp_path):
    assert run_cli(f"{SHORT} --epsilon 3 --method encoded --set noise=laplace --out run").code == 0
    assert read_checkpoint(tmp_path / "run")["plan"].mechanism.noise.family == Laplace()
    assert 2.9 < guarantee_in(tmp_path / "run").epsilon(1e-5) <= 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--method directional --set variant=w2", "variant must be full, w1, minimax or floored"),
        ("--method directional --set keep=0.2", "directional has no choice 'keep'"),
        ("--method directional --mode paper --set objective=l2", "the published noise does not"),
        ("--method encoded --set noise=white", "noise must be one of 'gaussian'"),
        ("--recipe auto --set variant=w1", "--set itself"),
    ],
)
def test_choices_that_mean_nothing_are_refused_before_anything_is_made(run_cli, tmp_path, line, words):
    run = run_cli(f"{SHORT} --epsilon 3 {line} --out run")
    assert (run.code, run.out) == (2, "")
    assert words in run.err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_training_that_diverges_is_written_and_reported_in_finite_numbers(run_cli):
    run = run_cli("train diabetes --epsilon 1 --learning-rate 9e29 --steps 12 --model linear --out run")
    assert run.code == 0
    assert "no finite test score, because training diverged (use a smaller learning rate), on 88 public" in run.out
    metrics = json.loads(Path("run/metrics.json").read_text(), parse_constant=pytest.fail)
    assert metrics["test"][-1] == {"step": 12, "rmse": None}
    assert run_cli("report run").code == 0
    json.loads(Path("run/report.json").read_text(), parse_constant=pytest.fail)
    assert "diverged" in Path("run/report.html").read_text()
