"""`tacit train --method` and `--mode`: every gradient method trains, and none that is refuted does so in silence."""

import json
import math

import pytest

from tacit.accounting import Gaussian, curve
from tacit.guarantee import Guarantee, Status
from tacit.methods.registry import METHODS

GRADIENT = [one for one in METHODS if one.kind == "gradient"]
SHORT = "train iris --steps 40 --lot-size 10 --seed 1"

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


def guarantee_in(folder):
    return Guarantee.from_json((folder / "guarantee.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("one", GRADIENT, ids=lambda one: one.name)
def test_every_gradient_method_trains_within_its_budget(tacit, tmp_path, one):
    run = tacit(f"{SHORT} --epsilon 3 --method {one.name} --out run")
    assert run.code == 0, run.err
    assert "WARNING" not in run.err
    assert run.out.startswith(f"Plan: {one.name} on iris\n  multiplier ")
    found = guarantee_in(tmp_path / "run")
    assert found.method == one.name
    assert 2.9 < found.epsilon(1e-5) <= 3


@pytest.mark.parametrize("one", [one for one in GRADIENT if one.status == "refuted"], ids=lambda one: one.name)
def test_a_refuted_method_is_trained_and_never_in_silence(tacit, tmp_path, one):
    run = tacit(f"{SHORT} --epsilon 3 --method {one.name} --mode paper --out run")
    assert run.code == 0
    assert run.err.startswith(f"WARNING: what {one.paper} claim about {one.name} as published is refuted.")
    assert "Nothing is proven about this run." in run.err
    found = guarantee_in(tmp_path / "run")
    assert found.status is Status.REFUTED
    assert found.mode == "paper"
    assert found.epsilon(1e-5) == math.inf
    assert f"Plan: {one.name} as published on iris" in run.out
    assert "no finite epsilon is proven" in run.out
    assert "Proven: nothing." in run.out


def test_machines_are_warned_too_and_told_what_is_not_protected(tacit):
    run = tacit(f"{SHORT} --multiplier 2 --method pruned --mode paper --json")
    assert run.err.startswith("WARNING")
    assert "Not protected: support, residual." in run.err
    assert json.loads(run.out)["guarantee"]["status"] == "refuted"


def test_a_claim_that_is_proven_needs_no_warning(tacit):
    run = tacit(f"{SHORT} --epsilon 3 --method dp_lssgd --mode paper")
    assert "WARNING" not in run.err
    assert "by the paper's rule for a claimed epsilon of 3: epsilon " in run.out


def test_noise_as_given_is_accounted_for_by_its_own_law(tacit, tmp_path):
    tacit(f"{SHORT} --multiplier 2 --method encoded --out run")
    laid_out = json.loads((tmp_path / "run" / "settings.json").read_text(encoding="utf-8"))
    found = guarantee_in(tmp_path / "run")
    assert laid_out["epsilon"] == found.epsilon(1e-5)
    assert laid_out["epsilon"] != curve(Gaussian(2.0).sampled(10 / 120) * 40).epsilon(1e-5)


def test_without_a_finite_epsilon_a_multiplier_has_no_budget(tacit, tmp_path):
    tacit(f"{SHORT} --multiplier 2 --method pruned --mode paper --out run")
    assert json.loads((tmp_path / "run" / "settings.json").read_text(encoding="utf-8"))["epsilon"] is None


def test_a_finished_run_of_any_method_can_be_read_back(tacit):
    tacit(f"{SHORT} --epsilon 3 --method encoded --out run")
    assert tacit("train --resume run").code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--method sgd", "There is no method 'sgd'. Known: dpsgd"),
        ("--method output_perturbation", "is for linear models"),
        ("--mode published", "'rigorous', 'paper'"),
    ],
)
def test_other_names_are_refused(tacit, line, words):
    run = tacit(f"{SHORT} --epsilon 3 {line}")
    assert run.code == 2
    assert words in run.err
