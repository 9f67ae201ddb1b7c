"""`tacit compare`: in parallel, resumed where Ctrl-C stopped it, and never with cells of another comparison."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from report_folders import comparison_of
from tacit.cli.cells import NON_PRIVATE, Job, _unit_rows, run_job
from tacit.cli.comparing import methods_that_fit
from tacit.datasets import load
from tacit.errors import CannotResume
from tacit.methods.registry import METHODS, gradient_names

COMMAND = [sys.executable, "-m", "tacit", "compare", "iris", "--methods", "dpsgd,output_perturbation", "--seeds", "3"]
WAIT = 120


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A comparison that Ctrl-C stopped after some cells: its folder, how it ended, and what was written until then."""
    folder = tmp_path_factory.mktemp("comparison")
    command = [*COMMAND, "--epsilon", "1,2", "--steps", "200", "--workers", "2", "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + WAIT
    while not list(folder.glob("cells/*.json")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT)
    cells = {file.name: file.stat().st_mtime_ns for file in folder.glob("cells/*.json")}
    return command, folder, (process.returncode, out, err), cells


def test_an_interrupt_keeps_what_is_finished_and_says_how_to_go_on(stopped):
    _, folder, (code, out, err), cells = stopped
    assert (code, out) == (130, "")
    assert f"Stopped. All finished cells are kept in {folder}. Go on with: tacit compare iris" in err
    assert 0 < len(cells) < 15


def test_the_same_command_goes_on_and_trains_no_cell_twice(stopped):
    command, folder, _, before = stopped
    shutil.copytree(folder, again := folder.with_name("again"), copy_function=shutil.copy2)
    line = [{str(folder): str(again), "2": "1"}.get(word, word) for word in command]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=WAIT, check=True)
    after = {file.name: file.stat().st_mtime_ns for file in again.glob("cells/*.json")}
    assert len(after) == 2 * 2 * 3 + 3
    assert {name: after[name] for name in before} == before
    assert "accuracy at ε 1" in ended.stdout
    assert f"The report: {again / 'report.html'}" in ended.stdout
    assert (again / "report.html").is_file()
    assert list(again.glob("cells/*.unfinished")) == []


def test_every_method_that_fits_is_compared():
    iris = load("iris")
    assert methods_that_fit(iris, "linear") == tuple(one.name for one in METHODS)
    assert methods_that_fit(iris, "mlp") == gradient_names()


def test_the_seeds_repeat_a_cell(tmp_path):
    data, comparison = comparison_of(methods=("dpsgd",))
    for name in ("one", "two"):
        run_job(Job("dpsgd", "rigorous", 1.0, (0, 1)), data, comparison.typed, tmp_path / name)
    one, two = (
        [json.loads((tmp_path / name / f"cells/dpsgd-1-seed{seed}.json").read_text()) for seed in (0, 1)]
        for name in ("one", "two")
    )
    assert [cell["score"] for cell in one] == [cell["score"] for cell in two]
    assert one[0]["multiplier"] == one[1]["multiplier"]


@pytest.mark.parametrize("method", ["dpsgd", *(one.name for one in METHODS if one.kind == "linear")])
def test_no_cell_costs_more_than_was_asked_for(method, tmp_path):
    data, comparison = comparison_of(methods=(method,))
    run_job(Job(method, "rigorous", 2.0, (0,)), data, comparison.typed, tmp_path)
    cell = json.loads((tmp_path / f"cells/{method}-2-seed0.json").read_text())
    assert 1.8 < cell["guarantee"]["proven"]["epsilon_upper"] <= 2 * (1 + 1e-6)


def test_a_refusal_is_a_result(tmp_path):
    data, comparison = comparison_of()
    run_job(Job("dpsgd", "rigorous", 1.0, (0,)), data, replace(comparison.typed, model="none.py:make"), tmp_path)
    refused = json.loads((tmp_path / "cells/dpsgd-1-seed0.json").read_text())["refused"]
    assert refused.startswith("--model")
    assert "there is no file" in refused


def test_rows_are_scaled_each_by_itself():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]])
    assert _unit_rows(rows).tolist() == [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]
    assert np.array_equal(_unit_rows(rows[:1]), _unit_rows(rows)[:1])


def test_cells_of_another_comparison_are_not_taken_for_this_one(tmp_path):
    data, comparison = comparison_of()
    comparison.keep(data, tmp_path, "first")
    comparison.keep(data, tmp_path, "the same")
    others = {
        "steps": comparison_of(steps=7),
        "learning_rate": comparison_of(learning_rate=0.1),
        "data": (load("wine"), comparison),
    }
    for name, (other, changed) in others.items():
        with pytest.raises(CannotResume, match=rf"holds another comparison: {name} differ"):
            changed.keep(other, tmp_path, "another")


def test_a_broken_plan_is_not_overwritten(tmp_path):
    data, comparison = comparison_of()
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(CannotResume, match=r"was not written by tacit compare"):
        comparison.keep(data, tmp_path, "first")


def test_the_model_without_privacy_is_always_there():
    _, comparison = comparison_of(methods=("dpsgd",))
    assert [job.method for job in comparison.jobs()].count(NON_PRIVATE) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing", "There is no data set 'nothing'"),
        ("iris --epsilon 0", "epsilon must be a finite number above 0"),
        ("iris --epsilon ,", "Which budgets?"),
        ("iris --epsilon one", "'one' is not a number"),
        ("iris --methods sgd", "There is no method 'sgd'"),
        ("iris --methods output_perturbation --model mlp", "output_perturbation is for linear models"),
        ("iris --model lstm", "There is no model 'lstm'"),
        ("iris --seeds 0", "seeds must be a whole number of at least 1"),
        ("iris --workers 0", "workers must be a whole number of at least 1"),
        ("iris --out /proc/none", "cannot be written to /proc/none"),
        ("missing.csv", "needs --target and --bounds"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(tacit, line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tacit(f"compare {line}")
    assert (run.code, run.out) == (2, "")
    assert words in run.err
    assert "Traceback" not in run.err
