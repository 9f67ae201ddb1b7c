"""`tacit train` on a table and a model of the user's own: nothing is looked up, and the score is paid for as well."""

import json
import sys

import numpy as np
import pytest

from tacit.datasets import load_table
from tacit.guarantee import Guarantee
from tacit.workflows.recipe import RecipeTraining
from tacit.workflows.saved import read_settings

BOUNDS = """
rows = 300
example = "patient"
[columns]
dose = { low = 0, high = 10 }
smoker = ["no", "yes"]
outcome = ["healthy", "ill"]
"""
LINE = "train patients.csv --target outcome --bounds bounds.toml"
NET = """
import torch
def make_model(shape, classes):
    return torch.nn.Linear(shape[0], classes, bias=False)
def plain():
    return torch.nn.Linear(3, 2)
def nothing(shape, classes):
    return shape
def broken(shape, classes):
    return 1 / 0
def narrow(shape, classes):
    return torch.nn.Linear(2, classes)
def silent(shape, classes):
    return torch.nn.Linear(shape[0], 1)
"""


@pytest.fixture(autouse=True)
def table(tmp_path, in_a_folder_of_its_own, one_thread):
    """A table, its bounds and a model."""
    rng = np.random.default_rng(0)
    doses = rng.uniform(0, 10, 300)
    rows = [f"{dose:.3f},{'yes' if dose > 6 else 'no'},{'ill' if dose > 5 else 'healthy'}" for dose in doses]
    (tmp_path / "patients.csv").write_text("dose,smoker,outcome\n" + "\n".join(rows))
    (tmp_path / "bounds.toml").write_text(BOUNDS)
    (tmp_path / "net.py").write_text(NET)


def refusal(run) -> str:
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1
    return run.err


@pytest.mark.slow
def test_a_table_of_ones_own_is_trained_on_and_scored_once(run_cli, tmp_path):
    said = run_cli(f"{LINE} --recipe none --epsilon 8 --out first").out
    assert "population of 240 (declared by you" in said
    assert "on rows held out, measured with noise" in said
    assert "What is protected is one patient" in said
    metrics = json.loads((tmp_path / "first/metrics.json").read_text())
    [score] = metrics["test"]
    assert 0.8 < score["accuracy"] <= 1
    # How many rows were held out is private.
    assert metrics["test_examples"] is None
    assert Guarantee.from_json((tmp_path / "first/guarantee.json").read_text()).epsilon(1e-5) <= 8


@pytest.mark.slow
def test_a_finished_run_does_not_release_a_second_score(run_cli, tmp_path):
    run_cli(f"{LINE} --epsilon 1 --recipe none --out first")
    first = json.loads((tmp_path / "first/metrics.json").read_text())["test"]
    assert run_cli("train --resume first").code == 0
    assert json.loads((tmp_path / "first/metrics.json").read_text())["test"] == first


@pytest.mark.slow
def test_a_score_that_was_lost_in_a_crash_is_not_drawn_again(run_cli, tmp_path):
    run_cli(f"{LINE} --epsilon 1 --recipe none --out first")
    metrics = json.loads((tmp_path / "first/metrics.json").read_text())
    (tmp_path / "first/metrics.json").write_text(json.dumps({**metrics, "test": []}))
    assert "No score" in run_cli("train --resume first").out


@pytest.mark.slow
def test_a_resumed_run_scales_by_the_bounds_it_began_with(run_cli, tmp_path):
    run_cli(f"{LINE} --epsilon 1 --out first")
    before = read_settings(tmp_path / "first").load()
    (tmp_path / "bounds.toml").write_text(BOUNDS.replace("high = 10", "high = 1000"))
    after = read_settings(tmp_path / "first").load()
    assert np.array_equal(before.train[0], after.train[0])


@pytest.mark.slow
def test_public_rows_are_scored_as_often_as_one_likes(run_cli, tmp_path):
    (tmp_path / "public.csv").write_text("dose,smoker,outcome\n1,no,healthy\n9,yes,ill\n")
    (tmp_path / "bounds.toml").write_text('test = "public.csv"\n' + BOUNDS)
    said = run_cli(f"{LINE} --epsilon 8 --out first").out
    assert "on 2 public examples" in said
    assert len(json.loads((tmp_path / "first/metrics.json").read_text())["test"]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("function", ["make_model", "plain"])
def test_a_model_of_ones_own_is_trained_and_resumed(run_cli, tmp_path, function):
    assert run_cli(f"{LINE} --model net.py:{function} --epsilon 1 --steps 4 --out first").code == 0
    assert run_cli("train --resume first").code == 0
    assert json.loads((tmp_path / "first/metrics.json").read_text())["settings"]["model"] == f"net.py:{function}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train patients.csv --epsilon 1", "needs --target and --bounds"),
        ("train patients.csv --epsilon 1", "with: tacit bounds patients.csv --target COLUMN"),
        ("train patients.csv --epsilon 1 --target outcome", "needs --bounds"),
        ("train patients.csv --epsilon 1 --target outcome", "with: tacit bounds patients.csv --target outcome"),
        ("train iris --epsilon 1 --target outcome", "--target and --bounds are for a table of your own"),
        (f"{LINE.replace('outcome ', 'outcom ')} --epsilon 1", "Did you mean outcome?"),
        (f"{LINE} --epsilon 1 --model nets.py:make_model", "there is no file"),
        (f"{LINE} --epsilon 1 --model net.py:make", "has no function make"),
        (f"{LINE} --epsilon 1 --model net.py:nothing", "must return a torch.nn.Module. It returned (3,)"),
        (f"{LINE} --epsilon 1 --model net.py:broken", "failed: ZeroDivisionError"),
        (f"{LINE} --epsilon 1 --model net.py:narrow", "does not take inputs of shape (3,), as those of patients are"),
        (f"{LINE} --epsilon 1 --model net.py:silent", "must answer each input of patients with 2 numbers"),
        (f"{LINE} --epsilon 1 --model lstm", "There is no model 'lstm'."),
        (f"{LINE} --epsilon 1 --model embedding", "--model embedding does not fit patients"),
        (f"{LINE} --epsilon 1 --steps 1e30", "steps must be at most 100,000,000"),
        (f"{LINE} --epsilon 1 --recipe auto --out /proc/none", "cannot be written to /proc/none"),
    ],
)
def test_what_is_missing_or_wrong_is_refused_in_one_sentence(run_cli, line, words):
    assert words in refusal(run_cli(line))


@pytest.mark.parametrize("name", ["patients.xlsx", "./patients", "patients", "patients.txt", "old/patients"])
@pytest.mark.parametrize("options", ["", "--target outcome --bounds bounds.toml"])
def test_a_table_in_another_form_is_refused_with_the_forms_that_are_read(run_cli, name, options):
    said = refusal(run_cli(f"train {name} --epsilon 1 {options}"))
    if name == "patients" and not options:
        assert "There is no data set 'patients'" in said
        return
    assert f"{name} is not a table that tacit can read" in said
    assert ".csv, .csv.gz, .tsv, .tsv.gz, .parquet and .npz" in said
    assert "such as patients.csv" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PATIENTS.CSV", "patients.tsv"])
def test_a_table_is_trained_on_however_its_ending_is_spelt(run_cli, tmp_path, name):
    text = (tmp_path / "patients.csv").read_text()
    (tmp_path / name).write_text(text.replace(",", "\t") if name.endswith("tsv") else text)
    run = run_cli(f"train {name} --target outcome --bounds bounds.toml --multiplier 2 --steps 2 --out first")
    assert (run.code, run.err) == (0, "")
    assert run_cli("train --resume first").code == 0


def test_a_table_in_another_encoding_is_to_be_saved_in_utf8(run_cli, tmp_path):
    (tmp_path / "patients.csv").write_bytes("dose,smoker,outcome\n1,no,healthy\n2,no,fiévreux\n".encode("latin-1"))
    said = refusal(run_cli(f"{LINE} --epsilon 1"))
    assert "is not text in UTF-8: line 3 is the first that is not" in said


@pytest.mark.slow
@pytest.mark.parametrize(("share", "is_any_held_out"), [(1e-5, False), (0.2, True)])
def test_a_share_that_happens_to_hold_no_row_out_is_scored_all_the_same(run_cli, tmp_path, share, is_any_held_out):
    (tmp_path / "bounds.toml").write_text(BOUNDS.replace("rows = 300", f"rows = 300\nheld_out = {share}"))
    data = load_table("patients.csv", target="outcome", bounds="bounds.toml")
    assert bool(len(data.test[1])) == is_any_held_out
    assert run_cli(f"{LINE} --multiplier 2 --steps 2 --seed 1 --out run").code == 0
    (row,) = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    assert {"step", "accuracy", "interval"} <= row.keys()


@pytest.mark.slow
def test_where_nothing_is_to_be_held_out_no_score_is_spoken_of(run_cli, tmp_path):
    (tmp_path / "bounds.toml").write_text(BOUNDS.replace("rows = 300", "rows = 300\nheld_out = 0"))
    run = run_cli(f"{LINE} --multiplier 2 --steps 2 --out run")
    assert "No score: no rows are held out, as declared" in run.out
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["test"] == []
    guarantee = (tmp_path / "run" / "guarantee.json").read_text()
    assert "No rows were held out for testing" in guarantee
    assert "noise of its own" not in guarantee
    run_cli("report run")
    facts = json.loads((tmp_path / "run" / "report.json").read_text())
    assert not [each for each in facts["release"]["released"] if "score" in each.lower()]
    assert "no rows to score" in refusal(run_cli(f"compare {LINE.removeprefix('train ')} --methods dpsgd"))
    assert "no rows to score" in refusal(
        run_cli(f"tune {LINE.removeprefix('train ')} --epsilon 3 --steps 1 --trials 1.5 --learning-rate 0.1,1")
    )


@pytest.mark.parametrize("line", ["train iris --method noisy_adam --epsilon 1", "compare iris --methods noisy_adam"])
def test_a_learning_rate_with_which_steps_are_no_numbers_is_refused(run_cli, line):
    assert "learning_rate must be a number above 0 and below 1e+30. Got 1e+38." in refusal(
        run_cli(f"{line} --learning-rate 1e38")
    )


@pytest.mark.slow
def test_by_default_a_table_of_ones_own_is_trained_by_recipe(run_cli, tmp_path):
    said = run_cli(f"{LINE} --epsilon 8 --out first").out
    assert "Plan: automatic recipe (table) on patients" in said
    assert json.loads((tmp_path / "first" / "metrics.json").read_text())["settings"]["recipe"]["kind"] == "table"


@pytest.mark.slow
def test_a_score_of_a_recipe_that_was_lost_in_a_crash_is_not_drawn_again(run_cli, tmp_path, monkeypatch):
    """Killed between the score and the last files: the score may have been seen."""
    with monkeypatch.context() as patch:
        patch.setattr(RecipeTraining, "_write", lambda self: sys.exit(9))
        assert run_cli(f"{LINE} --epsilon 8 --out first").code == 9
    drawn = []
    monkeypatch.setattr("tacit.workflows.recipe.held_out_score", lambda *given: drawn.append(given))
    assert run_cli("train --resume first").code == 0
    assert not drawn
