"""`tacit compare`: in parallel, resumed where Ctrl-C stopped it, and never with cells of another comparison."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tacit", "compare", "iris", "--methods", "dpsgd,output_perturbation", "--seeds", "3"]
# A loaded machine takes minutes to start processes; nothing waits longer than it must.
WAIT = 900


def begun(folder, workers=2):
    """The command, as soon as it has finished a cell more than there were."""
    command = [*COMMAND, "--epsilon", "1", "--steps", "200", "--workers", str(workers), "--out", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before, until = len(cells_in(folder)), time.monotonic() + WAIT
    while len(cells_in(folder)) == before and process.poll() is None:
        assert time.monotonic() < until, "no result was finished"
        time.sleep(0.05)
    return process


def cells_in(folder):
    """The finished cells, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("cells/*.json")}


def children_of(process):
    """Its processes, where the system lists them."""
    return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()


def ended(pids):
    """Whether all of these processes end."""
    until = time.monotonic() + WAIT
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the processes of a process")
def test_a_comparison_goes_on_after_an_interrupt_and_after_a_kill(tmp_path, run_cli):
    # Ctrl-C: what is finished is kept, and the way on is told.
    process = begun(tmp_path, workers=1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out) == (130, "")
    first = cells_in(tmp_path)
    assert f"Stopped. {len(first)} of 9 results are kept in {tmp_path}. Continue with: tacit compare" in err
    assert 0 < len(first) < 9
    # Its report says what is missing.
    told = run_cli(f"report {tmp_path}").out
    assert f"Unfinished: {len(first)} of 9 cells are trained, so" in told
    assert f"{len(first)} of 9 cells are trained, so" in (tmp_path / "report.html").read_text()
    # A kill: its processes do not go on without it.
    process = begun(tmp_path)
    children = children_of(process)
    process.kill()
    process.communicate(timeout=WAIT)
    assert len(children) >= 2
    assert ended(children)
    second = cells_in(tmp_path)
    assert len(first) < len(second)
    # The same command trains what is missing or damaged, and nothing else twice.
    damaged = tmp_path / "cells" / min(first)
    damaged.write_bytes(damaged.read_bytes()[:100])
    run = run_cli(f"{shlex.join(COMMAND[3:])} --epsilon 1 --steps 200 --workers 1 --out {tmp_path}")
    third = cells_in(tmp_path)
    assert len(third) == 2 * 3 + 3
    assert {name for name, when in second.items() if third[name] != when} == {damaged.name}
    assert f"{damaged} is damaged and is trained again." in run.err
    assert "accuracy (interval)" in run.out
    assert run.out.splitlines()[-1] == f"Page: {tmp_path / 'report.html'}"
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the processes of a process")
@pytest.mark.parametrize("seconds", [0.2])
def test_ctrl_c_in_the_first_seconds_reaches_all_processes_and_is_answered_in_one_sentence(tmp_path, seconds):
    command = [*COMMAND, "--epsilon", "1,2", "--steps", "20000", "--workers", "2", "--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    until = time.monotonic() + WAIT
    # Of a terminal's Ctrl-C everything in the group hears, processes too that are only beginning.
    while len(children_of(process)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(seconds)
    children = children_of(process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert "results are kept in" in err
    assert ended(children)


def test_the_recipe_can_be_asked_for_beside_methods(run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda *_: False)
    run_cli(f"compare iris --methods dpsgd,recipe --seeds 1 --epsilon 1 --out {tmp_path / 'out'}")
    [plan] = json.loads((tmp_path / "out/comparison.json").read_text())["plans"]
    assert {cell["method"] for cell in plan["cells"]} == {"non_private", "dpsgd", "recipe"}


def test_the_command_is_kept_as_it_was_typed(run_cli, tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.workflows.compare.run_jobs", lambda *_: False)
    line = f"compare iris --methods dpsgd --out {tmp_path / 'out'}"
    monkeypatch.setattr("sys.argv", ["tacit", *shlex.split(line)])
    assert f"Continue with: tacit {line}" in run_cli(line).err
    (plan,) = json.loads((tmp_path / "out/comparison.json").read_text())["plans"]
    assert plan["command"] == f"tacit {line}"


def test_a_command_that_is_refused_leaves_the_plan_as_it_was(run_cli, tmp_path):
    assert run_cli(f"compare iris --workers 0 --out {tmp_path / 'new'}").code == 2
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_forms_as_published_are_named_in_the_answer_and_warned_of_nowhere_else(run_cli, tmp_path):
    run = run_cli(
        "compare iris --epsilon 1 --methods noisy_sgd --mode both --seeds 1 --steps 5 --workers 1 --table "
        f"--out {tmp_path}"
    )
    assert run.code == 0
    assert "WARNING" not in run.err
    text = " ".join(run.out.split())
    assert "Published privacy claims that do not hold: 1 of 1 (noisy_sgd)." in text
    assert "noisy_sgd (as published)" in text
    assert run.out.splitlines()[-1] == f"Page: {tmp_path / 'report.html'}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nothing", "There is no data set 'nothing'"),
        ("iris --epsilon 0", "epsilon must be a finite number above 0"),
        ("iris --epsilon ,", "Which budgets?"),
        ("iris --epsilon one", "'one' is not a number"),
        ("iris --methods ,", "Which methods?"),
        ("iris --methods sgd", "There is no method 'sgd'"),
        ("iris --methods output_perturbation --model mlp", "output_perturbation is for linear models"),
        ("iris --model lstm", "There is no model 'lstm'"),
        ("iris --seeds 0", "seeds must be a whole number of at least 1"),
        ("iris --workers 0", "workers must be a whole number of at least 1"),
        ("iris --out /proc/none", "cannot be written to /proc/none"),
        ("iris --set variant=w1", "Which method? --set takes METHOD.NAME=VALUE"),
        ("iris --methods dpsgd --set directional.variant=w1", "the compared methods are dpsgd"),
        ("iris --methods directional --set directional.variant=w2", "variant must be full, w1"),
        ("missing.csv", "needs --target and --bounds"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(run_cli, line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = run_cli(f"compare {line}")
    assert (run.code, run.out) == (2, "")
    assert words in run.err
    assert "Traceback" not in run.err
