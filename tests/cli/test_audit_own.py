"""`tacit audit` of a model that the user wrote: before any attack, examples are removed one at a time."""

import json

import numpy as np
import pytest

from tacit.audit import NeighbourTest
from tacit.audit.neighbours import Neighbour
from tacit.guarantee import Guarantee

BOUNDS = """
rows = 200
[columns]
dose = { low = 0, high = 10 }
weight = { low = 40, high = 120 }
outcome = ["healthy", "ill"]
"""
NET = """
import torch
def make_model(shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 8), torch.nn.Tanh(), torch.nn.Linear(8, classes))
"""
# The same weights, and each row sees the mean of its lot.
CENTRED = """
import torch
class Net(torch.nn.Sequential):
    def forward(self, x):
        return super().forward(x - x.mean(0))
def make_model(shape, classes):
    return Net(torch.nn.Linear(shape[0], 8), torch.nn.Tanh(), torch.nn.Linear(8, classes))
"""


@pytest.fixture(autouse=True)
def run(run_cli, tmp_path, in_a_folder_of_its_own, one_thread):
    """A run of a model that the user wrote, on a table of the user's own."""
    rng = np.random.default_rng(0)
    rows = [f"{dose:.3f},{40 + 8 * dose:.3f},{'ill' if dose > 5 else 'healthy'}" for dose in rng.uniform(0, 10, 200)]
    (tmp_path / "patients.csv").write_text("dose,weight,outcome\n" + "\n".join(rows))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    (tmp_path / "net.py").write_text(NET)
    line = "train patients.csv --target outcome --bounds bounds.toml --model net.py:make_model"
    done = run_cli(f"{line} --multiplier 2 --steps 3 --out first")
    assert done.code == 0, done.err


def guarantee_in(tmp_path):
    return Guarantee.from_json((tmp_path / "first" / "guarantee.json").read_text())


@pytest.mark.slow
def test_a_model_whose_examples_do_not_meet_passes_in_one_line(run_cli, tmp_path):
    done = run_cli("audit first --canaries 0")
    assert done.code == 0, done.err
    assert "Removing one example moves the released sum by at most" in done.out
    kept = json.loads((tmp_path / "first" / "audit" / "audit.json").read_text())["neighbours"]
    assert kept["passed"]
    assert 0 < kept["movement"] <= 1.001
    assert kept["tried"] > 50
    guarantee = guarantee_in(tmp_path)
    assert any(note.startswith("Neighbour test: passed (tried ") for note in guarantee.notes)
    assert not guarantee.errors


@pytest.mark.slow
def test_a_model_that_is_refused_by_now_ends_with_1(run_cli, tmp_path):
    (tmp_path / "net.py").write_text(CENTRED)
    done = run_cli("audit first --canaries 20")
    assert done.code == 1, done.err
    assert "the proof does not apply" in done.out
    assert "AUC" not in done.out
    assert "To be resolved: Neighbour test" in str(guarantee_in(tmp_path))
    assert json.loads((tmp_path / "first" / "audit" / "audit.json").read_text())["neighbours"]["refusal"]


@pytest.mark.slow
def test_a_sum_that_moves_too_far_ends_with_1_and_is_resolved_by_a_later_audit(run_cli, tmp_path, monkeypatch):
    worst = Neighbour("removed", 0, 8, 0, 2)
    with monkeypatch.context() as patch:
        patch.setattr("tacit.workflows.audit_target.neighbour_test", lambda *_, **__: NeighbourTest(3.42, 64, worst))
        done = run_cli("audit first --json")
    assert done.code == 1, done.err
    said = json.loads(done.out)
    assert (said["neighbours"]["movement"], said["audit"], said["membership"]) == (3.42, None, {})
    assert "moves the released sum by 3.42 clip norms" in said["neighbours"]["sentence"]
    assert guarantee_in(tmp_path).errors
    assert run_cli("audit first --canaries 0").code == 0
    assert not guarantee_in(tmp_path).errors


@pytest.mark.slow
def test_models_that_tacit_ships_are_not_tested(run_cli, tmp_path):
    run_cli("train patients.csv --target outcome --bounds bounds.toml --multiplier 2 --steps 2 --out second")
    done = run_cli("audit second --canaries 0 --json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["neighbours"] is None
