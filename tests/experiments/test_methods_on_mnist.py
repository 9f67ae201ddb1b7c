"""The experiment runs what is missing, goes on where it stopped, and shows what it saw."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from support.small_images import write_few_images
from tacit import methods

SCRIPT = Path(__file__).parents[2] / "experiments" / "methods_on_mnist" / "experiment.py"


@pytest.fixture
def experiment(monkeypatch):
    spec = importlib.util.spec_from_file_location("methods_on_mnist", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "methods_on_mnist", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def images(tmp_path):
    """Images in the form of MNIST, few of them."""
    write_few_images(tmp_path / "mnist.npz", train=300, test=50)
    return tmp_path / "mnist.npz"


def test_every_method_is_part_of_it(experiment):
    assert set(methods.GRADIENT_METHODS) - set(experiment.SAME_AS_DPSGD) <= set(experiment.forms())


def test_what_is_left_out_is_dpsgd_by_another_name(experiment):
    dpsgd = methods.dpsgd(0.5)
    left_out = [methods.GRADIENT_METHODS[name](0.5) for name in experiment.SAME_AS_DPSGD]
    for same in [*left_out, methods.directional(0.5, variant="w1"), methods.directional(0.5, variant="minimax")]:
        assert (same.bound, same.noise, same.post) == (dpsgd.bound, dpsgd.noise, dpsgd.post)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.Caution")
def test_a_few_steps_of_two_forms(experiment, images, tmp_path, monkeypatch, capsys):
    out = tmp_path / "results.jsonl"
    # Every image in every lot: without sampling, the noise for a budget is found in no time.
    monkeypatch.setattr(experiment, "LOT_SIZE", 60_000)
    monkeypatch.setattr(experiment, "HELD_OUT", 60)
    settings = ["--data", str(images), "--out", str(out), "--epochs", "2", "--epsilon", "3", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["experiment.py", *settings, "--only", "dpsgd", "noisy_adam"])
    experiment.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    # Three learning rates for two seeds on images held out, then the one whose worse run was best for each seed.
    assert len(rows) == 2 * (2 * 3 + 2)
    assert all(2.9 < row["certified"] <= row["epsilon"] for row in rows if row["seed"] >= 0)
    worse = {a["learning_rate"]: min(a["accuracy"], b["accuracy"]) for a, b in zip(rows[:3], rows[3:6], strict=True)}
    assert {row["learning_rate"] for row in rows[6:8]} == {max(worse, key=worse.__getitem__)}
    assert "| dpsgd | " in capsys.readouterr().out
    experiment.main()
    assert len(out.read_text().splitlines()) == len(rows)


def test_the_readme_shows_the_table_that_the_results_give(experiment):
    found = experiment.Results(experiment.FOLDER / "results.jsonl").read()
    shown = (experiment.FOLDER / "README.md").read_text(encoding="utf-8")
    shown = shown.partition(experiment.BEGIN)[2].partition(experiment.END)[0]
    assert experiment.table(found, 1.0) in shown
    worse = [experiment.replace(outcome, accuracy=outcome.accuracy / 2) for outcome in found]
    assert experiment.table(worse, 1.0) not in shown
