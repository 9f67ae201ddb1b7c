"""`tacit tune`: one budget for the whole search, charged before it, and nothing kept but the best."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tacit.accounting import EpsilonDelta
from tacit.budget import Budget
from tacit.guarantee import Guarantee
from tacit.ledger import Ledger

LINE = "tune iris --epsilon 3 --delta 1e-5 --lot-size 119 --steps 3,6 --clip-norm 0.5,1 --trials 3"
TABLE = """age,weight,outcome
{rows}
"""
BOUNDS = """
rows = 300
[columns]
age = { low = 0, high = 100 }
weight = { low = 0, high = 200 }
outcome = ["no", "yes"]
"""

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own", "one_thread")


@pytest.mark.slow
def test_a_search_says_what_it_costs_keeps_the_best_and_is_charged(run_cli, tmp_path):
    Ledger("iris.ledger").set_budget("iris", Budget(4, 1e-5))
    said = run_cli(f"{LINE} --ledger iris.ledger --out best")
    assert said.code == 0, said.err
    [charge] = Ledger("iris.ledger").account("iris").charges
    assert isinstance(charge.event, EpsilonDelta)
    assert 2.97 < charge.event.epsilon <= 3
    assert charge.event.delta == pytest.approx(1e-6)
    assert "3 trials on average" in said.out
    assert "iris has now spent epsilon" in said.out.lower()
    guarantee = Guarantee.from_json((tmp_path / "best" / "guarantee.json").read_text())
    assert guarantee.event == charge.event
    assert guarantee.epsilon(1e-5) <= 3
    assert {path.name for path in (tmp_path / "best").iterdir()} == {
        *("settings.json", "model.safetensors", "guarantee.json", "metrics.json")
    }
    metrics = json.loads((tmp_path / "best" / "metrics.json").read_text())
    assert metrics["settings"]["steps"] in (3, 6)
    assert metrics["settings"]["clip_norm"] in (0.5, 1)
    assert metrics["tuning"].startswith("Accounted for")
    refused = run_cli(f"{LINE} --ledger iris.ledger --out second")
    assert (refused.code, refused.out.count("Lower epsilon")) == (2, 0)
    assert "Lower epsilon to" in refused.err
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
def test_a_search_with_a_seed_can_be_repeated_and_is_marked(run_cli, tmp_path):
    first, second = (json.loads(run_cli(f"{LINE} --seed 3 --json --out {name}").out) for name in ("one", "two"))
    assert first | {"folder": None} == second | {"folder": None}
    assert first["guarantee"]["violations"] == ["fixed_seed"]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.slow
def test_a_report_of_the_best_says_that_tuning_is_accounted_for(run_cli, tmp_path):
    assert run_cli(f"{LINE} --out best").code == 0
    assert run_cli("report best --no-baseline").code == 0
    assert "Accounted for: this is the best of" in (tmp_path / "best" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--lot-size 10:20", "--lot-size changes what a trial costs"),
        ("--learning-rate x", "--learning-rate must be numbers above 0: a list such as 0.1,1,10, or a range"),
        ("--learning-rate 1:2:3", "--learning-rate must be numbers above 0"),
        ("--learning-rate -1,1", "--learning-rate must be numbers above 0"),
        ("--learning-rate 10:1", "--learning-rate must be numbers above 0"),
        ("--clip-norm ,", "--clip-norm must be numbers above 0"),
        ("--epochs 3 --steps 4", "--epochs and --steps"),
        ("--trials 1", "trials must be a number above 1"),
        ("--shape -1", "shape must be a finite number above -1"),
        ("--epsilon 0", "epsilon must be"),
        ("--method objective_perturbation", "trains linear models"),
        ("--out /proc/none", "cannot be written to /proc/none"),
    ],
)
def test_what_means_nothing_is_refused_in_a_sentence(run_cli, options, words):
    refused = run_cli(f"tune iris --epsilon 3 {options}")
    assert refused.code == 2
    assert words in refused.err
    assert refused.err.count("\n") == 1


@pytest.mark.slow
def test_a_table_of_ones_own_is_compared_on_rows_that_are_paid_for(run_cli, tmp_path):
    rows = "\n".join(f"{20 + i % 60},{50 + i % 90},{'yes' if i % 3 else 'no'}" for i in range(300))
    (tmp_path / "people.csv").write_text(TABLE.format(rows=rows))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    line = "tune people.csv --target outcome --bounds bounds.toml --epsilon 3 --lot-size 240 --steps 4 --trials 2"
    said = run_cli(f"{line} --out best")
    assert said.code == 0, said.err
    assert "compared on rows held out, with noise that is paid for" in said.out
    metrics = json.loads((tmp_path / "best" / "metrics.json").read_text())
    assert metrics["test_examples"] is None
    assert metrics["test"][-1]["noise_std"] > 0
    assert len(metrics["test"][-1]["interval"]) == 2
