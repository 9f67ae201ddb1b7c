"""Pages of runs that are special: on a table of one's own, from a seed, with nothing proven, and stopped early."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from support.report_folders import BOUNDS, Outline, run_command
from tacit.accounting import Gaussian, curve
from tacit.cli import main
from tacit.datasets import Bounds
from tacit.reports.settings import command_of, explain_command

SEED = 987654321


def report_of(folder: Path) -> tuple[str, dict]:
    """The text of the page in the folder, and its twin."""
    return Outline((folder / "report.html").read_text()).text, json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def own(own_folder) -> Path:
    """Where a table, its bounds and a run on it lie."""
    return own_folder.parent


@pytest.fixture(scope="module")
def seeded(tmp_path_factory) -> Path:
    """A run from a seed about which nothing is proven."""
    folder = tmp_path_factory.mktemp("seeded") / "run"
    run_command(f"train iris --method directional --mode paper --epsilon 3 --steps 5 --seed {SEED} --out {folder}")
    run_command(f"report {folder} --no-baseline")
    return folder


@pytest.mark.slow
def test_bounds_and_target_are_said_as_a_table_and_as_a_file(own):
    text, twin = report_of(own / "run")
    assert twin["data"]["target"] == twin["settings"]["target"] == "target"
    assert "Column Declared Used as sepal length (cm) a number from 4 to 8 input" in text
    assert "target one of 0, 1, 2 target" in text
    assert "Public number of rows 150 One row one flower Held out for testing 20 % of the rows" in text
    assert Bounds.parse(twin["data"]["bounds"]["file"]).columns == Bounds.parse(BOUNDS).columns
    for name in ("report.html", "report.json"):
        written = (own / "run" / name).read_text()
        assert "Jones" not in written
        assert str(own) not in written


@pytest.mark.slow
def test_the_command_and_the_bounds_on_the_page_repeat_the_run(own, tmp_path, monkeypatch):
    _, twin = report_of(own / "run")
    (tmp_path / "flowers.csv").write_text((own / "flowers.csv").read_text())
    (tmp_path / "bounds.toml").write_text(twin["data"]["bounds"]["file"])
    monkeypatch.chdir(tmp_path)
    run_command(f"{twin['command'].removeprefix('tacit ')} --out again")
    first, again = (json.loads((each / "metrics.json").read_text()) for each in (own / "run", tmp_path / "again"))
    assert (first["settings"], first["multiplier"]) == (again["settings"], again["multiplier"])


@pytest.mark.slow
def test_a_noisy_score_is_said_with_its_noise_and_its_interval_and_is_not_drawn(own):
    text, twin = report_of(own / "run")
    utility = twin["utility"]
    low, high = utility["interval"]
    assert low <= utility["final"] <= high
    assert 0 < utility["noise_std"] < 0.5
    noise = f"noise of standard deviation {100 * utility['noise_std']:.2f} %"
    assert f"held-out rows, whose number is private ({noise}; 95 % confidence interval {100 * low:.2f} % to" in text
    assert 'id="figure-scores"' not in (own / "run/report.html").read_text()
    assert 'id="figure-steps"' in (own / "run/report.html").read_text()


def test_a_seed_stands_in_the_command_which_gives_the_same_numbers(seeded, tmp_path):
    text, twin = report_of(seeded)
    assert shlex.split(twin["command"])[-2:] == ["--seed", str(SEED)]
    assert twin["settings"]["seed"] == SEED
    assert "the same versions give the same numbers" in text
    assert "fresh noise" not in text
    run_command(f"{twin['command'].removeprefix('tacit ')} --out {tmp_path / 'again'}")
    first, again = (load_file(each / "model.safetensors") for each in (seeded, tmp_path / "again"))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_whoever_reads_a_seed_is_told_what_it_means(seeded):
    text, _ = report_of(seeded)
    assert "Not for release. No finite ε is proven" in text
    assert "keep both the model and this page private" in text
    assert "a secret that stays in the run's folder" in text
    assert json.loads((seeded / "settings.json").read_text())["salt"] not in text
    assert str(SEED) not in (seeded / "metrics.json").read_text()


def test_where_nothing_is_proven_the_page_says_so_and_shows_no_certificate(seeded):
    text, twin = report_of(seeded)
    guarantee = twin["guarantee"]
    assert (guarantee["accountant"], guarantee["profile"], twin["tradeoff"]) == (None, [], None)
    assert "Proven ε nothing" in text
    assert "No finite ε is proven at δ = 1e-05" in text
    assert "Accountant none: nothing is proven" in text
    assert "What is not protected Any example: nothing is proven" in text
    assert "Status of the claim: refuted ; there is no proven number to compare it with." in text
    for words in ("certified", "the guarantee covers", "the guarantee is the same", "Assumptions"):
        assert words not in text


@pytest.mark.slow
def test_fresh_noise_is_promised_where_it_is_fresh_and_something_is_proven(own):
    text, twin = report_of(own / "run")
    assert "fresh noise, so the numbers differ slightly; the guarantee is the same." in text
    assert "--seed" not in twin["command"]
    assert twin["settings"]["seed"] is None


@pytest.fixture
def stopped(request, tmp_path, interrupted_at) -> Path:
    """A run, with options of the test, that Ctrl-C ended after the third of ten steps."""
    interrupted_at(2)
    with pytest.raises(AssertionError):
        run_command(f"train iris --epsilon 3 --steps 10 {request.param} --out {tmp_path / 'run'}")
    return tmp_path / "run"


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["", "--mode paper"], indirect=True)
def test_a_run_that_was_stopped_says_beside_its_epsilon_when_to_count_all_of_it(stopped, capsys):
    run_command(f"report {stopped} --no-baseline")
    assert "count the full planned budget, ε = " in capsys.readouterr().out
    text, twin = report_of(stopped)
    assert twin["progress"]["steps"] == 3
    assert twin["guarantee"]["epsilon"]["upper"] < 2.9
    head = text[: text.index("Guarantee For any two")]
    assert "stopped after 3 of 10 planned steps" in head
    # What all ten steps cost, from nothing but the numbers on the page; in paper mode that is not the budget.
    settings = twin["settings"]
    whole = curve(Gaussian(settings["multiplier"]).sampled(settings["rate"]) * 10).epsilon(1e-5)
    shown = float(re.search(r"count the full planned budget, ε = ([\d.]+\d)", head)[1])
    assert whole <= shown < 1.001 * whole
    assert "for the 3 steps that were made" in head
    assert "the new one costs more" in text


@pytest.mark.parametrize("learning_rate", [0.1, 0.12345678901234567, 1e-7, 2.0])
def test_every_digit_of_a_number_is_in_the_command(learning_rate):
    kept = {"data": "iris", "method": "dpsgd", "epsilon": 3.0, "delta": 1e-5, "learning_rate": learning_rate, "seed": 0}
    words = shlex.split(command_of(kept))
    assert float(words[words.index("--learning-rate") + 1]) == learning_rate
    assert words[-2:] == ["--seed", "0"]


@pytest.mark.parametrize(
    ("changes", "metrics", "words"),
    [
        ({"seed": 1}, {"is_finished": False}, "It runs all steps; this run was stopped early."),
        ({"seed": 1}, {"is_finished": True}, "the same versions give the same numbers."),
        ({}, {"is_finished": False}, "this run was stopped early"),
        ({}, {"is_finished": True, "tuning": "yes"}, "the guarantee above covers the whole search"),
        ({"data_path": "/home/jones"}, {"is_finished": True}, "DATA is your copy of the data."),
        ({"model": "/home/jones/net.py:make"}, {"is_finished": True}, "You need the file net.py"),
    ],
)
def test_what_the_command_needs_and_gives_is_said(changes, metrics, words):
    said = " ".join(explain_command({"model": "linear", **changes}, metrics, is_proven=True))
    assert words in said
    assert "jones" not in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["settings.json", "metrics.json"])
@pytest.mark.parametrize("text", ["null", "[1]", '{"version": 1}'])
def test_files_that_tacit_did_not_write_are_refused_in_one_sentence(own, tmp_path, monkeypatch, capsys, name, text):
    shutil.copytree(own / "run", tmp_path / "run")
    (tmp_path / "run" / name).write_text(text)
    monkeypatch.setattr("sys.argv", ["tacit", "report", str(tmp_path / "run"), "--no-baseline"])
    with pytest.raises(SystemExit) as stop:
        main()
    is_whole = name == "metrics.json" and text.startswith("{")
    assert (stop.value.code or 0) == (0 if is_whole else 2)
    assert capsys.readouterr().err.count("\n") == (0 if is_whole else 1)
